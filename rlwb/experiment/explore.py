"""Finished runs to be explored: their test orders by policy, and their checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError
from rlwb.evaluation import PolicyResult
from rlwb.evaluation.playback import Playback
from rlwb.evaluation.results import PA_TITLES, TESTED, best_rule
from rlwb.experiment.backtest import find_policy, read_results, read_summary
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import WINDOWS, RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.reading import read_json

#: Kinds of results that are no policies.
_NO_POLICY = ("ceiling", "fills")


def judged_runs(path: Path) -> dict[str, RunDirectory]:
    """Return the runs with a backtest by name: those beside a run, itself among them, of a folder, or its windows.

    Raises
    ------
    CheckpointError
        When there is none.
    """
    is_whole = RunDirectory(path).is_run() and not (path / WINDOWS).is_dir()
    folder = path.resolve().parent if is_whole else path / WINDOWS if (path / WINDOWS).is_dir() else path
    runs = {one.parent.name: RunDirectory(one.parent) for one in sorted(folder.glob("*/status.json"))}
    found = {name: run for name, run in runs.items() if (run.backtest / "summary.csv").is_file()}
    if is_whole and path.resolve().name not in found:
        read_summary(RunDirectory(path))  # which says what is lacking
    if not found:
        raise CheckpointError(f"{path} holds no run with a backtest; name the directory of one, or of several.")
    return found


class RunPolicies(Mapping[str, Any]):
    """The policies of a run's backtest by name, each restored when it is first asked for.

    Parameters
    ----------
    run, bench
        The run, and its parts.
    names
        Of the policies.
    """

    def __init__(self, run: RunDirectory, bench: Workbench, names: Sequence[str]) -> None:
        self._run, self._bench = run, bench
        self._found: dict[str, Any] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> Any:
        if name not in self._found or self._found[name] is None:
            self._found[name] = find_policy(self._run, self._bench, name)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def run_playback(run: RunDirectory, bench: Workbench | None = None) -> Playback:
    """Return a run's test orders, to be executed again by the policies of its backtest.

    The best checkpoint, the best simple rule and TWAP come first. `bench` are the run's parts where they are made.
    """
    results, bench = read_results(run), bench or workbench(run)
    orders = bench.align(load_orders(run, bench, "test"), bench.objective.middle)
    names = dict.fromkeys([*_usual(results), *(one.policy for one in results if one.kind not in _NO_POLICY)])
    return Playback(bench.simulator, orders, RunPolicies(run, bench, list(names)), bench.reward, results)


def _usual(results: Sequence[PolicyResult]) -> list[str]:
    """Return what is laid side by side at first: the best checkpoint, the best simple rule, and TWAP."""
    names = [one.policy for one in results if one.kind not in _NO_POLICY]
    rule = best_rule(results)
    return list(dict.fromkeys([*names[:1], *([rule.policy] if rule else []), *(["twap"] if "twap" in names else [])]))


class CheckpointView:
    """The state of a checkpoint explorer: the run's judged checkpoints, which of them is chosen, and what it did.

    Parameters
    ----------
    run
        A run with a backtest.

    Attributes
    ----------
    summary
        `rlwb.experiment.backtest.read_summary`.
    judged_by
        The figure that checkpoints were chosen by: ``pa``, ``pa_net`` or ``objective``.
    shrinkage
        By how much luck alone would let the test PA lie below the validation PA, bp; None if it is not known.
    names
        The chosen checkpoints, best by validation first, and ``last``.
    chosen
        One of these.

    Raises
    ------
    CheckpointError
        When the run has no backtest, judged no checkpoint, or is one over windows.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        if windows := sorted(path.name for path in (run.path / WINDOWS).glob("*")):
            raise CheckpointError(
                f"{run.short} has checkpoints in each of its windows; open one: {run.short}/{WINDOWS}/{windows[-1]}."
            )
        self.summary, self.judged_by = read_summary(run), run.config.judged_by
        selection = run.backtest / "selection.json"
        self.shrinkage = read_json(selection).get("expected_shrinkage") if selection.exists() else None
        self.results = {one.policy: one for one in read_results(run)}
        rows = self.summary[self.summary["kind"].isin(["checkpoint", "last"])]
        self._test = TESTED[self.judged_by][0]
        self._points = rows.set_index("policy")[["validation_pa", self._test, "iteration"]]
        if rows.empty:
            raise CheckpointError(f"the backtest of {run.path.name} judged no checkpoint.")
        self.names = list(self._points.index)
        self.chosen = self.names[0]

    def label(self, name: str) -> str:
        """Return a checkpoint in a list: its iteration, and what it is judged by in validation and test."""
        point = self._points.loc[name]
        named = "last, " if name == "last" else ""
        return (
            f"{named}iteration {point['iteration']:.0f}: validation {PA_TITLES[self.judged_by]} "
            f"{point['validation_pa']:z.2f} bp, test {point[self._test]:z.2f} bp"
        )

    def choose(self, name: str) -> None:
        """Choose a checkpoint by name."""
        if name not in self.names:
            raise CheckpointError(
                f"{name} is no judged checkpoint of {self.run.path.name}; choose one of {self.names}."
            )
        self.chosen = name

    def point(self) -> tuple[float, float]:
        """Return what the chosen one is judged by in validation and test, bp."""
        x, y = self._points.loc[self.chosen, ["validation_pa", self._test]]
        return float(x), float(y)

    def nearest(self, x: float, y: float, width: float, height: float) -> str:
        """Return the checkpoint nearest to a place of the plot of `width` by `height`, all in bp."""
        away = np.hypot((self._points["validation_pa"] - x) / width, (self._points[self._test] - y) / height)
        return str(away.fillna(np.inf).idxmin())

    def inventories(self) -> list[PolicyResult]:
        """Return the results whose inventory paths are drawn: the chosen checkpoint's, and TWAP's."""
        own = dataclasses.replace(self.results[self.chosen], kind="checkpoint")
        return [own, *(one for name, one in self.results.items() if name == "twap")]

    def orders(self, most: int = 5) -> pd.DataFrame:
        """Return the orders with the worst and the best PA, `most` of each, and the median one, by order id.

        Columns are those of the results' orders, with their units.
        """
        table = self.results[self.chosen].orders.dropna(subset="pa").sort_values(["pa", "order_id"])
        count = len(table)
        places = sorted({*range(min(most, count)), *range(max(0, count - most), count), count // 2} & set(range(count)))
        shown = [one for one in ("instrument", "date", "side", "direction", "amount", "pa", "ffr") if one in table]
        named = {"amount": "amount, shares", "pa": "PA, bp", "ffr": "filled, %"}
        found = table.set_index("order_id").iloc[places][shown].rename(columns=named)
        found["date"] = [f"{one:%Y-%m-%d}" for one in found["date"]]
        return found.assign(**{"filled, %": 100 * found["filled, %"]}) if "filled, %" in found else found
