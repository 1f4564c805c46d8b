"""Finished runs explored: their orders, and their checkpoints."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rlwb.errors import CheckpointError
from rlwb.experiment.backtest import read_results, read_summary
from rlwb.experiment.explore import CheckpointView, judged_runs, run_playback
from rlwb.experiment.report import typical_order
from rlwb.experiment.run import RunDirectory
from rlwb.widgets import CheckpointExplorer, OrderExplorer
from tests.experiment.test_work import tiny
from tests.widgets.conftest import Cell, alive
from tests.widgets.test_orders import controls


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


def test_orders_of_a_run_are_played_as_in_its_backtest(judged: RunDirectory) -> None:
    book, results = run_playback(judged), {one.policy: one for one in read_results(judged)}
    first = read_summary(judged)["policy"].iloc[0]
    assert list(book.policies)[:2] == [first, "twap"]
    assert set(book.policies) == set(results)
    assert book.typical(first) == typical_order(judged, first)
    for policy in (first, "twap"):
        pas = results[policy].orders.set_index("order_id")["pa"]
        for order_id in pas.index[:3]:
            assert book.play(order_id, policy).pa == pytest.approx(pas[order_id], abs=1e-9)
    played = book.play(book.typical(first), first)
    assert played.chances is not None
    np.testing.assert_allclose(played.chances.sum(axis=1), 1.0)
    np.testing.assert_array_equal(played.chances.argmax(axis=1), played.steps["action"].astype(int))
    with pytest.raises(CheckpointError, match="'best'"):
        book.play(book.typical(first), "best")


def test_runs_beside_a_run_are_offered_and_others_refused(judged: RunDirectory, tmp_path: Any) -> None:
    assert list(judged_runs(judged.path)) == list(judged_runs(judged.path.parent)) == ["run"]
    with pytest.raises(CheckpointError, match="no run with a backtest"):
        judged_runs(tmp_path)
    RunDirectory.create(tmp_path / "begun", tiny())
    with pytest.raises(CheckpointError, match="begun has no backtest"):
        judged_runs(tmp_path / "begun")


def test_a_checkpoint_is_the_nearest_to_a_click(judged: RunDirectory) -> None:
    view, summary = CheckpointView(judged), read_summary(judged).set_index("policy")
    assert view.names[-1] == "last"
    for name in view.names[:2]:
        x, y = summary.loc[name, ["validation_pa", "pa_mean"]]
        assert view.nearest(x + 1e-9, y - 1e-9, 1.0, 1.0) == name
        view.choose(name)
        assert view.point() == (x, y)
        assert f"test {y:.2f} bp" in view.label(name)
    pas = read_results(judged)[0].pa
    view.choose(view.names[0])
    shown = view.orders(2)["PA, bp"]
    assert len(shown) == 5
    assert (shown.iloc[0], shown.iloc[-1]) == (pas.min(), pas.max())
    with pytest.raises(CheckpointError, match="twap"):
        view.choose("twap")


def test_a_point_opens_its_inventory_and_orders_and_leaves_nothing_behind(judged: RunDirectory, cell: Cell) -> None:
    shown: list[CheckpointExplorer] = []

    def show() -> None:
        shown[:] = [CheckpointExplorer(judged.path)]
        shown[0]._repr_mimebundle_()

    cell.run(show)
    once = alive()
    explorer = shown[0]
    found = controls(explorer.widget)
    assert list(found) == ["Checkpoint", "Open order"]
    axes = explorer._canvas.figure.axes[0]
    second = explorer.view.names[1]
    explorer.view.choose(second)
    x, y = explorer.view.point()
    explorer.view.choose(explorer.view.names[0])
    explorer._clicked(SimpleNamespace(inaxes=axes, xdata=x, ydata=y))
    assert found["Checkpoint"].value == explorer.view.chosen == second
    assert explorer._ring.get_xdata() == [x]
    worst = found["Open order"].options[1][1]
    found["Open order"].value = worst
    assert explorer.orders is not None
    assert explorer.orders.view.order_id == worst
    assert explorer.orders.view.policies == (second, "twap")
    found["Checkpoint"].value = "last"
    assert explorer.orders.view.policies == ("last", "twap"), "the order stays open, by the policy that is chosen"
    assert explorer.orders.view.order_id == worst
    del explorer, found, axes
    cell.run(show)
    assert alive() == once


def test_the_explorers_of_a_run_are_pictures_headless(judged: RunDirectory, cell: Cell) -> None:
    cell.attended = False
    for explorer in (OrderExplorer(judged.path), CheckpointExplorer(judged.path)):
        assert set(explorer._repr_mimebundle_()) == {"text/plain", "image/png"}
