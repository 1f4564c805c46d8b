"""Checks on markets where nothing can be gained, and of what decisions and observations tell of the prices to come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rlwb.conformance import decisions
from rlwb.execution import Engine, OrderBatch
from rlwb.experiment.audit_case import Case, Check, any_rows, day_interval_of, first_failure
from rlwb.experiment.audit_figures import raw_prices
from rlwb.experiment.backtest import play
from rlwb.experiment.workbench import Workbench
from rlwb.market import Sessions

#: Orders that are played on each null market, null markets, and the confidence at which a gain is one.
_ORDERS, _MARKETS, _LEVEL = (400, 5_000), (1, 4), 0.9998
#: Days that null markets come to together, as far as so many markets, at most, allow.
_MARKET_DAYS, _MOST = 30, 4
#: Columns of observations that are compared with what comes, and orders that it is done for.
_COLUMNS, _SHOWN = 20_000, (400, 2_000)
#: Correlation with the window's later prices from which a number tells them; no forecast of a market comes near.
_TELLS = 0.7
_PRICES = ("open", "high", "low", "close", "vwap", "bid", "ask")


def null_checks(case: Case) -> Iterator[Check]:
    """Yield whether policies gain on null markets, and whether observations or decisions hold prices that are to come.

    A null market is made of the test days: every move of a price from the bar before is turned round or not by the
    toss of a coin, so that each price is the expectation of all later ones, and nobody who does not know the coins can
    gain. Volumes, and the sizes of moves, stay. A full audit also takes days whose bars run backwards.
    """
    yield _null_market(case)
    yield from _foretold(case)


def _null_market(case: Case) -> Check:
    """Require that no policy gains on null markets."""
    name, rng = "null market", np.random.default_rng(2)
    table = case.orders("test")
    table = table.iloc[any_rows(len(table), _ORDERS[case.is_full], rng)].reset_index(drop=True)
    gains: dict[str, list[np.ndarray]] = {one: [] for one in case.policies}
    days: list[np.ndarray] = []
    for number in range(max(_MARKETS[case.is_full], min(_MOST, -(-_MARKET_DAYS // len(case.dates("test")))))):
        panel = case.bench.sessions
        here = np.isin(panel.dates, case.dates("test"))
        bench = case.on(tossed(panel, here, rng, backwards=number % 2 == 1))
        orders = bench.align(table)
        days.append(orders.table["date"].to_numpy().astype("datetime64[D]").astype(np.int64) + 1_000_000 * number)
        for one in gains:
            gains[one].append(_gain(bench, orders, play(bench, case.playable(one, bench), orders).metrics))
    faults, widest = [], 0.0
    for one, found in gains.items():
        interval = day_interval_of(np.concatenate(found), np.concatenate(days), level=_LEVEL)
        if interval is None:
            return Check(name, None, "too few test days to tell")
        widest = max(widest, interval.mean - interval.lo)
        if interval.lo > _ROUNDING:
            faults.append(f"{one} gains {interval.mean:.2f} bp where nobody can, at least {interval.lo:.2f} bp")
    told = (
        f"no policy gains where every move was turned round by the toss of a coin (gains from {widest:.1f} bp are seen)"
    )
    return first_failure(name, faults, told)


_ROUNDING = 1e-6


def _gain(bench: Workbench, orders: OrderBatch, figures: Any) -> np.ndarray:
    """Return what orders gained over TWAP in bp of the arrival price; on a null market its expectation is 0."""
    gain = orders.side * (figures["twap"] - figures["price"]) / figures["arrival"] * 1e4
    rest = figures.get("pa_unfilled", np.zeros(len(orders)))
    return np.nan_to_num(gain) * figures["ffr"] + np.nan_to_num(rest)


def tossed(sessions: Sessions, rows: np.ndarray, rng: np.random.Generator, *, backwards: bool = False) -> Sessions:
    """Return a panel in which each move of a price from the close before it is turned round or not by a coin.

    The first price of a session stays. Bars neither come nor go.

    Parameters
    ----------
    rows
        The sessions whose bars are changed, bool of shape (S,).
    backwards
        Whether the moves come in the opposite order first.
    """
    fields = {name: np.array(values) for name, values in sessions.fields.items()}
    close = fields["close"][rows]
    valid = np.isfinite(close) & (close > 0)
    count, ticks = close.shape
    last = np.maximum.accumulate(np.where(valid, np.arange(ticks), -1), axis=1)
    before = np.concatenate([np.full((count, 1), -1), last[:, :-1]], axis=1)
    known = before >= 0
    earlier = np.where(known, np.take_along_axis(close, np.maximum(before, 0), axis=1), 1.0)
    coin = np.where(rng.random(close.shape) < 0.5, -1.0, 1.0)
    names = [name for name in _PRICES if name in fields]
    moves = {name: np.where(known, fields[name][rows] / earlier - 1.0, np.nan) for name in names}
    if backwards:
        moves = {name: _reversed(values, known & valid) for name, values in moves.items()}
    moves = {name: np.where(np.abs(values) < 0.9, coin * values, values) for name, values in moves.items()}
    first = np.where(valid.any(axis=1), close[np.arange(count), np.argmax(valid, axis=1)], 1.0)
    grown = np.cumprod(np.where(valid & known, 1.0 + np.nan_to_num(moves["close"]), 1.0), axis=1)
    path = first[:, None] * np.concatenate([np.ones((count, 1)), grown[:, :-1]], axis=1)
    made = {name: np.where(known, path * (1.0 + moves[name]), fields[name][rows]) for name in names}
    if {"bid", "ask"} <= made.keys():
        made["bid"], made["ask"] = np.minimum(made["bid"], made["ask"]), np.maximum(made["bid"], made["ask"])
    inside = [made[name] for name in names if name not in ("bid", "ask")]
    for name, enclosing in (("high", np.fmax.reduce), ("low", np.fmin.reduce)):
        if name in made:
            made[name] = np.where(np.isfinite(made[name]), enclosing(inside), np.nan)
    for name, values in made.items():
        fields[name][rows] = np.where(np.isfinite(sessions.fields[name][rows]), values, np.nan)
    return Sessions(
        sessions.calendar,
        sessions.instruments,
        sessions.dates,
        sessions.num_ticks,
        fields,
        halted=sessions.halted,
        factor=sessions.factor,
    )


def _reversed(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return each row with its values `where`, bool of its shape, in the opposite order."""
    found = values.copy()
    for row, mask in zip(found, where, strict=True):
        row[mask] = row[mask][::-1]
    return found


def _foretold(case: Case) -> Iterator[Check]:
    """Yield whether observations hold the benchmark or later prices, and whether decisions follow them."""
    shown: list[str] = []
    decided: list[str] = []
    rng, bench = np.random.default_rng(3), case.bench
    orders = case.test[any_rows(len(case.test), _SHOWN[case.is_full], rng)]
    sessions = len(np.unique(orders.session))
    if sessions < 12:
        told = f"the test orders are of {sessions} sessions, too few to tell"
        yield from (Check(name, None, told) for name in ("benchmark prices", "decisions foretold"))
        return
    least = max(_TELLS, float(np.tanh(6.0 / np.sqrt(sessions - 3.0))))
    prices = raw_prices(case)
    for name in case.policies:
        policy, sees, acts = case.playable(name, bench)
        until = int(np.median(orders.start + orders.end) // 2)
        made = decisions(bench.simulator, sees, acts, policy, orders, until)
        for one in {0: made[0], len(made) - 1: made[-1]}.values():
            if len(one.tick) != len(orders):
                continue
            *targets, last, move = _ahead(bench.engine, prices, orders, one.tick)
            known = np.stack([np.ones(len(orders)), last, move], axis=1)
            for place, values in _columns(one.made.get("observation"), rng):
                tells = max(_told(values, ahead, known, last) for ahead in targets)
                if tells > least:
                    shown.append(f"{name}: {place} is shown before the prices that it tells (correlation {tells:.2f})")
            share = one.made["amount"] / orders.amount
            leans = (orders.side * (share - share.mean()))[:, None]
            tells = max(_told(leans, ahead, known, last) for ahead in targets)
            if tells > least:
                decided.append(f"{name}: its decisions follow the prices to come (correlation {tells:.2f})")
    what = "no number that is shown tells the window's TWAP or its later prices"
    yield first_failure("benchmark prices", shown, what)
    yield first_failure("decisions foretold", decided, "no policy decides as if it knew the window's later prices")


def _ahead(engine: Engine, prices: np.ndarray, orders: OrderBatch, tick: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return what nobody knows at a tick and what all do, float64 of shape (N,) each.

    They are the log of the mean price to come over the last known one, and over the first one to come; the last known
    price, and its log move since yesterday.
    """
    ahead, later_move, last, move = (np.zeros(len(orders)) for _ in range(4))
    previous = engine.sessions.previous
    for order in range(len(orders)):
        row, at, end = int(orders.session[order]), int(tick[order]), int(orders.end[order])
        path = prices[row]
        before = path[:at][np.isfinite(path[:at])]
        yesterday = prices[previous[row]] if previous[row] >= 0 else path[:0]
        yesterday = yesterday[np.isfinite(yesterday)]
        later = path[at:end][np.isfinite(path[at:end])]
        known = before[-1] if len(before) else (yesterday[-1] if len(yesterday) else np.nan)
        last[order] = known
        ahead[order] = np.log(later.mean() / known) if len(later) and np.isfinite(known) else np.nan
        later_move[order] = np.log(later.mean() / later[0]) if len(later) else np.nan
        move[order] = np.log(known / yesterday[-1]) if len(yesterday) else 0.0
    return ahead, later_move, last, move


def _columns(seen: Any, rng: np.random.Generator, place: str = "observation") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the numbers of observations by where they are, float64 of shape (N, K) each."""
    if isinstance(seen, dict):
        for key, part in seen.items():
            yield from _columns(part, rng, f"{place}[{key}]")
    elif isinstance(seen, tuple):
        for number, part in enumerate(seen):
            yield from _columns(part, rng, f"{place}[{number}]")
    elif isinstance(seen, np.ndarray) and seen.dtype.kind in "fiu":
        flat = seen.reshape(len(seen), -1).astype(np.float64)
        yield place, flat[:, any_rows(flat.shape[1], _COLUMNS, rng)]


def _told(values: np.ndarray, ahead: np.ndarray, known: np.ndarray, last: np.ndarray) -> float:
    """Return the largest correlation of numbers with what comes, both freed of what is known; 0 for constant ones.

    Numbers that may be prices are looked at as they are and over the last price.
    """
    good = np.isfinite(ahead) & np.isfinite(known).all(axis=1)
    if good.sum() < 12:
        return 0.0
    most = 0.0
    for each in (values[good], values[good] / last[good, None]):
        each = each[:, np.isfinite(each).all(axis=0) & (each.std(axis=0) > 1e-12)]
        if not each.shape[1]:
            continue
        basis = np.linalg.qr(known[good] / np.abs(known[good]).max(axis=0).clip(1e-12))[0]
        free = [part - basis @ (basis.T @ part) for part in (each, ahead[good][:, None])]
        size = [np.sqrt((part**2).sum(axis=0)) for part in free]
        alive = size[0] > 1e-7 * np.sqrt((each**2).sum(axis=0)).clip(1e-300)
        dot = np.abs((free[0] * free[1]).sum(axis=0)) / np.maximum(size[0] * size[1], 1e-300)
        most = max(most, float(dot[alive].max(initial=0.0)))
    return most
