"""Qlib's features (L02): by hand, beside its own processed tables, and those tables read as they are."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import (
    Calendar,
    FeatureSettings,
    MarketFeatures,
    Normaliser,
    Sessions,
    load_sessions,
    read_qlib_features,
)
from rlwb.market import features as module
from rlwb.market.catalogue import SETS, Block
from rlwb.market.feature_registry import check_causal, find_feature
from rlwb.market.references import References
from tests.market.helpers import random_bars, raw_column
from tests.market.test_features import SMALL, build

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "qlib"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared data are not beside the checkout")
QLIB = FeatureSettings(("qlib",), previous_day=True, scaling="qlib", clip=1e9)


def panel(close: list[list[float]], volume: list[list[float]], days: list[int], opened: float = 0.5) -> Sessions:
    """Two ticks a session of one instrument on the given days of January; the open is half a unit below the close."""
    calendar = Calendar(segments=(("10:00", "10:02"),), weekdays=tuple(range(7)))
    prices, count = np.array(close, dtype=float), len(close)
    fields = {**dict.fromkeys(("high", "low", "close"), prices), "open": prices - opened, "volume": np.array(volume)}
    dates = np.array([f"2024-01-{day:02d}" for day in days], dtype="datetime64[D]")
    return Sessions(calendar, np.array(["A"] * count), dates, np.full(count, 2), fields)


def yesterday(sessions: Sessions, name: str) -> np.ndarray:
    return find_feature(name).yesterday()(Block(References(sessions), np.arange(len(sessions))))


def test_l02_prices_are_over_the_close_of_two_days_before_and_yesterdays_over_their_own() -> None:
    nan = np.nan
    sessions = panel([[8, 10], [12, 16], [20, nan], [nan, 24]], [[1.0, 1]] * 4, [1, 2, 3, 4])
    close = raw_column(sessions, "qlib_close")
    assert np.isnan(close[:2]).all()  # two days are history
    # 2024-01-03: over 10; the missing bar has the last ratio, 20 / 10. 2024-01-04: over 16, after that ratio.
    np.testing.assert_allclose(close[2:], [[2.0, 2.0], [2.0, 1.5]])
    np.testing.assert_allclose(raw_column(sessions, "qlib_open")[2:], [[1.95, 1.95], [1.95, 23.5 / 16]], rtol=1e-6)
    before = yesterday(sessions, "qlib_close")
    assert np.isnan(before[0]).all()
    np.testing.assert_allclose(before[1:], [[0.8, 1.0], [0.75, 1.0], [1.0, 1.0]])  # over 10, 16 and 20


def test_l02_a_day_is_one_of_the_panel_and_a_suspended_one_keeps_the_last_ratio() -> None:
    one = panel([[8, 10], [12, 16], [20, 30]], [[2.0, 4], [6, 8], [10, 20]], [1, 2, 4])
    other = panel([[1, 1]] * 4, [[1.0, 1]] * 4, [1, 2, 3, 4])
    both = Sessions(
        one.calendar,
        np.array([*["A"] * 3, *["B"] * 4]),
        np.concatenate([one.dates, other.dates]),
        np.full(7, 2),
        {name: np.concatenate([one.fields[name], other.fields[name]]) for name in one.fields},
    )
    # On the 4th, two days before is the 2nd: 16. Yesterday, the 3rd, has no bar: the last ratio before it stands.
    np.testing.assert_allclose(raw_column(both, "qlib_close")[2], [20 / 16, 30 / 16])
    np.testing.assert_allclose(yesterday(both, "qlib_close")[2], [1.0, 1.0])
    # The mean of the days before today is (2 + 4 + 6 + 8) / 4; the volume of the suspended day is 0.
    np.testing.assert_allclose(raw_column(both, "qlib_volume")[:3], np.log1p([[0, 0], [2.0, 8 / 3], [2.0, 4.0]]))
    np.testing.assert_allclose(
        yesterday(both, "qlib_volume")[:3], np.log1p([[0, 0], [2 / 3, 4 / 3], [0, 0]]), rtol=1e-6
    )


def test_l02_the_volumes_mean_is_over_thirty_days() -> None:
    days = 28
    volume = [[1.0, 1.0]] * days
    volume[0] = [1000.0, 1000.0]
    more = panel([[1.0, 1.0]] * days, volume, list(range(1, days + 1)))
    shifted = np.datetime64("2023-12-01") + np.arange(35)
    longer = Sessions(
        more.calendar,
        np.array(["A"] * 35),
        shifted,
        np.full(35, 2),
        {name: np.concatenate([values, values[1:8]]) for name, values in more.fields.items()},
    )
    found = raw_column(longer, "qlib_volume")[:, 0]
    np.testing.assert_allclose(found[30], np.log1p(1 / ((1000 + 29) / 30)), rtol=1e-6)  # the first day still counts
    np.testing.assert_allclose(found[31], np.log1p(1.0), rtol=1e-6)


def test_l02_the_scale_is_pooled_and_of_distances_without_sign() -> None:
    sessions = build(random_bars(SMALL, ["A", "B"], [f"2024-01-{day:02d}" for day in range(1, 13)], 3))
    train = sessions.dates < np.datetime64("2024-01-09")
    features = MarketFeatures.build(sessions, QLIB, fit_rows=train)
    assert features.columns == SETS["qlib"]
    both = [kind(sessions, name)[train] for name in SETS["qlib"][:4] for kind in (raw_column, yesterday)]
    values = np.concatenate([one[np.isfinite(one)] for one in both])
    np.testing.assert_allclose(features.normaliser.mean[:4], values.mean(), rtol=1e-12)
    np.testing.assert_allclose(features.normaliser.scale[:4], np.abs(values - values.mean()).std(), rtol=1e-12)
    assert features.normaliser.mean[4] != features.normaliser.mean[0]
    raw = yesterday(sessions, "qlib_high")[5]
    wanted = (raw - values.mean()) / np.abs(values - values.mean()).std()
    np.testing.assert_allclose(features.block_previous(np.array([5]))[0, :, 1], wanted, rtol=1e-6)
    with pytest.raises(ConfigError, match="not for gap"):
        FeatureSettings(("qlib", "gap"), scaling="qlib")
    with pytest.raises(ConfigError, match="Qlib have yesterday"):
        MarketFeatures.build(sessions, FeatureSettings(("qlib", "close"), previous_day=True), fit_rows=train)


def test_l02_rows_on_demand_are_the_kept_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = build(random_bars(SMALL, ["A", "B"], [f"2024-01-{day:02d}" for day in range(1, 9)], 4, keep=0.7))
    kept = MarketFeatures.build(sessions, QLIB, fit_rows=np.arange(len(sessions)))
    monkeypatch.setattr(module, "KEPT_BYTES", 0)
    computed = MarketFeatures.build(sessions, QLIB, fit_rows=np.arange(len(sessions)))
    rows = np.array([7, 2, 11])
    np.testing.assert_array_equal(computed.rows(rows), kept.rows(rows))
    np.testing.assert_array_equal(computed.block_previous(rows), kept.block_previous(rows))


@pytest.mark.parametrize("name", [*SETS["qlib"], "qlib_vwap"])
def test_l02_yesterdays_block_sees_nothing_of_today(name: str) -> None:
    check_causal(find_feature(name), trials=60)
    check_causal(find_feature(name).yesterday(), trials=60)


@pytest.fixture(scope="module")
def shared() -> Sessions:
    calendar = Calendar.preset("cn", tick_minutes=1, label="start")
    return load_sessions(SHARED / "cn_1min", calendar, kind="qlib", options={"freq": "1min"})


def tables() -> pd.DataFrame:
    parts = ("train", "valid", "test")
    return pd.concat([pd.read_pickle(SHARED / "cn_1min_pickle" / f"feature_{part}.pkl") for part in parts])


@needs_shared
def test_l02_every_value_of_qlibs_tables_is_computed_from_the_bars(shared: Sessions) -> None:
    table = tables()
    stamps = table.index.get_level_values("datetime")
    row = shared.rows(table.index.get_level_values("instrument"), stamps.to_numpy().astype("datetime64[D]"))
    tick = np.searchsorted(shared.calendar.tick_start, (stamps - stamps.normalize()).total_seconds())
    train = (shared.dates >= np.datetime64("2024-03-07")) & (shared.dates <= np.datetime64("2024-03-12"))
    fitted = MarketFeatures.build(shared, QLIB, fit_rows=train)
    theirs = {name: float(np.load(SHARED / "cn_1min_pickle" / "stat" / f"{name}.npy")) for name in STATISTICS}
    for kind in ("price", "volume"):
        place = 0 if kind == "price" else 4
        np.testing.assert_allclose(fitted.normaliser.mean[place], theirs[f"{kind}_mean"], rtol=1e-6)
        np.testing.assert_allclose(fitted.normaliser.scale[place], theirs[f"{kind}_std"], rtol=1e-5)
    own = Normaliser(
        SETS["qlib"],
        np.array([theirs["price_mean"]] * 4 + [theirs["volume_mean"]]),
        np.array([theirs["price_std"]] * 4 + [theirs["volume_std"]]),
    )
    exact = MarketFeatures.build(shared, QLIB, normaliser=own)
    compared = 0
    for found, slack in ((exact, 2e-6), (fitted, 2e-5)):
        for column, name in enumerate(SETS["qlib"]):
            for block, suffix in ((found.today, ""), (found.block_previous(np.arange(len(shared))), "_1")):
                wanted = table[f"${name.removeprefix('qlib_')}{suffix}"].to_numpy()
                differs = np.abs(block[row, tick, column] - wanted) > slack
                # Two bars whose open lies outside their range are widened as they are read.
                assert differs.sum() <= 2 * (name in ("qlib_high", "qlib_low"))
                compared += len(wanted)
    assert compared == 2 * 268_800


STATISTICS = [f"{kind}_{figure}" for kind in ("price", "volume") for figure in ("mean", "std")]


def made_table(sessions: Sessions, seed: int = 0) -> pd.DataFrame:
    """A processed table of all bars of a panel."""
    rng = np.random.default_rng(seed)
    names = ["$close", "$close_1", "$volume", "$volume_1"]
    stamps = [
        (name, pd.Timestamp(day) + pd.Timedelta(seconds=int(second)))
        for name, day in zip(sessions.instruments, sessions.dates, strict=True)
        for second in sessions.calendar.tick_start
    ]
    index = pd.MultiIndex.from_tuples(stamps, names=["instrument", "datetime"])
    return pd.DataFrame(rng.normal(size=(len(stamps), 4)).astype(np.float32), index, names)


@pytest.mark.parametrize("form", ["pickle", "parquet", "columns", "folder"])
def test_l02_processed_tables_are_read_as_they_are(form: str, tmp_path: Path) -> None:
    sessions = panel([[1.0, 2.0]] * 3, [[1.0, 1.0]] * 3, [1, 2, 3])
    table = made_table(sessions)
    table.iloc[3, 0] = np.nan
    path: Path = tmp_path / "A.parquet"
    if form == "pickle":
        table.to_pickle(path := tmp_path / "A.pkl")
    elif form == "parquet":
        table.to_parquet(path)
    elif form == "columns":
        table.reset_index().to_parquet(path)
    else:
        table.iloc[:4].to_pickle(tmp_path / "one.pkl")
        table.iloc[4:].to_parquet(tmp_path / "two.parquet")
        path = tmp_path
    features = read_qlib_features(path, sessions, trust_pickle=form in ("pickle", "folder"))
    assert features.columns == ("$close", "$volume")
    wanted = table.fillna(0.0).to_numpy().reshape(3, 2, 4)
    np.testing.assert_array_equal(features.today, wanted[:, :, [0, 2]])
    np.testing.assert_array_equal(features.block_previous(np.arange(3)), wanted[:, :, [1, 3]])
    chosen = read_qlib_features(path, sessions, ["$volume"], trust_pickle=True)
    np.testing.assert_array_equal(chosen.today, wanted[:, :, [2]])
    np.testing.assert_array_equal(features.block(np.array([1]), np.array([1])), wanted[1:2, :, [0, 2]] * [[[1], [0]]])


def test_l02_what_does_not_fit_the_panel_is_named(tmp_path: Path) -> None:
    sessions = panel([[1.0, 2.0]] * 2, [[1.0, 1.0]] * 2, [1, 2])
    table, path = made_table(sessions), tmp_path / "t.parquet"
    table.to_pickle(tmp_path / "t.pkl")
    with pytest.raises(DataError, match=r"t\.pkl is a pickle.*trust_pickle"):
        read_qlib_features(tmp_path / "t.pkl", sessions)
    table.iloc[:2].to_parquet(path)
    with pytest.raises(DataError, match=r"1 sessions, the first A on 2024-01-02"):
        read_qlib_features(path, sessions)
    table.drop(columns="$close_1").to_parquet(path)
    with pytest.raises(DataError, match=r"no column \$close_1"):
        read_qlib_features(path, sessions, ["$close"])
    table[["$close"]].to_parquet(path)
    with pytest.raises(DataError, match=r"no column …_1"):
        read_qlib_features(path, sessions)
    late = table.reset_index().assign(datetime=lambda one: one["datetime"] + pd.Timedelta(seconds=30))
    late.to_parquet(path)
    with pytest.raises(DataError, match="10:00:30 is no tick"):
        read_qlib_features(path, sessions)
    pd.concat([table, table.iloc[:1]]).to_parquet(path)
    with pytest.raises(DataError, match="a file before it, or itself"):
        read_qlib_features(path, sessions)
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no \.pkl and no \.parquet"):
        read_qlib_features(empty, sessions)


class _Handler:
    """Stands for one of Qlib's classes."""


def test_l03_a_pickled_data_set_is_told_by_its_name_and_with_the_way_out(tmp_path: Path) -> None:
    content = pickle.dumps(_Handler(), protocol=2)
    named = content.replace(f"c{__name__}\n_Handler\n".encode(), b"cqlib.data.dataset\nDatasetH\n")
    assert named != content
    (tmp_path / "A.pkl").write_bytes(named)
    sessions = panel([[1.0, 2.0]], [[1.0, 1.0]], [1])
    for read in (
        lambda: read_qlib_features(tmp_path / "A.pkl", sessions, trust_pickle=True),
        lambda: load_sessions(tmp_path, sessions.calendar, kind="qlib_pickle", options={"trust_pickle": True}),
    ):
        with pytest.raises(DataError, match=r"A\.pkl is a pickled qlib\.data\.dataset\.DatasetH.*handler\.fetch"):
            read()


@needs_shared
def test_l02_qlibs_own_pickles_are_read_as_they_are(shared: Sessions) -> None:
    days = np.unique(tables().index.get_level_values("datetime").normalize()).astype("datetime64[D]")
    sessions = shared.select(np.isin(shared.dates, days))
    files = [SHARED / "cn_1min_pickle" / f"feature_{part}.pkl" for part in ("train", "valid", "test")]
    features = read_qlib_features(files, sessions, trust_pickle=True)
    assert features.columns == ("$open", "$high", "$low", "$close", "$volume")
    row = sessions.row("SH600519", "2024-03-13")
    own = tables().loc["SH600519"].loc["2024-03-13"]
    np.testing.assert_array_equal(features.today[row], own[list(features.columns)].to_numpy())
