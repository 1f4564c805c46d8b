"""A source of bars: which reader it gets, its files, and one stream of tables whatever the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from rlwb import parts
from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Report, build_sessions, import_bars, load_sessions, read_bars
from rlwb.market.readers.base import find_reader, recognise
from rlwb.market.source import Unit, open_source
from tests.market.helpers import day_bars
from tests.market.readers.sources import SOURCES, binance, lean, qlib, write_qlib

SMALL = Calendar(segments=(("10:00", "10:04"),), infer_early_close_minutes=0)
MINE = dedent(
    """
    import numpy as np
    import pyarrow as pa

    def read_mine(source, *, step: int = 1):
        for path in sorted(source.glob("*.txt")):
            at = np.arange(4)
            stamps = np.datetime64("2024-01-03T10:00", "ns") + at * np.timedelta64(step, "m")
            close = np.loadtxt(path)
            yield pa.table({"close": close.astype(np.float32), "instrument": [path.stem] * 4, "datetime": stamps})
    """
)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    for name in ("A", "000001"):
        (tmp_path / "mine" / f"{name}.txt").write_text("1\n2\n3\n4\n")
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine"


def test_a_plain_function_in_a_file_reads_a_source(mine: Path) -> None:
    kind = f"{mine}.py:read_mine"
    bars = read_bars(mine, kind=kind, instruments=["A"])
    assert bars["close"].tolist() == [1, 2, 3, 4]
    assert bars["close"].dtype == np.float64
    assert bars["open"].isna().all()
    assert read_bars(mine, kind=kind, options={"step": 2})["datetime"].dt.minute.tolist() == [0, 2, 4, 6] * 2
    with pytest.raises(ConfigError, match="steps; did you mean step"):
        read_bars(mine, kind=kind, options={"steps": 2})
    with pytest.raises(ConfigError, match=r"step of reader .* is '2'"):
        read_bars(mine, kind=kind, options={"step": "2"})
    with pytest.raises(DataError, match="no instrument B; the nearest of its 2 names is"):
        read_bars(mine, kind=kind, instruments=["B"])


def test_it_is_cached_by_its_files_and_imported(mine: Path, tmp_path: Path) -> None:
    kind = f"{mine}.py:read_mine"
    assert open_source(mine, kind=kind).files == [mine / "000001.txt", mine / "A.txt"]
    first = load_sessions(mine, SMALL, kind=kind, cache_dir=tmp_path / "cache")
    assert first.fields["close"].tolist() == [[1, 2, 3, 4]] * 2
    (mine / "A.txt").write_text("1\n2\n3\n5\n")
    second = load_sessions(mine, SMALL, kind=kind, cache_dir=tmp_path / "cache")
    assert second.fields["close"].tolist() == [[1, 2, 3, 4], [1, 2, 3, 5]]
    assert import_bars([mine], tmp_path / "set", calendar=SMALL, kind=kind).bars == 8


def test_a_reader_in_a_module(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine.parent / "my_module_of_readers.py").write_text(MINE)
    monkeypatch.syspath_prepend(mine.parent)
    assert len(read_bars(mine, kind="my_module_of_readers:read_mine")) == 8


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qlb", "'qlb'.*qlib"),
        ("nowhere.py:read", r"nowhere\.py"),
        ("no_such_module:read", "no_such_module"),
        ("pathlib:nothing", "pathlib.*nothing"),
        ("pathlib:Path", "the reader pathlib:Path is no function"),
    ],
)
def test_names_of_no_reader_are_refused(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        open_source(tmp_path, kind=name)


@pytest.fixture(autouse=True)
def forget_entry_points() -> Iterator[None]:
    yield
    parts._entry_points.cache_clear()


class Entry:
    """An entry point of an installed package."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value


def offer(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> None:
    real = metadata.entry_points

    def found(**wanted: str) -> object:
        return list(entries) if wanted == {"group": "rlwb.readers"} else real(**wanted)

    monkeypatch.setattr(metadata, "entry_points", found)
    parts._entry_points.cache_clear()


def test_readers_of_installed_packages_have_names(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = MINE.replace("def read_mine", '@reader("mine", files="*.txt")\ndef read_mine')
    (mine.parent / "package_of_readers.py").write_text("from rlwb.market.readers import reader\n" + code)
    monkeypatch.syspath_prepend(mine.parent)
    offer(
        monkeypatch, Entry("mine", "package_of_readers:read_mine"), Entry("qlib", "rlwb.market.readers.qlib:read_qlib")
    )
    assert parts.names("reader") == [*parts.BUILT_IN["reader"], "mine"]
    assert len(read_bars(mine)) == 8
    assert open_source(mine).kind == "mine"


def test_a_package_that_is_broken_recognises_nothing(
    mine: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offer(monkeypatch, Entry("broken", "no_such_module:read"))
    assert recognise(mine).name == "table"
    assert "no_such_module" in caplog.text
    with pytest.raises(ConfigError, match="no_such_module"):
        find_reader("broken")


@pytest.mark.parametrize("kind", list(SOURCES))
def test_every_reader_streams_canonical_tables(kind: str, tmp_path: Path) -> None:
    make, options, bars, _ = SOURCES[kind]
    opened = open_source(make(tmp_path), options=options)
    tables = list(opened.batches())
    assert opened.kind == kind
    assert sum(table.num_rows for table in tables) == bars
    for table in tables:
        kinds = dict(zip(table.column_names, table.schema.types, strict=True))
        assert kinds["instrument"] == pa.string()
        assert pa.types.is_timestamp(kinds["datetime"])
        assert kinds["datetime"].unit == "ns"
        assert {kinds[name] for name in ("open", "high", "low", "close", "volume")} == {pa.float64()}
    paths = [path for unit in opened.units for path in unit.files]
    assert set(paths) <= set(opened.files)
    for path in opened.files:
        path.stat()


def test_two_kinds_in_one_folder_have_to_be_told_apart(tmp_path: Path) -> None:
    source = binance(tmp_path)
    (source / "stray.csv").write_text("datetime,open,high,low,close,volume\n2024-01-03,1,1,1,1,1\n")
    with pytest.raises(DataError, match="could be binance or table; say which"):
        read_bars(source)
    assert len(read_bars(source, kind="binance")) == 6


def test_units_are_what_can_be_read_alone(tmp_path: Path) -> None:
    klines = open_source(binance(tmp_path))
    assert klines.units == [Unit(path, (path,)) for path in klines.files]
    (one,) = klines.batches([klines.files[0]])
    assert one["instrument"].to_pylist() == ["BTCUSDT"] * 3
    whole = open_source(lean(tmp_path))
    assert whole.units == [Unit(whole.path, tuple(whole.files))]


def test_what_is_beside_the_files_is_counted(tmp_path: Path) -> None:
    source = qlib(tmp_path)
    (source / "notes" / "deep").mkdir(parents=True)
    (source / "notes" / "deep" / "a.txt").touch()
    (source / "features" / ".DS_Store").touch()
    report = Report()
    list(open_source(source, report=report).batches())
    assert report.counts["file_ignored"] == 2
    assert open_source(source).ignored == ["features/.DS_Store", "notes"]


def test_options_of_tables_are_refused_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="read as qlib, where columns has no effect"):
        open_source(qlib(tmp_path), columns={"a": "close"})


def test_a_zone_for_stamps_without_one_goes_for_every_reader(tmp_path: Path) -> None:
    steps = ["2024-01-03 14:30:00", "2024-03-10 02:30:00"]
    columns = {name: [1.0, 2.0] for name in ("open", "high", "low", "close", "volume")}
    source = write_qlib(tmp_path / "q", {"A": columns}, steps)
    stamps = read_bars(source, source_timezone="America/New_York")["datetime"]
    assert str(stamps.dt.tz) == "America/New_York"
    assert stamps.isna().tolist() == [False, True]  # which the change of clocks skips
    with pytest.raises(DataError, match="leave source_timezone out"):
        read_bars(binance(tmp_path), source_timezone="UTC")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda table: table.drop_columns("datetime"), "no column datetime"),
        (lambda table: table.append_column("close", table["close"]), "column close more than once"),
        (
            lambda table: table.set_column(0, "instrument", pa.array([1, 2, 3, 4])),
            "instrument holds int64",
        ),
        (
            lambda table: table.set_column(0, "instrument", pa.array(["A", "A", "\x00", "A"])),
            r"instrument '\\x00' has a control character",
        ),
        (lambda table: table.set_column(1, "datetime", pa.array([1, 2, 3, 4])), "datetime holds int64"),
        (lambda table: table.append_column("bid", pa.array([True] * 4)), "bid holds bool"),
        (lambda table: table.append_column("bid", pa.array(["1", "2", "x", "4"])), "bid holds .*'x'"),
        (lambda table: table.append_column("halted", pa.array([0, 1, 2, 0])), "halted holds '2'; write true or false"),
    ],
)
def test_tables_of_a_reader_that_are_not_bars_are_refused(
    change: Callable[[pa.Table], pa.Table], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bars = day_bars(SMALL)[["instrument", "datetime", "open", "high", "low", "close", "volume"]]
    odd = change(pa.Table.from_pandas(bars, preserve_index=False))
    (tmp_path / "odd.py").write_text("def read(source):\n    yield TABLE\n")
    reader = find_reader(f"{tmp_path}/odd.py:read")
    monkeypatch.setitem(reader.function.__globals__, "TABLE", odd)
    with pytest.raises(DataError, match=words) as caught:
        read_bars(tmp_path, kind=f"{tmp_path}/odd.py:read")
    assert str(tmp_path) in str(caught.value)


def test_halts_may_be_words_numbers_or_missing(tmp_path: Path) -> None:
    bars = day_bars(SMALL)
    for words in (["true", "False", "", "TRUE"], [1, 0, "", 1], ["1.0", "0.0", "", "1"]):
        bars.assign(halted=words).to_csv(tmp_path / "bars.csv", index=False)
        assert read_bars(tmp_path / "bars.csv")["halted"].tolist() == [True, False, False, True]
    for column in (pd.array([True, False, None, True], "boolean"), [1.0, 0.0, np.nan, 1.0]):
        bars.assign(halted=column).to_parquet(tmp_path / "bars.parquet")
        assert read_bars(tmp_path / "bars.parquet")["halted"].tolist() == [True, False, False, True]


def test_a_source_without_bars_has_the_columns_of_bars(tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_text("datetime,open,high,low,close,volume\n")
    bars = read_bars(tmp_path / "A.csv")
    assert list(bars.columns) == ["instrument", "datetime", "open", "high", "low", "close", "volume"]
    assert len(bars) == 0
    assert bars["close"].dtype == np.float64
    assert bars["datetime"].dtype == "datetime64[ns]"


@pytest.mark.parametrize(("ending", "row"), [("parquet", 3), ("csv", 4)])  # a CSV's first row is its header
def test_an_id_with_a_control_character_is_refused_by_file_and_row(ending: str, row: int, tmp_path: Path) -> None:
    bars, source = day_bars(SMALL), tmp_path / f"bars.{ending}"
    bars["instrument"] = ["A", "A", "A\x07", "A"]
    bars.to_parquet(source) if ending == "parquet" else bars.to_csv(source, index=False)
    for read in (read_bars, lambda path: import_bars([path], tmp_path / "set", calendar=SMALL)):
        with pytest.raises(DataError, match=rf"bars\.{ending}, row {row}: instrument 'A\\x07'"):
            read(source)
    with pytest.raises(DataError, match="row 3: instrument"):
        build_sessions(bars, SMALL)


@pytest.mark.parametrize("option", ["bogus", "instruments", "name"])
def test_options_are_checked_of_a_reader_whose_source_is_not_a_plain_def(option: str, tmp_path: Path) -> None:
    code = "from rlwb.market.readers import reader\n\ndef _read(source, *, lot=1):\n    yield from ()\n\n"
    (tmp_path / "odd.py").write_text(code + 'mine = reader("odd", files="*.txt")(_read)\n')
    (tmp_path / "A.txt").touch()
    with pytest.raises(ConfigError, match=rf"no option {option}; .*lot"):
        open_source(tmp_path, kind=f"{tmp_path}/odd.py:mine", options={option: "x"})


def test_one_bound_beyond_what_stamps_can_say_is_no_contradiction(tmp_path: Path) -> None:
    day_bars(SMALL).to_parquet(tmp_path / "bars.parquet")
    assert len(read_bars(tmp_path / "bars.parquet", start="1600-01-01")) == 4
    assert len(read_bars(tmp_path / "bars.parquet", end="2300-01-01")) == 4
