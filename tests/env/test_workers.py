"""Worker processes that raise, die, hang, are orphaned, or carry much data."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from rlwb.env import vectorize_env
from rlwb.env.workers import SharedPickle, uninterrupted
from rlwb.errors import ConfigError, WorkerError
from tests.env.test_vector import collect
from tests.env.toy import ToyOrder, ToySimulator, env_fn, orders, toy_env

ROOT = Path(__file__).resolve().parents[2]


def children() -> set[int]:
    """Processes whose parent is this one, dead but unreaped ones included."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == os.getpid():
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def gone(pids, seconds=5.0) -> bool:
    """Wait until none of these processes runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alive = [p for p in pids if Path(f"/proc/{p}/stat").exists() and running(p)]
        if not alive:
            return True
        time.sleep(0.02)
    return False


def running(pid) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module", autouse=True)
def what_python_keeps():
    """Its resource tracker and a block of shared memory, both from the first workers on."""
    with vectorize_env(env_fn(), orders(1), finite_env_type="shmem") as envs:
        collect(envs)


@pytest.fixture(autouse=True)
def nothing_left():
    gc.collect()
    before, files = children(), descriptors()
    yield
    gc.collect()
    assert children() == before
    assert descriptors() <= files  # what other tests left may go meanwhile


class Raises(ToySimulator):
    def step(self, action):
        if self.initial.number == 3:
            self.helper_of_the_user()
        super().step(action)

    def helper_of_the_user(self):
        raise ValueError("the bar is missing")


class RaisesAtOnce(ToySimulator):
    def __init__(self, initial, rng):
        raise KeyError("no such session")


class Exits(ToySimulator):
    def step(self, action):
        os._exit(7)


class Quits(ToySimulator):
    def step(self, action):
        sys.exit("enough")


class Hangs(ToySimulator):
    def step(self, action):
        if self.initial.number == 0:
            time.sleep(1000)
        super().step(action)


class Crashes(ToySimulator):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGSEGV)


def test_raising_worker_shows_its_traceback_and_order():
    envs = vectorize_env(env_fn(simulator=Raises), orders(8), finite_env_type="shmem")
    with pytest.raises(WorkerError) as caught:
        collect(envs)
    text = str(caught.value)
    assert text.startswith("ValueError in step of episode 3 (toy order 3): the bar is missing")
    assert "helper_of_the_user" in text
    assert "the bar is missing" in text
    envs.close()


def test_dummy_names_the_order_and_keeps_the_cause():
    with pytest.raises(WorkerError, match=r"ValueError in step of episode 3 \(toy order 3\)") as caught:
        collect(vectorize_env(env_fn(simulator=Raises), orders(8), concurrency=3))
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("simulator", "words"),
    [
        (RaisesAtOnce, ["KeyError in reset of episode 0", "no such session"]),
        (Exits, ["ended with exit code 7 in step of episode 0 (toy order 0)"]),
        (Quits, ["SystemExit in step of episode 0", "enough"]),
        (Crashes, ["was killed by SIGSEGV in step of episode 0"]),
    ],
)
def test_ways_to_die(simulator, words):
    with pytest.raises(WorkerError) as caught:
        collect(vectorize_env(env_fn(simulator=simulator), orders(1), finite_env_type="subproc"))
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_killed_worker_is_noticed_while_another_is_busy():
    # Order 0 hangs in worker 0; worker 1 is killed in the meantime.
    envs = vectorize_env(env_fn(simulator=Hangs), [ToyOrder(1), ToyOrder(0)], finite_env_type="shmem", concurrency=2)
    envs.reset()
    # The killed one is stopped first, so that it cannot answer before it dies.
    victim = envs._slots[0].process.pid
    os.kill(victim, signal.SIGSTOP)
    timer = threading.Timer(0.2, os.kill, (victim, signal.SIGKILL))
    timer.start()
    start = time.monotonic()
    with pytest.raises(WorkerError, match=r"Worker 0 was killed by SIGKILL .*episode 0 \(toy order 1\)"):
        envs.step([0, 0])
    assert time.monotonic() - start < 2
    timer.join()


def test_worker_killed_between_steps():
    envs = vectorize_env(env_fn(), orders(4), finite_env_type="subproc", concurrency=2)
    envs.reset()
    os.kill(envs._slots[1].process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"Worker 1 was killed by SIGKILL .*\(toy order 1\)"):
        envs.step([0, 0])


def test_worker_killed_before_close_does_no_harm():
    with vectorize_env(env_fn(), orders(4), finite_env_type="subproc", concurrency=2) as envs:
        envs.reset()
        os.kill(envs._slots[0].process.pid, signal.SIGKILL)


def test_parent_that_raises_leaves_nothing():
    def policy(active):
        raise ZeroDivisionError

    def run():
        with vectorize_env(env_fn(), orders(9), finite_env_type="shmem", concurrency=2) as envs:
            collect(envs, policy)

    with pytest.raises(ZeroDivisionError):
        run()


def test_forgotten_environment_leaves_nothing():
    envs = vectorize_env(env_fn(), orders(9), finite_env_type="subproc", concurrency=2)
    envs.reset()
    del envs


def test_fork_of_the_main_process_leaves_the_workers_alone():
    with vectorize_env(env_fn(), orders(3), finite_env_type="subproc", concurrency=2) as envs:
        active = envs.reset()
        pid = os.fork()
        if pid == 0:
            envs.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert len(collect(envs, reset=active)[2]) == 3


def test_an_interrupt_waits_for_what_must_not_be_left_half_done():
    done = []

    def work():
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_handlers_come_back_though_the_first_of_them_is_interrupted(monkeypatch):
    numbers, install = (signal.SIGINT, signal.SIGTERM), signal.signal
    for number in numbers:
        install(number, signal.default_int_handler)

    def install_and_interrupt(number, handler):
        install(number, handler)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), uninterrupted():
        monkeypatch.setattr(signal, "signal", install_and_interrupt)
    assert [signal.getsignal(number) for number in numbers] == [signal.default_int_handler] * 2


def test_an_interrupt_is_held_back_in_the_main_thread_alone():
    names = []

    def work():
        with uninterrupted():
            names.append(threading.current_thread().name)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert names == [thread.name]


def test_two_interrupts_leave_no_worker(monkeypatch):
    """One in the middle of a step, and one while the workers are ended for it."""

    def interrupts_and_waits(self, name, arguments):
        raise KeyboardInterrupt

    envs = vectorize_env(env_fn(), orders(9), finite_env_type="shmem", concurrency=2)
    envs.reset()
    pids = [worker.process.pid for worker in envs._slots]
    first = envs._slots[0]
    ended = first.kill

    def impatient():
        signal.raise_signal(signal.SIGINT)
        ended()

    monkeypatch.setattr(first, "kill", impatient)
    monkeypatch.setattr(type(envs), "_ask", interrupts_and_waits)
    with pytest.raises(KeyboardInterrupt):
        envs.step([0, 0])
    assert gone(pids)


class InterruptError(Exception):
    pass


def test_interrupt_while_a_worker_hangs():
    envs = vectorize_env(env_fn(simulator=Hangs), [ToyOrder(0)], finite_env_type="subproc")
    envs.reset()

    def interrupt(*_):
        raise InterruptError

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptError):
            envs.step([0])
    finally:
        signal.signal(signal.SIGALRM, old)
    envs.close()


def fails_in_workers():
    if multiprocessing.parent_process() is not None:
        raise FileNotFoundError("no such market")
    return toy_env()


def test_env_fn_that_fails_in_the_workers_only():
    envs = vectorize_env(fails_in_workers, orders(2), finite_env_type="subproc", concurrency=2)
    with pytest.raises(WorkerError, match=r"FileNotFoundError in env_fn: no such market(.|\n)*in fails_in_workers"):
        envs.reset()


@pytest.mark.parametrize("error", [FileNotFoundError, EOFError, ValueError])
def test_env_fn_that_fails_everywhere(error):
    def fails():
        raise error("no such market")

    for kind in ("dummy", "shmem"):
        with pytest.raises(WorkerError, match=f"{error.__name__} in env_fn: no such market"):
            vectorize_env(fails, orders(2), finite_env_type=kind).reset()


@pytest.mark.parametrize("how", ["kill", "raise"])
def test_main_process_that_dies_takes_its_workers_along(how, tmp_path):
    script = textwrap.dedent(
        """
        # No __main__ guard, and classes that exist in this script only.
        import os, signal, sys, time
        from rlwb.env import vectorize_env
        from tests.env.toy import ToyOrder, ToySimulator, toy_env

        class Busy(ToySimulator):
            def step(self, action):
                while True:
                    pass

        class Own(ToyOrder):
            pass

        envs = vectorize_env(lambda: toy_env(simulator=Busy), [Own(0), Own(1)], finite_env_type="shmem", concurrency=2)
        envs.reset()
        print(*(worker.process.pid for worker in envs._slots), flush=True)
        if sys.argv[1] == "raise":
            raise SystemExit(3)
        envs.step([0, 0])
        """
    )
    path = tmp_path / "script.py"
    path.write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, path, how], stdout=subprocess.PIPE, text=True, env=environment)
    with process:
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        if how == "kill":
            assert all(running(pid) for pid in pids)
            time.sleep(0.3)  # let the workers get busy
            process.kill()
        process.wait()
    assert gone(pids)


def test_local_functions_and_classes_can_be_sent():
    amount = 0.5

    class Local(ToyOrder):
        pass

    class Simulator(ToySimulator):
        def metrics(self):
            return {"amount": self.initial.amount * amount, "local": float(type(self.initial).__name__ == "Local")}

    with vectorize_env(lambda: env_fn(simulator=Simulator)(), [Local(1), Local(2)], finite_env_type="subproc") as envs:
        assert [(m["amount"], m["local"]) for m in collect(envs)[2].values()] == [(0.5, 1.0)] * 2


def test_what_cannot_be_sent_is_explained():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="env_fn cannot be sent to worker processes"):
        vectorize_env(lambda: lock, [1], finite_env_type="subproc")


def test_observations_without_a_fixed_shape_are_refused():
    class Text(gym.Env):
        observation_space = gym.spaces.Text(9)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return "a", {}

        def step(self, action):
            return "b", 1.0, True, False, {}

    for kind in ("dummy", "subproc", "shmem"):
        with pytest.raises(WorkerError, match=r"Text.*has no fixed shape.*Box"):
            vectorize_env(Text, [1, 2], finite_env_type=kind).reset()


class ClosesBadly(gym.Env):
    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    used = False

    def reset(self, *, seed=None, options=None):
        self.used = True
        return 0, {}

    def close(self):
        if self.used:
            raise OSError("cannot flush")


def test_error_of_closing_is_shown():
    envs = vectorize_env(ClosesBadly, [1], finite_env_type="subproc")
    envs.reset()
    with pytest.raises(WorkerError, match="cannot flush"):
        envs.close()
    envs.close()


def test_all_environments_are_closed_however_the_first_takes_it():
    closed = []

    class Counts(ClosesBadly):
        def close(self):
            closed.append(self)
            super().close()

    envs = vectorize_env(Counts, [1, 2, 3], concurrency=3)
    envs.reset()
    with pytest.raises(WorkerError, match="OSError in close: cannot flush"):
        envs.close()
    assert len(closed) == 3


def test_a_first_environment_that_cannot_be_closed_is_shown():
    class Never(ClosesBadly):
        used = True

    with pytest.raises(WorkerError, match="OSError in close: cannot flush"):
        vectorize_env(Never, [1], finite_env_type="subproc").reset()


def test_e17_workers_do_not_pile_up():
    with vectorize_env(env_fn(), orders(2), finite_env_type="shmem", concurrency=2) as envs:
        collect(envs)
        pids, files = children(), descriptors()
        envs.initial_states = orders(4)
        for _ in range(50):
            assert len(collect(envs)[2]) == 4
        assert children() == pids
        assert descriptors() <= files  # what other tests left may go meanwhile


def test_e17_data_is_not_copied_once_a_worker(tmp_path):
    size = 64 << 20
    np.save(tmp_path / "data.npy", np.arange(size // 8, dtype=np.float64))
    mapped, private = np.load(tmp_path / "data.npy", mmap_mode="r"), np.ones(size // 8)

    class Reads(ToySimulator):
        def metrics(self):
            pages = Path("/proc/self/smaps_rollup").read_text().split()
            # Anonymous memory is what this process has for itself.
            return {
                "sum": float(mapped.sum() + private.sum()),
                "own_mb": int(pages[pages.index("Anonymous:") + 1]) / 1024,
            }

    with vectorize_env(lambda: env_fn(simulator=Reads)(), orders(2), finite_env_type="subproc", concurrency=2) as envs:
        _, _, metrics = collect(envs)
    for values in metrics.values():
        assert values["sum"] == mapped.sum() + private.sum()
        assert values["own_mb"] < 64  # the interpreter with its packages, about 25; the data alone are 128


def test_workers_need_neither_torch_nor_numba():
    heavy = ("torch", "numba", "tianshou", "pandas", "matplotlib")

    class Looks(ToySimulator):
        def metrics(self):
            return {name: float(name in sys.modules) for name in heavy}

    with vectorize_env(env_fn(simulator=Looks), orders(1), finite_env_type="subproc") as envs:
        metrics = collect(envs)[2][0]
    assert [metrics[name] for name in heavy] == [0.0] * len(heavy)


def test_shared_arrays_are_equal_and_private_to_the_reader():
    value = {"big": np.arange(100_000.0), "small": np.arange(3), "f": np.asfortranarray(np.ones((400, 300)))}
    value["big"].flags.writeable = False
    shared = SharedPickle(value | {"empty": np.zeros(0)})
    assert len(shared._data) < 2000
    one, other = shared.load(), shared.load()
    one["f"][0] = 5
    for key in value:
        np.testing.assert_array_equal(other[key], value[key])
    assert SharedPickle(np.zeros(0)).load().shape == (0,)
