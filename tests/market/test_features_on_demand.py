"""Features computed by rows are those kept whole, to the last bit, and need little memory."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Normaliser, Sessions, features, references
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.schema import FIELDS, PRICES

SMALL = Calendar(segments=(("10:00", "10:07"),), infer_early_close_minutes=0)
#: Those of Qlib refer two days back; see test_qlib_features.py.
EVERY = FeatureSettings((*(name for name in BUILT_IN if not name.startswith("qlib_")), "returns@I1"))


def panel(seed: int, instruments: int, days: int, keep: float) -> Sessions:
    rng = np.random.default_rng(seed)
    shape = (instruments * days, SMALL.num_ticks)
    fields = {name: rng.uniform(5, 50, shape) if name in PRICES else rng.integers(0, 9, shape) for name in FIELDS}
    fields = {name: np.where(rng.random(shape) < keep, values, np.nan) for name, values in fields.items()}
    names = np.repeat([f"I{number}" for number in range(instruments)], days)
    dates = np.tile(np.datetime64("2024-01-01") + np.arange(days), instruments)
    length = rng.integers(3, SMALL.num_ticks + 1, len(names))
    for values in fields.values():
        values[np.arange(SMALL.num_ticks)[None, :] >= length[:, None]] = np.nan
    return Sessions(SMALL, names, dates, length, fields)


@pytest.fixture
def on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "KEPT_BYTES", 0)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    days=st.integers(3, 6),
    keep=st.sampled_from([0.7, 0.9, 1.0]),
    block=st.sampled_from([1, 14, 35, 1 << 18]),
)
def test_computed_rows_are_the_kept_ones(seed: int, days: int, keep: float, block: int) -> None:
    """However the sessions are cut into blocks, for statistics and for rows, in any order and with doubles."""
    sessions = panel(seed, 3, days, keep)
    rng = np.random.default_rng(seed)
    fit_rows = np.arange(len(sessions)) % days < max(1, days - 1)
    kept = MarketFeatures.build(sessions, EVERY, fit_rows=fit_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "KEPT_BYTES", 0)
        patch.setattr(references, "BLOCK_BARS", block)
        computed = MarketFeatures.build(sessions, EVERY, fit_rows=fit_rows)
        assert computed.normaliser.as_dict() == kept.normaliser.as_dict()
        rows = rng.integers(len(sessions), size=11)
        ticks = rng.integers(SMALL.num_ticks + 1, size=11)
        pairs = [(one.rows(rows), one.block(rows, ticks), one.block_previous(rows)) for one in (kept, computed)]
        assert all(a.tobytes() == b.tobytes() for a, b in zip(*pairs, strict=True))
        assert computed.today.tobytes() == kept.today.tobytes()
        assert computed.shape == kept.shape == kept.today.shape
        assert len(computed) == len(sessions)


def test_a_panel_is_kept_up_to_the_stated_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = panel(0, 2, 3, 1.0)
    exact = 4 * 2 * 3 * SMALL.num_ticks * 5
    for limit, same in ((exact, True), (exact - 1, False)):
        monkeypatch.setattr(features, "KEPT_BYTES", limit)
        built = MarketFeatures.build(sessions, fit_rows=np.array([0]))
        assert (built.today is built.today) is same
        assert not built.today.flags.writeable


@pytest.mark.usefixtures("on_demand")
def test_rows_are_copies_and_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    built = MarketFeatures.build(panel(0, 1, 3, 1.0), fit_rows=np.array([0]))
    built.rows(np.array([1]))[:] = 7.0
    assert not (built.today == 7.0).any()
    assert built.rows(np.array([], dtype=np.int64)).shape == (0, 7, 5)
    assert not built.block_previous(np.array([0])).any()


@pytest.mark.usefixtures("on_demand")
def test_they_go_to_other_processes_without_the_bars(tmp_path: Path) -> None:
    sessions = Sessions.open(panel(1, 4, 25, 0.9).save(tmp_path / "panel"))
    built = MarketFeatures.build(sessions, fit_rows=np.arange(50))
    message = pickle.dumps(built)
    assert len(message) < 6000  # 20 bytes a session: two references and yesterday's row
    rows = np.array([3, 77])
    assert pickle.loads(message).rows(rows).tobytes() == built.rows(rows).tobytes()


def test_memory_is_bounded_by_blocks_not_by_the_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 sessions of 390 ticks, mapped: 62 MB of bars and 31 MB of features, with the limit between them."""
    monkeypatch.setattr(features, "KEPT_BYTES", 1 << 20)
    calendar = Calendar.preset("us", tick_minutes=1)
    names = np.repeat([f"I{number:02d}" for number in range(40)], 100)
    dates = np.tile(np.datetime64("2024-01-01") + np.arange(100), 40)
    rng = np.random.default_rng(0)
    values = {name: rng.uniform(1, 2, (4000, 390)) for name in ("open", "high", "low", "close", "volume")}
    saved = Sessions(calendar, names, dates, np.full(4000, 390), values).save(tmp_path / "panel")
    del values
    sessions = Sessions.open(saved, verify=False)
    tracemalloc.start()
    try:
        built = MarketFeatures.build(sessions, fit_rows=np.arange(3000))
        _, fitting = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        rows = built.rows(np.arange(0, 4000, 2))
        _, reading = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fitting < 64e6
    assert reading - rows.nbytes < 64e6


@pytest.mark.usefixtures("on_demand")
def test_a_given_normaliser_reads_no_bars_before_they_are_asked(tmp_path: Path) -> None:
    sessions = panel(2, 2, 3, 1.0)
    stored = Normaliser(("spread",), np.zeros(1), np.ones(1))
    built = MarketFeatures.build(sessions, FeatureSettings(("spread",)), normaliser=stored)
    expected = np.log(sessions.fields["ask"][4]) - np.log(sessions.fields["bid"][4])
    length = sessions.num_ticks[4]
    np.testing.assert_allclose(built.rows(np.array([4]))[0, :length, 0], expected[:length], rtol=1e-6, atol=1e-7)
    assert not built.rows(np.array([4]))[0, length:].any()
