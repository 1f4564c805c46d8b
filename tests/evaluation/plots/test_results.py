import numpy as np
import pytest

from rlwb.evaluation.plots import pa_by_instrument, pa_by_month, pa_distribution
from tests.evaluation.tables import baseline, checkpoint


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def marks(axes):
    """Return the single points drawn, in order."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.get_lines()
        if len(line.get_xdata()) == 1
    ]


def test_distribution_has_a_row_a_policy_with_its_quantiles():
    axes = pa_distribution([checkpoint(np.arange(101.0)), baseline([0.0, 2.0])]).axes[0]
    assert tick_labels(axes.yaxis) == ["checkpoint-0001", "TWAP"]
    box = axes.patches[0]
    assert (box.get_x(), box.get_width()) == (25.0, 50.0)
    assert marks(axes) == [(50.0, 0.0), (1.0, 1.0)]
    assert "single orders from 0 to 100 bp" in axes.get_xlabel()


def test_f07_one_pa_of_10000_does_not_hide_the_rest():
    pa = np.concatenate([np.linspace(-20, 20, 99), [10_000.0]])
    axes = pa_distribution([checkpoint(pa), baseline(np.linspace(-20, 20, 100))]).axes[0]
    assert axes.get_xlim()[1] < 100
    assert "mean 100 bp →" in [text.get_text() for text in axes.texts]
    assert "to 10,000 bp" in axes.get_xlabel()


def test_months_are_means_over_checkpoints():
    first = checkpoint([1.0] * 28 + [5.0] * 10, 1, days=38)
    second = checkpoint([3.0] * 28 + [7.0] * 10, 2, days=38)
    axes = pa_by_month([first, second]).axes[0]
    assert tick_labels(axes.xaxis) == ["2023-05\n28 d", "2023-06\n10 d"]
    assert [y for _, y in marks(axes)] == pytest.approx([2.0, 6.0])


def test_a_month_of_a_few_days_has_a_mean_and_no_interval():
    first = np.datetime64("2023-05-04")
    pa = np.arange(33.0)  # 28 days of May, 5 of June
    axes = pa_by_month([checkpoint(pa, days=33, date=first + np.arange(33))]).axes[0]
    assert tick_labels(axes.xaxis) == ["2023-05\n28 d", "2023-06\n5 d"]
    assert [y for _, y in marks(axes)] == pytest.approx([13.5, 30.0])
    may, june = (bars.get_segments()[0] for bars in axes.collections)
    assert may[0, 1] < 13.5 < may[1, 1]
    assert june.size == 0
    assert any("from 6 days on" in text.get_text() for text in axes.texts)


def test_many_months_keep_their_labels_apart():
    axes = pa_by_month([checkpoint(np.ones(900), days=900)]).axes[0]
    assert len(marks(axes)) == 30
    assert len(tick_labels(axes.xaxis)) <= 11


def test_instruments_are_sorted_best_first():
    result = checkpoint([1.0, 5.0, -3.0] * 4, instruments=["A", "B", "C"], days=4)
    axes = pa_by_instrument([result]).axes[0]
    assert tick_labels(axes.yaxis) == ["B", "A", "C"]
    assert [x for x, _ in marks(axes)] == [5.0, 1.0, -3.0]


def test_of_many_instruments_the_extremes_are_shown():
    names = [f"I{i:03d}" for i in range(100)]
    figure = pa_by_instrument([checkpoint(np.arange(100.0), instruments=names, days=7)])
    labels = tick_labels(figure.axes[0].yaxis)
    assert len(labels) == 40
    assert (labels[0], labels[19], labels[20], labels[-1]) == ("I099", "I080", "I019", "I000")
    assert "the 20 best and 20 worst of 100" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize("draw", [pa_distribution, pa_by_month, pa_by_instrument])
def test_f07_a_note_stands_where_nothing_can_be_drawn(draw):
    for results in ([], [checkpoint([])], [checkpoint([np.nan])]):
        assert "has an order with a PA" in draw(results).axes[0].texts[-1].get_text()
