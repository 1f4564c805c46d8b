"""What checkpoints hold: only what comes back, the history in one place, and no more than the disk has (J04, K34)."""

from __future__ import annotations

import collections
import datetime as dt
import enum
import io
import re
import shutil
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rlwb.errors import CheckpointError, ConfigError
from rlwb.trainer import Callback, Checkpoint, History, MetricsWriter, Trainer, load_checkpoint, save_checkpoint
from rlwb.trainer.checkpoint import FORMAT
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import assert_same_weights, small_vessel


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Name(enum.StrEnum):
    A = "a"


class Text(str):
    pass


Pair = collections.namedtuple("Pair", "a b")
itself: list[Any] = []
itself.append(itself)

#: What no checkpoint gives back.
LOST = [
    dt.date(2024, 1, 2),
    dt.datetime(2024, 1, 2),
    dt.timedelta(1),
    pd.Timestamp("2024-01-02"),
    np.datetime64("2024-01-02"),
    np.timedelta64(1, "D"),
    np.array(["2024-01-02"], dtype="M8[D]"),
    Path("a"),
    Colour.RED,
    Level.LOW,
    Name.A,
    Text("a"),
    Pair(1, 2),
    {1, 2},
    frozenset({1}),
    Decimal("0.1"),
    range(3),
    np.array(["a"]),
    np.array([None]),
    np.longdouble(1),
    np.arange(2, dtype=np.longdouble),
    pd.Series([1]),
    np.random.default_rng(0),
    SimpleNamespace(a=1),
    len,
    object,
]


@pytest.mark.parametrize("value", LOST, ids=lambda value: type(value).__name__)
def test_j04_what_cannot_be_loaded_again_is_refused_before_the_first_iteration(tmp_path: Path, value: Any) -> None:
    """In meta and in the state of a callback; nothing is trained, no file is there."""

    class Own(Callback):
        def state_dict(self) -> dict[str, Any]:
            return {"plain": 1, "deep": [{"when": value}]}

    rows: list[int] = []
    seen = Callback()
    seen.on_iter_end = lambda trainer, _vessel: rows.append(trainer.current_iter)  # type: ignore[method-assign]
    cases = (([Checkpoint(tmp_path, meta={"when": value})], "meta['when']"),)
    cases += (([Own(), Checkpoint(tmp_path)], "callbacks['Own']['deep'][0]['when']"),)
    for callbacks, place in cases:
        with pytest.raises(CheckpointError, match=rf"^{re.escape(place)} is a .*{type(value).__name__}"):
            Trainer(max_iters=1, callbacks=[seen, *callbacks]).fit(corridor_vessel())
    with pytest.raises(CheckpointError, match="key"):
        save_checkpoint(tmp_path / "a.pt", {"a": {value if _hashes(value) else Path("a"): 1}})
    assert not rows
    assert not list(tmp_path.iterdir())


def _hashes(value: Any) -> bool:
    return isinstance(value, (dt.date, Path, enum.Enum, Decimal))


def test_j04_a_state_that_becomes_so_later_is_refused_at_its_first_save(tmp_path: Path) -> None:
    class Late(Callback):
        when: Any = None

        def on_iter_start(self, trainer: Trainer, vessel: Any) -> None:
            self.when = dt.date(2024, 1, trainer.current_iter + 1)

        def state_dict(self) -> dict[str, Any]:
            return {"when": self.when}

    with pytest.raises(CheckpointError, match=r"callbacks\['Late'\]\['when'\] is a datetime.date"):
        Trainer(max_iters=3, callbacks=[Late(), Checkpoint(tmp_path)]).fit(corridor_vessel())
    assert not list(tmp_path.iterdir())


def test_j04_what_torch_writes_and_cannot_read_is_noticed_before_training(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read back"):
        Trainer(max_iters=1, callbacks=[Checkpoint(tmp_path, meta={"n": 10**700})]).fit(corridor_vessel())
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        save_checkpoint(tmp_path / "a.pt", {"n": 10**700}, read_back=True)
    assert not list(tmp_path.iterdir())


def test_j04_numbers_of_numpy_come_back_as_plain_ones(tmp_path: Path) -> None:
    state = {
        "text": np.str_("a"),
        "bytes": np.bytes_(b"a"),
        "half": np.float16(0.5),
        "complex": np.complex64(1j),
        "big endian": np.arange(3, dtype=">i4"),
        "backwards": np.arange(3)[::-1],
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "nothing": np.empty((0, 2)),
        "ordered": collections.OrderedDict(a=1),
        "counter": collections.Counter("aab"),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "pair": (1, (2.0, None)),
        np.int64(3): True,
        (1, "b"): b"c",
    }
    save_checkpoint(tmp_path / "a.pt", state, read_back=True)
    loaded = load_checkpoint(tmp_path / "a.pt")
    assert loaded.pop("format") == FORMAT
    assert [type(key) for key in loaded] == [*[str] * 12, int, tuple]
    for (key, value), back in zip(state.items(), loaded.values(), strict=True):
        if isinstance(value, (np.ndarray, torch.Tensor)):
            assert back.tolist() == value.tolist(), key
        else:
            assert back == value, key
    assert (type(loaded["text"]), type(loaded["half"]), type(loaded["counter"])) == (str, float, dict)


def test_k34_equal_states_are_equal_bytes_whatever_the_file_is_called(tmp_path: Path) -> None:
    for name in ("0001.pt", "deep/another name.pt"):
        save_checkpoint(tmp_path / name, {"weights": torch.arange(5.0), "a": [1, 2.0]})
    assert (tmp_path / "0001.pt").read_bytes() == (tmp_path / "deep" / "another name.pt").read_bytes()


def fit(folder: Path, iterations: int, ckpt: Path | None = None, **keep: Any) -> Any:
    vessel = small_vessel()
    callbacks = [MetricsWriter(folder / "metrics"), Checkpoint(folder, **keep)]
    Trainer(max_iters=iterations, val_every_n_iters=2, callbacks=callbacks).fit(vessel, ckpt)
    return vessel


def test_k34_equal_trainings_are_equal_files_resumed_or_not(tmp_path: Path) -> None:
    """No seconds, names or history are in a checkpoint; a resume changes no byte."""
    one, two, cut = (tmp_path / name for name in ("one", "two", "cut"))
    first = fit(one, 4)
    fit(two, 4)
    fit(cut, 2)
    last = fit(cut, 4, cut / "0002.pt")
    assert_same_weights(first.policy, last.policy)
    for number in range(1, 5):
        content = (one / f"000{number}.pt").read_bytes()
        assert content == (two / f"000{number}.pt").read_bytes()
        assert content == (cut / f"000{number}.pt").read_bytes()
    for name in ("train", "validation"):
        tables = [pd.read_csv(folder / "metrics" / f"{name}.csv") for folder in (one, cut)]
        a, b = (table.drop(columns="seconds", errors="ignore") for table in tables)
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert (one / "metrics/validation.csv").read_bytes() == (cut / "metrics/validation.csv").read_bytes()


def test_k34_a_checkpoint_does_not_grow_with_the_iterations(tmp_path: Path) -> None:
    fit(tmp_path, 30)
    sizes = [(tmp_path / f"{number:04d}.pt").stat().st_size for number in (4, 30)]
    assert sizes[1] - sizes[0] < 200, sizes  # digits, not rows


@pytest.mark.parametrize("name", ["train", "validation"])
@pytest.mark.parametrize("damage", ["gone", "cut", "text"])
def test_k34_a_history_that_is_not_there_is_told(tmp_path: Path, name: str, damage: str) -> None:
    """It is in one place alone, so a training that cannot find it does not go on without."""
    fit(tmp_path, 4)
    path = tmp_path / "metrics" / f"{name}.csv"
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    else:
        path.write_bytes(b"\xff\x00 no table")
    with pytest.raises(CheckpointError, match=rf"{name}\.csv"):
        fit(tmp_path, 6, tmp_path / "0004.pt")


def test_k34_figures_go_through_the_table_to_the_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"iteration": number, "n": int(number), "x": float(value), **({"late": 1.5} if number > 2 else {})}
        for number, value in enumerate(rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200), start=1)
    ]
    rows[3]["x"], rows[4]["x"], rows[5]["x"] = float("nan"), float("inf"), -0.0
    writer = MetricsWriter(tmp_path)
    writer.train = rows
    writer._write()
    before = (tmp_path / "train.csv").read_bytes()
    again = MetricsWriter(tmp_path)
    again.load_state_dict(writer.state_dict())
    again.on_fit_start(SimpleNamespace(current_iter=200), None)  # type: ignore[arg-type]
    assert (tmp_path / "train.csv").read_bytes() == before
    for row, back in zip(rows, again.train, strict=True):
        np.testing.assert_equal({name: back[name] for name in row}, row)


def test_k34_a_history_in_memory_is_in_no_checkpoint(tmp_path: Path) -> None:
    history = History()
    Trainer(max_iters=2, callbacks=[history, Checkpoint(tmp_path)]).fit(small_vessel())
    assert load_checkpoint(tmp_path / "0002.pt")["callbacks"]["History"] == {}
    Trainer(max_iters=2, callbacks=[history]).fit(small_vessel(), tmp_path / "0001.pt")
    assert [row["iteration"] for row in history.train] == [1, 2]


def test_k34_the_best_are_kept_where_a_resume_begins_to_count(tmp_path: Path) -> None:
    """The figures that rank are in the files themselves, so keep may change at a resume."""
    fit(tmp_path, 6)
    pa = pd.read_csv(tmp_path / "metrics/validation.csv").set_index("iteration")["pa"]
    fit(tmp_path, 7, tmp_path / "0006.pt", keep_best=1, keep_last=1)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == sorted({f"{pa.idxmax():04d}.pt", "0007.pt"})


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))


@pytest.mark.parametrize(
    ("keep", "iterations", "files"),
    [
        ({}, 10, 10),
        ({"every_n_iters": 3}, 10, 4),  # 3, 6, 9 and the last
        ({"every_n_iters": 5}, 10, 2),
        ({"every_n_iters": None}, 10, 1),
        ({"keep_best": 2, "keep_last": 3}, 10, 6),  # and one more until another is gone
        ({"keep_best": 2}, 10, 4),
        ({"keep_last": 50}, 10, 10),
    ],
)
def test_k34_a_disk_that_is_too_small_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: dict[str, Any], iterations: int, files: int
) -> None:
    buffer = io.BytesIO()
    vessel = small_vessel()
    torch.save({name: torch.as_tensor(v) for name, v in vessel.policy.network.state_dict().items()}, buffer)
    checkpoint = Checkpoint(tmp_path / "new" / "deeper", **keep)
    trainer = Trainer(max_iters=iterations, val_every_n_iters=1, callbacks=[checkpoint])
    disk(monkeypatch, 0)
    with pytest.raises(ConfigError, match=r"need about .* MB and the disk has 0; free some") as refused:
        trainer.fit(vessel)
    assert not (tmp_path / "new").exists()
    megabytes = float(re.search(r"need about ([\d,]+) MB", str(refused.value))[1])  # type: ignore[index]
    assert checkpoint.space_needed(trainer, 1_000_000) == files * 1_000_000
    assert megabytes * 1e6 >= files * 2 * len(buffer.getvalue()) - 5e5  # weights and two moments
    disk(monkeypatch, 10**9)
    trainer.fit(small_vessel())
    assert len(list(checkpoint.dirpath.glob("*.pt"))) <= files


def test_k34_a_disk_that_is_nearly_too_small_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path / "one", 2)
    size = (tmp_path / "one" / "0001.pt").stat().st_size
    disk(monkeypatch, 3 * size)
    fit(tmp_path / "two", 2)
    assert "need about" in caplog.text


def test_k34_what_is_there_already_needs_no_more_space(tmp_path: Path) -> None:
    fit(tmp_path, 4, keep_last=2)
    trainer = Trainer(max_iters=8)
    trainer.current_iter = 4
    assert Checkpoint(tmp_path, keep_last=2).space_needed(trainer, 10) == 10
    assert Checkpoint(tmp_path).space_needed(trainer, 10) == 40
    assert Checkpoint(tmp_path).space_needed(Trainer(fast_dev_run=2), 10) == 20


def test_k34_checkpoints_that_grow_are_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Grows(Callback):
        def __init__(self) -> None:
            self.rows = np.zeros(1)

        def on_iter_end(self, trainer: Trainer, vessel: Any) -> None:
            self.rows = np.zeros(100_000)

        def state_dict(self) -> dict[str, Any]:
            return {"rows": self.rows}

    disk(monkeypatch, 1_000_000)
    Trainer(max_iters=4, callbacks=[Grows(), Checkpoint(tmp_path)]).fit(corridor_vessel())
    assert [record.message for record in caplog.records if "need about 2 MB" in record.message]
    assert len([record for record in caplog.records if "the disk has" in record.message]) == 1
