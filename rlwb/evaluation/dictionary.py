"""The data dictionary: name, unit and meaning of every column of a run's tables."""

from __future__ import annotations

from typing import NamedTuple

from rlwb.evaluation.metrics import METRICS, ends_of, wide_name
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_OFF, PARTS


class Column(NamedTuple):
    """A column of a table on disk: its unit (empty for texts) and what it means."""

    unit: str
    meaning: str


_ORDER = {
    "order_id": Column("", "unique name of an order; the key that joins tables of orders"),
    "instrument": Column("", "name of the instrument"),
    "date": Column("day", "trading day"),
    "direction": Column("", "BUY or SELL"),
    "amount": Column("shares", "what is to be traded, above 0"),
    "start": Column("time of day", "first moment of the order's window"),
    "end": Column("time of day", "end of the window, not part of it"),
}
_FORMS = {
    "limit_price": Column("price", "worst price that may fill; forms are there only where an order states them"),
    "would_price": Column("price", "price at which, or at a better one, all that is left is asked for"),
    "min_participation": Column("share", "least share of a bar's volume that is asked for"),
    "max_participation": Column("share", "largest share of a bar's volume that is filled"),
    "latest_end": Column("time of day", "until when what is open at the end goes on"),
    "notional": Column("currency", "amount in currency, of which amount is the conversion at the arrival price"),
    "aversion": Column("1/bp", "risk aversion of the order: what the variance of its PA weighs beside the mean"),
    "decision_price": Column("price", "price when the order was decided on; only where some order states one"),
}
_RESULT = {
    "filled": Column("shares", "what was traded"),
    "price": Column("price", "average price of the fills, before costs"),
    "price_net": Column("price", "average price of the fills after spread, impact, commission and tax"),
    "twap": Column("price", "mean price of the order's window, each bar counting the same"),
    "vwap": Column("price", "mean price of the window, weighted by volume"),
    "arrival": Column("price", "price when the order arrives"),
    "benchmark": Column("price", "the price that pa is over, by execution.rules.benchmark; the TWAP by default"),
    "valued": Column("shares", "what the PAs are of: filled, or amount where the rules price the rest (unfilled_at)"),
    "pa": Column("bp", "price advantage over the benchmark; above 0 is good for buys and sells alike"),
    "pa_net": Column("bp", "price advantage after costs"),
    "pa_twap": Column("bp", "price advantage over the window's TWAP"),
    "pa_vwap": Column("bp", "price advantage over the window's VWAP"),
    "pa_arrival": Column("bp", "price advantage over the arrival price (implementation shortfall, negated)"),
    "pa_open": Column("bp", "price advantage over the session's first price"),
    "pa_close": Column("bp", "price advantage over the session's last price"),
    "pa_unfilled": Column("bp", "what the part left open adds to pa, or would: its share of the amount times its PA"),
    "ffr": Column("share", "fulfilment rate: filled / amount"),
    "num_steps": Column("steps", "decisions until the order was done"),
    "participation": Column("share", "filled / volume of the window"),
    "reward": Column("reward", "sum of the order's rewards; a column reward/NAME is one summand of it"),
}
_ITERATION = {
    "iteration": Column("", "training iteration, from 1; also that of a checkpoint"),
    "episodes": Column("orders", "orders traded in the iteration; a column NAME_count is how many of them have NAME"),
    "length": Column("steps", "mean decisions of an order"),
    "transitions": Column("steps", "decisions that were learned from"),
    "gradient_steps": Column("", "updates of the weights"),
    "seconds": Column("s", "duration of the iteration; of a member of a sweep, of its attempts"),
    "loss": Column("", "what the learner minimises; others of the learner's own figures are described with it"),
}
_POLICY = {
    "policy": Column("", "name of the policy; the key that joins tables of policies"),
    "title": Column("", "the policy's name for people"),
    "kind": Column(
        "",
        "checkpoint, last, policy (made elsewhere), fills (real), baseline, control (a baseline that lacks on purpose "
        "what it gains by), attainable (knows the market's law), unattainable (knows the future) or ceiling (a bound, "
        "no policy); in stress tables fallback (the best checkpoint, and the schedule on unlike inputs)",
    ),
    "n": Column("", "results in the row: the chosen checkpoints together, else 1"),
    "distinct": Column("", "how many of these n differ in the figures of any order"),
    "seed": Column("", "seed of the run"),
    "algorithm": Column("", "part that learns; empty where nothing was trained"),
    "network": Column("", "part that reads the observation; empty where nothing was trained"),
    "reward_part": Column("", "part that pays the reward; all rows of a run share it"),
    "validation_pa": Column(
        "bp", "mean PA (net PA under costs), or the objective, on the validation orders; mean over n checkpoints"
    ),
    "orders": Column("orders", "orders traded"),
    "days": Column("days", "trading days of these orders"),
    "pa_missing": Column("orders", "orders without a PA, left out of every PA metric; the sum over n checkpoints"),
    "pa_std": Column("bp", "standard deviation of the PA over orders; empty for several checkpoints together"),
    "metric": Column("", "name of the metric in a table of one row a policy and metric"),
    "estimate": Column("of the metric", "its value"),
    "lo": Column("of the metric", "lower end of its interval, by resampling whole days"),
    "hi": Column("of the metric", "upper end of its interval"),
    "standard_error": Column("of the metric", "standard error over days"),
    "std_checkpoints": Column("of the metric", "standard deviation over the n checkpoints"),
    "autocorrelation": Column("", "of a day's part in the metric with the next day's; above 0 the interval is widened"),
    "block_days": Column("days", "days in sequence that resamples of the metric draw together; 1: single days"),
}
_CANDIDATES = {
    "iteration": _ITERATION["iteration"],
    "validation_pa": _POLICY["validation_pa"],
    "test_pa": Column("bp", "the same on the test orders; others than the chosen are judged for evidence.json alone"),
    "is_chosen": Column("", "True of the checkpoints that were chosen by validation"),
}
_PARTS = {
    "part": Column("", "all, train, valid or test"),
    "instruments": Column("", "instruments that have orders"),
    "first": Column("day", "first trading day"),
    "last": Column("day", "last trading day"),
    "mean_amount": Column("shares", "mean amount of an order"),
}
_INTERVALS = {
    "method": Column("", "what the interval keeps together: order (nothing), day, instrument or both"),
    "clusters": Column("", "days, instruments or orders that have a PA; by both, the fewer of days and instruments"),
}
_GROUPS = {
    "by": Column(
        "", "what orders are grouped by: side, size, window, day, month, instrument, volatility or when they traded"
    ),
    "group": Column("", "name of the group of orders"),
}
_GAP = {
    "cause": Column("", "rule that was added to those of the row before"),
    "difference": Column("bp", "net PA less that of the row before; difference_lo and _hi are its interval over days"),
    "left_out": Column("orders", "orders without a PA under some rule, left out of all rows"),
}
_COST = {
    **{COST_COLUMNS[part]: Column("currency", meaning) for part, meaning in PARTS.items()},
    COST_COLUMNS["total"]: Column("currency", "sum of the parts above; above 0 is bad, for buys and sells alike"),
    "cost_bp": Column("bp", "cost over amount times arrival price"),
    "price_paid": Column("price", "average price of real fills as they were; only of these"),
    IMPACT_OFF: Column("currency", "cost of the same order by the same policy where trading has no impact"),
}
_EXCESS = {
    "excess": Column(
        "bp", "cost of real fills less that of the policy, value-weighted; excess_lo and _hi: its interval"
    ),
}
_COSTS = {
    "component": Column("", "part of the cost as in cost_PART, total, or impact_on_fills (see docs/costs.md)"),
    "currency": Column("currency", "sum over the orders; the mean over n checkpoints"),
    "value": Column("currency", "sum of amount times arrival price"),
}
_FRONTIER = {
    **{
        f"arrival_{figure}{over}": Column(
            "bp", f"{meaning} of single orders' net PA over arrival{than}; _lo and _hi are its interval"
        )
        for figure, meaning in {"mean": "mean", "std": "standard deviation", "cvar": "mean of the worst 5 %"}.items()
        for over, than in {"": "", "_over_twap": ", less that of TWAP"}.items()
    },
    "below_frontier": Column("bp", "how much more mean the frontier of the policies gives at the same deviation"),
    "objective_over_twap": Column(
        "bp", "value of the run's objective less that of TWAP, order by order; _lo and _hi are its interval"
    ),
}
_STRESS = {
    "condition": Column("", "what is changed; stress/summary.json has its definition"),
    "family": Column("", "conditions of one kind: spread, latency, ..."),
    "level": Column("", "place of the condition in its family, in its own unit; empty where there is none"),
    "p": Column("", "two-sided p-value by itself: that net_over_twap, over_winner, over_rest or slope is 0"),
    "p_adjusted": Column("", "p corrected for the number of such tests, by Romano and Wolf's step-down maximum"),
    "best": Column("", "policy that could be traded with the highest mean net PA under the condition"),
    "stays": Column("share", "resamples of days in which the best without changes is the best"),
    "verdict": Column("", "stays, leads, behind or beaten: what becomes of the best without changes"),
}
_STABILITY = {
    "judged": Column("bp", "mean net PA of the group; judged_lo and _hi are its interval over days"),
    "over_rest": Column("bp", "that less the mean of all other orders; over_rest_lo and _hi are its interval"),
    "slope": Column("bp a day", "drift of the net PA over the test days; slope_lo and _hi are its interval"),
    "first_half": Column("bp", "mean net PA on the first half of the test days"),
    "second_half": Column("bp", "mean net PA on the second half"),
}


_SWEEP = {
    "member": Column("", "name of a run of a sweep, and of its folder"),
    "setting": Column(
        "", "name of a point of the grid, empty without one; columns called by parameters have its values"
    ),
    "state": Column("", "finished, failed, interrupted, running or created, as in status.json; not begun"),
    "attempts": Column("", "how often the member was tried in the last call; 0 where it was done before"),
    "exits": Column("", "how its attempts ended, in words; kept where it was done before"),
    "failure": Column("", "stage and error of the last attempt, where that failed"),
    "pa_last": Column("bp", "mean test PA of the last checkpoint"),
    "seeds": Column("", "trainings that differ in their seed alone; 1 for a rule"),
    "mean": Column("of the metric", "mean over seeds, each the mean over its checkpoints"),
    "std_seeds": Column("of the metric", "standard deviation over seeds"),
    "least": Column("of the metric", "least over seeds"),
    "most": Column("of the metric", "most over seeds"),
    "iqm": Column(
        "of the metric", "interquartile mean over seeds: a quarter of them, rounded down, is cut at each end"
    ),
    **{
        f"{name}{part}_{end}": Column("of the metric", f"{which} end of the interval of {name}: {over}")
        for name in ("mean", "iqm")
        for part, over in {
            "": "another seed, other days",
            "_seeds": "another seed, these days",
            "_days": "these trainings, other days",
        }.items()
        for end, which in {"lo": "lower", "hi": "upper"}.items()
    },
    "apart": Column("", "seeds in which a group of orders differs from the rest by an adjusted p of at most 0.05"),
    "of": Column("", "setting/policy whose trainings are compared"),
    "over": Column("", "setting/policy that they are compared with; the setting is empty where it is the same in all"),
    "over_seeds": Column("", "trainings of that"),
    "probability": Column(
        "share", "pairs in which the first is better, a tie counting half; lo, hi: of seeds and days"
    ),
    "threshold": Column("of the metric", "value that trainings are above or not"),
    "share_above": Column("share", "trainings above the threshold, a point of their performance profile"),
    **{
        f"{part}_{end}": Column("share", f"{which} end of its interval: {over}")
        for part, over in {"seeds": "another seed, these days", "days": "these trainings, other days"}.items()
        for end, which in {"lo": "lower", "hi": "upper"}.items()
    },
}


def _metric_columns() -> dict[str, Column]:
    """Return the columns of tables of one row a policy: each metric and the ends of its interval."""
    columns: dict[str, Column] = {}
    for name, metric in METRICS.items():
        unit = "share" if metric.is_share else "bp" if metric.title.endswith("bp") else name if name == "reward" else ""
        about = {
            "": metric.meaning,
            "_lo": "lower end of the interval over days",
            "_hi": "upper end of the interval over days",
            "_se": "standard error over days",
            "_std_checkpoints": "standard deviation over the n checkpoints",
        }
        ends = ends_of(name).values()
        columns |= {wide_name(name, end): Column(unit, f"{name}: {what}") for end, what in about.items() if end in ends}
    return columns


TABLES: dict[str, dict[str, Column]] = {
    "orders/*.parquet": {**_ORDER, **_FORMS},
    "orders/summary.csv": _PARTS,
    "metrics/*.csv": _ITERATION,
    "backtest/orders/*.parquet": {**_ORDER, **_FORMS, **_RESULT, **_COST},
    "backtest/summary.csv, headline.csv, metrics.csv, dial.csv; comparison.csv": {**_POLICY, **_metric_columns()},
    "backtest/groups.csv": _GROUPS,
    "backtest/intervals.csv": _INTERVALS,
    "backtest/gap.csv": _GAP,
    "backtest/costs.csv, cost_groups.csv": _COSTS,
    "backtest/frontier.csv": _FRONTIER,
    "backtest/candidates.csv": _CANDIDATES,
    "stress/conditions.csv, stress/verdicts.csv": _STRESS,
    "stability/groups.csv, stability/drift.csv": _STABILITY,
    "excess.csv of an analysis of fills": _EXCESS,
    "sweep.csv, seeds.csv, improvement.csv, profiles.csv, stress.csv, stability.csv of a sweep": _SWEEP,
}
"""Files of a run, or of a comparison, to their columns. ``metrics/*.csv`` hold means of the results of orders too."""

COLUMNS: dict[str, Column] = {name: one for columns in TABLES.values() for name, one in columns.items()}
"""Every column by its name; a name means the same in all tables, alone or as the mean over a row's orders."""


def as_markdown() -> str:
    """Return the dictionary as one Markdown table a file, a column once, where it appears first."""
    told: set[str] = set()
    blocks = []
    for files, columns in TABLES.items():
        rows = [f"| `{name}` | {one.unit} | {one.meaning} |" for name, one in columns.items() if name not in told]
        told |= set(columns)
        blocks.append("\n".join([f"## {files}", "", "| column | unit | meaning |", "|---|---|---|", *rows]))
    return "\n\n".join(blocks) + "\n"
