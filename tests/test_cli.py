"""The command line's words, without work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

import rlwb
from rlwb.cli import app, main
from rlwb.experiment.run import RunDirectory


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    return (int(stop.value.code or 0), *capsys.readouterr())


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "run", "--help")
    assert code == 0
    options = ("[CONFIG]", "--set NAME=VALUE", "--run-dir DIR", "--resume", "--trust-code", "--debug", "--help")
    for option in (*options, "rlwb config"):
        assert option in re.sub(r"\s+", " ", out)


def test_without_a_word_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys) == call(capsys, "--help")


def test_help_lists_every_command_once_with_its_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "--help")
    shown = re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", out, re.MULTILINE)
    commands = typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    assert sorted(shown) == sorted(name for name, command in commands if not command.hidden)
    assert "..." not in out.partition("Options:")[2], "no sentence is cut"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"rlwb {rlwb.__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "--set", "train.learing_rate=1"), "did you mean algorithm.learning_rate?"),
        (("run", "--set", "train.learning_rate=1"), "train.learning_rate is written algorithm.learning_rate now"),
        (("run", "missing.yaml"), "missing.yaml: cannot be read as a configuration (No such file or directory)."),
        (("run", "--run-dri", "x"), "No such option: --run-dri"),
        (("run", "--run-dri", "x"), "(rlwb run --help)"),
        (("impact", "fit", "--afters", "5"), "(rlwb impact fit --help)"),
        (("rn",), "No such command 'rn'"),
        (("config", "--set", "market.instruments=[0010]"), 'quote it: "0010"'),
    ],
)
def test_users_faults_are_one_sentence_and_exit_2(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    code, out, err = call(capsys, *words)
    assert code == 2
    assert out == ""
    assert err.startswith("rlwb: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_config_prints_what_every_parameter_does(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "config", "--set", "train.iterations=7")
    assert code == 0
    assert "  # Passes over the collected orders" in out
    assert "\n  iterations: 7\n" in out


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "run", "missing.yaml", "--debug")
    assert code == 2
    assert "Traceback" in err


@pytest.mark.parametrize("words", [[], ["--quiet"], ["--json"]])
def test_k21_lines_bear_the_time_and_a_job_may_ask_for_the_result_alone(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(*args: object, echo: Callable[[str], None], **options: object) -> RunDirectory:
        echo("orders: 01_orders.ipynb")
        return run

    run = RunDirectory(tmp_path / "run")
    run.backtest.mkdir(parents=True)
    (run.backtest / "headline.txt").write_text("policy  PA\n")
    (run.backtest / "headline.csv").write_text("policy,pa_mean,pa_lo\ncheckpoints,1.5,\n")
    monkeypatch.setattr("rlwb.experiment.pipeline.launch", launch)
    code, said, _ = call(capsys, "run", *words)
    assert code == 0
    if words == ["--json"]:
        rows = [{"policy": "checkpoints", "pa_mean": 1.5, "pa_lo": None}]
        assert json.loads(said) == {"run": str(run.path), "report": str(run.report), "policies": rows}
    elif words:
        assert said == "policy  PA\n"
    else:
        assert re.fullmatch(r"\d\d:\d\d:\d\d orders: 01_orders.ipynb\n", said)
