"""Other libraries on rlwb's environment at equal orders, beside rlwb's own PPO: ``make bench-outside``.

Each learner sees as many training orders of the synthetic market, then all are judged on the same test orders in one
table. Rows are ``{library, learner, environment, orders, steps, seconds, steps_per_second, pa, lo, hi}``: transitions
collected, seconds of collecting and learning on one thread, and mean PA in basis points with its interval over days.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.nn.functional import mse_loss

import rlwb.interop  # noqa: F401 - it registers the ids
from benchmarks.measure import context
from benchmarks.table import RESULTS, insert
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import judge
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.files import write_json, write_text

_OUT = RESULTS.with_name("outside.json")
_PAGE = RESULTS.parents[2] / "docs" / "other-libraries.md"
_ID = "rlwb/OrderExecution-v0"
#: Orders side by side, and steps of each between two updates, of the learners on the native environment.
_ENVS, _STEPS = 256, 8
#: Undiscounted, as in rlwb: an order ends after eight steps at most.
_PPO = {"n_steps": _STEPS, "batch_size": 256, "n_epochs": 5, "gamma": 1.0, "gae_lambda": 1.0, "ent_coef": 0.01}
_RATE = 1e-3


class Trained(NamedTuple):
    """What a learner did, and its policy as `judge` takes it; no policy where only its speed is measured."""

    library: str
    learner: str
    environment: str
    orders: int
    steps: int
    seconds: float
    policy: Any = None


def own(run: RunDirectory, orders: int) -> Trained:
    """Train rlwb's PPO with its recurrent network by a run, and judge it, so that others can be put beside it."""
    began = time.perf_counter()
    with recorded(run, [ORDERS, TRAIN, BACKTEST]):
        run_stage(ORDERS, run, run.config, make_orders, echo=lambda line: None)
        began = time.perf_counter()
        run_stage(TRAIN, run, run.config, lambda *args: train_policy(*args, progress="none"), echo=lambda line: None)
        seconds = time.perf_counter() - began
        run_stage(BACKTEST, run, run.config, backtest_policies, echo=lambda line: None)
    steps = int(pd.read_csv(run.metrics / "train.csv")["transitions"].sum())
    return Trained("rlwb", "PPO", "native", orders, steps, seconds)


def stable_baselines(run: RunDirectory, orders: int, name: str) -> Trained:
    """Train a learner of Stable-Baselines3 or sb3-contrib on the native environment until it has seen the orders."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    from rlwb.interop.sb3 import make_vec_env

    class Enough(BaseCallback):  # type: ignore[misc]
        """Stops after the first update at which the orders are seen."""

        seen, is_enough = 0, False

        def _on_step(self) -> bool:
            self.seen += 0 if self.is_enough else int(np.sum(self.locals["dones"]))
            return not self.is_enough

        def _on_rollout_end(self) -> None:
            self.is_enough = self.seen >= orders

    # Rewards are in basis points; the observations need no scaling.
    env = VecNormalize(make_vec_env(_ENVS, str(run.path)), norm_obs=False, gamma=1.0)
    policy, settings = "MlpPolicy", {**_PPO, "learning_rate": _RATE}
    if name == "DQN":
        settings = {"gamma": 1.0, "learning_rate": _RATE, "buffer_size": 50_000, "learning_starts": 2_000}
        settings |= {"batch_size": 256, "train_freq": 1, "gradient_steps": 8, "target_update_interval": 2_000}
        settings |= {"exploration_fraction": 0.5}
    if name == "RecurrentPPO":
        policy, settings = "MlpLstmPolicy", {**settings, "policy_kwargs": {"lstm_hidden_size": 32}}
    library = sb3_contrib if hasattr(sb3_contrib, name) else stable_baselines3
    model = getattr(library, name)(policy, env, seed=0, device="cpu", **settings)
    enough, began = Enough(), time.perf_counter()
    model.learn(8 * orders, callback=enough)
    seconds = time.perf_counter() - began
    path = run.path.parent / f"{name}.zip"
    model.save(path)
    return Trained(library.__name__, name, "native", enough.seen, int(model.num_timesteps), seconds, path)


def stable_baselines_single(run: RunDirectory, orders: int) -> Trained:
    """Train PPO of Stable-Baselines3 on the single environment, for its speed alone."""
    import stable_baselines3

    env, steps = gym.make(_ID, config=str(run.path)), 1024
    settings = {**_PPO, "n_steps": 512, "learning_rate": _RATE}
    model = stable_baselines3.PPO("MlpPolicy", env, seed=0, device="cpu", **settings)
    began = time.perf_counter()
    model.learn(steps)
    return Trained("stable_baselines3", "PPO", "single", len(model.ep_info_buffer), steps, time.perf_counter() - began)


def single_file(run: RunDirectory, orders: int) -> Trained:
    """Train by a PPO that stands in this file, as in CleanRL's: a loop over gymnasium's vector environment."""
    torch.manual_seed(0)
    envs = gym.make_vec(_ID, num_envs=_ENVS, config=str(run.path), autoreset_mode="SameStep")
    width, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)

    def layers(out: int, scale: float) -> nn.Sequential:
        made = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, out))
        nn.init.orthogonal_(made[-1].weight, scale)
        return made

    actor, critic = layers(actions, 0.01), layers(1, 1.0)
    both = [*actor.parameters(), *critic.parameters()]
    adam = torch.optim.Adam(both, _RATE, eps=1e-5)
    shape, seen, steps, began = (_STEPS, _ENVS), 0, 0, time.perf_counter()
    obs, chance = torch.zeros(*shape, width), torch.zeros(shape)
    action, reward, over, value = torch.zeros(shape, dtype=torch.long), *(torch.zeros(shape) for _ in range(3))
    now, _ = envs.reset(seed=0)
    scale = None
    while seen < orders:
        for step in range(_STEPS):
            obs[step] = torch.as_tensor(now)
            with torch.no_grad():
                choice = torch.distributions.Categorical(logits=actor(obs[step]))
                action[step], value[step] = choice.sample(), critic(obs[step])[:, 0]
                chance[step] = choice.log_prob(action[step])
            now, gained, ended, _, _ = envs.step(action[step].numpy())
            reward[step], over[step] = torch.as_tensor(gained), torch.as_tensor(ended).float()
            seen, steps = seen + int(ended.sum()), steps + _ENVS
        scale = float(reward.std()) if scale is None else scale
        returns = torch.zeros(shape)
        with torch.no_grad():
            ahead = critic(torch.as_tensor(now))[:, 0]
        for step in reversed(range(_STEPS)):
            ahead = returns[step] = reward[step] / scale + (1.0 - over[step]) * ahead
        flat = [part.flatten(0, 1) for part in (obs, action, chance, returns, returns - value)]
        for _ in range(_PPO["n_epochs"]):
            for rows in torch.randperm(len(flat[0])).split(_PPO["batch_size"]):
                seen_obs, taken, before, wanted, better = (part[rows] for part in flat)
                better = (better - better.mean()) / (better.std() + 1e-8)
                choice = torch.distributions.Categorical(logits=actor(seen_obs))
                ratio = (choice.log_prob(taken) - before).exp()
                gain = torch.minimum(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
                loss = (
                    0.5 * mse_loss(critic(seen_obs)[:, 0], wanted) - gain - _PPO["ent_coef"] * choice.entropy().mean()
                )
                adam.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(both, 0.5)
                adam.step()
    seconds = time.perf_counter() - began

    def policy(flat: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(actor(torch.as_tensor(flat)).argmax(dim=1))

    policy.observation = "flat"  # type: ignore[attr-defined]
    return Trained("one file", "PPO", "native", seen, steps, seconds, policy)


def tianshou_itself(run: RunDirectory, orders: int) -> Trained:
    """Train by tianshou's own trainer, on its vector environment of eight single ones."""
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - tianshou draws from it
    envs = DummyVectorEnv([lambda: gym.make(_ID, config=str(run.path)) for _ in range(8)])
    envs.seed(0)
    space, actions = envs.observation_space[0], envs.action_space[0]

    def net() -> Net:
        return Net(state_shape=space.shape, hidden_sizes=(64, 64), activation=nn.Tanh)

    actor = DiscreteActor(preprocess_net=net(), action_shape=int(actions.n), softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=actions, observation_space=space, deterministic_eval=True)
    algorithm = PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=net()),
        optim=AdamOptimizerFactory(lr=_RATE),
        gamma=1.0,
        gae_lambda=1.0,
        ent_coef=_PPO["ent_coef"],
        return_scaling=True,
    )
    collector = Collector(algorithm, envs, VectorReplayBuffer(20_000, len(envs)))
    each = min(1000, orders)
    params = OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=-(-orders // each),
        epoch_num_steps=1,  # so that an epoch is one collection and its update
        collection_step_num_env_steps=None,
        collection_step_num_episodes=each,
        batch_size=_PPO["batch_size"],
        update_step_num_repetitions=_PPO["n_epochs"],
        show_progress=False,
        verbose=False,
    )
    began = time.perf_counter()
    algorithm.create_trainer(params).run()
    seconds = time.perf_counter() - began

    def judged(flat: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(actor(flat)[0].argmax(dim=1))

    judged.observation = "flat"  # type: ignore[attr-defined]
    return Trained("tianshou", "PPO", "8 single", collector.collect_episode, collector.collect_step, seconds, judged)


def measured(orders: int, folder: Path) -> list[dict[str, Any]]:
    """Return a row a learner, in the order in which they were trained."""
    torch.set_num_threads(1)
    config: dict[str, Any] = {
        "train.iterations": max(orders // 1000, 1),
        "train.episodes_per_iteration": min(orders, 1000),
    }
    config |= {"algorithm": "ppo", "network": "recurrent", "head": {"mask_actions": False, "even_start": False}}
    run = RunDirectory.create(folder / "run", RunConfig.load(None, Layer("benchmark", {**config, "backtest.top": 1})))
    learners: list[Callable[[RunDirectory, int], Trained]] = [own]
    learners += [partial(stable_baselines, name=name) for name in ("PPO", "DQN", "MaskablePPO", "RecurrentPPO")]
    learners += [single_file, tianshou_itself, stable_baselines_single]
    made = []
    for train in learners:
        made.append(train(run, orders))
        print(f"{made[-1].library} {made[-1].learner}: {made[-1].seconds:.0f} s", flush=True)
    policies = {f"{one.library}.{one.learner}".replace(" ", "_"): one for one in made if one.policy is not None}
    table = judge(run, {name: one.policy for name, one in policies.items()}, trust=True).table.frame.set_index("policy")
    names = {id(one): name for name, one in policies.items()} | {id(made[0]): "last"}
    rows = []
    for one in made:
        pa = table.loc[names[id(one)]] if id(one) in names else None
        figures = {name: None if pa is None else float(pa[f"pa_{name}"]) for name in ("mean", "lo", "hi")}
        told = {name: value for name, value in one._asdict().items() if name != "policy"}
        rows.append({**told, "steps_per_second": one.steps / one.seconds, "pa": figures.pop("mean"), **figures})
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a table."""
    lines = [
        "| library | learner | environment | orders | steps | seconds | steps/s | test PA, bp | 95 % interval |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        pa = "-" if row["pa"] is None else f"{row['pa']:.2f}"
        ends = "-" if row["pa"] is None else f"[{row['lo']:.2f}, {row['hi']:.2f}]"
        counts = f"{row['orders']:,} | {row['steps']:,} | {row['seconds']:.0f} | {row['steps_per_second']:,.0f}"
        lines.append(f"| {row['library']} | {row['learner']} | {row['environment']} | {counts} | {pa} | {ends} |")
    first = rows[0]
    return "\n".join([*lines, "", f"{first['machine']}; {first['date']}; load before the start {first['load']}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=20_000, help="training orders that each learner sees")
    parser.add_argument("--out", type=Path, default=_OUT)
    args = parser.parse_args()
    about = context()
    with tempfile.TemporaryDirectory(prefix="rlwb-outside-") as folder:
        rows = [{**row, **about} for row in measured(args.orders, Path(folder))]
    write_json(args.out, rows)
    if args.out == _OUT:
        write_text(_PAGE, insert(_PAGE.read_text(encoding="utf-8"), markdown(rows), "outside"))
    print(f"\n{markdown(rows)}")


if __name__ == "__main__":
    main()
