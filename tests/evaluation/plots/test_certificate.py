"""Figures of markets with a known optimum: every line and dot where its number is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.evaluation import plots

CURVES = pd.DataFrame(
    {"method": ["ppo", "ppo", "dqn"], "iteration": [5, 10, 5], "value": [1.0, 4.5, -1.0], "error": [0.0, 0.0, 0.25]}
)


def test_curves_lie_between_the_lines_of_the_optimum_and_of_twap() -> None:
    (axis,) = plots.certificate_curves(CURVES, optimum=5.0, twap=-0.5).axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}
    assert drawn["optimum (5.00 bp)"][1] == [5.0, 5.0]
    assert drawn["TWAP (−0.50 bp)"][1] == [-0.5, -0.5]
    assert drawn["ppo (4.50 bp)"] == ([5, 10], [1.0, 4.5])
    assert drawn["dqn (−1.00 bp)"] == ([5], [-1.0])
    (band,) = axis.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (-1.5, -0.5), "two errors; none where values are exact"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    (axis,) = plots.certificate_curves(CURVES, optimum=-1e-13, twap=-0.0).axes
    assert [line.get_label() for line in axis.lines[:2]] == ["optimum (0.00 bp)", "TWAP (0.00 bp)"]


def test_without_curves_it_is_said() -> None:
    (axis,) = plots.certificate_curves(pd.DataFrame(), optimum=5.0).axes
    assert axis.texts[-1].get_text() == "No method was trained."
    with pytest.raises(DataError, match="lack the column 'error'; they have"):
        plots.certificate_curves(CURVES.drop(columns="error"), optimum=5.0)


def test_dots_of_a_path_are_its_fills() -> None:
    price = np.array([[100.0, 101.0, 102.0], [100.0, 99.0, 98.0]])
    filled = np.array([[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]])
    (axis,) = plots.price_paths(price, filled).axes
    np.testing.assert_array_equal([line.get_ydata() for line in axis.lines], price)
    first, second = axis.collections
    np.testing.assert_array_equal(first.get_offsets(), [[0, 100], [1, 101]])
    np.testing.assert_array_equal(second.get_offsets(), [[2, 98]])
    assert first.get_sizes()[0] == 3 * first.get_sizes()[1]
    with pytest.raises(DataError, match=r"shape \(2, 3\) and fills \(2, 2\)"):
        plots.price_paths(price, filled[:, 1:])
