"""The run that an audit checks, with its parts on any panel of bars, and the form of a finding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rlwb.execution import Baseline, OrderBatch
from rlwb.experiment.backtest import (
    Hindsight,
    Playable,
    baseline_playable,
    checkpoint_policy,
    find_policy,
    make_baselines,
    read_results,
)
from rlwb.experiment.config import baseline_labels
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.policies import kept_policies
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.market import Sessions
from rlwb.reading import read_json

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult

#: Panels of more bars are cut to the days around a sampled one, so that an audit of a large market takes seconds.
MOST_BARS = 2_000_000
#: Days before and after a sampled one that a cut panel keeps.
_BEFORE, _AFTER = 40, 3


@dataclass(frozen=True)
class Check:
    """The result of one check of an audit.

    Attributes
    ----------
    name
        What was checked, as reports name it.
    passed
        None where it could not be told, for the reason in `detail`.
    detail
        What was compared, or what is wrong, in a sentence.
    """

    name: str
    passed: bool | None
    detail: str


@dataclass
class Case:
    """A run under audit.

    Attributes
    ----------
    run
        The run's directory.
    is_full
        Whether all is looked at, in place of a sample that takes seconds.
    each
        Called after each test day on which later bars were changed (`days_of`), which is most of the work.
    """

    run: RunDirectory
    is_full: bool = False
    each: Callable[[], object] | None = None
    _parts: dict[str, pd.DataFrame] = field(default_factory=dict)

    @cached_property
    def bench(self) -> Workbench:
        """The parts of the run, on its own bars."""
        return workbench(self.run)

    @cached_property
    def results(self) -> list[PolicyResult]:
        """The results of the backtest."""
        return read_results(self.run)

    @cached_property
    def best(self) -> PolicyResult:
        """The result of the checkpoint with the best validation."""
        return next(one for one in self.results if one.kind in ("checkpoint", "last"))

    def orders(self, part: str) -> pd.DataFrame:
        """Return the stored orders of a part: ``train``, ``valid``, ``test``."""
        if part not in self._parts:
            self._parts[part] = load_orders(self.run, self.bench, part)
        return self._parts[part]

    def dates(self, part: str) -> np.ndarray:
        """Return the dates of the orders of a part, sorted, datetime64[D]."""
        return np.unique(self.orders(part)["date"].to_numpy().astype("datetime64[D]"))

    @cached_property
    def test(self) -> OrderBatch:
        """The test orders on the run's own bars."""
        return self.bench.align(self.orders("test"), self.bench.objective.middle)

    def on(self, sessions: Sessions) -> Workbench:
        """Return the parts of the run on another panel of bars."""
        made = Workbench(self.bench.config, is_elsewhere=self.bench.is_elsewhere)
        made.__dict__["sessions"] = sessions
        return made

    def playable(self, name: str, bench: Workbench) -> Playable:
        """Return a policy of the backtest, with what it sees and how its answers are taken, on the bars of `bench`."""
        from rlwb.trainer import list_checkpoints

        # That one alone: to make every baseline for each policy and market would take most of the time.
        labels, told = baseline_labels(bench.config.baselines), self.run.backtest / "baselines.json"
        if name == self.best.policy and self.best.iteration is not None:
            return checkpoint_policy(bench, list_checkpoints(self.run.checkpoints)[self.best.iteration])
        if name not in labels or not told.is_file():
            return find_policy(self.run, bench, name)
        baseline = bench.make("baseline", bench.config.baselines[labels.index(name)])
        if isinstance(baseline, Baseline):
            baseline.load_state_dict(read_json(told)[name])
        return baseline_playable(baseline)

    @cached_property
    def policies(self) -> list[str]:
        """The policies that claim to know no future: the best checkpoint, baselines, and those made elsewhere.

        Ceilings, and what is told the market's law beside its prices, claim no such thing.
        """
        made = make_baselines(self.bench)
        told = {name for name, one in made.items() if isinstance(one, Hindsight) or getattr(one, "sees_future", False)}
        return [self.best.policy, *(name for name in made if name not in told), *kept_policies(self.run)]

    def around(self, day: np.datetime64) -> Sessions:
        """Return the panel, cut to the days around one of them where it is large."""
        panel = self.bench.sessions
        if len(panel) * panel.calendar.num_ticks <= MOST_BARS:
            return panel
        days = np.unique(panel.dates)
        place = int(np.searchsorted(days, day))
        kept = days[max(0, place - _BEFORE) : place + _AFTER + 1]
        return panel.select(np.isin(panel.dates, kept))


class Mean(NamedTuple):
    """A mean with the ends of its interval."""

    mean: float
    lo: float
    hi: float


def day_interval_of(values: np.ndarray, days: np.ndarray, *, level: float = 0.95) -> Mean | None:
    """Return the mean of orders' values with the interval of Student's t over the means of days, None of few days."""
    known = np.isfinite(values)
    number = np.unique(days[known], return_inverse=True)[1]
    count = np.bincount(number)
    if len(count) < 4:
        return None
    means = np.bincount(number, values[known]) / count
    reach = stdtrit(len(means) - 1, (1 + level) / 2) * means.std(ddof=1) / np.sqrt(len(means))
    return Mean(float(means.mean()), float(means.mean() - reach), float(means.mean() + reach))


def first_failure(name: str, found: Iterable[str], sound: str) -> Check:
    """Return a check that fails with the first of the faults that were found, and passes where there is none."""
    faults = list(found)
    more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
    return Check(name, not faults, f"{faults[0]}{more}" if faults else sound)


def path_of(run: RunDirectory) -> Path:
    """Return where a run keeps its audit."""
    return run.path / "audit.json"


def any_rows(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    """Return at most `most` of `count` row numbers, sorted."""
    return np.sort(rng.permutation(count)[:most])
