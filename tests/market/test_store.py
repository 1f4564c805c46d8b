"""A panel that is saved in parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, Report, Sessions
from rlwb.market.sessions import save_parts

SMALL = Calendar(segments=(("10:00", "10:03"),), infer_early_close_minutes=0)


def panel(*names: str, days: int = 3, halted: bool = False, fields: tuple[str, ...] = ("close", "volume")) -> Sessions:
    count = len(names) * days
    values = {field: np.arange(count * 3.0).reshape(count, 3) + len(field) + ord(names[0][0]) for field in fields}
    dates = np.tile(np.datetime64("2024-01-01") + np.arange(days), len(names))
    halts = values["close"] % 2 == 0 if halted else None
    totals = Report(totals={"sessions": count})
    return Sessions(SMALL, np.repeat(names, days), dates, np.full(count, 3), values, halted=halts, report=totals)


def joined(parts: list[Sessions]) -> Sessions:
    keys = [np.concatenate([getattr(part, name) for part in parts]) for name in ("instruments", "dates", "num_ticks")]
    fields = {name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields}
    halted = None if parts[0].halted is None else np.concatenate([np.asarray(part.halted) for part in parts])
    return Sessions(SMALL, *keys, fields, halted=halted)


@pytest.mark.parametrize("halted", [False, True])
def test_parts_make_the_panel_that_the_whole_makes(tmp_path: Path, halted: bool) -> None:
    parts = [panel("A", "B", halted=halted), panel("LONGER", halted=halted), panel("X", days=1, halted=halted)]
    opened = Sessions.open(save_parts(iter(parts), tmp_path / "parts"))
    joined(parts).save(tmp_path / "whole")
    assert opened.fingerprint == joined(parts).fingerprint
    assert opened.index.names.tolist() == ["A", "B", "LONGER", "X"]
    assert opened.report.totals == {"sessions": 10}
    files = sorted(path.name for path in (tmp_path / "whole").glob("*.npy"))
    assert len(files) == 5 + halted
    for name in files:
        content = (tmp_path / "parts" / name).read_bytes()
        assert content == (tmp_path / "whole" / name).read_bytes()
        np.save(tmp_path / "numpy.npy", np.load(tmp_path / "parts" / name))
        assert content == (tmp_path / "numpy.npy").read_bytes(), "the file that NumPy writes"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([panel("A"), panel("B", fields=("close", "open", "volume"))], "differ in calendar or fields"),
        ([panel("A"), panel("B", halted=True)], "differ in calendar or fields"),
        ([panel("B"), panel("A")], "sort the rows"),
        ([panel("A"), panel("A")], "without doubles"),
        ([], "no parts"),
    ],
)
def test_parts_that_make_no_panel_leave_nothing(tmp_path: Path, parts: list[Sessions], message: str) -> None:
    with pytest.raises(DataError, match=message):
        save_parts(parts, tmp_path / "panel")
    assert not list(tmp_path.iterdir())


def test_an_error_in_a_part_leaves_the_old_panel(tmp_path: Path) -> None:
    old = panel("A")
    old.save(tmp_path / "panel")

    def broken():
        yield panel("B")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        save_parts(broken(), tmp_path / "panel")
    assert Sessions.open(tmp_path / "panel").fingerprint == old.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["panel"]
