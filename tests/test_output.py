"""Output that nobody reads changes nothing."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rlwb.experiment.run import RunDirectory
from tests.experiment.fakes import write_notebooks

ROOT = Path(__file__).resolve().parents[1]
LONG = "import sys, typer; from rlwb import cli\n@cli.app.command()\ndef long() -> None:\n"
TALK = LONG + "    for number in range(20_000): typer.echo(f'line {number}'); typer.echo('x' * 80, err=True)\n"
DONE = "    import pathlib; pathlib.Path(sys.argv[1]).touch()\ncli.main(['long'])"


def python(code: str, *words: str, **how: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.Popen(command, cwd=ROOT, **how)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize("closed", [["stdout"], ["stderr"], ["stdout", "stderr"]], ids="+".join)
def test_k03_a_reader_that_goes_changes_nothing(tmp_path: Path, closed: list[str]) -> None:
    process = python(TALK + DONE, str(tmp_path / "done"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for name in closed:
        getattr(process, name).readline()
        getattr(process, name).close()
    with process:
        out, err = (b"" if name in closed else getattr(process, name).read() for name in ("stdout", "stderr"))
    assert process.returncode == 0
    assert (tmp_path / "done").exists()
    assert b"Traceback" not in out + err
    assert b"Exception ignored" not in err


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_k03_streams_that_were_never_open(tmp_path: Path, closed: str) -> None:
    """No file of the process takes the number of a stream, so what is printed goes into none."""
    code = TALK + "    import os\n    with open(sys.argv[1] + '-file', 'w') as file: assert file.fileno() > 2\n"
    code += "    os.write(1, b'into no file')\n" + DONE
    (tmp_path / "code.py").write_text(code)
    command = f'"{sys.executable}" "{tmp_path / "code.py"}" "{tmp_path / "done"}" {closed}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert (
        subprocess.run(command, shell=True, env=environment, timeout=60, capture_output=True, check=False).returncode
        == 0
    )
    assert (tmp_path / "done").exists()
    assert (tmp_path / "done-file").read_bytes() == b""


def test_k03_a_terminal_that_is_gone(tmp_path: Path) -> None:
    mine, theirs = pty.openpty()
    process = python(TALK + DONE, str(tmp_path / "done"), stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    os.read(mine, 10)
    os.close(mine)
    assert process.wait(60) == 0
    assert (tmp_path / "done").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_k03_lost_output_that_was_wanted_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        process = python(TALK + DONE, str(tmp_path / "done"), stdout=full, stderr=subprocess.PIPE)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.endswith(b"rlwb: output was lost (No space left on device); what was done is done.\n")
    assert (tmp_path / "done").exists()


def test_k03_letters_that_an_encoding_lacks() -> None:
    code = LONG + "    typer.echo('\\u00e9 \\u4e2d')\ncli.main(['long'])"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    process = python(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"\xe9 \\u4e2d\n", b"")


COMMANDS = [("config",), ("data", "info", "bars.csv"), ("data", "check", "bars.csv", "--calendar", "us"), ("--help",)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_k03_commands_into_a_closed_pipe(tmp_path: Path, words: tuple[str, ...]) -> None:
    rows = [f"A,2024-01-03 09:{30 + minute}:00,1,1,1,1,5" for minute in range(30)]
    (tmp_path / "bars.csv").write_text("\n".join(["instrument,datetime,open,high,low,close,volume", *rows, ""]))
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "rlwb.cli", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write)
    assert done.returncode == (3 if "check" in words else 0), done.stderr
    assert b"rror" not in done.stderr


def test_k03_a_run_goes_to_its_end_when_its_reader_has_gone(tmp_path: Path) -> None:
    """As in ``rlwb run --resume … | head -1``, of a run that is finished and of one that is not."""
    from tests.experiment.test_pipeline import command

    notebooks, run = write_notebooks(tmp_path / "nb"), RunDirectory(tmp_path / "run")
    for words in ((), ("--resume",)):
        with command(notebooks, "run", "--run-dir", str(run.path), *words) as process:
            assert process.stdout is not None
            assert process.stdout.readline()[9:].startswith("run: ")
            process.stdout.close()
        assert process.returncode == 0
        assert run.state == "finished"
        assert run.status["failure"] is None
