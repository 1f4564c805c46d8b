"""One number for the fitness of bars: what the calendar expects, what is used, what cost the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.market import Calendar, Sessions, build_sessions, import_bars, load_sessions
from rlwb.market.fitness import Fitness
from rlwb.market.quality import check_bars
from tests.market.helpers import random_bars
from tests.test_cli import call

CN = Calendar.preset("cn", tick_minutes=30)  # 8 ticks
DAYS = ["2024-01-03", "2024-01-04", "2024-01-05", "2024-01-08"]
BARS = random_bars(CN, ["AAA", "BBB"], DAYS)


def fitness(sessions: Sessions) -> Fitness:
    found = sessions.report.fitness
    assert found is not None
    return found


def without_zeros(costs: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in costs.items() if count}


def spoilt() -> pd.DataFrame:
    """Return bars that lose some in every way, counted by hand in the test below."""
    bars = BARS.copy()
    day, name = bars["datetime"].dt.strftime("%Y-%m-%d"), bars["instrument"]
    tick = bars.groupby(["instrument", day]).cumcount()
    gone = (name == "AAA") & (day == DAYS[1])  # a session of 8
    gone |= (name == "BBB") & (day == DAYS[2]) & (tick > 2)  # 3 of 8 are left: too sparse
    gone |= (name == "AAA") & (day == DAYS[2]) & (tick == 4)  # a tick
    bars.loc[(name == "BBB") & (day == DAYS[0]) & (tick < 2), ["open", "high", "low", "close"]] = 0.0
    at = bars[(name == "AAA") & (day == DAYS[0])]
    extra = [
        at.iloc[[0]].assign(datetime=pd.Timestamp("2024-01-06 10:00")),  # a Saturday
        at.iloc[[0, 1]].assign(datetime=pd.to_datetime(["2024-01-03 12:00", "2024-01-03 16:00"])),  # outside
        at.iloc[[0]].assign(datetime=pd.Timestamp("2024-01-03 15:00")),  # at the edge
        at.iloc[[3]],  # twice the same
        at.iloc[[5]].assign(volume=-2.0),  # twice, and different: the last is kept
        at.iloc[[0]].assign(datetime=pd.Timestamp("2024-01-03 10:07")),  # between ticks
        at.iloc[[0]].assign(datetime=pd.NaT),
    ]
    return pd.concat([bars[~gone], *extra], ignore_index=True)


def check_spoilt(found: Fitness) -> None:
    """Of 2 instruments, 4 days and 8 ticks: 64."""
    assert found.expected == 64
    assert without_zeros(dict(found.lost)) == {
        "missing_session": 8,
        "sparse_session": 8,
        "missing_tick": 1,
        "no_price": 2,
    }
    assert found.used == 45
    assert without_zeros(dict(found.dropped)) == {
        "closed_day": 1,
        "off_session": 2,
        "auction": 1,
        "off_grid": 1,
        "duplicate_identical": 1,
        "duplicate_conflicting": 1,
        "datetime_missing": 1,
        "sparse_session": 3,
        "no_price": 2,
    }
    assert found.rows == 64 - 8 - 5 - 1 + 8 == 45 + 13


def test_the_parts_add_up_to_what_was_expected_and_to_what_was_read(tmp_path: Path) -> None:
    bars = spoilt()
    check_spoilt(fitness(build_sessions(bars, CN)))
    bars.to_parquet(tmp_path / "bars.parquet")
    check_spoilt(fitness(load_sessions(tmp_path / "bars.parquet", CN)))
    cached = load_sessions(tmp_path / "bars.parquet", CN, cache_dir=tmp_path / "cache")
    check_spoilt(fitness(cached))
    check_spoilt(fitness(load_sessions(tmp_path / "bars.parquet", CN, cache_dir=tmp_path / "cache")))
    found = check_bars(tmp_path / "bars.parquet", calendar=CN)
    assert found.found.fitness is not None
    check_spoilt(found.found.fitness)
    assert "fitness  70.31 % of 64 expected bars are used; lost: sparse_session 8 (12.50%)" in found.as_text()
    assert found.as_dict()["fitness"]["share"] == 45 / 64


def test_all_bars_of_sound_data_are_used() -> None:
    found = fitness(build_sessions(BARS, CN))
    assert (found.share, found.expected, found.rows) == (1.0, 64, 64)
    assert found.as_text().splitlines()[0] == "fitness  100.00 % of 64 expected bars are used"


@pytest.mark.parametrize("seed", range(6))
def test_the_sums_are_exact_whatever_is_lost(seed: int, tmp_path: Path) -> None:
    """Rows at random are dropped, moved, doubled and emptied; from files, with selections, and as a data set."""
    rng = np.random.default_rng(seed)
    bars = spoilt().sample(frac=0.8, random_state=seed)
    moved = rng.random(len(bars)) < 0.05
    bars.loc[moved, "datetime"] += pd.to_timedelta(rng.integers(-90, 90, moved.sum()), unit="min")
    bars.loc[rng.random(len(bars)) < 0.05, "close"] = np.nan
    bars = pd.concat([bars, bars.sample(5, random_state=seed)])
    bars.iloc[:30].to_parquet(tmp_path / "one.parquet")
    bars.iloc[20:].to_parquet(tmp_path / "two.parquet")
    import_bars([tmp_path / "one.parquet", tmp_path / "two.parquet"], tmp_path / "set", calendar=CN)
    for source in (tmp_path / "two.parquet", tmp_path / "set"):
        for choice in ({}, {"instruments": ["AAA"]}, {"start": "2024-01-04"}):
            sessions = load_sessions(source, CN, min_coverage=0.3, **choice)
            found = fitness(sessions)
            assert found.expected == found.used + sum(found.lost.values())
            assert found.rows == found.used + sum(found.dropped.values())
            assert min(found.lost.values()) >= 0
            assert found.used == np.isfinite(sessions.fields["close"]).sum()


def test_days_that_an_exchange_was_open_are_expected_and_its_holidays_are_not() -> None:
    """2024-01-15 was a holiday in New York; 2024-01-16 is missing for all."""
    clock = Calendar.exchange("XNYS", tick_minutes=30)
    bars = random_bars(clock, ["AAA"], ["2024-01-12", "2024-01-17"])
    found = fitness(build_sessions(bars, clock))
    assert (found.expected, found.used, found.lost["missing_session"]) == (39, 26, 13)
    found = fitness(build_sessions(bars, Calendar.preset("us", tick_minutes=30)))
    assert (found.expected, found.used) == (26, 26)


def test_a_short_day_expects_fewer_bars() -> None:
    clock = Calendar.preset("us", tick_minutes=30, early_closes={"2024-07-03": "13:00"})
    bars = random_bars(clock, ["AAA"], ["2024-07-02", "2024-07-03"])
    found = fitness(build_sessions(bars, clock))
    assert (found.expected, found.used, found.dropped["after_early_close"]) == (20, 20, 6)


def test_commands_tell_the_fitness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoilt().to_csv(tmp_path / "bars.csv", index=False)
    clock = ("--calendar", "cn", "--tick-minutes", "30")
    call(capsys, "data", "import", str(tmp_path / "bars.csv"), "--out", str(tmp_path / "set"), *clock)
    words = ("data", "check", str(tmp_path / "set"), "--json", str(tmp_path / "check.json"))
    _, out, _ = call(capsys, *words)
    assert "fitness  70.31 % of 64 expected bars" in out
    check_spoilt(Fitness.from_dict(json.loads((tmp_path / "check.json").read_text())["fitness"]))
