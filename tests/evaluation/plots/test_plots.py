"""Case F07: thin and odd data through every figure, to the file, without a warning."""

import warnings

import numpy as np
import pandas as pd
import pytest

from rlwb.evaluation import plots
from tests.evaluation.tables import baseline, checkpoint, summarise

NAMES = ["贵州茅台", "Ölüm", "リンゴ", "$BRK.B", "हिन्दी", "a very long name " * 3]
NORMAL = np.random.default_rng(0).normal(0, 10, 60)

CASES = {
    "one order": [checkpoint([3.0])],
    "all equal": [checkpoint([2.0] * 30, 1, days=10), checkpoint([2.0] * 30, 2, days=10)],
    "one PA of 10,000": [checkpoint(np.append(NORMAL[1:], 1e4), days=10), baseline(NORMAL, days=10)],
    "non-Latin names": [checkpoint(NORMAL, instruments=NAMES, days=3), baseline(NORMAL, "基准", days=3)],
    "nothing to draw": [checkpoint([np.nan] * 5), baseline([np.nan] * 5)],
}


@pytest.mark.parametrize("case", CASES)
def test_f07_every_figure_is_written_without_a_warning(case, tmp_path):
    results = CASES[case]
    metrics = pd.DataFrame({"iteration": [r.iteration for r in results], "pa": [r.validation_pa for r in results]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = [
            plots.learning_curves(metrics, metrics),
            plots.validation_against_test(summarise(results, resamples=100)),
            plots.pa_distribution(results),
            plots.pa_by_month(results),
            plots.pa_by_instrument(results),
            plots.inventory_paths(results),
            plots.cumulative_pa(results),
        ]
        for number, figure in enumerate(figures):
            for path in plots.save_figure(figure, tmp_path / str(number)):
                assert path.stat().st_size > 2_000
