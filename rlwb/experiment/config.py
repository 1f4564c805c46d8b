"""The configuration of a run: one frozen tree of parts and a few sections, checked before any work."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from rlwb.execution import ExecutionRules, SplitSettings
from rlwb.execution.baselines.filter_optimum import unfitting_rules
from rlwb.execution.decision_tree import STAYING
from rlwb.execution.presets import PRESETS
from rlwb.experiment.layers import Layer, build, parse_assignments
from rlwb.experiment.yamlfile import dump_yaml, read_yaml
from rlwb.market import FeatureSettings
from rlwb.parts import Part, complete, describe, names
from rlwb.signatures import parameter_texts

__all__ = ["SLOTS", "Layer", "RunConfig", "parse_assignments"]

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
#: What a label takes over from no setting, since it names a file.
_NO_FILE_NAME = re.compile(r"[^\w.=+-]+")


class Section(BaseModel):
    """A frozen group of settings that refuses other names; its docstring's ``Parameters`` describe them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


class ExecutionConfig(Section):
    """How orders are executed, in training and backtest alike.

    Parameters
    ----------
    ticks_per_step : bars
        Bars between two decisions; larger means fewer, coarser decisions.
    preset
        Rules to start from: of a market, ``cn``, ``us`` or ``crypto``, or of Qlib's simulator, ``qlib``; sources and
        assumptions are in ``rlwb.execution.presets``. `rules` changes them. None starts from the simple rules.
    rules
        Market rules and costs; the name of a preset alone is that preset.
    """

    ticks_per_step: Count = 6
    preset: Literal["cn", "us", "crypto", "qlib"] | None = None
    rules: ExecutionRules = ExecutionRules()

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and str(values.get("preset")) in PRESETS:
            given = values.get("rules") or {}
            if isinstance(given, Mapping):
                return {**values, "rules": {**PRESETS[values["preset"]], **given}}
        return values


class HeadConfig(Section):
    """What stands on the network.

    Parameters
    ----------
    mask_actions
        Whether duplicate actions are masked: where several request the same quantity, only one can be selected. Without
        a value it is so where actions are choices among shares.
    even_start
        Whether the untrained policy, and random actions, trade evenly on average instead of choosing evenly. Without a
        value it is so where actions are choices among shares.
    """

    mask_actions: bool | None = None
    even_start: bool | None = None


class TrainConfig(Section):
    """How long the policy is trained, and with what.

    Parameters
    ----------
    iterations : iterations
        Collects of episodes, each followed by an update, those before a resume included; a run that has trained for
        more refuses fewer.
    episodes_per_iteration : orders
        Orders executed a collect; larger gives a steadier gradient and takes longer.
    validate_every : iterations
        Iterations between validations; only validated iterations can be chosen for the backtest.
    checkpoint_every : iterations
        Iterations between checkpoints.
    keep : checkpoints
        Checkpoints kept: the best by validation and the newest; 0 keeps all.
    patience : validations
        Validations without improvement until training stops; none trains to the end.
    env
        Environments to collect with: ``native`` steps all orders as arrays; ``dummy``, ``subproc`` and ``shmem`` step
        one simulator an order, in this process or in workers. These three give the same weights, to the last bit;
        ``native``, which reads a session once for all its decisions, sums gradients in another order, so its weights
        are equal to theirs up to rounding. For the same weights all give the same figures. ``ray`` is ``native`` with
        its orders divided among processes of a Ray cluster (docs/cluster.md), which changes no number.
    concurrency : orders or workers
        Orders in progress at a time with ``dummy``, workers with ``subproc``, ``shmem`` and ``ray``; ``native`` takes
        all orders at once and has no use for it.
    actors : processes
        Processes of a Ray cluster (docs/cluster.md) that collect in place of `env`, each with a copy of the policy; the
        update stays in one process. Their number changes no weight, and the weights are those of ``native``; 0 collects
        in `env`.
    device
        ``cpu``, ``cuda``, or ``auto``.
    """

    iterations: Count = 40
    episodes_per_iteration: Count = 1000
    validate_every: Count = 1
    checkpoint_every: Count = 1
    keep: CountOrZero = 0
    patience: Count | None = None
    env: Literal["native", "dummy", "subproc", "shmem", "ray"] = "native"
    concurrency: Count = 4
    actors: CountOrZero = 0
    device: Literal["cpu", "cuda", "auto"] = "cpu"


def validated_checkpoints(train: TrainConfig) -> list[int]:
    """Return the iterations that are validated and saved."""
    every = range(train.validate_every, train.iterations + 1, train.validate_every)
    return [number for number in every if number % train.checkpoint_every == 0 or number == train.iterations]


class BacktestConfig(Section):
    """How the result is judged.

    Parameters
    ----------
    top : checkpoints
        Checkpoints chosen by validation PA.
    bootstrap_samples : draws
        Draws of the bootstrap; larger steadies the last digit of the interval.
    confidence : share
        Coverage of the intervals.
    actors : processes
        Processes of a Ray cluster (docs/cluster.md) that checkpoints and chunks of orders are divided among, with the
        same result to the last bit; 0 judges in this process.
    """

    top: Count = 10
    bootstrap_samples: Annotated[int, Field(ge=100)] = 2000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    actors: CountOrZero = 0


#: The best that is known of the synthetic market, without and with its volatility, which no trader knows.
ATTAINABLE = tuple(Part(name="filter_optimum", knows_volatility=knows) for knows in (False, True))
_BASELINES = tuple(Part(name=name) for name in ("twap", "vwap", "pov", "almgren_chriss", "forecast", "hindsight"))


def _complete(kind: str) -> AfterValidator:
    """Let a part's settings be checked, and its defaults filled in."""
    return AfterValidator(partial(complete, kind))


def _baseline_names(baselines: tuple[Part, ...]) -> tuple[Part, ...]:
    labels = baseline_labels(baselines)
    twice = next((name for name in labels if labels.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice; keep one, or let their settings differ.")
    return baselines


def baseline_labels(baselines: Sequence[Part]) -> list[str]:
    """Return what each baseline is called in tables and files: its `label`.

    Behind the label of one that stands more than once are the settings in which these differ, as in
    ``almgren_chriss-urgency=5.0``; a part among them is told by its own label.
    """
    made = []
    for part in baselines:
        own = [one.settings for one in baselines if label(one) == label(part)]
        others = {name: [one.get(name) for one in own] for name in part.settings}
        differing = {name: one for name, one in part.settings.items() if any(other != one for other in others[name])}
        told = (f"{name}={_told(one, others[name])}" for name, one in differing.items())
        made.append("-".join([label(part), *told]))
    return made


def _told(value: Any, others: Sequence[Any]) -> str:
    """Return a setting as a part of a file's name; a part by its label among those of the `others`."""
    if isinstance(value, Mapping) and "name" in value:
        parts = [Part(**one) for one in others if isinstance(one, Mapping) and "name" in one]
        return baseline_labels(parts)[parts.index(Part(**value))]
    return _NO_FILE_NAME.sub("_", dump_yaml(value, flow=True).strip()).strip("_")[:60]


def label(part: Part) -> str:
    """Return what a part is called in tables: its name, of one's own the name of the class."""
    return part.name.rpartition(":")[2]


#: Networks that read no more of an order's path than its position.
_BY_POSITION = ("signals", "mlp")
#: The actions of algorithms whose answer is no choice among shares; they take the place of the default.
_ACTIONS = {"pathwise": "position_share"}


class RunConfig(Section):
    """Everything a run depends on.

    Parameters
    ----------
    market
        Where bars come from: ``synthetic`` generates a market; ``{source: bars/}`` reads bars of your own.
    features
        What the policy sees of the market.
    orders
        Which orders are executed: ``generated``, or ``{source: orders.csv}`` for a table of your own.
    split
        Which dates are for training, validation and test.
    execution
        How they are executed.
    simulator
        The market's answer to a decision.
    state_interpreter
        What the policy sees of the order.
    action_interpreter
        What its answers mean.
    network
        What reads the observations.
    head
        What stands on the network.
    algorithm
        What learns. By default ``all_actions``, where an order can come to few decisions, so that what each action is
        worth is soon computed: with the built-in interpreters, the reward ``pa_penalty``, the objective ``mean``, a
        network that reads no more of an order's path than its position, and neither a volume limit nor a minimum fee.
        Elsewhere ``ppo`` stands in the default's place.
    reward
        What a step is worth to it.
    objective
        What uncertain results are worth: ``mean``, ``mean_variance``, ``entropic``, ``cvar`` or ``quantile``. The
        learner maximises it over orders, each with the sum of its rewards; checkpoints are chosen, and results judged,
        by its value over the orders' PA, net where there are costs.
    baselines
        What stands beside it in the backtest: ``twap``, ``vwap``, ``pov``, ``almgren_chriss``, ``bertsimas_lo``,
        ``mpc``, ``forecast`` and ``forecast_trees`` trade without knowing the future; one that stands twice with other
        settings, such as ``almgren_chriss`` by `risk_aversion`, is called by these, too; ``hindsight`` is the ceiling
        that no policy passes under the run's rules, and ``hindsight_uncapped`` the same as if they had no volume cap.
        ``filter_optimum`` is what is attainable in the synthetic market; where the run has that market, and rules under
        which it is the optimum, it is in the list by default, without and with the volatility that no trader knows. A
        list equal to that default, as in the file of such a run, is the default in another market too.
    train
        How long it is trained, and with what.
    backtest
        How it is judged.
    seed
        Of weights, actions and minibatches, and of orders unless they have their own; the synthetic market has its own.
    threads : threads
        Threads of numerical libraries a process. More than one seldom helps networks of this size, and costs much where
        other work shares the machine. Another number rounds sums in another order, so that weights are equal up to
        rounding alone; a training goes on with the number that it was begun with, and refuses another.
    trackers
        Where figures, settings and files of the run are shown beside its directory: ``tensorboard``, ``mlflow`` and
        ``wandb``; none by default. They change no result.
    """

    market: Annotated[Part, _complete("market")] = Part(name="synthetic")
    features: FeatureSettings = FeatureSettings()
    orders: Annotated[Part, _complete("orders")] = Part(name="generated")
    split: SplitSettings = SplitSettings()
    execution: ExecutionConfig = ExecutionConfig()
    simulator: Annotated[Part, _complete("simulator")] = Part(name="market")
    state_interpreter: Annotated[Part, _complete("state_interpreter")] = Part(name="full_history")
    action_interpreter: Annotated[Part, _complete("action_interpreter")] = Part(name="categorical")
    network: Annotated[Part, _complete("network")] = Part(name="signals")
    head: HeadConfig = HeadConfig()
    algorithm: Annotated[Part, _complete("algorithm")] = Part(name="all_actions")
    reward: Annotated[Part, _complete("reward")] = Part(name="pa_penalty")
    objective: Annotated[Part, _complete("objective")] = Part(name="mean")
    baselines: Annotated[tuple[Annotated[Part, _complete("baseline")], ...], AfterValidator(_baseline_names)] = (
        _BASELINES
    )
    train: TrainConfig = TrainConfig()
    backtest: BacktestConfig = BacktestConfig()
    seed: CountOrZero = 0
    threads: Count = 1
    trackers: tuple[Annotated[Part, _complete("tracker")], ...] = ()

    @property
    def tells_all_actions(self) -> bool:
        """True where an order can come to few decisions, so that what each action is worth is soon computed."""
        slots = ("simulator", "state_interpreter", "action_interpreter", "reward", "objective")
        is_own = any(getattr(self, slot).name != RunConfig.model_fields[slot].default.name for slot in slots)
        rules = self.execution.rules
        is_large = rules.volume_limit or any(getattr(rules, name) for name in STAYING)
        return self.network.name in _BY_POSITION and not is_own and not is_large

    @model_validator(mode="after")
    def _learns_from_what_is_told(self) -> RunConfig:
        if "algorithm" not in self.model_fields_set and not self.tells_all_actions:
            object.__setattr__(self, "algorithm", complete("algorithm", Part(name="ppo")))
        return self

    @model_validator(mode="after")
    def _acts_as_it_learns(self) -> RunConfig:
        default = RunConfig.model_fields["action_interpreter"].default
        if self.algorithm.name in _ACTIONS and self.action_interpreter in (
            default,
            complete("action_interpreter", default),
        ):
            chosen = complete("action_interpreter", Part(name=_ACTIONS[self.algorithm.name]))
            object.__setattr__(self, "action_interpreter", chosen)
        return self

    @property
    def has_known_optimum(self) -> bool:
        """True in the synthetic market under rules whose optimum is known (`FilterOptimum`)."""
        names = (self.market.name, self.simulator.name, self.orders.name)
        return names == ("synthetic", "market", "generated") and not unfitting_rules(self.execution.rules)

    @model_validator(mode="after")
    def _shows_what_is_attainable(self) -> RunConfig:
        own = tuple(complete("baseline", part) for part in _BASELINES)
        more = tuple(complete("baseline", part) for part in ATTAINABLE)
        if "baselines" not in self.model_fields_set and self.has_known_optimum:
            object.__setattr__(self, "baselines", (*own, *more))
        elif self.baselines == (*own, *more) and not self.has_known_optimum:  # the default of another market
            object.__setattr__(self, "baselines", own)
        return self

    @model_validator(mode="after")
    def _has_a_head_for_its_actions(self) -> RunConfig:
        chooses = self.action_interpreter.name == "categorical"
        settled = {name: chooses for name, value in self.head.model_dump().items() if value is None}
        object.__setattr__(self, "head", self.head.model_copy(update=settled))
        return self

    @model_validator(mode="after")
    def _learns_to_the_end(self) -> RunConfig:
        own, iterations = self.algorithm.settings, self.train.iterations
        if "teacher_iterations" in own and own["teacher_iterations"] is None:
            # Settled once, so that a student that is trained for longer keeps its teacher.
            settled = Part(**{**self.algorithm.model_dump(), "teacher_iterations": iterations})
            object.__setattr__(self, "algorithm", settled)
            own = settled.settings
        within = own.get("decay_updates")
        for name, asked in (("train.iterations", iterations), ("teacher_iterations", own.get("teacher_iterations"))):
            if within is not None and asked is not None and asked > within:
                raise ValueError(
                    f"algorithm.decay_updates is {within} and {name} {asked}, so the last {asked - within} would learn "
                    f"nothing; set it to {asked} or more, which begins a training anew, since all its rates change, or "
                    f"leave {name} at {within}."
                )
        return self

    @model_validator(mode="after")
    def _is_judged(self) -> RunConfig:
        train, own = self.train, self.algorithm.settings
        taught = own.get("teacher_iterations")
        for name, iterations in (("train.iterations", train.iterations), ("teacher_iterations", taught)):
            if iterations is not None and train.validate_every > iterations:
                raise ValueError(
                    f"train.validate_every is {train.validate_every} and {name} {iterations}, so nothing would be "
                    f"validated; set it to {iterations} or less."
                )
        if not validated_checkpoints(train):
            raise ValueError(
                f"train.checkpoint_every is {train.checkpoint_every} and train.validate_every {train.validate_every}, "
                f"so no checkpoint of {train.iterations} iterations would be validated; make one a "
                "multiple of the other."
            )
        if taught is not None and train.env != "native":
            raise ValueError(
                f"train.env is {train.env}, in which a teacher cannot see the rest of the day; set it to native."
            )
        size = own.get("replay_size")
        if size is not None and size < train.episodes_per_iteration:
            raise ValueError(
                f"algorithm.replay_size is {size}, but a collect of train.episodes_per_iteration "
                f"{train.episodes_per_iteration} has at least as many transitions; keep those of one."
            )
        return self

    @property
    def judged_by(self) -> str:
        """The figure that checkpoints are chosen by: the value of the objective, or where it is the mean, the PA's."""
        return self.execution.rules.judged_by if self.objective.name == "mean" else "objective"

    @classmethod
    def load(cls, file: Path | None = None, *changes: Layer) -> RunConfig:
        """Return the defaults with what the YAML file `file` and then `changes` say; no code that they name is run.

        Relative paths in the file start at its folder; later changes win over earlier ones.

        Raises
        ------
        ConfigError
            For an unknown name, a wrong type or an impossible value, naming the parameter and where it stands.
        """
        layers = [] if file is None else [Layer(str(file), read_yaml(file), file.parent)]
        return build(cls, [*layers, *changes], SLOTS)

    def parts(self) -> Iterator[tuple[str, str, Part]]:
        """Yield place, kind and part of all parts, parts in their settings and own features among them."""
        for place, kind in SLOTS.items():
            found = getattr(self, place)
            for part in found if isinstance(found, tuple) else (found,):
                yield place, kind, part
                for setting in describe(kind, part.name):
                    if setting.is_part and part.settings.get(setting.name):
                        yield f"{place}.{setting.name}", setting.name, Part(**part.settings[setting.name])
        for column in self.features.columns:
            if ":" in column:
                yield "features.columns", "feature", Part(name=column)

    def as_dict(self) -> dict[str, Any]:
        """Return the whole tree as values that YAML and JSON can hold."""
        return self.model_dump(mode="json")

    def as_yaml(self, *, describe: bool = False) -> str:
        """Return the whole tree as YAML; `describe` puts what each parameter does above it."""
        if not describe:
            return dump_yaml(self.as_dict())
        return "\n".join(_described(self, self.as_dict(), parameter_texts(RunConfig.__doc__ or ""))) + "\n"


_SEVERAL = {"baselines": "baseline", "trackers": "tracker"}
SLOTS: dict[str, str] = {
    name: _SEVERAL.get(name, name)
    for name, field in RunConfig.model_fields.items()
    if field.annotation is Part or name in _SEVERAL
}
"""Place in the tree to kind of the part that stands there."""


def _described(own: Any, values: Mapping[str, Any], texts: Mapping[str, str], indent: str = "") -> Iterator[str]:
    """Yield values as YAML lines with what each parameter does above it, from the text of each."""
    said = ""
    for name, value in values.items():
        text, inner = texts.get(name, ""), getattr(own, name, None)
        if text != said:  # one text may describe several parameters in a row
            yield from _comment(text, indent)
        said = text
        if isinstance(inner, Part):
            kind = SLOTS[name]
            yield from _comment(f"By name: {', '.join(names(kind))}, or your own as file.py:Name.", indent)
            about = {one.name: one.meaning for one in describe(kind, inner.name)}
        elif isinstance(inner, Section) or dataclasses.is_dataclass(inner):
            about = parameter_texts(type(inner).__doc__ or "")
        else:
            yield f"{indent}{name}: {dump_yaml(value, flow=True).rstrip()}"
            continue
        yield f"{indent}{name}:"
        yield from _described(inner, value, about, indent + "  ")


def _comment(text: str, indent: str) -> list[str]:
    plain = text.replace("``", "").replace("`", "")
    return [f"{indent}# {line}" for line in textwrap.wrap(plain, 116 - len(indent))]
