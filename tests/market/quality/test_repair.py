"""Faults put in on purpose, found, and mended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import SyntheticSettings, load_sessions, synthetic_bars, synthetic_sessions
from rlwb.market.quality import KINDS, check_bars, repair_bars, spoil_bars

MARKET = SyntheticSettings(instruments=3, days=8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_was_spoilt_is_found_and_mended(tmp_path: Path, seed: int) -> None:
    clean = synthetic_bars(MARKET)
    spoilt, truth = spoil_bars(clean, seed=seed)
    assert set(truth["kind"]) <= set(KINDS)
    spoilt.to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=MARKET.calendar)
    for fault in truth.itertuples():
        listed = quality.found.listed[fault.kind]
        assert any(one.instrument in (None, fault.instrument) and one.date in (None, fault.date) for one in listed), (
            fault
        )
    repaired, report = repair_bars(spoilt, quality)
    assert report.counts["finding_dropped"] == 6
    split = truth[truth["kind"] == "split_suspected"].iloc[0]
    before = (repaired["instrument"] == split["instrument"]) & (repaired["datetime"] < split["date"])
    assert (repaired["factor"] == np.where(before, 0.25, 1.0)).all()
    repaired.to_parquet(tmp_path / "repaired.parquet", index=False)
    again = check_bars(tmp_path / "repaired.parquet", calendar=MARKET.calendar).found.counts
    assert not {"outlier", "high_low", "split_suspected", "price_jump"} & set(again)
    found, wanted = load_sessions(tmp_path / "repaired.parquet", MARKET.calendar), synthetic_sessions(MARKET)
    assert found.factor is not None
    ratio = found.fields["close"] * found.factor[:, None] / wanted.fields["close"]
    there = np.isfinite(ratio)
    assert (~there).sum() == 3 + 6 + 5
    of_split = (found.instruments == split["instrument"])[:, None] & there
    differs = np.abs(ratio / np.where(of_split, 0.25, 1.0) - 1) > 1e-9
    assert differs[there].sum() <= 17, "the stale stretch alone, but for its first bar"


def test_nothing_is_changed_in_place_and_each_seed_is_its_own(tmp_path: Path) -> None:
    clean = synthetic_bars(MARKET)
    kept = clean.copy()
    first, again, other = (spoil_bars(clean, seed=seed)[0] for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(clean, kept)
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)
    with pytest.raises(DataError, match="has bars of 2 days; give bars of at least 6"):
        spoil_bars(clean[clean["datetime"] < "2023-01-05"])


def test_a_list_that_was_cut_is_no_ground_for_a_repair(tmp_path: Path) -> None:
    spoilt, _ = spoil_bars(synthetic_bars(MARKET))
    spoilt.to_csv(tmp_path / "bars.csv", index=False)
    quality = check_bars(tmp_path / "bars.csv", calendar=MARKET.calendar, limit=2)
    with pytest.raises(DataError, match="3 findings of outlier were counted and 2 are listed"):
        repair_bars(spoilt, quality)
    with pytest.raises(ConfigError, match="there is no kind of finding 'outlyer'"):
        repair_bars(spoilt, quality, drop=("outlyer",))
    kept, report = repair_bars(spoilt, quality, drop=(), splits=False)
    assert (len(kept), report.counts) == (len(spoilt), {})
