import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.evaluation.plots import learning_curves, validation_against_test
from tests.evaluation.tables import baseline, checkpoint, summarise

EMPTY = pd.DataFrame(columns=["iteration", "pa"])


def metrics(pa, **columns):
    return pd.DataFrame({"iteration": np.arange(1, len(pa) + 1), "pa": pa}).assign(**columns)


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_learning_curves_show_training_validation_and_the_chosen():
    train, validation = metrics(np.arange(40.0), reward=0.1), metrics([1.0, np.nan, 3.0], reward=0.2)
    figure = learning_curves(train, validation, chosen=[2, 3])
    pa, reward = figure.axes
    assert (pa.get_ylabel(), reward.get_ylabel()) == ("mean PA, bp", "mean reward of an episode")
    assert lines(pa)["validation"].get_ydata().tolist() == pytest.approx([1.0, np.nan, 3.0], nan_ok=True)
    assert lines(pa)["chosen (n = 1)"].get_xdata().tolist() == [3]
    assert lines(pa)["training, mean of 2 iterations"].get_ydata()[:3].tolist() == [0.0, 0.5, 1.5]


def test_f07_learning_curves_of_one_iteration_and_of_none():
    one = learning_curves(metrics([1.0]), EMPTY)
    assert lines(one.axes[0])["training"].get_marker() == "o"
    none = learning_curves(EMPTY, metrics([np.nan]))
    assert "Neither training nor validation" in none.axes[0].texts[-1].get_text()
    with pytest.raises(DataError, match="lack the column 'iteration'"):
        learning_curves(metrics([1.0]).drop(columns="iteration"), EMPTY)


def test_validation_against_test_shows_the_points_and_the_fall():
    results = [checkpoint([1.0, 3.0], 1, 5.0, days=2), checkpoint([2.0, 4.0], 2, 6.0, days=2), baseline([0.0, 0.0])]
    axes = validation_against_test(summarise(results), expected_shrinkage=0.5).axes[0]
    points = lines(axes)["chosen checkpoints (n = 2)"]
    assert points.get_xdata().tolist() == [5.0, 6.0]
    assert points.get_ydata().tolist() == [2.0, 3.0]
    assert lines(axes)["their mean"].get_xdata() == [5.5]
    assert "expected if all were equally good (\N{MINUS SIGN}0.50 bp)" in lines(axes)
    assert "mean validation PA 5.50 bp, mean test PA 2.50 bp (\N{MINUS SIGN}3.00)" in axes.texts[0].get_text()


def test_f07_validation_against_test_of_one_and_of_none():
    one = validation_against_test(summarise([checkpoint([1.0])]))
    assert "chosen checkpoints (n = 1)" in lines(one.axes[0])
    none = validation_against_test(summarise([baseline([1.0])]))
    assert "No checkpoint has both" in none.axes[0].texts[-1].get_text()
