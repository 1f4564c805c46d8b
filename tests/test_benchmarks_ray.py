"""The model of work on a cluster, and the table that is told of it, without a cluster."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ray_jobs import OWN, Model, predicted, row, same, table

MODEL = Model(call=0.002, each=0.001, network=1e6)


def test_work_in_pieces_cannot_be_divided_further() -> None:
    """1 s alone, 10 s in 4 pieces, 1 ms a piece, and 1 s for 1 MB: three workers do as well as two."""
    found = [MODEL.blocked(workers, 4, 1.0, 10.0, 1e6) for workers in (1, 2, 3, 4, 1000)]
    assert found == pytest.approx([12.004, 7.004, 7.004, 4.504, 4.504])


def test_each_further_worker_costs_a_call_a_step() -> None:
    """8 steps, 1 s for the policy and 10 s for the simulator; the best number of workers is near sqrt(10 / 8e-3)."""
    assert MODEL.stepped(1, 8, 1.0, 10.0, 0.0) == pytest.approx(11.016)
    assert MODEL.stepped(2, 8, 1.0, 10.0, 0.0) == pytest.approx(6.024)
    taken = {workers: MODEL.stepped(workers, 8, 1.0, 10.0, 0.0) for workers in range(1, 200)}
    assert min(taken, key=lambda workers: taken[workers]) == 35


def test_rows_of_the_model_and_the_table_follow_from_those_that_were_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        row("dqn", 0, 4.0, True, None, episodes=500, learning=3.0),
        row("dqn", 1, 4.2, True, 800.0, episodes=500, learning=3.0),
        row("dqn, one killed", 2, 9.0, True, None, episodes=500, learning=3.0),
    ]
    rows += [{**one, "call_ms": 2.0, "each_ms": 1.0} for one in predicted(rows, Model(0.002, 0.001))]
    ten = next(one for one in rows if one["workers"] == 10)
    # 300 s of learning, 100 s in 200 blocks among ten, 0.2 s of calls, 40 MB at 1.25 GB/s.
    assert ten["seconds"] == pytest.approx(300 + 10 + 0.2 + 0.032, abs=1e-3)
    assert (ten["job"], ten["identical"], ten["times"]) == ("dqn, by the model", None, 1.3)
    rows = [{**one, "date": "2026-01-01", "machine": "none", "load": 0.0} for one in rows]
    told = table(rows).splitlines()
    assert told[2] == "| dqn | 4.00 | 4.20 | - | 9.00 | yes | 800 |"
    assert any(line.startswith("| dqn | 400 | 300 | 310.2 s, 1.3 times |") for line in told)
    assert OWN not in table(rows)
    assert "seconds 4.2" in capsys.readouterr().out


def test_results_are_the_same_to_the_last_bit_or_are_not() -> None:
    one = {"a": np.array([1.0, np.nan]), "b": {"c": 3}}
    assert same(one, {"a": np.array([1.0, np.nan]), "b": {"c": 3}})
    assert not same(one, {"a": np.array([np.nextafter(1.0, 2.0), np.nan]), "b": {"c": 3}})
    assert not same(one, {"a": one["a"]})
