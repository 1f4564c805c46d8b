"""The built-in readers keep the contract of readers; a reader that breaks it is found out."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from rlwb.market.readers.conformance import check_reader
from rlwb.market.source import open_source
from rlwb.parts import BUILT_IN
from tests.market.readers.sources import SOURCES, binance


def test_every_built_in_reader_is_held_to_the_contract() -> None:
    assert set(SOURCES) == set(BUILT_IN["reader"])


@pytest.mark.parametrize("kind", list(SOURCES))
def test_built_in_readers_keep_the_contract(kind: str, tmp_path: Path) -> None:
    make, options, bars, counts = SOURCES[kind]
    source = make(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    assert open_source(source).kind == kind
    check_reader(kind, source, scratch, options=options, bars=bars, counts=counts)


BROKEN = {
    "everything": ("yield from read_binance(source, report=report)", None),
    "raises": ("assert source.read_bytes()[-1] >= 0\nyield from good", "raises IndexError, not a DataError"),
    "careless": (
        "try:\n    kept[source.name] = list(good)\nexcept Exception:\n    pass\nyield from kept[source.name]",
        "read as if it were whole",
    ),
    "trusting": (
        "text = source.read_bytes()\nif text[:3] == b'cos':\n    pickle.loads(text)\nyield from good",
        "what the file says was executed",
    ),
    "untyped": ("for table in good:\n    yield table.drop_columns('datetime')", "have no column datetime"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_reader_that_breaks_the_contract_is_found_out(name: str, tmp_path: Path) -> None:
    body, words = BROKEN[name]
    source = binance(tmp_path)
    code = dedent(
        """
        import pickle
        from rlwb.market.readers import reader
        from rlwb.market.readers.binance import klines, read_binance
        kept = {}

        @reader("mine", files=klines, recognises=lambda path: read_binance.recognises(path), by_file=True)
        def read_mine(source, *, instruments=None, report):
            good = read_binance(source, instruments=instruments, report=report)
        """
    ) + "".join(f"    {line}\n" for line in body.splitlines())
    (tmp_path / "mine.py").write_text(code)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    if words is None:  # what it does not pick out is picked for it
        check_reader(f"{tmp_path}/mine.py:read_mine", source, scratch, bars=6)
        return
    with pytest.raises(Exception, match=words):
        check_reader(f"{tmp_path}/mine.py:read_mine", source, scratch)


@pytest.mark.parametrize(
    ("bars", "counts", "words"), [(7, None, "6 bars in place of 7"), (6, {"unsorted": 1}, "counts")]
)
def test_other_numbers_than_stated_are_found_out(
    bars: int, counts: dict[str, int] | None, words: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=words):
        check_reader("binance", binance(tmp_path), tmp_path, bars=bars, counts=counts)
