"""The parts of a run, built from its configuration."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

import rlwb
from rlwb.errors import CheckpointError
from rlwb.execution import (
    BindReport,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecutionFactory,
    PAPenaltyReward,
    PPOReward,
    bind_orders,
    generate_orders,
    read_orders,
    split_orders,
)
from rlwb.experiment.config import RunConfig
from rlwb.experiment.sections import CalendarConfig, MarketConfig
from rlwb.market import Calendar, MarketFeatures, Normaliser, Sessions, load_sessions, synthetic_sessions
from rlwb.market.dataset.state import is_dataset
from rlwb.market.feature_registry import describe_columns
from rlwb.market.store import is_panel

if TYPE_CHECKING:
    from rlwb.policy import DQN, PPO, PPOSettings

    Settings = TypeVar("Settings", bound=PPOSettings)


def calendar_for(market: MarketConfig) -> Calendar | None:
    """Return the calendar of bars; None where they bring their own and no other is asked for."""
    brings = market.kind is None and (is_dataset(market.source) or is_panel(market.source))
    return None if brings and market.calendar == CalendarConfig() else market.calendar.build()


class Workbench:
    """What a configuration asks for, each part made when it is first used.

    Parameters
    ----------
    config
        The configuration.
    cache_dir
        Folder of prepared panels; None prepares bars anew each time.
    """

    def __init__(self, config: RunConfig, *, cache_dir: Path | None = None) -> None:
        self.config = config
        self.cache_dir = cache_dir
        self._latest: MarketFeatures | None = None

    @cached_property
    def sessions(self) -> Sessions:
        """The panel of all bars."""
        market = self.config.market
        if market.source == "synthetic":
            return synthetic_sessions(market.synthetic)
        return load_sessions(
            market.source,
            calendar_for(market),
            kind=market.kind,
            options=market.options or None,
            columns=market.columns or None,
            instruments=market.instruments or None,
            start=market.start,
            end=market.end,
            strict=market.strict,
            min_coverage=market.min_coverage,
            volume_multiplier=market.volume_multiplier,
            prices=market.prices,
            instrument_pattern=market.instrument_pattern,
            datetime_format=market.datetime_format,
            source_timezone=market.source_timezone,
            cache_dir=self.cache_dir,
        )

    @cached_property
    def simulator(self) -> OrderExecutionFactory:
        """The factory of simulators, with the rules of execution."""
        execution = self.config.execution
        return OrderExecutionFactory(self.sessions, execution.ticks_per_step, execution.rules)

    def make_orders(self) -> tuple[dict[str, pd.DataFrame], list[str]]:
        """Return the order tables of all parts, and in words what was noticed on the way."""
        settings = self.config.orders
        if settings.source == "generated":
            rules = self.config.execution.rules
            table = generate_orders(self.sessions, settings.generate, seed=self.config.seed, lot_size=rules.lot_size)
            notes = list(table.attrs["notes"])
            report = BindReport()
            batch = bind_orders(table, self.sessions, rules, on_refused="drop", report=report)
            if report.refused:  # only what was drawn may be left out; orders of one's own are refused as they are
                table = batch.table.reset_index(drop=True)
                notes += [f"{len(ids)} orders were left out: {reason}" for reason, ids in report.refused.items()]
        else:
            table = read_orders(settings.source, self.sessions.calendar)
            notes = list(table.attrs.get("notes", ()))
        parts = split_orders(table, settings.split)
        notes += parts["all"].attrs.get("notes", ())
        return parts, list(dict.fromkeys(notes))

    def features(
        self, train_orders: pd.DataFrame | None = None, normaliser: Normaliser | None = None
    ) -> MarketFeatures:
        """Return the features, normalised by the sessions of `train_orders` or by a checkpoint's statistics."""
        if normaliser is not None:
            # The checkpoints of a run share their statistics, so one panel of features serves all of them.
            if self._latest is None or self._latest.normaliser.as_dict() != normaliser.as_dict():
                self._latest = MarketFeatures.build(self.sessions, self.config.features, normaliser=normaliser)
            return self._latest
        assert train_orders is not None
        days = train_orders["date"].to_numpy().astype("datetime64[D]")
        return MarketFeatures.build(self.sessions, self.config.features, fit_rows=np.isin(self.sessions.dates, days))

    def state_interpreter(self, features: MarketFeatures) -> CurrentStepStateInterpreter:
        """Return what the configured network observes, and its teacher if it has one."""
        steps = self.simulator.engine.max_step
        if self.config.policy.network == "mlp" and self.config.train.algorithm != "opd":
            return CurrentStepStateInterpreter(steps)
        return FullHistoryStateInterpreter(features, steps)

    @cached_property
    def action_interpreter(self) -> CategoricalActionInterpreter:
        """The actions of the policy."""
        return CategoricalActionInterpreter(self.config.train.action_values)

    @cached_property
    def reward(self) -> PAPenaltyReward | PPOReward:
        """The reward of the learner."""
        train = self.config.train
        if train.reward == "sparse":
            return PPOReward()
        return PAPenaltyReward(penalty=train.penalty, scale=train.reward_scale)

    def learner(self, features: MarketFeatures, teacher: PPO | None = None) -> PPO | DQN:
        """Return the untrained policy.

        Parameters
        ----------
        features
            What its network reads.
        teacher
            The trained teacher, to learn by distillation; to act, a student needs none.
        """
        from rlwb.policy import DQN, OPD, PPO, DQNSettings, OPDSettings, PPOSettings, QNetwork

        train = self.config.train
        if train.algorithm == "dqn":
            own = train.dqn.model_dump(exclude={"epsilon_iterations"})
            return DQN(
                self._network(features, kind=QNetwork),
                DQNSettings(
                    learning_rate=train.learning_rate,
                    gamma=train.gamma,
                    decay_updates=train.decay_iterations,
                    epsilon_updates=train.dqn.epsilon_iterations,
                    max_grad_norm=train.max_grad_norm,
                    **own,
                ),
                seed=self.config.seed,
            )
        if teacher is not None:
            settings = self._ppo_settings(OPDSettings, distillation=train.opd.distillation)
            return OPD(self._network(features), teacher, settings, seed=self.config.seed)
        return PPO(self._network(features), self._ppo_settings(PPOSettings), seed=self.config.seed)

    def teacher(self, features: MarketFeatures) -> PPO:
        """Return the untrained teacher of oracle policy distillation."""
        from rlwb.policy import PPO, PPOSettings, make_teacher

        net = self._network(features, make=make_teacher)
        return PPO(net, self._ppo_settings(PPOSettings), seed=self.config.seed)

    def _ppo_settings(self, kind: type[Settings], **own: Any) -> Settings:
        train = self.config.train
        return kind(
            learning_rate=train.learning_rate,
            decay_updates=train.decay_iterations,
            gamma=train.gamma,
            gae_lambda=train.gae_lambda,
            clip=train.clip,
            value_coef=train.value_coef,
            entropy_coef=train.entropy,
            max_grad_norm=train.max_grad_norm,
            **own,
        )

    def _network(self, features: MarketFeatures, *, make: Any = None, **head: Any) -> Any:
        from rlwb.policy import ActionMask, EvenStart, NetworkSettings, make_network

        policy, shares = self.config.policy, self.action_interpreter.shares
        net = (make or make_network)(
            NetworkSettings(policy.network, policy.hidden, previous_day=self.config.features.previous_day),
            len(shares),
            features=features,
            seed=self.config.seed,
            mask=ActionMask(shares) if policy.mask_actions else None,
            start=EvenStart(shares) if policy.even_start else None,
            **head,
        )
        return net.to(device_of(self.config.train.device))

    def meta(self, features: MarketFeatures) -> dict[str, Any]:
        """Return what a checkpoint must carry for its policy to be built and fed again."""
        config = self.config
        seen = dataclasses.asdict(config.features)
        seen["columns"] = describe_columns(config.features.columns)
        return {
            "rlwb": rlwb.__version__,
            "algorithm": config.train.algorithm,
            "policy": config.policy.model_dump(mode="json"),
            "action_values": config.train.action_values,
            "ticks_per_step": config.execution.ticks_per_step,
            "max_step": self.simulator.engine.max_step,
            "rules": dataclasses.asdict(config.execution.rules),
            "features": seen,
            "normaliser": features.normaliser.as_dict(),
        }

    def restore(self, state: dict[str, Any], path: Path) -> tuple[PPO | DQN, MarketFeatures]:
        """Return the policy of a checkpoint, and the features normalised as in its training.

        Raises
        ------
        CheckpointError
            When the checkpoint was made by another algorithm, or for another network, other actions or other steps, or
            holds a teacher, which cannot act where the future is not known.
        """
        if state["meta"].get("sees_future"):
            raise CheckpointError(
                f"the checkpoint {path} holds a teacher, which sees the rest of the day and cannot act in a market; "
                "use one of its student."
            )
        return self._restored(state, path, self.learner)

    def restore_teacher(self, state: dict[str, Any], path: Path) -> tuple[PPO, MarketFeatures]:
        """Return the teacher of a checkpoint, to show what there is to gain; else as `restore`."""
        if not state["meta"].get("sees_future"):
            raise CheckpointError(f"the checkpoint {path} holds no teacher; it can act by `restore`.")
        return self._restored(state, path, self.teacher)

    def _restored(self, state: dict[str, Any], path: Path, build: Any) -> tuple[Any, MarketFeatures]:
        features = self.features(normaliser=Normaliser.from_dict(state["meta"]["normaliser"]))
        wanted, found = self.meta(features), state["meta"]
        for name in ("algorithm", "policy", "action_values", "max_step", "features"):
            if _plain(found.get(name)) != _plain(wanted[name]):
                raise CheckpointError(
                    f"the checkpoint {path} was made with {name} {found.get(name)!r}, the configuration says "
                    f"{wanted[name]!r}; use the configuration that it was trained with."
                )
        learner = build(features)
        learner.load_state_dict(state["vessel"]["policy"])
        return learner, features

    def bind(self, table: pd.DataFrame) -> OrderBatch:
        """Bind orders to the sessions, under the configured rules."""
        return self.simulator.bind(table)


def _plain(value: Any) -> Any:
    """Return `value` with tuples as lists, which files make of them."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def device_of(name: str) -> str:
    """Return the device for ``cpu``, ``cuda`` or ``auto``."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        from rlwb.errors import ConfigError

        raise ConfigError("train.device is cuda but torch finds no GPU; set it to cpu or auto.")
    return name
