"""When a stage is done again, taken up, or kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STAGES, hash_path, is_unchanged, run_stage
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
    assert "second: algorithm.learning_rate 0.002 there, 0.5 now; what was there is now in superseded/" in said[1]
    assert learnt(run) == ["0.5"] * 3
    (kept,) = (run.path / "superseded").iterdir()
    assert (kept / "checkpoints" / "3.pt").read_text() == "0.002"
    assert run.config.algorithm.settings["learning_rate"] == 0.5


def test_a_longer_training_goes_on(run: RunDirectory) -> None:
    both(run, config())
    before = (run.checkpoints / "1.pt").stat()
    done, said = both(run, config(train__iterations=5))
    assert done == ["unchanged", "done"]
    assert learnt(run) == ["0.002"] * 5
    assert (run.checkpoints / "1.pt").stat() == before, "the same file"
    assert not (run.path / "superseded").exists()
    assert said == ["first: unchanged, kept"]


def test_what_does_not_change_the_result_changes_nothing(run: RunDirectory) -> None:
    both(run, config())
    assert both(run, config(train__env="dummy", train__concurrency=7))[0] == ["unchanged", "unchanged"]


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
        assert {pattern.partition("/")[0] for pattern in stage.inputs} <= made | {"metrics", "origin"}
