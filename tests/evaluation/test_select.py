from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import CheckpointError, ConfigError, DataError, FileError
from rlwb.evaluation import read_validation, select_checkpoints


def write_checkpoints(folder: Path, iterations, text: str = "good") -> None:
    for iteration in iterations:
        (folder / f"{iteration:04d}.pt").write_text(text)


def validation(pas) -> pd.DataFrame:
    return pd.DataFrame({"iteration": list(pas), "pa": list(pas.values()), "reward": 0.0})


def check(path: Path) -> None:
    if path.read_text() != "good":
        raise CheckpointError(f"{path} cannot be read; delete it.")


def chosen(selection) -> list[int]:
    return [checkpoint.iteration for checkpoint in selection.chosen]


def test_the_ten_best_are_chosen_best_first(tmp_path):
    write_checkpoints(tmp_path, range(1, 21))
    selection = select_checkpoints(validation({i: float(i % 7) for i in range(1, 21)}), tmp_path, check=check)
    assert chosen(selection) == [6, 13, 20, 5, 12, 19, 4, 11, 18, 3]
    assert selection.excluded == ()
    assert selection.ranked == 20
    assert selection.chosen[0].path == tmp_path / "0006.pt"
    assert selection.chosen[0].policy == "checkpoint-0006"


def test_e05_three_checkpoints_work_and_n_is_said(tmp_path):
    write_checkpoints(tmp_path, [1, 2, 3])
    selection = select_checkpoints(validation({1: 0.5, 2: 2.0, 3: 1.0}), tmp_path)
    assert chosen(selection) == [2, 3, 1]
    assert "n = 3" in selection.describe()
    assert "10 were asked for" in selection.describe()


def test_e05_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"No checkpoint in .* can be chosen .*train again"):
        select_checkpoints(validation({}), tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        select_checkpoints(validation({}), tmp_path / "nowhere")
    write_checkpoints(tmp_path, [1])
    with pytest.raises(CheckpointError, match="its validation PA is missing"):
        select_checkpoints(validation({1: float("nan")}), tmp_path)


def test_e05_equal_pas_rank_by_iteration(tmp_path):
    write_checkpoints(tmp_path, range(1, 13))
    frame = validation(dict.fromkeys(range(1, 13), 1.5)).sample(frac=1, random_state=0)
    assert chosen(select_checkpoints(frame, tmp_path)) == list(range(1, 11))


def test_e05_missing_pa_never_ranks(tmp_path):
    write_checkpoints(tmp_path, range(1, 13))
    pas = {i: float(i) if i % 2 else float("nan") for i in range(1, 13)} | {2: 2.0, 4: float("inf")}
    selection = select_checkpoints(validation(pas), tmp_path)
    assert chosen(selection) == [11, 9, 7, 5, 3, 2, 1]
    assert "n = 7" in selection.describe()
    assert [item.iteration for item in selection.excluded] == [4, 6, 8, 10, 12]


def test_e07_damaged_files_are_named_and_the_rest_goes_on(tmp_path):
    write_checkpoints(tmp_path, range(1, 11))
    (tmp_path / "0004.pt").write_text("go")
    (tmp_path / "0009.pt").write_bytes(b"")
    selection = select_checkpoints(validation({i: float(i) for i in range(1, 11)}), tmp_path, check=check)
    assert chosen(selection) == [10, 8, 7, 6, 5, 3, 2, 1]
    reasons = {item.path.name: item.reason for item in selection.excluded}
    assert list(reasons) == ["0004.pt", "0009.pt"]
    assert all(reason.startswith("it is damaged") and name in reason for name, reason in reasons.items())
    assert "0004.pt: it is damaged" in selection.describe()


def test_e07_a_damaged_file_gives_its_place_to_the_next(tmp_path):
    write_checkpoints(tmp_path, range(1, 13))
    (tmp_path / "0012.pt").write_text("cut")
    assert chosen(select_checkpoints(validation({i: float(i) for i in range(1, 13)}), tmp_path, check=check)) == list(
        range(11, 1, -1)
    )


def test_rows_without_file_files_without_row_and_strange_names_are_named(tmp_path):
    write_checkpoints(tmp_path, [1, 2])
    (tmp_path / "best.pt").write_text("good")
    (tmp_path / "latest").symlink_to("0002.pt")
    (tmp_path / ".0003.1a2b.tmp.pt").touch()  # what a kill leaves
    (tmp_path / "0004.pt").symlink_to("gone.pt")
    selection = select_checkpoints(validation({1: 1.0, 3: 3.0, 4: 4.0}), tmp_path, check=check)
    assert chosen(selection) == [1]
    assert [(item.iteration, item.path and item.path.name) for item in selection.excluded] == [
        (2, "0002.pt"),
        (3, None),
        (4, "0004.pt"),
        (None, "best.pt"),
    ]


def test_two_runs_in_one_metrics_file_are_refused_but_a_repeated_row_is_not(tmp_path):
    write_checkpoints(tmp_path, [1])
    twice = pd.concat([validation({1: 1.0})] * 2)
    assert chosen(select_checkpoints(twice, tmp_path)) == [1]
    with pytest.raises(DataError, match="iteration 1 two different PAs"):
        select_checkpoints(pd.concat([twice, validation({1: 1.5})]), tmp_path)


def test_wrong_arguments_and_metrics_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="count is 0"):
        select_checkpoints(validation({1: 1.0}), tmp_path, count=0)
    with pytest.raises(DataError, match="lack the column 'pa'"):
        select_checkpoints(validation({1: 1.0}).drop(columns="pa"), tmp_path)
    with pytest.raises(DataError, match="without an iteration"):
        select_checkpoints(pd.DataFrame({"iteration": [None], "pa": [1.0]}), tmp_path)


def test_reading_the_metrics(tmp_path):
    path = tmp_path / "validation.csv"
    with pytest.raises(CheckpointError, match="does not exist"):
        read_validation(path)
    path.write_text("")
    with pytest.raises(FileError, match=r"validation\.csv cannot be read"):
        read_validation(path)
    path.write_text("iteration,pa\n1,2.5\n2,\n")
    assert read_validation(path)["pa"].isna().tolist() == [False, True]


@given(pas=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.5, float("nan")]), min_size=1, max_size=15))
def test_the_chosen_are_those_a_stable_sort_gives(tmp_path_factory, pas):
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder, range(1, len(pas) + 1))
    table = dict(enumerate(pas, start=1))
    expected = sorted((i for i in table if table[i] == table[i]), key=lambda i: (-table[i], i))[:10]
    if expected:
        assert chosen(select_checkpoints(validation(table), folder)) == expected
    else:
        with pytest.raises(CheckpointError):
            select_checkpoints(validation(table), folder)


def test_under_costs_the_net_pa_ranks(tmp_path):
    write_checkpoints(tmp_path, (1, 2))
    table = pd.DataFrame({"iteration": [1, 2], "pa": [9.0, 1.0], "pa_net": [-9.0, -1.0]})
    assert chosen(select_checkpoints(table, tmp_path)) == [1, 2]
    selection = select_checkpoints(table, tmp_path, metric="pa_net")
    assert [(one.iteration, one.validation_pa) for one in selection.chosen] == [(2, -1.0), (1, -9.0)]
    with pytest.raises(DataError, match="lack the column 'pa_net'"):
        select_checkpoints(table.drop(columns="pa_net"), tmp_path, metric="pa_net")
