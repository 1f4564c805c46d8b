"""The parts of a run, made from its configuration."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import pandas as pd

import rlwb
from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import (
    Baseline,
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    OrderBatch,
    OrderExecution,
    SplitSettings,
    align_orders,
    check_differentiable,
    decision_tree,
    split_orders,
    step_terms,
)
from rlwb.execution.attribution import without_impact
from rlwb.execution.generate import locked_dates
from rlwb.execution.rolling import rolling_windows
from rlwb.experiment.config import RunConfig
from rlwb.experiment.own_code import check_objective, described
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.market import MarketFeatures, Normaliser, Sessions
from rlwb.objective import Objective
from rlwb.parts import Part, load, make
from rlwb.record import ACTING, MARKET, ORIGIN, TrainingRecord, check_record, differences
from rlwb.reward import Reward
from rlwb.seeds import Stream, generator
from rlwb.simulator import Simulator

if TYPE_CHECKING:
    from rlwb.experiment.shards import Shards
    from rlwb.trainer import Episodes

#: What a part of a kind must be.
_BASES: dict[str, type[Any]] = {
    "simulator": Simulator,
    "state_interpreter": StateInterpreter,
    "action_interpreter": ActionInterpreter,
    "reward": Reward,
    "objective": Objective,
    "algorithm": Learner,
}
#: Places in the configuration that a policy is made from.
_OF_THE_POLICY = ("algorithm", "network", "head", "state_interpreter", "action_interpreter", "features")


def _within(dates: np.ndarray, span: tuple[np.datetime64, np.datetime64]) -> np.ndarray:
    return (dates >= span[0]) & (dates <= span[1])


class Workbench:
    """What a configuration asks for, each part made when it is first used.

    Sessions and orders of locked dates (``split.locked``) are in none of them.

    Prepared panels are kept in the folder `cache_dir`; without one, bars are prepared anew each time. With
    `is_elsewhere`, policies may have been trained under other rules (`rlwb.record.ACTING`).
    """

    def __init__(self, config: RunConfig, *, cache_dir: Path | None = None, is_elsewhere: bool = False) -> None:
        self.config = config
        self.cache_dir = cache_dir
        self.is_elsewhere = is_elsewhere
        self._latest: MarketFeatures | None = None
        #: Processes that run policies on orders in place of this one; see `rlwb.experiment.shards`.
        self.shards: Shards | None = None

    def make(self, kind: str, part: Part, **provided: Any) -> Any:
        """Return a part of the run; it is given what it asks for by name (`rlwb.parts.PROVIDED`)."""
        engine = provided.setdefault("engine", self.engine)
        given = {"seed": self.config.seed, "market": self.config.market, "sessions": self.sessions}
        made = make(kind, part, **given, rules=engine.rules, max_step=engine.max_step, **provided)
        base = _BASES.get(kind, object)
        if not isinstance(made, base):
            raise ConfigError(
                f"{kind} {part.name} makes a {type(made).__name__}, which is no {base.__name__}; derive it from "
                f"{base.__module__}.{base.__name__}."
            )
        return made

    @cached_property
    def sessions(self) -> Sessions:
        """The panel of all bars, those of locked dates aside."""
        return self._panels[0]

    @property
    def locked(self) -> tuple[np.datetime64, np.datetime64] | None:
        """First and last of the dates that are locked, datetime64[D]; None where none is."""
        return self._panels[1]

    @cached_property
    def _panels(self) -> tuple[Sessions, tuple[np.datetime64, np.datetime64] | None]:
        panel = make("market", self.config.market, cache_dir=self.cache_dir)
        split = self.config.split
        if self.is_elsewhere and isinstance(split.locked, (int, float)):  # a share of other bars than the run's
            return panel, None
        own = SplitSettings(locked=split.locked) if self.is_elsewhere else split  # test dates may lie after those
        locked = locked_dates(own, np.unique(panel.dates))
        return panel if locked is None else panel.select(~_within(panel.dates, locked)), locked

    @cached_property
    def engine(self) -> Engine:
        """What executes orders, under the configured rules."""
        return Engine(self.sessions, self.config.execution.ticks_per_step, self.config.execution.rules)

    @cached_property
    def simulator(self) -> Simulator[Any]:
        """The market's answer to decisions."""
        return self.make("simulator", self.config.simulator)

    def elsewhere(self, sessions: Sessions, rules: ExecutionRules) -> Workbench:
        """Return a workbench of the same parts on other sessions of the same clock, under other rules of execution."""
        execution = self.config.execution.model_copy(update={"rules": rules})
        made = Workbench(self.config.model_copy(update={"execution": execution}), is_elsewhere=True)
        vars(made)["sessions"] = sessions
        return made

    def simulator_under(self, rules: ExecutionRules) -> Simulator[Any]:
        """Return the simulator under other rules of execution than the run's."""
        engine = Engine(self.sessions, self.config.execution.ticks_per_step, rules)
        return self.make("simulator", self.config.simulator, engine=engine)

    @cached_property
    def impact_free(self) -> tuple[Engine, Simulator[Any]] | None:
        """The engine and simulator of the same market where trading has no impact; None where it has none anyway."""
        rules = without_impact(self.config.execution.rules)
        if rules == self.config.execution.rules:
            return None
        engine = Engine(self.sessions, self.config.execution.ticks_per_step, rules)
        return engine, self.make("simulator", self.config.simulator, engine=engine)

    @cached_property
    def action_interpreter(self) -> ActionInterpreter[Any]:
        """The actions of the policy."""
        return self.make("action_interpreter", self.config.action_interpreter)

    @cached_property
    def reward(self) -> Reward[Any]:
        """The reward of the learner."""
        return self.make("reward", self.config.reward)

    @cached_property
    def objective(self) -> Objective:
        """The value of uncertain results, which learners maximise and checkpoints are chosen by."""
        return self.make("objective", self.config.objective)

    def objective_terms(self, orders: OrderBatch, figures: Mapping[str, Any]) -> np.ndarray:
        """Return each order's part of the objective's value over orders, float64 of shape (N,), from their figures."""
        found, settings = np.asarray(figures[self.config.execution.rules.judged_by]), self.dial_settings(orders)
        terms = np.empty(len(orders))
        for one, rows in self.objective.groups(settings, len(orders)):
            terms[rows] = one.terms(found[rows])
        return terms

    def objective_value(self, orders: OrderBatch, episodes: Episodes) -> float:
        """Return the objective's value over orders that were executed; of a dial, the mean over their settings."""
        terms = self.objective_terms(orders, episodes.metrics)
        return float(np.nanmean(terms)) if np.isfinite(terms).any() else float("nan")

    def validation_figures(self, orders: OrderBatch, episodes: Episodes) -> dict[str, float]:
        """Return the figures of a validation; ``objective`` is among them where it is another than the mean."""
        judged = {"objective": self.objective_value(orders, episodes)} if self.config.judged_by == "objective" else {}
        return {**episodes.summary(), **judged}

    def check(self) -> None:
        """Make all parts that need no features, so that each can refuse its settings."""
        for kind in ("simulator", "action_interpreter", "reward", "objective"):
            self.make(kind, getattr(self.config, kind))
        for part in self.config.baselines:
            self.make("baseline", part)

    def _check_replayed(self) -> None:
        """Refuse to differentiate through a market, rules or a reward that cannot be."""
        if "step_terms" not in inspect.signature(load("algorithm", self.config.algorithm.name)).parameters:
            return
        check_differentiable(self.engine, self.reward)
        if type(self.simulator) is not OrderExecution:
            raise ConfigError(
                f"{self.config.algorithm.name} differentiates through the replay of the market, which is not what the "
                f"simulator {self.config.simulator.name} does; set simulator to market, or choose another algorithm."
            )

    def try_out(self) -> None:
        """Make all parts and all orders and take one through, so that what can be refused is so before any work."""
        from rlwb.trainer import TrainingVessel

        self.check()
        self._check_replayed()
        windows = [self.make_orders(split)[0] for split in self.splits()]
        aligned = [{name: self.align(tables[name]) for name in ("train", "valid", "test")} for tables in windows]
        for one in (self.make("baseline", part) for part in self.config.baselines):
            for parts in aligned if isinstance(one, Baseline) else ():
                one.check(parts["test"])
        tables, orders = windows[0], aligned[0]
        features = self.features(tables["train"])
        vessel = TrainingVessel(
            simulator=self.simulator,
            state_interpreter=self.state_interpreter(features),
            action_interpreter=self.action_interpreter,
            policy=self.learner(features, self.teacher(features) if self.is_taught else None),
            reward=self.reward,
            train_initial_states=orders["train"],
            val_initial_states=orders["valid"],
            test_initial_states=orders["test"],
            episode_per_iter=self.config.train.episodes_per_iteration,
            seed=self.config.seed,
        )
        vessel.policy.prepare(orders["train"][:1])
        vessel.check_env()

    @cached_property
    def all_orders(self) -> pd.DataFrame:
        """The orders of all dates but locked ones."""
        table = self.make("orders", self.config.orders)
        if self.locked is None:
            return table
        inside = _within(table["date"].to_numpy().astype("datetime64[D]"), self.locked)
        kept = table[~inside].reset_index(drop=True)
        kept.attrs["notes"] = list(table.attrs.get("notes", ()))
        return kept

    def splits(self) -> list[SplitSettings]:
        """Return the configured split, of a rolling run that of each window."""
        split = dataclasses.replace(self.config.split, locked=None)  # whose dates are in no order
        if split.rolling is None:
            return [split]
        dates = np.unique(self.all_orders["date"].to_numpy())
        return [SplitSettings(rolling=None, **span) for span in rolling_windows(dates, split.rolling)]

    def make_orders(self, split: SplitSettings | None = None) -> tuple[dict[str, pd.DataFrame], list[str]]:
        """Return the order tables of all parts of a split, by default the run's, and in words what was noticed."""
        own = dataclasses.replace(self.config.split, locked=None)  # whose dates are in no order
        parts = split_orders(self.all_orders, split or own)
        notes = [*self.all_orders.attrs.get("notes", ()), *parts["all"].attrs.get("notes", ())]
        return parts, list(dict.fromkeys(notes))

    def align(
        self, table: pd.DataFrame, setting: int | None = None, *, on_refused: Literal["raise", "drop"] = "raise"
    ) -> OrderBatch:
        """Align orders with the sessions, under the configured rules; `on_refused` is that of `align_orders`.

        Where the objective has a dial, all orders have the aversion of a `setting` of it. By default those that state
        none are dealt the settings evenly, by the run's seed; without a dial they have the objective's own, if it has
        one, by which baselines go.
        """
        own = self.objective.dial or (self.objective,)
        known = [one.risk_aversion for one in own]
        if None not in known:
            rng = generator(self.config.seed, len(table), Stream.DIAL)
            dealt = np.array(known)[rng.permutation(np.arange(len(table)) % len(known))]
            stated = table["aversion"] if "aversion" in table else pd.Series(np.nan, table.index)
            dealt = stated.fillna(pd.Series(dealt, table.index)) if setting is None else known[setting]
            table = table.assign(aversion=dealt)
        forms = self.simulator.forms
        return align_orders(table, self.sessions, self.engine.rules, on_refused=on_refused, forms=forms)

    def dial_settings(self, orders: OrderBatch) -> np.ndarray | None:
        """Return the setting of the objective's dial that is nearest to each order, None where it has no dial."""
        if not self.objective.dial:
            return None
        return np.asarray(self.objective.place(orders.forms["aversion"]).argmax(axis=1))

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
        rows = self._sessions_of(train_orders)
        return MarketFeatures.build(self.sessions, self.config.features, fit_rows=rows)

    def fit(self, learner: Learner, features: MarketFeatures, train_orders: pd.DataFrame) -> None:
        """Let a learner's network estimate on the training sessions what gradients do not learn.

        Sessions that close early are left out, unless all do: after the close their features are 0, which is no price.
        """
        from rlwb.policy import Network

        trunk = getattr(learner, "trunk", None)
        if isinstance(trunk, Network):
            rows = self._sessions_of(train_orders)
            whole = rows & (self.sessions.num_ticks == self.sessions.calendar.num_ticks)
            trunk.fit(features, np.flatnonzero(whole if whole.any() else rows))

    def _sessions_of(self, orders: pd.DataFrame) -> np.ndarray:
        """Return which sessions are of the days of orders, bool of shape (S,)."""
        return np.isin(self.sessions.dates, orders["date"].to_numpy().astype("datetime64[D]"))

    def state_interpreter(self, features: MarketFeatures) -> StateInterpreter[Any]:
        """Return what the policy observes, and its teacher if it has one."""
        part = self.config.state_interpreter
        made = self.make("state_interpreter", part, features=features, objective=self.objective)
        space = made.observation_space
        if self.objective.dial and "aversion" not in getattr(space, "spaces", {}):
            raise ConfigError(
                f"the objective has several aversions, and the state interpreter {part.name} does not tell which is an "
                "order's; pass on its parameter objective, or give one aversion."
            )
        return made

    @cached_property
    def is_taught(self) -> bool:
        """Whether the algorithm learns from a teacher, told by its parameter ``teacher``."""
        return "teacher" in inspect.signature(load("algorithm", self.config.algorithm.name)).parameters

    def learner(self, features: MarketFeatures, teacher: Learner | None = None) -> Learner:
        """Return the untrained policy; it learns by distillation from a trained `teacher`, and needs none to act."""
        check_objective(self.config)
        part = self.config.algorithm
        algorithm = load("algorithm", part.name)
        if self.is_taught and teacher is None:
            return self._ppo(self.config.network, features)
        provided = self._shapes(features)
        if isinstance(algorithm, type) and issubclass(algorithm, Learner) and algorithm.head is not None:
            provided["network"] = self._network(self.config.network, algorithm, features)
        trunk = partial(self._drawn, self.config.network, provided, None)
        acts = (self.simulator, self.state_interpreter(features), self.action_interpreter, self.reward)
        given = {
            "objective": self.objective,
            "step_terms": partial(step_terms, self.engine, self.reward),
            "decision_tree": partial(decision_tree, *acts),
        }
        return self.make("algorithm", part, make_trunk=trunk, teacher=teacher, **given, **provided)

    def teacher(self, features: MarketFeatures) -> Learner:
        """Return the untrained teacher: PPO by the student's settings, on a network that sees the rest of the day."""
        network = self.config.network
        hidden = {name: value for name, value in network.settings.items() if name == "hidden"}
        # The layers of signals only decide; a width that is enough for them is none for reading the market.
        own = {} if network.name == "signals" else hidden
        return self._ppo(Part(name="rlwb.policy.market_network:Oracle", **own), features)

    def _ppo(self, network: Part, features: MarketFeatures) -> Learner:
        from rlwb.policy import PPO, PPOSettings

        names = {field.name for field in dataclasses.fields(PPOSettings)}
        settings = {name: value for name, value in self.config.algorithm.settings.items() if name in names}
        return PPO(self._network(network, PPO, features), PPOSettings(**settings), seed=self.config.seed)

    def _shapes(self, features: MarketFeatures) -> dict[str, Any]:
        """Return what networks and learners may ask for by name."""
        space = self.action_interpreter.action_space
        size = int(space.n) if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape or ()))
        return {
            "features": features,
            "channels": features.shape[2],
            "ticks": features.shape[1],
            "previous_day": self.config.features.previous_day,
            "actions": size,
            "observation_space": self.state_interpreter(features).observation_space,
            "action_space": space,
        }

    def _network(self, part: Part, algorithm: type[Any], features: MarketFeatures) -> Any:
        """Return a network with the head that an algorithm asks for, its weights drawn from the run's seed."""
        from rlwb.policy import ActionMask, EvenStart

        shapes, head, acts = self._shapes(features), self.config.head, self.action_interpreter
        options: dict[str, Any] = {"mask": None, "start": None}
        if head.mask_actions or head.even_start:
            if not isinstance(acts, CategoricalActionInterpreter):
                raise ConfigError("head.mask_actions and head.even_start need categorical actions; turn them off.")
            completes = self.config.execution.rules.complete_at_end
            options["mask"] = ActionMask(acts.shares, complete_at_end=completes) if head.mask_actions else None
            options["start"] = EvenStart(acts.shares) if head.even_start else None
        make_head, space = algorithm.head, shapes["action_space"]
        if algorithm.number_head is not None and isinstance(space, gym.spaces.Box):
            make_head, options["high"] = algorithm.number_head, float(np.max(space.high))
        return self._drawn(part, shapes, partial(make_head, **options), self.config.seed)

    def _drawn(self, part: Part, shapes: Mapping[str, Any], make_head: Any, seed: int) -> Any:
        """Return a network, with a head if one is asked for, its weights drawn from a seed."""
        from rlwb.policy import Dialled, Informed, make_network

        settings = len(self.objective.dial)
        forms = getattr(shapes["observation_space"], "spaces", {}).get("forms")

        def build() -> Any:
            body = self.make("network", part, **shapes)
            body = Informed(body, *forms.shape) if forms else body
            body = Dialled(body, settings) if settings else body
            return make_head(body, shapes["actions"]) if make_head else body

        return make_network(build, seed).to(device_of(self.config.train.device))

    def meta(self, features: MarketFeatures) -> dict[str, Any]:
        """Return what a checkpoint must carry beside its record for its policy to be built and fed again."""
        config = described(self.config)
        return {
            "rlwb": rlwb.__version__,
            **{name: config[name] for name in _OF_THE_POLICY},
            "normaliser": features.normaliser.as_dict(),
        }

    def restore(
        self,
        state: Mapping[str, Any],
        path: Path,
        *,
        teacher: bool = False,
        names: Collection[str] | None = None,
        origin: TrainingRecord | None = None,
    ) -> tuple[Learner, MarketFeatures]:
        """Return the policy of a checkpoint, or its `teacher`, and the features normalised as in its training.

        Parameters
        ----------
        names
            Names of the record that must agree with this workbench: by default `rlwb.record.MARKET`, or ``ACTING`` if
            the workbench is elsewhere, which lets a policy act under other rules than those of its training.
        origin
            The training that the checkpoint must be of, where only that one will do.

        Raises
        ------
        CheckpointError
            When the checkpoint was made by another algorithm, or for another network, other features, bars, steps,
            actions or rules, or by another training than `origin`, naming what differs; when it holds a teacher, which
            cannot act where the future is not known, where none is wanted, or the reverse.
        """
        from rlwb.trainer import record_of, recorded_in
        from rlwb.trainer.checkpoint import restoring

        what = f"the checkpoint {path}"
        if "record" not in state or "meta" not in state:
            raise CheckpointError(f"{what} does not say what it was trained for; use one that a run has written.")
        with restoring(path):
            found, record = dict(state["meta"]), recorded_in(state)
            normaliser = Normaliser.from_dict(found["normaliser"])
        if found.get("sees_future") and not teacher:
            raise CheckpointError(
                f"the checkpoint {path} holds a teacher, which sees the rest of the day and cannot act in a market; "
                "use one of its student."
            )
        if teacher and not found.get("sees_future"):
            raise CheckpointError(f"the checkpoint {path} holds no teacher; take one of the folder teacher.")
        if origin is not None:
            check_record(record, origin, what, names=ORIGIN, do="it is of another training: take it out of this run.")
        features = self.features(normaliser=normaliser)
        wanted = self.meta(features)
        for name in _OF_THE_POLICY:
            if differ := differences(name, found.get(name), wanted[name]):
                raise CheckpointError(
                    f"{what} was made with other settings: {'; '.join(differ)}; use the configuration that it was "
                    "trained with."
                )
        here = record_of(self.simulator, self.state_interpreter(features), self.action_interpreter)
        names = names or (ACTING if self.is_elsewhere else MARKET)
        check_record(record, here, what, names=names)
        learner = self.teacher(features) if teacher else self.learner(features)
        with restoring(path):
            learner.load_state_dict(state["vessel"]["policy"])
        learner.trained_for = record
        return learner, features


def device_of(name: str) -> str:
    """Return the device for ``cpu``, ``cuda`` or ``auto``."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("train.device is cuda but torch finds no GPU; set it to cpu or auto.")
    return name
