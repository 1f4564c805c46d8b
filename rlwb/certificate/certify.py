"""Training a learner by the settings of a run on a market with a known optimum, and measuring how much it reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.certificate.market import DAY, CertifiedMarket, Value, both_sides, share_of_way, with_day_before
from rlwb.certificate.runs import run_settings
from rlwb.errors import ConfigError
from rlwb.evaluation import day_interval, read_validation, select_checkpoints
from rlwb.experiment.backtest import baseline_result, checkpoint_policy, choose_checkpoints, make_baselines, play
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import temporary_run
from rlwb.experiment.workbench import Workbench
from rlwb.trainer import list_checkpoints

#: Algorithms that are measured; any other of a run can be named as well.
METHODS = ("ppo", "pathwise", "dqn")
#: What a row tells of the settings that a learner was trained with.
_TOLD = ("algorithm", "network", "head", "action_interpreter", "features", "train")


class CertifiedJudge:
    """Judges policies on a certified market, exactly or on its sample, and chooses by the reward in validation."""

    def __init__(self, market: CertifiedMarket, run: RunDirectory, config: RunConfig) -> None:
        self.market, self.run = market, run
        self.twap = market.twap
        self._bench = Workbench(config, is_elsewhere=True)
        sessions = with_day_before(market.sessions, market.judged, np.full(len(market.judged), DAY))
        self._bench.sessions = sessions
        self._orders = self._bench.align(both_sides(sessions, market.amount))
        is_choice = isinstance(self._bench.action_interpreter.action_space, gym.spaces.Discrete)
        self.optimum = market.optimum if is_choice else market.any_amount

    def chosen(self) -> Path:
        # The reward is the objective; the PA that a run chooses by leaves out the penalty, and is the same without one.
        log = read_validation(self.run.metrics / "validation.csv", "reward")
        return select_checkpoints(log, self.run.checkpoints, count=1, metric="reward").chosen[0].path

    def value(self, checkpoint: Path) -> Value:
        episodes = play(self._bench, checkpoint_policy(self._bench, checkpoint), self._orders)
        return self.market.value(episodes.returns.reshape(-1, 2).mean(axis=1))


class EmbeddedJudge:
    """Judges policies by their PA on a run's own test orders, beside `filter_optimum`; the error is by days."""

    twap = 0.0

    def __init__(self, run: RunDirectory, config: RunConfig) -> None:
        self.run, self.config = run, config
        self._bench = workbench(run, config)
        self._orders = self._bench.align(load_orders(run, self._bench, "test"))

    @cached_property
    def _best(self) -> np.ndarray:
        (rule,) = make_baselines(self._bench).values()
        rule.fit(self._bench.align(load_orders(self.run, self._bench, "train")))
        return baseline_result(self._bench, "filter_optimum", rule, self._orders).orders["pa"].to_numpy()

    @property
    def optimum(self) -> float:
        return float(np.nanmean(self._best))

    def chosen(self) -> Path:
        return choose_checkpoints(self.run, self.config).chosen[0].path

    def value(self, checkpoint: Path) -> Value:
        pa = np.asarray(play(self._bench, checkpoint_policy(self._bench, checkpoint), self._orders).metrics["pa"])
        dates, rng = self._orders.table["date"].to_numpy(), np.random.default_rng(self.config.seed)
        return Value(float(np.nanmean(pa)), day_interval(pa - self._best, dates, rng, resamples=1000).standard_error)


@dataclass(frozen=True)
class EmbeddedMarket:
    """The synthetic market and the orders of a run by default; its optimum is the filter that knows the law."""

    name: str = "synthetic"


def run_config(
    market: CertifiedMarket | EmbeddedMarket, method: str, seed: int, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """Return the settings of a run on a market: those of ``rlwb run``, and what makes the market's problem.

    Where a learner chooses from a list, and that of a run by default cannot express the optimum, it is the market's.
    """
    layer = Layer("the certificate", {"algorithm": method, "seed": seed, **(changes or {})})
    config = RunConfig.load(None, layer)
    if isinstance(market, EmbeddedMarket):
        return RunConfig.load(None, layer, Layer(market.name, {"baselines": ["filter_optimum"]}))
    own = run_settings(market, config.train.iterations * config.train.episodes_per_iteration, seed)
    if market.actions is not None and config.action_interpreter.name == "categorical":
        own["action_interpreter"] = {"name": "categorical", "values": market.actions}
    return RunConfig.load(None, layer, Layer(market.name, own))


def _figures(value: Value) -> dict[str, float]:
    return {"value": value.mean, "error": value.error}


def learner_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings of a run that its learner was trained with, as plain values."""
    return {name: config.as_dict()[name] for name in _TOLD}


def certify(
    market: CertifiedMarket | EmbeddedMarket,
    method: str,
    seed: int,
    *,
    every: int = 10,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a learner as ``rlwb run`` would on a market, and measure the checkpoint that validation chooses.

    Parameters
    ----------
    method
        An algorithm of a run.
    seed
        Of the run, and of the sessions that a certified market draws for it.
    every
        Iterations from one point of the curve to the next.
    changes
        Settings of the run in place of its defaults, by dotted name.

    Returns
    -------
    dict
        ``market, method, seed``; ``value, error, optimum, twap`` in basis points; ``share`` of the way from TWAP to the
        optimum, NaN where the optimum is not above TWAP; ``iteration`` of the checkpoint; ``seconds`` of training;
        ``curve``, a list of ``iteration, value, error``; and ``settings`` of the learner.

    Raises
    ------
    ConfigError
        Where the algorithm refuses the market, naming the rule.
    """
    if every < 1:
        raise ConfigError(f"every is {every}; judge after every 1 or more iterations.")
    config = run_config(market, method, seed, changes)
    with temporary_run(config) as run:
        judge: EmbeddedJudge | CertifiedJudge
        if isinstance(market, EmbeddedMarket):
            judge = EmbeddedJudge(run, config)
        else:
            judge = CertifiedJudge(market, run, config)
        saved = list_checkpoints(run.checkpoints)
        points = [at for at in saved if at % every == 0 or at == max(saved)]
        curve = [{"iteration": at, **_figures(judge.value(saved[at]))} for at in points]
        chosen = judge.chosen()
        value = judge.value(chosen)
        return {
            "market": market.name,
            "method": method,
            "seed": seed,
            **_figures(value),
            "optimum": judge.optimum,
            "twap": judge.twap,
            "share": share_of_way(value.mean, judge.twap, judge.optimum),
            "iteration": int(chosen.stem),
            "seconds": run.stage("train")["seconds"],
            "curve": curve,
            "settings": learner_settings(config),
        }
