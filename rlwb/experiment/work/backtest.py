"""The stage backtest: checkpoints, baselines and a teacher on the test orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.execution import ExecutionRules, OrderBatch, OrderExecutionFactory
from rlwb.experiment.baselines import Estimates, baseline_results, ceiling_result
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.work.orders import load_orders, workbench
from rlwb.experiment.work.results import write_result
from rlwb.experiment.work.scoring import judge, judge_teacher, score_checkpoint
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json, write_text

if TYPE_CHECKING:
    from rlwb.evaluation import Checkpoint, PolicyResult


def backtest_policies(run: RunDirectory, config: RunConfig) -> None:
    """Judge the chosen checkpoints, the last one, the baselines and a teacher on the test orders; write ``backtest/``.

    ``orders/<policy>.parquet`` has one row an order, ``inventory/<policy>.npy`` the share left after each step (a
    ceiling has none); ``baselines.json`` what the baselines were told of the market, from training sessions alone;
    ``summary.csv`` one row a policy; ``gap.csv``, where the rules are not the simple ones, what each of them does to
    the best checkpoint's PA; ``headline.csv`` and ``headline.md`` the table to show; ``selection.json``
    which checkpoints were chosen, which were left out and why, and the noise of their validation.

    Raises
    ------
    CheckpointError
        When no checkpoint can be used.
    DataError
        When a checkpoint does not score as it was logged.
    RuntimeError
        When a policy has a PA above the ceiling on any order; the order tables are there then, and no figure of them.
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
            judge(bench, chosen.path, test, chosen.policy, "checkpoint", chosen.iteration, chosen.validation_pa)
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
    results.append(judge(bench, path, test, "last", "last", last, float(logged.iloc[0]) if len(logged) else np.nan))
    known = Estimates.fit(bench, load_orders(run, bench, "train"))
    results += baseline_results(bench, known, test)
    if config.train.algorithm == "opd":
        results.append(judge_teacher(run, bench, test))

    write_json(run.backtest / "baselines.json", known)
    for result in results:
        write_result(run.backtest, result)
    _refuse_the_impossible(results, ceiling_result(bench, "hindsight", test))
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


def _refuse_the_impossible(results: Sequence[PolicyResult], ceiling: PolicyResult) -> None:
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
        "in all); fills or prices are wrong, so no figure was made of this backtest: look at the order in "
        "backtest/orders, and report it."
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
