"""``rlwb tca``: what a person's own fills cost, beside what other policies would have paid on the same orders."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, ConfigError, OrderError
from rlwb.execution import (
    AmountActionInterpreter,
    Baseline,
    Engine,
    ExecutionState,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    align_orders,
    fill_orders,
    read_fills,
)
from rlwb.execution.attribution import attribute_fills
from rlwb.execution.fills import tick_of
from rlwb.execution.metrics import average_price
from rlwb.execution.rules import BASIS_POINTS, valid_prices
from rlwb.experiment import backtest
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.origin import refuse_training_changes, seen_in_training
from rlwb.experiment.own_code import require_trust, trust
from rlwb.experiment.pipeline import check_config
from rlwb.experiment.report import cells, costs_view
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.experiment.yamlfile import dump_yaml, read_yaml
from rlwb.files import atomic_path, write_json, write_text
from rlwb.reading import read_json

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table

FILLS = "fills"
_BESIDE = ("twap", "vwap", "pov")
#: Rules whose cost a real fill has in its price, or in its stated fee.
_IN_PRICE, _IN_FEE = ("half_spread_bps",), ("commission_bps", "min_fee", "sell_tax_bps")


@dataclass(frozen=True, eq=False)
class CostAnalysis:
    """The result of a transaction cost analysis.

    Attributes
    ----------
    folder
        Where its files are.
    table
        All policies side by side, the fills first.
    costs
        What each paid by part (`rlwb.evaluation.cost_table`).
    excess
        One row an other policy: cost of the fills less its own on the same orders, in basis points, with its interval.
    notes
        What was left out, doubted or assumed, in sentences.
    """

    folder: Path
    table: Table
    costs: pd.DataFrame
    excess: pd.DataFrame
    notes: list[str]


@dataclass(frozen=True, eq=False)
class Recorded:
    """Real fills by order and tick, float64 of shape (N, T) each.

    Attributes
    ----------
    fill, price
        Amount filled, and the price of the bar, or of the fills where the bar has none.
    beside, fee
        Currency that the fills paid beside that price, and the fees that they state, 0 where they state none.
    """

    fill: np.ndarray
    price: np.ndarray
    beside: np.ndarray
    fee: np.ndarray


class RecordedFills(OrderExecution):
    """The market as it was: orders are filled as a record of real fills says, whatever is asked for.

    Parameters
    ----------
    engine
        The clock, and the rules of costs that are not in the prices of the fills.
    orders, recorded
        The orders, and their fills.
    """

    def __init__(self, engine: Engine, orders: OrderBatch, recorded: Recorded) -> None:
        super().__init__(engine)
        self.orders, self.recorded = orders, recorded

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return amounts of 0, float64 of shape (N,): nothing needs to be asked for."""
        return np.zeros(len(obs))

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        """Fill what was filled in the ticks of the step; `action` counts for nothing."""
        rows, ticks = np.searchsorted(self.orders.row, state.orders.row)[:, None], state.step_ticks()
        own = (ticks >= 0) & ~state.done[:, None]
        fill, price, beside, fee = (
            np.where(own, values[rows, np.maximum(ticks, 0)], 0.0) for values in vars(self.recorded).values()
        )
        after, cost = state.traded(fill.sum(axis=1), fill, price), (beside + fee).sum(axis=1)
        steps = (*after.steps[:-1], dataclasses.replace(after.steps[-1], cost=cost))
        return dataclasses.replace(after, now=dataclasses.replace(after.now, cost=after.now.cost + cost), steps=steps)


def launch_tca(
    fills: Path,
    bars: Path,
    config_file: Path | None = None,
    changes: Sequence[str] = (),
    *,
    run: Path | None = None,
    out: Path | None = None,
    columns: Mapping[str, str] | None = None,
    codes: Mapping[Any, str] | None = None,
    source_timezone: str | None = None,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> CostAnalysis:
    """Do what ``rlwb tca`` asks for: analyse the fills of a file on the bars of their days; write a folder.

    Parameters
    ----------
    fills, bars
        Files, or a folder or data set of bars.
    config_file, changes
        Parameters and assignments: the clock of the bars, the rules, the baselines.
    run
        A finished run whose best checkpoint trades the same orders, under its configuration.
    out
        The folder; None makes one in the working directory, named after the fills.
    columns, codes, source_timezone
        See `rlwb.execution.fill_table`.
    trust_code
        Run the code that the run names, wherever it is from.
    """
    folder = out or next(one for number in count(1) if not (one := _named(fills, number)).exists())
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(
            f"{folder} is not empty; name a new folder, so that no result of another analysis is mixed in."
        )
    origin = None if run is None else RunDirectory.open(run)
    source = Layer("--bars", {"market.source": str(bars)})  # before all else it says that bars are read, after it which
    layers = [source, parse_assignments(changes), source]
    if config_file is not None:
        layers.insert(1, Layer(str(config_file), read_yaml(config_file), config_file.parent))
    if origin is None:
        config = RunConfig.load(None, Layer("rlwb tca", {"baselines": list(_BESIDE)}), *layers)
    else:
        config = origin.load_config(*layers)
        refuse_training_changes(origin.config, config)
    trust(config, beside=None if origin is None else origin.config)
    require_trust(config, given=trust_code)
    check_config(config)
    bench = Workbench(config, is_elsewhere=origin is not None)
    table = read_fills(
        fills,
        bench.sessions.calendar,
        columns=columns,
        codes=codes,
        source_timezone=source_timezone,
        on_refused="drop",
    )
    echo(f"{len(table):,} fills of {table['order_id'].nunique():,} orders on {bench.sessions!r}")
    analysis = analyse(bench, table, folder, origin=origin)
    echo(f"analysis: {folder}")
    return analysis


def analyse(bench: Workbench, fills: pd.DataFrame, folder: Path, *, origin: RunDirectory | None = None) -> CostAnalysis:
    """Judge fills on the bars of a workbench, beside its baselines and the best checkpoint of a run; write a folder.

    ``orders/<policy>.parquet`` has one row an order, ``fills.parquet`` one a fill; ``summary.csv``, ``metrics.csv``,
    ``costs.csv`` and ``cost_groups.csv`` are as in a backtest, ``excess.csv`` has the cost of the fills less that of
    each policy; ``report.html`` shows them, ``notes.json`` what was left out, doubted or assumed.

    Parameters
    ----------
    bench
        The bars, the rules and the baselines.
    fills
        A canonical table of fills; see `rlwb.execution.fill_table`.
    """
    from rlwb.evaluation import comparison, cost_groups, cost_table, metric_table, summary

    notes = list(fills.attrs.get("notes", ()))
    orders = _orders_of(bench, fills, notes)
    results = [_result_of(bench, fills, orders, notes)]
    if origin is not None:
        results.append(_best_of(bench, origin, orders, notes))
    baselines = backtest.make_baselines(bench) if origin is None else backtest.told_baselines(bench, origin)
    for name, one in baselines.items():
        if origin is None and isinstance(one, Baseline) and one.state_dict():
            raise ConfigError(f"the baseline {name} estimates the market on training days; name a run by --run.")
        results.append(backtest.baseline_result(bench, name, one, orders))
    results = [dataclasses.replace(one, orders=one.orders.filter(regex="^(?!reward)")) for one in results]
    interval = backtest.interval_of(bench.config)
    named = {one.policy: one for one in results}
    alone = {name: [one] for name, one in named.items()}
    table = comparison(
        named,
        titles={one.policy: one.display_name for one in results},
        notes=notes,
        rules=bench.engine.rules,
        **interval,
    )
    costs, excess = cost_table(alone, **interval), _excess(results, **interval)
    metrics = metric_table(alone, **interval)
    backtest.write_results(folder, results)
    with atomic_path(folder / "fills.parquet") as target:
        fills.set_axis(fills.columns, axis=1).to_parquet(target, index=False)
    tables = {"summary": summary(metrics), "metrics": metrics, "costs": costs, "excess": excess}
    for name, frame in {**tables, "cost_groups": cost_groups(results)}.items():
        with atomic_path(folder / f"{name}.csv") as target:
            frame.to_csv(target, index=False)
    write_json(folder / "notes.json", {"notes": notes})
    analysis = CostAnalysis(folder, table, costs, excess, notes)
    _write_page(analysis, results, bench.config)
    return analysis


def _named(fills: Path, number: int) -> Path:
    return Path(f"{fills.name.partition('.')[0]}-tca{'' if number == 1 else f'-{number}'}")


def _orders_of(bench: Workbench, fills: pd.DataFrame, notes: list[str]) -> OrderBatch:
    """Return the orders of fills, aligned, with the price of their decision; add to `notes` what is left out."""
    calendar = bench.sessions.calendar
    seconds = (fills["time"] - fills["time"].dt.normalize()).dt.total_seconds().to_numpy()
    timed = (tick_of(seconds, calendar) >= 0) | fills["start"].notna().to_numpy()
    has_window = pd.Series(timed, fills.index).groupby(fills["order_id"]).transform("any")
    if not has_window.all():
        ids = fills["order_id"][~has_window].unique()
        notes.append(f"left out: no start, and every fill outside the session ({len(ids)} orders, first {ids[0]})")
        fills = fills[has_window]
    if fills.empty:
        raise OrderError(f"{notes[-1]}; no order remains: check the calendar and the zone of the stamps.")
    first = fills.groupby("order_id", sort=False).first()
    table = fill_orders(fills, calendar)
    batch = align_orders(table, bench.sessions, bench.engine.rules, on_refused="drop")
    for found, what in ((batch.refused, "left out: "), (batch.noted, "")):
        notes += [
            f"{what}{reason} ({len(ids)} of {len(table)} orders, first {ids[0]})" for reason, ids in found.items()
        ]
    missing = {
        "order_quantity": "order quantity, so that what was filled counts as the whole of them",
        "start": "start, so that they arrive with their first fill",
        "end": "end, so that they end with their last fill for every policy",
    }
    for name, meaning in missing.items():
        if lacking := int(first[name].isna().sum()):
            notes.append(f"{lacking} of {len(first)} orders state no {meaning}")
    decision = first["decision_price"].to_numpy(dtype=np.float64)[batch.row]
    at = (first["decision_time"].to_numpy()[batch.row] - batch.table["date"].to_numpy()) / np.timedelta64(1, "s")
    tick = np.searchsorted(calendar.tick_start, at, side="right") - 1
    timed = np.isnan(decision) & (tick >= 0) & (at < 86_400)
    if timed.any():
        early = dataclasses.replace(batch, start=np.maximum(tick, 0), end=np.maximum(tick + 1, batch.end))
        decision = np.where(timed, bench.engine.benchmarks(early).arrival, decision)
    if unknown := int(np.isnan(decision).sum()):
        notes.append(f"{unknown} of {len(batch)} orders have no price of their decision, so that their delay is 0")
    if unknown == len(batch):
        return batch
    whole = np.full(len(table), np.nan)
    whole[batch.row] = decision
    return dataclasses.replace(batch, source={**batch.source, "decision_price": whole})


def _result_of(bench: Workbench, fills: pd.DataFrame, orders: OrderBatch, notes: list[str]) -> PolicyResult:
    """Return the result of real fills, as a backtest has it: their price is that of the bars, and beside it costs."""
    from rlwb.trainer import backtest as run_policy

    recorded, has_fees = _record(bench.engine, fills, orders, notes)
    rules = bench.engine.rules
    own: dict[str, Any] = dict.fromkeys((*_IN_PRICE, *(_IN_FEE if has_fees else ())), 0.0)
    engine = Engine(bench.sessions, bench.engine.ticks_per_step, dataclasses.replace(rules, **own))
    market = RecordedFills(engine, orders, recorded)
    episodes = run_policy(market, KnownStateInterpreter(), orders, AmountActionInterpreter(), market)
    fee = recorded.fee.sum(axis=1) if has_fees else None
    columns = attribute_fills(bench.engine, orders, episodes.metrics, recorded.fill, recorded.beside.sum(axis=1), fee)
    made = backtest.result(FILLS, FILLS, orders, episodes)
    paid = orders.side * recorded.beside.sum(axis=1) / episodes.metrics["filled"]
    table = made.orders.assign(price_paid=episodes.metrics["price"] + paid, **columns)
    return dataclasses.replace(made, orders=table)


def _record(engine: Engine, fills: pd.DataFrame, orders: OrderBatch, notes: list[str]) -> tuple[Recorded, bool]:
    """Return fills by order and tick, and whether they state fees; add to `notes` what is doubtful of them."""
    calendar, sessions = engine.sessions.calendar, engine.sessions
    order = pd.Index(orders.table["order_id"]).get_indexer(fills["order_id"])
    fills, order = fills[order >= 0], order[order >= 0]
    time, amount, paid = (fills[name].to_numpy() for name in ("time", "quantity", "price"))
    seconds = (fills["time"] - fills["time"].dt.normalize()).dt.total_seconds().to_numpy()
    tick = np.searchsorted(calendar.tick_start, seconds, side="right") - 1
    inside = np.clip(tick, orders.start[order], orders.end[order] - 1)
    row, fee = orders.session[order], fills["fee"].to_numpy(dtype=np.float64)

    def tell(which: np.ndarray, what: str, show: Callable[[int], str] = lambda one: "") -> None:
        if which.any():
            one = int(np.flatnonzero(which)[0])
            first = f"order {fills['order_id'].iloc[one]} at {pd.Timestamp(time[one])}{show(one)}"
            share = 100 * (amount * paid)[which].sum() / (amount * paid).sum()
            notes.append(f"{which.sum():,} of {len(fills):,} fills ({share:.3g} % of the value) {what}; first {first}")

    tell((tick_of(seconds, calendar) < 0) | (inside != tick), "lie outside the session and count in its nearest bar")
    low, high, bid, ask = (
        sessions.fields.get(name, engine.price)[row, inside] for name in ("low", "high", "bid", "ask")
    )
    low, high = np.fmin(low, bid), np.fmax(high, ask)
    beyond = (paid < low * (1 - 1e-6)) | (paid > high * (1 + 1e-6))
    tell(beyond, "lie outside the prices of their bar", lambda i: f": {paid[i]:g}, bar {low[i]:g} to {high[i]:g}")
    tell(np.isnan(valid_prices(engine.price[row, inside])), "lie in bars without a price and count at their own")
    tell(amount > engine.volume[row, inside], "are larger than what their bar traded")
    has_fees = bool(np.isfinite(fee).any())
    if has_fees:
        tell(~np.isfinite(fee), "state no fee and count with none")
    fill, value, fees = (np.zeros((len(orders), calendar.num_ticks)) for _ in range(3))
    for total, each in ((fill, amount), (value, amount * paid), (fees, np.nan_to_num(fee))):
        np.add.at(total, (order, inside), each)
    price = valid_prices(engine.price[orders.session])
    price = np.where(np.isnan(price), average_price(value, fill), price)
    beside = orders.side[:, None] * np.where(fill > 0, value - fill * price, 0.0)
    return Recorded(fill, price, beside, fees), has_fees


def _best_of(bench: Workbench, origin: RunDirectory, orders: OrderBatch, notes: list[str]) -> PolicyResult:
    """Return the result of the run's best checkpoint by validation; tell whether its training knew these days."""
    from rlwb.trainer import list_checkpoints

    path = origin.backtest / "selection.json"
    if not path.exists():
        raise CheckpointError(
            f"{origin.path} has no finished backtest, so no checkpoint is chosen. {origin.how_to_resume()}"
        )
    name = read_json(path, dict[str, Any])["chosen"][0]
    iteration = int(name.rpartition("-")[2])
    found = list_checkpoints(origin.checkpoints).get(iteration)
    if found is None:
        raise CheckpointError(
            f"{origin.checkpoints} lacks the checkpoint {iteration}, which its backtest chose; restore it."
        )
    notes += seen_in_training(origin, orders.table)
    playable = backtest.checkpoint_policy(bench, found)
    return backtest.judged(bench, name, "checkpoint", playable, orders, iteration=iteration)


def _excess(results: Sequence[PolicyResult], *, seed: int, **bootstrap: Any) -> pd.DataFrame:
    """Return the cost of the fills less that of each policy on the same orders; columns as in `CostAnalysis`."""
    from rlwb.evaluation import statistic_interval

    own, *others = results
    value, rows = own.values("amount") * own.values("arrival"), []
    for one in (one for one in others if "cost" in one.orders):
        terms = np.stack([BASIS_POINTS * (own.values("cost") - one.values("cost", own)), value], axis=1)
        found = statistic_interval([terms], [own.dates], np.random.default_rng(seed), **bootstrap)
        rows.append(
            (one.policy, one.display_name, one.kind, found.estimate, found.lo, found.hi, found.orders, found.days)
        )
    names = ("policy", "title", "kind", "excess", "excess_lo", "excess_hi", "orders", "days")
    return pd.DataFrame(rows, columns=list(names))


def _write_page(analysis: CostAnalysis, results: Sequence[PolicyResult], config: RunConfig) -> None:
    """Write report.html."""
    from rlwb.evaluation import plots
    from rlwb.evaluation.page import render
    from rlwb.evaluation.pictures import picture

    total = analysis.costs[analysis.costs["component"] == "total"].set_index("policy").loc[FILLS]
    own, rules = results[0].orders, config.execution.rules
    methods, single = plots.method_intervals(analysis.table), plots.pa_distribution(results)
    write_text(
        analysis.folder / "report.html",
        render(
            "tca.html",
            title=f"Cost of {len(own):,} orders, {own['date'].min():%Y-%m-%d} to {own['date'].max():%Y-%m-%d}",
            total=total.to_dict(),
            excess=analysis.excess.to_dict("records"),
            level=f"{100 * config.backtest.confidence:g}",
            notes=analysis.notes,
            costs=cells(costs_view(analysis.costs).reset_index()),
            header=analysis.table.header,
            rows=analysis.table.rows,
            risk=analysis.table.risk,
            have_costs=rules.have_costs,
            table_notes=[note for note in analysis.table.notes if note not in analysis.notes],
            cost_figure=picture(plots.cost_parts(analysis.costs), "Cost by part."),
            figures=[
                picture(plots.rename(methods, rules.name_pa), "Policies on the same orders."),
                picture(plots.rename(single, rules.name_pa), "Single orders, by policy."),
            ],
            rules=rules.describe(),
            config=dump_yaml(config.as_dict()),
        ),
    )
