"""The market and the orders that both sides run on, made once and written in a form that both read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.schedule import Schedule
from rlwb.execution import OrderSettings, SplitSettings, generate_orders, split_orders
from rlwb.market import FeatureSettings, MarketFeatures, Sessions
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions

#: The peer infers names from the number of features and wants this sequence.
COLUMNS = ("high", "low", "open", "close", "volume")


def make_sessions(schedule: Schedule) -> Sessions:
    """Return the market of a schedule."""
    settings = SyntheticSettings(
        instruments=schedule.instruments,
        days=schedule.days,
        session="cn",
        tick_minutes=240 // schedule.ticks,
        seed=schedule.seed,
    )
    return synthetic_sessions(settings)


def make_features(sessions: Sessions, train: pd.DataFrame) -> MarketFeatures:
    """Return the features, in the peer's sequence of columns, normalised by the days of the training orders."""
    days = train["date"].to_numpy().astype("datetime64[D]")
    return MarketFeatures.build(sessions, FeatureSettings(columns=COLUMNS), fit_rows=np.isin(sessions.dates, days))


def make_orders(sessions: Sessions, schedule: Schedule) -> dict[str, pd.DataFrame]:
    """Return the orders by part, each over a whole session: ``train``, and ``valid`` where the schedule splits them.

    Without a split there is one sell order a session, in a random sequence. No two share a session: sharing is where
    rlwb gains most.
    """
    if schedule.split:
        parts = split_orders(generate_orders(sessions, OrderSettings(), seed=schedule.seed), SplitSettings())
        return {name: parts[name] for name in ("train", "valid")}
    orders = generate_orders(sessions, OrderSettings(directions=("SELL",)), seed=schedule.seed)
    return {"train": orders.sample(frac=1.0, random_state=schedule.seed, ignore_index=True)}


def write_market(schedule: Schedule, folder: Path) -> None:
    """Write schedule, market and orders to `folder`: JSON and NumPy's format, which need no other package."""
    folder.mkdir(parents=True, exist_ok=True)
    schedule.write(folder)
    sessions = make_sessions(schedule)
    orders = make_orders(sessions, schedule)
    features = make_features(sessions, orders["train"])
    tables = {
        f"{part}_{name}": values
        for part, table in orders.items()
        for name, values in {
            "instrument": table["instrument"].to_numpy().astype(str),
            "date": table["date"].to_numpy().astype("datetime64[D]"),
            "amount": table["amount"].to_numpy(),
            "buy": (table["direction"] == "BUY").to_numpy(),
        }.items()
    }
    np.savez(
        folder / "market.npz",
        instruments=sessions.instruments.astype(str),
        dates=sessions.dates.astype("datetime64[D]"),
        tick_seconds=sessions.calendar.tick_start,
        close=sessions.fields["close"],
        volume=sessions.fields["volume"],
        today=features.today,
        previous=features.block_previous(np.arange(len(sessions))),
        **tables,
    )
