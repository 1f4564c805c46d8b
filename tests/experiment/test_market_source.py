"""A data set and a saved panel as the market of a run."""

from __future__ import annotations

import html
import json
from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory, begin_manifest
from rlwb.experiment.workbench import Workbench
from rlwb.experiment.yamlfile import parse_yaml
from rlwb.market import Calendar, import_bars, load_sessions
from tests.market.helpers import random_bars

CLOCK = Calendar.preset("cn", tick_minutes=30, label="end")
DAYS = ["2024-01-03", "2024-01-04", "2024-01-05", "2024-01-08"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    bars = random_bars(CLOCK, ["000001", "NA"], DAYS)
    bars.loc[3, "close"] = 0.0
    bars.to_csv(tmp_path / "bars.csv", index=False)
    bars.iloc[:4].assign(volume=7.0).to_csv(tmp_path / "more.csv", index=False)
    import_bars([tmp_path / "bars.csv", tmp_path / "more.csv"], tmp_path / "set", calendar=CLOCK)
    return tmp_path / "set"


def config(source: Path, **changes: object) -> RunConfig:
    split = {"train": DAYS[:2], "valid": DAYS[2:3], "test": DAYS[3:]}
    split = {part: [days[0], days[-1]] for part, days in split.items()}
    values = {"market.source": str(source), "execution.ticks_per_step": 2}
    values |= {f"split.{part}": days for part, days in split.items()}
    return RunConfig.load(None, Layer("test", {**values, **changes}))


def test_a_run_repeats_what_the_import_dropped(stored: Path, tmp_path: Path) -> None:
    settings = config(stored)
    run = RunDirectory.create(tmp_path / "run", settings)
    make_orders(run, settings)
    findings = json.loads((run.path / "manifest.json").read_text())["bars"]["findings"]
    expected = {
        "count": 4,
        "effect": "dropped",
        "example": "000001 2024-01-03 10:00:00 (more.csv row 1)",
    }
    assert expected.items() <= findings["overlap_conflicting"].items()
    assert findings["price_zero"]["count"] == 1
    told = json.loads((run.orders / "data.json").read_text())["text"]
    assert "dropped  4 bars: differ from the bar of another source (see the conflicts)" in told


def test_its_calendar_is_used_unless_another_is_asked_for(stored: Path) -> None:
    assert Workbench(config(stored)).sessions.calendar == CLOCK
    other = {"preset": "cn", "tick_minutes": 30, "label": "end", "closed": ["2024-01-03"]}
    changed = Workbench(config(stored, **{f"market.calendar.{name}": value for name, value in other.items()})).sessions
    assert changed.dates.min().astype(str) == "2024-01-04"
    with pytest.raises(ConfigError, match="are stored with timezone 'Asia/Shanghai'"):
        _ = Workbench(config(stored, **{"market.calendar.tick_minutes": 30})).sessions


def test_a_saved_panel_is_a_market(stored: Path, tmp_path: Path) -> None:
    panel = load_sessions(stored).save(tmp_path / "panel")
    assert Workbench(config(panel)).sessions.fingerprint == load_sessions(stored).fingerprint


def test_k16_the_page_has_the_calendar_that_the_data_set_brought(stored: Path, tmp_path: Path) -> None:
    settings = config(stored)
    run = RunDirectory.create(tmp_path / "run", settings)
    begin_manifest(run, [])
    make_orders(run, settings)
    assert run.config.market.settings["calendar"] is None, "as it was asked for"
    page = html.unescape(write_report(run).read_text())
    told = page.partition('<summary>Configuration</summary><pre tabindex="0">')[2]
    shown = parse_yaml(told.partition("</pre>")[0], "page")
    found = shown["market"]["calendar"]
    assert (
        Calendar(**{key: tuple(map(tuple, one)) if key == "segments" else one for key, one in found.items()}) == CLOCK
    )
