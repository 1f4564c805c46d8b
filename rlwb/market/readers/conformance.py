"""The contract of readers, as one function to call in a test of your own.

With pytest's scratch folder and a small source that your reader reads::

    from rlwb.conformance import check_reader

    def test_my_reader(tmp_path):
        check_reader("mine.py:read_mine", Path("tests/data/mine"), tmp_path, bars=480)
"""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.errors import DataError
from rlwb.market.findings import Report
from rlwb.market.load import read_bars
from rlwb.market.readers.base import find_reader
from rlwb.market.source import open_source


def check_reader(
    name: str,
    source: Path,
    scratch: Path,
    *,
    options: Mapping[str, Any] | None = None,
    bars: int | None = None,
    counts: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """Assert that a reader keeps the contract on `source` and on every damaged copy of it; return the bars.

    Its bars are the same each time, and those of one instrument are picked out right. The source is not written to.
    Each file in turn is emptied, cut, and replaced by other things: the answer is then a `DataError` of one sentence
    that names the file or the source, or, for a cut file that still reads, no more bars than before. A file that would
    run code if it were trusted runs nothing. An `AssertionError` says how the reader breaks the contract.

    Parameters
    ----------
    name, options
        The reader, as `kind` and `options` of `rlwb.market.read_bars`.
    source
        A small file or folder, with the folders above that the reader needs to know it by.
    scratch
        An empty folder, where copies are damaged.
    bars, counts
        How many bars there are, and what the report counts, exactly; not checked by default.
    """
    label = find_reader(name).label
    assert label in ("start", "end", None), f"label is {label!r}"
    read = partial(read_bars, kind=name, options=options)
    before, report, second = _contents(source), Report(), Report()
    frame = read(source, report=report)
    assert len(frame), f"{source} has no bars; give one that has some"
    assert bars is None or len(frame) == bars, f"{len(frame)} bars in place of {bars}"
    assert counts is None or report.counts == dict(counts), f"the report counts {report.counts}"
    pd.testing.assert_frame_equal(frame, read(source, report=second))
    assert report == second, "the report differs the second time"
    instrument = str(frame["instrument"].dropna().iloc[-1])
    one = read(source, instruments=[instrument])
    wanted = frame[frame["instrument"] == instrument].reset_index(drop=True)
    assert one["instrument"].unique().tolist() == [instrument], "instruments are not picked out"
    # Columns that only other instruments have may be absent.
    columns = [column for column in wanted.columns if column in one.columns and column != "instrument"]
    pd.testing.assert_frame_equal(one[columns], wanted[columns])
    try:
        read(source, instruments=["no such instrument"])
        refusal = ""
    except DataError as error:
        refusal = str(error)
    assert "no such instrument" in refusal, "an instrument that is not there is not refused by its name"
    assert _contents(source) == before, f"{source} was written to"

    copy, marker = scratch / source.name, scratch / "executed"
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)
    for path in open_source(source, kind=name, options=options).files:
        target = copy / path.relative_to(source) if source.is_dir() else scratch / path.name
        if not target.exists():  # a file beside the one that is read
            shutil.copyfile(path, target)
        whole = target.read_bytes()
        for damage, content, must_fail in _damages(whole, marker):
            target.write_bytes(content)
            where = f"{path} ({damage})"
            try:
                found = len(read(copy))
            except DataError as error:
                check_refusal(str(error), where, (str(target), str(copy)))
            except Exception as error:
                raise AssertionError(f"{where} raises {type(error).__name__}, not a DataError: {error}") from error
            else:
                assert not must_fail, f"{where} is read as if it were whole"
                assert found <= len(frame), f"{where} gives more bars than the whole"
            assert not marker.exists(), f"{where}: what the file says was executed"
        target.write_bytes(whole)
    return frame


def _damages(whole: bytes, marker: Path) -> Iterator[tuple[str, bytes, bool]]:
    """Yield a damage, the content that it leaves, and whether that must be refused."""
    yield "emptied", b"", True
    for cut in sorted({1, len(whole) // 4, len(whole) // 2, len(whole) - 1}):
        yield f"cut to {cut} bytes", whole[:cut], False
    yield "an image", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4, True
    yield "a web page", b"<!DOCTYPE html>\n<html><body>404, not found</body></html>\n", True
    yield "text of another encoding", "bars, close\n".encode("utf-16"), True
    harm = f"cos\nmkdir\n(V{marker}\ntR.".encode()  # makes the folder when Python unpickles it
    yield "a pickle that runs code", harm, True
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../../executed.pkl", harm)
    yield "a ZIP archive of it", packed.getvalue(), True


def check_refusal(message: str, where: str, names: Sequence[str]) -> None:
    """Assert that a refusal is one sentence on one line that holds one of `names`; `where` is told if not."""
    assert message.endswith((".", ".)")), f"{where}: the refusal is no sentence: {message!r}"
    assert "\n" not in message, f"{where}: the refusal is not one line: {message!r}"
    assert any(name in message for name in names), f"{where}: the refusal does not name the file: {message!r}"


def _contents(source: Path) -> dict[Path, bytes]:
    """Return every file below `source` with its content, and every folder."""
    return {path: path.read_bytes() if path.is_file() else b"" for path in (source, *source.rglob("*"))}
