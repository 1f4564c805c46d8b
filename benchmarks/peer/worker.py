"""The peer's jobs, with its own classes."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Timer, peak_memory
from benchmarks.schedule import Schedule

_BARE_MEMORY = peak_memory()

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from qlib.backtest.decision import Order  # noqa: E402
from qlib.rl.data.pickle_styled import PickleProcessedDataProvider  # noqa: E402
from qlib.rl.order_execution.interpreter import (  # noqa: E402
    CategoricalActionInterpreter,
    FullHistoryStateInterpreter,
)
from qlib.rl.order_execution.network import Recurrent  # noqa: E402
from qlib.rl.order_execution.policy import PPO  # noqa: E402
from qlib.rl.order_execution.reward import PAPenaltyReward  # noqa: E402
from qlib.rl.order_execution.simulator_simple import SingleAssetOrderExecutionSimple  # noqa: E402
from qlib.rl.trainer import Trainer, TrainingVessel, backtest  # noqa: E402
from qlib.rl.trainer.callbacks import Callback  # noqa: E402
from qlib.rl.utils import CsvWriter, EnvWrapper  # noqa: E402
from tianshou.data import Collector  # noqa: E402

from benchmarks.peer.data import keep_all_files, read_orders, write_files  # noqa: E402

_CHANNELS = 5
_WARM_UP = 8


class Parts:
    """The peer's parts for one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schedule = schedule = Schedule.read(folder)
        torch.set_num_threads(schedule.threads)
        torch.manual_seed(schedule.seed)
        np.random.seed(schedule.seed)  # noqa: NPY002
        random.seed(schedule.seed)
        self.orders = read_orders(folder)
        self.state_interpreter = FullHistoryStateInterpreter(
            schedule.max_step, schedule.ticks, _CHANNELS, PickleProcessedDataProvider(folder / "processed")
        )
        self.action_interpreter = CategoricalActionInterpreter(schedule.choices, schedule.max_step)
        self.reward = PAPenaltyReward(schedule.penalty, schedule.reward_scale)

    def simulator(self, order: Order) -> SingleAssetOrderExecutionSimple:
        schedule = self.schedule
        return SingleAssetOrderExecutionSimple(
            order, self.folder, ticks_per_step=schedule.ticks_per_step, vol_threshold=schedule.volume_limit
        )

    def policy(self) -> PPO:
        schedule = self.schedule
        space = self.state_interpreter.observation_space
        return PPO(
            Recurrent(space, schedule.hidden, schedule.output),
            space,
            self.action_interpreter.action_space,
            lr=schedule.learning_rate,
            eps_clip=schedule.clip,
            vf_coef=schedule.value_coef,
            max_grad_norm=schedule.max_grad_norm,
        )

    def vessel(self, policy: PPO, episodes: int) -> TrainingVessel:
        return TrainingVessel(
            simulator_fn=self.simulator,
            state_interpreter=self.state_interpreter,
            action_interpreter=self.action_interpreter,
            policy=policy,
            reward=self.reward,
            train_initial_states=self.orders,
            episode_per_iter=episodes,
            update_kwargs={"batch_size": self.schedule.batch_size, "repeat": self.schedule.repeat},
        )

    def trainer(self, **kwargs: Any) -> Trainer:
        return Trainer(finite_env_type="dummy", concurrency=self.schedule.concurrency, **kwargs)

    def fit(self, policy: PPO, episodes: int) -> None:
        self.trainer(max_iters=1).fit(self.vessel(policy, episodes))


def prepare(folder: Path) -> dict[str, float]:
    """Write the peer's files and, for a check of sameness, what its network answers to a few observations."""
    write_files(folder)
    parts = Parts(folder)
    policy = parts.policy().eval()
    observations = []
    for order in parts.orders[:4]:
        simulator = parts.simulator(order)
        while not simulator.done():
            observations.append(parts.state_interpreter(simulator.get_state()))
            simulator.step(order.amount / parts.schedule.max_step)
    batch = {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    with torch.no_grad():
        probabilities, _ = policy.actor(batch)
        values = policy.critic(batch)
    torch.save(
        {"weights": policy.state_dict(), "probabilities": probabilities, "values": values}, folder / "peer-network.pt"
    )
    return {}


def _rate(run: Callable[[list[Order]], int], parts: Parts) -> float:
    """Return the steps a second that `run` takes for the schedule's orders, after some to warm up."""
    run(parts.orders[:_WARM_UP])
    began = time.perf_counter()
    steps = run(parts.orders[: parts.schedule.simulated])
    return steps / (time.perf_counter() - began)


def simulate(folder: Path) -> dict[str, float]:
    """Execute orders evenly, without observations."""
    parts = Parts(folder)

    def run(orders: list[Order]) -> int:
        steps = 0
        for order in orders:
            simulator = parts.simulator(order)
            while not simulator.done():
                simulator.step(order.amount / parts.schedule.max_step)
                steps += 1
        return steps

    return {"simulator": _rate(run, parts)}


def environment(folder: Path) -> dict[str, float]:
    """Step the environment with full history and reward, an eighth of the order at each decision."""
    parts = Parts(folder)
    even = CategoricalActionInterpreter(parts.schedule.max_step, parts.schedule.max_step)

    def run(orders: list[Order]) -> int:
        env = EnvWrapper(parts.simulator, parts.state_interpreter, even, iter(orders), parts.reward)
        steps = 0
        for _ in orders:
            env.reset()
            done = False
            while not done:
                _, _, done, _ = env.step(1)
                steps += 1
        return steps

    return {"environment": _rate(run, parts)}


def train(folder: Path) -> dict[str, float]:
    """Run one iteration of the peer's trainer; time it, and the collect and the update in it."""
    parts = Parts(folder)
    policy = parts.policy()
    parts.fit(policy, _WARM_UP)
    before = peak_memory()
    collecting, updating = Timer(), Timer()
    counts: dict[str, Any] = {}
    plain = Collector.collect

    def counted(self: Collector, **kwargs: Any) -> dict[str, Any]:
        counts.update(plain(self, **kwargs))
        return counts

    Collector.collect = collecting.wrap(counted)
    policy.update = updating.wrap(policy.update)
    began = time.perf_counter()
    parts.fit(policy, parts.schedule.episodes)
    whole = time.perf_counter() - began
    return {
        "collect": counts["n/st"] / collecting.seconds,
        "update": counts["n/st"] * parts.schedule.repeat / updating.seconds,
        "iteration": whole,
        "memory": peak_memory() - _BARE_MEMORY,
        "memory added": peak_memory() - before,
        "steps": counts["n/st"],
    }


def backtesting(folder: Path) -> dict[str, float]:
    """Backtest an untrained policy, writing its results as the peer does."""
    parts = Parts(folder)
    policy = parts.policy()
    orders = parts.orders[: parts.schedule.backtested]

    def run(orders: list[Order]) -> None:
        backtest(
            parts.simulator,
            parts.state_interpreter,
            parts.action_interpreter,
            orders,
            policy,
            CsvWriter(folder / "peer-backtest"),
            parts.reward,
            finite_env_type="dummy",
            concurrency=parts.schedule.concurrency,
        )

    (folder / "peer-backtest").mkdir(exist_ok=True)
    run(orders[:_WARM_UP])
    began = time.perf_counter()
    run(orders)
    passed = time.perf_counter() - began
    table = pd.read_csv(folder / "peer-backtest" / "result.csv")
    return {"backtest": len(orders) / passed, "pa": float(table["pa"].mean()), "orders": float(len(table))}


def _kept(job: Callable[[Path], dict[str, float]]) -> Callable[[Path], dict[str, float]]:
    """Let a job run on a peer that keeps all its tables in memory; see `keep_all_files`."""

    def run(folder: Path) -> dict[str, float]:
        keep_all_files()
        return job(folder)

    return run


class Clock(Callback):
    """Notes the time after each iteration, keeps the weights, and ends the fit before it outruns its budget.

    Parameters
    ----------
    folder
        Where the weights go.
    budget
        Seconds. An iteration begins when it will end within them if it takes as long as those before; the first always
        begins.
    parts
        Timers by the name of the part of an iteration that they add up.
    """

    def __init__(self, folder: Path, budget: float, parts: dict[str, Timer]) -> None:
        self.folder = folder
        self.budget = budget
        self.parts = parts
        self.points: list[dict[str, float]] = []
        self.began = time.perf_counter()

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.began = time.perf_counter()

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        passed, number = time.perf_counter() - self.began, trainer.current_iter
        so_far = {name: timer.seconds for name, timer in self.parts.items()}
        self.points.append({"iteration": number, "seconds": passed, **so_far})
        torch.save(vessel.policy.state_dict(), self.folder / f"peer-{number:04d}.pt")
        if passed * (number + 1) / number > self.budget:
            trainer.should_stop = True


def quality(folder: Path, budget: float, iterations: int, validated: list[int]) -> dict[str, Any]:
    """Train within the budget, then time one validation on the orders of the rows `validated`.

    No validation is run within the training: rlwb scores the weights of every iteration afterwards, on all orders.
    """
    keep_all_files()
    parts = Parts(folder)
    policy = parts.policy()
    parts.fit(parts.policy(), _WARM_UP)
    timers = {"collect": Timer(), "update": Timer()}
    Collector.collect = timers["collect"].wrap(Collector.collect)
    policy.update = timers["update"].wrap(policy.update)
    clock = Clock(folder, budget, timers)
    vessel = parts.vessel(policy, parts.schedule.episodes)
    parts.trainer(max_iters=iterations, callbacks=[clock]).fit(vessel)

    valid = read_orders(folder, "valid")
    vessel.test_initial_states = [valid[row] for row in validated]
    tester = parts.trainer()
    began = time.perf_counter()
    tester.test(vessel)
    passed = time.perf_counter() - began
    validation = {"orders": len(validated), "of": len(valid), "seconds": passed, "pa": float(tester.metrics["pa"])}
    return {"points": clock.points, "validation": validation}


JOBS = {
    **{job.__name__: job for job in (prepare, simulate, environment, train, quality)},
    "backtest": backtesting,
    "train, kept": _kept(train),
    "backtest, kept": _kept(backtesting),
}
