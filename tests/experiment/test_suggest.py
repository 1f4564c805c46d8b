"""A configuration suggested for bars: the clock that it finds, and that it runs at the first try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.suggest import suggest
from rlwb.experiment.training import train_policy
from rlwb.experiment.yamlfile import parse_yaml
from rlwb.market import Calendar, SyntheticSettings, import_bars, synthetic_bars
from rlwb.market.recognise import recognise_clock
from tests.market.helpers import random_bars
from tests.test_cli import call

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=10)]
TINY = [
    "network.hidden=8",
    "train.iterations=1",
    "train.episodes_per_iteration=10",
    "algorithm.batch_size=10",
    "algorithm.repeat=1",
    "backtest.top=1",
    "backtest.bootstrap_samples=100",
]


def runs(text: str, folder: Path) -> RunDirectory:
    """Run a suggested configuration with a tiny training, and return the run."""
    (folder / "mine.yaml").write_text(text)
    config = RunConfig.load(folder / "mine.yaml", parse_assignments(TINY))
    run = RunDirectory.create(folder / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    assert len(pd.read_csv(run.backtest / "headline.csv")) > 1
    return run


def frame(clock: Calendar, *, seed: int = 0, days: list[str] = DAYS) -> pd.DataFrame:
    bars = random_bars(clock, ["AAA", "BBB"], days, seed=seed)
    return bars.assign(instrument=bars["instrument"].astype("category"), volume=bars["volume"] + 1.0)


@pytest.mark.parametrize("label", ["start", "end"])
@pytest.mark.parametrize(("preset", "minutes"), [("us", 1), ("us", 5), ("us", 30), ("cn", 1), ("cn", 15), ("in", 1)])
def test_the_clock_of_a_market_is_recognised(preset: str, minutes: int, label: str) -> None:
    clock = Calendar.preset(preset, tick_minutes=minutes, label=label)
    found = recognise_clock(frame(clock))
    assert found.calendar == {"preset": preset, "tick_minutes": minutes, "label": label}
    assert (found.source_timezone, found.round_seconds) == (None, None)


@pytest.mark.parametrize("preset", ["us", "cn", "in"])
def test_stamps_in_utc_are_recognised_with_and_without_saying_so(preset: str) -> None:
    """The ten days lie on both sides of the change of clocks in New York."""
    clock = Calendar.preset(preset, tick_minutes=5)
    bars = frame(clock)
    stamps = bars["datetime"].dt.tz_localize(clock.timezone).dt.tz_convert("UTC")
    said = recognise_clock(bars.assign(datetime=stamps))
    assert (said.calendar["preset"], said.source_timezone) == (preset, None)
    naive = recognise_clock(bars.assign(datetime=stamps.dt.tz_localize(None)))
    assert (naive.calendar["preset"], naive.source_timezone) == (preset, "UTC")


def test_extended_hours_are_left_out_and_said() -> None:
    bars = frame(Calendar((("04:00", "20:00"),), tick_minutes=5))
    minute = bars["datetime"].dt.hour * 60 + bars["datetime"].dt.minute
    regular = (minute >= 570) & (minute < 960)
    found = recognise_clock(bars.assign(volume=np.where(regular, 1000.0, 20.0)))
    assert found.calendar["preset"] == "us"
    assert "59.4% of the bars lie outside it" in " ".join(found.reasons)
    assert "check it" in " ".join(found.reasons)


def test_an_auction_at_the_close_and_thin_bars_leave_the_session_as_it_is() -> None:
    bars = frame(Calendar((("09:30", "16:01"),)))
    bars.loc[bars["datetime"].dt.hour == 16, "volume"] = 1e6
    assert recognise_clock(bars).calendar == {"preset": "us", "tick_minutes": 1, "label": "start"}
    thin = frame(Calendar.preset("us")).sample(frac=0.15, random_state=0).sort_values(["instrument", "datetime"])
    assert recognise_clock(thin).calendar == {"preset": "us", "tick_minutes": 1, "label": "start"}


@pytest.mark.parametrize(
    ("segments", "label"),
    [
        ((("08:00", "16:30"),), "start"),  # London
        ((("09:30", "12:00"), ("13:00", "16:00")), "end"),  # Hong Kong
        ((("09:00", "15:30"),), "start"),  # Seoul
        ((("10:00", "15:30"),), "end"),
    ],
)
def test_other_sessions_are_told_by_their_segments(segments: tuple[tuple[str, str], ...], label: str) -> None:
    found = recognise_clock(frame(Calendar(segments, tick_minutes=5, label=label)))
    assert found.calendar["segments"] == [list(segment) for segment in segments]
    assert (found.calendar["label"], found.calendar["weekdays"]) == (label, [0, 1, 2, 3, 4])


def test_a_day_without_a_close_is_crypto() -> None:
    days = [f"{day:%Y-%m-%d}" for day in pd.date_range("2024-03-01", periods=6)]
    found = recognise_clock(frame(Calendar.preset("crypto", tick_minutes=15), days=days))
    assert found.calendar["preset"] == "crypto"


def test_stamps_beside_the_grid_are_rounded() -> None:
    bars = frame(Calendar.preset("us", tick_minutes=5))
    late = pd.to_timedelta(np.where(np.arange(len(bars)) % 4 == 0, 14, 0), unit="s")
    found = recognise_clock(bars.assign(datetime=bars["datetime"] + late))
    assert (found.calendar["preset"], found.calendar["tick_minutes"], found.round_seconds) == ("us", 5, 14.0)


def test_daily_bars_and_bars_without_a_session_are_refused() -> None:
    bars = frame(Calendar.preset("us", tick_minutes=30))
    with pytest.raises(DataError, match="a day apart"):
        recognise_clock(bars[bars["datetime"].dt.strftime("%H%M") == "1000"])
    odd = pd.date_range("2024-03-04", periods=200, freq="7h")
    with pytest.raises(DataError, match="420 min apart"):
        recognise_clock(bars.iloc[:200].assign(datetime=odd, instrument=pd.Categorical(["AAA"] * 200)))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_embedded_market_in_a_file_runs_as_suggested(ending: str, tmp_path: Path) -> None:
    bars = synthetic_bars(SyntheticSettings(instruments=3, days=12))
    path = tmp_path / f"bars{ending}"
    bars.to_csv(path, index=False) if ending == ".csv" else bars.to_parquet(path)
    text = suggest(path)
    values = parse_yaml(text, "suggested")
    days = sorted(bars["datetime"].dt.strftime("%Y-%m-%d").unique())
    assert values["market"]["source"] == str(path)
    assert values["split"]["train"][0] == days[1]  # the first day sizes orders
    assert values["split"]["test"][1] == days[-1]
    assert values["split"]["train"][1] < values["split"]["valid"][0] <= values["split"]["valid"][1]
    assert "Costs and market rules are left at their default" in text
    assert "fitness  100.00 %" in text
    runs(text, tmp_path)


def test_a_data_set_brings_its_calendar(tmp_path: Path) -> None:
    clock = Calendar.preset("cn", tick_minutes=15, label="end")
    frame(clock).to_parquet(tmp_path / "bars.parquet")
    import_bars([tmp_path / "bars.parquet"], tmp_path / "set", calendar=clock)
    values = parse_yaml(suggest(tmp_path / "set"), "suggested")
    assert "calendar" not in values["market"]
    assert values["orders"] == {"name": "generated", "start_time": "09:30", "end_time": "15:00"}
    assert values["execution"]["ticks_per_step"] in (1, 2)


def test_the_command_writes_a_file_with_what_it_was_read_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other names, numbers for stamps, ids that are numbers, and an index without volume."""
    bars = frame(Calendar.preset("us", tick_minutes=30)).astype({"instrument": str})
    index = bars[bars["instrument"] == "AAA"].assign(instrument="000300", volume=0.0)
    bars = pd.concat([bars.replace({"AAA": "000001"}), index]).rename(columns={"close": "last"})
    bars["datetime"] = bars["datetime"].dt.strftime("%Y%m%d%H%M")
    bars.to_csv(tmp_path / "bars.csv", index=False)
    words = ("--column", "last=close", "--datetime-format", "%Y%m%d%H%M")
    code, text, _ = call(capsys, "data", "suggest", str(tmp_path / "bars.csv"), *words)
    assert code == 0
    market = parse_yaml(text, "suggested")["market"]
    assert market["reader"] == {"name": "table", "columns": {"last": "close"}, "datetime_format": "%Y%m%d%H%M"}
    assert market["instruments"] == ["000001", "BBB"]
    assert "Left out: 000300." in text
    code, out, err = call(capsys, "data", "suggest", str(tmp_path / "none"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    runs(text, tmp_path)


def test_options_are_those_of_the_reader_that_the_names_point_to(tmp_path: Path) -> None:
    """`--option` without `--kind`: the configuration names the reader, and reads the bars again."""
    bars = frame(Calendar.preset("us", tick_minutes=30)).rename(columns=lambda name: f"${name}0")
    table = bars.rename(columns={"$instrument0": "instrument", "$datetime0": "datetime"})
    for name, own in table.groupby("instrument", observed=True):
        own = own.astype({"instrument": str}).set_index(["instrument", "datetime"])
        own.astype(np.float32).to_pickle(tmp_path / f"{name}.pkl.backtest")
    values = parse_yaml(suggest(tmp_path, options={"trust_pickle": True}), "suggested")
    assert values["market"]["reader"] == {"name": "qlib_pickle", "trust_pickle": True}
    assert values["market"]["instruments"] == ["AAA", "BBB"]


def test_what_shows_no_clock_is_named(tmp_path: Path) -> None:
    frame(Calendar.preset("us", tick_minutes=30)).iloc[::13].to_csv(tmp_path / "daily.csv", index=False)
    with pytest.raises(DataError, match=r"daily\.csv: the bars are a day apart"):
        suggest(tmp_path / "daily.csv")


def test_too_few_days_are_said(tmp_path: Path) -> None:
    frame(Calendar.preset("us", tick_minutes=30), days=DAYS[:3]).to_csv(tmp_path / "bars.csv", index=False)
    with pytest.raises(DataError, match=r"bars\.csv gives orders on 2 dates; a run needs 3"):
        suggest(tmp_path / "bars.csv")


REAL: dict[str, tuple[dict[str, Any], str | None]] = {
    "us_equity_1min_2023/bars.parquet": ({"preset": "us", "tick_minutes": 1, "label": "end"}, None),
    "us_equity_1min_2019/bars.parquet": ({"preset": "us", "tick_minutes": 1, "label": "end"}, None),
    "us_equity_5min_ext/bars.parquet": ({"preset": "us", "tick_minutes": 5, "label": "start"}, None),
    "cn_equity_1min_2024/bars.parquet": ({"preset": "cn", "tick_minutes": 1, "label": "end"}, None),
    "cn_equity_15min_2025/bars.parquet": ({"preset": "cn", "tick_minutes": 15, "label": "end"}, None),
    "in_equity_1min_2021/bars.parquet": ({"preset": "in", "tick_minutes": 1, "label": "start"}, None),
    "raw/polygon_csv": ({"preset": "us", "tick_minutes": 5, "label": "start"}, "UTC"),
    "raw/yahoo_csv/AAPL_5m.csv.gz": ({"preset": "us", "tick_minutes": 5, "label": "start"}, None),
    "qlib/cn_1min": ({"preset": "cn", "tick_minutes": 1, "label": "start"}, None),
}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")
@pytest.mark.parametrize("name", REAL)
def test_real_sets_are_recognised(name: str) -> None:
    values = parse_yaml(suggest(DATA / name), "suggested")
    calendar, zone = REAL[name]
    assert values["market"]["calendar"] == calendar
    assert values["market"].get("source_timezone") == zone


@pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")
@pytest.mark.parametrize("name", ["us_equity_1min_2019/bars.parquet", "qlib/cn_1min", "raw/polygon_csv"])
def test_real_sets_run_as_suggested(name: str, tmp_path: Path) -> None:
    runs(suggest(DATA / name), tmp_path)
