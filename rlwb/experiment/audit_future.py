"""Checks that nothing knows what comes later: bars after a decision are changed, and nothing before may move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from rlwb.conformance import CHAIN, another_future, decisions, first_moved
from rlwb.execution import OrderBatch
from rlwb.experiment.audit_case import Case, Check, any_rows, first_failure
from rlwb.experiment.workbench import Workbench
from rlwb.market import MarketFeatures, Normaliser, Sessions
from rlwb.market.features import features_of
from rlwb.market.references import References

#: What the checks of `CHAIN` are called, and what each compares.
_NAMES = {
    "observation": ("observations", "what policies are shown"),
    "encoder": ("encoder", "what the network makes of it"),
    "action": ("actions", "what policies decide"),
    "amount": ("amounts", "the amounts that decisions become"),
}
_DAYS, _TICKS, _ORDERS = (2, 10), (2, 4), (32, 200)
_ORDER_COLUMNS = ["order_id", "direction", "amount", "start", "end"]


def future_checks(case: Case) -> Iterator[Check]:
    """Yield the checks of features, references, orders, observations, networks, actions and amounts.

    Every bar of every instrument from the tick of a decision on, and on all later days, is replaced by another
    (`rlwb.conformance.another_future`). What was known, shown, decided and ordered before must be the same to the last
    bit. Days, ticks and orders are sampled, more of them in a full audit.
    """
    rng = np.random.default_rng(0)
    faults: dict[str, list[str]] = {name: [] for name in ("features", "references", "orders", *CHAIN)}
    compared, still = 0, _read_bars(case)
    normaliser, policies = _normaliser(case), case.policies
    for day, ticks in _moments(case, rng):
        here = case.around(day)
        one = case.on(here)
        table = case.orders("test")
        own = table[table["date"].to_numpy().astype("datetime64[D]") == day].reset_index(drop=True)
        own = own.iloc[any_rows(len(own), _ORDERS[case.is_full], rng)].reset_index(drop=True)
        faults["orders"] += _moved_orders(case, here, own, day, rng)
        for tick in ticks:
            two = case.on(another_future(here, day, tick, rng))
            when = f"{_time(here, tick)} on {day}"
            faults["references"] += _moved_references(here, two.sessions, day, when)
            before, after = (bench.features(normaliser=normaliser) for bench in (one, two))
            faults["features"] += _moved_features(here, before, after, day, tick, when)
            still &= _still(here, before, after, day, tick)
            pair = [(bench, bench.align(own)) for bench in (one, two)]
            for name in policies:
                moved = _moved(case, name, pair, tick)
                compared += 1
                if moved:
                    link, at = moved
                    by = _NAMES[link][1]
                    told = f"{name}: {by} at {_time(here, at)} changes with bars from {when} on"
                    faults[link].append(told)
        if case.each is not None:
            case.each()
    yield first_failure("features", faults["features"], "no feature moves when later bars change")
    unread = [f"{name} stays when the bars that it is made of change" for name in sorted(still)]
    yield first_failure("bars are read", unread, "every feature of bars moves when its bars do, so none is an old copy")
    yield first_failure("references", faults["references"], "no price or volume that features refer to moves")
    yield first_failure("orders", faults["orders"], "no order's side, amount or window depends on bars after its start")
    earlier: list[str] = [name for name in ("features",) if faults[name]]
    for link in CHAIN:
        name, what = _NAMES[link]
        if earlier and not faults[link]:
            yield Check(name, None, f"not told apart: {earlier[0]} already depend on later bars")
        else:
            yield first_failure(name, faults[link], f"{what}: the same after every change of later bars ({compared})")
        if faults[link]:
            earlier.append(name)


def days_of(case: Case) -> int:
    """Return on how many test days bars are changed."""
    return min(len(case.dates("test")), _DAYS[case.is_full])


def _moments(case: Case, rng: np.random.Generator) -> Iterator[tuple[np.datetime64, list[int]]]:
    """Yield sampled test days, each with sampled ticks at which decisions are made."""
    dates = case.dates("test")
    engine, ticks = case.bench.engine, case.bench.sessions.calendar.num_ticks
    starts = np.flatnonzero(np.diff(engine.cell[:ticks], prepend=-1))  # first ticks of steps
    for place in any_rows(len(dates), _DAYS[case.is_full], rng):
        later = starts[1:] if len(starts) > 1 else starts
        yield dates[place], [int(later[row]) for row in any_rows(len(later), _TICKS[case.is_full], rng)]


def _normaliser(case: Case) -> Normaliser:
    """Return the statistics that the best checkpoint normalises by."""
    from rlwb.trainer import list_checkpoints, load_checkpoint

    iteration = case.best.iteration
    path = list_checkpoints(case.run.checkpoints)[int(iteration or 0)]
    return Normaliser.from_dict(load_checkpoint(path)["meta"]["normaliser"])


def _moved(case: Case, name: str, pair: Sequence[tuple[Workbench, OrderBatch]], tick: int) -> tuple[str, int] | None:
    """Return which link of a policy's decisions moves, and at which tick, of orders on two markets."""
    made = []
    for bench, orders in pair:
        policy, sees, acts = case.playable(name, bench)
        made.append(decisions(bench.simulator, sees, acts, policy, orders, tick))
    return first_moved(made[0], made[1], tick)


def _moved_features(
    here: Sessions, one: MarketFeatures, two: MarketFeatures, day: np.datetime64, tick: int, when: str
) -> list[str]:
    """Name the features of which a value before the change moves."""
    known = np.flatnonzero(here.dates <= day)
    known = known[np.argsort(here.dates[known], kind="stable")][-2000:]
    before, after = one.rows(known), two.rows(known)
    if one.previous_day:
        yesterday = [features.block_previous(known) for features in (one, two)]
        before, after = (np.concatenate(pair, axis=1) for pair in zip((before, after), yesterday, strict=True))
    differs = before != after
    differs[here.dates[known] == day, tick : here.calendar.num_ticks] = False
    moved = np.flatnonzero(differs.any(axis=(0, 1)))
    return [f"{one.columns[column]} before {when} changes with later bars" for column in moved]


def _still(here: Sessions, one: MarketFeatures, two: MarketFeatures, day: np.datetime64, tick: int) -> set[str]:
    """Return the features of which no value after the change moves on that day."""
    rows = np.flatnonzero(here.dates == day)
    moves = (one.rows(rows)[:, tick:] != two.rows(rows)[:, tick:]).any(axis=(0, 1))
    return {name for name, moved in zip(one.columns, moves, strict=True) if not moved}


def _read_bars(case: Case) -> set[str]:
    """Return the features that say that they are made of fields of bars."""
    settings, fields = case.bench.config.features, case.bench.sessions.fields
    return {one.name for one in features_of(settings, fields) if one.needs}


def _moved_references(one: Sessions, two: Sessions, day: np.datetime64, when: str) -> list[str]:
    """Name the references of sessions up to a day that move when bars within it do."""
    rows = (one.dates <= day) & (one.previous >= 0)
    found = []
    for name in ("previous_close", "price", "volume"):
        before, after = (getattr(References(each), name)[rows] for each in (one, two))
        if not np.array_equal(before, after, equal_nan=True):
            found.append(f"{name} of {day} changes with bars from {when} on")
    return found


def _moved_orders(
    case: Case, here: Sessions, stored: pd.DataFrame, day: np.datetime64, rng: np.random.Generator
) -> list[str]:
    """Name the first order of a day that is another when the bars from its start on are."""
    starts = (stored["start"] - stored["date"]).dt.total_seconds().to_numpy()
    tick = int(np.searchsorted(here.calendar.tick_start, starts.min() if len(starts) else 0))
    made = []
    for panel in (here, another_future(here, day, tick, rng)):
        table = case.on(panel).all_orders
        table = table[table["date"].to_numpy().astype("datetime64[D]") == day]
        made.append(table[_ORDER_COLUMNS].sort_values("order_id").reset_index(drop=True))
    one, two = made
    if len(one) != len(two):
        return [f"{len(one)} orders on {day} become {len(two)} when bars from {_time(here, tick)} on change"]
    differs = np.flatnonzero((one != two).any(axis=1))
    if not len(differs):
        return []
    row = int(differs[0])
    column = next(name for name in _ORDER_COLUMNS if one[name][row] != two[name][row])
    return [f"{column} of {one['order_id'][row]} changes with bars from its start on ({len(differs)} of {len(one)})"]


def _time(sessions: Sessions, tick: int) -> str:
    """Return the time at which a tick begins."""
    return f"{sessions.calendar.time_of(tick):%H:%M}"
