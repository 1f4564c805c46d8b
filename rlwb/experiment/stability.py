"""The stability of a run's result: tables by groups of orders and of drift, and the worst days with their orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from rlwb.experiment.backtest import interval_of, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import stage_progress
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import PROGRESS, RunDirectory
from rlwb.files import atomic_path
from rlwb.reading import read_table

FOLDER = "stability"


def write_stability(run: RunDirectory, config: RunConfig) -> None:
    """Write ``stability/groups.csv``, net PA by groups of orders, and ``stability/drift.csv``, over the test days."""
    from rlwb.evaluation import headline_groups
    from rlwb.evaluation.metrics import short_title
    from rlwb.evaluation.stability import drift_table, stability_labels, stability_table

    bench = workbench(run, config)
    orders = bench.align(load_orders(run, bench, "test"), bench.objective.middle)
    groups = {name: one for name, one in headline_groups(read_results(run)).items() if one[0].kind != "ceiling"}
    titles = {name: short_title(name, one) for name, one in groups.items()}
    ids = orders.table["order_id"].to_numpy()
    labels, steps = stability_labels(bench.engine, orders), bench.engine.num_steps(orders)
    settings: dict[str, Any] = {"titles": titles, **interval_of(config)}
    with stage_progress("policy", len(groups), "stability", run.path / PROGRESS) as progress:

        def told(name: str, pa: float) -> None:
            progress.step({"net PA": f"{pa:z.2f} bp ({titles[name]})"})

        by_groups = stability_table(groups, labels, ids, steps, **settings, each=told)
    tables = {"groups": by_groups, "drift": drift_table(groups, **settings)}
    for name, table in tables.items():
        with atomic_path(run.path / FOLDER / f"{name}.csv") as target:
            table.to_csv(target, index=False)


def read_stability(run: RunDirectory) -> pd.DataFrame | None:
    """Return ``stability/groups.csv``, one row a group and policy; None where it is not there, as in older runs."""
    path = run.path / FOLDER / "groups.csv"
    if not path.exists():
        return None
    ends = [f"{name}{end}" for name in ("judged", "over_rest") for end in ("", "_lo", "_hi")]
    numbers, texts = [*ends, "p", "p_adjusted", "orders", "days"], ["by", "group", "policy", "title", "kind"]
    return read_table(path, ("by", "group", "policy"), numbers=numbers, texts=texts)


def read_drift(run: RunDirectory) -> pd.DataFrame | None:
    """Return ``stability/drift.csv``, one row a policy; None where it is not there."""
    path = run.path / FOLDER / "drift.csv"
    if not path.exists():
        return None
    numbers = ["slope", "slope_lo", "slope_hi", "p", "p_adjusted", "first_half", "second_half", "orders", "days"]
    return read_table(path, "policy", numbers=numbers, texts=["policy", "title", "kind"])


def stability_view(run: RunDirectory) -> pd.DataFrame:
    """Return the chosen checkpoints' groups as people read them, those that differ most from the rest first."""
    table = read_stability(run)
    if table is None:
        return pd.DataFrame()
    own = table[table["kind"] == "checkpoint"].sort_values(["p_adjusted", "p"], kind="stable")
    titles = {
        "by": "by",
        "group": "group",
        "orders": "orders",
        "days": "days",
        "judged": "net PA",
        "judged_lo": "low",
        "judged_hi": "high",
        "over_rest": "over the rest",
        "over_rest_lo": "its low",
        "over_rest_hi": "its high",
        "p": "p",
        "p_adjusted": "adjusted p",
    }
    return own[[*titles]].rename(columns=titles).set_index(["by", "group"])


def stability_sentences(run: RunDirectory, most: int = 5) -> list[str]:
    """Say in plain sentences which groups of orders differ from the rest, and whether the result drifts."""
    table, drift = read_stability(run), read_drift(run)
    if table is None or drift is None:
        return []
    own = table[(table["kind"] == "checkpoint") & table["over_rest"].notna()]
    apart = own[own["p_adjusted"] <= 0.05].sort_values("p_adjusted")
    if apart.empty:
        text = (
            f"None of {len(own)} groups of orders, by side, size, window, month, instrument, volatility and time of "
            "trading, differs from the rest by more than chance, corrected for their number."
        )
    else:
        told = [
            f"{row.by} {row.group}: {row.judged:z.2f} bp, {row.over_rest:+.2f} bp over the rest (adjusted p "
            f"{row.p_adjusted:.3f})"
            for row in apart.head(most).itertuples()
        ]
        more = f" and {len(apart) - most} more" if len(apart) > most else ""
        count = f"Of {len(own)} groups of orders {len(apart)} differ from the rest by more than chance"
        text = f"{count}: {'; '.join(told)}{more}."
    found = [text]
    chosen = drift[drift["kind"] == "checkpoint"].iloc[0]
    if np.isfinite(chosen["p"]):
        moves = "drifts" if chosen["p"] <= 0.05 else "shows no drift beyond chance"
        found.append(
            f"Over the {chosen['days']:.0f} test days the net PA of the chosen checkpoints {moves}: "
            f"{20 * chosen['slope']:+.2f} bp in 20 days, interval [{20 * chosen['slope_lo']:z.2f}, "
            f"{20 * chosen['slope_hi']:z.2f}]; {chosen['first_half']:z.2f} bp in the first half, "
            f"{chosen['second_half']:z.2f} in the second."
        )
    return found


def worst_orders(run: RunDirectory, count: int = 3, most: int = 5) -> pd.DataFrame:
    """Return the worst orders of the chosen checkpoints' worst days, one row an order, worst day and order first.

    Columns are `day`, `order_id`, `instrument`, `direction`, `amount`, what the checkpoints filled on average (`ffr`,
    `price` beside `arrival` and `twap`), their net PA against arrival, and that of TWAP.

    Parameters
    ----------
    count, most
        Days, and orders of each.
    """
    from rlwb.evaluation.frontier import against_arrival
    from rlwb.evaluation.results import day_matrix, twap_of

    results = read_results(run)
    chosen = [against_arrival(one) for one in results if one.kind == "checkpoint"]
    days = day_matrix(chosen).mean(axis=1).sort_values(kind="stable").index[:count]
    first = chosen[0].orders
    own = first[["date", "order_id", "instrument", "direction", "amount", "arrival", "twap"]].copy()
    for name in ("ffr", "price"):
        own[name] = np.mean([one.values(name, chosen[0]) for one in chosen], axis=0)
    own["net PA over arrival, bp"] = np.mean([one.values("pa", chosen[0]) for one in chosen], axis=0)
    twap = twap_of(results)
    own["TWAP's, bp"] = np.nan if twap is None else against_arrival(twap).values("pa", chosen[0])
    parts = [
        own[own["date"].to_numpy().astype("M8[D]") == day].nsmallest(most, "net PA over arrival, bp") for day in days
    ]
    table = pd.concat(parts).rename(columns={"date": "day"})
    return table.assign(day=table["day"].astype("M8[s]").dt.date).set_index(["day", "order_id"]).round(4)
