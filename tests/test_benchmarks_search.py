"""The command that compares samplers, on its short way and on its own arithmetic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks import search
from rlwb.study.space import Space


def test_the_known_problem_has_its_optimum_where_it_is_said_to_be() -> None:
    best = {"learning_rate": 1e-3, "gamma": 0.98, "hidden": 64, "repeat": 4, "network": "recurrent"}
    assert search.known(best) == 0
    rng = np.random.default_rng(0)
    for _ in range(200):
        chosen = {}
        for one in search.DIMENSIONS:
            values = one.grid(9)
            chosen[one.name] = one.value(values[rng.integers(len(values))])
        assert search.known(chosen) <= 0


def test_the_quick_way_writes_a_row_a_sampler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["search", "--quick", "--known", "--out", str(out)])
    search.main()
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [row["sampler"] for row in rows] == list(search.SAMPLERS)
    for row in rows:
        assert {
            "problem",
            "sampler",
            "trials",
            "best",
            "fresh_mean",
            "seconds",
            "machine",
            "date",
            "load",
        } <= row.keys()
    assert "| known optimum | tpe |" in capsys.readouterr().out


def test_a_sampler_is_compared_with_random_search_of_the_same_seeds() -> None:
    rows = {row["sampler"]: row for row in search.measure_known(6, {"random": 4, "tpe": 4})}
    runs = {name: [search.search_known(name, 6, seed) for seed in range(4)] for name in rows}
    over = np.array([mine["fresh"] - other["fresh"] for mine, other in zip(runs["tpe"], runs["random"], strict=True)])
    assert rows["tpe"]["over_random"] == pytest.approx(over.mean())
    if over.std():
        lo, hi = stats.t.interval(0.95, 3, over.mean(), stats.sem(over))
        assert (rows["tpe"]["over_random_lo"], rows["tpe"]["over_random_hi"]) == pytest.approx((lo, hi))
    assert rows["random"]["over_random"] is None


def test_the_real_search_has_spaces_of_the_learner_alone() -> None:
    from rlwb.experiment.layers import Layer

    space = Space.read([Layer("real", search.REAL)])
    space.check()
    assert space.studies() == ["learner"]
    assert space.own("learner")
