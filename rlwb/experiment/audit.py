"""``rlwb audit``: checks that nothing in a run's result is owed to knowing what comes later, or to counting wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from rlwb.errors import CheckpointError, ConfigError, DataError, FileError
from rlwb.experiment.audit_case import Case, Check, path_of
from rlwb.experiment.audit_figures import figure_checks
from rlwb.experiment.audit_future import days_of, future_checks
from rlwb.experiment.audit_null import null_checks
from rlwb.experiment.audit_training import training_checks
from rlwb.experiment.notebook import stage_progress
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.policies import kept_policies, require_trust_of_policies
from rlwb.experiment.rolling import windows_of
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST
from rlwb.experiment.verify import find_runs
from rlwb.files import write_json
from rlwb.reading import read_json

Auditor = Callable[[Case], Iterator[Check]]
AUDITORS: dict[Auditor, str] = {
    future_checks: "what comes later",
    training_checks: "what the training read",
    null_checks: "markets without gains",
    figure_checks: "figures computed again",
}
"""Functions that yield the checks of an audit, in their order, each to what its group is about."""


def audit_run(run: RunDirectory, *, is_full: bool = False) -> list[Check]:
    """Check a finished run for leaks and for figures that do not agree; write ``audit.json``.

    Parameters
    ----------
    is_full
        Whether to look at more days, decisions and orders than the sample of a few seconds that every run has.

    Raises
    ------
    CheckpointError
        When the run has no backtest.
    """
    import torch

    if run.stage(BACKTEST.name).get("state") != "finished":
        raise CheckpointError(f"{run.path.name} has no finished backtest, which an audit judges; finish the run first.")
    torch.set_num_threads(run.config.threads)
    case, found = Case(run, is_full, each=lambda: progress.step()), list[Check]()
    with stage_progress("part", days_of(case) + len(AUDITORS), "audit") as progress:
        for auditor in AUDITORS:
            found += _made(auditor, case)
            progress.step({"failed": f"{sum(one.passed is False for one in found)} of {len(found)} checks"})
    about = {"full": is_full, "backtest": run.stage(BACKTEST.name).get("ended")}
    write_json(path_of(run), {"checks": [asdict(one) for one in found], "passed": is_sound(found), **about})
    return found


def _made(auditor: Auditor, case: Case) -> Iterator[Check]:
    """Yield the checks of an auditor; where a part of one's own stops it, that is told in place of the rest."""
    try:
        yield from auditor(case)
    except (DataError, FileError) as error:
        yield Check("files", False, str(error))
    except Exception as error:
        words = f"{type(error).__name__}: {error}".partition("\n")[0]
        yield Check(AUDITORS[auditor], None, f"could not be looked into further ({words})")


def audit_if_new(run: RunDirectory, echo: Callable[[str], None]) -> None:
    """Audit a run by a sample, as a run does at its end, unless the same backtest has been audited."""
    stage = run.stage(BACKTEST.name)
    if stage.get("state") != "finished":
        return
    path = path_of(run)
    if path.is_file() and read_json(path).get("backtest") == stage.get("ended"):
        return
    echo(f"audit: {summary_of(audit_run(run))}")


def is_sound(checks: list[Check]) -> bool:
    """Tell whether no check failed; one that could not be made is no failure."""
    return all(one.passed is not False for one in checks)


def read_audit(run: RunDirectory) -> list[Check]:
    """Return the checks of a run's last audit, none where it has had none."""
    path = path_of(run)
    return [Check(**one) for one in read_json(path)["checks"]] if path.is_file() else []


def launch_audit(
    path: Path,
    *,
    is_full: bool = True,
    as_json_text: bool = False,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
    conclude: Callable[[RunDirectory], object] | None = None,
) -> bool:
    """Do what ``rlwb audit RUN`` asks for; return whether all is sound.

    Of a comparison all runs are audited, and of a run over windows that of each window; `conclude` is called with each.
    """
    runs = [one for run in find_runs(path) for one in (windows_of(run) or [run])]
    if not runs:
        raise ConfigError(f"{path} holds no run, nor a folder of runs; name the directory of one.")
    audits = {}
    for run in runs:
        require_trust(run.config, given=trust_code)
        require_trust_of_policies(kept_policies(run), given=trust_code)
        audits[run] = audit_run(run, is_full=is_full)
        if conclude is not None:
            conclude(run)
        if not as_json_text:
            for line in lines_of(run.path, audits[run]):
                echo(line)
    sound = all(is_sound(found) for found in audits.values())
    if as_json_text:
        told = [{"run": str(run.path), "checks": [asdict(one) for one in found]} for run, found in audits.items()]
        echo(json.dumps({"passed": sound, "runs": told}, indent=2, ensure_ascii=False))
    return sound


def lines_of(path: Path, checks: list[Check]) -> Iterator[str]:
    """Yield the findings as people read them: one line a check, and how many there are of each kind."""
    words = {True: "ok", False: "FAILED", None: "not told"}
    for one in checks:
        yield f"{words[one.passed]:8}  {one.name}: {one.detail}"
    yield f"{path}: {summary_of(checks)}"


def summary_of(checks: list[Check]) -> str:
    """Return in words how an audit ended."""
    failed = [one.name for one in checks if one.passed is False]
    passed = sum(one.passed is True for one in checks)
    untold = sum(one.passed is None for one in checks)
    rest = f", {untold} could not be told" if untold else ""
    if failed:
        return f"{len(failed)} of {len(checks)} checks failed: {', '.join(failed)}{rest}"
    return f"{passed} of {len(checks)} checks for leaks and wrong counts passed, none failed{rest}"
