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
from functools import lru_cache
from importlib import metadata
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from rlwb.code import Code
from rlwb.errors import ConfigError, RlwbError
from rlwb.signatures import REQUIRED, UNKNOWN, Setting, Signature, read_signature
from rlwb.values import check_value, suggestion

PROVIDED: dict[str, str] = {
    "sessions": "the panel of bars",
    "engine": "the execution engine",
    "features": "the normalised market features",
    "channels": "number of market features a tick",
    "ticks": "ticks of a session",
    "max_step": "most steps an order can have",
    "previous_day": "whether observations hold the previous session",
    "network": "the network to train",
    "actions": "number of discrete actions, or size of a continuous one",
    "seed": "of random numbers",
    "observation_space": "what the state interpreter returns",
    "action_space": "what the action interpreter accepts",
    "teacher": "the trained teacher of a distillation",
    "train_orders": "the training orders, bound to their sessions",
}
"""Parameters that a run passes to a part that has one of the name, each with what it is."""

_EXECUTION, _POLICY, _READERS = "rlwb.execution", "rlwb.policy", "rlwb.market.readers"
BUILT_IN: dict[str, dict[str, str]] = {
    "reward": {
        "pa_penalty": f"{_EXECUTION}.rewards:PAPenaltyReward",
        "sparse": f"{_EXECUTION}.rewards:PPOReward",
    },
    "algorithm": {
        "ppo": f"{_POLICY}.ppo:PPO",
        "dqn": f"{_POLICY}.dqn:DQN",
        "opd": f"{_POLICY}.opd:OPD",
    },
    "network": {
        "recurrent": f"{_POLICY}.networks:Recurrent",
        "mlp": f"{_POLICY}.networks:MLP",
    },
    "simulator": {"market": f"{_EXECUTION}.simulator:OrderExecutionFactory"},
    "state_interpreter": {
        "full_history": f"{_EXECUTION}.interpreters:FullHistoryStateInterpreter",
        "current_step": f"{_EXECUTION}.interpreters:CurrentStepStateInterpreter",
    },
    "action_interpreter": {
        "categorical": f"{_EXECUTION}.interpreters:CategoricalActionInterpreter",
        "twap_relative": f"{_EXECUTION}.interpreters:TwapRelativeActionInterpreter",
    },
    "baseline": {
        "twap": f"{_EXECUTION}.baselines.twap:TWAP",
        "vwap": f"{_EXECUTION}.baselines.vwap:VWAP",
        "pov": f"{_EXECUTION}.baselines.pov:POV",
    },
    "reader": {
        "binance": f"{_READERS}.binance:BinanceReader",
        "lean": f"{_READERS}.lean:LeanReader",
        "lobster": f"{_READERS}.lobster:LobsterReader",
        "qlib": f"{_READERS}.qlib:QlibReader",
        "qlib_pickle": f"{_READERS}.qlib_pickle:QlibPickleReader",
    },
    "feature": {},
}
"""Kind to name to ``module:Name`` of the parts of rlwb."""

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
    """Return where the code of a named part lies; nothing of it is run.

    Raises
    ------
    ConfigError
        For a name that is none of the four forms, with the nearest that is.
    """
    if kind not in BUILT_IN:
        raise ConfigError(f"there is no kind of part {kind!r}; {suggestion(kind, BUILT_IN)}")
    target = BUILT_IN[kind].get(name) or _entry_points(kind).get(name)
    place, _, attribute = (target or name).rpartition(":")
    if place and attribute.isidentifier():
        return Code(place, attribute, is_foreign=target is None)
    hint = suggestion(name, names(kind)).rstrip(".")
    raise ConfigError(f"there is no {kind} {name!r}; {hint} Your own is file.py:Name or package.module:Name.")


def settings_of(kind: str, name: str) -> Signature | None:
    """Return what a named part can be told, None where its source does not say it in a form that can be read."""
    code = find(kind, name)
    file = code.file
    found = read_signature(file, code.attribute) if file else None
    if found is None:
        return None
    return Signature(tuple(one for one in found.settings if one.name not in PROVIDED), found.is_open)


def describe(kind: str, name: str) -> tuple[Setting, ...]:
    """Return the settings of a part, each with name, type, default and meaning, without running its code."""
    found = settings_of(kind, name)
    return found.settings if found else ()


def complete(kind: str, part: Part) -> Part:
    """Return a part with its settings checked and its defaults filled in, without running its code.

    What its source does not say, such as a computed default, is left to `make`.

    Raises
    ------
    ConfigError
        For an unknown name or setting (with the nearest), a missing one, and a value of another type.
    """
    found = settings_of(kind, part.name)
    if found is None:
        return part
    known = {one.name: one for one in found.settings}
    for name in part.settings:
        if name not in known and not found.is_open:
            if name in PROVIDED:
                raise ConfigError(f"{part.name} gets {name} from the run, not as a setting; drop it.")
            hint = suggestion(name, known) if known else "it has none."
            raise ConfigError(f"{kind} {part.name} has no setting {name}; {hint}")
    settings: dict[str, Any] = {}
    for name, one in known.items():
        if name not in part.settings:
            if one.default is REQUIRED:
                raise ConfigError(f"{kind} {part.name} needs {name} ({one.annotation or 'a value'}); set it.")
            if one.default is not UNKNOWN:
                settings[name] = one.default
            continue
        try:
            settings[name] = check_value(one.type, part.settings[name])
        except ValueError as error:
            raise ConfigError(f"{name} of {kind} {part.name} is {part.settings[name]!r}; {error}") from None
    return Part(name=part.name, **{**settings, **{k: v for k, v in part.settings.items() if k not in known}})


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
    part = complete(kind, Part.model_validate(part))
    target = load(kind, part.name)
    if not callable(target):
        raise ConfigError(f"{kind} {part.name} is {target!r}; name a class, or a function that returns the part.")
    try:
        parameters = inspect.signature(target).parameters
        arguments = {name: value for name, value in provided.items() if name in parameters}
        settings = part.settings
        if "settings" in parameters and (own := _settings_class(target)) is not None:
            fields = {field.name for field in dataclasses.fields(own)}
            arguments["settings"] = own(**{name: settings.pop(name) for name in list(settings) if name in fields})
        inspect.signature(target).bind(**arguments, **settings)
        return target(**arguments, **settings)
    except RlwbError as error:
        raise type(error)(f"{kind} {part.name}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {part.name} cannot be made with these settings: {error}.") from error


def _settings_class(target: Any) -> type[Any] | None:
    """Return the dataclass that a part's parameter ``settings`` is annotated with."""
    function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    hint = typing.get_type_hints(function).get("settings")
    options = (hint, *typing.get_args(hint))
    return next((one for one in options if isinstance(one, type) and dataclasses.is_dataclass(one)), None)


@lru_cache
def _entry_points(kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in metadata.entry_points(group=_GROUPS.get(kind, f"rlwb.{kind}")):
        if found.setdefault(entry.name, entry.value) != entry.value:
            raise ConfigError(f"two packages offer a {kind} {entry.name}: {found[entry.name]} and {entry.value}.")
    return found
