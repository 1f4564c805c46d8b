"""Search spaces, written in a configuration beside the values that they take the place of."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rlwb.errors import ConfigError
from rlwb.experiment.config import SLOTS, RunConfig, baseline_labels
from rlwb.experiment.layers import Layer, build, merged, searches, unfolded
from rlwb.experiment.own_code import check_parts
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.values import shown, suggestion

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LEARNER = "learner"
"""Name of what is searched beside the rules, which are called as in tables."""

#: Settings, or groups of them, that say what is measured; figures of different ones cannot be compared.
_FIXED = (
    *("market", "orders", "split", "execution.rules", "execution.preset", "objective", "baselines", "backtest", "seed"),
    *("threads", "trackers", "train.env", "train.concurrency", "train.device"),
)
_KEYS = ("low", "high", "log", "step", "points")
#: Values that a range has in a grid at least.
_LEAST_POINTS = 2

RULE_SPACES: dict[str, dict[str, Any]] = {
    "twap": {"skip_open": [0, 5, 10, 15, 30], "skip_close": [0, 5, 10, 15, 30]},
    "vwap": {"days": {"low": 1, "high": 60, "log": True}},
    "pov": {
        "rate": {"low": 0.01, "high": 0.5, "log": True},
        "days": {"low": 1, "high": 60, "log": True},
    },
    "almgren_chriss": {"urgency": {"low": 0.03, "high": 30.0, "log": True}},
    "mpc": {
        "urgency": {"low": 0.03, "high": 30.0, "log": True},
        "lags": {"low": 1, "high": 24},
        "horizon": {"low": 1, "high": 12},
    },
}
"""Rule to the space of its settings that is searched where the configuration gives none."""


@dataclass(frozen=True)
class Dimension:
    """One setting of a search: a choice among values, or a range of numbers.

    Attributes
    ----------
    name
        The setting's place in the configuration, as ``algorithm.learning_rate`` or ``baselines[3].urgency``.
    kind
        ``choice``, ``int`` or ``float``.
    options
        Label to value of a choice; plain values are their own labels.
    low, high
        Ends of a range, both within it.
    log
        Whether equal ratios, not equal differences, count the same.
    step
        Distance of neighbouring values; None for any value of a range.
    points
        Values of a range in a grid; None for as many as the number of trials allows.
    """

    name: str
    kind: Literal["choice", "int", "float"]
    options: tuple[tuple[Any, Any], ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    points: int | None = None

    def distribution(self) -> BaseDistribution:
        """Return what Optuna calls the space of the setting."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.kind == "choice":
            return CategoricalDistribution([told for told, _ in self.options])
        if self.kind == "int":
            return IntDistribution(int(self.low), int(self.top), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.top, log=self.log, step=self.step)

    @property
    def top(self) -> float:
        """The largest value: `high`, or the last step below it."""
        if self.step is None:
            return self.high
        return self.low + math.floor((self.high - self.low) / self.step + 1e-9) * self.step

    def value(self, told: Any) -> Any:
        """Return the setting's value for what Optuna says."""
        if self.kind != "choice":
            return told
        return next(one for label, one in self.options if _same(label, told))

    def grid(self, points: int) -> list[Any]:
        """Return the values of a grid, as Optuna says them; `points` of a range that has no own number of them."""
        if self.kind == "choice":
            return [told for told, _ in self.options]
        if self.step is not None and self.points is None:
            count = round((self.top - self.low) / self.step) + 1
            return [self._plain(self.low + i * self.step) for i in range(count)]
        spaced = np.geomspace if self.log else np.linspace
        found = spaced(self.low, self.top, self.points or points)
        if self.step is not None:
            found = self.low + np.round((found - self.low) / self.step) * self.step
        return list(dict.fromkeys(self._plain(min(max(float(one), self.low), self.top)) for one in found))

    def ends(self) -> list[Any]:
        """Return the values that a configuration is checked with: all of a choice, the ends of a range."""
        if self.kind == "choice":
            return [one for _, one in self.options]
        return [self._plain(self.low), self._plain(self.top)]

    def _plain(self, number: float) -> float:
        return round(number) if self.kind == "int" else float(number)

    def describe(self) -> str:
        """Say the space in a few words."""
        if self.kind == "choice":
            return ", ".join(_text(told) for told, _ in self.options)
        by = f", in steps of {self.step:g}" if self.step is not None else ""
        return f"{self.low:g} to {self.high:g}{', logarithmic' if self.log else ''}{by}"


@dataclass(frozen=True)
class Space:
    """The settings of a search and what a configuration says beside them.

    Attributes
    ----------
    layers
        The configuration, with the spaces in it, later layers over earlier ones.
    dimensions
        Its settings, in the order of the configuration.
    """

    layers: tuple[Layer, ...]
    dimensions: tuple[Dimension, ...]

    @classmethod
    def read(cls, layers: Sequence[Layer], rules: Iterable[str] = ()) -> Space:
        """Return the spaces that a configuration states, and of `rules`, baselines by name, those that it does not.

        A space that a later layer overrules by a plain value is none.

        Raises
        ------
        ConfigError
            For a space that cannot be searched, naming the setting.
        """
        layers = tuple(layers)
        space = cls(layers, _dimensions(layers))
        for rule in rules:
            space = space._with_rule(rule)
        return space

    def refusals(self, check: Callable[[RunConfig], None]) -> Iterator[str]:
        """Yield why `check` refuses values of the space, each tried beside the configuration's own other values."""
        for one in self.dimensions:
            for end in one.ends():
                try:
                    check(self.config({one.name: end}))
                except ConfigError as error:
                    yield f"the search of {one.name} cannot take {shown(end)}: {error}"

    def check(self) -> None:
        """Refuse values that a setting cannot have, whatever the others are; this runs the code of parts.

        Raises
        ------
        ConfigError
            Naming the setting and the value.
        """
        for said in self.refusals(check_parts):
            raise ConfigError(said)

    def config(self, chosen: Mapping[str, Any] | None = None, *, seed: int | None = None) -> RunConfig:
        """Return the configuration with `chosen` values by place, elsewhere those that stand beside the spaces.

        `seed` takes the place of its own.
        """
        own = [] if seed is None else [Layer("fresh seed", {"seed": seed})]
        return build(RunConfig, [*self.layers, *own], SLOTS, chosen)

    def of(self, study: str) -> tuple[Dimension, ...]:
        """Return the settings of the learner, or of a rule by its name in tables."""
        index = None if study == LEARNER else self._labels().index(study)
        return tuple(one for one in self.dimensions if rule_index(one.name) == index)

    def studies(self) -> list[str]:
        """Return what is searched: rules in the order of the configuration, then the learner."""
        labels, indices = self._labels(), [rule_index(one.name) for one in self.dimensions]
        rules = [labels[index] for index in sorted({index for index in indices if index is not None})]
        return [*rules, *([LEARNER] if None in indices else [])]

    def own(self, study: str) -> dict[str, Any]:
        """Return what Optuna would say for the configuration's own values of a study; empty if one is outside."""
        before, found = self.config().as_dict(), {}
        for one in self.of(study):
            inside = [told for told, value in one.options if self.config({one.name: value}).as_dict() == before]
            now = value_at(before, one.name)
            if one.kind != "choice" and isinstance(now, (int, float)) and not isinstance(now, bool):
                spaced = one.step is None or math.isclose((now - one.low) / one.step % 1, 0, abs_tol=1e-9)
                inside = [now] if one.low <= now <= one.high and spaced else []
            if not inside:
                return {}
            found[one.name] = inside[0]
        return found

    def grid(self, study: str, trials: int) -> list[dict[str, Any]]:
        """Return the cells of a study's grid; ranges have as many values as the number of trials allows for all alike.

        Raises
        ------
        ConfigError
            Where the grid has more cells than there are trials.
        """
        dimensions, size = self.of(study), 0
        cells: list[list[Any]] = []
        for points in range(_LEAST_POINTS, trials + _LEAST_POINTS + 1):
            tried = [one.grid(points) for one in dimensions]
            size = math.prod(len(values) for values in tried)
            if size > trials or tried == cells:
                break
            cells = tried
        if not cells:
            raise ConfigError(
                f"the grid of {study} has {size} cells and there are {trials} trials; give --trials {size} or more, or "
                "fewer values or points in the space."
            )
        names = [one.name for one in dimensions]
        return [dict(zip(names, cell, strict=True)) for cell in itertools.product(*cells)]

    def _labels(self) -> list[str]:
        return baseline_labels(self.config().baselines)

    def _with_rule(self, rule: str) -> Space:
        """Return the space with the settings of a baseline, named as in tables, where it has none yet."""
        config = self.config()
        labels, found = baseline_labels(config.baselines), config.as_dict()["baselines"]
        if rule.startswith("hindsight"):
            raise ConfigError(f"--baseline {rule}: a ceiling has nothing to tune; name a rule that trades.")
        specs = {(rule_index(one.name), one.name.partition("].")[2]): one for one in self.dimensions}
        index = labels.index(rule) if rule in labels else len(found)
        if any(place == index for place, _ in specs):
            return self
        if rule not in labels:
            found = [*found, {"name": rule}]
        settings = RULE_SPACES.get(str(found[index]["name"]))
        if settings is None:
            known = suggestion(rule, [*RULE_SPACES, *labels])
            raise ConfigError(
                f"--baseline {rule}: there is no usual space for it; write one beside its settings in baselines, as "
                f"{{name: {rule}, setting: {{value: 1, search: [1, 2]}}}}, or {known}"
            )
        for name, spec in settings.items():
            own = found[index].get(name)
            found[index][name] = {**({} if own is None else {"value": own}), "search": spec}
        for (place, name), one in specs.items():
            if place is not None and name:
                found[place][name] = {"value": found[place][name], "search": _spec(one)}
        layers = (*self.layers, Layer("--baseline", {"baselines": found}))
        return Space(layers, _dimensions(layers))


class _Mark:
    """Marks the place of a space in a merged configuration, unless a later layer overrules it."""

    def __init__(self, place: str) -> None:
        self.place = place


def rule_index(place: str) -> int | None:
    """Return which of the baselines a place is in; None elsewhere."""
    found = re.match(r"baselines\[(\d+)\]", place)
    return int(found[1]) if found else None


def value_at(tree: Any, place: str) -> Any:
    """Return the value at a place such as ``baselines[1].urgency`` of plain values; None where there is none."""
    for part in re.findall(r"[^.\[\]]+", place):
        try:
            tree = tree[int(part)] if isinstance(tree, list) else tree[part]
        except (LookupError, TypeError):
            return None
    return tree


def _dimensions(layers: Sequence[Layer]) -> tuple[Dimension, ...]:
    """Return the living spaces of layers as dimensions."""
    stated: dict[str, tuple[str, Any]] = {}
    for layer in layers:
        for place, one in searches(unfolded(layer, SLOTS)):
            stated[place] = layer.origin, one["search"]
    values, _ = merged(RunConfig(), layers, SLOTS, {place: _Mark(place) for place in stated})
    living = list(dict.fromkeys(_marked(values)))
    base = build(RunConfig, layers, SLOTS).as_dict()
    dimensions = []
    for place in living:
        origin, spec = stated[place]
        if f"{place}.".startswith(tuple(f"{name}." for name in _FIXED)):
            raise ConfigError(
                f"{origin}: {place} says what is measured, or how fast, so trials of other values cannot be compared; "
                "search settings of the learner or of a baseline."
            )
        dimensions.append(_dimension(place, spec, value_at(base, place), origin))
    return tuple(dimensions)


def _marked(tree: Any) -> Iterable[str]:
    """Yield the places whose marks are in a tree."""
    if isinstance(tree, _Mark):
        yield tree.place
    for one in tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ():
        yield from _marked(one)


def _dimension(place: str, spec: Any, now: Any, origin: str) -> Dimension:
    """Return a space as it is written, beside the value that its setting has now."""

    def refusal(said: str) -> ConfigError:
        return ConfigError(f"{origin}: the search of {place} {said}")

    if isinstance(spec, list):
        labels = [one if one is None or isinstance(one, (bool, int, float, str)) else _text(one) for one in spec]
        if not spec or any(_same(a, b) for a, b in itertools.combinations(labels, 2)):
            raise refusal(f"is {shown(spec)}; list one or more values, each once.")
        return Dimension(place, "choice", tuple(zip(labels, spec, strict=True)))
    if not isinstance(spec, Mapping):
        raise refusal(f"is {shown(spec)}; write a list of values, or {{low: 1, high: 10}}.")
    for key in spec:
        if key not in _KEYS:
            raise refusal(f"has no {shown(key)}; {suggestion(str(key), _KEYS)}")
    low, high, step, points = (spec.get(key) for key in ("low", "high", "step", "points"))
    for key, one in (("low", low), ("high", high), *([("step", step)] if step is not None else [])):
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not math.isfinite(one):
            raise refusal(f"has {key} {shown(one)}; a number is needed.")
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    log, whole = spec.get("log", False), all(isinstance(one, int) for one in (low, high))
    if not isinstance(log, bool):
        raise refusal(f"has log {shown(log)}; true or false is needed.")
    if low >= high:
        raise refusal(f"goes from {low!r} to {high!r}; low must be below high.")
    if log and low <= 0:
        raise refusal(f"is logarithmic from {low!r}; low must be above 0.")
    is_int = isinstance(now, int) and not isinstance(now, bool) if now is not None else whole
    if is_int and not whole:
        raise refusal(f"goes from {low!r} to {high!r}, but the setting is a whole number; give whole numbers.")
    if step is not None and (step <= 0 or step > high - low or (is_int and not isinstance(step, int))):
        raise refusal(f"has step {step!r}; give {'a whole number' if is_int else 'one'} above 0 and within the range.")
    if step is not None and log:
        raise refusal("is logarithmic and has a step; keep one of the two.")
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < _LEAST_POINTS):
        raise refusal(f"has points {shown(points)}; a whole number of {_LEAST_POINTS} or more is needed.")
    kind: Literal["int", "float"] = "int" if is_int else "float"
    return Dimension(place, kind, (), float(low), float(high), log, step, points)


def _spec(one: Dimension) -> Any:
    """Return a dimension as it is written in a configuration."""
    if one.kind == "choice":
        return [value for _, value in one.options]
    said = {name: value for name, value in dataclasses.asdict(one).items() if name in _KEYS and value is not None}
    if one.kind == "int":
        said |= {"low": int(one.low), "high": int(one.high)}
    return said if one.log else {name: value for name, value in said.items() if name != "log"}


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _text(value: Any) -> str:
    return dump_yaml(value, flow=True).strip().removesuffix("...").strip()
