"""A panel that is built in parts is the panel that is built at once, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlwb.errors import RlwbError
from rlwb.market import Calendar, Sessions, import_bars, load_sessions
from rlwb.market.dataset import stored
from tests.market.helpers import day_bars, random_bars

CN = Calendar(segments=(("09:30", "10:30"), ("13:00", "14:00")), tick_minutes=2)
NIGHT = Calendar.preset("crypto", tick_minutes=60, label="end")
DAYS = ["2024-01-29", "2024-01-30", "2024-01-31", "2024-02-01", "2024-02-02", "2024-02-05", "2024-02-06", "2024-02-07"]
SIZES = [1, 150, 10**6]


def hard_bars() -> pd.DataFrame:
    """Return bars with one of nearly everything that is repaired, dropped or noted."""
    bars = random_bars(CN, ["000001", "600000.SH", "B", "INDEX", "NA"], DAYS, keep=0.95)
    rng = np.random.default_rng(5)
    bars["bid"], bars["ask"] = bars["close"] * 0.999, bars["close"] * 1.001
    bars["bid_size"] = bars["ask_size"] = rng.integers(0, 9, len(bars)).astype(float)
    bars["vwap"] = (bars["high"] + bars["low"]) / 2
    bars["factor"] = 1.0
    bars["halted"] = rng.random(len(bars)) < 0.02
    for name, bad in (("close", 0.0), ("open", -1.0), ("low", np.inf), ("high", 0.01), ("bid", 99.0), ("volume", -3.0)):
        bars.loc[rng.choice(len(bars), 9, replace=False), name] = bad
    bars.loc[rng.choice(len(bars), 9, replace=False), ["open", "high", "low", "close"]] = np.nan
    bars.loc[bars["instrument"] == "INDEX", "volume"] = 0.0
    day, name = bars["datetime"].dt.strftime("%Y-%m-%d"), bars["instrument"]
    late = bars["datetime"].dt.hour >= 13
    split = (name == "B") & (day >= "2024-02-02")
    bars.loc[split, ["open", "high", "low", "close", "bid", "ask", "vwap"]] /= 2
    bars.loc[split, "volume"] *= 2
    bars.loc[(name == "NA") & (day >= "2024-02-05"), ["open", "high", "low", "close", "vwap"]] *= 1.7
    bars.loc[(name == "600000.SH") & (day >= "2024-02-05"), "factor"] = 0.5
    bars.loc[day >= "2024-02-06", "volume"] *= 20
    gone = (name == "NA") & (day == "2024-01-31")  # no session between two
    gone |= (day == "2024-02-01") & late & (bars["datetime"].dt.minute >= 20)  # the market closes early
    bars = bars[~gone]
    thin = random_bars(CN, ["AN INSTRUMENT THAT HARDLY TRADES", "Z"], DAYS, seed=1, keep=0.03).assign(factor=1.0)
    closed = random_bars(CN, ["B"], ["2024-02-03", "2024-02-04"], seed=2)  # a weekend
    auctions = pd.concat([day_bars(CN, day, name, ticks=[59]) for day in DAYS for name in ("000001", "B", "INDEX")])
    auctions["datetime"] += pd.Timedelta(minutes=2)
    odd = auctions.head(9).assign(datetime=auctions["datetime"].head(9) - pd.Timedelta(minutes=59))
    noon = auctions.head(5).assign(datetime=auctions["datetime"].head(5) - pd.Timedelta(minutes=90))
    return pd.concat([bars, thin, closed, auctions, odd, noon], ignore_index=True)


def data_set(folder: Path, bars: pd.DataFrame, calendar: Calendar) -> Path:
    bars.to_parquet(folder / "bars.parquet")
    import_bars([folder / "bars.parquet"], folder / "set", calendar=calendar)
    return folder / "set"


def content(panel: Path) -> dict[str, Any]:
    """Return the bytes of all arrays, and what the JSON file says of the panel itself."""
    meta = json.loads((panel / "sessions.json").read_text())
    meta = {name: value for name, value in meta.items() if name not in ("settings", "source")}
    for kind in ("outlier", "jump"):  # which are looked for within a part; here parts cut instruments
        meta["report"]["findings"].pop(kind, None)
    return {"meta": json.dumps(meta)} | {path.name: path.read_bytes() for path in panel.glob("*.npy")}


def build(source: Path, folder: Path, most: int | None, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """Return the panel's content, or the error's message; built at once without `most`."""
    try:
        if most is None:
            return content(load_sessions(source, **options).save(folder / "at once"))
        monkeypatch.setattr(stored, "PART_BARS", most)
        panel = load_sessions(source, cache_dir=folder / f"cache {most}", **options)
        assert panel.directory is not None
        return content(panel.directory)
    except RlwbError as error:
        return str(error)


@pytest.fixture(scope="module")
def hard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_set(tmp_path_factory.mktemp("hard"), hard_bars(), CN)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_coverage": 0.0, "volume_multiplier": 100},
        {"prices": "adjusted"},
        {"instruments": ["B", "NA"], "start": "2024-01-30", "end": "2024-02-06"},
        {"calendar": Calendar(CN.segments, CN.tick_minutes, early_closes={"2024-02-05": "13:30"})},
        {"calendar": Calendar(CN.segments, CN.tick_minutes, infer_early_close_minutes=0)},
    ],
    ids=["plain", "lots", "adjusted", "selection", "stated", "not inferred"],
)
def test_every_size_of_part_makes_the_same_bytes(
    hard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    at_once = build(hard, tmp_path, None, monkeypatch, **options)
    assert len(at_once) == 16, "a JSON file, ten fields, instruments, dates, num_ticks, halted, factor"
    for most in SIZES:
        assert build(hard, tmp_path, most, monkeypatch, **options) == at_once


def test_the_report_of_a_panel_in_parts_names_what_the_whole_shows(
    hard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "PART_BARS", 40)
    report = load_sessions(hard, cache_dir=tmp_path).report
    assert {
        *("closed_day", "off_session", "auction", "off_grid", "after_early_close", "price_zero", "price_negative"),
        *("price_not_finite", "high_low", "quote_crossed", "volume_negative", "quote_only", "missing_tick"),
        *("sparse_session", "early_close_inferred", "no_volume", "price_jump", "factor_contradicted"),
        *("split_suspected", "volume_break"),
    } <= report.counts.keys()
    assert report.totals["instruments"] == 5
    assert report.totals["days"] == len(DAYS)
    assert report.examples["early_close_inferred"] == "2024-02-01: at 13:20"
    assert "B 2024-02-02" in [f"{one.instrument} {one.date}" for one in report.listed["split_suspected"]]
    assert report.examples["volume_break"].startswith("2024-02-06: median volume a tick times ")


def test_a_session_that_ends_in_the_next_month_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = ["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-29", "2024-03-01"]
    source = data_set(tmp_path, random_bars(NIGHT, ["A", "B"], days), NIGHT)
    at_once = build(source, tmp_path, None, monkeypatch)
    assert json.loads(at_once["meta"])["report"]["totals"]["sessions"] == 10
    for most in (1, 2, 23, 24, 25, 49, 100):
        assert build(source, tmp_path, most, monkeypatch) == at_once


REFUSED: dict[str, tuple[Calendar, dict[str, Any], str]] = {
    "strict": (CN, {"strict": True}, "the bars are not clean"),
    "nothing left": (CN, {"start": "2024-02-03", "end": "2024-02-04"}, "no session is left"),
    "too sparse": (CN, {"instruments": ["Z"], "min_coverage": 1.0}, "no session is left"),
    "length": (Calendar(CN.segments, 1), {}, "are 2 min apart"),
    "grid": (Calendar(CN.segments, 4), {}, "lie between ticks of 4 min"),
    "covers": (Calendar(CN.segments, 2, covers=("2024-02-01", "2024-12-31")), {}, "lie outside 2024-02-01"),
    "instrument": (CN, {"instruments": ["C"]}, "has no instrument C; the nearest"),
    "empty span": (CN, {"start": "2025-01-01"}, "has no bars from 2025-01-01; its bars are of 2024-01-"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_at_once_is_refused_in_parts(
    hard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    calendar, options, message = REFUSED[case]
    at_once = build(hard, tmp_path, None, monkeypatch, calendar=calendar, **options)
    assert message in at_once
    for most in SIZES:
        assert build(hard, tmp_path, most, monkeypatch, calendar=calendar, **options) == at_once
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".npy"], "nothing is left behind"


def test_factors_that_contradict_are_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = random_bars(CN, ["A", "B"], DAYS[:3]).assign(factor=1.0)
    bars.loc[bars["instrument"] == "B", "factor"] = np.nan
    source = data_set(tmp_path, bars, CN)
    at_once = build(source, tmp_path, None, monkeypatch)
    assert "B has no factor above 0 on 2024-01-29" in at_once
    assert build(source, tmp_path, 40, monkeypatch) == at_once


def test_bars_that_change_between_the_passes_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data_set(tmp_path, random_bars(CN, ["A", "B"], DAYS[:4]), CN)
    random_bars(CN, ["C"], DAYS[4:]).to_parquet(tmp_path / "more.parquet")
    monkeypatch.setattr(stored, "PART_BARS", 100)
    real, passes = stored.Stored.parts, []

    def parts(self: stored.Stored, calendar: Calendar | None = None) -> Any:
        passes.append(1)
        if len(passes) == 2:
            import_bars([tmp_path / "more.parquet"], source)
        return real(self, calendar)

    monkeypatch.setattr(stored.Stored, "parts", parts)
    with pytest.raises(RlwbError, match=r"while (they were|it was) read"):
        load_sessions(source, cache_dir=tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    names=st.lists(st.sampled_from(["A", "AA", "B", "é", "000001"]), min_size=1, unique=True),
    days=st.lists(st.sampled_from(DAYS), min_size=1, unique=True),
    keep=st.floats(0.2, 1.0),
    most=st.integers(1, 300),
)
def test_any_bars(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    names: list[str],
    days: list[str],
    keep: float,
    most: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    bars = random_bars(CN, names, days, seed, keep)
    if len(bars):
        source = data_set(folder, bars, CN)
        assert build(source, folder, most, monkeypatch) == build(source, folder, None, monkeypatch)


def test_parts_are_whole_sessions_of_about_the_asked_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data_set(tmp_path, random_bars(CN, ["A", "B", "C"], DAYS), CN)
    monkeypatch.setattr(stored, "PART_BARS", 200)
    parts = list(stored.Stored(source).parts(CN))
    assert sum(len(part) for part in parts) == 3 * len(DAYS) * 60
    assert len(parts) > 3
    keys: list[tuple[str, int]] = []
    for part in parts:
        assert len(part) <= 200
        assert len(part) % 60 == 0
        keys += list(zip(part.names[part.code].tolist(), part.stamp.tolist(), strict=True))
    assert keys == sorted(keys)


def test_a_data_set_in_one_part_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = data_set(tmp_path, random_bars(CN, ["A"], DAYS[:2]), CN)
    passes: list[int] = []
    real = stored.Stored.parts
    monkeypatch.setattr(stored.Stored, "parts", lambda self, calendar: passes.append(1) or real(self, calendar))
    whole = load_sessions(source, cache_dir=tmp_path / "cache")
    assert len(passes) == 1
    monkeypatch.setattr(stored, "PART_BARS", 40)
    assert load_sessions(source, cache_dir=tmp_path / "other").fingerprint == whole.fingerprint
    assert len(passes) == 3
    assert isinstance(whole, Sessions)
