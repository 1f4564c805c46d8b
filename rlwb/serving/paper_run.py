"""``rlwb paper-trade``: a bundle's policy trades days of bars on paper, and what came of it lies in a folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import OrderBatch, align_orders, read_orders
from rlwb.experiment import backtest
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.orders import load_orders, locked_span
from rlwb.experiment.origin import WARNING, refuse_training_changes, seen_in_training
from rlwb.experiment.own_code import require_trust, trust
from rlwb.experiment.pipeline import check_config
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json
from rlwb.market import Sessions
from rlwb.market.calendar import day_of
from rlwb.reading import read_json, read_table, read_text
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.client import Client, HTTPClient, LocalClient
from rlwb.serving.exchange import Exchange, LiveExchange, PanelExchange, joined
from rlwb.serving.feeds import Arrival, Feed, SessionsFeed, brings_clock, on_clock, open_feed, paced, read_past
from rlwb.serving.paper import DECISIONS, PanelBench, PaperTrading, executed
from rlwb.serving.spec import SPEC, sha256

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table
    from rlwb.serving.backend import Kind

#: What paper trades are compared with where no run is named; none of it needs to know the training days.
BESIDE = ("twap", "vwap", "pov", "hindsight")
_DAYS, _BARS = "days", "bars"
#: Places of a run's configuration that its orders, its market and its baselines are made from.
_OF_THE_RUN = ("market", "orders", "split", "simulator", "baselines", "backtest", "train", "seed", "threads")


@dataclass(frozen=True, eq=False)
class PaperResult:
    """The result of paper trading.

    Attributes
    ----------
    folder
        Where everything of it lies.
    table
        The headline: the policy in service beside the baselines, on the same orders.
    results
        The results that it shows, the policy's first.
    decisions
        One row an order and step; see `rlwb.serving.paper.PaperTrading.trade`.
    ticks, steps
        The audit of the policy's orders; see `rlwb.execution.audit`.
    backtest
        Of each order that the run's backtest of the same checkpoint has too: `order_id`, `pa` and `pa_backtest` in
        basis points. None where no run was named, or its backtest has not that checkpoint.
    notes
        What was assumed, refused or left out.
    """

    folder: Path
    table: Table
    results: list[PolicyResult]
    decisions: pd.DataFrame
    ticks: pd.DataFrame
    steps: pd.DataFrame
    backtest: pd.DataFrame | None
    notes: list[str]


def launch_paper(
    bundle_path: Path,
    bars: str | Path | None = None,
    *,
    history: Path | None = None,
    run: Path | None = None,
    order_file: Path | None = None,
    dates: tuple[str, str] | None = None,
    speed: float = 60.0,
    url: str | None = None,
    token_file: Path | None = None,
    backend: Kind = "torch",
    out: Path | None = None,
    resume: bool = False,
    changes: Sequence[str] = (),
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> PaperResult:
    """Do what ``rlwb paper-trade`` asks for: work orders on paper by the policy of a bundle, and write a folder.

    Parameters
    ----------
    bundle_path
        The bundle whose rules, clock and reward count; it also decides, unless a service is named.
    bars
        What is played, as `rlwb.serving.feeds.open_feed` takes it; None takes the bars of `run`.
    history
        Bars of earlier days, for a feed that tells none.
    run
        The run that the bundle is of: its test orders are worked, its baselines are shown, and the result is compared
        with its backtest.
    order_file
        A table of orders, which a live feed needs; without one and without a run they are generated as in a run.
    dates
        First and last date to play; None is the last day on which there are orders, of an order file all days.
    speed
        Seconds of the market in one of the clock; 0 or infinity does not wait.
    url, token_file
        A running service, and a file with its token; None answers in this process.
    backend
        What evaluates the network in this process, ``torch`` or ``onnx``.
    out
        The folder; None makes one in the working directory, named after the bundle.
    resume
        Go on with a folder whose trading was stopped, by its next day.
    changes
        Assignments to what judging depends on, such as ``market.calendar.label=end`` or ``baselines=[twap]``.
    trust_code
        Run code of one's own that the bundle or the run names.
    """
    bundle = open_bundle(bundle_path, trust_code=trust_code)
    origin = None if run is None else RunDirectory.open(run)
    client = _client(bundle, url, token_file, backend)
    past = None if history is None else read_past(history, bundle.calendar)
    feed = None if bars is None or Path(bars).exists() else open_feed(bars, past=past)
    config = _config(bundle, bars if feed is None else None, origin, changes)
    if bars is None and origin is None:
        raise ConfigError("there are no bars to play; name them by --bars, or a run by --run.")
    require_trust(config, given=trust_code)
    check_config(config)
    if config.simulator.name != "market":
        raise ConfigError(
            f"the simulator {config.simulator.name} is not the market itself, by which orders are executed on paper; "
            "add --set simulator=market."
        )
    live = feed is not None and feed.sessions is None
    bench = None if live else _bench(bundle, config, origin, None if feed is None else feed.sessions)
    table = _orders(bundle, bench, origin, order_file, dates)
    orders = None if bench is None else bench.align(table, bench.objective.middle)
    days = table["date"].to_numpy().astype("datetime64[D]")
    seen, notes = bundle.spec.seen, [] if origin is None else seen_in_training(origin, table)
    if origin is None and str(days.min()) <= seen.last:
        notes.append(f"{WARNING}the policy was trained on days up to {seen.last}, so this is no test of it.")
    folder = out or next(one for number in count(1) if not (one := _named(bundle_path, number)).exists())
    asked = table.to_csv(index=False).encode()
    settings = {
        "bundle": sha256((bundle.path / SPEC).read_bytes()),
        "bars": str(bars) if bench is None else bench.sessions.fingerprint,
        "orders": sha256(asked),
        "service": client.describe(),
    }
    known = _begun(folder, settings, resume=resume)
    left = ~np.isin(days, np.array([*known], dtype="datetime64[D]"))
    echo(f"paper: {folder}")
    if left.any():
        exchange: Exchange
        if bench is None or orders is None:
            exchange = LiveExchange(bundle, config.execution.rules, table[left])
        else:
            rest = orders[np.flatnonzero(left)]
            exchange = PanelExchange(bench, rest)
            names = sorted(set(bench.sessions.instruments[rest.session]))
            feed = feed or SessionsFeed(bench.sessions, days[left], names)
        assert feed is not None
        notes += _work(exchange, client, feed, folder, known, np.unique(days), speed, echo)
    if bench is None or orders is None:
        bench = PanelBench(config, joined([Sessions.open(path) for path in sorted((folder / _BARS).iterdir())]))
        can = align_orders(table, bench.sessions, config.execution.rules, on_refused="drop")
        notes += [f"{len(ids)} orders are not judged: {reason} (first {ids[0]})" for reason, ids in can.refused.items()]
        orders = bench.align(can.table, bench.objective.middle)
    decisions = pd.concat([known[day] for day in sorted(known)], ignore_index=True)
    result = _judge(bench, bundle, origin, orders, decisions, folder, notes)
    echo(result.table.to_text().rstrip())
    return result


def span_of(text: str | None) -> tuple[str, str] | None:
    """Return first and last date of ``FIRST:LAST``, or of one date; None of None."""
    if text is None:
        return None
    first, colon, last = text.partition(":")
    return first, last if colon else first


def _client(bundle: Bundle, url: str | None, token_file: Path | None, backend: Kind) -> Client:
    if url is not None:
        return HTTPClient(url, token=None if token_file is None else read_text(token_file).strip())
    from rlwb.serving.policy import BundlePolicy

    return LocalClient(BundlePolicy(bundle, backend=backend))


def _named(bundle: Path, number: int) -> Path:
    return Path(f"{bundle.resolve().name}-paper{'' if number == 1 else f'-{number}'}")


def _config(bundle: Bundle, bars: str | Path | None, origin: RunDirectory | None, changes: Sequence[str]) -> RunConfig:
    """Return the bundle's configuration with the bars, and with what a run says of its orders and baselines."""
    own = [Layer("bundle", bundle.config.as_dict(), bundle.path)]
    if origin is None:
        own.append(Layer("rlwb paper-trade", {"baselines": list(BESIDE)}))
    else:
        trust(origin.config, beside=origin.config)
        values = origin.config.as_dict()
        own.append(Layer(str(origin.path), {name: values[name] for name in _OF_THE_RUN}, origin.path))
    layers = [*own]
    if bars is not None:
        market: dict[str, Any] = {"market.source": str(bars)}
        if not brings_clock(bars):
            market["market.calendar"] = {n: value for n, value in bundle.spec.calendar.items() if n != "covers"}
        layers.append(Layer("--bars", market))
    config = RunConfig.load(None, *layers, parse_assignments(changes))
    refuse_training_changes(RunConfig.load(None, *own), config)
    locked = None if origin is None else locked_span(origin)
    return config.model_copy(update={"split": dataclasses.replace(config.split, locked=locked)})


def _bench(bundle: Bundle, config: RunConfig, origin: RunDirectory | None, given: Sessions | None) -> Workbench:
    """Return the parts of a configuration on the bars to play, which lie on the bundle's clock."""
    if given is None:
        cache = None if origin is None else origin.path.parent / ".cache"
        given = Workbench(config, cache_dir=cache, is_elsewhere=True).sessions
    return PanelBench(config, on_clock(given, bundle.calendar))


def _orders(
    bundle: Bundle,
    bench: Workbench | None,
    origin: RunDirectory | None,
    file: Path | None,
    dates: tuple[str, str] | None,
) -> pd.DataFrame:
    """Return the orders to work; without a workbench, those of a file."""
    if file is not None:
        table = read_orders(file, bundle.calendar)
    elif bench is None:
        raise ConfigError("orders of a day that is not over cannot be generated; name a table of them by --orders.")
    elif origin is not None:
        table = load_orders(origin, bench, "test")
    else:
        table = bench.all_orders
    own = table["date"].to_numpy().astype("datetime64[D]")
    if dates is not None:
        first, last = (day_of(day) for day in dates)
    else:
        first, last = (own.min() if file is not None else own.max()), own.max()
    inside = (own >= first) & (own <= last)
    if not inside.any():
        raise OrderError(f"no order lies between {first} and {last}; the orders are from {own.min()} to {own.max()}.")
    return table[inside].reset_index(drop=True)


def _begun(folder: Path, settings: dict[str, Any], *, resume: bool) -> dict[np.datetime64, pd.DataFrame]:
    """Make the folder, or go on with it; return the decisions of the days that are done, by date."""
    file, done = folder / "paper.json", folder / _DAYS
    if not resume:
        if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
            raise ConfigError(
                f"{folder} is not empty; name a new folder, or add --resume to go on with what was stopped there."
            )
        write_json(file, settings)
        return {}
    if not file.is_file():
        raise ConfigError(f"{folder} holds no paper trading to go on with; leave --resume out to begin one.")
    before = read_json(file)
    for name in ("bundle", "bars", "orders"):
        if before.get(name) != settings[name]:
            raise ConfigError(f"{folder} was begun with other {name} than these; begin anew in another folder.")
    tables = {
        np.datetime64(path.stem, "D"): read_table(path, ["order_id", "step"]) for path in sorted(done.glob("*.parquet"))
    }
    return {day: table[list(DECISIONS)].astype(DECISIONS) for day, table in tables.items()}


def _work(
    exchange: Exchange,
    client: Client,
    feed: Feed,
    folder: Path,
    known: dict[np.datetime64, pd.DataFrame],
    days: np.ndarray,
    speed: float,
    echo: Callable[[str], None],
) -> list[str]:
    """Work orders day by day, write each day's decisions when it is over; return what there is to note."""
    from tqdm.auto import tqdm

    def keep(day: np.datetime64, made: pd.DataFrame) -> None:
        if isinstance(exchange, LiveExchange):
            exchange.today.save(folder / _BARS / str(day))
        with atomic_path(folder / _DAYS / f"{day}.parquet") as target:
            made.to_parquet(target, index=False)
        known[day] = made

    def arrivals(feed: Feed) -> Iterator[Arrival]:
        told: Iterable[Arrival] = feed
        if feed.sessions is not None:
            told = paced(feed, speed, exchange.calendar.tick_seconds)
        total = len(feed) if isinstance(feed, SessionsFeed) else None
        with tqdm(total=total, desc="paper", unit=" arrivals", disable=not is_attended()) as bar:
            for arrival in told:
                bar.set_postfix_str(f"{arrival.time:%Y-%m-%d %H:%M}", refresh=False)
                yield arrival
                bar.update()

    trading = PaperTrading(exchange, client)
    try:
        trading.trade(feed, arrivals=arrivals, on_day=keep)
    except BaseException:
        echo(
            f"{len(known)} of {len(days)} days are done; the same command with --out {folder} --resume goes on after "
            "them."
        )
        raise
    return [f"{WARNING}the service refused {n:,} bars ({reason})." for reason, n in sorted(trading.refused.items())]


def _judge(
    bench: Workbench,
    bundle: Bundle,
    origin: RunDirectory | None,
    orders: OrderBatch,
    decisions: pd.DataFrame,
    folder: Path,
    notes: list[str],
) -> PaperResult:
    """Return what came of the decisions, beside the baselines; write it."""
    known = {"iteration": bundle.spec.origin.iteration, "validation_pa": np.nan}
    name = f"checkpoint-{bundle.spec.origin.iteration:04d}"
    own, ticks, steps = executed(bench, orders, decisions, name, **known)
    told = None if origin is None else read_json(origin.backtest / "baselines.json")
    baselines = backtest.make_baselines(bench, told)
    results = [own, *(backtest.baseline_result(bench, label, one, orders) for label, one in baselines.items())]
    notes = [*notes, *_answers_told(decisions)]
    compared = None if origin is None else _beside_backtest(own, origin)
    if compared is not None and len(compared):
        most = (compared["pa"] - compared["pa_backtest"]).abs().max()
        notes.append(f"Beside the run's backtest: {len(compared)} orders, whose PA differ by {most:.2g} bp at most.")
    settings = bench.config.backtest.model_copy(update={"top": 1})
    config = bench.config.model_copy(update={"backtest": settings})
    backtest.write_results(folder, results)
    table = backtest.write_headline(folder, results, config, about=notes)
    backtest.write_costs(folder, results, config)
    tables = {"decisions": decisions, "audit/ticks": ticks, "audit/steps": steps, "beside_backtest": compared}
    for file, frame in tables.items():
        if frame is not None:
            with atomic_path(folder / f"{file}.parquet") as target:
                frame.to_parquet(target, index=False)
    write_json(folder / "notes.json", {"notes": notes})
    return PaperResult(folder, table, results, decisions, ticks, steps, compared, notes)


def _answers_told(decisions: pd.DataFrame) -> list[str]:
    """Say in sentences who decided, and how long answers took."""
    asked = decisions.drop_duplicates(["request", "seconds"])
    times = np.quantile(1e3 * asked["seconds"], [0.5, 0.99])
    told = f"{times[0]:.3g} ms in the median and {times[1]:.3g} ms in the 99th percentile"
    found = [f"{len(decisions):,} decisions in {len(asked):,} requests, which took {told}."]
    other = decisions[decisions["source"] != "policy"]
    for (source, reason), rows in other.groupby(["source", "reason"], dropna=False):
        what = "by the service's schedule" if source == "schedule" else "evenly, because no decision was given"
        first = rows["order_id"].iloc[0]
        found.append(f"{WARNING}{len(rows):,} steps were traded {what} ({reason}), first of order {first}.")
    return found


def _beside_backtest(own: PolicyResult, origin: RunDirectory) -> pd.DataFrame | None:
    """Return the PA of each order here and in the run's backtest of the same checkpoint."""
    path = origin.backtest / "orders" / f"{own.policy}.parquet"
    if not path.is_file():
        return None
    there = read_table(path, "order_id", numbers=["pa"])[["order_id", "pa"]]
    return own.orders[["order_id", "pa"]].merge(there, on="order_id", suffixes=("", "_backtest"))
