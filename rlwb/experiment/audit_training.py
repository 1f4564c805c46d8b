"""Checks that no later day reached what was trained or estimated, and that each order is judged once."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.conformance import another_future
from rlwb.execution import Baseline
from rlwb.experiment.audit_case import MOST_BARS, Case, Check, first_failure
from rlwb.experiment.backtest import make_baselines
from rlwb.experiment.readings import READINGS
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.experiment.workbench import Workbench
from rlwb.files import as_json
from rlwb.market import Normaliser, Sessions
from rlwb.reading import read_json, read_table

#: Which part of the orders each reader of `rlwb.experiment.readings` may read.
_MAY_READ = {"normaliser": "train", "network": "train", "training": "train", "validation": "valid"}
_PART = {"train": "training", "valid": "validation", "test": "test"}
_LEFT = "left to rlwb audit RUN, because the market is large"
#: How far numbers of a training elsewhere than on a CPU in one process may lie apart, relatively.
_ROUNDING = 1e-3
#: Iterations that are repeated.
_REPEATED = (1, 3)
_SAME_ORDER = ["instrument", "date", "direction", "amount", "start", "end"]
#: Log returns of two sessions that agree within this are those of the same bars.
_TWIN = 1e-7


def training_checks(case: Case) -> Iterator[Check]:
    """Yield the checks of the days of the parts, of what the training read, and of what was estimated.

    What was estimated is estimated once more on a market whose bars are others on every day after the training part,
    and must come to what the run has to the last bit: the normaliser, what the network estimates without gradients, and
    the baselines' estimates. The first iterations of the training are repeated there too.
    """
    yield _days_apart(case)
    yield from _once(case)
    if case.run.origin is not None:
        return
    yield _read(case)
    panel = case.bench.sessions
    names = ("normaliser", "network estimates", "baseline estimates", "training")
    if len(panel) * panel.calendar.num_ticks > MOST_BARS and not case.is_full:
        yield from (Check(name, None, _LEFT) for name in names)
        return
    last = case.dates("train")[-1]
    changed = case.on(another_future(panel, last, panel.calendar.num_ticks, np.random.default_rng(0)))
    yield _normaliser(case, changed)
    yield _network(case, changed)
    yield _baselines(case, changed)
    yield _training(case, changed)
    if case.is_full:
        last = case.dates("valid")[-1]
        after = case.on(another_future(panel, last, panel.calendar.num_ticks, np.random.default_rng(1)))
        yield _training(case, after, validation=True)


def _days_apart(case: Case) -> Check:
    """Require that training, validation and test orders are of days of their own, in this order."""
    days = {part: case.dates(part) for part in _PART}
    faults = []
    for one, two in (("train", "valid"), ("valid", "test"), ("train", "test")):
        both = np.intersect1d(days[one], days[two])
        if len(both):
            faults.append(f"{len(both)} days are {_PART[one]} and {_PART[two]} days, the first {both[0]}")
        elif days[one][-1] > days[two][0]:
            faults.append(f"{_PART[one]} orders of {days[one][-1]} lie after {_PART[two]} orders of {days[two][0]}")
    told = ", ".join(f"{_PART[part]} to {dates[-1]}" for part, dates in days.items())
    return first_failure("days apart", faults, f"no day is in two parts, and they follow each other: {told}")


def _read(case: Case) -> Check:
    """Require that each part of the training read its own days alone, by what it noted as it read."""
    path, name = case.run.metrics / READINGS, "training read"
    if not path.is_file():
        return Check(name, None, "the run does not say what its training read: an earlier version made it")
    faults = []
    for reader, found in read_json(path).items():
        part = _MAY_READ.get(reader, "train")
        foreign = sorted(set(found["dates"]) - set(case.dates(part).astype(str)))
        if foreign:
            test = set(case.dates("test").astype(str)) & set(foreign)
            what = f"{len(test)} of them test days" if test else "none of them a test day"
            faults.append(f"{reader} read {len(foreign)} days that are no {_PART[part]} days ({what}), {foreign[0]}")
    return first_failure(name, faults, "normaliser, network and training read training days, validation its own")


def _stored(case: Case) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint with the best validation and what it holds."""
    from rlwb.trainer import list_checkpoints, load_checkpoint

    path = list_checkpoints(case.run.checkpoints)[int(case.best.iteration or 0)]
    return path, load_checkpoint(path)


def _normaliser(case: Case, changed: Workbench) -> Check:
    """Require that the run's normaliser is that of the training days alone."""
    stored = Normaliser.from_dict(_stored(case)[1]["meta"]["normaliser"])
    found = changed.features(case.orders("train")).normaliser
    apart = [
        f"the {what} of {column} is {was:.6g}, of the training days alone {now:.6g}"
        for what in ("mean", "scale")
        for column, was, now in zip(stored.columns, getattr(stored, what), getattr(found, what), strict=True)
        if was != now
    ]
    return first_failure("normaliser", apart, "its statistics are those of the training days, whatever came later")


def _network(case: Case, changed: Workbench) -> Check:
    """Require that what the network estimated without gradients is estimated from the training days alone."""
    name = "network estimates"
    path, state = _stored(case)
    policy, features = case.bench.restore(state, path)
    trunk = getattr(policy, "trunk", None)
    if not hasattr(trunk, "named_buffers"):  # which alone are let estimate anything
        return Check(name, True, f"{type(policy).__name__} estimates nothing without gradients")
    again = changed.features(normaliser=features.normaliser)
    learner = changed.learner(again)
    changed.fit(learner, again, case.orders("train"))
    found = dict(learner.trunk.named_buffers())  # type: ignore[attr-defined]
    kept = {one: value.cpu().numpy() for one, value in trunk.named_buffers()}  # type: ignore[union-attr]
    tolerance = _ROUNDING if case.bench.config.train.device != "cpu" else 0.0
    apart = [
        f"{one} of the network depends on days after the training part"
        for one, value in kept.items()
        if one in found and not np.allclose(value, found[one].cpu().numpy(), rtol=tolerance, atol=0.0, equal_nan=True)
    ]
    told = "is of the training days, whatever came later" if kept else "is nothing"
    return first_failure(name, apart, f"what the network estimates without gradients {told}")


def _baselines(case: Case, changed: Workbench) -> Check:
    """Require that the baselines' estimates are of the training days alone."""
    stored = read_json(case.run.backtest / "baselines.json")
    orders, apart = changed.align(case.orders("train")), []
    for name, one in make_baselines(changed).items():
        if not isinstance(one, Baseline) or name not in stored:
            continue
        one.fit(orders)
        if as_json(one.state_dict()) != as_json(stored[name]):
            apart.append(f"what {name} estimates depends on days after the training part")
    told = ", ".join(name for name, state in stored.items() if state) or "none has any"
    return first_failure("baseline estimates", apart, f"of the training days, whatever came later: {told}")


def _training(case: Case, changed: Workbench, *, validation: bool = False) -> Check:
    """Require that the first iterations come out the same where later days have other bars."""
    name = "validation unaware of test" if validation else "training unaware of later days"
    config, run = case.bench.config, case.run
    every = config.train.validate_every if validation else 1
    count = min(max(every, _REPEATED[case.is_full]), config.train.iterations)
    here = {"iterations": count, "patience": None, "env": "native", "actors": 0}
    here |= {} if validation else {"validate_every": count}
    short = config.model_copy(update={"train": config.train.model_copy(update=here)})
    file = "validation.csv" if validation else "train.csv"
    with tempfile.TemporaryDirectory(prefix="rlwb-audit-") as folder, contextlib.redirect_stdout(io.StringIO()):
        again = RunDirectory.create(Path(folder) / "run", short)
        shutil.copytree(run.orders, again.orders)
        train_policy(again, short, progress="none", bench=changed)
        found = read_table(again.metrics / file, "iteration", is_numeric=True)
    stored = read_table(run.metrics / file, "iteration", is_numeric=True)
    both = stored.merge(found, on="iteration", suffixes=("", " again"))
    exact = config.train.device == "cpu" and config.train.env == "native"
    columns = [column for column in stored if f"{column} again" in both and column != "seconds"]
    apart = []
    for row in both.to_dict("records"):
        for column in columns:
            was, now = row[column], row[f"{column} again"]
            if not np.isclose(was, now, rtol=0.0 if exact else _ROUNDING, atol=0.0, equal_nan=True):
                apart.append(f"{column} of iteration {row['iteration']} is {was:.6g}, with other bars later {now:.6g}")
    if both.empty:
        return Check(name, None, f"no row of {file} is among the first {count} iterations")
    what = "after the validation days" if validation else "after the training days"
    return first_failure(
        name,
        apart,
        f"{len(both)} iteration{'s' * (len(both) > 1)} made again with other bars {what} give the same figures",
    )


def _once(case: Case) -> Iterator[Check]:
    """Yield whether each test order is judged once, and whether a session of the test part is another's twin."""
    table, faults = case.orders("test"), []
    ids = table["order_id"].to_numpy()
    for one in case.results:
        judged = one.orders["order_id"].to_numpy()
        counts = pd.Series(judged).value_counts()
        twice, foreign, lost = counts.index[counts > 1], np.setdiff1d(judged, ids), np.setdiff1d(ids, judged)
        for what, found in (("twice", twice), ("that is no test order", foreign), ("not at all", lost)):
            if len(found):
                faults.append(f"{one.policy} is judged on {found[0]} {what} ({len(found)} such orders)")
    again = table.duplicated(_SAME_ORDER, keep="first").to_numpy()
    if again.any():
        row = table.iloc[int(np.flatnonzero(again)[0])]
        faults.append(f"order {row['order_id']} is another one over again, under its own id ({int(again.sum())} such)")
    for part in ("train", "valid"):
        both = np.intersect1d(case.orders(part)["order_id"].to_numpy(), ids)
        if len(both):
            faults.append(f"order {both[0]} is a {_PART[part]} and a test order ({len(both)} such)")
    yield first_failure("each order once", faults, f"{len(ids)} test orders, each judged once by every policy")
    yield _twins(case)


def _twins(case: Case) -> Check:
    """Require that no session with a test order has the bars of another one under another name or day."""
    panel, tested = case.bench.sessions, np.zeros(len(case.bench.sessions), dtype=bool)
    tested[case.test.session] = True
    others = np.isin(panel.dates, np.concatenate([case.dates(part) for part in ("train", "valid")]))
    faults = []
    for one, two in twins_of(panel, tested | others):
        if tested[one] or tested[two]:
            names = [f"{panel.instruments[row]} on {panel.dates[row]}" for row in (one, two)]
            faults.append(f"{names[0]} and {names[1]} have the same bars, but for their scale")
    return first_failure("twins", faults, "no test session has the bars of another name or day, scaled ones included")


def twins_of(panel: Sessions, among: np.ndarray) -> list[tuple[int, int]]:
    """Return the pairs of sessions, among those marked (bool of shape (S,)), whose closes are the same up to a factor.

    Sessions in which no price moves are like each other without being twins, and are left out.
    """
    rows = np.flatnonzero(among)
    with np.errstate(invalid="ignore", divide="ignore"):
        moves = np.nan_to_num(np.diff(np.log(panel.fields["close"][rows]), axis=1))
    alive = (np.abs(moves) > _TWIN).sum(axis=1) >= 3
    rows, moves = rows[alive], moves[alive]
    weights = np.random.default_rng(0).uniform(0.5, 1.5, (moves.shape[1], 2))
    marks = moves @ weights
    order = np.argsort(marks[:, 0], kind="stable")
    close = np.abs(np.diff(marks[order], axis=0)) < moves.shape[1] * 2 * _TWIN
    pairs = np.flatnonzero(close.all(axis=1))
    found = []
    for place in pairs.tolist():
        one, two = sorted((int(order[place]), int(order[place + 1])))
        if np.abs(moves[one] - moves[two]).max() < _TWIN:
            found.append((int(rows[one]), int(rows[two])))
    return found
