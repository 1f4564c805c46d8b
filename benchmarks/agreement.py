"""Whether rlwb under ``rules: qlib`` does what Qlib does, order by order; writes ``results/agreement.json``.

Both sides execute the same orders in a sound market and in ten awkward ones, by the same policy: Qlib's own, whose
checkpoint rlwb reads. An order is equal when its fills tick by tick, steps, prices, rewards, observations and
decisions all are. One that is not is explained by the fewest `CAUSES` that make all of them equal when rlwb is given
Qlib's way in them; a cause counts for an order only where the order shows what it needs. What no
causes make equal is unexplained.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement_markets import Market, make_markets
from benchmarks.measure import context, run_job
from benchmarks.run import peer_arguments, peer_python, results_file
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    ExecutionState,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.files import atomic_path, write_json
from rlwb.market import Calendar, MarketFeatures, Normaliser, Sessions
from rlwb.policy import from_qlib

#: Shares of the amount that the actions stand for.
VALUES = [0.0, 0.1, 0.25, 0.5, 1.0]
_PENALTY = 100.0
_COLUMNS = ("high", "low", "open", "close", "volume")
#: Part of the tests, recorded by ``--record``: so many orders a market, and the width of the network.
RECORDED = Path(__file__).resolve().parents[1] / "tests" / "policy" / "qlib_agreement.npz"
_RECORDED_ORDERS, _RECORDED_HIDDEN = 12, 6
#: How far numbers may lie apart that went through sums in another sequence.
_CLOSE = 1e-9
#: The same of observations, which are float32, and of figures in basis points, which are differences of ratios near 1.
_SINGLE, _BASIS = 2e-7, 1e-5
#: Shares below which Qlib takes an order as filled.
_NOTHING = 1e-6

ASPECTS = ("steps", "fills", "prices", "rewards", "observations", "decisions")


@dataclass(frozen=True)
class Played:
    """What a side did with N orders in up to K steps; NaN, or 0 for the hashes, where an order took no such step.

    Attributes
    ----------
    count : int64 of shape (N,)
        Steps taken.
    fills : float64 of shape (N, T)
        Shares by tick of the clock.
    by_step
        Arrays of shape (N, K) by name, ``history`` of shape (N, K, max_step).
    twap : float64 of shape (N,)
    pa, ffr, price : float64 of shape (N,)
        Of the whole order; NaN where Qlib has none.
    """

    count: np.ndarray
    fills: np.ndarray
    by_step: dict[str, np.ndarray]
    twap: np.ndarray
    pa: np.ndarray
    ffr: np.ndarray
    price: np.ndarray


_ENDED = ("twap", "pa", "ffr", "price")
_STEP_NAMES = ("action", "request", "fill", "price", "pa", "reward", "today", "previous", "history")
_SCALARS = ("acquiring", "cur_tick", "cur_step", "num_step", "target", "position")


def played_by_qlib(found: Mapping[str, np.ndarray], market: Market) -> Played:
    """Return what the peer has written."""
    order, orders = found["order"], len(market.session)
    count = np.bincount(order, minlength=orders)
    step = np.arange(len(order)) - np.searchsorted(order, order)
    by_step = {}
    for name in (*_STEP_NAMES, *_SCALARS):
        values = found[name]
        nothing = 0 if values.dtype == np.int64 else np.nan
        by_step[name] = np.full((orders, market.max_step, *values.shape[1:]), nothing, dtype=values.dtype)
        by_step[name][order, step] = values
    return Played(count, found["fills"], by_step, *(found[f"order_{name}"] for name in _ENDED))


@dataclass(frozen=True)
class Cause:
    """One way in which Qlib differs on purpose or by a fault.

    Attributes
    ----------
    applies
        Returns whether each order shows what the cause needs, bool of shape (N,), from the market and both sides.
    """

    text: str
    applies: Callable[[Market, Played], np.ndarray] = field(repr=False)


def _in_window(market: Market, ticks: np.ndarray) -> np.ndarray:
    """Return whether any of `ticks`, bool of shape (S, T), lies in each order's window."""
    tick = np.arange(ticks.shape[1])
    inside = (tick >= market.start[:, None]) & (tick < market.end[:, None])
    return np.asarray((inside & ticks[market.session]).any(axis=1))


def _unpriced(market: Market) -> np.ndarray:
    return market.present & ~(market.close > 0)


CAUSES: dict[str, Cause] = {
    "rows": Cause(
        "steps and ticks are counted by rows, so that a missing bar shifts all that follow; rlwb keeps the clock",
        lambda market, theirs: ~market.present[market.session].all(axis=1),
    ),
    "price_missing": Cause(
        "fills where the price is missing (a PA of 0) or 0 (which counts in the TWAP); rlwb fills nothing there",
        lambda market, theirs: _in_window(market, _unpriced(market)),
    ),
    "last_step": Cause(
        "the longest possible order's number of steps stands for each order's own, in observations and where all that "
        "is left is asked for",
        lambda market, theirs: _own_steps(market) < market.max_step,
    ),
    "no_fill": Cause(
        "a step that asks for shares and fills none is rewarded as if at the price 0, by 10,000 or -10,000 bp of what "
        "it asked for; in rlwb it earns nothing",
        lambda market, theirs: ((theirs.by_step["fill"] == 0) & (theirs.by_step["request"] > 0)).any(axis=1),
    ),
}
"""The causes in which rlwb can be given Qlib's way; those of `_TOLD` are told from what Qlib did."""

_TOLD = {
    "tolerance": "less than 1e-6 shares count as nothing left, whatever the amount; in rlwb 1e-9 of the amount",
    "empty": "a window without a bar is an IndexError; in rlwb the order fills nothing",
}


def _own_steps(market: Market) -> np.ndarray:
    return np.asarray((market.end - 1) // market.ticks_per_step - market.start // market.ticks_per_step + 1)


def _hash(block: np.ndarray) -> int:
    digest = hashlib.blake2b(np.ascontiguousarray(block).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _side_by_side(values: np.ndarray, present: np.ndarray, empty: float) -> np.ndarray:
    """Return the bars that there are of each session laid side by side, the rest being `empty`."""
    out = np.full_like(values, empty)
    for row, there in enumerate(present):
        out[row, : there.sum()] = values[row, there]
    return out


def play(market: Market, policy: Any, causes: tuple[str, ...] = ()) -> Played:
    """Execute the orders by rlwb, going Qlib's way in the given `CAUSES`."""
    shape, orders = market.close.shape, np.flatnonzero(_in_window(market, market.present))
    close, volume, today, previous = market.close, market.volume, market.today, market.previous
    clock, start, end = np.tile(np.arange(shape[1]), (shape[0], 1)), market.start[orders], market.end[orders]
    segments, session = market.segments, market.session[orders]
    if "rows" in causes:
        before = np.concatenate([np.zeros((shape[0], 1), dtype=int), market.present.cumsum(axis=1)], axis=1)
        start, end = before[session, start], before[session, end]
        close, volume = (_side_by_side(values, market.present, np.nan) for values in (close, volume))
        today, previous = (_side_by_side(values, market.present, 0.0) for values in (today, previous))
        clock = _side_by_side(clock, market.present, 0)
        segments = (("09:30", f"{9 + (30 + shape[1]) // 60:02d}:{(30 + shape[1]) % 60:02d}"),)
    true = close
    there = np.isfinite(volume)
    if "price_missing" in causes:
        close = np.where(there & ~(close > 0), 1.0, close)
    fields = {**dict.fromkeys(("open", "high", "low", "close"), close), "volume": volume}
    calendar = Calendar(segments=segments, weekdays=tuple(range(7)))
    whole = np.full(shape[0], shape[1], dtype=np.int32)
    sessions = Sessions(calendar, market.instruments, market.dates, whole, fields)
    engine = Engine(
        sessions, market.ticks_per_step, ExecutionRules.preset("qlib", volume_limit=market.volume_limit or None)
    )
    identity = Normaliser(_COLUMNS, np.zeros(len(_COLUMNS)), np.ones(len(_COLUMNS)))
    features = MarketFeatures(_COLUMNS, today, np.full(shape[0], -1), identity, sessions.fingerprint)
    sees, acts = FullHistoryStateInterpreter(features, market.max_step), CategoricalActionInterpreter(VALUES)
    simulator, reward = OrderExecution(engine), PAPenaltyReward(_PENALTY, weight="requested")
    batch = OrderBatch(
        {}, orders, session.astype(np.int32), market.side[orders].astype(np.int8), market.amount[orders],
        start.astype(np.int32), end.astype(np.int32),
    )  # fmt: skip
    state = ExecutionState.start(engine, batch)
    twap = state.benchmarks.twap
    if "price_missing" in causes:
        tick = np.arange(shape[1])
        window = (tick >= start[:, None]) & (tick < end[:, None])
        twap = np.nanmean(np.where(window, true[session], np.nan), axis=1)
    count = len(market.session)
    names = (*_STEP_NAMES, *_SCALARS)
    by_step = {name: np.full((count, market.max_step), np.nan) for name in names if name not in ("today", "previous")}
    by_step |= {name: np.zeros((count, market.max_step), dtype=np.int64) for name in ("today", "previous", "action")}
    by_step["history"] = np.full((count, market.max_step, market.max_step), np.nan, dtype=np.float32)
    taken, step, before_fill = np.zeros(count, dtype=np.int64), 0, np.zeros((len(orders), shape[1]))
    while not state.done.all():
        known, live = state.known, ~state.done
        at = orders[live]
        obs = {**sees.interpret(known), "data_processed_prev": previous[session]}
        if "last_step" in causes:
            obs["num_step"] = np.full(len(orders), market.max_step)
        action = policy.act(obs)
        request = acts.interpret(known, action)
        if "last_step" in causes:
            share = np.minimum(acts.shares[action] * known.amount, known.position)
            request = np.where(known.step >= market.max_step - 1, known.position, share)
        state = simulator.step(state, np.where(state.done, 0.0, request))
        record = state.tick_record().fill
        filled, before_fill = record - before_fill, record
        tick = np.arange(shape[1])
        ticks = (tick >= known.tick[:, None]) & (tick < state.known.tick[:, None]) & there[session]
        told = {"action": action, "request": request, "reward": sum(reward.reward(state.outcome).values())}
        average = _average(filled, true[session], ticks, causes)
        told |= {"fill": filled.sum(axis=1), "price": average, "pa": _pa(average, twap, batch.side, causes)}
        if {"price_missing", "no_fill"} & set(causes):
            nothing = np.where(batch.side > 0, 1e4, -1e4) if "no_fill" in causes else 0.0
            gained = np.where(told["fill"] > 0, np.nan_to_num(told["pa"]), nothing) * request / batch.amount
            told["reward"] = gained - _PENALTY * (filled**2).sum(axis=1) / batch.amount**2
        for name in _SCALARS:
            by_step[name][at, step] = obs[name][live]
        by_step["history"][at, step] = obs["position_history"][live]
        for name, block in (("today", obs["data_processed"]), ("previous", obs["data_processed_prev"])):
            by_step[name][at, step] = [_hash(one) for one in block[live]]
        for name, values in told.items():
            by_step[name][at, step] = values[live]
        taken[at] += 1
        step += 1
    fills = np.zeros((count, shape[1]))
    rows, places = np.nonzero(before_fill)
    fills[orders[rows], clock[session[rows], places]] = before_fill[rows, places]
    ticks = (np.arange(shape[1]) >= start[:, None]) & (np.arange(shape[1]) < state.known.tick[:, None]) & there[session]
    average = _average(before_fill, true[session], ticks, causes)
    ended = {"twap": twap, "price": average, "pa": _pa(average, twap, batch.side, causes)}
    ended["ffr"] = before_fill.sum(axis=1) / batch.amount
    spread = {name: np.full(count, np.nan) for name in ended}
    for name, values in ended.items():
        spread[name][orders] = values
    return Played(taken, fills, by_step, **spread)


def _pa(price: np.ndarray, twap: np.ndarray, side: np.ndarray, causes: tuple[str, ...]) -> np.ndarray:
    """Return price advantages in basis points; as Qlib has them where its prices are missing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        pa = np.where(side > 0, 1.0 - price / twap, price / twap - 1.0) * 1e4
    return np.nan_to_num(pa, nan=0.0) if "price_missing" in causes else pa


def _average(fill: np.ndarray, price: np.ndarray, ticks: np.ndarray, causes: tuple[str, ...]) -> np.ndarray:
    """Return the average price of each row's fills, of shape (N,); NaN where nothing was filled.

    Under ``price_missing`` it is missing where the price of any of the `ticks` is, even of one that filled nothing.
    """
    total, value = fill.sum(axis=1), np.where(fill > 0, fill * price, 0.0).sum(axis=1)
    if "price_missing" in causes:
        value[(ticks & np.isnan(price)).any(axis=1)] = np.nan
    return np.divide(value, total, out=np.full(len(total), np.nan), where=total > 0)


def _same(theirs: np.ndarray, ours: np.ndarray, slack: float | np.ndarray = 0.0) -> np.ndarray:
    """Return whether each row's numbers are the same up to rounding and `slack`, or missing on both sides."""
    with np.errstate(invalid="ignore"):
        near = np.abs(theirs - ours) <= _CLOSE * np.maximum(np.abs(theirs), np.abs(ours)) + slack
    same = near | (np.isnan(theirs) & np.isnan(ours))
    return np.asarray(same.reshape(len(same), -1).all(axis=1))


def compare(theirs: Played, ours: Played, amount: np.ndarray, *, stops_early: bool = False) -> dict[str, np.ndarray]:
    """Return by aspect whether each order is equal, bool of shape (N,).

    Where Qlib `stops_early`, the steps that it took are compared and no more.
    """
    taken = np.arange(theirs.by_step["action"].shape[1]) < theirs.count[:, None]
    shares = _CLOSE * amount[:, None]

    def step(name: str, slack: float | np.ndarray = 0.0) -> np.ndarray:
        pair = [side.by_step[name] for side in (theirs, ours)]
        if stops_early:
            pair = [np.where(taken.reshape(*taken.shape, *[1] * (one.ndim - 2)), one, 0) for one in pair]
        return np.asarray((pair[0] == pair[1]).all(axis=1)) if pair[0].dtype == np.int64 else _same(*pair, slack)

    ended = np.isfinite(theirs.ffr) & (not stops_early)
    whole = {
        name: ~ended | _same(getattr(theirs, name)[:, None], getattr(ours, name)[:, None], _BASIS) for name in _ENDED
    }
    fills = np.where(theirs.fills > 0, ours.fills, 0.0) if stops_early else ours.fills
    # Qlib states the price 0 for a step without a fill, rlwb none; a price is compared where there is one.
    unfilled = theirs.by_step["fill"] == 0
    prices = np.where(unfilled, theirs.by_step["price"] == 0.0, True).all(axis=1)
    for name, slack in (("price", 0.0), ("pa", _BASIS)):
        pair = [np.where(taken & ~unfilled, one.by_step[name], np.nan) for one in (theirs, ours)]
        prices &= _same(*pair, slack)
    exact = ("acquiring", "cur_tick", "cur_step", "num_step", "today", "previous")
    rounded = {"target": amount[:, None], "position": amount[:, None], "history": amount[:, None, None]}
    return {
        "steps": (theirs.count <= ours.count) if stops_early else (theirs.count == ours.count),
        "fills": step("request", shares) & step("fill", shares) & _same(theirs.fills, fills, shares) & whole["ffr"],
        "prices": prices & whole["twap"] & whole["pa"] & whole["price"],
        "rewards": step("reward", _BASIS),
        "observations": np.logical_and.reduce(
            [*map(step, exact), *(step(name, _SINGLE * size) for name, size in rounded.items())]
        ),
        "decisions": step("action"),
    }


def judge(market: Market, theirs: Played, errors: np.ndarray, policy: Any) -> tuple[list[str | None], dict[str, Any]]:
    """Return of each order "", the causes that explain it or None, and whether it is equal by aspect."""
    amount, orders = market.amount, np.arange(len(market.amount))
    plain = play(market, policy)
    aspects = compare(theirs, plain, amount)
    found: list[str | None] = ["" if equal else None for equal in np.logical_and.reduce(list(aspects.values()))]
    empty = ~_in_window(market, market.present)
    for i in orders[(errors == "IndexError") & empty & (plain.count == 0)]:
        found[i] = "empty"
    applies = {name: cause.applies(market, theirs) & (errors == "") for name, cause in CAUSES.items()}
    left = np.where(amount > 0, amount - theirs.fills.sum(axis=1), np.nan)
    early = (errors == "") & (left < _NOTHING) & (left > _CLOSE * amount)
    for count in range(len(CAUSES) + 1):
        for names in combinations(CAUSES, count):
            able = np.logical_and.reduce([np.ones(len(orders), dtype=bool), *(applies[name] for name in names)])
            open_ = able & np.array([one is None for one in found]) & (errors == "")
            if not open_.any():
                continue
            ours = play(market, policy, names) if names else plain
            for stops_early in (False, True):
                equal = np.logical_and.reduce(list(compare(theirs, ours, amount, stops_early=stops_early).values()))
                for i in orders[open_ & equal & (early if stops_early else True)]:
                    found[i] = ", ".join([*names, *(["tolerance"] if stops_early else [])])
    return found, aspects


def agree(folder: Path, markets: list[Market], python: Path, hidden: int) -> dict[str, Any]:
    """Let Qlib execute the markets' orders, then rlwb; return the figures that ``agreement.json`` holds."""
    names = [market.name.replace(" ", "_") for market in markets]
    for name, market in zip(names, markets, strict=True):
        market.write(folder / name)
    asked = {"markets": names, "values": VALUES, "penalty": _PENALTY, "hidden": hidden}
    run_job("peer.agreement", "run", folder, python=python, **asked)
    pairs = []
    for name, market in zip(names, markets, strict=True):
        with np.load(folder / name / "theirs.npz") as file:
            pairs.append((market, dict(file)))
    return figures(pairs, from_qlib(folder / "checkpoint.pth", VALUES).policy)


def figures(pairs: list[tuple[Market, dict[str, np.ndarray]]], policy: Any) -> dict[str, Any]:
    """Compare what Qlib did in each market with what rlwb does, and count."""
    explained: Counter[str] = Counter()
    rows, aspects = [], {name: Counter[str]() for name in ASPECTS}
    unexplained: list[dict[str, Any]] = []
    for market, found in pairs:
        theirs = played_by_qlib(found, market)
        causes, equal = judge(market, theirs, found["error"], policy)
        own = Counter(one for one in causes if one)
        explained += own
        missing = [i for i, one in enumerate(causes) if one is None]
        unexplained += [
            {"market": market.name, "order": i, "differs_in": [name for name in ASPECTS if not equal[name][i]]}
            for i in missing
        ]
        for name in ASPECTS:
            good = [bool(equal[name][i]) and causes[i] is not None for i in range(len(causes))]
            aspects[name]["equal"] += sum(good)
            aspects[name]["explained"] += sum(not one and causes[i] is not None for i, one in enumerate(good))
            aspects[name]["unexplained"] += len(missing)
        rows.append(
            {
                "market": market.name,
                "compared": len(causes),
                "equal": causes.count(""),
                "explained": dict(own),
                "unexplained": len(missing),
                "steps": int(theirs.count.sum()),
                "without_final_metrics_in_qlib": int(np.isnan(theirs.ffr).sum()),
            }
        )
    compared = sum(row["compared"] for row in rows)
    actions = np.concatenate([found["action"] for _, found in pairs])
    return {
        "compared": compared,
        "equal": sum(row["equal"] for row in rows),
        "explained": dict(sorted(explained.items())),
        "unexplained": len(unexplained),
        "causes": {**{name: cause.text for name, cause in CAUSES.items()}, **_TOLD},
        "aspects": {name: {"compared": compared, **dict(counts)} for name, counts in aspects.items()},
        "decisions_by_action": np.bincount(actions, minlength=len(VALUES)).tolist(),
        "markets": rows,
        "first_unexplained": unexplained[:20],
    }


def record(folder: Path, markets: list[Market]) -> None:
    """Keep the markets, what Qlib did in them, and its policy as the piece that the tests compare with."""
    kept: dict[str, Any] = {"names": np.array([market.name for market in markets])}
    for number, market in enumerate(markets):
        with np.load(folder / market.name.replace(" ", "_") / "theirs.npz") as file:
            kept |= {f"{number}/theirs/{name}": values for name, values in file.items()}
        kept |= {f"{number}/market/{name}": values for name, values in market.arrays().items()}
    weights = from_qlib(folder / "checkpoint.pth", VALUES).policy.network.state_dict()
    kept |= {f"weights/{name}": values.numpy() for name, values in weights.items()}
    with atomic_path(RECORDED) as target, target.open("wb") as file:
        np.savez_compressed(file, **kept)
    print(f"recorded in {RECORDED}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    peer_arguments(parser)
    parser.add_argument("--orders", type=int, default=300, help="of each of the eleven markets")
    parser.add_argument("--seed", type=int, default=0, help="of markets and orders")
    parser.add_argument("--record", action="store_true", help="also write the piece that the tests compare with")
    args = parser.parse_args()
    python = peer_python(args)
    if python is None:
        raise SystemExit("there is nothing to compare with without Qlib; leave --no-peer out.")
    with tempfile.TemporaryDirectory(prefix="rlwb-agreement-") as scratch:
        folder = Path(scratch)
        markets = make_markets(12 if args.quick else args.orders, args.seed)
        results = agree(folder / "all", markets, python, 32)
        if args.record:
            few = make_markets(_RECORDED_ORDERS, args.seed, days=2)
            results["recorded"] = agree(folder / "few", few, python, _RECORDED_HIDDEN)["compared"]
            record(folder / "few", few)
    out = results_file(args, "agreement")
    write_json(out, {**results, **context()})
    for row in results["markets"]:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    print({name: results[name] for name in ("compared", "equal", "explained", "unexplained")})
    print(f"written to {out}")
    raise SystemExit(1 if results["unexplained"] else 0)


if __name__ == "__main__":
    main()
