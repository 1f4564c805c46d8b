"""The stress matrix judged, on hand-made results."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.evaluation.stress import STRESS_COLUMNS, stress_table, stress_verdicts
from rlwb.evaluation.stress_plots import stress_curves, stress_map

DAYS, EACH = 24, 4
SETTINGS = {"resamples": 400, "seed": 2}
PLACES = {"base": ("base", 0.0), "worse": ("spread", 1.0), "some days": ("regime", None)}
NOISE = np.random.default_rng(0).standard_normal((3, DAYS * EACH))
KINDS = {"checkpoint-1": "checkpoint", "checkpoint-2": "checkpoint", "twap": "baseline", "rule": "baseline"}


def frame(**net: np.ndarray | float) -> pd.DataFrame:
    """Return what policies' orders came to, by policy with ``_`` for ``-``."""
    day = np.repeat(np.datetime64("2024-01-01") + np.arange(DAYS), EACH)
    ids = [f"o{number}" for number in range(DAYS * EACH)]
    parts = [
        pd.DataFrame({"order_id": ids, "date": day, "pa_net": values, "ffr": 1.0}).assign(
            policy=name.replace("_", "-"), kind=KINDS.get(name.replace("_", "-"), "ceiling")
        )
        for name, values in net.items()
    ]
    return pd.concat(parts, ignore_index=True)


def matrix() -> dict[str, pd.DataFrame]:
    """Return a base in which the checkpoints gain 10 and 12 bp and the rule 5, and one in which they lose all of it."""
    chosen = {"checkpoint_1": 10.0 + NOISE[0], "checkpoint_2": 12.0 + NOISE[1]}
    base = frame(**chosen, twap=0.0, rule=5.0 + NOISE[2], hindsight=90.0)
    worse = frame(**{name: one - 20.0 for name, one in chosen.items()}, twap=-1.0, rule=4.0 + NOISE[2], hindsight=89.0)
    some = base[base["date"] < np.datetime64("2024-01-13")].reset_index(drop=True)
    return {"base": base, "worse": worse, "some days": some}


def test_a_condition_that_breaks_the_winner_says_so() -> None:
    found = stress_table(matrix(), PLACES, **SETTINGS)
    assert found.winner == "checkpoints"
    assert found.table.columns.tolist() == list(STRESS_COLUMNS)
    verdicts = stress_verdicts(found.table, found.winner).set_index("condition")
    assert verdicts["verdict"].to_dict() == {"base": "stays", "worse": "beaten", "some days": "stays"}
    assert verdicts["best"].to_dict() == {"base": "checkpoints", "worse": "rule", "some days": "checkpoints"}
    assert verdicts["stays"].to_dict() == {"base": 1.0, "worse": 0.0, "some days": 1.0}
    assert found.everywhere == 0.0
    without = {name: one for name, one in matrix().items() if name != "worse"}
    assert stress_table(without, PLACES, **SETTINGS).everywhere == 1.0


def test_figures_are_those_of_the_orders_with_checkpoints_as_one() -> None:
    results = matrix()
    table = stress_table(results, PLACES, **SETTINGS).table.set_index(["condition", "policy", "metric"])
    chosen = (22.0 + NOISE[0] + NOISE[1]) / 2
    estimate = table["estimate"]
    assert estimate["base", "checkpoints", "pa_net"] == pytest.approx(chosen.mean())
    assert estimate["worse", "checkpoints", "net_over_twap"] == pytest.approx(chosen.mean() - 19.0)
    assert estimate["worse", "rule", "over_winner"] == pytest.approx((4.0 + NOISE[2] - chosen + 20.0).mean())
    assert estimate["base", "checkpoints", "ffr"] == 1.0
    worst = [np.sort(one)[: DAYS * EACH // 20].mean() for one in (10.0 + NOISE[0], 12.0 + NOISE[1])]
    count = DAYS * EACH * 0.05 - DAYS * EACH // 20  # a part of the next order
    exact = [
        (np.sort(one)[: DAYS * EACH // 20].sum() + count * np.sort(one)[DAYS * EACH // 20]) / (DAYS * EACH * 0.05)
        for one in (10.0 + NOISE[0], 12.0 + NOISE[1])
    ]
    assert min(worst) < estimate["base", "checkpoints", "cvar"] == pytest.approx(np.mean(exact))
    assert table.loc[("some days", "twap", "pa_net"), "days"] == 12
    assert table.loc[("some days", "twap", "pa_net"), "orders"] == 12 * EACH


def test_ceilings_do_not_contend_and_what_is_compared_with_itself_is_not_tested() -> None:
    table = stress_table(matrix(), PLACES, **SETTINGS).table
    first = table[table["metric"] == "first"]
    assert set(first["policy"]) == {"checkpoints", "twap", "rule"}
    assert first.groupby("condition")["estimate"].sum().tolist() == pytest.approx([1.0] * 3)
    over = table[table["metric"] == "net_over_twap"].set_index(["condition", "policy"])
    assert np.isnan(over.loc[("base", "twap"), "p"])
    assert np.isfinite(over.loc[("base", "rule"), "p"])
    assert "hindsight" not in set(table[table["metric"] == "over_winner"]["policy"])
    adjusted = over.loc[over["p"].notna(), ["p", "p_adjusted"]]
    assert (adjusted["p_adjusted"] >= adjusted["p"]).all()


def test_policies_that_are_alike_lead_and_share_the_first_place() -> None:
    gain = 3.0 + NOISE[0]
    results = {"base": frame(checkpoint_1=gain, twap=0.0, rule=gain)}
    found = stress_table(results, PLACES, **SETTINGS)
    first = found.table[found.table["metric"] == "first"].set_index("policy")["estimate"]
    assert first[["checkpoints", "rule"]].tolist() == [0.5, 0.5]
    assert found.winner == "checkpoints"
    assert found.everywhere == 1.0
    shifted = {"base": frame(checkpoint_1=gain, twap=0.0, rule=gain - 0.05 + (NOISE[1] - NOISE[1].mean()))}
    found = stress_table(shifted, PLACES, **SETTINGS)
    assert stress_verdicts(found.table, found.winner)["verdict"].tolist() == ["leads"]


def test_few_days_have_no_p() -> None:
    results = {name: one[one["date"] < np.datetime64("2024-01-04")] for name, one in matrix().items()}
    table = stress_table(results, PLACES, **SETTINGS).table
    assert table["p"].isna().all()
    assert table["lo"].isna().all()
    assert table["estimate"].notna().any()


def test_figures_show_every_condition_and_policy() -> None:
    table = stress_table(matrix(), PLACES, **SETTINGS).table
    titles = {"checkpoints": "chosen", "twap": "TWAP", "rule": "rule"}
    axes = stress_map(table, titles, {name: family for name, (family, _) in PLACES.items()}).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [*PLACES]
    assert [label.get_text() for label in axes.get_xticklabels()] == [*titles.values()]
    (curve, *_) = stress_curves(table, titles, "base").axes
    lines = {line.get_label(): line.get_ydata() for line in curve.lines}
    means = table[table["metric"] == "pa_net"].set_index(["policy", "condition"])["estimate"]
    assert list(lines["rule"]) == [means["rule", "base"], means["rule", "worse"]]
