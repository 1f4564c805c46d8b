"""What README and docs show works as it stands there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlwb.cli import app, main
from rlwb.errors import ConfigError
from rlwb.experiment.config import SLOTS, Layer, RunConfig, parse_assignments
from rlwb.experiment.orders import make_orders
from rlwb.experiment.own_code import TRUST_ENV
from rlwb.experiment.run import RunDirectory
from rlwb.parts import BUILT_IN, PROVIDED

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "data" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PARTS = ROOT / "tests" / "experiment"


def blocks(page: Path | str, language: str) -> list[str]:
    """Return the code blocks of a page in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def run_script(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-W", "error::UserWarning", "-c", code]
    result = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_readme_fits_on_a_few_screens_and_keeps_its_marks() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 115
    assert text.count("<!-- headline -->") == text.count("<!-- /headline -->") == 1


def test_the_reward_of_the_readme_trains_beside_the_parts_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlwb.experiment.training import train_policy

    monkeypatch.setenv(TRUST_ENV, "1")
    (code,) = blocks(README, "python")
    assert len([line for line in code[code.index("class ") :].splitlines() if line.strip()]) <= 10
    (tmp_path / "arrival.py").write_text(code)
    (text,) = blocks(README, "yaml")
    (tmp_path / "mine.yaml").write_text(text)
    small = {"market.instruments": 2, "market.days": 20, "train.iterations": 1, "train.episodes_per_iteration": 20}
    config = RunConfig.load(tmp_path / "mine.yaml", Layer("test", small))
    run = RunDirectory.create(tmp_path / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    head = (run.metrics / "train.csv").read_text().splitlines()[0]
    assert "reward/Arrival" in head


def test_the_refusal_is_the_one_that_is_shown() -> None:
    text = README.read_text(encoding="utf-8")
    (word,) = re.findall(r"\$ rlwb run --set (\S+)", text)
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(None, parse_assignments([word]))
    assert f"\n    rlwb: {caught.value}\n" in text


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:rlwb|notebooks|data|configs|benchmarks|docs|tests)/[\w./-]*)`", text):
        assert (ROOT / name).exists(), name
    for link in re.findall(r"\]\(([^)#\s]+)\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"(?:`|^    )make ([a-z-]+)", text, re.MULTILINE):
        assert target in targets, target
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {str(group.name) for group in app.registered_groups}
    for command in re.findall(r"(?:`|^    )rlwb ([a-z]+)", text, re.MULTILINE):
        assert command in commands, command


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_the_names_of_the_library_on_a_page_are_there(page: Path) -> None:
    for dotted in re.findall(r"`(rlwb(?:\.\w+){2,})(?:\(|`)", page.read_text(encoding="utf-8")):
        module, rest = ROOT, dotted.split(".")
        while rest and (module / rest[0]).is_dir():
            module /= rest.pop(0)
        file = module / "__init__.py"
        if rest and (module / f"{rest[0]}.py").is_file():
            file = module / f"{rest.pop(0)}.py"
        if rest:
            assert re.search(rf"\b{rest[0]}\b", file.read_text(encoding="utf-8")), f"{dotted}: {file} has no {rest[0]}"


FILES_OF_FAILURES = {
    "short.csv": "instrument,datetime,open,high,low,close\nAAA,2024-03-04 09:35,10,10,10,10\n",
    "night.csv": "instrument,datetime,open,high,low,close,volume\nAAA,2024-03-04 20:35,10,10,10,10,100\n",
    "taken/notes.txt": "",
}


def test_each_failure_says_what_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES_OF_FAILURES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shown = [block.splitlines() for block in blocks("docs/failures.md", "console")]
    assert len(shown) >= 10
    for command, message in shown:
        with pytest.raises(SystemExit) as left:
            main(command.removeprefix("$ rlwb ").split())
        assert left.value.code == 2, command
        said = capsys.readouterr().err.strip().replace(str(tmp_path), "…")
        assert said == message or (message.endswith("…") and said.startswith(message[:-1])), said


@pytest.mark.parametrize("page", PAGES, ids=of)
def test_what_a_page_sets_is_a_parameter(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"^.*--set.*$", text, re.MULTILINE):
        found = re.findall(r"--set (?:'([^']+)'|([^\s`']+=[^\s`'\]]+))", line)
        words = [quoted or plain for quoted, plain in found if plain != "name=value"]
        if words and "$" not in line and not words[0].startswith("algorithm."):  # of another than the default
            RunConfig.load(None, parse_assignments(words))
    tree = RunConfig().as_dict()
    for name in re.findall(r"`((?:split|execution|head|train|backtest|features)\.(?!csv|onnx)\w+)", text):
        section, _, key = name.partition(".")
        assert key in tree[section], name


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=of)
def test_the_configurations_of_a_page_are_ones(page: Path, tmp_path: Path) -> None:
    shutil.copytree(PARTS / "parts", tmp_path / "parts")
    for text in blocks(page, "yaml"):
        for name in re.findall(r"[:{ ]([\w/]+\.py):", text):
            if not (tmp_path / name).exists():
                (tmp_path / name).write_text(blocks(README, "python")[0] + "\ndef read_json_lines(source):\n    ...\n")
        (tmp_path / "mine.yaml").write_text(text)
        RunConfig.load(tmp_path / "mine.yaml")


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    named = set(re.findall(r"\]\(([^)#]+\.md)\)", (docs / "index.md").read_text()))
    assert {str(path.relative_to(docs)) for path in docs.rglob("*.md")} <= named | {"index.md"}


def test_the_checks_of_the_page_on_extending_pass(tmp_path: Path) -> None:
    shutil.copytree(PARTS / "parts", tmp_path / "parts")
    (checks,) = (code for code in blocks("docs/extending.md", "python") if "check_simulator(" in code)
    run_script(checks, tmp_path)


@pytest.mark.parametrize("path", sorted((PARTS / "parts").glob("*.py")), ids=lambda path: path.name)
def test_the_parts_of_the_page_are_the_files_that_the_tests_run(path: Path) -> None:
    assert path.read_text() in blocks("docs/extending.md", "python")
    assert len([line for line in path.read_text().splitlines() if line.strip()]) < 30


def test_the_configuration_of_the_page_is_the_one_that_the_tests_run() -> None:
    assert (PARTS / "mine.yaml").read_text() in blocks("docs/extending.md", "yaml")


def test_the_features_of_their_page_pass_the_look_ahead_test(tmp_path: Path) -> None:
    codes = blocks("docs/features.md", "python")
    check = "from rlwb.market.feature_registry import find_feature\n"
    for code, name in zip(codes, ("range_so_far", "rank"), strict=True):
        (tmp_path / f"{name}.py").write_text(code)
        check += f"find_feature('{name}.py:{name}')\n"
    run_script(check, tmp_path)


def test_every_kind_and_all_that_a_run_provides_is_on_the_page() -> None:
    text = (ROOT / "docs" / "parts.md").read_text()
    for kind in SLOTS:
        assert f"| `{kind}`" in text, kind
    for name in (*PROVIDED, *(name for kind, parts in BUILT_IN.items() if kind != "reader" for name in parts)):
        assert f"`{name}`" in text, name


def test_the_scripts_of_the_library_page_run(tmp_path: Path) -> None:
    lifted, script = blocks("docs/library.md", "python")
    lines = run_script(script, tmp_path).splitlines()
    assert [line[:9] for line in lines[:3]] == ["iteration"] * 3
    assert "validation PA" in lines[0]
    assert "pa" in lines[3]
    check = "from rlwb.conformance import check_reward\ncheck_reward(lambda stage: FilledShare())\n"
    run_script(lifted + check, tmp_path)


def test_the_checks_of_the_conformance_page_pass(tmp_path: Path) -> None:
    shutil.copytree(PARTS / "parts", tmp_path / "parts")
    (code,) = blocks("docs/conformance.md", "python")
    run_script(code, tmp_path)


def test_configurations_that_are_shipped_can_be_read() -> None:
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        RunConfig.load(path, Layer("test", {"market.source": "bars"}))


def test_every_yaml_block_is_yaml() -> None:
    for page in PAGES:
        for text in blocks(page, "yaml"):
            assert isinstance(yaml.safe_load(text), dict), page


def test_k27_the_page_of_results_is_the_data_dictionary() -> None:
    from rlwb.evaluation.dictionary import as_markdown

    page = (ROOT / "docs" / "results.md").read_text()
    assert page[page.index("## ") :] == as_markdown(), "write the output of `rlwb columns` there"


def test_k28_a_user_finds_an_answer_to_each_of_twenty_questions() -> None:
    rows = re.findall(r"^\| (.+?\?[^|]*) \| (.+) \|$", (ROOT / "docs" / "questions.md").read_text(), re.MULTILINE)
    assert len(rows) >= 20
    assert all("`" in answer or "](" in answer or "notes" in answer for _, answer in rows)
    asked = " ".join(question for question, _ in rows).lower()
    for word in ("orders", "network", "actions", "gpu", "limit", "qlib", "crash", "dates", "column"):
        assert word in asked
    for page in ("orders.md", "extending.md", "actions.md", "gpu.md", "volume-limit.md"):
        assert any(page in answer for _, answer in rows), page
