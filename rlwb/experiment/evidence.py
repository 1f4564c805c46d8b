"""Evidence on the choice of checkpoints: what was chosen beside what else could have been, on the test orders.

Nothing is chosen by it. Checkpoints beside the chosen are judged for this alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel

from rlwb.experiment.run import RunDirectory
from rlwb.files import atomic_path, write_json
from rlwb.reading import read_json
from rlwb.seeds import Stream, generator

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Selection
    from rlwb.evaluation.select import Checkpoint

MOST_JUDGED = 40
"""Most checkpoints that are judged on the test orders beside the chosen, evenly over the training."""


class Draws(BaseModel):
    """Names and types of the random choice in evidence.json, in basis points."""

    mean: float | None
    lo: float | None
    hi: float | None


class Evidence(BaseModel):
    """Names and types of evidence.json; null is what cannot be computed. PAs are in basis points.

    They are of the figure that checkpoints are chosen by: PA, net PA under rules with costs, or the objective's value.

    Attributes
    ----------
    chosen, last
        Mean of the chosen checkpoints, and of the last one, on the test orders.
    random
        The same of as many checkpoints drawn at random: its mean, and what 95 % of the draws lie within.
    count, distinct
        How many were chosen, and how many of them differ in the figures of any order.
    candidates, judged
        How many checkpoints they were chosen from, and how many of these were judged on the test orders: the chosen,
        and of all `MOST_JUDGED` evenly over the training.
    seen_shrinkage
        Mean validation less mean test of the chosen.
    expected_shrinkage
        The same if all candidates were equally good and noise alone chose among them.
    rank_correlation
        Spearman's correlation of validation and test over the candidates that were judged.
    overfitting_probability
        How often the best on one half of the test days is below the middle on the other.
    reality_check_p
        How often, if none were better than TWAP, the best of all would look as good as the chosen do on average.
    trials
        How many checkpoints that p-value counts.
    """

    chosen: float | None
    last: float | None
    random: Draws
    count: int
    distinct: int | None
    candidates: int
    judged: int
    seen_shrinkage: float | None
    expected_shrinkage: float | None
    rank_correlation: float | None
    overfitting_probability: float | None
    reality_check_p: float | None
    trials: int


def evenly(selection: Selection) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that stand for all that could have been chosen, the chosen among them or not."""
    from rlwb.evaluation.select import spread

    return spread(selection.candidates, MOST_JUDGED)


def brief(one: PolicyResult) -> PolicyResult:
    """Return a result with what evidence is made of alone: of many checkpoints all columns would fill the memory."""
    columns = [name for name in one.orders if name in ("order_id", "instrument", "date", "pa", "pa_net", "ffr")]
    return replace(one, orders=one.orders[columns].copy(), inventory=None)


def write_evidence(
    run: RunDirectory,
    results: Sequence[PolicyResult],
    others: Sequence[PolicyResult],
    selection: Selection,
    *,
    distinct: int,
    expected_shrinkage: float,
    seed: int,
    resamples: int,
) -> None:
    """Write ``backtest/evidence.json``, and ``candidates.csv`` with a row for each checkpoint that was judged.

    Parameters
    ----------
    results
        Those of the backtest.
    others
        Checkpoints beside the chosen, on the same orders.
    distinct, expected_shrinkage
        As in `Evidence`.
    seed, resamples
        Of the bootstrap over days and of the random choice.
    """
    from rlwb.evaluation.overfitting import random_choice, rank_correlation, superiority
    from rlwb.evaluation.results import mean, of_kind, twap_of

    chosen, last = of_kind(results, "checkpoint"), of_kind(results, "last")[0]
    judged = sorted([*chosen, *others], key=lambda one: one.iteration or 0)
    rows = [
        {
            "iteration": one.iteration,
            "validation_pa": one.validation_pa,
            "test_pa": mean(one.judged),
            "is_chosen": any(one is other for other in chosen),
        }
        for one in judged
    ]
    table = pd.DataFrame(rows)
    is_whole = len(selection.candidates) == selection.ranked  # an evaluation has copies of the chosen alone
    count, even = len(chosen), table["iteration"].isin([one.iteration for one in evenly(selection)]).to_numpy()
    validated, tested = (table.loc[even, name].to_numpy() for name in ("validation_pa", "test_pa"))
    spans = random_choice(tested, count, generator(seed, Stream.EVIDENCE)) if is_whole else (None, None, None)
    own = float(np.mean([mean(one.judged) for one in chosen]))
    validation = float(np.mean([one.validation_pa for one in chosen]))
    twap = twap_of(results)
    p = None
    if twap is not None and is_whole:
        excess = np.stack([one.judged - twap.values(one.judged_by, one) for one in judged], axis=1)
        ours = excess[:, table["is_chosen"].to_numpy()].mean(axis=1)
        known = superiority(
            np.column_stack([excess, ours]), judged[0].dates, np.random.default_rng(seed), resamples=resamples
        )
        p = known[-1]
    found = {
        "chosen": own,
        "last": mean(last.judged),
        "random": dict(zip(("mean", "lo", "hi"), spans, strict=True)),
        "count": count,
        "distinct": distinct,
        "candidates": selection.ranked,
        "judged": len(judged),
        "seen_shrinkage": validation - own,
        "expected_shrinkage": expected_shrinkage,
        "rank_correlation": rank_correlation(validated, tested) if is_whole else None,
        "overfitting_probability": _overfitting(judged) if is_whole else None,
        "reality_check_p": p,
        "trials": len(judged) if p is not None else 0,
    }
    with atomic_path(run.backtest / "candidates.csv") as target:
        table.to_csv(target, index=False)
    write_json(run.backtest / "evidence.json", found)


def _overfitting(judged: Sequence[PolicyResult]) -> float | None:
    """Return the probability of overfitting over policies; None where there are too few days or policies."""
    from rlwb.evaluation.overfitting import overfitting_probability

    days = pd.DataFrame({number: pd.Series(one.judged, one.dates) for number, one in enumerate(judged)})
    days = days.dropna().groupby(level=0).mean()
    blocks = min(10, len(days) // 2 * 2)
    if blocks < 6 or len(judged) < 2:
        return None
    return overfitting_probability(days.to_numpy(), blocks=blocks).probability


def read_evidence(run: RunDirectory) -> dict[str, Any] | None:
    """Return ``backtest/evidence.json``; None where there is none, as in a run of an earlier version."""
    path = run.backtest / "evidence.json"
    found: dict[str, Any] | None = read_json(path, Evidence) if path.exists() else None
    return found


def evidence_table(run: RunDirectory) -> pd.DataFrame | None:
    """Return the evidence as people read it: what, figure, and what that says; None where there is none."""
    found = read_evidence(run)
    return None if found is None else pd.DataFrame(_rows(found), columns=["evidence", "figure", "what it says"])


def _rows(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    count, tried, judged = found["count"], found["candidates"], found["judged"]
    chosen = f"{count} chosen" if count > 1 else "one chosen"
    spread = found["random"]
    span = "" if spread["lo"] is None else f" [{spread['lo']:z.2f}, {spread['hi']:z.2f}]"
    rest = "" if judged >= tried else f" (of {MOST_JUDGED} evenly over the training)"
    return [
        (f"the {chosen}, on the test orders", _bp(found["chosen"]), f"the best of {tried} by validation"),
        ("the last checkpoint", _bp(found["last"]), "nothing was chosen: no luck of a choice is in it"),
        (
            f"{count} drawn at random{rest}",
            _bp(spread["mean"]) + span,
            "the brackets hold 95 % of such draws; chosen ones within them are no better than a draw",
        ),
        ("chosen ones that differ", f"{found['distinct']} of {count}", "checkpoints that trade alike are one"),
        (
            "fall from validation to test, seen",
            _bp(found["seen_shrinkage"]),
            "also holds how the test days differ from the validation days",
        ),
        ("fall that luck alone would give", _bp(found["expected_shrinkage"]), "if all checkpoints were equally good"),
        (
            "rank correlation of validation and test",
            _plain(found["rank_correlation"]),
            "1: validation tells which checkpoints are good; 0: it does not",
        ),
        (
            "probability of backtest overfitting",
            _plain(found["overfitting_probability"]),
            "how often the best on half the test days is below the middle on the rest; 0.5: a choice of noise",
        ),
        (
            "p-value against TWAP",
            _probability(found["reality_check_p"]),
            f"were none better than TWAP, how often the best of {found['trials']} would look as good as the chosen do",
        ),
    ]


def _probability(value: float | None) -> str:
    return "below 0.001" if value is not None and value < 0.0005 else _plain(value, 3)


def _bp(value: float | None) -> str:
    return "-" if value is None else f"{value:z.2f} bp"


def _plain(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:z.{digits}f}"
