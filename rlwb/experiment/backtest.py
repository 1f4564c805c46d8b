"""The stage backtest: checkpoints, baselines, ceilings and a teacher on the test orders."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pandas as pd

from rlwb.env.workers import uninterrupted
from rlwb.errors import CheckpointError, ConfigError, DataError
from rlwb.execution import (
    AmountActionInterpreter,
    Baseline,
    Engine,
    KnownStateInterpreter,
    OrderBatch,
    hindsight_table,
)
from rlwb.execution.attribution import IMPACT_OFF, attribute_costs
from rlwb.execution.likeness import unlike
from rlwb.experiment.config import RunConfig, baseline_labels, label
from rlwb.experiment.evidence import brief, evenly, write_evidence
from rlwb.experiment.ledger import take_look, told_of_metrics
from rlwb.experiment.notebook import stage_progress
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.origin import judged_on
from rlwb.experiment.own_code import described
from rlwb.experiment.player import PLAYER, write_player
from rlwb.experiment.policies import MadeElsewhere, kept_policies, open_kept, told_of
from rlwb.experiment.power import write_power
from rlwb.experiment.run import PROGRESS, RunDirectory
from rlwb.experiment.shards import divided_among, making
from rlwb.experiment.stages import training_id
from rlwb.experiment.training import teacher_checkpoints
from rlwb.experiment.verdict import verdict_of, write_texts
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reading import read_array, read_json, read_table, reading
from rlwb.record import TrainingRecord

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Selection, Table
    from rlwb.evaluation.select import Checkpoint
    from rlwb.simulator import Simulator
    from rlwb.trainer import Episodes

#: What acts, what it sees, and what its answers mean.
Playable = tuple[Any, StateInterpreter[Any], ActionInterpreter[Any]]


class Hindsight:
    """The best PA that anyone who knew the day's prices could reach, under the run's rules."""

    capped = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def table(self, orders: OrderBatch) -> pd.DataFrame:
        """Return one row an order with its PA, its fulfilment rate and more."""
        return hindsight_table(self.engine, orders, capped=self.capped).reset_index(drop=True)


class HindsightUncapped(Hindsight):
    """The same as if the rules had no volume cap; it bounds no policy under the cap, which may fill less."""

    capped = False


def backtest_policies(run: RunDirectory, config: RunConfig, *, is_strict: bool = True) -> None:
    """Judge chosen checkpoints, the last one, baselines, a teacher and others' policies on the test orders.

    It writes ``backtest/``.

    ``orders/<policy>.parquet`` has one row an order, ``inventory/<policy>.npy`` the share left after each step (a
    ceiling has none); ``caveats.json`` which rules cannot act on these orders, and how the training orders differ from
    them; ``baselines.json`` what the baselines were told of the market, from training sessions alone;
    ``summary.csv`` one row a policy; ``gap.csv``, where the rules are not the simple ones, what each of them does to
    the best checkpoint's PA; ``groups.csv`` the results by side, size and window of the orders; ``intervals.csv``
    the interval of the mean PA by day, by instrument and by both; ``dial.csv``, where
    the objective has several aversions, those of the best checkpoint at each; ``costs.csv`` what orders cost against
    arrival, one row a policy and part, and ``cost_groups.csv`` by side, day and instrument; ``headline.csv``, ``.md``
    and ``.txt`` the table to show, ``metrics.csv`` its tidy form; ``selection.json`` which checkpoints were chosen,
    which were left out and why, and the noise of their validation; ``evidence.json`` what else could have been chosen,
    and ``candidates.csv`` the checkpoints that were judged for that (`rlwb.experiment.evidence`); ``player.json`` the
    numbers by which the report plays the best checkpoint (`rlwb.experiment.player`).

    Parameters
    ----------
    is_strict
        Whether to refuse checkpoints of another training and those that do not score as logged, and to note the look at
        the test days (`rlwb.experiment.ledger`); not where a backtest that was made is checked.

    Raises
    ------
    CheckpointError
        When no checkpoint can be used, or one is of another training, naming what differs.
    DataError
        When a checkpoint does not score as it was logged.
    RuntimeError
        When a policy has a PA above the ceiling on any order; the order tables are there then, and no figure of them.
    """
    with uninterrupted():  # torch cannot be imported again once its import was cut short
        import torch

        from rlwb.evaluation import read_validation
        from rlwb.trainer import find_resumable

    torch.set_num_threads(config.threads)
    figure, folder = config.judged_by, run.backtest
    bench, origin = workbench(run, config), run.origin
    table = load_orders(run, bench, "test")
    parts = {"test": bench.align(table, bench.objective.middle)}
    test, ours = parts["test"], None
    if origin is not None:  # whose training and validation orders are of another market
        selection = selection_of(run, origin)
        baselines = told_baselines(bench, origin)
    else:
        selection = choose_checkpoints(run, config)
        parts |= {part: bench.align(load_orders(run, bench, part)) for part in ("train", "valid")}
        if is_strict:
            data, orders = bench.sessions.fingerprint, parts["train"].fingerprint
            ours = TrainingRecord(run=training_id(config), data=data, orders=orders)
        baselines = make_baselines(bench)
        for one in baselines.values():
            if isinstance(one, Baseline):
                one.fit(parts["train"])
    is_comparable = origin is None or origin.config.execution.rules == config.execution.rules

    def played(name: str, kind: str, playable: Playable, path: Path, log: pd.DataFrame) -> tuple[PolicyResult, Any]:
        """Return the result of a checkpoint, and its figure on each validation order, None where it has no row."""
        rows = log[log["iteration"] == int(path.stem)]
        again = None
        if len(rows) and "valid" in parts:
            again = play(bench, playable, parts["valid"])
            if is_strict:
                check_score(path, rows.iloc[0].to_dict(), bench.validation_figures(parts["valid"], again))
        validation = float(rows[figure].iloc[0]) if len(rows) and is_comparable else np.nan
        known = {"iteration": int(path.stem), "validation_pa": validation}
        made = judged(bench, name, kind, playable, test, **known)
        return made, None if again is None else bench.objective_terms(parts["valid"], again.metrics)

    log = read_validation(run.metrics / "validation.csv", figure)

    def of_chosen(chosen: Checkpoint) -> tuple[PolicyResult, Any]:
        with making:
            playable = checkpoint_policy(bench, chosen.path, origin=ours)
        return played(chosen.policy, "checkpoint", playable, chosen.path, log)

    def of_other(one: Checkpoint) -> PolicyResult | None:
        try:
            with making:
                playable = checkpoint_policy(bench, one.path, origin=ours)
        except CheckpointError:  # which would have been passed over, had it come to be chosen
            return None
        known = {"iteration": one.iteration, "validation_pa": one.validation_pa if is_comparable else np.nan}
        return brief(result(one.policy, "checkpoint", test, play(bench, playable, test), **known))

    def sees() -> StateInterpreter[Any]:
        return checkpoint_policy(bench, selection.chosen[0].path, origin=ours)[1]

    beside, outsiders = [one for one in evenly(selection) if one not in selection.chosen], open_kept(run)
    total = len(selection.chosen) + len(beside) + 1 + len(outsiders) + len(baselines)
    with stage_progress("policy", total, "backtest", run.path / PROGRESS) as progress:

        def told(one: PolicyResult | None) -> None:
            progress.step({} if one is None else {"PA": f"{pd.Series(one.pa).mean():z.2f} bp ({one.policy})"})

        with divided_among(bench, sees, config.backtest.actors) as each:
            both, others = [], []
            for made in each(of_chosen, selection.chosen):
                both.append(made)
                told(made[0])
            for other in each(of_other, beside):
                others += [] if other is None else [other]
                told(other)
            path, damaged = find_resumable(run.checkpoints)
            assert path is not None, "a checkpoint was chosen above"
            last = played("last", "last", checkpoint_policy(bench, path, origin=ours), path, log)[0]
            told(last)
        results, rescored = [*(made for made, _ in both), last], [again for _, again in both]
        for outsider in outsiders:
            results.append(policy_result(bench, outsider, sees(), test))
            told(results[-1])
        validated = _validation_of_baselines(bench, origin) if origin is not None and is_comparable else {}
        for name, one in baselines.items():
            if origin is None and not isinstance(one, Hindsight):
                episodes = play(bench, baseline_playable(one), parts["valid"])
                validated[name] = bench.validation_figures(parts["valid"], episodes)[figure]
            results.append(baseline_result(bench, name, one, test, validated.get(name, np.nan)))
            told(results[-1])
    if bench.is_taught:
        taught = read_validation(run.metrics / "teacher" / "validation.csv", figure)
        results.append(played("teacher", "unattainable", *teacher_policy(run, bench, origin=ours), taught)[0])

    if origin is None:
        write_power(folder / "power.json", bench, parts)
    write_json(folder / "caveats.json", {"caveats": [*bench.engine.idle_rules(test), *unlike(bench.engine, parts)]})
    write_json(folder / "baselines.json", estimates_of(baselines))
    if figure == "objective":
        results = [with_objective(bench, test, one) for one in results]
        others = [with_objective(bench, test, one) for one in others]
    write_results(folder, results)
    best = checkpoint_policy(bench, selection.chosen[0].path, origin=ours)
    write_player(folder / PLAYER, bench, best, test, results[0])
    if config.simulator.name == "market":  # another market may fill where the ceiling thinks that nothing fills
        refuse_the_impossible([*results, *others], baseline_result(bench, "hindsight", Hindsight(bench.engine), test))
    lost = sorted({*damaged, *(one.path.name for one in selection.excluded if one.is_damaged and one.path)})
    dial = _dial_results(bench, selection, table)
    about = [*judged_on(run, config), *told_of(outsiders)]
    look = take_look(run, config, bench.sessions, table["date"], is_noted=is_strict)
    tried = selection.ranked
    head = write_headline(folder, results, config, candidates=tried, about=about, lost=lost, dial=dial, look=look)
    write_costs(folder, results, config)
    _write_gap(folder / "gap.csv", bench, selection, test)
    _write_groups(folder / "groups.csv", bench, results, test)
    _write_intervals(folder / "intervals.csv", bench, results)
    _write_dial(folder / "dial.csv", bench, dial, results)
    if origin is None:
        noise = validation_noise(rescored, parts["valid"], selection.ranked, len(selection.chosen), config.seed)
    else:
        known = read_json(origin.backtest / "selection.json")
        noise = {name: known[name] for name in ("standard_error", "correlation", "expected_shrinkage")}
    write_evidence(
        run,
        results,
        others,
        selection,
        distinct=int(head.frame.loc[head.frame["kind"] == "checkpoint", "distinct"].iloc[0]),
        expected_shrinkage=noise["expected_shrinkage"],
        seed=config.seed,
        resamples=config.backtest.bootstrap_samples,
    )
    write_json(
        folder / "selection.json",
        {
            "chosen": [one.policy for one in selection.chosen],
            "excluded": [{"iteration": one.iteration, "reason": one.reason} for one in selection.excluded],
            "ranked": selection.ranked,
            "damaged": damaged,
            "description": selection.describe(),
            "rules": config.execution.rules.describe(),
            "validation_of_baselines": {name: value for name, value in validated.items() if np.isfinite(value)},
            **noise,
        },
    )
    write_texts(folder, head, verdict_of(run, config, results, is_whole=False))


def choose_checkpoints(run: RunDirectory, config: RunConfig) -> Selection:
    """Return the checkpoints of a run with the best validation, by the figure that its rules are judged by."""
    from rlwb.evaluation import read_validation, select_checkpoints
    from rlwb.trainer import load_checkpoint

    figure = config.judged_by
    log = read_validation(run.metrics / "validation.csv", figure)
    return select_checkpoints(log, run.checkpoints, count=config.backtest.top, metric=figure, check=load_checkpoint)


def selection_of(run: RunDirectory, origin: RunDirectory) -> Selection:
    """Return the selection of checkpoints that the run of an evaluation made, from their copies."""
    known, found = read_json(origin.backtest / "selection.json"), choose_checkpoints(run, origin.config)
    if [one.policy for one in found.chosen] != known["chosen"]:
        raise CheckpointError(
            f"{run.path} holds other checkpoints than its run chose ({', '.join(known['chosen'])}); evaluate it again."
        )
    return dataclasses.replace(found, excluded=(), ranked=known.get("ranked", found.ranked))


def check_score(path: Path, logged: Mapping[str, float], again: Mapping[str, float]) -> None:
    """Require that a checkpoint scores on the validation orders as its row of the log says, in every figure of it.

    A figure that neither the orders nor the reward give, of a callback of one's own, cannot be scored again.

    Raises
    ------
    DataError
        Naming the figures that differ.
    """
    new, old = _with_counts(again), _with_counts(logged)
    differ = [
        f"{name} {value!r}, logged {old.get(name, 'nowhere')!r}"
        for name, value in new.items()
        if not np.isclose(value, old.get(name, np.inf), rtol=1e-9, atol=1e-9, equal_nan=True)
    ]
    if differ:
        raise DataError(
            f"{path.name} does not score on the validation orders as was logged ({'; '.join(differ[:3])}); orders, "
            "data or weights have changed since: train again."
        )


def _with_counts(figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures with the number of episodes that have each, which goes without saying where all have it."""
    own = {name: value for name, value in figures.items() if not name.endswith("_count") or pd.notna(value)}
    whole = {f"{name}_count": figures["episodes"] for name in own if not name.endswith("_count")}
    return {**own, **{name: value for name, value in whole.items() if name not in own}}


def interval_of(config: RunConfig) -> dict[str, Any]:
    """Return the settings of the bootstrap by name."""
    return {
        "level": config.backtest.confidence,
        "resamples": config.backtest.bootstrap_samples,
        "seed": config.seed,
    }


def write_results(folder: Path, results: Sequence[PolicyResult]) -> None:
    """Write the table of orders of each policy, and what is left of them after each step."""
    for one in results:
        with atomic_path(folder / "orders" / f"{one.policy}.parquet") as target:
            _with_whole_counts(one.orders).to_parquet(target, index=False)
        if one.inventory is not None:
            with atomic_path(folder / "inventory" / f"{one.policy}.npy") as target:
                np.save(target, np.asarray(one.inventory, dtype=np.float32))


def _with_whole_counts(orders: pd.DataFrame) -> pd.DataFrame:
    """Return a table of orders with steps, which are counted, as integers, where all are known."""
    steps = orders.get("num_steps")
    is_whole = steps is not None and np.isfinite(steps).all() and (steps % 1 == 0).all()
    return orders.astype({"num_steps": np.int64}) if is_whole else orders


def write_headline(
    folder: Path,
    results: Sequence[PolicyResult],
    config: RunConfig,
    *,
    candidates: int | None = None,
    about: Sequence[str] = (),
    lost: Sequence[str] = (),
    dial: Mapping[float, PolicyResult] | None = None,
    look: Mapping[str, Any] | None = None,
) -> Table:
    """Write the headline, the summary, their tidy form, and ``frontier.csv``: mean and risk against arrival.

    The headline is returned.

    Parameters
    ----------
    candidates
        How many checkpoints the best were chosen from.
    about
        Notes that stand before the headline's own.
    lost
        Checkpoints that cannot be read.
    dial
        The best checkpoint at each aversion of a dial, which stand in ``frontier.csv`` alone.
    look
        Which look at the test days this is; see `rlwb.experiment.ledger`.
    """
    from rlwb.evaluation import frontier_table, headline, headline_groups, metric_table, risk_verdict, summary

    interval = interval_of(config)
    rules = config.execution.rules
    head = headline(results, requested=config.backtest.top, candidates=candidates, rules=rules, **interval)
    settings = _dial_names(dial or {})
    groups = headline_groups(results)
    for name, one in zip(settings, (dial or {}).values(), strict=True):  # each of an objective of its own
        groups[name] = [dataclasses.replace(one, orders=one.orders.drop(columns="objective"))]
    frontier = frontier_table(groups, **interval)
    frontier["aversion"] = frontier["policy"].map(settings)
    risk = risk_verdict(frontier)
    looks = told_of_metrics(look, head.metrics, is_net=rules.have_costs, level=config.backtest.confidence)
    risks = [" ".join(risk.sentences)] if risk else []
    head = dataclasses.replace(head, notes=(*about, *head.notes, *risks, *looks))
    if lost:
        told = f"Left out, because they cannot be read: {', '.join(lost)}; train again to make them anew."
        head = dataclasses.replace(head, notes=(*head.notes, told))
    alone = metric_table({one.policy: [one] for one in results}, **interval)
    tables = {"summary": summary(alone), "headline": head.frame, "metrics": head.metrics, "frontier": frontier}
    for name, frame in tables.items():
        with atomic_path(folder / f"{name}.csv") as target:
            with_settings(frame, config).to_csv(target, index=False)
    write_texts(folder, head)
    return head


def with_settings(
    frame: pd.DataFrame, config: RunConfig, learners: Mapping[str, RunConfig] | None = None
) -> pd.DataFrame:
    """Return a table of policies with what each row says of its run, so that tables of many runs can be joined.

    `config` is that of the run, `learners` those of single rows, by policy. What was not trained has no algorithm.
    """
    rows = []
    for policy, kind in zip(frame["policy"], frame["kind"], strict=True):
        own, is_trained = (learners or {}).get(policy, config), kind in ("checkpoint", "last")
        trained = {"algorithm": label(own.algorithm), "network": label(own.network)} if is_trained else {}
        rows.append({"seed": own.seed, "algorithm": None, "network": None, "reward_part": label(own.reward), **trained})
    return frame.join(pd.DataFrame(rows, index=frame.index))


def read_summary(run: RunDirectory) -> pd.DataFrame:
    """Return ``backtest/summary.csv``, one row a policy; a `CheckpointError` where there is none."""
    from rlwb.evaluation import SUMMARY_COLUMNS
    from rlwb.evaluation.results import Kind

    path, texts = run.backtest / "summary.csv", ["policy", "kind"]
    if not path.exists():
        raise CheckpointError(f"{run.path.name} has no backtest yet; run the stage backtest first.")
    numbers = [name for name in SUMMARY_COLUMNS if name not in texts]
    with reading(path, "a summary of policies"):
        table = read_table(path, "policy", numbers=numbers, texts=texts)
        if wrong := sorted(set(table["kind"]) - set(get_args(Kind))):
            raise ValueError(f"its column kind holds {wrong[0]!r}")
    return table


def read_frontier(run: RunDirectory) -> pd.DataFrame:
    """Return ``backtest/frontier.csv``: mean and risk of each policy's orders against arrival; see docs/risk.md."""
    figures = [f"arrival_{name}{over}" for name in ("mean", "std", "cvar") for over in ("", "_over_twap")]
    numbers = [f"{name}{end}" for name in figures for end in ("", "_lo", "_hi")]
    numbers += ["below_frontier", "aversion"]
    return read_table(run.backtest / "frontier.csv", "policy", numbers=numbers, texts=["policy", "title", "kind"])


def read_results(run: RunDirectory) -> list[PolicyResult]:
    """Return the backtest's results, in the order of its summary; a `CheckpointError` where there is none."""
    from rlwb.evaluation import PolicyResult

    results = []
    for row in read_summary(run).itertuples():
        orders, inventory = (
            run.backtest / name for name in (f"orders/{row.policy}.parquet", f"inventory/{row.policy}.npy")
        )
        table = read_table(orders, "order_id", numbers=["pa", "ffr"], texts=["order_id", "instrument"])
        with reading(orders, "the results of orders"):
            left = read_array(inventory) if inventory.exists() else None
            iteration = None if pd.isna(row.iteration) else int(row.iteration)
            results.append(PolicyResult(row.policy, row.kind, table, iteration, row.validation_pa, left))
    return results


def refuse_the_impossible(results: Sequence[PolicyResult], ceiling: PolicyResult) -> None:
    """Stop before any figure is made of a result that the day's prices do not allow."""
    from rlwb.evaluation import above_ceiling

    above = above_ceiling(results, ceiling)
    if above.empty:
        return
    worst = above.iloc[0]
    most = f"{worst.ceiling:.4f} bp are the most that" if np.isfinite(worst.ceiling) else "no fill is what"
    raise RuntimeError(
        f"{worst.policy} has a PA of {worst.pa:.4f} bp on order {worst.order_id} ({worst.instrument}, "
        f"{worst.date:%Y-%m-%d}), where {most} the day's prices and the rules allow ({len(above)} such results "
        "in all); that can only mean a bug in fills or prices, so no figure was made of this backtest: look at the "
        "order in backtest/orders, and report it."
    )


def _write_gap(path: Path, bench: Workbench, selection: Selection, orders: OrderBatch) -> None:
    """Write what separates the best checkpoint's PA under simple rules from that under the run's."""
    from rlwb.evaluation import gap_table, rule_steps

    best = selection.chosen[0]
    steps = rule_steps(bench.config.execution.rules, halts=bench.sessions.halted is not None)
    if len(steps) == 1:
        path.unlink(missing_ok=True)
        return
    playable = checkpoint_policy(bench, best.path)

    def under(rules: Any) -> PolicyResult:
        return result(best.policy, "checkpoint", orders, play(bench, playable, orders, bench.simulator_under(rules)))

    frame = gap_table(under, steps, **interval_of(bench.config))
    with atomic_path(path) as target:
        frame.assign(policy=best.policy).to_csv(target, index=False)


def write_costs(folder: Path, results: Sequence[PolicyResult], config: RunConfig) -> None:
    """Write what orders cost against arrival by part: of the headline's rows, and of each policy by group of orders."""
    from rlwb.evaluation import cost_groups, cost_table, headline_groups

    costs = cost_table(headline_groups(results), **interval_of(config))
    for name, frame in {"costs": costs, "cost_groups": cost_groups(results)}.items():
        if len(frame):
            with atomic_path(folder / f"{name}.csv") as target:
                frame.to_csv(target, index=False)


def _dial_results(bench: Workbench, selection: Selection, table: pd.DataFrame) -> dict[float, PolicyResult]:
    """Return the best checkpoint's result by setting of the dial, of the orders in a table; empty without a dial."""
    best, found = selection.chosen[0], {}
    playable = checkpoint_policy(bench, best.path) if bench.objective.dial else None
    for setting, aversion in enumerate(bench.objective.aversions):
        assert playable is not None
        orders = bench.align(table, setting)
        made = result(best.policy, "checkpoint", orders, play(bench, playable, orders), iteration=best.iteration)
        found[aversion] = with_objective(bench, orders, made)
    return found


def _dial_names(dial: Mapping[float, PolicyResult]) -> dict[str, float]:
    """Return what tables call the settings of a dial, to their aversions."""
    return {f"{one.policy} at {aversion:g}": aversion for aversion, one in dial.items()}


def _write_dial(
    path: Path, bench: Workbench, dial: Mapping[float, PolicyResult], results: Sequence[PolicyResult]
) -> None:
    """Write the best checkpoint's results at every setting of the dial, beside the baselines and ceilings."""
    from rlwb.evaluation.metrics import metric_table, wide

    if not dial:
        path.unlink(missing_ok=True)
        return
    settings = _dial_names(dial)
    rows = {one.policy: [one] for one in results if one.kind not in ("checkpoint", "last")}
    rows |= {name: [dial[aversion]] for name, aversion in settings.items()}
    frame = wide(metric_table(rows, **interval_of(bench.config)))
    with atomic_path(path) as target:
        with_settings(frame.assign(aversion=frame["policy"].map(settings)), bench.config).to_csv(target, index=False)


def _write_groups(path: Path, bench: Workbench, results: Sequence[PolicyResult], orders: OrderBatch) -> None:
    """Write the headline's rows, but the ceilings, by side, size and window of the orders."""
    from rlwb.evaluation import group_labels, group_table, headline_groups

    rows = {name: members for name, members in headline_groups(results).items() if members[0].kind != "ceiling"}
    ids = orders.table["order_id"].to_numpy()
    frame = group_table(rows, group_labels(bench.engine, orders), ids, **interval_of(bench.config))
    with atomic_path(path) as target:
        with_settings(frame, bench.config).to_csv(target, index=False)


def _write_intervals(path: Path, bench: Workbench, results: Sequence[PolicyResult]) -> None:
    """Write the interval of the mean PA by day, by instrument and by both, of the headline's rows."""
    from rlwb.evaluation import cluster_table, headline_groups

    frame = cluster_table(headline_groups(results), **interval_of(bench.config))
    with atomic_path(path) as target:
        with_settings(frame, bench.config).to_csv(target, index=False)


def validation_noise(
    pas: Sequence[np.ndarray], orders: OrderBatch, candidates: int, chosen: int, seed: int
) -> dict[str, float]:
    """Return how noisy the chosen checkpoints' validation PA is: standard error, correlation over days, shrinkage.

    The shrinkage is the fall from validation to test that choosing the best of noisy figures explains by itself.
    """
    from rlwb.evaluation import day_interval, expected_shrinkage

    dates = orders.table["date"]
    rng = np.random.default_rng(seed)
    errors = [day_interval(pa, dates, rng, resamples=1000).standard_error for pa in pas]
    by_day = pd.DataFrame(dict(enumerate(pas))).groupby(dates.to_numpy()).mean()
    pairs = by_day.corr().to_numpy()[np.triu_indices(len(pas), 1)]
    correlation = float(np.clip(np.nanmean(pairs), 0.0, 1.0)) if np.isfinite(pairs).any() else 0.0
    error = float(np.nanmean(errors)) if np.isfinite(errors).any() else float("nan")
    known = np.isfinite(error)  # not by a single day
    shrinkage = expected_shrinkage(error, candidates, chosen, correlation=correlation) if known else error
    return {"standard_error": error, "correlation": correlation, "expected_shrinkage": shrinkage}


def checkpoint_policy(bench: Workbench, path: Path, **checks: Any) -> Playable:
    """Return the policy of a checkpoint with its interpreters; keywords as in `Workbench.restore`."""
    from rlwb.trainer import load_checkpoint

    learner, features = bench.restore(load_checkpoint(path), path, **checks)
    return learner, bench.state_interpreter(features), bench.action_interpreter


def teacher_policy(run: RunDirectory, bench: Workbench, **checks: Any) -> tuple[Playable, Path]:
    """Return the run's teacher with its interpreters, and its checkpoint; a `CheckpointError` when there is none."""
    from rlwb.trainer import find_resumable

    path, _ = find_resumable(teacher_checkpoints(run))
    if path is None:
        raise CheckpointError(
            f"{teacher_checkpoints(run)} has no checkpoint of the teacher; run the stage train again."
        )
    return checkpoint_policy(bench, path, teacher=True, **checks), path


def make_baselines(bench: Workbench, estimates: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configured baselines and ceilings by what tables call them.

    They know nothing of the market yet, unless `estimates` has what each was told, from its ``state_dict``.
    """
    parts = bench.config.baselines
    made = {name: bench.make("baseline", part) for name, part in zip(baseline_labels(parts), parts, strict=True)}
    for name, one in made.items():
        if estimates is not None and isinstance(one, Baseline):
            one.load_state_dict(estimates[name])
    return made


def told_baselines(bench: Workbench, origin: RunDirectory) -> dict[str, Any]:
    """Return the configured baselines with what those of the run `origin` were told by its training days.

    A baseline that needs such estimates, and is not as it was in that run, is a `ConfigError`.
    """
    made, known = make_baselines(bench), read_json(origin.backtest / "baselines.json")
    own, labels = described(origin.config)["baselines"], baseline_labels(origin.config.baselines)
    for (name, one), part in zip(made.items(), described(bench.config)["baselines"], strict=True):
        if isinstance(one, Baseline) and one.state_dict():
            if part not in own:
                raise ConfigError(
                    f"the baseline {name} is not among those of the run with these settings, and what it needs to know "
                    "of the training days was not kept; judge it in a run."
                )
            one.load_state_dict(known[labels[own.index(part)]])
    return made


def _validation_of_baselines(bench: Workbench, origin: RunDirectory) -> dict[str, float]:
    """Return the validation of each configured baseline that the run `origin` had with the same settings, by name."""
    own, labels = described(origin.config)["baselines"], baseline_labels(origin.config.baselines)
    known = read_json(origin.backtest / "selection.json").get("validation_of_baselines", {})
    here = zip(baseline_labels(bench.config.baselines), described(bench.config)["baselines"], strict=True)
    found = {name: known.get(labels[own.index(part)]) for name, part in here if part in own}
    return {name: value for name, value in found.items() if value is not None}


def estimates_of(baselines: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each baseline was told about the market, in plain values."""
    return {name: one.state_dict() for name, one in baselines.items() if isinstance(one, Baseline)}


def play(bench: Workbench, playable: Playable, orders: OrderBatch, simulator: Simulator[Any] | None = None) -> Episodes:
    """Run a policy greedily on orders, as validation does, in the run's market or in another `simulator`."""
    from rlwb.trainer import backtest

    policy, sees, acts = playable
    market, shards = simulator or bench.simulator, bench.shards
    divided = shards.divided(policy, market) if shards is not None and shards.serves(policy, sees, market) else None
    return backtest(market, sees, orders, acts, policy, reward=bench.reward, divided=divided)


def result(name: str, kind: Any, orders: OrderBatch, episodes: Episodes, **known: Any) -> PolicyResult:
    """Return the result of a policy that was run."""
    from rlwb.evaluation import PolicyResult
    from rlwb.trainer import result_table

    table = result_table(orders.table, episodes)
    return PolicyResult(name, kind, table, inventory=episodes.details.get("inventory"), **known)


def with_objective(bench: Workbench, orders: OrderBatch, one: PolicyResult) -> PolicyResult:
    """Return a result whose table has each order's part of the objective's value; a ceiling, of the mean, has none."""
    if one.kind == "ceiling":
        return one
    return dataclasses.replace(one, orders=one.orders.assign(objective=bench.objective_terms(orders, one.orders)))


def judged(
    bench: Workbench, name: str, kind: Any, playable: Playable, orders: OrderBatch, **known: Any
) -> PolicyResult:
    """Return the result of a policy on orders, with what each order cost, part by part.

    Where trading has impact, the policy trades the orders once more where it has none. A simulator of one's own without
    the figures of orders gives no costs.
    """
    episodes = play(bench, playable, orders)
    made = result(name, kind, orders, episodes, **known)
    if not {"filled", "price", "price_net", "arrival", "twap"} <= set(episodes.metrics):
        return made
    columns = attribute_costs(bench.engine, orders, episodes.metrics, episodes.details.get("requested"))
    if bench.impact_free is not None:
        engine, simulator = bench.impact_free
        again = play(bench, playable, orders, simulator)
        columns[IMPACT_OFF] = attribute_costs(engine, orders, again.metrics, again.details.get("requested"))["cost"]
    return dataclasses.replace(made, orders=made.orders.assign(**columns))


def baseline_result(
    bench: Workbench, name: str, baseline: Any, orders: OrderBatch, validation_pa: float = math.nan
) -> PolicyResult:
    """Return the result of a baseline, or the ceiling of the same orders."""
    from rlwb.evaluation import PolicyResult

    if isinstance(baseline, Hindsight):
        return PolicyResult(name, "ceiling", baseline.table(orders))
    kind = "unattainable" if getattr(baseline, "sees_future", False) else getattr(baseline, "result_kind", "baseline")
    return judged(bench, name, kind, baseline_playable(baseline), orders, validation_pa=validation_pa)


def policy_result(
    bench: Workbench, policy: MadeElsewhere, sees: StateInterpreter[Any], orders: OrderBatch
) -> PolicyResult:
    """Return the result of a policy made elsewhere, which is given what a policy of the run sees, in full."""
    return judged(bench, policy.name, "policy", policy.playable(sees, bench.action_interpreter), orders)


def baseline_playable(baseline: Any) -> Playable:
    """Return a baseline with interpreters that pass on what is known, and the amounts that it answers with."""
    return baseline, KnownStateInterpreter(), AmountActionInterpreter()


def find_policy(run: RunDirectory, bench: Workbench, name: str) -> Playable:
    """Return a policy of the summary with its interpreters; a `CheckpointError` for a ceiling and an unknown name."""
    from rlwb.trainer import list_checkpoints

    baselines, kept = make_baselines(bench), kept_policies(run)
    if isinstance(baselines.get(name), Hindsight):
        raise CheckpointError(f"{name} is a ceiling and no policy, so it has no trades to show; name a policy.")
    if name in baselines:
        path = run.backtest / "baselines.json"
        with reading(path, "what baselines were told"):
            return baseline_playable(make_baselines(bench, read_json(path))[name])
    paths = {f"checkpoint-{iteration:04d}": path for iteration, path in list_checkpoints(run.checkpoints).items()}
    if paths:
        paths["last"] = [*paths.values()][-1]
    if name in paths:
        return checkpoint_policy(bench, paths[name])
    if name in kept and paths:
        sees = checkpoint_policy(bench, paths["last"])[1]
        return next(one for one in open_kept(run) if one.name == name).playable(sees, bench.action_interpreter)
    taught = ["teacher"] if list_checkpoints(teacher_checkpoints(run)) else []
    if name in taught:
        return teacher_policy(run, bench)[0]
    raise CheckpointError(
        f"the run has no policy {name!r}; it has {', '.join([*paths, *taught, *kept, *baselines])} in {run.path}."
    )
