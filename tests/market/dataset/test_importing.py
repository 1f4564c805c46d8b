"""Import: once each, all or nothing, nothing lost and nothing dropped in silence."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.files import locked
from rlwb.market import Calendar, import_bars, load_sessions, read_bars, read_conflicts, read_state
from rlwb.market.dataset import importing, stored
from rlwb.market.quality import check_bars
from tests.market.dataset.helpers import CLOCK, DAYS, bars_of, content
from tests.market.helpers import day_bars, random_bars

NAMES = [
    "000001",
    "NA",
    "TRUE",
    "1E5",
    "../x",
    "a/b",
    "BRK.B",
    "600000.SH",
    "^GSPC",
    "é 上",
    "__HIVE_DEFAULT_PARTITION__",
    "%2E",
    ".",
]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files of 20 rows in groups of 7, so that a few bars cross all borders."""
    monkeypatch.setattr(stored, "_GROUP_ROWS", 7)
    monkeypatch.setattr(importing, "BATCH_ROWS", 20)


def test_names_survive_as_text(tmp_path: Path) -> None:
    bars = random_bars(CLOCK, NAMES, DAYS)
    bars.to_parquet(tmp_path / "bars.parquet")
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=CLOCK)
    assert sorted(bars_of(tmp_path / "set")["instrument"].unique()) == sorted(NAMES)
    pd.testing.assert_frame_equal(
        bars_of(tmp_path / "set"), bars_of(tmp_path / "bars.parquet"), check_dtype=True, check_exact=True
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.parquet", "set"], "no name leaves the folder"


def test_files_are_read_by_arrow_as_they_are(tmp_path: Path, small: None) -> None:
    bars = random_bars(CLOCK, NAMES, DAYS)
    bars.to_parquet(tmp_path / "bars.parquet")
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=CLOCK)
    found = ds.dataset(tmp_path / "set" / "bars")
    before = ds.field("datetime") < pd.Timestamp("2024-02-01")
    table = found.to_table(filter=(ds.field("instrument") == "000001") & before).to_pandas()
    table = table.sort_values("datetime")
    wanted = bars[(bars["instrument"] == "000001") & (bars["datetime"] < "2024-02-01")]
    assert table["close"].tolist() == wanted["close"].tolist()
    assert table["datetime"].tolist() == wanted["datetime"].tolist()
    assert set(found.to_table(columns=["instrument"])["instrument"].to_pylist()) == set(NAMES)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("order", ["instrument", "datetime", "shuffled"])
def test_a_run_from_the_data_set_is_the_run_from_the_file(tmp_path: Path, small: None, suffix: str, order: str) -> None:
    bars = random_bars(CLOCK, ["000001", "B"], DAYS, keep=0.9)
    bars = pd.concat([bars, bars.iloc[3:5], bars.iloc[10:12].assign(close=10.5)])  # equal and contradicting repeats
    bars = bars.sample(frac=1, random_state=0) if order == "shuffled" else bars.sort_values(order, kind="stable")
    path = tmp_path / f"bars.{suffix}"
    bars.to_parquet(path, index=False) if suffix == "parquet" else bars.to_csv(path, index=False)
    done = import_bars([path], tmp_path / "set", calendar=CLOCK)
    direct, stored = load_sessions(path, CLOCK), load_sessions(tmp_path / "set")
    assert stored.fingerprint == direct.fingerprint
    assert stored.report.counts == direct.report.counts
    assert stored.report.totals == direct.report.totals
    assert done.rows == len(bars) == done.bars + 4
    assert done.conflicts == done.report.counts["duplicate_conflicting"]


def test_the_same_file_twice_changes_nothing(tmp_path: Path, small: None) -> None:
    random_bars(CLOCK, ["A", "B"], DAYS).to_csv(tmp_path / "bars.csv", index=False)
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    before = content(tmp_path / "set")
    (tmp_path / "copy.csv").write_bytes((tmp_path / "bars.csv").read_bytes())
    again = import_bars([tmp_path / "bars.csv", tmp_path / "copy.csv"], tmp_path / "set")
    assert (again.known, again.added, again.rows, again.bars) == (["bars.csv", "copy.csv"], [], 0, 0)
    assert content(tmp_path / "set") == before


def test_content_is_another_source_under_another_name_or_reading(tmp_path: Path) -> None:
    for name in ("A", "B"):
        day_bars(CLOCK).drop(columns="instrument").to_csv(tmp_path / f"{name}.csv", index=False)
    files = [tmp_path / "A.csv", tmp_path / "B.csv"]
    done = import_bars(files, tmp_path / "set", calendar=CLOCK)
    assert done.bars == 20
    assert bars_of(tmp_path / "set")["instrument"].unique().tolist() == ["A", "B"]
    swapped = import_bars(files[:1], tmp_path / "set", columns={"open": "close", "close": "open"})
    assert swapped.added == ["A.csv"]
    assert swapped.report.counts == {"overlap_identical": 10}, "all prices are 10"


def write_overlap(folder: Path) -> list[Path]:
    """Write two files that share five bars, of which two differ in close."""
    first, second = day_bars(CLOCK, ticks=range(8)), day_bars(CLOCK, ticks=range(3, 10))
    second.loc[[1, 3], "close"] = 11.0  # ticks 4 and 6
    first.to_csv(folder / "first.csv", index=False)
    second.to_csv(folder / "second.csv", index=False)
    return [folder / "first.csv", folder / "second.csv"]


@pytest.mark.parametrize(("choice", "close"), [("keep", 10.0), ("replace", 11.0)])
def test_conflicts_are_told_and_settled_as_asked(tmp_path: Path, choice: str, close: float) -> None:
    done = import_bars(write_overlap(tmp_path), tmp_path / "set", calendar=CLOCK, on_conflict=choice)  # type: ignore[arg-type]
    assert done.report.counts == {"overlap_identical": 3, "overlap_conflicting": 2}
    assert done.report.examples["overlap_conflicting"] == "AAA 2024-01-03 10:04:00 (second.csv row 2)"
    assert (done.rows, done.bars, done.conflicts) == (15, 10, 2)
    stored = bars_of(tmp_path / "set")
    assert stored["close"].tolist() == [10, 10, 10, 10, close, 10, close, 10, 10, 10]
    told = read_conflicts(tmp_path / "set")
    assert told["instrument"].tolist() == ["AAA", "AAA"]
    assert told["datetime"].astype(str).tolist() == ["2024-01-03 10:04:00", "2024-01-03 10:06:00"]
    kept, other = ("kept", "other") if choice == "keep" else ("other", "kept")
    assert told[[f"{kept}_source", f"{kept}_row", f"{kept}_close"]].to_numpy().tolist() == [[1, 5, 10], [1, 7, 10]]
    assert told[[f"{other}_source", f"{other}_row", f"{other}_close"]].to_numpy().tolist() == [[2, 2, 11], [2, 4, 11]]


def test_what_only_one_source_has_is_no_conflict(tmp_path: Path) -> None:
    day_bars(CLOCK).to_csv(tmp_path / "plain.csv", index=False)
    day_bars(CLOCK).assign(vwap=10.0, factor=2.0, halted=False).to_parquet(tmp_path / "more.parquet")
    done = import_bars([tmp_path / "plain.csv", tmp_path / "more.parquet"], tmp_path / "set", calendar=CLOCK)
    assert done.report.counts == {"overlap_identical": 10}
    assert bars_of(tmp_path / "set")["vwap"].tolist() == [10.0] * 10
    assert load_sessions(tmp_path / "set").fingerprint == load_sessions(tmp_path / "more.parquet", CLOCK).fingerprint


def _import_and_die(files: list[Path], out: Path, place: str, step: int) -> None:
    """Import and be killed at the given call, counted from 0, of a function that writes."""
    room: Any = {"replace": Path, "unlink": Path, "fsync": os}.get(place, importing)
    real, calls = getattr(room, place), iter(range(10**6))

    def die(*words: Any) -> Any:
        if next(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*words)

    setattr(room, place, die)
    import_bars(files, out, calendar=CLOCK)


@pytest.mark.parametrize(
    ("place", "step"),
    [
        ("write_file", 0),
        ("write_file", 2),
        ("write_json", 1),
        ("replace", 3),
        ("replace", 6),
        ("fsync", 3),
        ("fsync", 6),
    ],
)
def test_a_killed_import_goes_on_to_the_same_bytes(tmp_path: Path, small: None, place: str, step: int) -> None:
    """Killed while it writes bars, before and while it writes the state that names them."""
    source = tmp_path / "source"
    source.mkdir()
    bars = random_bars(CLOCK, ["A", "B"], DAYS)
    pd.concat([bars, bars.iloc[:2]]).sample(frac=1, random_state=1).to_parquet(source / "1.parquet", index=False)
    bars.iloc[20:40].assign(volume=7.0).to_csv(source / "2.csv", index=False)
    files = sorted(source.iterdir())
    killed = multiprocessing.get_context("fork").Process(
        target=_import_and_die, args=(files, tmp_path / "set", place, step)
    )
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    done = import_bars(files, tmp_path / "set", calendar=CLOCK)
    whole = import_bars(files, tmp_path / "whole", calendar=CLOCK)
    assert done.state.bars == whole.bars == 60
    assert content(tmp_path / "set") == content(tmp_path / "whole")
    assert (done.rows < whole.rows) == ((place, step) not in [("write_file", 0)]), "it does not begin anew"


@pytest.mark.parametrize("calendar", [CLOCK, None], ids=["calendar", "no calendar"])
@pytest.mark.parametrize("name", ["AAA.csv", "600519.parquet"])
def test_a_folder_of_ones_own_called_bars_is_not_touched(tmp_path: Path, name: str, calendar: Calendar | None) -> None:
    """No lock file is beside it, so that it is none that a killed import has left; bars of `project` lie in it."""
    mine = tmp_path / "project" / "bars"
    mine.mkdir(parents=True)
    write = pd.DataFrame.to_csv if name.endswith("csv") else pd.DataFrame.to_parquet
    write(day_bars(CLOCK), mine / name, index=False)
    before = (mine / name).read_bytes()
    with pytest.raises(DataError, match=r"holds bars and no dataset.json"):
        import_bars([mine], mine.parent, calendar=calendar)
    assert [path.name for path in mine.parent.iterdir()] == ["bars"]
    assert (mine / name).read_bytes() == before


def test_a_file_of_ones_own_in_a_data_set_stays(tmp_path: Path) -> None:
    day_bars(CLOCK).to_csv(tmp_path / "bars.csv", index=False)
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    (tmp_path / "set" / "bars" / "notes.txt").write_text("mine")
    (tmp_path / "set" / "bars" / "000009.parquet").write_text("what a killed import left")
    import_bars([tmp_path / "bars.csv"], tmp_path / "set")
    assert sorted(path.name for path in (tmp_path / "set" / "bars").iterdir()) == ["000001.parquet", "notes.txt"]


def test_a_data_set_that_is_not_finished_is_not_a_market(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_bars(CLOCK, ["A", "B"], DAYS).to_parquet(tmp_path / "bars.parquet")
    write, calls = importing.write_file, iter(range(9))

    def stumble(*words):  # type: ignore[no-untyped-def]
        if next(calls) == 2:
            raise KeyboardInterrupt
        write(*words)

    monkeypatch.setattr(importing, "write_file", stumble)
    with pytest.raises(KeyboardInterrupt):
        import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=CLOCK)
    assert 0 < read_state(tmp_path / "set").sources[0].rows < 60
    with pytest.raises(DataError, match=r"was cut short; finish it with rlwb data import .*bars.parquet --out"):
        load_sessions(tmp_path / "set")
    monkeypatch.undo()
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set")
    assert load_sessions(tmp_path / "set").fingerprint == load_sessions(tmp_path / "bars.parquet", CLOCK).fingerprint


def test_a_source_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    day_bars(CLOCK).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "b.csv").write_text("instrument,datetime,open,high,low,close,volume\nB,2024-01-03 10:00,1,1,1,x,1\n")
    with pytest.raises(DataError, match=r"b.csv, row 2: close is 'x'"):
        import_bars([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "set", calendar=CLOCK)
    with pytest.raises(DataError, match=r"b.csv, row 2"):
        import_bars([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "set", calendar=CLOCK)
    done = import_bars([tmp_path / "a.csv"], tmp_path / "set", calendar=CLOCK)
    assert done.state.bars == 10


def test_what_has_no_place_is_dropped_by_reason(tmp_path: Path) -> None:
    bars = day_bars(CLOCK)
    bars["datetime"] = bars["datetime"].astype(str)
    bars.loc[1, "instrument"] = ""
    bars.loc[2, "datetime"] = ""
    bars.loc[3, "datetime"] = "2024-01-03 10:03:00.000000500"
    bars.to_csv(tmp_path / "bars.csv", index=False)
    done = import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    assert done.report.counts == {"instrument_missing": 1, "datetime_missing": 1, "off_grid": 1}
    assert done.report.examples["datetime_missing"] == "AAA (bars.csv row 3)"
    stored = load_sessions(tmp_path / "set", min_coverage=0)
    assert stored.report.counts == {**done.report.counts, "missing_tick": 3}
    assert stored.report.totals["bars_read"] == 10


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a15_stamps_with_a_zone_become_local(tmp_path: Path, suffix: str) -> None:
    clock = Calendar(segments=(("10:00", "10:10"),), timezone="America/New_York", infer_early_close_minutes=0)
    bars = day_bars(clock)
    aware = bars.assign(datetime=bars["datetime"].dt.tz_localize("America/New_York").dt.tz_convert("UTC"))
    path = tmp_path / f"bars.{suffix}"
    aware.to_parquet(path) if suffix == "parquet" else aware.to_csv(path, index=False)
    import_bars([path], tmp_path / "set", calendar=clock)
    assert bars_of(tmp_path / "set")["datetime"].tolist() == bars["datetime"].tolist()
    naive = aware.assign(datetime=aware["datetime"].dt.tz_localize(None))
    naive.to_csv(tmp_path / "naive.csv", index=False)
    done = import_bars([tmp_path / "naive.csv"], tmp_path / "set", source_timezone="UTC")
    assert done.report.counts == {"overlap_identical": 10}


def test_refusals(tmp_path: Path) -> None:
    day_bars(CLOCK).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(ConfigError, match="is a new data set, which needs a calendar"):
        import_bars([tmp_path / "bars.csv"], tmp_path / "set")
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    with pytest.raises(ConfigError, match=r"has label 'start', not 'end'"):
        import_bars(
            [tmp_path / "bars.csv"],
            tmp_path / "set",
            calendar=Calendar(CLOCK.segments, label="end", infer_early_close_minutes=0),
        )
    with pytest.raises(DataError, match=r"holds bars.csv and no dataset.json"):
        import_bars([tmp_path / "bars.csv"], tmp_path, calendar=CLOCK)
    with locked(tmp_path / "set" / ".lock"), pytest.raises(DataError, match="another import writes to"):
        import_bars([tmp_path / "bars.csv"], tmp_path / "set")
    with pytest.raises(ConfigError, match="columns has no effect"):
        read_bars(tmp_path / "set", columns={"a": "open"})
    values = json.loads((tmp_path / "set" / "dataset.json").read_text())
    values["calendar"]["tick_minutes"] = "x"
    (tmp_path / "set" / "dataset.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match=r"dataset.json cannot be read \(the calendar's settings cannot be read"):
        import_bars([tmp_path / "bars.csv"], tmp_path / "set")
    (tmp_path / "set" / "dataset.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(DataError, match=r"dataset.json cannot be read \(it has no 'schema'\)"):
        import_bars([tmp_path / "bars.csv"], tmp_path / "set")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    random_bars(CLOCK, ["A"], DAYS).to_csv(tmp_path / "bars.csv", index=False)
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    part = tmp_path / "set/bars/000001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    with pytest.raises(DataError, match=r"bars/000001.parquet is damaged"):
        read_bars(tmp_path / "set")


def test_a_file_that_was_taken_away_is_noticed(tmp_path: Path, small: None) -> None:
    random_bars(CLOCK, ["A", "B"], DAYS).to_csv(tmp_path / "bars.csv", index=False)
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    (tmp_path / "set/bars/000002.parquet").unlink()
    with pytest.raises(DataError, match=r"000002.parquet is missing; import its sources"):
        load_sessions(tmp_path / "set", cache_dir=tmp_path / "cache")
    quality = check_bars(tmp_path / "set")
    assert quality.found.counts["damaged"] == 1
    assert "000002.parquet is missing" in quality.as_text()


def test_a_file_without_the_columns_is_named_with_those_it_has(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("day,price\n2024-01-03,1\n")
    with pytest.raises(DataError, match=r"mine.csv lack .* \(they have none; day, price mean nothing\)"):
        import_bars([tmp_path / "mine.csv"], tmp_path / "set", calendar=CLOCK)
    with pytest.raises(DataError, match=r"the bars of .*mine.csv lack .*; day, price mean nothing\)"):
        load_sessions(tmp_path / "mine.csv", CLOCK)
    with pytest.raises(ConfigError, match=r"instrument_pattern '\(' is no regular expression"):
        import_bars([tmp_path / "mine.csv"], tmp_path / "set", calendar=CLOCK, instrument_pattern="(")


def test_a_selection_is_that_of_the_file(tmp_path: Path) -> None:
    random_bars(CLOCK, ["A", "B", "C"], DAYS).to_parquet(tmp_path / "bars.parquet")
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=CLOCK)
    some = {"instruments": ["A", "C"], "start": "2024-01-04", "end": "2024-01-31"}
    direct = load_sessions(tmp_path / "bars.parquet", CLOCK, **some)  # type: ignore[arg-type]
    assert load_sessions(tmp_path / "set", **some).fingerprint == direct.fingerprint  # type: ignore[arg-type]
    assert np.unique(direct.instruments).tolist() == ["A", "C"]
    with pytest.raises(DataError, match="has no instrument D"):
        load_sessions(tmp_path / "set", instruments=["D"])


def test_the_cache_follows_the_data_set(tmp_path: Path) -> None:
    bars = random_bars(CLOCK, ["A"], DAYS)
    bars.iloc[:20].to_csv(tmp_path / "1.csv", index=False)
    bars.iloc[20:].to_csv(tmp_path / "2.csv", index=False)
    import_bars([tmp_path / "1.csv"], tmp_path / "set", calendar=CLOCK)
    first = load_sessions(tmp_path / "set", cache_dir=tmp_path / "cache")
    assert load_sessions(tmp_path / "set", cache_dir=tmp_path / "cache").directory == first.directory
    import_bars([tmp_path / "2.csv"], tmp_path / "set")
    second = load_sessions(tmp_path / "set", cache_dir=tmp_path / "cache")
    assert (len(first), len(second)) == (2, 3)
    other = Calendar(CLOCK.segments, label="end")
    with pytest.raises(ConfigError, match="are stored with label 'start'"):
        load_sessions(tmp_path / "set", other)


@pytest.mark.parametrize(
    ("sources", "calendar"),
    [
        (["nowhere.csv"], CLOCK),
        (["bars.csv", "nowhere.csv"], CLOCK),
        (["bars.csv"], None),
        (["damaged.csv"], CLOCK),
        ([], CLOCK),
    ],
    ids=["no such path", "one of two", "no calendar", "damaged", "none"],
)
@pytest.mark.parametrize("place", ["set", "deep/down/set"])
def test_k15_an_import_that_makes_no_data_set_leaves_nothing(
    tmp_path: Path, sources: list[str], calendar: Calendar | None, place: str
) -> None:
    random_bars(CLOCK, ["A"], DAYS[:1]).to_csv(tmp_path / "bars.csv", index=False)
    (tmp_path / "damaged.csv").write_text(
        "instrument,datetime,open,high,low,close,volume\nA,2024-01-03 10:00:00,x,1,1,1,1\n"
    )
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((DataError, ConfigError)):
        import_bars([tmp_path / name for name in sources], tmp_path / place, calendar=calendar)
    assert sorted(tmp_path.rglob("*")) == before
    import_bars([tmp_path / "bars.csv"], tmp_path / place, calendar=CLOCK)
    held = sorted((tmp_path / place).rglob("*"))
    with pytest.raises(DataError):
        import_bars([tmp_path / "nowhere.csv"], tmp_path / place)
    assert sorted((tmp_path / place).rglob("*")) == held, "a data set stays"


def test_k11_a_killed_import_and_a_killed_check_leave_nothing_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they left goes at the next start, in the data set and in the folder for temporary files."""
    random_bars(CLOCK, ["A"], DAYS[:1]).to_csv(tmp_path / "bars.csv", index=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    import_bars([tmp_path / "bars.csv"], tmp_path / "set", calendar=CLOCK)
    before = sorted(tmp_path.rglob("*"))

    def killed() -> None:
        with importing.imported(tmp_path / "bars.csv", calendar=CLOCK):
            (tmp_path / "set" / "bars" / ".000002.0a1b2c3d.rlwb-new.parquet").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    process = multiprocessing.get_context("fork").Process(target=killed)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert len(sorted(tmp_path.rglob("*"))) > len(before) + 1
    with (
        importing.imported(tmp_path / "bars.csv", calendar=CLOCK) as living,
        importing.imported(tmp_path / "bars.csv", calendar=CLOCK),
    ):
        assert living.directory.exists(), "what a living process holds stays"
    import_bars([tmp_path / "bars.csv"], tmp_path / "set")
    assert sorted(tmp_path.rglob("*")) == before
