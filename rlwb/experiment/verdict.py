"""The verdict on a run, from the files in its directory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel

from rlwb.errors import FileError
from rlwb.execution.costs import fees
from rlwb.execution.presets import PRESETS
from rlwb.execution.rules import BASIS_POINTS, ExecutionRules
from rlwb.experiment.config import RunConfig
from rlwb.experiment.ledger import read_look, told_look, widened
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST
from rlwb.files import write_json, write_text
from rlwb.reading import read_json, read_table

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table
    from rlwb.evaluation.verdict import Verdict

#: The verdict in plain values, in a run's directory.
VERDICT = "verdict.json"

#: Folder of a run's noise twin (`rlwb.experiment.twin`).
TWIN = "twin"

#: Time zone of a market's clock to the preset of its rules and costs.
_PRESET_OF_ZONE = {"Asia/Shanghai": "cn", "America/New_York": "us"}


class _Check(BaseModel):
    """Names and types of a check in audit.json."""

    name: str
    passed: bool | None


class _Audit(BaseModel):
    """Names and types of audit.json."""

    checks: list[_Check]
    backtest: str | None = None


class _Selection(BaseModel):
    """Names and types of selection.json that a verdict reads."""

    expected_shrinkage: float | None = None
    ranked: int | None = None


class _Evidence(BaseModel):
    """Names and types of evidence.json that a verdict reads."""

    reality_check_p: float | None = None


class _Rule(BaseModel):
    """Names and types of the best simple rule in headline.json."""

    rule: str
    beats: bool | None
    sentence: str


class _Headline(BaseModel):
    """Names and types of headline.json that a verdict reads."""

    rule: _Rule | None = None


class _Data(BaseModel):
    """Names and types of data.json that a verdict reads."""

    calendar: dict[str, Any] | None = None


class _Outcome(BaseModel):
    """Names and types of verdict.json that another verdict reads."""

    outcome: Literal["found", "none", "worse", "cannot be told"]
    effect: float | None
    lo: float | None
    hi: float | None


def verdict_of(
    run: RunDirectory, config: RunConfig, results: Sequence[PolicyResult] = (), *, is_whole: bool = True
) -> Verdict | None:
    """Return the verdict on a run; None where its backtest has no figures.

    The mark to beat is TWAP on the same orders, whose own PA is not 0 where rules cut its fills. The effect is of the
    mean, or of the run's objective where that is another. A file that is not there leaves out what it would say.

    Parameters
    ----------
    results
        The results of the backtest.
    is_whole
        Whether what came after the backtest counts, as its leak audit.

    Raises
    ------
    FileError
        Where a file lacks what every backtest writes.
    """
    from rlwb.evaluation import risk_verdict
    from rlwb.evaluation.verdict import Evidence, judge

    path, rules = run.backtest / "metrics.csv", config.execution.rules
    if not path.exists():
        return None
    metrics = read_table(path, ("policy", "metric"), numbers=["estimate", "lo", "hi"], texts=["metric", "kind"])
    own = metrics[metrics["kind"] == "checkpoint"].set_index("metric")
    if own.empty:
        return None
    over, alone = ("net_over_twap", "pa_net") if rules.have_costs else ("over_twap", "pa")
    is_objective = config.judged_by == "objective"
    if lacks := {over, alone, *(["objective"] if is_objective else [])} - set(own.index):
        raise FileError(f"{path} has no {min(lacks)} of the chosen checkpoints; run the backtest again.")
    if pd.isna(own["estimate"][alone]):
        return None
    is_compared = not pd.isna(own["estimate"][over])
    mark = "TWAP" if is_compared or rules.benchmark == "twap" else rules.benchmark
    frontier = _table(run.backtest / "frontier.csv", "policy", texts=["policy", "title", "kind"])
    risk = None if frontier is None or is_objective else risk_verdict(frontier)
    effect = own.loc[over if is_compared else alone]
    if is_objective:
        effect = _objective_effect(own, frontier)
    figures: dict[str, Any] = {
        "effect": _number(effect, "estimate"),
        **{name: _number(effect, name) for name in ("lo", "hi", "standard_error")},
        "mark": mark,
        "is_compared": is_compared,
        "is_net": rules.have_costs,
        "level": config.backtest.confidence,
        **{name: _count(own, name) for name in ("orders", "days", "distinct")},
        "risk": "unclear" if risk is None else risk.risk,
        **_of_objective(config, own.loc[over if is_compared else alone]),
        **_of_market(metrics, own),
        **_of_policies(results, config, is_compared=is_compared),
        **_of_files(run, mark),
        **_of_looks(run, effect, _count(own, "days"), config.backtest.confidence),
        **({**_of_audit(run), **_of_twin(run)} if is_whole else {}),
        "costs": "" if rules.have_costs else _left_by_costs(run, results, _number(effect, "estimate")),
    }
    return judge(Evidence(**figures))


def write_texts(folder: Path, head: Table, verdict: Verdict | None = None) -> None:
    """Write a headline as ``headline.md``, ``.txt`` and ``.json``, with a verdict before it where there is one."""
    if verdict is not None:
        head = replace(head, opening=verdict.opening)
    write_text(folder / "headline.md", head.to_markdown() + "\n")
    write_text(folder / "headline.txt", head.to_text() + "\n")
    write_json(
        folder / "headline.json",
        {
            "header": head.header,
            "rows": head.rows,
            "notes": head.notes,
            "risk": head.risk,
            "rule": head.rule._asdict() if head.rule else None,
            "verdict": verdict.as_dict() if verdict else None,
        },
    )


def _of_objective(config: RunConfig, mean: Mapping[str, Any]) -> dict[str, Any]:
    """Return the objective in words and what it leaves unsaid of the mean; nothing where the mean is the objective."""
    if config.judged_by != "objective":
        return {}
    return {"objective": _objective_title(config), "mean": tuple(mean[name] for name in ("estimate", "lo", "hi"))}


def _objective_title(config: RunConfig) -> str:
    """Return the objective with its settings; of a dial the middle one, by which the figures are."""
    settings = dict(config.as_dict()["objective"])
    name = settings.pop("name")
    if isinstance(dial := settings.get("aversion"), list):
        settings["aversion"] = f"{sorted(dial)[len(dial) // 2]}, the middle of its dial"
    return f"{name} ({', '.join(f'{key} {value}' for key, value in settings.items())})" if settings else name


def _objective_effect(own: pd.DataFrame, frontier: pd.DataFrame | None) -> Mapping[str, Any]:
    """Return the chosen checkpoints' value of the objective over TWAP's, or where there is none their own, and ends."""
    name = "objective_over_twap"
    if frontier is None or name not in frontier:
        return own.loc["objective"].to_dict()
    row = frontier[frontier["policy"] == "checkpoints"].iloc[0]
    return {"estimate": row[name], "lo": row[f"{name}_lo"], "hi": row[f"{name}_hi"]}


def _of_market(metrics: pd.DataFrame, own: pd.DataFrame) -> dict[str, Any]:
    """Return how the chosen checkpoints stand beside what is attainable, and the ceiling."""
    attained = own["estimate"].get("attained", math.nan)
    ceiling = metrics[(metrics["policy"] == "hindsight") & (metrics["metric"] == "pa")]["estimate"]
    best = metrics[(metrics["kind"] == "attainable") & (metrics["metric"] == "pa")]["lo"]
    return {
        # A share of an attainable gain that is not told from nothing says nothing.
        "attained": float(attained) if len(best) and best.iloc[0] > 0 else math.nan,
        "ceiling": float(ceiling.iloc[0]) if len(ceiling) else math.nan,
    }


def _of_policies(results: Sequence[PolicyResult], config: RunConfig, *, is_compared: bool) -> dict[str, Any]:
    """Return what single policies of the backtest say: each checkpoint, the last one, and their validation."""
    from rlwb.evaluation.results import mean, of_kind, twap_of

    chosen = of_kind(results, "checkpoint")
    twap = twap_of(results) if is_compared else None
    figure = config.judged_by

    def gain(one: PolicyResult) -> float:
        other = 0.0 if twap is None else twap.values(figure, one)
        return mean(one.values(figure) - other)

    validation = mean(np.array([one.validation_pa for one in chosen])) - (0.0 if twap is None else twap.validation_pa)
    last = of_kind(results, "last")
    return {
        "checkpoints": tuple(gain(one) for one in chosen),
        "last": gain(last[0]) if last else math.nan,
        "validation": validation,
        "is_blind": bool(chosen) and figure == "pa" and all(one.fixed_schedule() is not None for one in chosen),
    }


def _of_files(run: RunDirectory, mark: str) -> dict[str, Any]:
    """Return what other files of the run say, as far as they are there."""
    found: dict[str, Any] = {}
    if (path := run.backtest / "headline.json").exists():
        rule = read_json(path, _Headline).get("rule")
        if rule and rule["rule"] != mark.lower():
            found |= {"rule": rule["sentence"], "beats_rule": rule["beats"]}
    if (path := run.backtest / "selection.json").exists():
        known = read_json(path, _Selection)
        found |= {"shrinkage": _known(known.get("expected_shrinkage")), "candidates": known.get("ranked")}
    if (path := run.backtest / "evidence.json").exists():
        found["reality_check"] = _known(read_json(path, _Evidence).get("reality_check_p"))
    return found


def _of_looks(run: RunDirectory, effect: Mapping[str, Any], days: int | None, level: float) -> dict[str, Any]:
    """Return which look at the test days the run is, and what the interval is with all looks counted."""
    look = read_look(run)
    if look is None:
        return {}
    estimate, lo, hi = (_number(effect, name) for name in ("estimate", "lo", "hi"))
    if days is None or math.isnan(lo):
        return {"looks": told_look(look)}
    lo, hi = widened(estimate, lo, hi, days, look=look["look"], level=level)
    paid = f" With all looks counted the interval is [{lo:z.2f}, {hi:z.2f}] bp."
    return {"looks": told_look(look) + paid, "paid": (lo, hi)}


def _of_audit(run: RunDirectory) -> dict[str, Any]:
    """Return what the leak audit of this backtest found; one of an earlier backtest is none."""
    path = run.path / "audit.json"
    told = read_json(path, _Audit) if path.exists() else {"checks": []}
    if told.get("backtest") not in (None, run.stage(BACKTEST.name).get("ended")):
        told = {"checks": []}
    failed = tuple(one["name"] for one in told["checks"] if one["passed"] is False)
    return {"failed": failed, "checks": sum(one["passed"] is not None for one in told["checks"])}


def _of_twin(run: RunDirectory) -> dict[str, Any]:
    """Return what the run's noise twin shows, if it has one."""
    path = run.path / TWIN / VERDICT
    if not path.exists():
        return {}
    told = read_json(path, _Outcome)
    return {"twin": (told["outcome"], *(_known(told[name]) for name in ("effect", "lo", "hi")))}


def _left_by_costs(run: RunDirectory, results: Sequence[PolicyResult], effect: float) -> str:
    """Say what the fees of the market's preset would leave of the effect, from the orders' own fills."""
    from rlwb.evaluation.results import mean, of_kind, twap_of

    path, twap = run.orders / "data.json", twap_of(results)
    chosen = of_kind(results, "checkpoint")
    calendar = read_json(path, _Data).get("calendar") if path.exists() else None
    preset = _PRESET_OF_ZONE.get(str((calendar or {}).get("timezone")))
    if preset is None or twap is None or not chosen:
        return "Costs are off; what they would leave is not known."
    rules = ExecutionRules(**PRESETS[preset])
    ours, even = mean(np.array([_fee_bp(one, rules) for one in chosen])), _fee_bp(twap, rules)
    return (
        f"Costs are off: by the fees of the preset {preset} these fills would pay {ours:.2f} bp an order and TWAP's "
        f"{even:.2f} bp, which leaves a difference of {effect - ours + even:z.2f} bp; spread and impact, which "
        "the preset does not hold, would come on top."
    )


def _fee_bp(one: PolicyResult, rules: ExecutionRules) -> float:
    """Return the mean fees of a policy's orders under other rules, in basis points of value at the benchmark."""
    from rlwb.evaluation.results import mean

    side = np.where(one.orders["direction"] == "BUY", 1.0, -1.0)
    paid = fees(np.nan_to_num(one.values("filled") * one.values("price")), side, rules)
    return mean(BASIS_POINTS * paid / (one.values("amount") * one.values("benchmark")))


def _table(path: Path, key: str, **columns: Any) -> pd.DataFrame | None:
    return read_table(path, key, **columns) if path.exists() else None


def _count(own: pd.DataFrame, name: str) -> int | None:
    return int(own[name].iloc[0]) if name in own and pd.notna(own[name].iloc[0]) else None


def _number(row: Mapping[str, Any], name: str) -> float:
    return _known(row.get(name))


def _known(value: float | None) -> float:
    return math.nan if value is None else float(value)
