"""What a Ray cluster makes of rlwb's work, with 1 and 2 workers and with one killed; writes ``results/ray.json``.

Four kinds of work: whole runs as jobs of a sweep, the steps of a collect's episodes, the backtest of several policies,
and a training by DQN whose episodes processes collect. Each row says whether the result is that of this process alone,
to the last bit, and how many bytes went to and came from the workers for an episode. Starting the workers is not in the
seconds, except for runs, which are processes of their own. Two workers share two cores with this process, which steps
the policy in the second kind and learns in the fourth, so they cannot be twice one.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.measure import context
from benchmarks.run import results_file
from benchmarks.table import RESULTS
from rlwb.env import make_env, ray_actors
from rlwb.env.ray_actors import Actors, Connection
from rlwb.execution import ExecutionState, OrderBatch, OrderExecution
from rlwb.experiment.backtest import play
from rlwb.experiment.config import Layer, RunConfig
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.shards import divided_among
from rlwb.experiment.stages import file_hashes
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json, write_text
from rlwb.learner import Learner
from rlwb.study.launch import Job, Progress, run_jobs
from rlwb.study.launch_ray import RayJobs
from rlwb.trainer import Callback, Episodes, Trainer, TrainingVessel, collect
from rlwb.trainer.actors import BLOCK

WORKERS = (1, 2)
#: What a step of one order costs in the simulator that stands for one of a user's own, in seconds.
OWN_SECONDS = 2e-4
OWN = "a simulator of 0.2 ms an order and step"
#: Settings of the runs of the sweep: small, since most of their time is the start of processes.
MEMBERS = {
    "market.instruments": 4,
    "market.days": 40,
    "train.iterations": 4,
    "train.episodes_per_iteration": 200,
    "backtest.top": 2,
    "backtest.bootstrap_samples": 200,
}


class OwnSimulator(OrderExecution):
    """The market, with a step that keeps the processor busy for a while for each order, as code in Python does."""

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        until = time.perf_counter() + OWN_SECONDS * len(action)
        while time.perf_counter() < until:
            pass
        return super().step(state, action)


class Traffic:
    """Bytes that go to the workers and come back, once it is switched on."""

    def __init__(self) -> None:
        self.bytes = 0
        self._ask, self._packed = Actors.ask, ray_actors._packed

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what calls carry within the block; what is sent once, at the start of workers, is before it."""
        self.bytes = 0

        def packed(value: Any) -> Any:
            made = self._packed(value)
            self.bytes += len(made.data) + sum(one.nbytes for one in made.arrays)
            return made

        def ask(pool: Actors, index: int, method: str, *args: Any) -> Callable[[], Any]:
            wait = self._ask(pool, index, method, *args)

            def counting() -> Any:
                value = wait()
                self.bytes += len(pickle.dumps(value))
                return value

            return counting

        ray_actors._packed, Actors.ask = packed, ask  # type: ignore[method-assign]
        try:
            yield
        finally:
            ray_actors._packed, Actors.ask = self._packed, self._ask  # type: ignore[method-assign]


def row(
    job: str, workers: int, seconds: float, identical: bool | None, bytes_an_episode: float | None, **more: Any
) -> Any:
    made = {"job": job, "workers": workers, "seconds": round(seconds, 3), "identical": identical}
    made |= {"bytes": None if bytes_an_episode is None else round(bytes_an_episode), **more}
    print(", ".join(f"{name} {value}" for name, value in made.items()), flush=True)
    return made


def same(one: Any, other: Any) -> bool:
    """Tell whether two nested values have the same arrays and numbers, to the last bit."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (np.ndarray, torch.Tensor)):
        return np.asarray(one).tobytes() == np.asarray(other).tobytes()
    return bool(one == other)


def figures(episodes: Episodes) -> dict[str, Any]:
    obs = {name: part for name, part in episodes.obs.items() if isinstance(part, np.ndarray)}
    return {"returns": episodes.returns, "action": episodes.action, "obs": obs, **episodes.metrics}


class Market:
    """The market, orders and policies of the default run, made once."""

    def __init__(self, orders: int, algorithm: str = "ppo") -> None:
        self.config = RunConfig.load(None, Layer("benchmark", {"algorithm.name": algorithm}))
        self.bench = Workbench(self.config)
        tables, _ = self.bench.make_orders()
        self.features = self.bench.features(tables["train"])
        self.sees = self.bench.state_interpreter(self.features)
        self.acts = self.bench.action_interpreter
        self.orders: OrderBatch = self.bench.align(tables["all"])[:orders]

    def learner(self) -> Learner:
        return self.bench.learner(self.features)

    def vessel(self, policy: Learner, episodes: int, simulator: OrderExecution) -> TrainingVessel:
        return TrainingVessel(
            simulator=simulator,
            state_interpreter=self.sees,
            action_interpreter=self.acts,
            policy=policy,
            reward=self.bench.reward,
            train_initial_states=self.orders,
            episode_per_iter=episodes,
        )


def rollouts(market: Market, traffic: Traffic, repeats: int) -> Iterator[Any]:
    """A collect by a policy in this process; its episodes are stepped here, or in processes of Ray's."""
    bench, policy = market.bench, market.learner()
    few = market.orders[: len(market.orders) // 2]
    cases = {
        "rollout": (bench.simulator, market.orders),
        f"rollout, {OWN}": (OwnSimulator(bench.engine), few),
    }
    for name, (simulator, orders) in cases.items():
        parts = (simulator, market.sees, market.acts, bench.reward, orders)
        expected: dict[str, Any] = {}
        for workers in (0, *WORKERS):
            kind = "ray" if workers else "native"
            with make_env(*parts, finite_env_type=kind, concurrency=max(workers, 1)) as env:
                env.reset()
                with traffic.counted():
                    found = figures(collect(env, policy, seed=(1,), keep=True))
                expected = expected or found
                seconds = best(lambda env=env: collect(env, policy, seed=(1,), keep=True), repeats)
                moved = traffic.bytes / len(orders) if workers else None
                more = {"episodes": len(orders), "transitions": len(found["action"])}
                yield row(name, workers, seconds, same(found, expected), moved, **more)
                if workers == 2:
                    again, seconds = stepping_on(env, policy)
                    yield row(named(name, True), workers, seconds, same(again, expected), None, episodes=len(orders))


def stepping_on(env: Any, policy: Learner) -> tuple[dict[str, Any], float]:
    """Collect while a worker is killed after the third step; return the figures, and the seconds."""
    step, steps, pid = env.step, [0], env.actors.processes()[0]

    def deadly(action: Any) -> Any:
        steps[0] += 1
        if steps[0] == 4:
            os.kill(pid, signal.SIGKILL)
        return step(action)

    env.step, began = deadly, time.perf_counter()
    found = figures(collect(env, policy, seed=(1,), keep=True))
    env.step = step
    return found, time.perf_counter() - began


def best(function: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of the quickest of some calls."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        taken.append(time.perf_counter() - began)
    return min(taken)


#: Workers, and whether one of them is killed; 0 workers are this process alone.
CASES = ((0, False), (1, False), (2, False), (2, True))


def backtests(market: Market, traffic: Traffic, policies: int) -> Iterator[Any]:
    """Policies on all orders, divided among processes of Ray's."""
    bench, made = market.bench, []
    for number in range(policies):
        learner: Any = market.learner()
        torch.manual_seed(number)
        with torch.no_grad():
            for weight in learner.network.parameters():
                weight += 0.01 * torch.randn_like(weight)
        made.append((learner, market.sees, market.acts))
    expected: list[Any] = []
    count = policies * len(market.orders)
    for workers, is_killed in CASES:
        with divided_among(bench, lambda: market.sees, workers) as each, traffic.counted():
            if bench.shards is not None:  # every process imports, and compiles, what it needs
                pool, warm = bench.shards.actors, (made[0][0].acting(), 0, 0, market.orders[:8])
                for wait in [pool.ask(number, "play", *warm) for number in range(workers)]:
                    wait()
                pids = pool.processes()
            traffic.bytes, began = 0, time.perf_counter()
            killer = _kill_after(0.1, pids[0]) if is_killed else None
            found = [one.metrics for one in each(lambda one: play(bench, one, market.orders), made)]
            seconds = time.perf_counter() - began
            if killer is not None:
                killer.join()
        expected = expected or found
        moved = traffic.bytes / count if workers and not is_killed else None
        yield row(
            named("backtest", is_killed), workers, seconds, all(map(same, found, expected)), moved, episodes=count
        )


def named(job: str, is_killed: bool) -> str:
    return f"{job}, one killed" if is_killed else job


def _kill_after(seconds: float, pid: int) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    timer.start()
    return timer


class Watch(Callback):
    """Notes when the second iteration begins, after the processes have started, and kills one in the middle of it."""

    def __init__(self, traffic: Traffic, is_killing: bool) -> None:
        self.traffic, self.is_killing, self.began, self.killer = traffic, is_killing, 0.0, None
        self.learning = 0.0

    def watched(self, vessel: TrainingVessel) -> None:
        """Let the seconds that the learner takes be added up."""
        learn = vessel.learn

        def timed(*args: Any) -> dict[str, float]:
            began = time.perf_counter()
            try:
                return learn(*args)
            finally:
                self.learning += time.perf_counter() - began

        vessel.learn = timed  # type: ignore[method-assign]

    def on_train_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if trainer.current_iter == 1:
            pool = trainer._collecting.actors if trainer._collecting is not None else None
            if pool is not None:  # every process imports, and compiles, what it needs
                warm = (vessel.policy.acting(), 0, vessel.train_initial_states[:8], 0, 0, 0)
                for wait in [pool.ask(number, "collect", *warm) for number in range(len(pool))]:
                    wait()
                pids = pool.processes()
            self.began, self.traffic.bytes, self.learning = time.perf_counter(), 0, 0.0
            if self.is_killing:
                self.killer = _kill_after(0.05, pids[0])


def trainings(market: Market, traffic: Traffic, iterations: int, episodes: int) -> Iterator[Any]:
    """A training by DQN: processes collect, one learns from a buffer of all; the first iteration is not counted."""
    engine: Any = market.bench.simulator
    for name, simulator, count in (
        ("dqn", engine, episodes),
        (f"dqn, {OWN}", OwnSimulator(engine.engine), episodes),
    ):
        expected: dict[str, Any] = {}
        for workers, is_killed in CASES:
            policy: Any = market.learner()
            watch = Watch(traffic, is_killed)
            trainer = Trainer(max_iters=iterations + 1, actors=workers, callbacks=[watch])
            vessel = market.vessel(policy, count, simulator)
            watch.watched(vessel)
            with traffic.counted():
                trainer.fit(vessel)
            seconds = time.perf_counter() - watch.began
            found = {"network": dict(policy.network.state_dict()), "reward": policy.replay.everything().reward}
            expected = expected or found
            moved = traffic.bytes / (iterations * count) if workers and not is_killed else None
            more = {"episodes": iterations * count, "learning": round(watch.learning, 3)}
            yield row(named(name, is_killed), workers, seconds, same(found, expected), moved, **more)


def sweeps(folder: Path, members: int) -> Iterator[Any]:
    """Whole runs, as jobs of a sweep: the same commands, log files and directories."""
    expected: dict[str, Any] = {}
    for workers, is_killed in CASES[1:]:
        place = folder / f"{workers}-{is_killed}"
        jobs = []
        for seed in range(members):
            run = RunDirectory.create(
                place / f"seed-{seed}", RunConfig.load(None, Layer("", {**MEMBERS, "seed": seed}))
            )
            words = ("run", "--resume", "--run-dir", str(run.path))
            jobs.append(Job(f"seed-{seed}", words, place / "logs" / f"seed-{seed}.log"))
        began = time.perf_counter()
        with RayJobs(workers) as launcher:
            ended = list(run_jobs(launcher, jobs, progress=KillRun(place / "seed-0") if is_killed else None))
        seconds = time.perf_counter() - began
        assert all(one.is_done for one in ended), [one.describe() for one in ended]
        found = {job.name: _files(RunDirectory.open(place / job.name)) for job in jobs}
        expected = expected or found
        attempts = sum(len(one.exits) for one in ended)
        yield row(named("sweep", is_killed), workers, seconds, found == expected, None, runs=members, attempts=attempts)


def _files(run: RunDirectory) -> dict[str, str]:
    made = file_hashes(run, ("orders", "metrics", "backtest"))
    return {name: content for name, content in made.items() if name != "metrics/train.csv"}  # which has seconds


class KillRun:
    """Kills the process of Ray's that holds a run, once that has trained for an iteration."""

    def __init__(self, run: Path) -> None:
        self.run, self.is_done = run, False

    def __call__(self, progress: Progress) -> None:
        if not self.is_done and any((self.run / "checkpoints").glob("0*.pt")):
            self.is_done = True
            for process in psutil.process_iter(["cmdline"]):
                words = process.info["cmdline"] or []
                if "rlwb.study.job" in words and str(self.run) in words:
                    process.parent().kill()
                    return


class Echo:
    """What answers a call with what it was given."""

    def echo(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Model:
    """What work takes with W workers, from constants that were measured here; in seconds.

    A round of calls takes ``call`` and ``each`` more for every worker after the first. The rest is Amdahl's law: what
    this process does alone, and what W workers divide among them.

    Attributes
    ----------
    call, each
        A round of calls to one worker, and what each further worker adds: this process packs and unpacks.
    network
        Bytes a second that one connection carries; 1.25e9 is 10 gigabits.
    """

    call: float
    each: float
    network: float = 1.25e9

    @classmethod
    def measured(cls, rounds: int) -> Model:
        """Measure rounds of calls that carry 10 kB, by one worker and by two."""
        value, taken = np.zeros(10_000, dtype=np.uint8), []
        for workers in WORKERS:
            with Actors(Echo, workers) as actors:

                def once(actors: Actors = actors) -> None:
                    for wait in [actors.ask(number, "echo", value) for number in range(len(actors))]:
                        wait()

                once()
                taken.append(best(lambda: [once() for _ in range(rounds)], 3) / rounds)
        return cls(taken[0], max(taken[1] - taken[0], 1e-5))

    def stepped(self, workers: int, steps: int, alone: float, divided: float, moved: float) -> float:
        """Return the seconds of a collect whose policy stays here: a round of calls a step."""
        rounds = steps * (self.call + self.each * (workers - 1))
        return rounds + alone + divided / workers + moved / self.network

    def blocked(self, workers: int, pieces: int, alone: float, divided: float, moved: float) -> float:
        """Return the seconds of work that is handed out in pieces, which cannot be divided further."""
        return alone + divided * ceil(pieces / workers) / pieces + self.each * pieces + moved / self.network


#: Workers of which the model tells, and how many times the work that was measured here they are given.
MANY, TIMES = (10, 100, 1000), 100


def predicted(rows: list[dict[str, Any]], model: Model) -> Iterator[Any]:
    """Say what the model makes of a hundred times the measured work, with many workers."""
    found = {(one["job"], one["workers"]): one for one in rows}
    for name, steps in ((f"rollout, {OWN}", 8), ("backtest", 0), ("dqn", 0), (f"dqn, {OWN}", 0)):
        if (name, 0) not in found or (name, 1) not in found:
            continue
        here, one = found[name, 0], found[name, 1]
        alone, count = 0.0, TIMES * one["episodes"]
        if steps:
            alone = TIMES * max(here["seconds"] - OWN_SECONDS * here["transitions"], 0.0)
        elif "dqn" in name:
            alone = TIMES * here["learning"]
        divided, moved = TIMES * here["seconds"] - alone, count * one["bytes"]
        for workers in MANY:
            if steps:
                seconds = model.stepped(workers, steps, alone, divided, moved)
            else:
                pieces = max(count // (BLOCK if "dqn" in name else 4096), 1)
                seconds = model.blocked(workers, pieces, alone, divided, moved)
            more = {"episodes": count, "times": round(TIMES * here["seconds"] / seconds, 1), "alone": round(alone, 1)}
            yield {**row(f"{name}, by the model", workers, seconds, None, one["bytes"], **more)}


#: The page that has the table, and the marks that it stands between.
_PAGE, _MARKS = RESULTS.parents[2] / "docs" / "cluster.md", ("<!-- ray -->", "<!-- /ray -->")


def table(rows: list[dict[str, Any]]) -> str:
    """Return what is told of rows: seconds by the number of workers, bytes an episode, and what the model says."""
    jobs = list(dict.fromkeys(one["job"] for one in rows if "by the model" not in one["job"]))
    found = {(one["job"], one["workers"]): one for one in rows}
    lines = [
        "| work | here alone, s | 1 worker, s | 2 workers, s | one of 2 killed, s | same result | bytes an episode |"
    ]
    lines.append("|---|---:|---:|---:|---:|---|---:|")
    for job in (job for job in jobs if "killed" not in job):
        own = [found.get((job, workers)) for workers in (0, 1, 2)] + [found.get((named(job, True), 2))]
        cells = ["-" if one is None else f"{one['seconds']:.2f}" for one in own]
        moved = [one["bytes"] for one in own if one is not None and one["bytes"] is not None]
        is_same = all(one["identical"] for one in own if one is not None)
        cells += ["yes" if is_same else "no", f"{moved[-1]:,}" if moved else "-"]
        lines.append(f"| {job} | {' | '.join(cells)} |")
    lines += ["", f"A hundred times as much work, by the model (a round of calls {rows[-1]['call_ms']} ms, and"]
    lines[-1] += f" {rows[-1]['each_ms']} ms for each further worker):"
    lines += ["", "| work | here alone, s | of it not divided, s | 10 workers | 100 workers | 1,000 workers |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for job in (job for job in jobs if f"{job}, by the model" in {one["job"] for one in rows}):
        told = [found[f"{job}, by the model", workers] for workers in MANY]
        cells = [f"{one['seconds']:.1f} s, {one['times']:.1f} times" for one in told]
        lines.append(
            f"| {job} | {TIMES * found[job, 0]['seconds']:.0f} | {told[0]['alone']:.0f} | {' | '.join(cells)} |"
        )
    about = rows[-1]
    return "\n".join([*lines, "", f"Measured on {about['date']} on {about['machine']}, at a load of {about['load']}."])


def tell(rows: list[dict[str, Any]]) -> None:
    """Write the table into its page."""
    text = _PAGE.read_text(encoding="utf-8")
    before, after = text.partition(_MARKS[0])[0], text.partition(_MARKS[1])[2]
    write_text(_PAGE, f"{before}{_MARKS[0]}\n{table(rows)}\n{_MARKS[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument("--only", choices=("rollout", "backtest", "dqn", "sweep"), help="one kind of work alone")
    parser.add_argument("--out", type=Path, help="where the figures go; a file in results/ by default")
    args = parser.parse_args()
    torch.set_num_threads(1)
    few, traffic = args.quick, Traffic()
    connection = Connection(2)
    began, rows = time.perf_counter(), []
    try:
        ppo = Market(200 if few else 4000)
        kinds: dict[str, Callable[[], Iterator[Any]]] = {
            "rollout": lambda: rollouts(ppo, traffic, 1 if few else 3),
            "backtest": lambda: backtests(Market(300 if few else 16000), traffic, 2 if few else 6),
            "dqn": lambda: trainings(Market(200 if few else 4000, "dqn"), traffic, 2, 100 if few else 1000),
        }
        for name, kind in kinds.items():
            if args.only in (None, name):
                rows += kind()
        if args.only in (None, "sweep"):
            with tempfile.TemporaryDirectory(prefix="rlwb-ray-") as scratch:
                rows += sweeps(Path(scratch), 2)
        model = Model.measured(10 if few else 50)
        print(f"a round of calls: {1e3 * model.call:.2f} ms, {1e3 * model.each:.2f} ms more for each further worker")
        constants = {"call_ms": round(1e3 * model.call, 3), "each_ms": round(1e3 * model.each, 3)}
        rows += [{**one, **constants} for one in predicted(rows, model)]
    finally:
        connection.close()
    print(f"in all {time.perf_counter() - began:.0f} s")
    out = results_file(args, "ray")
    rows = [{**one, **context()} for one in rows]
    write_json(out, rows)
    if not args.quick and args.only is None:
        tell(rows)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
