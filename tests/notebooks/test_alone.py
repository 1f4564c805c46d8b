"""Notebooks executed on their own: the small ones, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from papermill import PapermillExecutionError

from rlwb.certificate import TreeSettings, tree_market
from rlwb.experiment.backtest import backtest_policies, read_summary
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.market import Calendar
from tests.market.helpers import random_bars
from tests.notebooks.small import NOTEBOOKS, SMALL, by_hand, command, finish, printed, shown, small_config, start

QUICK = {"iterations": 4, "episodes_per_iteration": 80}
MARKET = {"days": 20, "instruments": 4}


def test_g15_quickstart(tmp_path: Path) -> None:
    book = by_hand(NOTEBOOKS / "00_quickstart.ipynb", tmp_path / "out.ipynb", **QUICK, **MARKET)
    text = printed(book)
    assert "PA 0.00 bp, filled 100%" in text, "TWAP by hand"
    assert "95 % interval [" in text
    assert len(shown(book, "image/png")) == 6
    beside = shown(book, "text/html")[-1]
    assert [name in beside for name in ("signal 1", "signal 0", "the test says")] == [True] * 3

    # K19: a run with the same settings gives its last policy the same interval.
    sizes = {f"market.{name}": value for name, value in MARKET.items()}
    sizes["algorithm"] = "ppo"
    config = RunConfig.load(None, Layer("test", {**sizes, **{f"train.{name}": value for name, value in QUICK.items()}}))
    run = RunDirectory.create(tmp_path / "run", config)
    for work in (make_orders, train_policy, backtest_policies):
        work(run, config)
    last = read_summary(run).set_index("policy").loc["last"]
    assert f"{last['pa_mean']:.2f} bp, 95 % interval [{last['pa_lo']:.2f}, {last['pa_hi']:.2f}] bp" in text


def test_g15_synthetic_market(tmp_path: Path) -> None:
    book = by_hand(NOTEBOOKS / "10_synthetic_market.ipynb", tmp_path / "out.ipynb", days=30, instruments=3)
    assert len(shown(book, "image/png")) == 5
    assert any("excess_kurtosis" in table for table in shown(book, "text/html"))


def rows_of(html: str) -> dict[str, list[float]]:
    """Return the numbers of a table that pandas shows, by the names of its rows."""
    table = ElementTree.fromstring(html[html.index("<table") : html.index("</table>") + len("</table>")])
    return {row[0].text or "": [float(cell.text or "nan") for cell in row[1:]] for row in table.iterfind("tbody/tr")}


def test_certificate(tmp_path: Path) -> None:
    small = {"methods": ["ppo", "pathwise"], "iterations": 2, "every": 1, "ticks": 7, "points": 201}
    book = by_hand(NOTEBOOKS / "11_certificate.ipynb", tmp_path / "out.ipynb", **small)
    assert len(shown(book, "image/png")) == 2
    _, rules, shares, flat, _, _, solved, blocks = map(rows_of, shown(book, "text/html"))
    value = {name: cells[0] for name, cells in rules.items()}
    optimum = tree_market(TreeSettings(ticks=7)).optimum
    assert value["the solution, replayed"] == value["the optimum, computed"] == pytest.approx(optimum, abs=1e-6)
    assert value["waits for worse prices"] < value["TWAP"] == 0 < value["waits for better prices"] < optimum
    assert list(shares) == ["ppo", "pathwise"]
    assert all(value <= optimum for value, optimum, _, _ in shares.values())
    assert flat.pop("trades before worse prices")[0] > 1, "what is told of later prices does gain"
    assert len(flat) == 6
    assert all(cells == [0] for cells in flat.values())
    ends = [line for line in printed(book).splitlines() if " bp at the end, " in line]
    assert [line.partition(":")[0] for line in ends] == ["ppo", "pathwise"]
    assert all(float(line.split()[-4]) < 1e-9 for line in ends), "nothing can be learnt"
    assert all(optimum == pytest.approx(paid, abs=1e-6) for optimum, paid, *_ in solved.values())
    assert blocks["best"][0] == blocks["best"][-1] > 2 * blocks["best"][1]


def test_comparison(tmp_path: Path) -> None:
    small = {**QUICK, "bootstrap_samples": 100, "methods": ["ppo", "ppo_mlp"]}
    small |= {"market": {"name": "synthetic", **MARKET}, "settings": {"network.hidden": 8, "algorithm.repeat": 1}}
    book = by_hand(NOTEBOOKS / "12_comparison.ipynb", tmp_path / "out.ipynb", run_dir=str(tmp_path / "all"), **small)
    assert len(shown(book, "image/png")) == 2
    (table,) = shown(book, "text/markdown")
    for method in ("TWAP", "VWAP", "PPO", "PPO, order's state alone"):
        assert f"| {method} |" in table
    assert (tmp_path / "all" / "comparison.md").read_text() == table


def test_learners(tmp_path: Path) -> None:
    small = {**QUICK, "bootstrap_samples": 100, "methods": ["ppo", "pathwise"], "measured": str(tmp_path / "none.png")}
    small["market"] = {"name": "synthetic", **MARKET}
    book = by_hand(NOTEBOOKS / "13_learners.ipynb", tmp_path / "out.ipynb", run_dir=str(tmp_path / "all"), **small)
    assert len(shown(book, "image/png")) == 5
    (table,) = shown(book, "text/markdown")
    for method in ("forecast rule", "filter optimum (attainable)", "hindsight (ceiling)", "PPO", "pathwise"):
        assert f"| {method} |" in table
    assert "make learners" in shown(book, "text/plain")[-1]


def test_extending(tmp_path: Path) -> None:
    small = {"days": 20, "instruments": 2, "iterations": 1, "episodes_per_iteration": 20}
    book = by_hand(NOTEBOOKS / "14_extending.ipynb", tmp_path / "out.ipynb", run_dir=str(tmp_path / "own"), **small)
    text = printed(book)
    assert "damaged files are refused" in text
    assert "range_of_day sees the future" in text
    assert "Hurry" in shown(book, "text/html")[-1]
    code = RunDirectory.open(tmp_path / "own" / "run").manifest["code"]
    assert len({one["name"] for one in code}) == 9, "all of them took part"


def test_risk_makes_a_run_of_its_own(tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = {"market": {"name": "synthetic", **MARKET, "days": 40}, "iterations": 2}
    settings = {"train.episodes_per_iteration": 40, "backtest.bootstrap_samples": 200, "network.hidden": 8}
    settings |= {"objective": {"name": "mean_variance", "aversion": [0, 0.003]}, "algorithm": "pathwise"}
    book = by_hand(NOTEBOOKS / "08_risk.ipynb", tmp_path / "out.ipynb", run_dir=str(run), settings=settings, **small)
    assert len(shown(book, "image/png")) == 3
    assert "against their arrival prices single orders have a standard deviation of" in printed(book)
    assert sum(" at 0.003" in table for table in shown(book, "text/html")) == 1, "the dial is on the frontier"


def test_risk_of_a_run_that_is_there(tmp_path: Path, commanded: tuple[RunDirectory, str]) -> None:
    book = by_hand(NOTEBOOKS / "08_risk.ipynb", tmp_path / "out.ipynb", run_dir=str(commanded[0].path))
    assert len(shown(book, "image/png")) == 3
    assert "costs: none" in printed(book)


def test_serving_of_a_run_that_is_there(tmp_path: Path, commanded: tuple[RunDirectory, str]) -> None:
    values = {"run_dir": str(commanded[0].path), "out_dir": str(tmp_path / "bundles"), "days": 1}
    book = by_hand(NOTEBOOKS / "07_serving.ipynb", tmp_path / "out.ipynb", **values)
    text = printed(book)
    assert "every decision from raw bars is the one recorded" in text
    assert re.search(r"in the first step, by the policy\n", text)
    assert re.search(r"\d+ orders over HTTP, largest difference of a PA to the backtest 0 bp", text)
    assert len(shown(book, "image/png")) == 2
    (watched,) = (table for table in shown(book, "text/html") if "orders finished" in table)
    assert re.search(r"<th>decisions by schedule</th>\s*<td>0\.0+</td>", watched)
    assert {path.name for path in (tmp_path / "bundles").iterdir()} >= {"original", "paper-1"}


def test_search(tmp_path: Path) -> None:
    space = {"algorithm.learning_rate": {"value": 0.001, "search": {"low": 1e-4, "high": 1e-2, "log": True}}}
    small = {"space": space, "rules": ["almgren_chriss"], "trials": 3, "confirm": 1, "fresh_seeds": 2, "workers": 1}
    small |= {**QUICK, "market": {"name": "synthetic", **MARKET}}
    small |= {"settings": {"network": {"name": "recurrent", "hidden": 4}, "algorithm.repeat": 1}}
    values = {"run_dir": str(tmp_path / "search"), **small}
    book = by_hand(NOTEBOOKS / "06_search.ipynb", tmp_path / "out.ipynb", **values)
    (table,) = shown(book, "text/markdown")
    assert "| learner | 3 |" in table
    assert "| almgren_chriss | 3 |" in table
    assert "No test order was read." in table
    assert len(shown(book, "image/png")) == 2
    assert [path.name for path in sorted((tmp_path / "search" / "trials").iterdir()) if path.name[0] != "."] == [
        *("000000", "000001", "000002"),
    ]


def test_g15_data(tmp_path: Path) -> None:
    book = by_hand(NOTEBOOKS / "05_data.ipynb", tmp_path / "out.ipynb", days=10, instruments=4)
    text = printed(book)
    assert "18 of 18 faults were found" in text
    assert "imported before and unchanged: 1 source, first: spoilt.csv" in text
    assert "dropped  6 bars: named by a check" in text
    missing = 3 + 6 + 5  # zeros, bars that were left out, minutes that were taken away
    assert f"{missing} of 1,920 prices are missing, 17 differ" in text, "of the stale stretch, but its first"
    assert len(shown(book, "image/png")) == 5


def test_g15_data_of_ones_own(tmp_path: Path) -> None:
    bars = random_bars(
        Calendar.preset("cn", tick_minutes=30, label="end"), ["000001", "NA"], ["2024-01-03", "2024-01-04"]
    )
    bars.to_csv(tmp_path / "bars.csv", index=False)
    values = {"source": str(tmp_path / "bars.csv"), "calendar": {"preset": "cn", "tick_minutes": 30, "label": "end"}}
    book = by_hand(NOTEBOOKS / "05_data.ipynb", tmp_path / "out.ipynb", **values)
    assert "32 rows of 1 source read, 32 bars added" in printed(book)


@pytest.mark.parametrize("name", ["02_training.ipynb", "00_quickstart.ipynb"])
def test_g01_an_unknown_parameter_is_refused(tmp_path: Path, name: str) -> None:
    where = {"run_dir": str(tmp_path / "run")} if name in SMALL else {}
    with pytest.raises(PapermillExecutionError, match=r"no parameter iteratons; did you mean iterations\?"):
        by_hand(NOTEBOOKS / name, tmp_path / "out.ipynb", iteratons=3, **where)
    assert not (tmp_path / "run").exists(), "before any work"


def test_a_stage_without_the_one_before_names_its_notebook(tmp_path: Path) -> None:
    with pytest.raises(PapermillExecutionError) as caught:
        by_hand(NOTEBOOKS / "03_backtest.ipynb", tmp_path / "out.ipynb", run_dir=str(tmp_path / "run"))
    assert caught.value.ename == "ConfigError"
    assert "holds no run" in caught.value.evalue
    assert "run 01_orders.ipynb there first" in caught.value.evalue


TORN = """
from rlwb.errors import DataError
from rlwb.execution import Baseline


class Torn(Baseline):
    def act(self, known, noise=None):
        raise DataError("the tape is torn; mend it.")
"""


def test_g05_a_failing_cell_of_a_shipped_notebook(tmp_path: Path) -> None:
    """A fault that only work shows fails the run, says where and how to go on."""
    path, own = tmp_path / "run", tmp_path / "mine.py"
    own.write_text(TORN)
    _, err = finish(command(path, baselines=["twap", f"{own}:Torn"]), 2)
    assert err.startswith("rlwb: the tape is torn")
    run = RunDirectory(path)
    assert run.state == "failed"
    failure = run.status["failure"]
    assert failure["stage"] == "backtest"
    assert failure["notebook"] == "notebooks/03_backtest.ipynb"
    assert re.match("Go on with: rlwb run .*--resume --run-dir", failure["resume"])
    executed = nbformat.read(run.notebooks / "03_backtest.ipynb", as_version=4)
    kinds = [output.output_type for cell in executed.cells for output in cell.get("outputs", ())]
    assert "error" in kinds


RUN_ORDERS = """
import sys
from rlwb.experiment.pipeline import run_pipeline
from rlwb.experiment.backtest import backtest_policies, read_summary
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.experiment.stages import ORDERS

run = RunDirectory(sys.argv[1])
run_pipeline(run, run.config, stages=[ORDERS])
"""


def test_g11_runs_side_by_side(tmp_path: Path) -> None:
    """Four on two cores, so that some wait for others."""
    runs = [RunDirectory.create(tmp_path / f"run{seed}", small_config(seed=seed)) for seed in range(4)]
    processes = [start("-c", RUN_ORDERS, str(run.path)) for run in runs]
    for process in processes:
        finish(process)
    tables = {(run.orders / "all.parquet").read_bytes() for run in runs}
    assert len(tables) == 4, "each its own seed"
    for run in runs:
        assert run.state == "finished"
        assert json.loads((run.path / "manifest.json").read_text())["status"] == "finished"
        assert (run.notebooks / "01_orders.ipynb").is_file()
