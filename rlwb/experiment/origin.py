"""The origin of an evaluation: permitted changes, its test orders, and their overlap with the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described
from rlwb.experiment.run import RunDirectory
from rlwb.market.calendar import day_of
from rlwb.reading import read_json, read_table

JUDGING = (
    *("market", "orders", "split.test", "execution.rules", "execution.preset", "simulator", "baselines"),
    *("backtest.bootstrap_samples", "backtest.confidence", "seed", "threads", "trackers"),
)
"""Parameters, or groups of them, that an evaluation may change; all others are those of the training."""

COPIES = ("checkpoints", "metrics", "origin", "policies")
"""Folders of an evaluation that hold copies of what it judges; ``origin/run.json`` has their hashes."""

WARNING = "WARNING: "
"""First word of a note on test dates that the training or the choice of checkpoints knew."""


def refuse_training_changes(own: RunConfig, config: RunConfig) -> None:
    """Refuse, naming it, a change to what checkpoints were trained with; `own` is the configuration of their run.

    Locked dates stay locked in another way (`rlwb.experiment.evaluate.evaluated`).
    """
    first, second = ({name: value_at(tree, name) for name in leaves(tree)} for tree in map(described, (own, config)))
    for name in {**first, **second}:
        is_judging = name.startswith("split.locked") or any(f"{name}.".startswith(f"{group}.") for group in JUDGING)
        if not is_judging and first.get(name) != second.get(name):
            raise ConfigError(
                f"{name} is {first.get(name)!r} in the run's training and {second.get(name)!r} here; an evaluation "
                f"trains nothing and can change no more than {', '.join(JUDGING)}: start a run for that."
            )


def on_test_dates(table: pd.DataFrame, config: RunConfig) -> tuple[pd.DataFrame, list[str]]:
    """Return the orders of an evaluation's test dates, and what is left out, in words."""
    given: Any = config.split.test
    try:
        first, last = (day_of(day) for day in given)
    except (TypeError, ValueError, ConfigError):
        raise ConfigError(
            f"split.test is {given!r}; an evaluation needs the first and the last date to judge on."
        ) from None
    dates = table["date"].to_numpy(dtype="datetime64[D]")
    inside = (dates >= first) & (dates <= last)
    if not inside.any():
        raise OrderError(
            f"no order lies on the test dates from {first} to {last}; the orders are from {dates.min()} to "
            f"{dates.max()}. Name dates by --set split.test=[FIRST, LAST]."
        )
    left = [f"{(~inside).sum()} orders lie outside the test dates"] if not inside.all() else []
    return table[inside].reset_index(drop=True), left


def judged_on(run: RunDirectory, config: RunConfig) -> list[str]:
    """Say in sentences what the checkpoints of an evaluation were trained on and what they are judged on.

    Nothing in a run that trains for itself. Dates of the test that the training or the choice of checkpoints knew are
    told first.
    """
    origin = run.origin
    if origin is None:
        return []
    parts = {name: read_table(origin.orders / f"{name}.parquet", "order_id") for name in ("train", "valid")}
    test, own = read_table(run.orders / "test.parquet", "order_id"), origin.config
    about = [*_overlaps(parts, test)]
    source = Path(read_json(origin.path / "run.json")["path"]).name
    about.append(
        f"Evaluation without training: the checkpoints of the run {source} were trained on {_named(own)} "
        f"({_span(parts['train'])}), chosen on {_span(parts['valid'])}, and are judged on {_named(config)} "
        f"({_span(test)}). What baselines know of the market is from that training, too."
    )
    rules = [vars(one.execution.rules) for one in (own, config)]
    differ = [
        f"{name} {rules[0][name]} there, {rules[1][name]} here" for name in rules[0] if rules[0][name] != rules[1][name]
    ]
    if differ:
        about.append(f"The rules are not those of the training: {'; '.join(differ)}.")
    return about


def seen_in_training(run: RunDirectory, orders: pd.DataFrame) -> list[str]:
    """Say in sentences which of the orders the training of a run, or the choice of its checkpoints, knew."""
    parts = {name: read_table(run.orders / f"{name}.parquet", "order_id") for name in ("train", "valid")}
    return _overlaps(parts, orders)


def _overlaps(parts: dict[str, pd.DataFrame], test: pd.DataFrame) -> list[str]:
    """Tell which part of the test orders the training or the choice knew, by session, then by date."""
    found = []
    keys = pd.MultiIndex.from_frame(test[["instrument", "date"]])
    for part, did in {"train": "trained", "valid": "chosen"}.items():
        same = keys.isin(pd.MultiIndex.from_frame(parts[part][["instrument", "date"]]))
        days = test.loc[test["date"].isin(parts[part]["date"]), "date"]
        if len(days):
            known = f"{days.nunique()} of the {test['date'].nunique()} test days"
            of_which = f", {same.sum():,} of {len(test):,} orders with the same instruments" if same.any() else ""
            found.append(
                f"{WARNING}this is no test: the checkpoints were {did} on {known} ({days.min():%Y-%m-%d} to "
                f"{days.max():%Y-%m-%d}){of_which}."
            )
    last = parts["train"]["date"].max()
    before = test.loc[(test["date"] < last) & ~test["date"].isin(parts["train"]["date"]), "date"]
    if len(before):
        found.append(
            f"{WARNING}{before.nunique()} test days lie before {last:%Y-%m-%d}, the last day of the training, so the "
            "policy may know what came of them."
        )
    return found


def _named(config: RunConfig) -> str:
    source = config.market.settings.get("source")
    return str(source) if source else f"the market {config.market.name}"


def _span(orders: pd.DataFrame) -> str:
    dates, names = orders["date"], orders["instrument"].nunique()
    return f"{names} instrument{'' if names == 1 else 's'}, {dates.min():%Y-%m-%d} to {dates.max():%Y-%m-%d}"
