"""Parts by name: what each can be told, and how one is made.

A part is a class, or a function that returns one, that a configuration names: ``reward: pa_penalty``, or with
settings ``reward: {name: pa_penalty, penalty: 20}``. Its settings are the parameters of its constructor; those of a
dataclass annotated on a parameter ``settings`` count as its own. What a run provides (`PROVIDED`) is passed by
parameter name and is no setting.

A name is, in this order, a built-in (`BUILT_IN`), the entry point of an installed package (group ``rlwb.<kind>``),
``package.module:Name``, or ``file.py:Name``. Settings are read from source files: only `make` and `load` run code.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import metadata
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from rlwb.code import Code
from rlwb.errors import ConfigError, RlwbError
from rlwb.signatures import REQUIRED, UNKNOWN, Setting, Signature, read_signature
from rlwb.values import check_value, shown, suggestion

PROVIDED: dict[str, str] = {
    "market": "name and settings of the market",
    "sessions": "the panel of bars",
    "engine": "the execution engine",
    "rules": "the rules of execution",
    "features": "the normalised market features",
    "channels": "number of market features a tick",
    "ticks": "ticks of a session",
    "max_step": "most steps an order can have",
    "previous_day": "whether observations hold the previous session",
    "network": "the network to train, with the head that the algorithm asks for",
    "make_trunk": "a function that returns a new network, without a head, for a seed",
    "actions": "number of discrete actions, or size of a continuous one",
    "seed": "of random numbers",
    "observation_space": "what the state interpreter returns",
    "action_space": "what the action interpreter accepts",
    "objective": "the objective of the run, what a sample of results is worth",
    "step_terms": "a function from orders to their rewards as a function of what their steps trade",
    "decision_tree": "a function from orders to all decisions that they can come to, and what each action earns there",
    "teacher": "the trained teacher of a distillation",
    "cache_dir": "where prepared bars are kept",
}
"""Parameters that a run passes to a part that has one of the name, each with what it is."""

_EXECUTION, _POLICY, _SOURCES = "rlwb.execution", "rlwb.policy", "rlwb.experiment.sources"
_TRACKING = "rlwb.tracking"
BUILT_IN: dict[str, dict[str, str]] = {
    "market": {"synthetic": "rlwb.market.synthetic:synthetic_sessions", "bars": f"{_SOURCES}:bars"},
    "orders": {"generated": f"{_SOURCES}:generated_orders", "table": f"{_SOURCES}:own_orders"},
    "reward": {"pa_penalty": f"{_EXECUTION}.rewards:PAPenaltyReward", "sparse": f"{_EXECUTION}.rewards:SparseReward"},
    "objective": {
        "mean": "rlwb.objective:Mean",
        "mean_variance": "rlwb.objective:MeanVariance",
        "entropic": "rlwb.objective:Entropic",
        "cvar": "rlwb.objective:CVaR",
        "quantile": "rlwb.objective:Quantile",
    },
    "algorithm": {
        "ppo": f"{_POLICY}.ppo:PPO",
        "dqn": f"{_POLICY}.dqn:DQN",
        "opd": f"{_POLICY}.opd:OPD",
        "pathwise": f"{_POLICY}.pathwise:Pathwise",
        "all_actions": f"{_POLICY}.all_actions:AllActions",
        "tianshou": f"{_POLICY}.tianshou:TianshouLearner",
        "qlib": f"{_POLICY}.qlib:QlibLearner",
    },
    "network": {
        "recurrent": f"{_POLICY}.market_network:Recurrent",
        "convolution": f"{_POLICY}.market_network:Convolution",
        "attention": f"{_POLICY}.market_network:Attention",
        "mlp": f"{_POLICY}.network:MLP",
        "signals": f"{_POLICY}.signals:Signals",
        "qlib_recurrent": f"{_POLICY}.qlib:QlibRecurrent",
    },
    "simulator": {
        "market": f"{_EXECUTION}.simulator:OrderExecution",
        "random_liquidity": f"{_EXECUTION}.simulator:RandomLiquidity",
    },
    "state_interpreter": {
        "full_history": f"{_EXECUTION}.interpreters:FullHistoryStateInterpreter",
        "current_step": f"{_EXECUTION}.interpreters:CurrentStepStateInterpreter",
    },
    "action_interpreter": {
        "categorical": f"{_EXECUTION}.interpreters:CategoricalActionInterpreter",
        "twap_relative": f"{_EXECUTION}.interpreters:TwapRelativeActionInterpreter",
        "position_share": f"{_EXECUTION}.interpreters:PositionShareActionInterpreter",
    },
    "baseline": {
        "twap": f"{_EXECUTION}.baselines.schedules:TWAP",
        "vwap": f"{_EXECUTION}.baselines.schedules:VWAP",
        "pov": f"{_EXECUTION}.baselines.schedules:POV",
        "almgren_chriss": f"{_EXECUTION}.baselines.almgren_chriss:AlmgrenChriss",
        "bertsimas_lo": f"{_EXECUTION}.baselines.bertsimas_lo:BertsimasLo",
        "mpc": f"{_EXECUTION}.baselines.mpc:MPC",
        "forecast": f"{_EXECUTION}.baselines.forecast_rule:ForecastRule",
        "forecast_trees": f"{_EXECUTION}.baselines.forecast_trees:ForecastTreesRule",
        "filter_optimum": f"{_EXECUTION}.baselines.filter_optimum:FilterOptimum",
        "hindsight": "rlwb.experiment.backtest:Hindsight",
        "hindsight_uncapped": "rlwb.experiment.backtest:HindsightUncapped",
    },
    "forecast": {"ar": f"{_EXECUTION}.baselines.forecast:AR"},
    "reader": {
        name: f"rlwb.market.readers.{name}:read_{name}"
        for name in ("table", "binance", "lean", "lobster", "qlib", "qlib_pickle")
    },
    "feature": {},
    "tracker": {
        "tensorboard": f"{_TRACKING}.tensorboard:TensorBoard",
        "mlflow": f"{_TRACKING}.mlflow:MLflow",
        "wandb": f"{_TRACKING}.wandb:WandB",
    },
    "launcher": {
        "processes": "rlwb.study.launch:Processes",
        "ray": "rlwb.study.launch_ray:RayJobs",
        "submitit": "rlwb.study.launch_submitit:SubmititJobs",
    },
}
"""Kind to name to ``module:Name`` of the parts of rlwb."""

#: Kinds to which others than a run pass parameters, and which.
PASSED_TO: dict[str, tuple[str, ...]] = {
    "reader": ("source", "instruments", "report"),
    "market": ("cache_dir",),
    "tracker": (),
    "launcher": (),
}
#: Entry points' groups that are not called ``rlwb.<kind>``.
_GROUPS = {"reader": "rlwb.readers"}


class Part(BaseModel):
    """The name of a part, and its settings as further fields.

    Parameters
    ----------
    name
        See `rlwb.parts`.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(self.model_extra or {})


def names(kind: str) -> list[str]:
    """Return the names of a kind that need no path: built-ins, then those of installed packages."""
    return [*BUILT_IN[kind], *sorted(_entry_points(kind).keys() - BUILT_IN[kind].keys())]


def find(kind: str, name: str) -> Code:
    """Return where the code of a named part lies, without running it; refuse an unknown name with the nearest."""
    if kind not in BUILT_IN:
        raise ConfigError(f"there is no kind of part {kind!r}; {suggestion(kind, BUILT_IN)}")
    target = BUILT_IN[kind].get(name) or _entry_points(kind).get(name)
    place, _, attribute = (target or name).rpartition(":")
    if place and attribute.isidentifier():
        return Code(place, attribute, is_foreign=target is None)
    hint = suggestion(name, names(kind))
    raise ConfigError(f"there is no {kind} {shown(name)}; {hint} Your own is file.py:Name or package.module:Name.")


def settings_of(kind: str, name: str) -> Signature | None:
    """Return what a named part can be told, None where its source does not say it in a form that can be read."""
    code = find(kind, name)
    return _read_settings(kind, code) if code.is_foreign else _read_once(kind, code)


def _read_settings(kind: str, code: Code) -> Signature | None:
    file = code.file
    found = read_signature(file, code.attribute) if file else None
    if found is None:
        return None
    given = PASSED_TO.get(kind, PROVIDED)
    settings = tuple(one for one in found.settings if one.is_field or one.name not in given)
    return Signature(settings, found.is_open)


#: Installed code stays as it is while a process runs.
_read_once = cache(_read_settings)


def describe(kind: str, name: str) -> tuple[Setting, ...]:
    """Return the settings of a part, each with name, type, default and meaning, without running its code."""
    found = settings_of(kind, name)
    return found.settings if found else ()


def complete(kind: str, part: Part) -> Part:
    """Return a part with its settings checked and its defaults filled in, without running its code.

    What its source does not say, such as a computed default, is left to `make`. Raise `ConfigError` for an unknown name
    or setting (with the nearest), a missing one, and a value of another type.
    """
    found = settings_of(kind, part.name)
    if found is None:
        return part
    for name in part.settings:
        if name in PROVIDED and name not in [one.name for one in found.settings] and not found.is_open:
            raise ConfigError(f"{part.name} gets {name} from the run, not as a setting; drop it.")
    settings = _completed(f"{kind} {part.name}", found.settings, part.settings, is_open=found.is_open)
    return Part(name=part.name, **settings)


def _completed(owner: str, known: Sequence[Setting], given: Mapping[str, Any], *, is_open: bool) -> dict[str, Any]:
    """Return settings checked by name and type, with the defaults of those that are not given."""
    names = [one.name for one in known]
    for name in given:
        if name not in names and not is_open:
            hint = suggestion(name, names) if names else "it has none."
            raise ConfigError(f"{owner} has no setting {name}; {hint}")
    settings: dict[str, Any] = {}
    for one in known:
        if one.name in given:
            settings[one.name] = _checked(owner, one, given[one.name])
        elif one.default is REQUIRED:
            raise ConfigError(f"{owner} needs {one.name} ({one.annotation or 'a value'}); set it.")
        elif one.default is not UNKNOWN:
            settings[one.name] = _checked(owner, one, one.default) if one.is_part else one.default
        elif one.group is not None:
            settings[one.name] = _completed(f"{owner}'s {one.name}", one.group, {}, is_open=False)
    return {**settings, **{name: value for name, value in given.items() if name not in names}}


def _checked(owner: str, one: Setting, value: Any) -> Any:
    if value is None and one.may_be_none:
        return None
    if one.is_part and one.name in BUILT_IN:
        return complete(one.name, Part.model_validate(value)).model_dump()
    if one.group is not None:
        if not isinstance(value, Mapping):
            names = ", ".join(field.name for field in one.group)
            raise ConfigError(
                f"{one.name} of {owner} is {shown(value)}, but it is a group of settings; give some of {names}."
            )
        return _completed(f"{owner}'s {one.name}", one.group, value, is_open=False)
    try:
        return check_value(one.type, value)
    except ValueError as error:
        raise ConfigError(f"{one.name} of {owner} is {shown(value)}; {error}") from None


def load(kind: str, name: str) -> Any:
    """Return the class or function of a name; this runs its code (see `rlwb.code.Code.load`)."""
    return find(kind, name).load()


def make(kind: str, part: Part | str, **provided: Any) -> Any:
    """Return a new part, called with its settings and with what it takes of `provided`.

    Parameters
    ----------
    kind
        One of `BUILT_IN`.
    part
        Its name, or name and settings.
    provided
        Values of `PROVIDED`, by name.

    Raises
    ------
    ConfigError
        When the part is not found, cannot be run, or refuses its settings.
    """
    with _called(kind, part) as (target, settings):
        arguments = {name: value for name, value in provided.items() if name in inspect.signature(target).parameters}
        arguments |= settings
        inspect.signature(target).bind(**arguments)
        return target(**arguments)


def check(kind: str, part: Part | str) -> None:
    """Refuse what `make` would refuse, as far as it shows without what a run provides; this runs the part's code."""
    with _called(kind, part) as (target, settings):
        parameters = inspect.signature(target).parameters.values()
        optional = [one for one in parameters if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
        required = {one.name for one in parameters if one.default is one.empty and one not in optional}
        if isinstance(target, type) and required <= settings.keys():
            target(**settings)


@contextmanager
def _called(kind: str, part: Part | str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield a part's class or function and its settings; what it raises about them becomes a sentence that names it."""
    part = complete(kind, Part.model_validate(part))
    target, owner = load(kind, part.name), f"{kind} {part.name}"
    try:
        yield target, _arguments(target, part.settings)
    except RlwbError as error:
        raise type(error)(f"{owner}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{owner} cannot be made with these settings: {str(error).rstrip('.')}.") from error


def _arguments(target: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the target takes them: a dataclass ``settings`` made of its fields, groups as dataclasses."""
    if not callable(target):
        raise ConfigError(f"the name stands for {target!r}; name a class, or a function that returns the part.")
    hints = _hints(target.__init__ if isinstance(target, type) else target)  # type: ignore[misc]
    own = _option(hints.get("settings"), dataclasses.is_dataclass)
    if own is None:
        return {name: _argument(hints.get(name), value) for name, value in settings.items()}
    inner = _hints(own)
    fields = {field.name for field in dataclasses.fields(own)}
    given = {name: _argument((inner if name in fields else hints).get(name), one) for name, one in settings.items()}
    taken = {name: given.pop(name) for name in fields & given.keys()}
    return {**given, "settings": own(**taken)}


def _hints(target: Any) -> dict[str, Any]:
    """Return the annotations of a function or dataclass; one that only a type checker knows is left out."""
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError):
        return {}


def _argument(hint: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if _option(hint, lambda kind: kind is Part):
        return Part.model_validate(value)
    group = _option(hint, dataclasses.is_dataclass)
    return group(**value) if group else value


def _option(hint: Any, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the class among the options of a type that is wanted; None when none is."""
    return next((one for one in (hint, *typing.get_args(hint)) if isinstance(one, type) and is_wanted(one)), None)


@lru_cache
def _entry_points(kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in metadata.entry_points(group=_GROUPS.get(kind, f"rlwb.{kind}")):
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise ConfigError(f"two packages offer a {kind} {entry.name}: {found[entry.name]} and {entry.value}.")
    return found
