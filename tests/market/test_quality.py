"""Bars whose faults are known one by one: checked, and mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import (
    Calendar,
    SyntheticSettings,
    import_bars,
    load_sessions,
    synthetic_bars,
    synthetic_sessions,
)
from rlwb.market.quality import KINDS, Quality, check_bars, repair_bars, spoil_bars
from tests.market.helpers import day_bars, random_bars

CLOCK = Calendar(segments=(("10:00", "12:00"),), infer_early_close_minutes=0)
DAYS = ["2024-01-03", "2024-01-04", "2024-01-05"]
PRICES = ["open", "high", "low", "close"]
MARKET = SyntheticSettings(instruments=3, days=8)


def calm(*names: str, days: list[str] | None = None) -> pd.DataFrame:
    """Return bars that go up and down by a cent, so that nothing is stale, jumps, or has no volume."""
    close = 10 + 0.01 * (np.arange(120) % 2)
    bars = pd.concat([day_bars(CLOCK, day, name, close=close) for name in names for day in days or DAYS])
    return bars.reset_index(drop=True)


def row_of(bars: pd.DataFrame, name: str, stamp: str) -> int:
    return int(bars.index[(bars["instrument"] == name) & (bars["datetime"] == stamp)][0])


def check(tmp_path: Path, bars: pd.DataFrame, **options: Any) -> Quality:
    bars.to_csv(tmp_path / "bars.csv", index=False)
    return check_bars(tmp_path / "bars.csv", calendar=CLOCK, **options)


def place(quality: Quality, kind: str, number: int = 0) -> tuple[str | None, str | None, str | None, int | None]:
    one = quality.found.listed[kind][number]
    return one.instrument, one.stamp, one.file, one.row


def test_calm_bars_are_sound(tmp_path: Path) -> None:
    quality = check(tmp_path, calm("A", "B"))
    assert quality.sound
    assert quality.found.counts == {}
    assert (quality.bars, quality.rows, quality.instruments, len(quality.days)) == (720, 720, ("A", "B"), 3)
    assert (quality.coverage == 1).all()
    assert (quality.zeros == 0).all()
    assert quality.as_text().endswith("\nsound")


def test_it_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    calm("A", "B").to_csv(tmp_path / "bars.csv", index=False)
    check_bars(tmp_path / "bars.csv", calendar=CLOCK, progress=lambda *words: told.append(words))
    assert told == [("bars.csv", 720, None), ("check", 720, 720)]


def test_what_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        check_bars(tmp_path / "none")
    calm("A")[:0].to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(ConfigError, match=r"bars.csv is no data set, so it needs a calendar"):
        check_bars(tmp_path / "bars.csv")
    with pytest.raises(DataError, match=r"bars.csv holds no bars"):
        check_bars(tmp_path / "bars.csv", calendar=CLOCK)


def test_every_bad_row_is_named_with_file_instrument_stamp_and_row(tmp_path: Path) -> None:
    bars = calm("A", "B")
    at = {
        "price_zero": row_of(bars, "A", "2024-01-03 10:05"),
        "price_negative": row_of(bars, "A", "2024-01-03 10:15"),
        "price_not_finite": row_of(bars, "A", "2024-01-04 10:06"),
        "high_low": row_of(bars, "B", "2024-01-03 10:07"),
        "volume_negative": row_of(bars, "B", "2024-01-04 10:08"),
    }
    no_volume = row_of(bars, "B", "2024-01-05 10:08")
    bars.loc[at["price_zero"], PRICES] = 0.0
    bars.loc[at["price_negative"], "low"] = -1.0
    bars.loc[at["price_not_finite"], PRICES] = np.nan
    bars.loc[at["high_low"], "high"] = 9.0
    bars.loc[at["volume_negative"], "volume"] = -5.0
    bars.loc[no_volume, "volume"] = np.nan
    bars.loc[len(bars)] = bars.loc[0].to_dict() | {"datetime": pd.Timestamp("2024-01-06 10:00")}  # a Saturday
    bars.loc[len(bars)] = bars.loc[0].to_dict() | {"datetime": pd.Timestamp("2024-01-03 09:00")}
    bars.loc[len(bars)] = bars.loc[0].to_dict() | {"datetime": pd.Timestamp("2024-01-03 12:00")}
    bars.loc[len(bars)] = bars.loc[0].to_dict() | {"datetime": pd.Timestamp("2024-01-03 10:00:30")}
    quality = check(tmp_path, bars)
    assert not quality.sound
    added = {"closed_day": 720, "off_session": 721, "auction": 722, "off_grid": 723}
    for kind, row in {**at, **added}.items():
        stamp = f"{bars['datetime'][row]}"
        assert quality.found.counts[kind] == 1, kind
        assert place(quality, kind) == (bars["instrument"][row], stamp, "bars.csv", row + 1), kind
    assert quality.found.counts["volume_missing"] == 2, "the negative one is made missing"
    assert place(quality, "volume_missing", 1) == ("B", "2024-01-05 10:08:00", "bars.csv", no_volume + 1)
    assert quality.found.counts["missing_tick"] == 2, "the zero and the missing close"
    assert quality.found.listed["price_zero"][0].what == "open, high, low, close"
    assert quality.found.listed["high_low"][0].what == "open 10.01, high 9, low 10.01, close 10.01"


def test_it_counts_what_a_run_counts(tmp_path: Path) -> None:
    bars = random_bars(CLOCK, ["A", "B", "C"], DAYS, keep=0.8)
    rng = np.random.default_rng(5)
    for value, name in (
        (0.0, "close"),
        (-1.0, "open"),
        (np.nan, "close"),
        (np.inf, "high"),
        (-3.0, "volume"),
        (99, "low"),
    ):
        bars.loc[rng.choice(len(bars), 6, replace=False), name] = value
    bars = bars[~((bars["instrument"] == "B") & (bars["datetime"] > "2024-01-05 10:20"))]
    bars.to_csv(tmp_path / "bars.csv", index=False)
    counted = check_bars(tmp_path / "bars.csv", calendar=CLOCK).found.counts
    of_run = load_sessions(tmp_path / "bars.csv", CLOCK).report.counts
    shared = (set(counted) | set(of_run)) & set(KINDS)
    assert {kind: counted.get(kind) for kind in shared} == {kind: of_run.get(kind) for kind in shared}
    assert {"price_zero", "high_low", "sparse_session", "missing_tick"} <= shared


def test_missing_minutes_and_sessions(tmp_path: Path) -> None:
    bars = calm("A", "B", "C")
    gone = (bars["instrument"] == "B") & bars["datetime"].between("2024-01-03 10:30", "2024-01-03 10:33")
    gone |= (bars["instrument"] == "C") & (bars["datetime"].dt.date.astype(str) == "2024-01-04")
    quality = check(tmp_path, bars[~gone])
    assert quality.sound
    assert quality.found.counts == {"missing_tick": 4, "missing_session": 1}
    missing = quality.found.listed["missing_tick"][0]
    assert (missing.instrument, missing.stamp, missing.value, missing.row) == ("B", "2024-01-03 10:30", 4.0, None)
    absent = quality.found.listed["missing_session"][0]
    assert (absent.instrument, absent.date) == ("C", "2024-01-04")
    assert quality.coverage.tolist() == [[1, 1, 1], [116 / 120, 1, 1], [1, 0, 1]]


def test_an_early_close_is_not_missing_minutes(tmp_path: Path) -> None:
    """I05: early closes are listed; 5 January is a holiday, and so is 11 January, the day after the last."""
    clock = Calendar(segments=CLOCK.segments, closed=("2024-01-11",))
    bars = calm("A", "B", "C", days=["2024-01-03", "2024-01-04", "2024-01-08", "2024-01-09", "2024-01-10"])
    late = bars["datetime"].between("2024-01-04 11:10", "2024-01-04 12:00")
    late |= bars["datetime"].between("2024-01-10 11:20", "2024-01-10 12:00")
    early = bars[~late]
    early.to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=clock)
    assert quality.found.counts == {"early_close_inferred": 2}
    listed = quality.found.listed["early_close_inferred"]
    assert [one.place() for one in listed] == ["2024-01-04: at 11:10", "2024-01-10: at 11:20"]
    assert (quality.coverage == 1).all()


def test_zero_volume_and_stale_prices(tmp_path: Path) -> None:
    bars = calm("A", "B")
    bars.loc[row_of(bars, "A", "2024-01-03 10:10") + np.arange(5), "volume"] = 0.0
    stands = row_of(bars, "B", "2024-01-04 10:20") + np.arange(60)
    bars.loc[stands, PRICES] = 10.01
    short = row_of(bars, "B", "2024-01-05 10:20") + np.arange(57)  # with its neighbours 59 bars
    bars.loc[short, PRICES] = 10.01
    quality = check(tmp_path, bars)
    assert quality.found.counts == {"zero_volume": 5, "stale": 1}
    zero, stale = quality.found.listed["zero_volume"][0], quality.found.listed["stale"][0]
    assert (zero.stamp, zero.value) == ("2024-01-03 10:10:00", 5.0)
    assert (stale.instrument, stale.stamp, stale.value) == ("B", "2024-01-04 10:19:00", 61.0)
    assert quality.zeros[0].tolist() == [5 / 120, 0, 0]


def test_outliers_come_back_and_jumps_stay(tmp_path: Path) -> None:
    bars = calm("A", "B", "C")
    spike = row_of(bars, "A", "2024-01-03 11:00")
    bars.loc[spike, PRICES] = 10.5
    wick = row_of(bars, "B", "2024-01-04 11:00")
    bars.loc[wick, "low"] = 9.0
    jump = row_of(bars, "C", "2024-01-04 10:40")
    bars.loc[jump : row_of(bars, "C", "2024-01-05 11:59"), PRICES] += 1.5
    quality = check(tmp_path, bars)
    assert quality.found.counts == {"outlier": 2, "jump": 1}
    assert place(quality, "outlier") == ("A", "2024-01-03 11:00:00", "bars.csv", spike + 1)
    assert place(quality, "outlier", 1) == ("B", "2024-01-04 11:00:00", "bars.csv", wick + 1)
    assert place(quality, "jump") == ("C", "2024-01-04 10:40:00", "bars.csv", jump + 1)
    assert quality.found.listed["outlier"][0].value == pytest.approx(10.5 / 10.01 - 1)
    assert quality.found.listed["outlier"][1].what == "low 9, the close and the bars beside 10 (-10.0%)"
    shown = quality.windows["jump"][0]
    assert shown.close[shown.at] - shown.close[shown.at - 1] == pytest.approx(1.49)
    assert len(shown.close) == 81


def test_splits_are_told_from_other_jumps_overnight(tmp_path: Path) -> None:
    bars = calm("A", "B")
    later = bars["datetime"] >= "2024-01-05"
    bars.loc[later, PRICES] /= 2
    bars.loc[later & (bars["instrument"] == "A"), "volume"] *= 2
    quality = check(tmp_path, bars)
    assert quality.found.counts == {"split_suspected": 1, "price_jump": 1}
    first = row_of(bars, "A", "2024-01-05 10:00")
    assert place(quality, "split_suspected") == ("A", "2024-01-05 10:00:00", "bars.csv", first + 1)
    assert quality.found.listed["split_suspected"][0].value == 2.0
    assert place(quality, "price_jump")[:2] == ("B", "2024-01-05 10:00:00")
    assert quality.found.listed["price_jump"][0].value == pytest.approx(5 / 10.01 - 1)


def test_twenty_suspected_splits_are_named_and_the_others_counted(tmp_path: Path) -> None:
    names = [f"S{number:02d}" for number in range(22)]
    bars = calm(*names)
    later = bars["datetime"] >= "2024-01-05"
    bars.loc[later, PRICES] /= 2
    bars.loc[later, "volume"] *= 2
    text = check(tmp_path, bars).as_text()
    named = [line for line in text.splitlines() if ": like 2:1, " in line]
    assert [line.split()[0] for line in named] == names[:20]
    assert named[0].startswith("      S00 2024-01-05 10:00:00 (bars.csv row ")
    assert "\n      and 2 more (--json lists up to --limit)\n" in text


def test_a_break_in_the_scale_of_volume(tmp_path: Path) -> None:
    bars = calm("A", "B", "C")
    bars.loc[bars["datetime"] >= "2024-01-05", "volume"] *= 30
    quality = check(tmp_path, bars)
    assert quality.found.counts == {"volume_break": 1}
    one = quality.found.listed["volume_break"][0]
    assert (one.instrument, one.date, one.value) == (None, "2024-01-05", pytest.approx(30))


def test_conflicts_duplicates_and_what_an_import_dropped(tmp_path: Path) -> None:
    bars = calm("A", days=DAYS[:1])
    bars.to_csv(tmp_path / "1.csv", index=False)
    other = bars.iloc[10:20].copy()
    other.loc[12, "close"] = 10.02
    pd.concat([other, other.iloc[:1]]).to_csv(tmp_path / "2.csv", index=False)
    import_bars([tmp_path / "1.csv", tmp_path / "2.csv"], tmp_path / "set", calendar=CLOCK)
    quality = check_bars(tmp_path / "set")
    assert quality.found.counts == {
        "overlap_conflicting": 1,
        "overlap_identical": 9,
        "duplicate_identical": 1,
        "unsorted": 1,
    }
    assert place(quality, "overlap_conflicting") == ("A", "2024-01-03 10:12:00", "2.csv", 3)
    assert quality.found.listed["overlap_conflicting"][0].what == "close 10 kept, 10.02 not (kept: 1.csv row 13)"
    with pytest.raises(ConfigError, match="is a data set, where columns has no effect"):
        check_bars(tmp_path / "set", columns={"a": "open"})


def test_damage_is_a_finding_and_the_rest_is_checked(tmp_path: Path) -> None:
    for name in "AB":
        calm(name).to_csv(tmp_path / f"{name}.csv", index=False)
        import_bars([tmp_path / f"{name}.csv"], tmp_path / "set", calendar=CLOCK)
    (tmp_path / "set/bars/000001.parquet").write_bytes(b"PAR1")
    quality = check_bars(tmp_path / "set")
    assert quality.found.counts == {"damaged": 1}
    assert quality.instruments == ("B",)
    assert "bars/000001.parquet is damaged" in quality.as_text()


def test_bars_that_a_run_would_refuse_are_a_finding(tmp_path: Path) -> None:
    bars = calm("A", "B")
    bars[bars["datetime"].dt.minute % 5 == 0].to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=CLOCK)
    assert quality.found.counts == {"refused": 1}
    assert "set tick_minutes=5" in quality.found.listed["refused"][0].what
    assert check_bars(tmp_path / "bars.csv", calendar=Calendar(CLOCK.segments, tick_minutes=5)).sound


def test_the_list_is_cut_and_the_count_is_not(tmp_path: Path) -> None:
    bars = calm("A", "B")
    bars.loc[bars.index % 10 == 0, "high"] = 9.0
    quality = check(tmp_path, bars, limit=7)
    assert quality.found.counts["high_low"] == 72
    assert len(quality.found.listed["high_low"]) == 7
    found = quality.as_dict()
    told = found["findings"]["high_low"]
    assert told["count"] == 72
    assert len(told["listed"]) == 7
    assert KINDS["high_low"]._asdict().items() <= told.items()
    json.dumps(found, default=str)
    assert not quality.sound
    with pytest.raises(ConfigError, match="limit is 0"):
        check(tmp_path, bars, limit=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_was_spoilt_is_found_and_mended(tmp_path: Path, seed: int) -> None:
    clean = synthetic_bars(MARKET)
    spoilt, truth = spoil_bars(clean, seed=seed)
    assert set(truth["kind"]) <= set(KINDS)
    spoilt.to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=MARKET.calendar)
    for fault in truth.itertuples():
        listed = quality.found.listed[fault.kind]
        assert any(one.instrument in (None, fault.instrument) and one.date in (None, fault.date) for one in listed), (
            fault
        )
    repaired, report = repair_bars(spoilt, quality)
    assert report.counts["finding_dropped"] == 6
    split = truth[truth["kind"] == "split_suspected"].iloc[0]
    before = (repaired["instrument"] == split["instrument"]) & (repaired["datetime"] < split["date"])
    assert (repaired["factor"] == np.where(before, 0.25, 1.0)).all()
    repaired.to_parquet(tmp_path / "repaired.parquet", index=False)
    again = check_bars(tmp_path / "repaired.parquet", calendar=MARKET.calendar).found.counts
    assert not {"outlier", "high_low", "split_suspected", "price_jump"} & set(again)
    found, wanted = load_sessions(tmp_path / "repaired.parquet", MARKET.calendar), synthetic_sessions(MARKET)
    assert found.factor is not None
    ratio = found.fields["close"] * found.factor[:, None] / wanted.fields["close"]
    there = np.isfinite(ratio)
    assert (~there).sum() == 3 + 6 + 5
    of_split = (found.instruments == split["instrument"])[:, None] & there
    differs = np.abs(ratio / np.where(of_split, 0.25, 1.0) - 1) > 1e-9
    assert differs[there].sum() <= 17, "the stale stretch alone, but for its first bar"


def test_nothing_is_changed_in_place_and_each_seed_is_its_own(tmp_path: Path) -> None:
    clean = synthetic_bars(MARKET)
    kept = clean.copy()
    first, again, other = (spoil_bars(clean, seed=seed)[0] for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(clean, kept)
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)
    with pytest.raises(DataError, match="has bars of 2 days; give bars of at least 6"):
        spoil_bars(clean[clean["datetime"] < "2023-01-05"])


def test_a_list_that_was_cut_is_no_ground_for_a_repair(tmp_path: Path) -> None:
    spoilt, _ = spoil_bars(synthetic_bars(MARKET))
    spoilt.to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=MARKET.calendar, limit=2)
    with pytest.raises(DataError, match="3 findings of outlier were counted and 2 are listed"):
        repair_bars(spoilt, quality)
    with pytest.raises(ConfigError, match="there is no kind of finding 'outlyer'"):
        repair_bars(spoilt, quality, drop=("outlyer",))
    kept, report = repair_bars(spoilt, quality, drop=(), splits=False)
    assert (len(kept), report.counts) == (len(spoilt), {})
