"""The stage backtest: checkpoints, baselines and a teacher on the test orders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, DataError
from rlwb.execution import Baseline, OrderBatch
from rlwb.experiment.ceilings import Hindsight
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import is_attended
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.scoring import (
    baseline_result,
    checkpoint_policy,
    estimates_of,
    make_baselines,
    play,
    result,
    teacher_policy,
    validation_figure,
)
from rlwb.experiment.workbench import Workbench
from rlwb.files import atomic_path, write_json, write_text

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Selection


def backtest_policies(run: RunDirectory, config: RunConfig) -> None:
    """Judge the chosen checkpoints, the last one, the baselines and a teacher on the test orders; write ``backtest/``.

    ``orders/<policy>.parquet`` has one row an order, ``inventory/<policy>.npy`` the share left after each step (a
    ceiling has none); ``baselines.json`` what the baselines were told of the market, from training sessions alone;
    ``summary.csv`` one row a policy; ``gap.csv``, where the rules are not the simple ones, what each of them does to
    the best checkpoint's PA; ``headline.csv``, ``.md`` and ``.txt`` the table to show, ``metrics.csv`` its tidy form;
    ``selection.json`` which checkpoints were chosen, which were left out and why, and the noise of their validation.

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

    from rlwb.evaluation import headline, read_validation, select_checkpoints
    from rlwb.trainer import find_resumable, load_checkpoint

    torch.set_num_threads(config.threads)
    settings, figure = config.backtest, config.execution.rules.judged_by
    bench = workbench(run, config)
    validation = read_validation(run.metrics / "validation.csv")
    selection = select_checkpoints(
        validation, run.checkpoints, count=settings.top, metric=figure, check=load_checkpoint
    )
    test, valid = (bench.align(load_orders(run, bench, part)) for part in ("test", "valid"))
    results, rescored = _checkpoints(bench, selection, test, valid, figure)
    path, damaged = find_resumable(run.checkpoints)
    assert path is not None, "a checkpoint was chosen above"
    last = int(path.stem)
    episodes = play(bench, checkpoint_policy(bench, path), test)
    known = {"iteration": last, "validation_pa": validation_figure(run, bench, "", last)}
    results.append(result("last", "last", test, episodes, **known))
    baselines = make_baselines(bench)
    train = bench.align(load_orders(run, bench, "train"))
    for name, one in baselines.items():
        if isinstance(one, Baseline):
            one.fit(train)
        results.append(baseline_result(bench, name, one, test))
    if bench.is_taught:
        playable, last = teacher_policy(run, bench)
        known = {"iteration": last, "validation_pa": validation_figure(run, bench, "teacher", last)}
        results.append(result("teacher", "unattainable", test, play(bench, playable, test), **known))

    write_json(run.backtest / "baselines.json", estimates_of(baselines))
    for one in results:
        _write_result(run.backtest, one)
    if config.simulator.name == "market":  # another market may fill where the ceiling thinks that nothing fills
        _refuse_the_impossible(results, baseline_result(bench, "hindsight", Hindsight(bench.engine), test))
    interval: dict[str, Any] = {
        "level": settings.confidence,
        "resamples": settings.bootstrap_samples,
        "seed": config.seed,
    }
    _write_tables(run, results, headline(results, requested=settings.top, candidates=selection.ranked, **interval))
    _write_gap(run, bench, selection, test, interval)
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


def _checkpoints(
    bench: Workbench, selection: Selection, test: OrderBatch, valid: OrderBatch, figure: str
) -> tuple[list[PolicyResult], list[np.ndarray]]:
    """Return the chosen checkpoints' results on the test orders, and their figure on each validation order."""
    from tqdm.auto import tqdm

    results, rescored = [], []
    for chosen in tqdm(selection.chosen, desc="backtest", disable=not is_attended()):
        playable = checkpoint_policy(bench, chosen.path)
        known = {"iteration": chosen.iteration, "validation_pa": chosen.validation_pa}
        results.append(result(chosen.policy, "checkpoint", test, play(bench, playable, test), **known))
        again = play(bench, playable, valid)
        if not np.isclose(again.means()[figure], chosen.validation_pa, rtol=0, atol=1e-9, equal_nan=True):
            raise DataError(
                f"{chosen.path.name} scores {again.means()[figure]!r} bp on the validation orders, but "
                f"{chosen.validation_pa!r} was logged; orders, data or weights have changed since: train again."
            )
        rescored.append(again.metrics[figure])
    return results, rescored


def _write_tables(run: RunDirectory, results: Sequence[PolicyResult], head: Any) -> None:
    from rlwb.evaluation import metric_table, summary

    interval: dict[str, Any] = {
        "level": run.config.backtest.confidence,
        "resamples": run.config.backtest.bootstrap_samples,
    }
    alone = metric_table({one.policy: [one] for one in results}, **interval, seed=run.config.seed)
    for name, frame in {"summary": summary(alone), "headline": head.frame, "metrics": head.metrics}.items():
        with atomic_path(run.backtest / f"{name}.csv") as target:
            frame.to_csv(target, index=False)
    write_text(run.backtest / "headline.md", head.to_markdown() + "\n")
    write_text(run.backtest / "headline.txt", head.to_text() + "\n")
    write_json(run.backtest / "headline.json", {"header": head.header, "rows": head.rows, "notes": head.notes})


def _write_result(folder: Path, one: PolicyResult) -> None:
    """Write a policy's order table and, where it has one, its inventory below the folder ``backtest``."""
    with atomic_path(folder / "orders" / f"{one.policy}.parquet") as path:
        one.orders.to_parquet(path, index=False)
    if one.inventory is None:
        return
    with atomic_path(folder / "inventory" / f"{one.policy}.npy") as path, path.open("wb") as file:
        np.save(file, np.asarray(one.inventory, dtype=np.float32))


def read_results(run: RunDirectory) -> list[PolicyResult]:
    """Return the backtest's results, in the order of its summary.

    Raises
    ------
    CheckpointError
        When the run has no backtest.
    """
    from rlwb.evaluation import PolicyResult

    path = run.backtest / "summary.csv"
    if not path.is_file():
        raise CheckpointError(f"{run.path.name} has no backtest yet; run the stage backtest first.")
    results = []
    for row in pd.read_csv(path).itertuples():
        orders = pd.read_parquet(run.backtest / "orders" / f"{row.policy}.parquet")
        inventory = run.backtest / "inventory" / f"{row.policy}.npy"
        left = np.load(inventory) if inventory.is_file() else None
        iteration = None if pd.isna(row.iteration) else int(row.iteration)
        results.append(PolicyResult(row.policy, row.kind, orders, iteration, row.validation_pa, left))
    return results


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
        "in all); that can only mean a bug in fills or prices, so no figure was made of this backtest: look at the "
        "order in backtest/orders, and report it."
    )


def _write_gap(
    run: RunDirectory, bench: Workbench, selection: Selection, orders: OrderBatch, interval: dict[str, Any]
) -> None:
    """Write what separates the best checkpoint's PA under simple rules from that under the run's."""
    from rlwb.evaluation import gap_table, rule_steps

    path, best = run.backtest / "gap.csv", selection.chosen[0]
    steps = rule_steps(bench.config.execution.rules, halts=bench.sessions.halted is not None)
    if len(steps) == 1:
        path.unlink(missing_ok=True)
        return
    playable = checkpoint_policy(bench, best.path)
    frame = gap_table(
        lambda rules: result(
            best.policy, "checkpoint", orders, play(bench, playable, orders, bench.simulator_under(rules))
        ),
        steps,
        **interval,
    )
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
