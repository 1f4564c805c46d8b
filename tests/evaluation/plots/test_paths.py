import numpy as np
import pytest

from rlwb.evaluation import PolicyResult
from rlwb.evaluation.plots import cumulative_pa, inventory_paths, pa_distribution
from tests.evaluation.tables import baseline, ceiling, checkpoint, order_table, unattainable


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_inventory_is_the_mean_over_all_orders_of_all_checkpoints():
    table = order_table([1.0, 2.0])
    first = PolicyResult("checkpoint-0001", "checkpoint", table, 1, 1.0, np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.4]]))
    second = PolicyResult("checkpoint-0002", "checkpoint", table, 2, 1.0, np.array([[1.0, 0.1], [1.0, 0.3]]))
    axes = inventory_paths([first, second, baseline([0.0, 0.0])]).axes[0]
    # the shorter inventory keeps its last value
    assert lines(axes)["chosen"].get_ydata().tolist() == pytest.approx([1.0, 0.4, 0.2])
    assert lines(axes)["TWAP"].get_ydata().tolist() == [1.0, 0.5, 0.0]
    assert len(axes.collections) == 2


def test_cumulative_pa_sums_equally_weighted_days():
    first = checkpoint([1.0, 2.0, 3.0, 6.0], 1, days=3)  # day 0 holds 1 and 6
    second = checkpoint([3.0, np.nan, 1.0, 4.0], 2, days=3)
    axes = cumulative_pa([first, second, baseline([0.5] * 4, days=3)]).axes[0]
    drawn = lines(axes)
    assert drawn["chosen checkpoints (n = 2)"].get_ydata().tolist() == [3.5, 5.5, 8.5]
    assert drawn["their mean"].get_ydata().tolist() == [3.5, 5.5, 7.5]
    assert drawn["TWAP"].get_ydata().tolist() == [0.5, 1.0, 1.5]
    other = next(line for line in axes.get_lines() if len(line.get_xdata()) == 2 and line.get_ydata()[0] == 3.5)
    assert other.get_ydata().tolist() == [3.5, 4.5]  # the day without a PA is left out


def test_f07_thin_data_draw_a_point_or_a_note():
    one = lines(cumulative_pa([checkpoint([3.0])]).axes[0])
    assert one["chosen checkpoints (n = 1)"].get_marker() == "o"
    assert "No policy" in cumulative_pa([]).axes[0].texts[-1].get_text()
    assert "No policy" in cumulative_pa([checkpoint([np.nan])]).axes[0].texts[-1].get_text()
    bare = PolicyResult("last", "last", order_table([1.0]))
    assert "No result carries" in inventory_paths([bare]).axes[0].texts[-1].get_text()


def test_what_sees_the_future_is_named_so_and_presses_no_line_together():
    results = [checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2), unattainable([90.0, 80.0], days=2)]
    axes = pa_distribution(results).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "teacher (sees the future)"
    assert "teacher" not in " ".join(lines(cumulative_pa(results).axes[0]))
    assert max(np.max(line.get_ydata()) for line in cumulative_pa(results).axes[0].get_lines()) == 3.0


def test_a_ceiling_is_no_policy_and_in_no_comparing_figure():
    results = [checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2), ceiling([90.0, 80.0], days=2)]
    assert [label.get_text() for label in pa_distribution(results).axes[0].get_yticklabels()] == [
        "checkpoint-0001",
        "TWAP",
    ]
    for figure in (cumulative_pa(results), inventory_paths(results)):
        assert "ceiling" not in " ".join(lines(figure.axes[0]))
    assert max(np.max(line.get_ydata()) for line in cumulative_pa(results).axes[0].get_lines()) == 3.0
