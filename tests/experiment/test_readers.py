"""The orders of a run on bars that other readers than those of Parquet and CSV read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.data_sources import WRITERS, market
from rlwb.errors import DataError, RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.own_code import TRUST_ENV
from rlwb.experiment.run import RunDirectory
from rlwb.market import Sessions

DAYS = 10


def run(folder: Path, files: str, changes: dict[str, Any]) -> tuple[RunDirectory, Sessions]:
    """Make the orders of a run on a small market in the `files` of one reader."""
    source = folder / "bars"
    if files != "qlib":
        source.mkdir()
    WRITERS[files][0](market(2, DAYS), source)
    calendar = {"segments": [["09:30", "11:30"], ["13:00", "15:00"]]}
    settings = {"source": str(source), **changes, "calendar": calendar | changes.get("calendar", {})}
    config = RunConfig.load(None, Layer("test", {"market": settings, "seed": 3}))
    made = RunDirectory.create(folder / "run", config)
    make_orders(made, config)
    return made, workbench(made, config).sessions


@pytest.mark.parametrize(
    ("files", "changes"),
    [
        ("qlib", {}),
        ("qlib", {"reader": {"name": "qlib", "freq": "1min", "max_megabytes": 4}}),
        ("binance", {"reader": "binance", "calendar": {"timezone": "UTC"}}),
        ("lean", {"calendar": {"timezone": "America/New_York"}}),
        ("qlib_pickle", {"reader": {"name": "qlib_pickle", "trust_pickle": True}}),
        ("csv", {"reader": "table"}),
    ],
)
def test_a_run_draws_orders_on_bars_of_every_kind(files: str, changes: dict[str, Any], tmp_path: Path) -> None:
    made, sessions = run(tmp_path, files, changes)
    assert sessions.fields["close"].shape == (2 * DAYS, 240)
    assert np.isfinite(sessions.fields["close"]).all()
    orders = pd.read_parquet(made.orders / "all.parquet")
    assert set(orders["instrument"]) == {"SH600000", "SH600001"}
    assert orders["date"].nunique() == DAYS - 1  # the first has no volume before it to size an order by


@pytest.mark.parametrize(
    ("files", "changes", "words"),
    [
        ("qlib_pickle", {}, "set trust_pickle"),
        ("qlib_pickle", {"reader": {"name": "qlib_pickle", "trust_pickle": False}}, "set trust_pickle"),
        ("qlib", {"reader": {"name": "qlib", "frequency": "day"}}, "frequency.*freq"),
        ("csv", {"reader": {"name": "table", "freq": "day"}}, "freq"),
        ("qlib", {"reader": {"name": "qlib", "columns": {"a": "close"}}}, "columns"),
        ("lean", {"calendar": {"timezone": "America/New_York", "label": "end"}}, "calendar's label is 'end'"),
    ],
)
def test_what_cannot_be_read_as_asked_is_refused(
    files: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(RlwbError, match=words):
        run(tmp_path, files, changes)


def test_nothing_but_the_plain_word_trusts_a_pickle(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="set trust_pickle"):
        run(tmp_path, "qlib_pickle", {"reader": {"name": "qlib_pickle", "max_megabytes": 4}})


def test_a_reader_of_ones_own_is_a_file_of_under_40_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUST_ENV, "1")
    page = (Path(__file__).resolve().parents[2] / "docs" / "readers" / "own.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) < 40
    (tmp_path / "json_lines.py").write_text(code, encoding="utf-8")
    source = tmp_path / "bars"
    source.mkdir()
    for name, bars in market(2, DAYS).groupby("instrument"):
        bars = bars.rename(columns={"datetime": "time"}).drop(columns="instrument")
        bars.to_json(source / f"{name}.jsonl", orient="records", lines=True, date_format="iso")
    settings = {
        "source": str(source),
        "reader": f"{tmp_path}/json_lines.py:read_json_lines",
        "calendar": {"segments": [["09:30", "11:30"], ["13:00", "15:00"]]},
    }
    config = RunConfig.load(None, Layer("test", {"market": settings, "seed": 3}))
    made = RunDirectory.create(tmp_path / "run", config)
    make_orders(made, config)
    assert workbench(made, config).sessions.fields["close"].shape == (2 * DAYS, 240)
