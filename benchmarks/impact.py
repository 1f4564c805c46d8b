"""Whether impact that was planted in fills is found again, and what a real order book says: ``make impact-fit``."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.evaluation.impact import SHAPES, book_walk, designs, fit_impact, fit_shape
from rlwb.execution import Engine, ExecutionRules, TickRecord, align_orders
from rlwb.execution.fills import FILL_COLUMNS
from rlwb.files import write_json
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions

_OUT = RESULTS.with_name("impact.json")
#: Orders, of five a day.
SIZES = (200, 500, 1000)
REPETITIONS = 40
#: What is planted; the spread in bp, impact in bp at a tick's whole volume.
PLANTED = {"half_spread_bps": 3.0, "temporary_impact_bps": 80.0, "permanent_impact_bps": 40.0}
DECAY_MINUTES = 10.0
#: What is planted where impact is transient, and the shape that goes with each decay.
PASSING = {
    "half_spread_bps": 3.0,
    "transient_impact_bps": 80.0,
    "transient_half_life": 10.0,
    "permanent_impact_bps": 40.0,
}
DECAYS = {"power": "square_root", "exponential": "linear"}
#: Sizes that walk the book, as shares of the instrument's median volume of a minute, and how many books must hold them.
WALKS, LEAST_BOOKS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48), 0.95
_COUNTS = ("right_shape", "recovered")
#: A run: shape, orders, decay in minutes, decay of transient impact or "", seed.
_Task = tuple[str, int, float, str, int]


@dataclass(frozen=True)
class Trading:
    """How the planted orders trade, and what disturbs their prices.

    Attributes
    ----------
    orders, instruments
        One order a session; orders is a multiple of instruments.
    share, spread_of_shares
        Median share of a tick's volume, and the deviation of its logarithm, between orders and between ticks.
    noise_bps
        Deviation of each fill's price beside the market's.
    decay_minutes
        Time in which the temporary move falls to 1/e in the bars; 0 where it is gone at once, as the engine has it.
    """

    orders: int = 500
    instruments: int = 5
    share: float = 0.06
    spread_of_shares: float = 0.8
    noise_bps: float = 3.0
    decay_minutes: float = 0.0


def planted_fills(rules: ExecutionRules, trading: Trading, seed: int) -> tuple[pd.DataFrame, Sessions]:
    """Return fills that the engine made under `rules`, and bars that hold the market moved by them.

    Orders of random side, begin and length take random shares of the volume of each tick. The bars' prices are those of
    a market without a signal, moved along the order's side by its permanent impact, and by what is left of the
    temporary one.
    """
    rng = np.random.default_rng(seed)
    days = trading.orders // trading.instruments
    settings = SyntheticSettings(instruments=trading.instruments, days=days, signal=0.0, seed=seed)
    market = synthetic_sessions(settings)
    count, ticks = len(market), market.calendar.num_ticks
    start = rng.integers(3, ticks - 18, count)
    end = start + rng.integers(2, 10, count)
    within = (np.arange(ticks) >= start[:, None]) & (np.arange(ticks) < end[:, None])
    size = rng.normal(size=(count, 1)) + rng.normal(size=(count, ticks)) * 0.7
    shares = np.minimum(trading.share * np.exp(trading.spread_of_shares * size), 0.9) * within
    wanted = shares * np.nan_to_num(market.fields["volume"])
    stamps = market.dates[:, None] + market.calendar.tick_start.astype("m8[s]")
    side = rng.choice([-1, 1], count)
    table = pd.DataFrame(
        {
            "order_id": np.arange(count).astype(str),
            "instrument": market.instruments,
            "date": market.dates,
            "direction": np.where(side > 0, "BUY", "SELL"),
            "amount": wanted.sum(axis=1) * 2,
            "start": stamps[np.arange(count), start],
            "end": stamps[np.arange(count), end],
        }
    )
    orders = align_orders(table, market)
    engine = Engine(market, 1, rules)
    state, record = engine.reset(orders), TickRecord.empty(count, ticks)
    for _ in range(engine.max_step):
        asked = wanted[np.arange(count), np.minimum(state.tick, ticks - 1)]
        state, _ = engine.step(orders, state, np.where(state.done, 0.0, asked), record)
    fill, price = record.fill, engine.price
    with np.errstate(invalid="ignore"):
        worse = record.cost / (fill * price) + rules.half_spread_bps / 1e4
    share = fill / np.maximum(market.fields["volume"], 1.0)
    minutes = market.calendar.tick_seconds / 60
    left = _transient(share, rules, np.exp(-minutes / trading.decay_minutes) if trading.decay_minutes else 0.0)
    worse = worse + (left - SHAPES[rules.temporary_impact_shape](share) * rules.temporary_impact_bps) / 1e4
    noise = rng.normal(0.0, trading.noise_bps / 1e4, fill.shape)
    paid = price * (1.0 + side[:, None] * worse + noise)
    order, tick = np.nonzero(fill)
    moment = stamps[order, tick] + rng.integers(0, market.calendar.tick_seconds, len(order)).astype("m8[s]")
    fills = pd.DataFrame(
        {
            "order_id": order.astype(str),
            "instrument": market.instruments[order],
            "side": side[order].astype(np.int8),
            "time": moment.astype("M8[ns]"),
            "quantity": fill[order, tick],
            "price": paid[order, tick],
        }
    )
    stays = np.cumsum(SHAPES[rules.permanent_impact_shape](share), axis=1) * rules.permanent_impact_bps
    if rules.transient_impact_bps:  # whose remainder is in what the engine charged already
        moves = SHAPES[rules.transient_impact_shape or "square_root"](share) * rules.transient_impact_bps
        since = np.arange(ticks) - np.arange(ticks)[:, None]
        stays = stays + moves @ np.where(since < 0, 0.0, rules.transient_left(since.clip(0) * minutes))
    after = 1.0 + side[:, None] * (stays + (left if trading.decay_minutes else 0.0)) / 1e4
    before = np.concatenate([np.ones((count, 1)), after[:, :-1]], axis=1)
    prices = {name: market.fields[name] * after for name in ("high", "low", "close")}
    fields = {**market.fields, **prices, "open": market.fields["open"] * before}
    moved = Sessions(market.calendar, market.instruments, market.dates, market.num_ticks, fields)
    return fills.reindex(columns=list(FILL_COLUMNS)), moved


def _transient(share: np.ndarray, rules: ExecutionRules, kept: float) -> np.ndarray:
    """Return the temporary move at each tick's end in bp, of which `kept` is left a tick later; of shape (N, T)."""
    left = SHAPES[rules.temporary_impact_shape](share) * rules.temporary_impact_bps
    for tick in range(1, share.shape[1]):
        left[:, tick] += kept * left[:, tick - 1]
    return left


def measure(tasks: Sequence[_Task], *, jobs: int = 1, resamples: int = 1000) -> list[dict[str, Any]]:
    """Return one row a run and parameter: what was planted and what was found."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = tqdm(pool.map(partial(_run, resamples), tasks), total=len(tasks), unit="fit", mininterval=5)
        return [row for rows in runs for row in rows]


def _run(resamples: int, task: _Task) -> list[dict[str, Any]]:
    shape, orders, decay, transient, seed = task
    rules = passing_rules(transient) if transient else planted_rules(shape)
    fills, bars = planted_fills(rules, Trading(orders=orders, decay_minutes=decay), seed)
    asked: Any = transient or None
    fit = fit_impact(fills, bars, np.random.default_rng(seed), transient=asked, resamples=resamples)
    rows = []
    planted = {**(PASSING if transient else PLANTED), "drift_bps": 0.0, **({"decay_minutes": decay} if decay else {})}
    for name, value in planted.items():
        one = fit.estimates[name]
        row = {"shape": shape, "orders": orders, "days": fit.days, "decay": decay, "transient": transient}
        row |= {"seed": seed, "parameter": name}
        right = fit.shapes.get(name.removesuffix("_bps"), shape) == shape
        found = {"planted": value, "estimate": one.interval.estimate, "lo": one.interval.lo, "hi": one.interval.hi}
        held = bool(one.interval.lo <= value <= one.interval.hi)
        rows.append({**row, **found, "right_shape": right, "held": held, "found": not one.lacks})
    return rows


def planted_rules(shape: Any) -> ExecutionRules:
    """Return the rules that are planted, both impacts of one shape."""
    free: dict[str, Any] = {"volume_limit": 1.0, "complete_at_end": False, "catch_up": False}
    return ExecutionRules(temporary_impact_shape=shape, permanent_impact_shape=shape, **free, **PLANTED)


def passing_rules(decay: Any) -> ExecutionRules:
    """Return the rules with transient impact that are planted, permanent impact of its shape beside it."""
    free: dict[str, Any] = {"volume_limit": 1.0, "complete_at_end": False, "catch_up": False}
    shapes: dict[str, Any] = dict.fromkeys(("transient_impact_shape", "permanent_impact_shape"), DECAYS[decay])
    return ExecutionRules(transient_decay=decay, **shapes, **free, **PASSING)


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a cell and parameter: how many of the repetitions were recovered.

    Recovered is a run that chose the planted shape and whose interval holds the planted value.
    """
    table = pd.DataFrame(rows)
    table["recovered"] = table["right_shape"] & table["held"]
    table["width"] = table["hi"] - table["lo"]
    cells = table.groupby(["decay", "transient", "shape", "orders", "days", "parameter", "planted"], sort=False)
    sums = cells[["recovered", "held", "right_shape", "found"]].sum()
    rest = cells.agg(repetitions=("seed", "size"), estimate=("estimate", "median"), width=("width", "median"))
    return sums.join(rest).reset_index().to_dict("records")


def book_rows(folder: Path, rng: np.random.Generator, *, resamples: int = 2000) -> list[dict[str, Any]]:
    """Return one row an instrument and side: the cost of walking the book by size, fitted by the shapes of the rules.

    Sizes are shares of the instrument's median volume of a minute, costs those above the mid less the half spread of
    the same book, and half hours are the blocks that are drawn and left out. The exponent is that of ``b * share **
    exponent`` by least squares.
    """
    rows = []
    for path in sorted(folder.glob("book_1s_*.parquet")):
        name = path.stem.rpartition("_")[2]
        book = pd.read_parquet(path).iloc[::10]
        volume = float(pd.read_parquet(folder / f"bars_1min_{name}.parquet")["volume"].median())
        block = (book["datetime"].dt.hour * 2 + book["datetime"].dt.minute // 30).to_numpy().astype("M8[D]")
        sizes = np.ceil(np.array(WALKS) * volume)
        for side in (1, -1):
            cost = book_walk(book, sizes, side) - book_walk(book, np.array([1e-9]), side)
            deep = np.isfinite(cost).mean(axis=0) >= LEAST_BOOKS
            kept = np.isfinite(cost[:, deep]).all(axis=1)
            share, days = np.tile(sizes[deep] / volume, kept.sum()), np.repeat(block[kept], deep.sum())
            walked = cost[kept][:, deep].ravel()
            designed = designs({shape: f(share) for shape, f in SHAPES.items()})
            settings: Any = {"robust": False, "rng": rng, "resamples": resamples}
            coefficients, best, r2 = fit_shape(designed, walked, np.ones(len(walked)), days, **settings)
            power = least_squares(_power, [1.0, 1.0], args=(share, walked))
            rows.append(
                {
                    "instrument": name,
                    "side": "buy" if side > 0 else "sell",
                    "books": int(kept.sum()),
                    "minute_volume": volume,
                    "sizes": sizes[deep].astype(int).tolist(),
                    "mean_bps": cost[kept][:, deep].mean(axis=0).round(4).tolist(),
                    "shape": best,
                    "slope_bps": [coefficients[1].estimate, coefficients[1].lo, coefficients[1].hi],
                    "r2": r2,
                    "exponent": float(power.x[1]),
                }
            )
    return rows


def _power(parameters: np.ndarray, share: np.ndarray, cost: np.ndarray) -> np.ndarray:
    return np.asarray(parameters[0] * share ** parameters[1] - cost)


def markdown(cells: Sequence[dict[str, Any]]) -> str:
    """Return the recoveries in a Markdown table, a line a cell and parameter.

    A decay is that of transient impact, or the minutes in which temporary impact falls to 1/e.
    """
    lines = [
        "| decay | shape | orders | days | parameter | planted | median | width | right shape | recovered |",
        "|--:|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for one in cells:
        of = f"of {one['repetitions']}"
        decay = one["transient"] or f"{one['decay']:g}"
        named = [decay, one["shape"], str(one["orders"]), str(one["days"]), one["parameter"]]
        figures = [f"{one[name]:.3g}" for name in ("planted", "estimate", "width")]
        lines.append("| " + " | ".join([*named, *figures, *(f"{one[k]} {of}" for k in _COUNTS)]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two repetitions of the smallest sample")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time")
    parser.add_argument("--book", type=Path, help="a folder with book_1s_NAME.parquet and bars_1min_NAME.parquet")
    parser.add_argument("--out", type=Path, help="where the rows go; results/impact.json by default")
    args = parser.parse_args()
    sizes, seeds = (SIZES[:1], range(2)) if args.quick else (SIZES, range(REPETITIONS))
    middle = sizes[len(sizes) // 2]
    tasks = [(shape, orders, 0.0, "", seed) for shape in SHAPES for orders in sizes for seed in seeds]
    tasks += [("linear", middle, DECAY_MINUTES, "", seed) for seed in seeds]
    tasks += [(DECAYS[decay], orders, 0.0, decay, seed) for decay in DECAYS for orders in sizes for seed in seeds]
    out = args.out or (_OUT.with_name("impact-quick.json") if args.quick else _OUT)
    kept = json.loads(out.read_text(encoding="utf-8"))["book"] if out.exists() else []
    began = time.perf_counter()
    cells = summary(measure(tasks, jobs=args.jobs))
    book = book_rows(args.book, np.random.default_rng(0)) if args.book else kept
    about = {**context(), "seconds": round(time.perf_counter() - began)}
    write_json(out, {"about": about, "planted": cells, "book": book})
    print(markdown(cells))


if __name__ == "__main__":
    main()
