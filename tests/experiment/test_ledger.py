"""Looks at test days: noted, counted and paid for."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

from rlwb.errors import FileError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.evaluate import evaluated, judge
from rlwb.experiment.layers import Layer
from rlwb.experiment.ledger import (
    LEDGER,
    LOOK,
    day_hashes,
    ledger_of,
    level_after,
    looks,
    note,
    read_ledger,
    settings_hashes,
    told_cost,
    told_look,
    told_looks,
    widened,
)
from rlwb.experiment.run import RunDirectory, write_sealed
from rlwb.experiment.verify import verify_run
from rlwb.files import write_json
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions
from rlwb.reading import read_json

DAYS = {"2024-01-02": "a", "2024-01-03": "b", "2024-01-04": "c"}


def noted(
    ledger: Path, config: str, days: dict[str, str] | None = None, settings: str | None = None
) -> tuple[int, int]:
    settings = settings or f"settings of {config}"
    found = note(ledger, ledger.parent / "run", days or DAYS, by="run", config=config, settings=settings)
    return found["look"], found["configurations"]


def test_the_error_rates_of_all_looks_sum_to_that_of_one() -> None:
    assert level_after(1, 0.95) == pytest.approx(1 - 0.05 * 6 / np.pi**2)
    spent = sum(1 - level_after(look, 0.95) for look in range(1, 200_001))
    assert spent == pytest.approx(0.05, abs=1e-6)


def test_an_interval_is_widened_by_the_quantiles_of_its_level() -> None:
    alpha = 0.1 * 6 / (np.pi * 3) ** 2
    ratio = t.ppf(1 - alpha / 2, 9) / t.ppf(0.95, 9)
    ends = widened(5.0, 4.0, 7.0, 10, look=3, level=0.9)
    assert ends == pytest.approx((5 - ratio, 5 + 2 * ratio))
    assert np.isnan(widened(5.0, 4.0, 7.0, 1, look=3, level=0.9)).all()


def test_the_same_settings_are_one_look_and_other_seeds_are_no_other_configuration(tmp_path: Path) -> None:
    ledger = tmp_path / LEDGER
    assert noted(ledger, "one") == (1, 1)
    assert noted(ledger, "two") == (2, 2)
    assert noted(ledger, "two with another seed", settings="settings of two") == (3, 2)
    before = ledger.read_bytes()
    assert noted(ledger, "one") == (1, 1)
    assert noted(ledger, "two") == (2, 2)
    assert ledger.read_bytes() == before


def test_looks_at_other_days_do_not_count_and_those_at_some_of_them_do(tmp_path: Path) -> None:
    ledger = tmp_path / LEDGER
    assert noted(ledger, "one") == (1, 1)
    assert noted(ledger, "two", {"2024-02-01": "d"}) == (1, 1)
    assert noted(ledger, "two", {"2024-01-04": "c", "2024-01-05": "e"}) == (2, 2)
    assert noted(ledger, "one", {"2024-01-04": "c", "2024-01-05": "e"}) == (3, 2)
    assert noted(ledger, "three", {"2024-01-04": "other bars"}) == (1, 1)


def _many(ledger: Path, name: str) -> None:
    for number in range(15):
        noted(ledger, f"{name} {number}")


def test_processes_that_note_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_many, args=(tmp_path / LEDGER, name)) for name in ("one", "two")]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    configs = [one["config"] for one in read_ledger(tmp_path / LEDGER)]
    assert sorted(configs) == sorted(f"{name} {number}" for name in ("one", "two") for number in range(15))
    assert {noted(tmp_path / LEDGER, config)[0] for config in configs} == set(range(1, 31))


def test_a_ledger_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    ledger = tmp_path / LEDGER
    noted(ledger, "one")
    before = ledger.read_bytes()
    (tmp_path / f".{LEDGER}.lock").unlink()
    (tmp_path / f".{LEDGER}.lock").mkdir()  # which nobody may write to, not even root
    found = note(ledger, tmp_path / "run", DAYS, by="run", config="two", settings="two")
    assert (found["look"], found["is_noted"]) == (2, False)
    assert "could not be noted" in told_look(found)
    assert ledger.read_bytes() == before


@pytest.mark.parametrize("line", ["half a li", json.dumps({"at": "now"})])
def test_a_damaged_ledger_is_named(tmp_path: Path, line: str) -> None:
    ledger = tmp_path / LEDGER
    noted(ledger, "one")
    ledger.write_text(ledger.read_text() + line)
    with pytest.raises(FileError, match=LEDGER):
        noted(ledger, "two")


def test_days_are_known_by_their_prices_alone() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=3, days=6, tick_minutes=15))
    days = np.unique(sessions.dates)[:3]
    before = day_hashes(sessions, days)
    assert [*before] == [str(day) for day in days]
    close = sessions.fields["close"].copy()
    volume = sessions.fields["volume"] * 2
    close[sessions.dates == days[1]] *= 1.5
    close[sessions.dates > days[2]] *= 1.5
    changed = Sessions(
        sessions.calendar,
        sessions.instruments,
        sessions.dates,
        sessions.num_ticks,
        {**sessions.fields, "close": close, "open": close, "high": close, "low": close, "volume": volume},
    )
    after = day_hashes(changed, days[::-1])
    assert [day for day in before if before[day] != after[day]] == [str(days[1])]


def test_the_ledger_lies_beside_what_its_runs_are_in(tmp_path: Path) -> None:
    def of(place: str) -> Path:
        return ledger_of(RunDirectory(tmp_path / place)).relative_to(tmp_path.resolve())

    (tmp_path / "runs" / "walked" / "windows").mkdir(parents=True)
    (tmp_path / "runs" / "walked" / "status.json").write_text("{}")
    (tmp_path / "runs" / "sweep").mkdir()
    write_sealed(tmp_path / "runs" / "sweep" / "sweep.yaml", {})
    (tmp_path / "runs" / "search.yaml").write_text("train: {iterations: 3}\n")  # a configuration
    places = (
        "runs/one",
        "runs/walked",
        "runs/walked/windows/001",
        "runs/sweep/seed-1",
        "runs/sweep/walked/windows/002",
    )
    assert {of(place) for place in places[:4]} == {Path("runs") / LEDGER}
    (tmp_path / "runs" / "sweep" / "walked").mkdir()
    (tmp_path / "runs" / "sweep" / "walked" / "status.json").write_text("{}")
    assert of(places[4]) == Path("runs") / LEDGER


def test_a_backtest_is_a_look_and_a_resumed_one_is_the_same(judged_copy: RunDirectory) -> None:
    ledger = ledger_of(judged_copy)
    assert not ledger.exists()  # the copy has left it behind
    own = read_json(judged_copy.path / "look.json")
    assert looks(judged_copy) == 1
    backtest_policies(judged_copy, judged_copy.config)
    assert not ledger.exists()
    (judged_copy.path / "look.json").unlink()
    backtest_policies(judged_copy, judged_copy.config)
    assert read_json(judged_copy.path / "look.json") == own
    (line,) = read_ledger(ledger)
    assert (line["run"], line["by"], line["days"]) == ("run", "run", own["days"])
    assert (line["first"], len(line["days"])) == ("2023-02-10", 7)
    other = judged_copy.load_config(Layer("test", {"backtest.top": 1}))
    backtest_policies(judged_copy, other)
    assert looks(judged_copy) == len(read_ledger(ledger)) == 2
    notes = read_json(judged_copy.backtest / "headline.json")["notes"]
    assert "look 2 at these test days" in notes[-1]
    assert "by 2 configurations" in notes[-1]
    backtest_policies(judged_copy, judged_copy.config)
    assert looks(judged_copy) == 1
    assert verify_run(judged_copy).disagreements == []
    assert len(read_ledger(ledger)) == 2


def test_settings_that_tell_no_policy_from_another_are_no_other_look(judged: RunDirectory) -> None:
    own = settings_hashes(judged, judged.config)
    changes = {"backtest.confidence": 0.9, "threads": 2, "train.env": "dummy", "split.test": 0.1}
    for name, value in changes.items():
        assert settings_hashes(judged, judged.load_config(Layer("test", {name: value}))) == own, name
    seeded = settings_hashes(judged, judged.load_config(Layer("test", {"seed": 5})))
    assert (seeded[0] == own[0], seeded[1] == own[1]) == (False, True)
    assert settings_hashes(judged, evaluated(judged)) == own  # an evaluation on the test days of the run


def test_a_policy_judged_beside_a_run_is_a_look(judged_copy: RunDirectory) -> None:
    def even(observation: dict[str, np.ndarray]) -> np.ndarray:
        return np.full(len(next(iter(observation.values()))), 0)

    (judged_copy.path / "look.json").unlink()
    backtest_policies(judged_copy, judged_copy.config)
    table = judge(judged_copy, {"mine": even}).table
    assert "look 2 at these test days" in table.notes[-1]
    assert judge(judged_copy, {"again": even}).table.notes[-1] == table.notes[-1]
    assert [one["by"] for one in read_ledger(ledger_of(judged_copy))] == ["run", "judge"]


def test_the_looks_of_several_runs_are_told_in_one_line(tmp_path: Path) -> None:
    runs = [RunDirectory(tmp_path / name) for name in ("a", "b", "c")]
    for run, number in zip(runs[:2], (7, 3), strict=True):
        run.path.mkdir()
        write_json(
            run.path / LOOK, {"look": number, "configurations": 2, "config": "", "days": ["d"], "is_noted": True}
        )
    assert told_looks(runs[2:], level=0.95) == []  # of an earlier version
    assert "look 7 " in told_looks(runs[::2], level=0.95)[0]
    (told,) = told_looks(runs, level=0.95)
    assert "looks 3 to 7" in told
    assert f"{100 * (1 - 0.05 * 6 / (math.pi * 7) ** 2):.4g} %" in told


def test_the_cost_of_looks_is_told_in_words() -> None:
    look = {"look": 4, "configurations": 2, "is_noted": True}
    assert "look 4" in told_look(look)
    assert "2 configurations with several seeds" in told_look(look)
    low, high = widened(3.0, 1.0, 5.0, 30, look=4, level=0.95)
    said = told_cost(look, (3.0, 1.0, 5.0), 30, level=0.95, what="PA over TWAP")
    assert f"[{low:.2f}, {high:.2f}] bp" in said
    assert low < 0 < high
    assert "around 0" in said
    assert told_cost(look, (3.0, np.nan, np.nan), 3, level=0.95, what="PA") == ""
