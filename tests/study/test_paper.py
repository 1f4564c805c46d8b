"""The folder of a paper: its documents, what ties their numbers to files, and the check that runs without rlwb."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mistune
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.cli import main
from rlwb.errors import ConfigError
from rlwb.evaluation import style
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STAGES, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.parts import BUILT_IN
from rlwb.study import paper as room
from rlwb.study.paper import launch_paper, settings_rows
from rlwb.study.paper_check import as_markdown, as_tex, check, one_line, shown
from rlwb.study.paper_document import Cite, Works
from rlwb.study.paper_methods import told
from tests.experiment.test_work import tiny
from tests.study.test_sweep import Acted, act, go

__all__ = ["act"]

HOSTILE = r"50%_of $x & #1 ~a^b\c{d} |e|<b>*f*[g](h)--`i`"
#: What stands for each character that LaTeX reads as something else.
_BACK = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textasciigrave{}": "`",
    r"\textquotedbl{}": '"',
    **{f"\\{one}": one for one in "{}$&#_%"},
}


def untexed(text: str) -> str:
    """Read LaTeX back into the characters that it shows; a character that does something is a failure."""
    pieces = re.split(rf"({'|'.join(map(re.escape, sorted(_BACK, key=len, reverse=True)))}|-\{{\}})", text)
    plain = pieces[::2]
    assert not re.search(r"[\\{}$&#_%~^<>|`\"]|--", "\0".join(plain)), text
    return "".join(_BACK.get(one, one) for one in pieces).replace("-{}", "-")


@given(st.text(st.characters(max_codepoint=0x17F), max_size=30))
def test_latex_shows_each_character(text: str) -> None:
    assert untexed(as_tex(text).replace(r"$\pm$", "±").replace(r"$\times$", "×")) == one_line(text)


@given(st.text("ab12 |*_`~[]()<>&#!\\$-", max_size=30))
def test_markdown_shows_each_character(text: str) -> None:
    html = mistune.html(f"| {as_markdown(text)} |\n|---|\n| x |\n")
    cell = re.search(r"<th>(.*)</th>", html)
    shown_text = "" if cell is None else re.sub("&lt;", "<", cell[1])
    for name, letter in (("&gt;", ">"), ("&quot;", '"'), ("&amp;", "&")):
        shown_text = shown_text.replace(name, letter)
    assert shown_text.split() == text.split()


@pytest.mark.parametrize(
    ("value", "form", "scale", "text"),
    [
        ("15.3213", ".2f", 1, "15.32"),
        ("-0.001", ".2f", 1, "0.00"),
        ("-0.006", ".2f", 1, "-0.01"),
        ("0.6224", ".1f", 100, "62.2"),
        ("", ".2f", 1, "-"),
        ("nan", ".2f", 1, "-"),
        (None, ".1f", 1, "-"),
        (1920, ",.0f", 1, "1,920"),
        ("twap", None, 1, "twap"),
        (None, None, 1, "-"),
    ],
)
def test_how_values_are_printed(value: Any, form: str | None, scale: float, text: str) -> None:
    assert shown(value, form, scale) == text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a finished run, some of whose names are hostile; not to be changed."""
    config = tiny()
    made = RunDirectory.create(tmp_path_factory.mktemp("paper") / "a_run", config)
    work = dict(zip(STAGES, (make_orders, partial(train_policy, progress="none"), backtest_policies), strict=False))
    with recorded(made, list(work)):
        for stage, one in work.items():
            run_stage(stage, made, config, one, echo=lambda line: None)
    metrics = made.backtest / "metrics.csv"
    table = pd.read_csv(metrics, float_precision="round_trip")
    table["title"] = table["title"].replace("POV", HOSTILE)
    table.to_csv(metrics, index=False)
    for part in ("train", "valid", "test"):
        path = made.orders / f"{part}.parquet"
        orders = pd.read_parquet(path)
        orders["instrument"] = orders["instrument"].astype(str).replace("SYN001", HOSTILE)
        orders.to_parquet(path)
    return made


@pytest.fixture(scope="module")
def written(run: RunDirectory) -> Path:
    """Return the paper of `run`; not to be changed."""
    return launch_paper(run.path, echo=lambda line: None)


@pytest.fixture
def paper(written: Path, run: RunDirectory, tmp_path: Path) -> Path:
    shutil.copytree(run.path, tmp_path / "a_run")
    return Path(shutil.copytree(written, tmp_path / "a_run-paper"))


@pytest.fixture
def few_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw one figure alone, for time."""

    def one(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
        return {"learning_curves": style.note_figure("Learning", "of the test")}

    monkeypatch.setattr(room, "stability_figures", one)


def program(paper: Path, *words: str) -> tuple[int, str]:
    """Run the folder's own check without rlwb, or any other package."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(paper / "check.py"), *words], capture_output=True, text=True, cwd="/"
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_an_untouched_folder_agrees_wherever_it_lies(paper: Path, tmp_path: Path) -> None:
    code, said = program(paper)
    assert code == 0, said
    assert "all agrees" in said
    assert "beside" not in said, "the run was found"
    alone = Path(shutil.copytree(paper, tmp_path / "elsewhere" / "p"))
    code, said = program(alone)
    assert code == 0
    assert "not beside it" in said
    assert program(alone, str(tmp_path / "a_run"))[0] == 0


def test_every_number_is_tied_to_a_file(written: Path) -> None:
    made = json.loads((written / "figures.json").read_text())
    for name, segments in made["documents"].items():
        own = "".join(one if isinstance(one, str) else "#" for one in segments)
        own = re.split(r"## References|\\begin\{document\}", own)[-1 if name == "paper.tex" else 0]
        works = r"SHA256SUMS|sha256|\\cite\{[^}]*\}|\([^()]* \d{4}\)"
        own = re.sub(rf"{works}|width=0\.8|p\{{0\.\d+|(above|PA >|PA \\>|sides of|textgreater\{{\}}) 0", "", own)
        assert not re.findall(r".*[1-9].*", own), name
    at = {(one["file"], str(one.get("row")), str(one["field"])): one for one in made["figures"]}
    mean = at["source/backtest/metrics.csv", "{'policy': 'checkpoints', 'metric': 'pa'}", "estimate"]
    table = pd.read_csv(written / "source/backtest/metrics.csv").set_index(["policy", "metric"])
    assert float(mean["value"]) == pytest.approx(table.loc[("checkpoints", "pa"), "estimate"])
    assert mean["text"] == f"{table.loc[('checkpoints', 'pa'), 'estimate']:.2f}"
    assert mean["format"] == ".2f"


@pytest.mark.parametrize("name", ["paper.md", "table.md", "table.tex"])
def test_a_changed_number_is_named(paper: Path, name: str) -> None:
    file = paper / name
    made = json.loads((paper / "figures.json").read_text())
    cell = next(
        i
        for i, one in enumerate(made["figures"])
        if one.get("row") == {"policy": "hindsight", "metric": "pa"} and one["field"] == "estimate"
    )
    number = made["figures"][cell]["text"]
    text = file.read_text()
    line = next(one for one in text.splitlines() if number in one and "hindsight" in one)
    file.write_text(text.replace(line, line.replace(number, "99.99", 1)))
    code, said = program(paper)
    assert code == 1
    first = said.splitlines()[0]
    assert all(one in first for one in (name, "99.99", number, "metrics.csv", "hindsight", "estimate"))


def test_a_changed_source_is_named_with_the_numbers_it_moves(paper: Path) -> None:
    file = paper / "source" / "backtest" / "metrics.csv"
    table = pd.read_csv(file, float_precision="round_trip")
    table.loc[(table["policy"] == "twap") & (table["metric"] == "ffr"), "estimate"] = 0.5
    table.to_csv(file, index=False)
    code, said = program(paper)
    assert code == 1
    assert re.search(r"paper\.md, line \d+: 100\.0 is printed, but .*twap.*ffr.* is 50\.0", said)
    assert "table.tex, line" in said
    assert "source/backtest/metrics.csv of the paper's folder is not what it was" in said


@pytest.mark.parametrize("name", ["backtest/metrics.csv", "config.yaml", "orders/test.parquet", "checkpoints/0001.pt"])
def test_a_changed_file_of_the_run_is_named(paper: Path, tmp_path: Path, name: str) -> None:
    with (tmp_path / "a_run" / name).open("ab") as file:
        file.write(b" ")
    code, said = program(paper)
    assert code == 1
    assert f"{name} of the run is not what it was" in said.splitlines()[0]
    (tmp_path / "a_run" / name).unlink()
    assert f"{name} of the run is not there" in program(paper)[1]


def test_words_may_be_others_but_numbers_may_not(paper: Path) -> None:
    file = paper / "paper.tex"
    text = file.read_text()
    line = next(one for one in text.splitlines() if "test orders of" in one)
    file.write_text(text.replace(line, f"We find this. {line}\nAnd a word of ours.\n"))
    assert program(paper)[0] == 0
    file.write_text(text.replace(line, f"{line}\nIt gains 7.77 basis points.\n"))
    code, said = program(paper)
    assert code == 1
    assert "7.77" in said
    (paper / "paper.md").unlink()
    assert "paper.md is not there" in list(check(paper))


def test_hostile_names_survive(written: Path) -> None:
    rows = (written / "table.tex").read_text().splitlines()
    cells = [re.split(r"(?<!\\)&", row)[0] for row in rows if row.startswith("{}50")]
    assert [untexed(one.removeprefix("{}").strip()) for one in cells] == [HOSTILE]
    for name in ("paper.md", "table.md"):
        html = mistune.create_markdown(plugins=["table"])((written / name).read_text())
        assert "<td>50%_of $x &amp; #1 ~a^b\\c{d} |e|&lt;b&gt;*f*[g](h)--`i`</td>" in str(html)
    text = (written / "paper.tex").read_text()
    (line,) = [one for one in text.splitlines() if "instruments with orders" in one]
    assert HOSTILE in untexed(re.sub(r"\\item\{\}|\\texttt\{(.*?)\}", "", line))


def test_latex_is_balanced_and_names_files_that_are_there(written: Path) -> None:
    """No LaTeX is at hand here: braces, environments, columns, and files and references by name are checked."""
    for name in ("paper.tex", "table.tex"):
        text = re.sub(r"(?<!\\)%.*", "", (written / name).read_text())
        bare = re.sub(r"\\[{}]", "", text)
        depth = [0]
        for one in re.findall(r"[{}]", bare):
            depth.append(depth[-1] + (1 if one == "{" else -1))
        assert min(depth) == 0
        assert depth[-1] == 0
        opened: list[str] = []
        for what, kind in re.findall(r"\\(begin|end)\{(\w+)\}", text):
            if what == "begin":
                opened.append(kind)
            else:
                assert opened.pop() == kind
        assert not opened
        for columns, body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}(.*?)\\end\{tabular\}", text, re.S):
            for row in re.findall(r"^(.*)\\\\$", body, re.M):
                assert len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1
    text = (written / "paper.tex").read_text()
    for picture in re.findall(r"\\includegraphics\[[^]]*\]\{(.*?)\}", text):
        assert (written / picture).read_bytes().startswith(b"%PDF")
    assert re.findall(r"\\input\{(.*?)\}", text) == ["table"]
    keys = {
        key
        for found in re.findall(r"\\cite\{(.*?)\}", text + (written / "table.tex").read_text())
        for key in found.split(",")
    }
    known = re.findall(r"^@\w+\{(\w+),", (written / "references.bib").read_text(), re.M)
    assert set(known) == keys
    assert len(known) == len(keys)


def test_what_speaks_for_and_against_it_stands_beside_the_result(
    run: RunDirectory, tmp_path: Path, few_figures: None
) -> None:
    shutil.copytree(run.path, tmp_path / "r")
    reasons = [
        {"topic": "effect", "sentence": "It gains 3.25 bp.", "is_against": False},
        {"topic": "audit", "sentence": f"A check failed in {HOSTILE}.", "is_against": True},
    ]
    stress = {
        "condition": "spread-2bp",
        "policy": "checkpoints",
        "metric": "pa_net",
        "estimate": 1.25,
        "lo": 0.5,
        "hi": 2,
    }
    files = {
        "verdict.json": {"answer": "No", "mark": "TWAP", "reasons": reasons},
        "audit.json": {"checks": [{"name": "twins", "passed": False, "detail": "2 sessions"}]},
        "backtest/power.json": {"orders": 1920, "days": 48, "detectable_bp": 6.54, "power": 0.8, "days_for_1bp": 2425},
        "backtest/evidence.json": {
            "candidates": 40,
            "chosen": 1.5,
            "last": 1,
            "random": {"mean": 0.5, "lo": -1, "hi": 2},
        }
        | {"seen_shrinkage": 2.125, "expected_shrinkage": None, "rank_correlation": -0.5, "trials": 41}
        | {"overfitting_probability": 0.25, "reality_check_p": 0.04},
    }
    for name, values in files.items():
        (tmp_path / "r" / name).write_text(json.dumps(values))
    (tmp_path / "r" / "stress").mkdir()
    pd.DataFrame([stress]).to_csv(tmp_path / "r/stress/conditions.csv", index=False)
    verdicts = pd.DataFrame([{"condition": "spread-2bp", "stays": 0.625, "verdict": "leads"}])
    verdicts.to_csv(tmp_path / "r/stress/verdicts.csv", index=False)
    paper = launch_paper(tmp_path / "r", echo=lambda line: None)
    assert program(paper)[0] == 0
    text = (paper / "paper.md").read_text()
    for told_in in (
        "better prices than TWAP? No.",
        "- It gains 3.25 bp.\n- This speaks against it: A check failed in 50%\\_of",
        "- twins, FAILED: 2 sessions.",
        "1,920 orders on 48 days tell a gain of such a policy of 6.5 bp or more from nothing in 80 % of cases",
        "chosen among 40 by validation",
        "drawn at random 0.50 bp (most draws within -1.00 and 2.00)",
        "fell by 2.12 bp, where choosing the best of noise explains -.",
        "counts all 41 trials 0.04 (Hansen 2005; White 2000)",
        "| spread-2bp | 1.25 | [0.50, 2.00] | 0.62 | leads |",
    ):
        assert told_in in text, told_in
    assert untexed(re.findall("failed in (.*).$", (paper / "paper.tex").read_text(), re.M)[0]) == HOSTILE


def test_the_folder_can_be_made_anew_and_nothing_else_is_overwritten(
    run: RunDirectory, tmp_path: Path, few_figures: None, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.path, tmp_path / "a_run")
    with pytest.raises(SystemExit):
        main(["paper", str(tmp_path / "a_run"), "--json"])
    paper = tmp_path / "a_run-paper"
    files = {name: str(paper / file) for name, file in (("text", "paper.md"), ("latex", "paper.tex"))}
    assert json.loads(capsys.readouterr().out) == {"paper": str(paper), **files, "check": str(paper / "check.py")}
    before = {one.name: one.read_bytes() for one in paper.rglob("*") if one.is_file()}
    (paper / "paper.md").write_text("edited")
    again = launch_paper(tmp_path / "a_run", paper, echo=lambda line: None)
    assert again == paper
    assert {one.name: one.read_bytes() for one in again.rglob("*") if one.is_file()} == before, "the same bits"
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    for to in (other, tmp_path, run.path):
        with pytest.raises(ConfigError, match=re.escape(str(to))):
            launch_paper(tmp_path / "a_run", to)
    assert [one.name for one in other.iterdir()] == ["thesis.tex"]


def test_what_is_not_finished_or_no_run_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    begun = RunDirectory.create(tmp_path / "begun", tiny())
    with pytest.raises(ConfigError, match="begun"):
        launch_paper(begun.path)
    with pytest.raises(ConfigError, match="neither a run nor a sweep"):
        launch_paper(run.orders)
    assert not (tmp_path / "begun-paper").exists()


def test_settings_are_marked_where_they_differ_from_the_default() -> None:
    changes = {"algorithm": {"name": "ppo", "repeat": 7}, "baselines": ["twap", {"name": "vwap", "days": 5}], "seed": 3}
    rows = settings_rows(RunConfig.load(None, Layer("test", changes)), ["reward.penalty"])
    changed = {name for name, one in rows.items() if one["changed"]}
    assert changed == {"algorithm.name", "algorithm.repeat", "baselines", "seed", "reward.penalty"}
    assert (rows["algorithm.repeat"]["text"], rows["seed"]["default"]) == ("7", "0")
    assert rows["algorithm.name"]["default"] == RunConfig().algorithm.name
    assert rows["baselines"]["text"] == "[twap, {name: vwap, days: 5}]"
    assert rows["reward.penalty"]["text"] == "several"


def test_every_part_of_the_method_is_told_with_works_that_there_are() -> None:
    works = Works.read(Path(settings_rows.__code__.co_filename).with_name("references.bib"))
    keys = set()
    for kind in ("algorithm", "network", "reward", "action_interpreter", "state_interpreter", "baseline"):
        for name in BUILT_IN[kind]:
            words = told(kind, name)
            assert "own part" not in str(words[0]), (kind, name)
            keys |= {key for one in words if isinstance(one, Cite) for key in one.keys}
    assert keys <= works.entries.keys()
    assert works.short("cameron2008") == "Cameron et al. 2008"
    assert works.short("almgren2000") == "Almgren and Chriss 2000"
    assert "van Merriënboer" in works.long("cho2014")
    assert told("algorithm", "mine.py:A_B")[0] == "the run's own part "


def test_a_sweep_has_seeds_iqm_and_probability_of_improvement(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="8", grid=["reward.penalty=10,20"])
    said: list[str] = []
    paper = launch_paper(tmp_path / "s", tmp_path / "p", echo=said.append)
    assert str(paper) in said[0]
    code, told_by_check = program(paper)
    assert code == 0, told_by_check
    text = (paper / "paper.md").read_text()
    seeds = pd.read_csv(tmp_path / "s" / "seeds.csv", keep_default_na=False, na_values=[""])
    chosen = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "pa")]
    for row in chosen.itertuples():
        assert f"{row.mean:.2f} ± {row.std_seeds:.2f} | [{row.mean_lo:.2f}, {row.mean_hi:.2f}] | {row.iqm:.2f}" in text
    assert "P(better than TWAP)" in text
    assert "Agarwal et al. 2021" in text
    assert "All members traded the same test orders." in text, "the notes of the sweep"
    assert "--grid reward.penalty=10,20 --seeds 8" in text
    table = pd.read_csv(tmp_path / "s" / "improvement.csv")
    table["probability"] = 0.123
    table.to_csv(paper / "source" / "improvement.csv", index=False)
    code, told_by_check = program(paper)
    assert code == 1
    assert re.search(r"is printed, but source/improvement\.csv.* is 0\.12", told_by_check)


def test_a_sweep_without_a_table_is_refused(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act(codes={"seed-0": [1, 1]})
    go(tmp_path / "s", seeds="1")
    with pytest.raises(ConfigError, match="no table yet"):
        launch_paper(tmp_path / "s")


def test_the_command_does_it(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], few_figures: None
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["paper", str(run.path), "--to", str(tmp_path / "p")])
    assert caught.value.code == 0
    assert str(tmp_path / "p") in capsys.readouterr().out
    assert {
        "paper.md",
        "paper.tex",
        "table.md",
        "table.tex",
        "figures.json",
        "check.py",
        "SHA256SUMS",
        "run.sha256",
    } <= {one.name for one in (tmp_path / "p").iterdir()}
