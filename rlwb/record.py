"""The record of a training: what its checkpoints were trained for, and how two records differ."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from rlwb.errors import CheckpointError

_SHOWN = 4
_WIDTH = 80


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """Circumstances of a training, kept in its checkpoints; None where a part does not say, which agrees with all.

    Attributes
    ----------
    features
        Names of the features of a tick, in the order in which the network reads them.
    normaliser
        Hash of the statistics that they are normalised by.
    previous_day
        Whether yesterday's features are seen as well.
    bar_seconds
        Length of a bar.
    ticks
        Bars of a regular session.
    ticks_per_step
        Bars between two decisions.
    steps
        Largest number of decisions of an order.
    calendar
        Trading hours and their time zone.
    observation, action
        What the policy sees and what its answers mean: the interpreter's class under ``interpreter``, the spaces, and
        for a choice among shares the ``shares``.
    network, algorithm
        Classes of the network and of the learner.
    simulator, reward
        Their classes.
    rules
        The rules of execution, ``price_field`` among them.
    threads
        Threads of torch, which round sums in another order.
    run
        Hash of all settings that a run's training depends on, the contents of its files among them.
    data
        Fingerprint of the sessions.
    orders
        Hash of the training orders.
    """

    features: tuple[str, ...] | None = None
    normaliser: str | None = None
    previous_day: bool | None = None
    bar_seconds: int | None = None
    ticks: int | None = None
    ticks_per_step: int | None = None
    steps: int | None = None
    calendar: Mapping[str, Any] | None = None
    observation: Mapping[str, Any] | None = None
    action: Mapping[str, Any] | None = None
    network: str | None = None
    algorithm: str | None = None
    simulator: str | None = None
    reward: str | None = None
    rules: Mapping[str, Any] | None = None
    threads: int | None = None
    run: str | None = None
    data: str | None = None
    orders: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain values, for a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> TrainingRecord:
        """Return the record that `as_dict` gave; raise `CheckpointError` for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(values, Mapping) or values.keys() - names:
            raise CheckpointError("the record of what it was trained for is damaged; use another checkpoint.")
        return cls(**values)


ACTING: tuple[str, ...] = (
    *("features", "normaliser", "previous_day", "bar_seconds", "ticks", "ticks_per_step", "steps", "calendar"),
    *("observation", "action"),
)
"""Names that must agree wherever a policy acts, on whatever orders and bars."""

MARKET = (*ACTING, "simulator", "rules")
"""Names that must agree for a policy to act in the market that it was trained for."""

ORIGIN = ("run", "data", "orders")
"""Names that tell one training from another of the same kind."""

TRAINING = tuple(field.name for field in fields(TrainingRecord))
"""Names that must agree for a training to be continued: all."""


def check_record(
    found: TrainingRecord, wanted: TrainingRecord, what: str, *, names: Collection[str] = TRAINING, do: str = ""
) -> None:
    """Refuse what was trained for something else.

    Parameters
    ----------
    found
        What it was trained for.
    wanted
        What it is to be used for.
    what
        What is refused, as the sentence begins: ``"the checkpoint runs/a/checkpoints/0003.pt"``.
    names
        Fields that are compared, where both sides know them.
    do
        What to do about it.

    Raises
    ------
    CheckpointError
        Naming each field that differs, with both values.
    """
    differ = [text for name in names for text in differences(name, getattr(found, name), getattr(wanted, name))]
    if differ:
        more = f"; and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        advice = do or "use it with what it was trained for, or train anew."
        raise CheckpointError(f"{what} was trained for something else: {'; '.join(differ[:_SHOWN])}{more}: {advice}")


def differences(name: str, found: Any, wanted: Any) -> list[str]:
    """Return one text for each value that differs, those of a mapping by their dotted name; None agrees with all.

    A tuple equals a list of the same values, which files make of it.
    """
    found, wanted = _plain(found), _plain(wanted)
    if found is None or wanted is None or found == wanted:
        return []
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        keys = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return [f"{name}.{key} {_short(found.get(key))} there, {_short(wanted.get(key))} here" for key in keys]
    return [f"{name} {_short(found)} there, {_short(wanted)} here"]


def _plain(value: Any) -> Any:
    """Return `value` with tuples as lists."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
