"""What else could have been chosen, of a tiny run."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from rlwb.experiment import evidence
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, play, read_results
from rlwb.experiment.evidence import evidence_table, read_evidence
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory


def test_all_candidates_stand_beside_the_chosen(judged: RunDirectory) -> None:
    found = read_evidence(judged)
    assert found is not None
    table = pd.read_csv(judged.backtest / "candidates.csv")
    bench = workbench(judged)
    orders = bench.align(load_orders(judged, bench, "test"))
    paths = [judged.checkpoints / f"{number:04d}.pt" for number in range(1, 6)]
    test = [float(np.mean(play(bench, checkpoint_policy(bench, path), orders).metrics["pa"])) for path in paths]
    validation = pd.read_csv(judged.metrics / "validation.csv")["pa"]
    assert table["iteration"].tolist() == [1, 2, 3, 4, 5]
    assert table["test_pa"].tolist() == pytest.approx(test)
    assert table["validation_pa"].tolist() == pytest.approx(validation.tolist())
    best = validation.sort_values(ascending=False, kind="stable").index[:2]
    assert table.index[table["is_chosen"]].tolist() == sorted(best)
    means = [np.mean(one) for one in combinations(test, 2)]
    assert found["chosen"] == pytest.approx(np.mean([test[one] for one in best]))
    assert found["last"] == pytest.approx(test[-1])
    assert found["random"]["mean"] == pytest.approx(np.mean(test))
    assert found["random"]["lo"] == pytest.approx(min(means))
    assert found["random"]["hi"] == pytest.approx(max(means))
    assert found["seen_shrinkage"] == pytest.approx(validation[best].mean() - found["chosen"])
    ranks = [pd.Series(one).rank() for one in (validation, test)]
    assert found["rank_correlation"] == pytest.approx(np.corrcoef(*ranks)[0, 1])
    assert (found["count"], found["candidates"], found["judged"], found["trials"]) == (2, 5, 5, 5)
    assert found["distinct"] == len({round(test[one], 12) for one in best})
    assert 0 <= found["overfitting_probability"] <= 1
    assert 0 < found["reality_check_p"] <= 1


#: Files with the verdict, which tells the p-value.
SAID = ("headline.json", "headline.md", "headline.txt")


def test_what_is_judged_beside_the_chosen_changes_no_other_result(
    judged_copy: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[str, bytes]:
        paths = (path for path in judged_copy.backtest.rglob("*") if path.is_file())
        return {path.relative_to(judged_copy.backtest).as_posix(): path.read_bytes() for path in paths}

    before = files()
    monkeypatch.setattr(evidence, "MOST_JUDGED", 1)
    backtest_policies(judged_copy, judged_copy.config)
    after = files()
    assert {name for name in before if before[name] != after[name]} == {"evidence.json", "candidates.csv", *SAID}
    found = read_evidence(judged_copy)
    assert found is not None
    assert found["judged"] < found["candidates"] == 5


def test_a_damaged_checkpoint_that_was_not_chosen_is_passed_over(judged_copy: RunDirectory) -> None:
    table = pd.read_csv(judged_copy.backtest / "candidates.csv")
    other = next(one for one in table.loc[~table["is_chosen"], "iteration"] if one < 5)
    (judged_copy.checkpoints / f"{other:04d}.pt").write_bytes(b"half")
    backtest_policies(judged_copy, judged_copy.config)
    again = pd.read_csv(judged_copy.backtest / "candidates.csv")
    assert again["iteration"].tolist() == [one for one in table["iteration"] if one != other]


def test_a_run_of_an_earlier_version_has_no_evidence_and_a_page(judged_copy: RunDirectory) -> None:
    with_it = write_report(judged_copy).read_text()
    for name in ("evidence.json", "candidates.csv"):
        (judged_copy.backtest / name).unlink()
    assert read_evidence(judged_copy) is evidence_table(judged_copy) is None
    without = write_report(judged_copy).read_text()
    assert "p-value against TWAP" in with_it
    assert "p-value against TWAP" not in without
    assert [one.policy for one in read_results(judged_copy)]
