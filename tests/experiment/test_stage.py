"""When a stage is done again, taken up, or kept."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STAGES, hash_path, inputs_of, is_unchanged, run_stage
from rlwb.files import files_below, is_temporary
from rlwb.market import Calendar, import_bars
from rlwb.market.dataset.state import is_dataset
from rlwb.market.load import _cache_key
from tests.experiment.fakes import FIRST, SECOND, config, first, second


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", config())


def both(run: RunDirectory, settings: RunConfig) -> tuple[list[str], list[str]]:
    """Run both stages; return what became of each and what was said."""
    said: list[str] = []
    return [run_stage(s, run, settings, w, echo=said.append) for s, w in ((FIRST, first), (SECOND, second))], said


def learnt(run: RunDirectory) -> list[str]:
    return [path.read_text() for path in sorted(run.checkpoints.iterdir())]


def test_what_is_unchanged_is_kept(run: RunDirectory) -> None:
    assert both(run, config())[0] == ["done", "done"]
    assert both(run, config()) == (["unchanged", "unchanged"], ["first: unchanged, kept", "second: unchanged, kept"])
    assert run.stage("second")["seconds"] >= 0


def test_g13_a_second_run_does_not_append(run: RunDirectory) -> None:
    both(run, config())
    before = learnt(run)
    assert both(run, config())[0] == ["unchanged", "unchanged"]
    assert learnt(run) == before


def test_results_of_other_settings_are_set_aside_not_lost(run: RunDirectory) -> None:
    both(run, config())
    done, said = both(run, config(algorithm__learning_rate=0.5))
    assert done == ["unchanged", "done"]
    assert "second: algorithm.learning_rate 0.0025 there, 0.5 now; what was there is now in superseded/" in said[1]
    assert learnt(run) == ["0.5"] * 3
    (kept,) = (run.path / "superseded").iterdir()
    assert (kept / "checkpoints" / "3.pt").read_text() == "0.0025"
    assert run.config.algorithm.settings["learning_rate"] == 0.5


def test_a_longer_training_goes_on(run: RunDirectory) -> None:
    both(run, config())
    before = (run.checkpoints / "1.pt").stat()
    done, said = both(run, config(train__iterations=5))
    assert done == ["unchanged", "done"]
    assert learnt(run) == ["0.0025"] * 5
    assert (run.checkpoints / "1.pt").stat() == before, "the same file"
    assert not (run.path / "superseded").exists()
    assert said == ["first: unchanged, kept"]


def test_what_does_not_change_the_result_changes_nothing(run: RunDirectory) -> None:
    both(run, config())
    assert both(run, config(train__env="dummy", train__concurrency=7))[0] == ["unchanged", "unchanged"]


def test_a_setting_that_came_later_and_is_null_makes_nothing_again(run: RunDirectory) -> None:
    """A run of an older version did what a null setting says, and is neither done again nor refused."""
    both(run, config())
    known = run.stage("second")["settings"]
    assert known.pop("train.patience") is None
    run.update_stage("second", {"settings": known})
    assert is_unchanged(SECOND, run, config())
    assert both(run, config())[0] == ["unchanged", "unchanged"]
    assert both(run, config(train__patience=2))[0] == ["unchanged", "done"]


def test_changed_inputs_are_noticed(run: RunDirectory) -> None:
    both(run, config())
    done, said = both(run, config(seed=1))
    assert done == ["done", "done"]
    assert "seed 0 there, 1 now" in said[0]
    assert "its files changed" in said[1]


def test_deleted_results_are_made_again(run: RunDirectory) -> None:
    both(run, config())
    (run.metrics / "train.csv").unlink()
    run.metrics.rmdir()
    assert both(run, config())[0] == ["unchanged", "done"]
    assert len(learnt(run)) == 3


def test_an_interrupted_stage_is_taken_up(run: RunDirectory) -> None:
    run_stage(FIRST, run, config(), first)

    def stop(run: RunDirectory, settings: RunConfig) -> None:
        second(run, settings)
        (run.checkpoints / "3.pt").unlink()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(SECOND, run, config(), stop)
    assert run.stage("second")["state"] == "interrupted"
    (run.checkpoints / "1.pt").write_text("the same file")
    assert both(run, config())[0] == ["unchanged", "done"]
    assert learnt(run)[0] == "the same file"


def test_what_ended_a_stage_is_told_where_it_cannot_be_noted(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(run: RunDirectory, settings: RunConfig) -> None:
        monkeypatch.setattr("rlwb.experiment.run.write_json", no_space)
        raise KeyboardInterrupt

    def no_space(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(KeyboardInterrupt):
        run_stage(FIRST, run, config(), stop)
    assert run.state == "interrupted", "nobody holds it"


def test_failure_is_noted(run: RunDirectory) -> None:
    def fail(run: RunDirectory, settings: RunConfig) -> None:
        raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        run_stage(FIRST, run, config(), fail)
    assert run.stage("first")["state"] == "failed"
    assert run.stage("first")["error"] == "ValueError: no luck"
    assert not is_unchanged(FIRST, run, config())


def test_a_stage_must_make_what_it_promises(run: RunDirectory) -> None:
    with pytest.raises(RuntimeError, match="stage first ended without making orders"):
        run_stage(FIRST, run, config(), lambda run, settings: None)


def test_g13_what_is_missing_is_named(run: RunDirectory) -> None:
    with pytest.raises(
        ConfigError, match=r"second cannot start: stage first is not done; run first first \(1\.ipynb\)"
    ):
        run_stage(SECOND, run, config(), second)


def test_g13_stale_data_are_noticed(run: RunDirectory) -> None:
    run_stage(FIRST, run, config(), first)
    with pytest.raises(ConfigError, match=r"stage first was done with other settings \(seed 0 there, 1 now\)"):
        run_stage(SECOND, run, config(seed=1), second)
    (run.orders / "all.txt").unlink()
    run.orders.rmdir()
    with pytest.raises(ConfigError, match="the files of stage first are not those it left"):
        run_stage(SECOND, run, config(), second)


def test_data_count_by_contents_not_by_place(run: RunDirectory, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bars.csv").write_text("1,2")
        (tmp_path / folder / ".hidden").write_text(folder)
    run_stage(FIRST, run, config(market__source=str(tmp_path / "a")), first)
    moved = config(market__source=str(tmp_path / "b"))
    assert is_unchanged(FIRST, run, moved)
    (tmp_path / "b" / "bars.csv").write_text("1,3")
    assert not is_unchanged(FIRST, run, moved)


def harm(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1] + b"?")


@pytest.mark.parametrize(
    ("lost", "kept"),
    [("3.pt", ["1.pt", "2.pt"]), ("2.pt", ["1.pt"]), ("1.pt", [])],
    ids=["the last", "in the middle", "the first"],
)
@pytest.mark.parametrize(
    "way", [harm, Path.unlink, lambda path: path.write_bytes(b"")], ids=["changed", "gone", "empty"]
)
def test_k04_what_a_stage_lost_is_made_again_from_what_lies_before(
    run: RunDirectory, lost: str, kept: list[str], way: Callable[[Path], object]
) -> None:
    both(run, config())
    before = {name: (run.checkpoints / name).stat().st_ino for name in kept}
    way(run.checkpoints / lost)
    assert not is_unchanged(SECOND, run, config())
    done, said = both(run, config())
    assert done == ["unchanged", "done"]
    assert f"second: checkpoints/{lost} is not as the stage left it, and is made again" in said[1]
    assert learnt(run) == ["0.0025"] * 3
    assert {name: (run.checkpoints / name).stat().st_ino for name in kept} == before, "the same files"
    assert run.stage("second")["made_again"] == [f"checkpoints/{lost}"]
    assert both(run, config())[0] == ["unchanged", "unchanged"]


def test_k04_a_first_stage_that_lost_a_file_gives_the_next_what_it_had(run: RunDirectory) -> None:
    both(run, config())
    harm(run.orders / "all.txt")
    done, said = both(run, config())
    assert done == ["done", "unchanged"]
    assert "first: its files changed; what was there is now in superseded/" in said[0]


def test_k11_scraps_of_a_kill_are_no_input_and_no_output(run: RunDirectory) -> None:
    both(run, config())
    (run.orders / ".all.0a1b2c3d.rlwb-new.txt").write_text("half")
    (run.checkpoints / ".4.0a1b2c3d.rlwb-new.pt").write_text("half")
    before = inputs_of(SECOND, run)
    assert both(run, config())[0] == ["unchanged", "unchanged"]
    assert inputs_of(SECOND, run) == before
    assert not [path for path in run.path.rglob("*") if is_temporary(path.name)], "swept"


def bars(path: Path, price: int = 5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"instrument,datetime,open,high,low,close,volume\nA,2024-01-03 09:30:00,{price},{price},{price},{price},1\n"
    )


def qlib(folder: Path, price: float = 5.0) -> None:
    for name, text in (
        ("calendars/1min.txt", "2024-01-03 09:30:00"),
        ("instruments/all.txt", "A\t2024-01-03\t2024-01-03"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    (folder / "features" / "a").mkdir(parents=True, exist_ok=True)
    for name in ("open", "high", "low", "close", "volume"):
        np.array([0, price], dtype="<f4").tofile(folder / "features" / "a" / f"{name}.1min.bin")


def dataset(folder: Path, price: int = 5) -> None:
    with TemporaryDirectory() as source:
        bars(Path(source) / "x.csv", price)
        shutil.rmtree(folder, ignore_errors=True)
        import_bars([Path(source) / "x.csv"], folder, calendar=Calendar.preset("us"))


def rewrite(folder: Path) -> None:
    """Change the prices of a data set's own file by hand, and nothing else of it."""
    (file,) = (folder / "bars").glob("*.parquet")
    table = pq.read_table(file)
    pq.write_table(table.set_column(table.column_names.index("close"), "close", pa.array([7.0])), file)


SOURCES = {
    "a folder of CSV": (lambda folder: bars(folder / "a.csv"), lambda folder: bars(folder / "a.csv", 7), "."),
    "a CSV file behind a link": (
        lambda folder: bars(folder / "a.csv"),
        lambda folder: bars(folder / "a.csv", 7),
        "a.csv",
    ),
    "qlib": (qlib, lambda folder: qlib(folder, 7.0), "."),
    "qlib, its features": (qlib, lambda folder: qlib(folder, 7.0), "features"),
    "qlib, one instrument": (qlib, lambda folder: qlib(folder, 7.0), "features/a"),
    "a data set": (dataset, rewrite, "."),
    "a data set, its bars": (dataset, rewrite, "bars"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_k30_bars_that_are_changed_behind_a_link_are_other_bars(run: RunDirectory, tmp_path: Path, name: str) -> None:
    """The fingerprint has the files that the reader reads, wherever links lead, and so has the cache of panels."""
    write, change, linked = SOURCES[name]
    source, place = tmp_path / "source", tmp_path / "place"
    write(source)
    inside = (source / linked).resolve()
    shutil.move(inside, place)
    inside.symlink_to(place)
    settings = config(market__source=str(source))
    run_stage(FIRST, run, settings, first)
    key = _cache_key(source, is_dataset(source), {}, {})
    assert is_unchanged(FIRST, run, settings)
    backup = tmp_path / "backup"
    shutil.move(place, backup)
    shutil.copytree(backup, place) if backup.is_dir() else shutil.copy(backup, place)
    time.sleep(0.01)
    change(source)
    assert not is_unchanged(FIRST, run, settings)
    assert _cache_key(source, is_dataset(source), {}, {}) != key


def test_k30_files_that_no_reader_reads_are_no_part_of_the_bars(run: RunDirectory, tmp_path: Path) -> None:
    bars(tmp_path / "source" / "a.csv")
    settings = config(market__source=str(tmp_path / "source"))
    run_stage(FIRST, run, settings, first)
    (tmp_path / "source" / "README.md").write_text("these are bars")
    bars(tmp_path / "source" / "below" / "b.csv")
    assert is_unchanged(FIRST, run, settings)
    bars(tmp_path / "source" / "b.csv")
    assert not is_unchanged(FIRST, run, settings)


def test_k30_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    bars(tmp_path / "source" / "a.csv")
    (tmp_path / "source" / "again").symlink_to(tmp_path / "source")
    assert files_below(tmp_path / "source") == [tmp_path / "source" / "a.csv"]


def test_hash_of_a_folder_knows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1")
    before = hash_path(tmp_path)
    (tmp_path / "x").rename(tmp_path / "y")
    assert hash_path(tmp_path) != before
    assert hash_path(tmp_path / "y") != hash_path(tmp_path)


def test_the_real_stages_are_consistent() -> None:
    names = set(leaves(RunConfig().as_dict())) | set(RunConfig.model_fields)
    for number, stage in enumerate(STAGES):
        assert set(stage.after) <= set(STAGES[:number])
        assert {*stage.depends, *stage.extends, *stage.indifferent} <= names
        made = {output for earlier in stage.after for output in earlier.outputs}
        of_evaluations = {"origin", "policies"}
        assert {pattern.partition("/")[0] for pattern in stage.inputs} <= made | {"metrics"} | of_evaluations
