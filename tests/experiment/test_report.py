"""The report, of a whole run and of half a run."""

from __future__ import annotations

import base64
import html
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlwb.errors import FileError
from rlwb.evaluation import SUMMARY_COLUMNS
from rlwb.execution.generate import OWN_VOLUME
from rlwb.experiment.backtest import read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.report import costs_table, iteration_table, write_report
from rlwb.experiment.run import RunDirectory, begin_manifest
from rlwb.files import write_json
from tests.experiment.fakes import config

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Tags(HTMLParser):
    """Checks that what is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "a<b", config(execution__rules__volume_limit=0.25))
    begin_manifest(run, ["rlwb", "run"])
    return run


def write_summary(run: RunDirectory, *rows: dict[str, object]) -> None:
    pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS)).to_csv(run.backtest / "summary.csv", index=False)


def test_half_a_run_says_what_is_missing(run: RunDirectory) -> None:
    page = write_report(run).read_text()
    assert page.count("Not here: ") == 6
    assert "This run is not finished: orders not done" in page
    assert "<title>a&lt;b: orders not done, ppo, seed 0</title>" in page
    assert "--resume --run-dir" in page
    assert "The backtest has not been done" in page
    assert "cap 0.25 of volume" in page
    assert "a&lt;b" in page
    assert "a<b" not in page


def test_k08_a_folder_in_the_place_of_a_figure_is_named(run: RunDirectory) -> None:
    (run.figures / "pa_by_month.png").mkdir(parents=True)
    with pytest.raises(FileError, match=r"pa_by_month\.png cannot be read"):
        write_report(run)


def test_k08_what_a_page_lacks_of_a_finished_stage_or_cannot_read_is_named(run: RunDirectory) -> None:
    run.backtest.mkdir()
    write_summary(run, {"policy": "twap", "kind": "a", "pa_mean": 0.0, "orders": 480})
    with pytest.raises(FileError, match=r"summary\.csv cannot be read .* kind holds 'a'"):
        read_results(run)
    (run.backtest / "summary.csv").unlink()
    run.metrics.mkdir()
    (run.metrics / "train.csv").write_text("iteration,pa,reward,seconds,loss\n1,0,0,1,much\n")
    with pytest.raises(FileError, match=r"train\.csv cannot be read .* loss"):
        iteration_table(run)
    (run.metrics / "train.csv").unlink()
    (run.backtest / "metrics.csv").write_text("policy,kind,metric,estimate,lo,hi\n" + 2 * "a,checkpoint,pa,1,0,2\n")
    with pytest.raises(FileError, match=r"metrics\.csv cannot be read .* policy and metric"):
        write_report(run)
    (run.backtest / "metrics.csv").write_text("policy,kind,metric,estimate,lo,hi\na,checkpoint,pa,1,0,2\n")
    with pytest.raises(FileError, match=r"metrics\.csv has no over_twap"):
        write_report(run)
    (run.backtest / "metrics.csv").unlink()
    write_json(run.backtest / "caveats.json", {"caveats": [""]})
    with pytest.raises(FileError, match=r"caveats\.json cannot be read"):
        write_report(run)
    (run.backtest / "caveats.json").unlink()
    row = "a,A,checkpoint,total,1,1,0,2,3,3\n"
    columns = "policy,title,kind,component,currency,cost_bp,lo,hi,orders,days\n"
    (run.backtest / "costs.csv").write_text(columns + 2 * row)
    with pytest.raises(FileError, match=r"costs\.csv cannot be read .* policy and component"):
        costs_table(run)
    (run.backtest / "costs.csv").unlink()
    (run.path / "manifest.json").unlink()
    write_report(run)
    run.update_status(stages={"orders": {"state": "finished"}})
    with pytest.raises(FileError, match=r"manifest\.json is gone"):
        write_report(run)


def test_everything_is_in_the_page(run: RunDirectory) -> None:
    run.backtest.mkdir()
    head = {
        "header": ["policy", "PA"],
        "rows": [["best | ten", "5.0 ± 1.0"], ["TWAP", "0.0"]],
        "notes": ["n = 10 & so"],
    }
    write_json(run.backtest / "headline.json", head)
    best = {"policy": "checkpoint-0012", "kind": "checkpoint", "iteration": 12, "pa_mean": 5.4321, "orders": 480}
    write_summary(run, best, {"policy": "twap", "kind": "baseline", "pa_mean": 0.0, "orders": 480})
    run.figures.mkdir()
    for stem in ("extra_one", "pa_by_month", "learning_curves"):
        (run.figures / f"{stem}.png").write_bytes(PIXEL)
    run.orders.mkdir()
    (run.orders / "summary.csv").write_text(
        "part,orders,instruments,days,first,last,mean_amount\ntrain,120,3,8,2023-01-03,2023-01-12,99.5\n"
    )
    data = {"sessions": "Sessions(3)", "text": "dropped  3 bars <dup>", "notes": ["7 of 100 instruments"]}
    write_json(run.orders / "data.json", data)
    page = write_report(run).read_text()
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert page.count("Not here") == 1, "but for the training, which is not logged"
    for text in (
        "5.0 ± 1.0",
        "n = 10 &amp; so",
        "checkpoint-0012",
        "5.43",
        "480",
        "dropped  3 bars &lt;dup&gt;",
        "extra one",
    ):
        assert text in page
    captions = re.findall("<figcaption>(.*?)[:,.<]", page)
    assert captions == ["By month", "extra one", "Learning"], "what is learnt comes after what came of it"
    assert page.count("data:image/png;base64,") == 3
    assert not re.search(r'src="(?!data:)|href="(?!#)', page), "nothing is fetched from elsewhere"


def answer(run: RunDirectory, **figures: tuple[float, float, float]) -> str:
    """Write the figures of the chosen checkpoints and return the page."""
    rows = [["checkpoint", name, *ends] for name, ends in figures.items()]
    run.backtest.mkdir(exist_ok=True)
    frame = pd.DataFrame(rows, columns=["kind", "metric", "estimate", "lo", "hi"])
    frame.assign(policy="checkpoints").to_csv(run.backtest / "metrics.csv", index=False)
    return write_report(run).read_text()


NONE = (math.nan,) * 3


def risk(run: RunDirectory, less_twap: float, **more: float) -> None:
    """Write a frontier whose chosen checkpoints have a deviation of 110 bp, and TWAP's by so much less, +- 1 bp."""
    rows = []
    for policy, kind, std in (("checkpoints", "checkpoint", 110.0), ("twap", "baseline", 110.0 - less_twap)):
        row: dict[str, Any] = {
            "policy": policy,
            "title": policy.upper(),
            "kind": kind,
            "below_frontier": 0.0,
            "aversion": math.nan,
        }
        values = {"mean": 4.0, "std": std, "cvar": -200.0}
        values |= {"mean_over_twap": 4.0, "std_over_twap": less_twap, "cvar_over_twap": 0.0}
        for name, value in values.items():
            ends = {"": value, "_lo": value - 1.0, "_hi": value + 1.0}
            row |= {f"arrival_{name}{end}": one for end, one in ends.items()}
        rows.append({**row, **more})
    run.backtest.mkdir()
    pd.DataFrame(rows).to_csv(run.backtest / "frontier.csv", index=False)


@pytest.mark.parametrize(
    ("pa", "sentence"),
    [
        (
            (10.204, 6.92, 13.13),
            "Yes, on these test days.</strong> The chosen checkpoints gain 10.20 bp an order on average, ",
        ),
        ((-3.0, -5.0, -1.0), "No: it is worse, on these test days."),
        ((3.0, -1.0, 5.0), "This test does not show it."),
        (NONE, None),
        (
            (3.0, math.nan, math.nan),
            "So few days of orders cannot show it.</strong> The chosen checkpoints gain 3.00 bp an order on average.",
        ),
    ],
)
def test_the_answer_stands_first(run: RunDirectory, pa: tuple[float, float, float], sentence: str | None) -> None:
    page = answer(run, pa=pa, over_twap=NONE)
    assert (sentence in page) if sentence else ("<strong>" not in page)


@pytest.mark.parametrize(
    ("less_twap", "pa", "words"),
    [
        (2.0, (4.0, 3.0, 5.0), "Yes, at more risk, on these test days."),
        (-2.0, (4.0, 3.0, 5.0), "Yes, at less risk, on these test days."),
        (0.5, (4.0, 3.0, 5.0), "Yes, on these test days."),
        (2.0, (4.0, -3.0, 5.0), "This test does not show it."),
    ],
)
def test_a_gain_at_more_risk_is_said_to_be_one(
    run: RunDirectory, less_twap: float, pa: tuple[float, float, float], words: str
) -> None:
    risk(run, less_twap)
    page = html.unescape(answer(run, pa=pa, over_twap=pa))
    assert words in page
    assert f"110.00 bp, TWAP's {110 - less_twap:.2f} bp (difference {less_twap:.2f}, " in page
    assert ("more risk than TWAP" in page) == (less_twap == 2.0)


def test_another_objective_is_what_the_answer_is_on(tmp_path: Path) -> None:
    own = {"objective": {"name": "mean_variance", "aversion": [0.02, 0.0, 0.01]}}
    run = RunDirectory.create(tmp_path / "run", config(**own))
    begin_manifest(run, ["rlwb", "run"])
    ends = {"objective_over_twap": -3.0, "objective_over_twap_lo": -5.0, "objective_over_twap_hi": -1.0}
    risk(run, 2.0, **ends)
    page = html.unescape(answer(run, pa=(4.0, 3.0, 5.0), over_twap=(4.0, 3.0, 5.0), objective=(-9.0, -9.5, -8.5)))
    assert "No: it is worse, on these test days." in page
    assert (
        "By the objective mean_variance (aversion 0.01, the middle of its dial) the chosen checkpoints' orders" in page
    )
    assert "are worth 3.00 bp less than TWAP's" in page
    assert "The chosen checkpoints gain 4.00 bp an order over TWAP" in page


def test_the_mark_to_beat_is_twap_on_the_same_orders(run: RunDirectory) -> None:
    page = answer(run, pa=(1.04, 0.11, 1.96), over_twap=(-0.31, -0.96, 0.31))
    assert "This test does not show it.</strong> The chosen checkpoints lose 0.31 bp an order to TWAP" in page


@pytest.mark.parametrize(
    ("rule", "beats", "pa", "words"),
    [
        ("forecast", True, (4.0, 3.0, 5.0), "Yes, on these test days.<"),
        ("forecast", False, (4.0, 3.0, 5.0), "days, but it is not shown to beat the best simple rule.<"),
        ("forecast", False, (3.0, -1.0, 5.0), "does not show it, nor that it beats the best simple rule.<"),
        ("forecast", False, (-4.0, -5.0, -3.0), "No: it is worse, on these test days.<"),
        ("forecast", None, (4.0, 3.0, 5.0), "Yes, on these test days.<"),
        ("twap", False, (3.0, -1.0, 5.0), "This test does not show it.<"),
    ],
)
def test_the_first_line_says_where_the_best_rule_is_not_beaten(
    run: RunDirectory, rule: str, beats: bool | None, pa: tuple[float, float, float], words: str
) -> None:
    told = {"rule": rule, "beats": beats, "sentence": "The sentence."}
    run.backtest.mkdir()
    (run.backtest / "headline.json").write_text(json.dumps({"header": [], "rows": [], "notes": [], "rule": told}))
    page = answer(run, pa=pa, over_twap=pa)
    assert words in page
    assert ("The sentence." in page) == (rule != "twap")


def test_what_the_answer_holds_for_stands_beside_it(run: RunDirectory) -> None:
    run.orders.mkdir(exist_ok=True)
    finding = {"label_suspect": {"count": 3, "effect": "noted", "example": "AAA 2024-01-02"}}
    (run.orders / "data.json").write_text(
        json.dumps({"report": {"findings": finding}, "notes": [], "text": "", "sessions": ""})
    )
    page = write_report(run).read_text()
    assert "The market is synthetic and has a structure" in page
    assert "It holds under these rules: fills at close; " in page
    assert "label were the wrong one (first: AAA 2024-01-02)" in page
    assert "Doubt about the data: 3 sessions: " in page


def test_a_market_without_a_signal_is_not_said_to_have_one(tmp_path: Path) -> None:
    page = write_report(
        RunDirectory.create(tmp_path / "noise", RunConfig.load(None, Layer("test", {"market.signal": 0.0})))
    ).read_text()
    assert "has a structure" not in page
    assert "nothing to be found" in page


def test_figures_are_written_as_people_read_them(run: RunDirectory) -> None:
    run.backtest.mkdir()
    row = {"policy": "twap", "kind": "baseline", "pa_mean": 5.7e-14, "pa_lo": -1e-13, "win_rate": 0.0, "ffr": 1.0}
    write_summary(run, {**row, "orders": 1920})
    run.update_stage("train", {"state": "finished", "started": "2024-05-06T07:08:09+00:00", "seconds": 64.2})
    page = write_report(run).read_text().replace(' class="words"', "")
    risk = "<td></td>" * 3
    assert f"<td>twap</td><td>baseline</td><td></td><td>0.00</td><td>0.00</td><td></td>{risk}<td>0.0 %</td>" in page
    assert "<td>100.0 %</td><td>1920</td>" in page
    assert "<td>train</td><td>finished</td><td>2024-05-06 07:08:09</td><td>64.2</td>" in page
    assert "<td>backtest</td><td>not done</td>" in page


def test_the_gap_between_the_rules_is_shown_where_there_is_one(run: RunDirectory) -> None:
    run.backtest.mkdir()
    assert "simple rules" not in write_report(run).read_text()
    (run.backtest / "gap.csv").write_text(
        "cause,pa,pa_net,difference,difference_lo,difference_hi,ffr,orders,left_out,rules\n"
        "simple rules,1.5,1.5,,,,1.0,100,2,x\nvolume cap,1.25,1.25,-0.25,-0.5,0.125,0.955,100,2,y\n"
    )
    page = write_report(run).read_text()
    assert (
        "<td>volume cap</td><td>1.25</td><td>1.25</td><td>-0.25</td><td>-0.50</td><td>0.12</td><td>95.5 %</td>" in page
    )
    assert "<td>simple rules</td><td>1.50</td><td>1.50</td><td></td>" in page


def test_under_costs_the_answer_is_after_them(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config(execution__rules__commission_bps=3.0))
    begin_manifest(run, ["rlwb", "run"])
    net = {"pa_net": (6.0, 5.0, 7.0), "net_over_twap": (-4.0, -6.0, -2.0)}
    page = answer(run, pa=(9.0, 8.0, 10.0), over_twap=(9.0, 8.0, 10.0), **net)
    assert "No: it is worse, on these test days.</strong> The chosen checkpoints lose 4.00 bp an order to TWAP" in page
    assert "to TWAP after costs on average" in page


def test_j01_the_summary_shows_fills_in_untraded_bars_where_there_are_any(run: RunDirectory) -> None:
    run.backtest.mkdir()
    row = {"policy": "twap", "kind": "baseline", "pa_mean": 0.0, "ffr": 1.0, "orders": 4}
    write_summary(run, row)
    assert "in untraded bars" not in write_report(run).read_text()
    write_summary(run, {**row, "untraded": 0.375})
    page = write_report(run).read_text()
    assert "in untraded bars" in page
    assert "<td>100.0 %</td><td>37.5 %</td><td>4</td>" in page


def test_j02_j05_j11_what_may_void_the_answer_stands_beside_it(run: RunDirectory) -> None:
    run.backtest.mkdir()
    run.orders.mkdir()
    said = ["volume_limit: 3 of 4 orders have none", "training and test orders differ in side: so"]
    write_json(run.backtest / "caveats.json", {"caveats": said})
    write_json(run.orders / "data.json", {"sessions": "Sessions(3)", "text": "", "notes": ["one", OWN_VOLUME]})
    page = html.unescape(write_report(run).read_text())
    answer = page[page.index("Does the policy beat TWAP?") : page.index("How stable is that?")]
    assert all(text in answer for text in ("Volume_limit: 3 of 4", "Training and test orders differ in side: so."))
    assert OWN_VOLUME[1:] in answer
    assert "<li>one" not in answer


def test_k20_the_page_prints_and_fits_a_telephone_and_both_themes(run: RunDirectory) -> None:
    page = write_report(run).read_text()
    for rule in ("@media print", "@page", "(prefers-color-scheme: dark)", "(max-width: 48rem)"):
        assert rule in page
    style = page[page.index("<style>") : page.index("</style>")]
    assert style.count("{") == style.count("}")
    assert "#" not in style[style.index("body {") : style.index("@media (max-width")].replace("background: #fff", "")


def test_k21_twenty_pages_have_twenty_titles(run: RunDirectory) -> None:
    assert f"<title>{html.escape(run.path.name)}: orders not done, ppo, seed 0</title>" in write_report(run).read_text()


def test_windows_that_have_a_page_are_linked(run: RunDirectory) -> None:
    run.backtest.mkdir()
    texts, numbers = (
        ["window", "train_first", "train_last", "test_first", "test_last"],
        ["orders", "days", "validation_pa", "pa_mean", "pa_lo"],
    )
    numbers += ["pa_hi", "pa_net", "last_pa", "ffr"]
    rows = [[name, *["2023-01-04"] * 4, *[1.0] * len(numbers)] for name in ("001", "002")]
    pd.DataFrame(rows, columns=[*texts, *numbers]).to_csv(run.backtest / "windows.csv", index=False)
    (run.path / "windows/001").mkdir(parents=True)
    (run.path / "windows/001/report.html").touch()
    page = write_report(run).read_text()
    assert '<td><a href="windows/001/report.html">001</a></td>' in page
    assert "<td>002</td>" in page
