"""Forms of tables and stamps that vendors write: wide tables, numbers for stamps, stamps beside the grid, no bars."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.execution import TWAP, Direction, ExecutionRules, Order
from rlwb.market import Calendar, Report, import_bars, load_sessions, read_bars
from rlwb.market.quality import check_bars
from tests.execution.markets import run
from tests.market.helpers import random_bars
from tests.test_cli import call

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
US = Calendar.preset("us", tick_minutes=30)
BARS = random_bars(US, ["AAA", "BBB"], ["2024-01-03", "2024-01-04"])
FIELDS = ["open", "high", "low", "close", "volume"]
WRITERS = {".csv": "to_csv", ".csv.gz": "to_csv", ".parquet": "to_parquet", ".feather": "to_feather"}


def write(frame: pd.DataFrame, path: Path) -> Path:
    """Write a table without its index in the format that the name says."""
    ending = next(ending for ending in WRITERS if path.name.endswith(ending))
    getattr(frame, WRITERS[ending])(path, **({"index": False} if ending != ".feather" else {}))
    return path


def wide(fields: dict[str, str], instruments: dict[str, str], *, first: str = "field") -> pd.DataFrame:
    """Return the bars with columns of two levels, those of `first` above."""
    names = BARS.assign(instrument=BARS["instrument"].map(instruments)).rename(columns=fields)
    table = names.pivot(index="datetime", columns="instrument", values=list(fields.values()))
    table = table.rename_axis(columns=["Price", "Ticker"], index="Datetime")
    return table if first == "field" else table.swaplevel(axis=1).sort_index(axis=1)


def made_long(message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Run the lines of pandas that a refusal gives, and return the bars of what they write."""
    monkeypatch.chdir(folder)
    code = message.partition("with pandas: ")[2]
    exec(code.removesuffix("."), {"pd": pd})
    return read_bars(folder / "long.csv")


def check_same_bars(found: pd.DataFrame, instruments: dict[str, str]) -> None:
    wanted = BARS.assign(instrument=BARS["instrument"].map(instruments)).sort_values(["instrument", "datetime"])
    assert found["instrument"].tolist() == wanted["instrument"].tolist()
    assert found["datetime"].tolist() == wanted["datetime"].tolist()
    np.testing.assert_allclose(found[FIELDS], wanted[FIELDS], rtol=1e-12)


CAPITALS = {name: name.capitalize() for name in FIELDS}
SAME = {"AAA": "AAA", "BBB": "BBB"}


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("first", ["field", "ticker"])
@pytest.mark.parametrize("instruments", [SAME, {"AAA": "600519", "BBB": "BRK.B"}])
def test_i10_a_table_with_two_header_rows_says_so_and_how_to_make_it_long(
    ending: str, first: str, instruments: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, path = wide(CAPITALS, instruments, first=first), tmp_path / f"bars{ending}"
    getattr(table, WRITERS[ending])(path)
    with pytest.raises(DataError, match="is a wide table") as refused:
        import_bars([path], tmp_path / "set", calendar=US)
    assert str(path) in str(refused.value)
    check_same_bars(made_long(str(refused.value), tmp_path, monkeypatch), instruments)


@pytest.mark.parametrize("ticker", ["AAA", "600519"])
def test_i10_one_ticker_under_two_header_rows(ticker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As yfinance writes one name: a third row names the index."""
    wide(CAPITALS, {"AAA": ticker, "BBB": "other"}).xs(ticker, level="Ticker", axis=1, drop_level=False).to_csv(
        tmp_path / "one.csv"
    )
    with pytest.raises(DataError, match=f"as Open of {ticker}") as refused:
        read_bars(tmp_path / "one.csv")
    found = made_long(str(refused.value), tmp_path, monkeypatch)
    np.testing.assert_allclose(found["close"], BARS.loc[BARS["instrument"] == "AAA", "close"])


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
@pytest.mark.parametrize("form", ["{ticker}_{field}", "{field}_{ticker}", "{ticker} {field}", "{field}.{ticker}"])
@pytest.mark.parametrize("instruments", [SAME, {"AAA": "000001", "BBB": "BRK-B"}])
def test_i10_one_header_row_of_fields_and_tickers(
    ending: str, form: str, instruments: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = wide(CAPITALS, instruments)
    table.columns = pd.Index([form.format(field=field, ticker=ticker) for field, ticker in table.columns])
    path = write(table.reset_index(), tmp_path / f"bars{ending}")
    with pytest.raises(DataError, match="is a wide table") as refused:
        read_bars(path)
    check_same_bars(made_long(str(refused.value), tmp_path, monkeypatch), instruments)


def test_i10_bars_are_not_taken_for_a_wide_table(tmp_path: Path) -> None:
    """Other columns that name a field, an id at the front, and cells that are no numbers."""
    rows = BARS.assign(day_open=1.0, prev_close=2.0, close_adj=3.0)[["instrument", *BARS.columns[1:], "prev_close"]]
    assert len(read_bars(write(rows, tmp_path / "bars.csv"))) == len(BARS)
    (tmp_path / "flat.csv").write_text("symbol,date,open,high,low,close,volume\nT,2024-01-03 09:30,7,7,7,7,7\n")
    assert read_bars(tmp_path / "flat.csv")["close"].tolist() == [7.0]
    (tmp_path / "bad.csv").write_text("datetime,open,high,low,close,volume\n2024-01-03 09:30,1,1,1,halted,1\n")
    with pytest.raises(DataError, match="row 2: close is 'halted', not a number"):
        read_bars(tmp_path / "bad.csv")


STAMPS = pd.to_datetime(["2023-03-01 09:30", "2023-03-01 09:31", "2023-03-01 10:05"]).to_series(index=range(3))


def one(stamps: object) -> pd.DataFrame:
    return pd.DataFrame({"datetime": stamps} | dict.fromkeys(FIELDS, 1.0), index=range(3))


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("kind", ["int64", "float64", "str"])
@pytest.mark.parametrize("form", ["%Y%m%d%H%M", "%Y%m%d%H%M%S", "%d%m%Y%H%M", "%y%m%d%H%M"])
def test_i11_numbers_are_read_by_the_format_in_every_file(ending: str, kind: str, form: str, tmp_path: Path) -> None:
    """Written as numbers they lose the zeros that they begin with: 010320230930 is 10320230930."""
    stamps = STAMPS.dt.strftime(form)
    path = write(one(stamps if kind == "str" else stamps.astype("int64").astype(kind)), tmp_path / f"A{ending}")
    assert read_bars(path, datetime_format=form)["datetime"].tolist() == STAMPS.tolist()


@pytest.mark.parametrize("ending", WRITERS)
def test_i11_dates_and_times_of_day_as_numbers(ending: str, tmp_path: Path) -> None:
    table = one(STAMPS).rename(columns={"datetime": "date"})
    table = table.assign(date=STAMPS.dt.strftime("%Y%m%d").astype(int), time=[930, 5, 1605])
    wanted = ["2023-03-01 00:05", "2023-03-01 09:30", "2023-03-01 16:05"]
    found = read_bars(write(table, tmp_path / f"A{ending}"), datetime_format="%Y%m%d %H%M")
    assert found["datetime"].tolist() == [pd.Timestamp(stamp) for stamp in wanted]


def test_i11_a_form_without_a_space_for_two_columns_is_told(tmp_path: Path) -> None:
    table = one(STAMPS).rename(columns={"datetime": "date"}).assign(date=[20230301] * 3, time=[930, 931, 1005])
    with pytest.raises(DataError, match=r"A\.parquet has dates and times in two columns.*'%Y%m%d%H%M'"):
        read_bars(write(table, tmp_path / "A.parquet"), datetime_format="%Y%m%d%H%M")


def test_i11_nan_among_numbers_is_missing_as_null_is(tmp_path: Path) -> None:
    """Other writers than pandas leave NaN in a column of floats."""
    stamps = [202303010930.0, np.nan, 202303011005.0]
    pq.write_table(pa.table({name: list(values) for name, values in one(stamps).items()}), tmp_path / "A.parquet")
    assert pq.read_table(tmp_path / "A.parquet")["datetime"].null_count == 0
    found = read_bars(tmp_path / "A.parquet", datetime_format="%Y%m%d%H%M")["datetime"]
    assert found.isna().sum() == 1
    assert found.dropna().tolist() == [STAMPS[0], STAMPS[2]]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize(("unit", "scale"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_i11_counts_from_1970_are_read_by_their_unit(ending: str, unit: str, scale: int, tmp_path: Path) -> None:
    path = write(one(STAMPS.astype("int64") // scale), tmp_path / f"A{ending}")
    found = read_bars(path, datetime_format=unit)["datetime"]
    assert found.tolist() == STAMPS.dt.tz_localize("UTC").tolist()
    with pytest.raises(DataError, match=f"row [12].*is a number; give datetime_format, which looks like '{unit}' here"):
        read_bars(path)


def test_i11_fractions_of_a_second_count_too(tmp_path: Path) -> None:
    path = write(one([1677663000.25, np.nan, 1677663060.5]), tmp_path / "A.parquet")
    found = read_bars(path, datetime_format="s")["datetime"]
    assert found.tolist()[:2] == [pd.Timestamp("2023-03-01 09:30:00.25Z"), pd.Timestamp("2023-03-01 09:31:00.5Z")]
    assert found.isna().sum() == 1
    with pytest.raises(DataError, match=r"A\.csv, row 2"):
        read_bars(write(one(["x", "1", "2"]), tmp_path / "A.csv"), datetime_format="s")


@pytest.mark.parametrize("ending", WRITERS)
def test_i11_numbers_without_a_format_name_the_one_that_they_seem_to_have(ending: str, tmp_path: Path) -> None:
    path = write(one(STAMPS.dt.strftime("%Y%m%d%H%M").astype(int)), tmp_path / f"A{ending}")
    with pytest.raises(DataError, match=r"the stamp 202303010930 is a number; .* looks like '%Y%m%d%H%M' here"):
        read_bars(path)


def late(seconds: float, every: int = 3) -> pd.DataFrame:
    """Return the bars, of which one in `every` is stamped so late."""
    moved = pd.to_timedelta(np.where(np.arange(len(BARS)) % every == 0, seconds, 0.0), unit="s")
    return BARS.assign(datetime=BARS["datetime"] + moved)


@pytest.mark.parametrize("label", ["start", "end"])
@pytest.mark.parametrize("seconds", [14.0, -2.0, 0.25])
def test_i12_stamps_beside_the_grid_are_moved_onto_it_and_counted(label: str, seconds: float, tmp_path: Path) -> None:
    clock = Calendar.preset("us", tick_minutes=30, label=label)
    bars = late(seconds).assign(datetime=lambda table: table["datetime"] + pd.Timedelta(minutes=30 * (label == "end")))
    path = write(bars, tmp_path / "bars.csv")
    with pytest.raises(DataError, match=f"round_seconds.*the farthest lies {abs(seconds):g} s away"):
        load_sessions(path, clock)
    sessions = load_sessions(path, clock, round_seconds=15)
    assert sessions.report.counts["stamp_rounded"] == 18  # of 52 bars, every third from the first
    assert f"moved by {-seconds:+g} s" in sessions.report.examples["stamp_rounded"]
    sound = load_sessions(write(BARS, tmp_path / "sound.csv"), US)
    np.testing.assert_array_equal(sessions.fields["close"], sound.fields["close"])
    with pytest.raises(DataError, match="round_seconds"):
        load_sessions(path, clock, round_seconds=abs(seconds) / 2)


def test_i12_two_bars_that_meet_on_one_tick_are_told(tmp_path: Path) -> None:
    again = BARS.iloc[[5]].assign(datetime=lambda table: table["datetime"] + pd.Timedelta(seconds=3), close=99.0)
    path = write(pd.concat([BARS, again]), tmp_path / "bars.csv")
    done = import_bars([path], tmp_path / "set", calendar=US, round_seconds=5)
    assert {"stamp_rounded": 1, "duplicate_conflicting": 1}.items() <= done.report.counts.items()
    assert done.bars == len(BARS)


def test_i12_rounding_by_command_and_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(late(14.0), tmp_path / "bars.csv"))
    words = ("data", "check", path, "--calendar", "us", "--tick-minutes", "30", "--round-seconds")
    _, out, _ = call(capsys, *words, "14")
    assert "18 bars: stamp beside the tick grid" in out
    code, _, err = call(capsys, *words, "1000")
    assert (code, "0 to half a tick, 900 seconds" in err) == (2, True)
    with pytest.raises(ConfigError, match="round_seconds has no effect"):
        read_bars(path, round_seconds=14)


@pytest.mark.parametrize(
    "span", [{"start": "2025-01-01"}, {"end": "2023-12-31"}, {"start": "2024-01-06", "end": "2024-01-07"}]
)
@pytest.mark.parametrize("stored", [True, False])
def test_i13_dates_outside_the_data_name_what_was_asked_what_is_there_and_the_file(
    span: dict[str, str], stored: bool, tmp_path: Path
) -> None:
    path = write(BARS, tmp_path / "bars.csv")
    if stored:
        import_bars([path], tmp_path / "set", calendar=US)
        path = tmp_path / "set"
    for read in (lambda: load_sessions(path, US, **span), lambda: read_bars(path, **span)):
        with pytest.raises(DataError) as refused:
            read()
        for word in (str(path), *span.values(), "2024-01-03", "2024-01-04"):
            assert word in str(refused.value)


def test_i13_dates_of_other_instruments_alone_do_not_count(tmp_path: Path) -> None:
    later = BARS[BARS["instrument"] == "AAA"].assign(datetime=lambda table: table["datetime"] + pd.Timedelta(days=7))
    path = write(pd.concat([BARS, later]), tmp_path / "bars.csv")
    with pytest.raises(
        DataError, match=re.escape("no bars of BBB from 2024-01-08; its bars are of 2024-01-03 to 2024")
    ):
        load_sessions(path, US, instruments=["BBB"], start="2024-01-08")


@pytest.mark.parametrize("ending", WRITERS)
def test_i13_a_file_with_a_header_alone_is_named(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(BARS.iloc[:0], tmp_path / f"bars{ending}")
    with pytest.raises(DataError, match=re.escape(f"{path} holds no bars: a header")):
        load_sessions(path, US)
    report = Report()
    assert len(read_bars(path, report=report)) == 0
    assert report.examples["file_empty"] == path.name
    for words in (("check", str(path)), ("import", str(path), "--out", str(tmp_path / "set"))):
        code, _, err = call(capsys, "data", *words, "--calendar", "us")
        assert (code, str(path) in err) == (2, True)
    assert not (tmp_path / "set").exists()


def test_i13_instruments_of_a_folder_are_picked_and_what_none_of_its_files_has_is_named(tmp_path: Path) -> None:
    for name in ("AAA", "BBB"):
        write(BARS[BARS["instrument"] == name], tmp_path / f"{name}.csv")
    for name in ("AAA", "BBB"):
        assert set(load_sessions(tmp_path, US, instruments=[name]).instruments) == {name}
    with pytest.raises(DataError, match="has no instrument AAB; the nearest of its 2 names is AAA"):
        load_sessions(tmp_path, US, instruments=["AAB"])


def test_i13_one_file_of_a_folder_may_have_a_header_alone_and_is_told(tmp_path: Path) -> None:
    for name in ("AAA", "BBB"):
        write(BARS[BARS["instrument"] == name].drop(columns="instrument"), tmp_path / f"{name}.csv")
    write(BARS.iloc[:0].drop(columns="instrument"), tmp_path / "CCC.csv")
    sessions = load_sessions(tmp_path, US)
    assert sessions.report.examples["file_empty"] == "CCC.csv"
    assert "file_empty" in check_bars(tmp_path, calendar=US).found.counts
    assert "file_empty" not in load_sessions(tmp_path, US, instruments=["AAA"]).report.counts


def around_the_clock(zone: str, day: str, *, aware: bool) -> pd.DataFrame:
    """Return bars of five minutes over a whole local day, stamped in UTC or by the clocks of the zone."""
    begin = pd.Timestamp(day, tz=zone)
    stamps = pd.date_range(begin, begin + pd.DateOffset(days=1), freq="5min", inclusive="left")
    stamps = stamps.tz_convert("UTC") if aware else stamps.tz_localize(None)
    bars = pd.DataFrame({"instrument": "AAA", "datetime": stamps, **dict.fromkeys(FIELDS, 10.0)})
    return bars.assign(volume=np.arange(len(bars)) + 1.0)


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize(
    ("zone", "day", "first"),
    [
        ("America/New_York", "2024-11-03", "01:00"),
        ("Europe/Berlin", "2024-10-27", "02:00"),
        ("Australia/Sydney", "2024-04-07", "02:00"),
        ("Australia/Lord_Howe", "2024-04-07", "01:30"),  # whose clocks go back by half an hour
    ],
)
def test_i15_the_hour_that_the_clocks_show_twice_has_a_reason_of_its_own(
    zone: str, day: str, first: str, aware: bool, tmp_path: Path
) -> None:
    bars, clock = around_the_clock(zone, day, aware=aware), Calendar.preset("crypto", tick_minutes=5, timezone=zone)
    twice = len(bars) - 288
    assert twice in (6, 12)
    sessions = load_sessions(write(bars, tmp_path / "bars.parquet"), clock)
    dropped = {kind for kind in sessions.report.problems() if kind != "unsorted"}
    assert (dropped, sessions.report.counts["hour_repeated"]) == ({"hour_repeated"}, twice)
    assert f"{day} {first}:00" in sessions.report.examples["hour_repeated"]
    at = clock.first_tick(first)
    np.testing.assert_array_equal(sessions.fields["volume"][0, at : at + 2], [at + twice + 1.0, at + twice + 2.0])
    in_utc = Calendar.preset("crypto", tick_minutes=5)
    if aware:  # in UTC no hour repeats, and all bars are there
        kept = load_sessions(tmp_path / "bars.parquet", in_utc, min_coverage=0.0)
        assert ("hour_repeated" in kept.report.counts, np.isfinite(kept.fields["close"]).sum()) == (False, len(bars))


def test_i15_repeats_at_other_hours_are_duplicates_still(tmp_path: Path) -> None:
    bars = around_the_clock("America/New_York", "2024-11-03", aware=True)
    bars = pd.concat([bars, bars.iloc[[100]].assign(volume=0.5)])
    clock = Calendar.preset("crypto", tick_minutes=5, timezone="America/New_York")
    counts = load_sessions(write(bars, tmp_path / "bars.csv"), clock).report.counts
    assert (counts["hour_repeated"], counts["duplicate_conflicting"]) == (12, 1)


SECONDS = Calendar((("10:00", "10:10"),), tick_minutes=1 / 60)


def book(trades: float, *, seed: int = 0) -> pd.DataFrame:
    """Return a complete book by the second, with trades in a share of the seconds."""
    rng = np.random.default_rng(seed)
    days = []
    for day in pd.bdate_range("2024-03-04", periods=6):
        stamps = pd.date_range(day + pd.Timedelta(hours=10), periods=600, freq="1s")
        mid = 100 + np.cumsum(rng.normal(0, 0.01, 600)).round(2)
        days.append(pd.DataFrame({"instrument": "AAA", "datetime": stamps, "bid": mid - 0.01, "ask": mid + 0.01}))
    bars = pd.concat(days, ignore_index=True)
    if trades:
        there = rng.random(len(bars)) < trades
        for name in FIELDS[:4]:
            bars[name] = np.where(there, bars["ask"], np.nan)
        bars["volume"] = np.where(there, 100.0, 0.0)
    return bars


@pytest.mark.parametrize("trades", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_i14_a_complete_book_with_few_trades_is_kept_and_executed(trades: float, ending: str, tmp_path: Path) -> None:
    """Prices of trades need not be invented: at 0 the columns are absent."""
    path = write(book(trades), tmp_path / f"book{ending}")
    sessions = load_sessions(path, SECONDS)
    assert (len(sessions), "sparse_session" in sessions.report.counts) == (6, False)
    assert "missing_tick" not in sessions.report.counts
    assert sessions.report.counts.get("column_absent", 0) == (5 if not trades else 0)
    rules = ExecutionRules(price_field="quotes")
    one = Order("AAA", pd.Timestamp("2024-03-04"), Direction.BUY, 100.0, None, None)
    ticks, _, _ = run(sessions, [one], 60, TWAP, rules)
    mid = (sessions.fields["bid"][0] + sessions.fields["ask"][0]) / 2
    np.testing.assert_allclose(ticks["price"], mid, rtol=1e-12)
    np.testing.assert_allclose(ticks["filled"], 100 / 600, rtol=1e-9)
    assert "whatever the sizes there" in rules.describe()


def test_i14_a_book_with_holes_is_still_sparse(tmp_path: Path) -> None:
    bars = book(0.02)
    bars = bars[(bars["datetime"].dt.second < 20) | (bars["datetime"].dt.day != 5)]
    bars.loc[bars["datetime"].dt.day == 6, "ask"] = np.nan  # one side is no price
    report = load_sessions(write(bars, tmp_path / "book.csv"), SECONDS).report
    assert report.counts["sparse_session"] == 2
    assert "200 of 600 ticks have a price" in report.examples["sparse_session"]


def test_i14_without_quotes_the_prices_of_trades_are_needed_still(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="lack the columns open, high, low, close, volume"):
        read_bars(write(book(0.0).drop(columns="ask"), tmp_path / "bids.csv"))


@pytest.mark.parametrize("name", ["AAPL", "AMZN"])
def test_i14_a_real_book_by_the_second(name: str) -> None:
    path = DATA / f"us_lob_2012/book_1s_{name}.parquet"
    if not path.is_file():
        pytest.skip(f"real market data are not at {DATA}")
    columns = {f"{side}_price_1": side for side in ("bid", "ask")}
    columns |= {f"{side}_size_1": f"{side}_size" for side in ("bid", "ask")}
    clock = Calendar((("10:00", "15:30"),), tick_minutes=1 / 60)
    sessions = load_sessions(path, clock, columns={**columns, "trade_volume": "volume"})
    assert sessions.report.totals["bars_kept"] == 19800
    assert np.isfinite(sessions.fields["bid"]).all()
