"""A test of readers, the built-in ones and yours.

In a test of your own, with pytest's scratch folder and a small source that your reader reads::

    from rlwb.market.readers.conformance import check_reader

    def test_my_reader(tmp_path):
        check_reader(MyReader(), Path("tests/data/mine"), tmp_path, bars=480, counts={"unsorted": 2})
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import pandas as pd

from rlwb.errors import DataError
from rlwb.market.findings import REASONS, Report
from rlwb.market.readers.base import Reader
from rlwb.market.readers.frames import canonical_fault


def check_reader(
    reader: Reader,
    source: Path,
    scratch: Path,
    *,
    bars: int | None = None,
    counts: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Assert that `reader` keeps the contract on `source` and on every damaged copy of it; return the bars.

    The source is recognised by its names. Its bars are canonical (`join_bars`), the same each time, and those of one
    instrument are picked out right. The source is not written to. Each file in turn is emptied, cut, and replaced by
    other things: the answer is then a `DataError` of one sentence that names the file or the source, or, for a cut file
    that still reads, no more bars than before. A file that would run code if it were trusted runs nothing.

    Parameters
    ----------
    reader
        The reader with its options set.
    source
        A small file or folder, with the folders above that the reader needs to know it by.
    scratch
        An empty folder, where copies are damaged.
    bars
        How many bars there are; not checked by default.
    counts
        What the report counts, exactly; not checked by default.
    """
    assert reader.label in ("start", "end", None), f"label is {reader.label!r}"
    assert type(reader).recognises(source), f"{source} is not recognised by its names"
    before = _digest(source)
    frame, report = _read(reader, source)
    assert canonical_fault(frame) is None, canonical_fault(frame)
    assert len(frame), f"{source} has no bars; give one that has some"
    assert bars is None or len(frame) == bars, f"{len(frame)} bars in place of {bars}"
    assert counts is None or report.counts == dict(counts), f"the report counts {report.counts}"
    assert all(REASONS[reason] and report.examples[reason] for reason in report.counts), "a finding has no example"
    again, second = _read(reader, source)
    pd.testing.assert_frame_equal(frame, again)
    assert report == second, "the report differs the second time"
    _check_instruments(reader, source, frame)
    assert _digest(source) == before, f"{source} was written to"
    _check_damage(reader, source, scratch, len(frame))
    return frame


def _read(reader: Reader, source: Path) -> tuple[pd.DataFrame, Report]:
    report = Report()
    return reader.read(source, None, report), report


def _check_instruments(reader: Reader, source: Path, frame: pd.DataFrame) -> None:
    name = str(frame["instrument"].iloc[-1])
    one = reader.read(source, frozenset([name]), Report())
    wanted = frame[frame["instrument"] == name].reset_index(drop=True)
    assert one["instrument"].unique().tolist() == [name], "instruments are not picked out"
    # Columns that only other instruments have may be absent.
    columns = [column for column in wanted.columns if column in one.columns and column != "instrument"]
    pd.testing.assert_frame_equal(one[columns], wanted[columns])
    message = _refusal(reader, source, frozenset(["no such instrument"]))
    assert message is not None, "an instrument that is not there is not refused"
    assert "no such instrument" in message, f"the refusal does not name the instrument: {message}"


def _check_damage(reader: Reader, source: Path, scratch: Path, bars: int) -> None:
    copy = scratch / source.name
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)
    files, _ = reader.files(source)
    for path in files:
        target = copy / path.relative_to(source) if source.is_dir() else _beside(path, copy, scratch)
        whole = target.read_bytes()
        for name, content, must_fail in _damages(whole, scratch / "executed"):
            target.write_bytes(content)
            where = f"{path} ({name})"
            try:
                frame, _ = _read(reader, copy)
            except DataError as error:
                _check_sentence(str(error), where, (str(target), str(copy)))
            except Exception as error:
                raise AssertionError(f"{where} raises {type(error).__name__}, not a DataError: {error}") from error
            else:
                assert not must_fail, f"{where} is read as if it were whole"
                assert canonical_fault(frame) is None, f"{where}: {canonical_fault(frame)}"
                assert len(frame) <= bars, f"{where} gives more bars than the whole"
            assert not (scratch / "executed").exists(), f"{where}: what the file says was executed"
        target.write_bytes(whole)


def _beside(path: Path, copy: Path, scratch: Path) -> Path:
    target = copy if path.name == copy.name else scratch / path.name
    if not target.exists():
        shutil.copyfile(path, target)
    return target


def _damages(whole: bytes, marker: Path) -> Iterator[tuple[str, bytes, bool]]:
    """Yield a damage, the content that it leaves, and whether that must be refused."""
    yield "emptied", b"", True
    for cut in sorted({1, len(whole) // 4, len(whole) // 2, len(whole) - 1}):
        yield f"cut to {cut} bytes", whole[:cut], False
    yield "an image", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, True
    yield "a web page", b"<!DOCTYPE html>\n<html><body>404, not found</body></html>\n", True
    yield "text of another encoding", "bars, close\n".encode("utf-16"), True
    harm = pickle.dumps(_Harm(marker))
    yield "a pickle that runs code", harm, True
    yield "a ZIP archive of it", _zipped("../../executed.pkl", harm), True


class _Harm:
    """Makes a folder when it is unpickled by Python's own means."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.marker),)


def _zipped(name: str, content: bytes) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def _refusal(reader: Reader, source: Path, instruments: frozenset[str]) -> str | None:
    try:
        reader.read(source, instruments, Report())
    except DataError as error:
        return str(error)
    return None


def _check_sentence(message: str, where: str, names: tuple[str, ...]) -> None:
    assert message.endswith((".", ").")), f"{where}: the refusal is no sentence: {message!r}"
    assert "\n" not in message, f"{where}: the refusal is not one line: {message!r}"
    assert any(name in message for name in names), f"{where}: the refusal does not name the file: {message!r}"


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
        digest.update(str(path).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
