"""The command line's ``rlwb impact``: from a broker's file to rules that a run takes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.impact import Trading, planted_fills, planted_rules
from rlwb.experiment.config import RunConfig
from rlwb.market import Calendar, import_bars, sessions_to_bars
from tests.test_cli import call

CLOCK = ("--calendar", "cn", "--tick-minutes", "5")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with fills in FIX's form but for one column, and the bars of their days."""
    folder = tmp_path_factory.mktemp("broker")
    fills, sessions = planted_fills(planted_rules("square_root"), Trading(orders=400, instruments=2), seed=0)
    sessions_to_bars(sessions).to_parquet(folder / "bars.parquet")
    sessions.save(folder / "panel")
    stamps = fills["time"].dt.tz_localize("Asia/Shanghai").dt.tz_convert("UTC").dt.strftime("%Y%m%d-%H:%M:%S")
    table = {
        "OrderID": fills["order_id"],
        "Symbol": fills["instrument"],
        "Side": np.where(fills["side"] > 0, 1, 2),
        "TransactTime": stamps,
        "LastQty": fills["quantity"],
        "avg_px": fills["price"],
    }
    pd.DataFrame(table).to_csv(folder / "fills.csv", index=False)
    return folder


def test_fills_become_rules_that_a_run_takes(broker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, figures = tmp_path / "rules.yaml", tmp_path / "figures.json"
    words = ["impact", "fit", str(broker / "fills.csv"), "--column", "avg_px=price", "--bars"]
    code, told, _ = call(
        capsys, *words, str(broker / "bars.parquet"), *CLOCK, "--out", str(out), "--json", str(figures)
    )
    assert code == 0
    assert told.splitlines()[-1] == f"{out}: rlwb run {out}"
    found = json.loads(figures.read_text())
    rules = RunConfig.load(out).execution.rules
    assert {name: getattr(rules, name) for name in found["rules"]} == found["rules"]
    assert rules.temporary_impact_shape == "square_root"
    assert "# half_spread_bps: 95 % interval" in out.read_text()
    again = call(capsys, *words, str(broker / "panel"))[1]
    assert again.splitlines() == told.splitlines()[:-1]
    import_bars([broker / "bars.parquet"], tmp_path / "set", calendar=Calendar.preset("cn", tick_minutes=5))
    assert call(capsys, *words, str(tmp_path / "set"))[1].splitlines() == told.splitlines()[:-1]


def test_transient_impact_is_fitted_on_request(
    broker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["impact", "fit", str(broker / "fills.csv"), "--column", "avg_px=price", "--bars", str(broker / "panel")]
    words += ["--json", str(tmp_path / "figures.json"), "--transient"]
    code, _, complaint = call(capsys, *words, "gamma")
    assert (code, "--transient is 'gamma'" in complaint) == (2, True)
    code, told, _ = call(capsys, *words, "exponential")
    found = json.loads((tmp_path / "figures.json").read_text())
    assert (code, found["decay"], "exponential decay" in told) == (0, "exponential", True)
    assert "temporary_impact_bps" not in found["estimates"]


def test_groups_are_fitted_one_by_one(broker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "groups.csv").write_text("instrument,group\nSYN001,large\n")
    words = ["impact", "fit", str(broker / "fills.csv"), "--column", "avg_px=price", "--bars", str(broker / "panel")]
    words += ["--groups", str(tmp_path / "groups.csv"), "--out", str(tmp_path / "rules.yaml")]
    code, told, _ = call(capsys, *words, "--json", str(tmp_path / "figures.json"))
    assert code == 0
    assert "1 instruments are in no group and left out: SYN002" in told
    assert [path.name for path in tmp_path.glob("*.yaml")] == ["rules-large.yaml"]
    assert json.loads((tmp_path / "figures.json").read_text())["large"]["orders"] == 200
    (tmp_path / "groups.csv").write_text("instrument,group\nSYN009,large\n")
    code, _, complaint = call(capsys, *words)
    assert (code, "names no instrument" in complaint) == (2, True)


def test_what_cannot_be_used_is_one_sentence(broker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["impact", "fit", str(broker / "fills.csv"), "--bars"]
    code, _, complaint = call(capsys, *words, str(broker / "panel"))
    assert (code, complaint.count("\n")) == (2, 1)
    assert "avg_px" in complaint
    code, _, complaint = call(capsys, *words, str(broker / "bars.parquet"), "--column", "avg_px=price")
    assert (code, "--calendar" in complaint) == (2, True)
    lines = (broker / "fills.csv").read_text().splitlines()
    (tmp_path / "few.csv").write_text("\n".join([*lines[:50], "x,SYN001,1,yesterday,1,1"]))
    words[2] = str(tmp_path / "few.csv")
    words += [str(broker / "panel"), "--column", "avg_px=price"]
    code, _, complaint = call(capsys, *words)
    assert (code, "line 51" in complaint) == (2, True)
    code, told, complaint = call(capsys, *words, "--drop")
    assert (code, "line 51" in told, "say too little of impact" in complaint) == (2, True, True)


def test_nothing_found_is_an_exit_code_of_its_own(
    broker: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sides that are drawn anew for every fill have no cost in common."""
    fills = pd.read_csv(broker / "fills.csv")
    rng = np.random.default_rng(0)
    other = fills.assign(Side=rng.choice([1, 2], len(fills)), OrderID=np.arange(len(fills)))
    other.to_csv(tmp_path / "fills.csv", index=False)
    words = ["impact", "fit", str(tmp_path / "fills.csv"), "--column", "avg_px=price", "--bars", str(broker / "panel")]
    code, told, _ = call(capsys, *words, "--out", str(tmp_path / "rules.yaml"))
    assert (code, told.splitlines()[-1]) == (3, "nothing was found that the rules could hold")
    assert not (tmp_path / "rules.yaml").exists()


def test_a_published_law_is_printed_as_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told, _ = call(
        capsys, "impact", "published", "square_root_law", "--daily-volatility-bps", "150", "--share-of-day", "0.25"
    )
    (tmp_path / "rules.yaml").write_text(told)
    rules = RunConfig.load(tmp_path / "rules.yaml").execution.rules
    assert (code, rules.temporary_impact_bps, rules.temporary_impact_shape) == (0, 50.0, "square_root")
    code, _, complaint = call(capsys, "impact", "published", "almgren2005", "--daily-volatility-bps", "150")
    assert (code, "turnover_days" in complaint) == (2, True)
