"""The stage stability: the figures of a run."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rlwb.experiment.backtest import read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.run import RunDirectory, read_json


def draw_stability(run: RunDirectory, config: RunConfig) -> None:
    """Draw ``figures/*.png`` and ``*.svg`` from the metrics and the backtest."""
    from rlwb.evaluation.plots import save_figure

    for name, figure in stability_figures(run, config).items():
        save_figure(figure, run.figures / name)


def stability_figures(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """Return the figures of a run by name; under rules with costs they are of the net PA."""
    from rlwb.evaluation import plots, read_validation

    results, rules = read_results(run), config.execution.rules
    summary = pd.read_csv(run.backtest / "summary.csv")
    selection = read_json(run.backtest / "selection.json")
    validation = read_validation(run.metrics / "validation.csv")
    train = pd.read_csv(run.metrics / "train.csv")
    if rules.have_costs:
        results = [result.after_costs() for result in results]
        net = {"pa_mean": "pa_net", "pa_lo": "pa_net_lo", "pa_hi": "pa_net_hi"}
        summary = summary.assign(**{name: summary[other] for name, other in net.items()})
    chosen = [result.iteration for result in results if result.kind == "checkpoint" and result.iteration is not None]
    interval: dict[str, Any] = {"level": config.backtest.confidence, "seed": config.seed}
    shrinkage = selection["expected_shrinkage"]
    return {
        "learning_curves": plots.learning_curves(train, validation, chosen=chosen, judged_by=rules.judged_by),
        "validation_against_test": plots.validation_against_test(summary, expected_shrinkage=shrinkage),
        "pa_distribution": plots.pa_distribution(results),
        "pa_by_month": plots.pa_by_month(results, **interval),
        "pa_by_instrument": plots.pa_by_instrument(results, **interval),
        "inventory_paths": plots.inventory_paths(results),
        "cumulative_pa": plots.cumulative_pa(results),
    }
