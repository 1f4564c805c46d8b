"""The audit of a run: what a sound one shows, when it is made, and that each planted fault is caught by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trust_planted import PLANTS, audit_of, caught_by, sound_run
from rlwb import cli
from rlwb.errors import CheckpointError
from rlwb.experiment import audit
from rlwb.experiment.audit import audit_if_new, audit_run, read_audit, summary_of
from rlwb.experiment.audit_case import Case, Check
from rlwb.experiment.audit_figures import figure_checks
from rlwb.experiment.audit_future import future_checks
from rlwb.experiment.audit_null import null_checks, tossed
from rlwb.experiment.audit_training import training_checks, twins_of
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST
from rlwb.market import Sessions, SyntheticSettings, feature_registry, synthetic_sessions
from rlwb.reading import read_json


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A finished small run without a fault; tests that change files take a copy."""
    return sound_run(tmp_path_factory.mktemp("audit") / "sound")


@pytest.fixture(autouse=True)
def features_of_plants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the features that plants bring, or other tests' messages would list them."""
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(feature_registry._FEATURES))


@pytest.fixture
def copied(sound: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(sound.path, tmp_path / "run")
    return RunDirectory.open(tmp_path / "run")


def failed(checks: list[Check]) -> list[str]:
    return [f"{one.name}: {one.detail}" for one in checks if one.passed is False]


def test_a_sound_run_passes_every_check(copied: RunDirectory) -> None:
    checks = audit_run(copied)
    assert [one.name for one in checks if one.passed is not True] == []
    assert len({one.name for one in checks}) == len(checks)
    assert read_audit(copied) == checks


#: Planted faults that are tried here, one for each check or nearly; `make trust` tries all.
TRIED = [
    *(
        "look-ahead of one tick in a feature",
        "look-ahead of one tick in a policy",
        "look-ahead of one tick in an encoder",
    ),
    *(
        "normaliser on all days",
        "training on test orders",
        "a threshold tuned on the test days",
        "an order judged twice",
    ),
    *("losing orders left out", "future table joined by key", "a policy with a table of the future", "wrong sign"),
    *("selection by test", "a validation log of another policy", "results of another checkpoint"),
    *("a headline that is not the mean of its orders", "one-sided drift that any early seller collects"),
    *("a gain that is only a saved fee", "fills at the best price of the step"),
]


def audited_until(expected: str, run: RunDirectory) -> list[Check]:
    """Audit a run, the quick checks first, until the check that is expected to fail has failed."""
    case, found = Case(run), []
    for auditor in (training_checks, figure_checks, future_checks, null_checks):
        for check in audit._made(auditor, case):
            found.append(check)
            if check.name == expected and check.passed is False:
                return found
    return found


@pytest.mark.parametrize("fault", TRIED)
def test_a_planted_fault_is_caught_by_the_check_that_is_made_for_it(
    fault: str, sound: RunDirectory, tmp_path: Path
) -> None:
    plant = next(one for one in PLANTS if one.fault == fault)
    checks = audit_of(plant, sound, tmp_path / "planted", partial(audited_until, plant.expected))
    assert caught_by(plant, checks) == plant.expected


def test_plants_are_named_once_each() -> None:
    assert len({plant.fault for plant in PLANTS}) == len(PLANTS)


def test_the_training_notes_the_days_that_each_part_of_it_read(sound: RunDirectory) -> None:
    found = read_json(sound.metrics / "readings.json")
    days = {part: Case(sound).dates(part).astype(str).tolist() for part in ("train", "valid")}
    assert {reader: found[reader]["dates"] for reader in ("normaliser", "network")} == {
        "normaliser": days["train"],
        "network": days["train"],
    }
    assert set(found["training"]["dates"]) <= set(days["train"])
    assert found["validation"]["dates"] == days["valid"]


def test_a_backtest_is_audited_once_and_its_report_shows_what_was_found(copied: RunDirectory) -> None:
    said: list[str] = []
    audit_if_new(copied, said.append)
    audit_if_new(copied, said.append)
    assert len(said) == 1
    page = write_report(copied).read_text()
    assert "Leaks and counts" in page
    assert summary_of(read_audit(copied)) in page
    copied.update_stage(BACKTEST.name, {"ended": "later"})
    audit_if_new(copied, said.append)
    assert len(said) == 2


def test_a_run_of_an_earlier_version_is_not_told_what_its_training_read(copied: RunDirectory) -> None:
    (copied.metrics / "readings.json").unlink()
    found = {one.name: one.passed for one in audit_run(copied)}
    assert found.pop("training read") is None
    assert set(found.values()) == {True}


def test_what_stops_a_check_is_told_and_no_failure(copied: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(case: Case) -> Iterator[Check]:
        yield Check("one", True, "seen")
        raise ValueError("these prices are beyond me")

    monkeypatch.setattr(audit, "AUDITORS", {stops: "own checks"})
    assert [(one.name, one.passed) for one in audit_run(copied)] == [("one", True), ("own checks", None)]


def test_the_command_prints_each_check_and_says_by_its_code_how_it_ended(
    copied: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(copied.path), "--quick", "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is True
    assert [one["name"] for one in found["runs"][0]["checks"]] == [one.name for one in read_audit(copied)]
    manifest = copied.metrics / "readings.json"
    readings = read_json(manifest)
    readings["training"]["dates"].append("2023-02-27")
    manifest.write_text(json.dumps(readings))
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", str(copied.path), "--quick"])
    assert ended.value.code == 1
    assert "FAILED    training read" in capsys.readouterr().out


def test_on_tossed_bars_each_price_is_the_expectation_of_the_later_ones_and_the_bars_stay_sound() -> None:
    own = synthetic_sessions(SyntheticSettings(instruments=20, days=40))
    every = np.ones(len(own), dtype=bool)
    panel = tossed(own, every, np.random.default_rng(5))
    close = panel.fields["close"]
    moves = close[:, 1:] / close[:, :-1] - 1
    assert np.allclose(np.abs(moves), np.abs(own.fields["close"][:, 1:] / own.fields["close"][:, :-1] - 1))
    for lag in (1, 2, 5):  # the moves of the market itself go on or come back
        assert abs((moves[:, lag:] * moves[:, :-lag]).mean()) < 4 * moves.var() / np.sqrt(moves[:, lag:].size)
    assert (panel.fields["high"] >= np.maximum(close, panel.fields["open"])).all()
    assert (panel.fields["low"] <= np.minimum(close, panel.fields["open"])).all()
    assert np.array_equal(panel.fields["volume"], own.fields["volume"])
    assert np.array_equal(close[:, 0], own.fields["close"][:, 0])


def test_a_run_without_a_backtest_is_refused(copied: RunDirectory) -> None:
    copied.update_stage(BACKTEST.name, {"state": "failed"})
    with pytest.raises(CheckpointError, match="backtest"):
        audit_run(copied)


def test_twins_are_found_at_any_scale_and_still_sessions_are_none() -> None:
    own = synthetic_sessions(SyntheticSettings(instruments=2, days=5))
    fields = {name: np.array(values) for name, values in own.fields.items()}
    fields["close"][7] = 0.37 * fields["close"][1]
    fields["close"][[3, 8]] = 10.0
    panel = Sessions(own.calendar, own.instruments, own.dates, own.num_ticks, fields)
    every = np.ones(len(panel), dtype=bool)
    assert twins_of(panel, every) == [(1, 7)]
    assert twins_of(own, every) == []
    every[7] = False
    assert twins_of(panel, every) == []
