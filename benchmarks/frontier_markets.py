"""Mean and deviation of policies on replayed markets, without costs and with them; for the command of `frontier`.

The frontier of such a market is not known: `below` is how much more mean, in basis points, the best of the measured
policies give at a policy's deviation, `distance` the same as a share of the span of their frontier's means. All figures
are of the net PA against arrival, with intervals over days in `_lo` and `_hi`.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from rlwb.evaluation.frontier import non_dominated
from rlwb.evaluation.plots import frontier, save_figure
from rlwb.execution.rules import BASIS_POINTS
from rlwb.experiment.backtest import read_frontier
from rlwb.experiment.compare import do_stages
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.run import RunDirectory
from rlwb.reading import read_json

_CONFIGS = Path(__file__).parents[1] / "configs"
#: Per basis point; the baseline counts costs as shares of the value.
_AVERSIONS = (1e-7, 1e-6, 1e-5, 1e-4)
_SCHEDULES = ", ".join(f"{{name: almgren_chriss, risk_aversion: {BASIS_POINTS * one:g}}}" for one in _AVERSIONS)
#: One training a market, which is told each order's aversion, beside schedules by several of them.
_LEARNER = {
    "objective": "{name: mean_variance, aversion: [0, 0.001, 0.003, 0.01]}",
    "baselines": f"[twap, vwap, pov, {_SCHEDULES}, hindsight]",
    "execution.rules.benchmark": "arrival",
}
_IMPACT = {"execution.rules.volume_limit": "1", "execution.rules.temporary_impact_bps": "10"}
COSTS = ", with costs"
#: What --quick changes.
QUICK = {"train.iterations": "2", "train.episodes_per_iteration": "60", "backtest.bootstrap_samples": "200"}


class Market(NamedTuple):
    """A market: the settings of its runs, those of its costs, and the configuration file and folder of its bars."""

    settings: dict[str, str]
    costs: dict[str, str]
    config: str | None = None
    bars: str | None = None


#: Lots round amounts, through which `pathwise` cannot differentiate.
MARKETS = {
    "synthetic": Market(
        {"algorithm": "pathwise"}, {"execution.preset": "us", "execution.rules.lot_size": "0", **_IMPACT}
    ),
    "us_equity_5min_2025": Market(
        {"train.iterations": "40"}, {"execution.preset": "us", **_IMPACT}, "us_5min.yaml", "us_equity_5min_2025"
    ),
    "cn_equity_15min_2025": Market(
        {"train.iterations": "40"}, {"execution.preset": "cn", **_IMPACT}, "cn_15min.yaml", "cn_equity_15min_2025"
    ),
}


def names(market: str, data: Path) -> Iterator[str]:
    """Yield what rows call a market without costs and with them; say so where its bars are not there."""
    bars = MARKETS[market].bars
    if bars is not None and not (data / bars).is_dir():
        print(f"{market} is left out: its bars are not in {data / bars}; name their folder with --data.", flush=True)
        return
    yield from (market, market + COSTS)


def measured(
    names: Sequence[str], data: Path, pictures: Path, changes: Mapping[str, str], *, jobs: int = 1
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each market, by names of `names`, as it ends; `jobs` at a time, of one thread each.

    Parameters
    ----------
    data
        Folder of the real bars.
    pictures
        Folder for the pictures of the synthetic market's frontier.
    changes
        Other settings of the runs, by dotted names.
    """
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(replayed, name, data, pictures, changes) for name in names]
        for run in as_completed(runs):
            yield run.result()


def replayed(name: str, data: Path, pictures: Path, changes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Train and judge on one market with the run's default seed, and return one row a policy; see `measured`."""
    torch.set_num_threads(1)
    market = MARKETS[name.removesuffix(COSTS)]
    settings = {**_LEARNER, **market.settings, **(market.costs if name.endswith(COSTS) else {})}
    if market.bars is not None:
        settings["market.source"] = str((data / market.bars / "bars.parquet").resolve())
    words = [f"{key}={value}" for key, value in {**settings, **changes}.items()]
    config = RunConfig.load(_CONFIGS / market.config if market.config else None, parse_assignments(words))
    with tempfile.TemporaryDirectory(prefix="rlwb-frontier-") as folder:
        run = RunDirectory.create(Path(folder) / "run", config)
        do_stages(run, config, lambda line: None)
        table, known = read_frontier(run), read_json(run.backtest / "baselines.json")
    if market.bars is None:
        save_figure(frontier(table), pictures / f"frontier-{name.replace(', ', '-').replace(' ', '-')}")
    told = {
        policy: state["risk_aversion"] / BASIS_POINTS for policy, state in known.items() if "risk_aversion" in state
    }
    return rows_of(name, config.seed, table, told)


def rows_of(market: str, seed: int, table: pd.DataFrame, aversions: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return a row for each policy of a frontier's table; `aversions` are those of baselines that have one."""
    own = table[table["below_frontier"].notna()]
    best = own.loc[non_dominated(own["arrival_mean"], own["arrival_std"]), "arrival_mean"]
    span = float(best.max() - best.min()) or 1.0
    rows = []
    for row in table.to_dict("records"):
        figures = {"mean": row["arrival_mean"], "sd": row["arrival_std"], "cvar": row["arrival_cvar"]}
        for short, name in (("mean", "arrival_mean"), ("sd", "arrival_std"), ("cvar", "arrival_cvar")):
            figures |= {f"{short}_{end}": row[f"{name}_{end}"] for end in ("lo", "hi")}
        figures |= {"below": row["below_frontier"], "distance": row["below_frontier"] / span}
        found: dict[str, Any] = {key: None if np.isnan(value) else round(value, 4) for key, value in figures.items()}
        aversion = aversions.get(row["policy"]) if np.isnan(row["aversion"]) else row["aversion"]
        rows.append({"market": market, "aversion": aversion, "method": row["policy"], "seed": seed, **found})
    return rows


def markdown(rows: list[dict[str, Any]], market: str) -> str:
    """Return the rows of a market as a Markdown table, in basis points."""
    lines = ["| policy | mean | std | CVaR 95 % | below the frontier |", "|---|--:|--:|--:|--:|"]
    for row in (one for one in rows if one["market"] == market):
        mean, sd = (f"{row[key]:z.1f} [{row[f'{key}_lo']:z.1f}, {row[f'{key}_hi']:z.1f}]" for key in ("mean", "sd"))
        below = "" if row["below"] is None else f"{row['below']:z.1f}"
        lines.append(f"| {row['method']} | {mean} | {sd} | {row['cvar']:z.1f} | {below} |")
    return "\n".join(lines)
