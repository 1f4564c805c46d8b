"""Observations for networks that take plain arrays: float32 alone, amounts as shares, as a dict or one vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.interpreters import CurrentStepStateInterpreter, FullHistoryStateInterpreter
from rlwb.interpreter import StateInterpreter

#: Widest number that float32 holds; spaces of values without a bound end there, since an infinite one cannot be drawn.
_BIG = float(np.finfo(np.float32).max)


class ArrayStateInterpreter(StateInterpreter[Any]):
    """The observations of another interpreter as a dict of float32 arrays, none of them a bare number.

    Libraries such as Stable-Baselines3 take boxes of one dimension or more, and learn from numbers around 1. Of a
    built-in interpreter, `CurrentStepStateInterpreter` or one derived from it, amounts and counts are told as shares:

    =================== =========== ==================================================================
    acquiring           (1,)        1 buy, 0 sell
    cur_step, num_step  (1,) each   over ``max_step``
    position            (1,)        share of the amount that is left; `target` itself, in units, is left out
    position_history    (max_step,) share of the amount that was left before each step
    cur_tick            (1,)        over the ticks of a session
    =================== =========== ==================================================================

    Everything else is as that interpreter gives it, boxes without dimensions as (1,), a choice among n > 2 as n numbers
    of which one is 1, and parts of nested spaces under names joined by a dot.

    Parameters
    ----------
    inner
        The interpreter whose observations are told.

    Raises
    ------
    ConfigError
        For a space of another kind, naming its place.
    """

    def __init__(self, inner: StateInterpreter[Any]) -> None:
        self.inner = inner
        self._declared = inner.observation_space
        self._leaves = dict(_leaves(self._declared))
        self._over: dict[str, float] = {}
        self._of_target: tuple[str, ...] = ()
        if isinstance(inner, CurrentStepStateInterpreter) and self._leaves.keys() >= {"target", "position"}:
            self._over = dict.fromkeys(("cur_step", "num_step"), float(inner.max_step))
            self._of_target = ("position", "position_history")
            if isinstance(inner, FullHistoryStateInterpreter):
                self._over["cur_tick"] = float(inner.ticks)
            self._leaves.pop("target")
        self._space = gym.spaces.Dict({name: self._box(name, leaf) for name, leaf in self._leaves.items()})

    @property
    def observation_space(self) -> gym.spaces.Dict:
        return self._space

    def interpret(self, known: Any) -> dict[str, np.ndarray]:
        return self.convert(self.inner.interpret(known))

    def convert(self, obs: Any) -> dict[str, np.ndarray]:
        """Return N observations of the inner interpreter in this form, float32 of shape (N, …) by name."""
        values, target = dict(_values(self._declared, obs)), None
        if self._of_target:
            target = np.asarray(values["target"], dtype=np.float64)
        made = {}
        for name, leaf in self._leaves.items():
            value = np.asarray(values[name])
            if name in self._of_target:
                assert target is not None
                share = value / (target if value.ndim == 1 else target[:, None])
                value = np.clip(share, 0.0, 1.0)
            elif name in self._over:
                value = value / self._over[name]
            elif isinstance(leaf, gym.spaces.Discrete):
                value = value - leaf.start
                value = value if leaf.n <= 2 else value[:, None] == np.arange(leaf.n)
            value = value.astype(np.float32, copy=False)
            made[name] = value[:, None] if value.ndim == 1 else value
        return made

    def record(self) -> dict[str, Any]:
        return self.inner.record()

    def _box(self, name: str, leaf: gym.Space[Any]) -> gym.spaces.Box:
        if isinstance(leaf, gym.spaces.Discrete):
            return gym.spaces.Box(0.0, 1.0, (1 if leaf.n <= 2 else int(leaf.n),), np.float32)
        shape = leaf.shape or (1,)
        if name in self._over or name in self._of_target or isinstance(leaf, gym.spaces.MultiBinary):
            return gym.spaces.Box(0.0, 1.0, shape, np.float32)
        assert isinstance(leaf, gym.spaces.Box)
        ends = (np.clip(end.astype(np.float64), -_BIG, _BIG).reshape(shape) for end in (leaf.low, leaf.high))
        low, high = (end.astype(np.float32) for end in ends)
        return gym.spaces.Box(low, high, shape, np.float32)


class FlatStateInterpreter(StateInterpreter[Any]):
    """The observations of another interpreter as one vector, float32 of shape (n,), in a stated order.

    It is `ArrayStateInterpreter`'s dict end to end, in the order of its keys; an array of two dimensions, such as the
    session's features, is told row by row.

    Parameters
    ----------
    inner
        The interpreter whose observations are told.

    Attributes
    ----------
    names
        What each of the n numbers is, such as ``"position"`` or ``"data_processed[12,3]"`` (tick 12, feature 3).
    """

    def __init__(self, inner: StateInterpreter[Any]) -> None:
        self.inner = inner
        self._arrays = ArrayStateInterpreter(inner)
        parts: Mapping[str, Any] = self._arrays.observation_space.spaces
        self.names = tuple(text for name, box in parts.items() for text in _names(name, box.shape))
        ends = (np.concatenate([getattr(box, end).ravel() for box in parts.values()]) for end in ("low", "high"))
        low, high = ends
        self._space = gym.spaces.Box(low, high, dtype=np.float32)

    @property
    def observation_space(self) -> gym.spaces.Box:
        return self._space

    def interpret(self, known: Any) -> np.ndarray:
        return self.convert(self.inner.interpret(known))

    def convert(self, obs: Any) -> np.ndarray:
        """Return N observations of the inner interpreter in this form, float32 of shape (N, n)."""
        parts = self._arrays.convert(obs).values()
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def record(self) -> dict[str, Any]:
        return self.inner.record()


#: How observations may be told to other libraries, by name.
OBSERVED_AS = ("flat", "dict", "declared")


def observe_as(inner: StateInterpreter[Any], form: str) -> StateInterpreter[Any]:
    """Return the interpreter that tells `inner`'s observations in a form of `OBSERVED_AS`; "declared" is its own."""
    forms = dict(zip(OBSERVED_AS, (FlatStateInterpreter, ArrayStateInterpreter, lambda own: own), strict=True))
    if form not in forms:
        raise ConfigError(f"observation is {form!r}; choose one of {', '.join(forms)}.")
    made: StateInterpreter[Any] = forms[form](inner)
    return made


def _leaves(space: gym.Space[Any], name: str = "") -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yield name and space of the parts of a space that are not nested."""
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        pairs = space.spaces.items() if isinstance(space, gym.spaces.Dict) else enumerate(space.spaces)
        for key, part in pairs:
            yield from _leaves(part, f"{name}.{key}".lstrip("."))
    elif isinstance(space, (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiBinary)):
        yield name or "observation", space
    else:
        raise ConfigError(
            f"the observation {name or 'space'} is a {type(space).__name__}, which has no form as numbers; build it of "
            "Box, Discrete and MultiBinary, in Dict or Tuple."
        )


def _values(space: gym.Space[Any], obs: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and N values of the parts of a batch of observations that are not nested."""
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        pairs = space.spaces.items() if isinstance(space, gym.spaces.Dict) else enumerate(space.spaces)
        for key, part in pairs:
            yield from _values(part, obs[key], f"{name}.{key}".lstrip("."))
    else:
        yield name or "observation", obs


def _names(name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """Yield what each number of an array is called; of an array of one number, its name alone."""
    for index in np.ndindex(shape):
        yield name if shape == (1,) else f"{name}[{','.join(map(str, index))}]"
