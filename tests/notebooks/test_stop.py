"""Notebooks that are stopped, closed, killed, or run out of disk: nothing lives on, and what is done is kept."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.kills import _timeless
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, run_stage
from rlwb.experiment.training import train_policy
from rlwb.trainer import list_checkpoints, load_checkpoint
from tests.notebooks.kernel import Kernel, cells_of, from_cell, is_alive, leftovers, wait_until
from tests.notebooks.small import finish, start

TINY: dict[str, Any] = {
    "market": {"name": "synthetic", "instruments": 2, "days": 12},
    "network": {"name": "recurrent", "hidden": 4},
    "algorithm": {"name": "ppo", "batch_size": 50, "repeat": 1},
    "train": {"iterations": 2000, "episodes_per_iteration": 12},
    "backtest": {"top": 2, "bootstrap_samples": 100},
    "baselines": ["twap", "hindsight"],
}


def prepared(folder: Path, **train: Any) -> RunDirectory:
    """Make a run whose orders are there."""
    values = {**TINY, "train": {**TINY["train"], **train}}
    run = RunDirectory.create(folder, RunConfig.load(None, Layer("test", values)))
    run_stage(ORDERS, run, run.config, make_orders, echo=lambda line: None)
    return run


def trained(run: RunDirectory) -> int:
    return max(list_checkpoints(run.checkpoints), default=0)


def assert_goes_on_as_if_undisturbed(run: RunDirectory, folder: Path, env: str = "native") -> None:
    """Train one iteration more, here, and compare weights and figures with a training that nobody disturbed."""
    last = trained(run) + 1
    config = run.load_config(Layer("test", {"train.iterations": last, "train.env": env}))
    whole = prepared(folder)
    for one in (run, whole):
        run_stage(TRAIN, one, config, lambda run, config: train_policy(run, config, progress="none"))
    assert trained(run) == trained(whole) == last
    one, other = (load_checkpoint(each.checkpoints / f"{last:04d}.pt") for each in (run, whole))
    assert _timeless(one["vessel"]) == _timeless(other["vessel"])
    for name in ("train.csv", "validation.csv"):
        assert _without_clock(run.metrics / name) == _without_clock(whole.metrics / name)
    assert not list(leftovers(run.path))


def _without_clock(path: Path) -> str:
    import pandas as pd

    return pd.read_csv(path).drop(columns="seconds", errors="ignore").to_csv()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    one = Kernel()
    yield one
    one.close()


@pytest.mark.parametrize("env", ["native", "dummy", "subproc", "shmem"])
def test_the_stop_button_ends_the_training_of_notebook_02(kernel: Kernel, tmp_path: Path, env: str) -> None:
    run = prepared(tmp_path / "run", concurrency=2 if env != "native" else 1)
    before, cell, _ = from_cell(cells_of("02_training.ipynb", run_dir=str(run.path), env=env), "train_here")
    kernel.run(*before)
    kernel.begin(cell)
    wait_until(lambda: trained(run) >= 2)
    assert run.state == "running"
    assert len(kernel.children()) == (2 if env in ("subproc", "shmem") else 0)
    kernel.stop()
    if env == "shmem":
        kernel.stop()  # by someone who cannot wait
    error, said = kernel.end()
    assert error.startswith("KeyboardInterrupt")
    assert "Traceback" not in said, "of a worker"
    assert not kernel.children()
    assert run.state == run.stage("train")["state"] == "interrupted"
    assert "goes on from there" in run.describe()
    if env in ("native", "shmem"):  # once more, in the same kernel
        done = trained(run)
        kernel.begin(cell)
        wait_until(lambda: trained(run) > done)
        kernel.stop()
        error, said = kernel.end()
        assert error.startswith("KeyboardInterrupt")
        assert f"continued after iteration {done}" in said
    # The other types agree with native up to rounding, and with one another to the last bit.
    assert_goes_on_as_if_undisturbed(run, tmp_path / "whole", "native" if env == "native" else "dummy")


CELL = """
from rlwb.trainer import Checkpoint, MetricsWriter, train
from tests.trainer.corridor_vessel import corridor_vessel

vessel = corridor_vessel()
names = ("simulator", "state_interpreter", "action_interpreter", "policy", "reward")
kept = ("val_initial_states", "episode_per_iter")
callbacks = [MetricsWriter({folder!r}), Checkpoint({folder!r})]
train(
    **{{name: getattr(vessel, name) for name in names}},
    initial_states=vessel.train_initial_states,
    vessel_kwargs={{name: getattr(vessel, name) for name in kept}},
    trainer_kwargs={{"max_iters": {iterations}, "callbacks": callbacks, "finite_env_type": {env!r}, "progress": True}},
    ckpt_path={checkpoint!r},
)
"""


@pytest.mark.parametrize("env", ["native", "subproc"])
def test_the_stop_button_ends_a_cell_of_ones_own_with_a_bar(kernel: Kernel, tmp_path: Path, env: str) -> None:
    def cell(name: str, iterations: int, checkpoint: str | None = None) -> str:
        return CELL.format(folder=str(tmp_path / name), iterations=iterations, env=env, checkpoint=checkpoint)

    kernel.begin(cell("mine", 5000), attended=True)
    wait_until(lambda: len(list_checkpoints(tmp_path / "mine")) >= 2)
    kernel.stop()
    assert kernel.end()[0].startswith("KeyboardInterrupt")
    assert not kernel.children()
    last, path = max(list_checkpoints(tmp_path / "mine").items())
    kernel.run(cell("mine", last + 1, str(path)), cell("whole", last + 1))
    one, other = (load_checkpoint(tmp_path / name / f"{last + 1:04d}.pt") for name in ("mine", "whole"))
    assert _timeless(one["vessel"]) == _timeless(other["vessel"])
    assert _without_clock(tmp_path / "mine/train.csv") == _without_clock(tmp_path / "whole/train.csv")


def stopped_within(kernel: Kernel, run: RunDirectory, cells: list[str], place: str) -> None:
    """Run cells up to a stage, and press the stop button while it works at a `place`, a function of rlwb."""
    before, cell, _ = from_cell(cells, "stage.do(")
    kernel.run(*before)
    mark = run.path.with_name(f"reached-{place}")
    module, _, name = place.rpartition(".")
    wait = f"(open({str(mark)!r}, 'w').close(), __import__('time').sleep(600))"
    kernel.run(f"import {module} as place; kept = place.{name}; place.{name} = lambda *given, **named: {wait}")
    kernel.begin(cell)
    wait_until(mark.exists)
    assert run.state == "running"
    kernel.stop()
    assert kernel.end()[0].startswith("KeyboardInterrupt")
    kernel.run(f"place.{name} = kept")
    assert run.state == "interrupted"
    assert not list(leftovers(run.path))


def test_backtest_and_stability_can_be_stopped_and_begun_again(kernel: Kernel, tmp_path: Path) -> None:
    run, whole = (prepared(tmp_path / name, iterations=2) for name in ("run", "whole"))
    for one in (run, whole):
        run_stage(TRAIN, one, one.config, lambda run, config: train_policy(run, config, progress="none"))
    run_stage(BACKTEST, whole, whole.config, backtest_policies)
    assert run.state == "created", "its notebooks are run one by one"
    cells = cells_of("03_backtest.ipynb", run_dir=str(run.path))
    stopped_within(kernel, run, cells, "rlwb.experiment.backtest.write_headline")
    before, cell, _ = from_cell(cells, "stage.do(")
    kernel.run(*before, cell)
    for name in ("summary.csv", "headline.csv", "selection.json"):
        assert (run.backtest / name).read_bytes() == (whole.backtest / name).read_bytes()

    cells = cells_of("04_stability.ipynb", run_dir=str(run.path))
    stopped_within(kernel, run, cells, "rlwb.evaluation.plots.save_figure")
    kernel.run(*cells)
    assert run.state == "finished"
    assert run.report.is_file()


@pytest.mark.parametrize(("how", "env"), [("closed", "subproc"), ("killed", "shmem")])
def test_a_closed_notebook_and_a_dead_kernel_leave_nothing_that_lives(tmp_path: Path, how: str, env: str) -> None:
    run, kernel = prepared(tmp_path / "run"), Kernel()
    try:
        before, cell, _ = from_cell(cells_of("02_training.ipynb", run_dir=str(run.path), env=env), "train_here")
        kernel.run(*before)
        kernel.begin(cell)
        wait_until(lambda: trained(run) >= 1)
        workers = kernel.children()
        assert workers
        if how == "killed":
            kernel.process.kill()
        else:
            kernel.manager.shutdown_kernel()
        wait_until(lambda: not any(map(is_alive, [kernel.process, *workers])))
    finally:
        kernel.close()
    assert run.state == "interrupted"
    assert_goes_on_as_if_undisturbed(run, tmp_path / "whole", "dummy")


NO_PRIVILEGE = """
import ctypes
_head, _sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None).capget(_head, _sets) == 0
_sets[0] &= ~0b110  # root may no longer write and read what no one else may
assert ctypes.CDLL(None).capset(_head, _sets) == 0
"""
"""Makes rights hold for root too, in the thread that runs cells."""


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk to its last byte, and make room again."""
    with (disk / "ballast").open("wb") as file:
        while free := shutil.disk_usage(disk).free:
            with suppress(OSError):  # someone has written meanwhile
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
    yield
    (disk / "ballast").unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take away the right to write in a folder and all below it, and give it back."""
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for one in folders:
        one.chmod(0o555)
    yield
    for one in folders:
        one.chmod(0o755)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own of 160 MB; where none may be mounted the test is skipped."""
    (folder := tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_notebook_that_can_no_longer_write_goes_on_when_it_can(kernel: Kernel, disk: Path, tmp_path: Path) -> None:
    run = prepared(disk / "run")
    before, cell, _ = from_cell(cells_of("02_training.ipynb", run_dir=str(run.path), env="shmem"), "train_here")
    kernel.run(NO_PRIVILEGE if os.geteuid() == 0 else "", *before)
    for cause, words in (
        (full(disk), "RlwbError: the disk is full"),
        (read_only(run.path), "ConfigError: .* cannot be"),
    ):
        done = trained(run)
        kernel.begin(cell)
        wait_until(lambda: trained(run) > done)  # noqa: B023 - done at once
        with cause:
            error, _ = kernel.end()
            assert re.match(words, error), error
            assert not kernel.children()
            assert run.state in ("interrupted", "failed"), "as far as it could be written"
        assert "goes on from there" in run.describe()
    assert_goes_on_as_if_undisturbed(run, tmp_path / "whole", "dummy")


COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, whoever started the tests
from rlwb.cli import main
main(sys.argv[1:])
"""


def test_ctrl_c_and_a_full_disk_end_the_command(disk: Path, tmp_path: Path) -> None:
    run = prepared(disk / "run", env="shmem", concurrency=2)
    words = ("run", "--resume", "--run-dir", str(run.path))
    for cause, code, told in (("Ctrl-C", 130, "rlwb: stopped"), ("full", 2, "rlwb: the disk is full")):
        done, process = trained(run), start("-c", COMMAND, *words)
        wait_until(lambda: trained(run) > done)  # noqa: B023 - done at once
        assert run.state == "running"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len([one for one in children if is_alive(one)]) >= 3, "a kernel and its workers"
        if cause == "Ctrl-C":
            process.send_signal(signal.SIGINT)
            out, err = finish(process, code)
        else:
            with full(disk):
                out, err = finish(process, code)
        assert any(line.startswith(told) for line in err.splitlines()), err  # a kernel may have its say before
        assert f"Go on with: {shlex.join(('rlwb', *words))}" in out
        wait_until(lambda: not any(map(is_alive, children)))  # noqa: B023 - done at once
        assert run.state in ("interrupted", "failed"), "as far as it could be written"
        assert not list(leftovers(run.path / "checkpoints"))
    assert_goes_on_as_if_undisturbed(run, tmp_path / "whole", "dummy")
