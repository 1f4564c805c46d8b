"""The work of the four stages: what the notebooks call, and what a script may call in their place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, DataError
from rlwb.execution import ExecutionRules, OrderBatch, OrderExecutionFactory, read_orders, write_orders
from rlwb.experiment.baselines import Estimates, baseline_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.manifest import update_manifest
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import Progress, Trainings, refuse_shorter, teacher_checkpoints
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json, write_text

if TYPE_CHECKING:
    from rlwb.evaluation import Checkpoint, PolicyResult
    from rlwb.market import MarketFeatures
    from rlwb.trainer import Callback, Episodes

PARTS = ("train", "valid", "test")


def workbench(run: RunDirectory, config: RunConfig) -> Workbench:
    """Return the parts of a run; prepared bars are kept beside the runs, where all of them find them."""
    return Workbench(config, cache_dir=run.path.parent / ".cache")


def make_orders(run: RunDirectory, config: RunConfig) -> None:
    """Write ``orders/{train,valid,test,all}.parquet``, ``orders/data.json`` and ``orders/summary.csv``.

    Every order is bound to its session once, so that what cannot be executed is refused here and not hours later.
    """
    bench = workbench(run, config)
    parts, notes = bench.make_orders()
    for name in PARTS:
        bench.bind(parts[name])
    settings = {**config.orders.model_dump(mode="json"), "seed": config.seed, "data": bench.sessions.fingerprint}
    for name, table in parts.items():
        write_orders(run.orders / f"{name}.parquet", table, settings)
    with atomic_path(run.orders / "summary.csv") as path:
        order_summary(parts).to_csv(path)
    report = bench.sessions.report
    found = {"sessions": repr(bench.sessions), "report": report.as_dict(), "text": report.as_text(), "notes": notes}
    write_json(run.orders / "data.json", found)
    fingerprint = {"market": bench.sessions.fingerprint}
    update_manifest(run, data=fingerprint, bars=report.as_dict(), rules=config.execution.rules.describe())


def order_summary(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Return one row a part: orders, instruments, days, first and last day, mean amount."""
    rows = {
        name: {
            "orders": len(table),
            "instruments": table["instrument"].nunique(),
            "days": table["date"].nunique(),
            "first": f"{table['date'].min():%Y-%m-%d}",
            "last": f"{table['date'].max():%Y-%m-%d}",
            "mean_amount": table["amount"].mean(),
        }
        for name, table in parts.items()
    }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("part")


def load_orders(run: RunDirectory, bench: Workbench, part: str) -> pd.DataFrame:
    """Return the order table of one part of the run."""
    return read_orders(run.orders / f"{part}.parquet", bench.sessions.calendar)


def train_policy(
    run: RunDirectory,
    config: RunConfig,
    callbacks: Sequence[Callback] = (),
    *,
    progress: Progress | None = None,
) -> None:
    """Train, writing ``checkpoints/`` and ``metrics/``; what is there of the same settings is continued.

    By oracle policy distillation the teacher is trained first, into a folder ``teacher`` of each.

    Parameters
    ----------
    callbacks
        Called beside those of the run.
    progress
        A bar, or a line an iteration with the time left; None means a bar where someone watches and lines elsewhere.

    Raises
    ------
    ConfigError
        When more iterations are trained already than are asked for; fewer would not be the run that its
        configuration describes.
    """
    import torch

    from rlwb.trainer import find_resumable

    settings = config.train
    resume, _ = find_resumable(run.checkpoints)
    if resume is not None:
        refuse_shorter(int(resume.stem), settings.iterations)
    torch.set_num_threads(config.threads)
    bench = workbench(run, config)
    tables = {part: load_orders(run, bench, part) for part in ("train", "valid")}
    orders = {part: bench.bind(table) for part, table in tables.items()}
    features = bench.features(tables["train"])
    trainings = Trainings(bench, features, orders, progress or ("bar" if is_attended() else "lines"))
    teacher = trainings.teach(run) if settings.algorithm == "opd" else None
    trainings.fit(
        bench.learner(features, teacher),
        run.checkpoints,
        run.metrics,
        settings.iterations,
        every=settings.checkpoint_every,
        keep_best=settings.keep or None,
        keep_last=settings.keep or None,
        patience=settings.patience,
        callbacks=callbacks,
    )


def backtest_policies(run: RunDirectory, config: RunConfig) -> None:
    """Judge the chosen checkpoints, the last one, the baselines and a teacher on the test orders; write ``backtest/``.

    ``orders/<policy>.parquet`` has one row an order, ``inventory/<policy>.npy`` the share left after each step (a
    ceiling has none); ``baselines.json`` what the baselines were told of the market, from training sessions alone;
    ``summary.csv`` one row a policy; ``gap.csv``, where the rules are not the simple ones, what each of them does to
    the best checkpoint's PA; ``headline.csv`` and ``headline.md`` the table to show; ``selection.json``
    which checkpoints were chosen, which were left out and why, and the noise of their validation.
    """
    import torch
    from tqdm.auto import tqdm

    from rlwb.evaluation import headline, read_validation, select_checkpoints, summarise
    from rlwb.trainer import find_resumable, load_checkpoint

    torch.set_num_threads(config.threads)
    settings = config.backtest
    bench = workbench(run, config)
    validation = read_validation(run.metrics / "validation.csv")
    figure = config.execution.rules.judged_by
    selection = select_checkpoints(
        validation, run.checkpoints, count=settings.top, figure=figure, check=load_checkpoint
    )
    test, valid = (bench.bind(load_orders(run, bench, part)) for part in ("test", "valid"))
    results, rescored = [], []
    for chosen in tqdm(selection.chosen, desc="backtest", disable=not is_attended()):
        results.append(
            _judge(bench, chosen.path, test, chosen.policy, "checkpoint", chosen.iteration, chosen.validation_pa)
        )
        again = score_checkpoint(bench, chosen.path, valid)
        if not np.isclose(again.means()[figure], chosen.validation_pa, rtol=0, atol=1e-9, equal_nan=True):
            raise DataError(
                f"{chosen.path.name} scores {again.means()[figure]!r} bp on the validation orders, but "
                f"{chosen.validation_pa!r} was logged; orders, data or weights have changed since: train again."
            )
        rescored.append(again.metrics[figure])
    path, damaged = find_resumable(run.checkpoints)
    assert path is not None, "a checkpoint was chosen above"
    last = int(path.stem)
    logged = validation.loc[validation["iteration"] == last, figure]
    results.append(_judge(bench, path, test, "last", "last", last, float(logged.iloc[0]) if len(logged) else np.nan))
    known = Estimates.fit(bench, load_orders(run, bench, "train"))
    results += baseline_results(bench, known, test)
    if config.train.algorithm == "opd":
        results.append(_teacher_result(run, bench, test))

    write_json(run.backtest / "baselines.json", known)
    for result in results:
        _write_result(run.backtest, result)
    shared: dict[str, Any] = {
        "level": settings.confidence,
        "resamples": settings.bootstrap_samples,
        "seed": config.seed,
    }
    summary = summarise(results, **shared)
    with atomic_path(run.backtest / "summary.csv") as target:
        summary.to_csv(target, index=False)
    head = headline(results, requested=settings.top, candidates=selection.ranked, **shared)
    with atomic_path(run.backtest / "headline.csv") as target:
        head.frame.to_csv(target)
    write_text(run.backtest / "headline.md", head.to_markdown() + "\n")
    write_text(run.backtest / "headline.txt", head.to_text() + "\n")
    _write_gap(run, bench, selection.chosen[0], test, shared)
    noise = validation_noise(rescored, valid, selection.ranked, len(selection.chosen), config.seed)
    write_json(
        run.backtest / "selection.json",
        {
            "chosen": [one.policy for one in selection.chosen],
            "excluded": [{"iteration": one.iteration, "reason": one.reason} for one in selection.excluded],
            "damaged": damaged,
            "description": selection.describe(),
            "rules": config.execution.rules.describe(),
            **noise,
        },
    )


def _write_gap(
    run: RunDirectory, bench: Workbench, best: Checkpoint, orders: OrderBatch, interval: dict[str, Any]
) -> None:
    """Write what separates the best checkpoint's PA under simple rules from that under the run's."""
    from rlwb.evaluation import PolicyResult, gap_table, rule_steps
    from rlwb.trainer import result_table

    execution, path = bench.config.execution, run.backtest / "gap.csv"
    steps = rule_steps(execution.rules, halts=bench.sessions.halted is not None)
    if len(steps) == 1:
        path.unlink(missing_ok=True)
        return

    def play(rules: ExecutionRules) -> PolicyResult:
        simulator = OrderExecutionFactory(bench.sessions, execution.ticks_per_step, rules)
        episodes = score_checkpoint(bench, best.path, orders, simulator)
        return PolicyResult(best.policy, "checkpoint", result_table(orders.table, episodes))

    frame = gap_table(play, steps, **interval)
    with atomic_path(path) as target:
        frame.assign(policy=best.policy).to_csv(target, index=False)


def score_checkpoint(
    bench: Workbench, path: Path, orders: OrderBatch, simulator: OrderExecutionFactory | None = None
) -> Episodes:
    """Run a checkpoint's policy greedily on orders, as validation did, or under the rules of another `simulator`."""
    from rlwb.trainer import load_checkpoint

    return _run_greedily(bench, *bench.restore(load_checkpoint(path), path), orders, simulator)


def _run_greedily(
    bench: Workbench,
    learner: Any,
    features: MarketFeatures,
    orders: OrderBatch,
    simulator: OrderExecutionFactory | None = None,
) -> Episodes:
    """Run a policy greedily on orders."""
    from rlwb.trainer import backtest

    interpreter = bench.state_interpreter(features)
    return backtest(
        simulator or bench.simulator, interpreter, orders, bench.action_interpreter, learner, reward=bench.reward
    )


def _teacher_result(run: RunDirectory, bench: Workbench, orders: OrderBatch) -> PolicyResult:
    """Run the teacher on orders, to show what there is to gain for those who know the rest of the day."""
    from rlwb.evaluation import PolicyResult, read_validation
    from rlwb.trainer import find_resumable, load_checkpoint, result_table

    path, _ = find_resumable(teacher_checkpoints(run))
    if path is None:
        raise CheckpointError(
            f"{teacher_checkpoints(run)} has no checkpoint of the teacher; run the stage train again."
        )
    teacher, features = bench.restore_teacher(load_checkpoint(path), path)
    episodes = _run_greedily(bench, teacher, features, orders)
    validation = read_validation(run.metrics / "teacher" / "validation.csv").set_index("iteration")
    validation = validation[bench.config.execution.rules.judged_by]
    iteration = int(path.stem)
    return PolicyResult(
        "teacher",
        "unattainable",
        result_table(orders.table, episodes),
        iteration,
        float(validation.get(iteration, np.nan)),
        episodes.details["inventory"],
    )


def _judge(
    bench: Workbench, path: Path, orders: OrderBatch, name: str, kind: Any, iteration: int, validation_pa: float
) -> PolicyResult:
    from rlwb.evaluation import PolicyResult
    from rlwb.trainer import result_table

    episodes = score_checkpoint(bench, path, orders)
    table = result_table(orders.table, episodes)
    return PolicyResult(name, kind, table, iteration, validation_pa, episodes.details["inventory"])


def _write_result(folder: Path, result: PolicyResult) -> None:
    with atomic_path(folder / "orders" / f"{result.policy}.parquet") as path:
        result.orders.to_parquet(path, index=False)
    if result.inventory is None:
        return
    with atomic_path(folder / "inventory" / f"{result.policy}.npy") as path, path.open("wb") as file:
        np.save(file, np.asarray(result.inventory, dtype=np.float32))


def read_results(run: RunDirectory) -> list[PolicyResult]:
    """Return the backtest's results, in the order of its summary.

    Raises
    ------
    CheckpointError
        When the run has no backtest.
    """
    from rlwb.evaluation import PolicyResult

    summary = run.backtest / "summary.csv"
    if not summary.is_file():
        raise CheckpointError(f"{run.path.name} has no backtest yet; run the stage backtest first.")
    results = []
    for row in pd.read_csv(summary).itertuples():
        orders = pd.read_parquet(run.backtest / "orders" / f"{row.policy}.parquet")
        path = run.backtest / "inventory" / f"{row.policy}.npy"
        inventory = np.load(path) if path.is_file() else None
        iteration = None if pd.isna(row.iteration) else int(row.iteration)
        results.append(PolicyResult(row.policy, row.kind, orders, iteration, row.validation_pa, inventory))
    return results


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
    shrinkage = expected_shrinkage(error, candidates, chosen, correlation=correlation)
    return {"standard_error": error, "correlation": correlation, "expected_shrinkage": shrinkage}


def draw_stability(run: RunDirectory, config: RunConfig) -> None:
    """Draw ``figures/*.png`` and ``*.svg`` from the metrics and the backtest."""
    from rlwb.evaluation.plots import save_figure

    for name, figure in stability_figures(run, config).items():
        save_figure(figure, run.figures / name)


def stability_figures(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """Return the figures of a run by name; under rules with costs they are of the net PA."""
    import json

    from rlwb.evaluation import plots, read_validation

    results = read_results(run)
    summary = pd.read_csv(run.backtest / "summary.csv")
    selection = json.loads((run.backtest / "selection.json").read_text(encoding="utf-8"))
    validation = read_validation(run.metrics / "validation.csv")
    train = pd.read_csv(run.metrics / "train.csv")
    if config.execution.rules.have_costs:
        results = [result.after_costs() for result in results]
        net = {"pa_mean": "pa_net", "pa_lo": "pa_net_lo", "pa_hi": "pa_net_hi"}
        summary = summary.assign(**{name: summary[other] for name, other in net.items()})
        train, validation = (frame.assign(pa=frame["pa_net"]) for frame in (train, validation))
    chosen = [result.iteration for result in results if result.kind == "checkpoint" and result.iteration is not None]
    interval: dict[str, Any] = {"level": config.backtest.confidence, "seed": config.seed}
    return {
        "learning_curves": plots.learning_curves(train, validation, chosen=chosen),
        "validation_against_test": plots.validation_against_test(
            summary, expected_shrinkage=selection["expected_shrinkage"]
        ),
        "pa_distribution": plots.pa_distribution(results),
        "pa_by_month": plots.pa_by_month(results, **interval),
        "pa_by_instrument": plots.pa_by_instrument(results, **interval),
        "inventory_paths": plots.inventory_paths(results),
        "cumulative_pa": plots.cumulative_pa(results),
    }
