import numpy as np

from rlwb.evaluation import comparison
from rlwb.evaluation.plots import method_intervals
from tests.evaluation.tables import baseline, ceiling, checkpoint


def made(**methods):
    return comparison(methods, resamples=100, level=0.5)  # two days give no more


def test_every_method_has_its_row_mean_and_interval():
    table = made(TWAP=baseline([0.0, 0.0], days=2), ours=checkpoint([1.0, 3.0], days=2))
    axes = method_intervals(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TWAP", "ours"]
    drawn = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.get_lines() if line.get_marker() == "o"}
    assert drawn == {(0.0, 0), (2.0, 1)}
    assert axes.yaxis_inverted(), "rows are read from the top"
    spans = [line.get_xdata() for line in axes.get_lines() if line.get_linewidth() == 2]
    assert [1.0, 3.0] in [list(span) for span in spans]
    assert axes.get_xlabel() == "mean PA, bp"


def test_where_twap_is_off_the_difference_is_drawn():
    table = made(TWAP=baseline([1.0, 1.0], days=2), ours=checkpoint([1.0, 3.0], days=2))
    axes = method_intervals(table).axes[0]
    assert axes.get_xlabel() == "mean PA over TWAP on the same order, bp"
    drawn = {line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "o"}
    assert drawn == {0.0, 1.0}


def test_ceilings_and_methods_without_a_pa_are_not_drawn():
    bound = ceiling([100.0, 100.0], days=2)
    table = made(ours=checkpoint([1.0, 3.0], days=2), none=checkpoint([np.nan, np.nan], days=2), bound=bound)
    axes = method_intervals(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours"]
    nothing = method_intervals(made(none=checkpoint([np.nan])))
    assert "No method has a PA" in nothing.axes[0].texts[-1].get_text()
