"""Two sources of the same bars beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, import_bars
from rlwb.market.difference import BarsDiff, Cause, FieldDiff, diff_bars
from tests.market.helpers import random_bars
from tests.test_cli import call

US = Calendar.preset("us", tick_minutes=5)
#: Six days, two before the clocks of New York go forward in 2024 and four after it.
DAYS = ["2024-03-07", "2024-03-08", "2024-03-11", "2024-03-12", "2024-03-13", "2024-03-14"]
PRICES = ["open", "high", "low", "close"]


def bars() -> pd.DataFrame:
    found = random_bars(US, ["AAA", "BBB", "CCC"], DAYS)
    found[PRICES] = found[PRICES].round(2)
    return found.assign(volume=(found["volume"] + 1) * 100)


A = bars()
DAY = A["datetime"].dt.strftime("%Y-%m-%d")


def compare(folder: Path, b: pd.DataFrame, a: pd.DataFrame = A, **how: Any) -> BarsDiff:
    a.to_parquet(folder / "a.parquet")
    b.to_parquet(folder / "b.parquet")
    return diff_bars(folder / "a.parquet", folder / "b.parquet", **how)


def field(found: BarsDiff, name: str) -> FieldDiff:
    return next(one for one in found.fields if one.name == name)


def cause(found: BarsDiff, kind: str) -> Cause:
    (one,) = [one for one in found.causes if one.kind == kind]
    return one


def test_the_same_bars_in_any_form_are_equal(tmp_path: Path) -> None:
    A.sample(frac=1.0, random_state=1).to_csv(tmp_path / "a.csv", index=False)
    import_bars([tmp_path / "a.csv"], tmp_path / "set", calendar=US)
    found = diff_bars(tmp_path / "a.csv", tmp_path / "set")
    assert (found.equal, found.shared, found.only, found.causes) == (True, len(A), (0, 0), ())
    assert [(one.name, one.equal) for one in found.fields] == [(name, len(A)) for name in (*PRICES, "volume")]
    assert found.as_text().splitlines()[-1] == "equal"
    noise = {name: A[name].astype(np.float32).astype(float) for name in PRICES}
    single = compare(tmp_path, A.assign(**noise))
    assert (single.equal, field(single, "close").different) == (True, 0)
    assert field(single, "close").rounding > 0


def test_what_only_one_has_is_counted_and_named(tmp_path: Path) -> None:
    gone = (A["instrument"] == "CCC") | (DAYS[1] == DAY)
    gone |= (A["instrument"] == "BBB") & (DAYS[3] == DAY) & (A["datetime"].dt.hour == 11)
    more = A[(A["instrument"] == "AAA") & (DAYS[0] == DAY)].assign(instrument="DDD")
    found = compare(tmp_path, pd.concat([A[~gone], more]).assign(vwap=1.0))
    assert found.instruments == (("CCC",), ("DDD",))
    assert found.dates == ((DAYS[1],), ())
    assert found.columns == ((), ("vwap",))
    assert (found.shared, found.only) == (len(A) - int(gone.sum()), (int(gone.sum()), 78))
    assert found.first[0][0] == f"BBB {DAYS[3]} 11:00:00"
    assert len(found.first[0]) == 5
    assert found.first[1] == ()
    assert not found.equal
    assert "instruments only in B: DDD" in found.as_text()


def test_values_are_equal_within_rounding_or_different_and_the_largest_are_named(tmp_path: Path) -> None:
    b = A.copy()
    b.loc[3, "close"] += 0.01
    b.loc[100, "close"] *= 2
    b.loc[200, "close"] = np.nan
    b["high"] += 0.0004  # rounds to the same cent
    found = compare(tmp_path, b)
    close, high = field(found, "close"), field(found, "high")
    assert (close.equal, close.rounding, close.different, close.only_a, close.only_b) == (len(A) - 3, 0, 2, 1, 0)
    assert close.largest[0].a == A.loc[100, "close"]
    assert close.largest[0].b == 2 * A.loc[100, "close"]
    named = f"{close.largest[1].instrument} {close.largest[1].date} {close.largest[1].time}"
    assert named == f"AAA {A.loc[3, 'datetime']:%Y-%m-%d %H:%M:%S}"
    assert (high.equal, high.rounding, high.different) == (0, len(A), 0)


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(5, "label of A to start and that of B to end"), (-5, "label of A to end and that of B to start")],
)
def test_a_shift_by_one_bar_is_the_label(minutes: int, words: str, tmp_path: Path) -> None:
    found = compare(tmp_path, A.assign(datetime=A["datetime"] + pd.Timedelta(minutes=minutes)))
    assert (found.shared, found.only) == (len(A), (0, 0))
    assert words in cause(found, "stamps").advice
    assert all(one.equal == len(A) for one in found.fields)


@pytest.mark.parametrize("late", [0, 5])
def test_stamps_of_another_zone_are_found_on_both_sides_of_a_clock_change(late: int, tmp_path: Path) -> None:
    stamps = A["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("UTC").dt.tz_localize(None)
    found = compare(tmp_path, A.assign(datetime=stamps + pd.Timedelta(minutes=late)))
    assert found.shared == len(A)
    winter, summer = sorted(found.causes, key=lambda one: one.bars)
    assert (winter.bars, summer.bars) == (3 * 78 * 2, 3 * 78 * 4)
    assert f"{300 + late} min later" in winter.text
    assert "2024-03-07 to 2024-03-08 (2 dates)" in winter.text
    assert f"{240 + late} min later" in summer.text
    assert "source_timezone" in winter.advice
    assert ("the other its end" in winter.advice) == bool(late)


def test_stamps_with_an_offset_are_brought_to_the_zone_of_a_data_set(tmp_path: Path) -> None:
    A.to_csv(tmp_path / "a.csv", index=False)
    import_bars([tmp_path / "a.csv"], tmp_path / "set", calendar=US)
    aware = A.assign(datetime=A["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("Asia/Tokyo"))
    aware.to_parquet(tmp_path / "b.parquet")
    assert diff_bars(tmp_path / "set", tmp_path / "b.parquet").equal
    assert diff_bars(tmp_path / "a.csv", tmp_path / "b.parquet", timezone="America/New_York").equal
    assert not diff_bars(tmp_path / "a.csv", tmp_path / "b.parquet").equal


def test_one_instrument_or_one_day_an_hour_late(tmp_path: Path) -> None:
    moved = (A["instrument"] == "BBB") | (DAYS[4] == DAY)
    hour = pd.to_timedelta(np.where(moved, 60, 0), unit="min")
    found = compare(tmp_path, A.assign(datetime=A["datetime"] + hour))
    one = cause(found, "stamps")
    assert (one.bars, found.shared) == (int(moved.sum()), len(A))
    assert "60 min later" in one.text


def test_the_quotes_alone_tell_a_shift(tmp_path: Path) -> None:
    book = A[["instrument", "datetime"]].assign(bid=A["close"] - 0.01, ask=A["close"] + 0.01)
    found = compare(tmp_path, book.assign(datetime=book["datetime"] - pd.Timedelta(hours=1)), book)
    assert (found.shared, cause(found, "stamps").bars) == (len(A), len(A))
    assert {one.name: one.equal for one in found.fields} == {"bid": len(A), "ask": len(A)}


def test_stamps_of_other_bars_are_not_shifted(tmp_path: Path) -> None:
    other = random_bars(US, ["AAA", "BBB", "CCC"], DAYS, seed=5)
    found = compare(tmp_path, other)
    assert not [one for one in found.causes if one.kind == "stamps"]
    assert found.shared == len(A)


@pytest.mark.parametrize(
    ("scale", "said"), [(0.01, "volume_multiplier: 100 for B"), (1000.0, "volume_multiplier: 1000 for A")]
)
def test_volume_in_other_units(scale: float, said: str, tmp_path: Path) -> None:
    found = compare(tmp_path, A.assign(volume=A["volume"] * scale))
    volume, one = field(found, "volume"), cause(found, "volume_unit")
    assert said in one.advice
    assert (one.bars, volume.different, volume.explained) == (len(A), len(A), len(A))


def test_volume_in_lots_for_one_instrument_with_rounding(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shares = A.assign(volume=rng.integers(5_000, 90_000, len(A)).astype(float))
    lots = shares["volume"].where(shares["instrument"] != "BBB", (shares["volume"] / 100).round())
    found = compare(tmp_path, shares.assign(volume=lots), shares)
    one = cause(found, "volume_unit")
    assert one.bars == 78 * 6
    assert "for BBB, 2024-03-07 to 2024-03-14" in one.text
    assert "volume_multiplier: 100 for B" in one.advice
    assert field(found, "volume").explained == 78 * 6


def test_a_single_venue_beside_all_trades(tmp_path: Path) -> None:
    part = np.random.default_rng(0).uniform(0.01, 0.06, len(A))
    found = compare(tmp_path, A.assign(volume=(A["volume"] * part).round()))
    assert "single venue" in cause(found, "volume_venue").advice
    assert not [one for one in found.causes if one.kind == "volume_unit"]


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_volume_that_one_side_lacks(nothing: float, tmp_path: Path) -> None:
    b = A.copy()
    b.loc[[5, 50, 300], "volume"] = nothing
    one = cause(compare(tmp_path, b), "volume_missing")
    assert one.bars == 3
    assert f"AAA {A.loc[5, 'datetime']:%Y-%m-%d %H:%M:%S}" in one.text


def test_prices_adjusted_by_a_factor_and_the_date_at_which_it_changes(tmp_path: Path) -> None:
    """BBB split 4:1 on the fourth day and A is adjusted for it; CCC differs throughout by a dividend."""
    a = A.copy()
    split = (a["instrument"] == "BBB") & (DAYS[3] > DAY)
    a.loc[split, PRICES] /= 4
    a.loc[split, "volume"] *= 4
    a.loc[a["instrument"] == "CCC", PRICES] *= 0.98
    found = compare(tmp_path, A, a)
    one = cause(found, "price_factor")
    assert "BBB 2024-03-07 to 2024-03-11: 0.25," in one.text
    assert "CCC 2024-03-07 to 2024-03-14: 0.98" in one.text
    assert "AAA" not in one.text
    assert one.bars == 78 * (3 + 6)
    for name in PRICES:
        assert field(found, name).explained == field(found, name).different == 78 * 9
    assert field(found, "volume").explained == field(found, "volume").different == 78 * 3


def test_ids_written_in_two_ways(tmp_path: Path) -> None:
    ids = {"AAA": "600519.SH", "BBB": "000001.SZ", "CCC": "BRK.B"}
    other = {"600519.SH": "sh600519", "000001.SZ": "000001", "BRK.B": "brk"}
    a = A.assign(instrument=A["instrument"].map(ids))
    found = compare(tmp_path, a.assign(instrument=a["instrument"].map(other)), a)
    assert (found.shared, found.instruments) == (len(A), ((), ()))
    assert "600519.SH and sh600519" in cause(found, "ids").text
    assert all(one.equal == len(A) for one in found.fields)


def test_ids_that_may_be_two_instruments_stay_apart(tmp_path: Path) -> None:
    a = A.assign(instrument=A["instrument"].map({"AAA": "000001.SZ", "BBB": "000001.SH", "CCC": "C"}))
    found = compare(tmp_path, a.assign(instrument=a["instrument"].replace({"000001.SZ": "000001"})), a)
    assert found.instruments == (("000001.SZ",), ("000001",))


@pytest.mark.parametrize(("one", "other"), [("BRK.A", "BRK.B"), ("ESH2024", "ESM2024"), ("A240119C5", "A240216C5")])
def test_classes_of_shares_and_months_of_futures_are_two_instruments(one: str, other: str, tmp_path: Path) -> None:
    a, b = (A.assign(instrument=A["instrument"].replace({"CCC": name})) for name in (one, other))
    found = compare(tmp_path, b, a)
    assert found.instruments == ((one,), (other,))
    assert not found.causes


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("price", "differs"), [(0.0, "different"), (np.inf, "only_a")])
def test_prices_that_are_none_differ_without_a_warning(price: float, differs: str, tmp_path: Path) -> None:
    found = compare(tmp_path, A.assign(close=price))
    assert (getattr(field(found, "close"), differs), field(found, "open").equal) == (len(A), len(A))


def test_bars_of_two_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="bars of 5 min and 10 min"):
        compare(tmp_path, A.iloc[::2])


def test_the_command_answers_as_diff_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    A.to_csv(tmp_path / "a.csv", index=False)
    b = A.rename(columns={"close": "last"}).assign(datetime=A["datetime"].dt.strftime("%Y%m%d%H%M").astype(int))
    b.to_parquet(tmp_path / "b.parquet")
    paths = (str(tmp_path / "a.csv"), str(tmp_path / "b.parquet"))
    words = ("data", "diff", *paths, "--b", "datetime_format=%Y%m%d%H%M", "--b", "columns.last=close")
    code, out, _ = call(capsys, *words)
    assert (code, out.splitlines()[-1]) == (0, "equal")
    b.assign(last=b["last"] + (b.index == 7)).to_parquet(tmp_path / "b.parquet")
    code, out, _ = call(capsys, *words, "--json", str(tmp_path / "diff.json"))
    assert (code, out.splitlines()[-1]) == (1, "different")
    close = next(one for one in json.loads((tmp_path / "diff.json").read_text())["fields"] if one["name"] == "close")
    assert (close["different"], close["largest"][0]["date"]) == (1, DAYS[0])
    code, out, _ = call(capsys, *words, "--instrument", "BBB", "--from", DAYS[1])
    assert code == 0
    A.assign(instrument="ZZZ").to_csv(tmp_path / "z.csv", index=False)
    code, out, _ = call(capsys, "data", "diff", paths[0], str(tmp_path / "z.csv"))
    assert (code, "0 bars in both" in out) == (2, True)
    code, _, err = call(capsys, "data", "diff", paths[0], str(tmp_path / "none"))
    assert (code, err.count("\n")) == (2, 1)


def test_a_real_set_beside_the_qlib_directory_made_of_it() -> None:
    """The directory's stamps were moved from the end of each minute to its start, and its ids rewritten."""
    data = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
    if not data.is_dir():
        pytest.skip(f"real market data are not at {data}")
    found = diff_bars(data / "cn_equity_1min_2024" / "bars.parquet", data / "qlib" / "cn_1min")
    assert (found.shared, found.only[1]) == (34_560, 0)
    assert [one.kind for one in found.causes] == ["ids", "stamps"]
    assert "1 min earlier" in cause(found, "stamps").text
    assert all((one.equal, one.different) == (34_560, 0) for one in found.fields)
