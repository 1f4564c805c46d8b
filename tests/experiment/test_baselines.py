"""The baselines of a run: what they are told, and what it is from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, OrderError
from rlwb.evaluation import PolicyResult
from rlwb.execution import POV, TWAP, VWAP, AlmgrenChriss, Baseline, BertsimasLo
from rlwb.experiment.backtest import baseline_result, estimates_of, make_baselines
from rlwb.experiment.config import RunConfig, baseline_labels
from rlwb.experiment.layers import Layer
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.market import Sessions

ALL = ["twap", "vwap", "pov", "almgren_chriss", "bertsimas_lo", "forecast", "hindsight", "hindsight_uncapped"]
SMALL = {"market.instruments": 2, "market.days": 12}


def bench_of(**changes: object) -> Workbench:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return Workbench(RunConfig.load(None, Layer("test", {**SMALL, **named})))


def fitted(bench: Workbench, orders: pd.DataFrame | None = None) -> dict[str, object]:
    """Return the baselines of a run, estimated on orders, by default the run's training orders."""
    made = make_baselines(bench)
    train = bench.align(bench.make_orders()[0]["train"] if orders is None else orders)
    for one in made.values():
        if isinstance(one, Baseline):
            one.fit(train)
    return made


def results_of(bench: Workbench, baselines: dict[str, object]) -> list[PolicyResult]:
    test = bench.align(bench.make_orders()[0]["test"])
    return [baseline_result(bench, name, one, test) for name, one in baselines.items()]


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return bench_of(baselines=ALL, execution__rules__volume_limit=0.02)


def test_estimates_are_from_the_training_sessions_alone(bench: Workbench) -> None:
    """Every later bar is changed, and nothing moves."""
    parts, _ = bench.make_orders()
    last = parts["train"]["date"].max()
    later = bench.sessions.dates > last.to_datetime64().astype("datetime64[D]")
    assert 0 < later.sum() < len(later)
    other = bench_of(baselines=ALL, execution__rules__volume_limit=0.02)
    fields = {name: np.where(later[:, None], values * 3.7, values) for name, values in bench.sessions.fields.items()}
    old = bench.sessions
    other.sessions = Sessions(old.calendar, old.instruments, old.dates, old.num_ticks, fields)
    known = estimates_of(fitted(bench, parts["train"]))
    assert estimates_of(fitted(other, parts["train"])) == known
    assert known["almgren_chriss"]["impact"]["instruments"] == ("SYN001", "SYN002")
    assert known["almgren_chriss"]["risk_aversion"] > 0


def test_estimates_go_through_the_runs_file_and_back(bench: Workbench, tmp_path: Path) -> None:
    known = estimates_of(fitted(bench))
    write_json(tmp_path / "baselines.json", known)
    read = json.loads((tmp_path / "baselines.json").read_text())
    assert estimates_of(make_baselines(bench, read)) == known


def test_names_are_policies(bench: Workbench) -> None:
    made = make_baselines(bench)
    assert list(made) == ALL
    kinds = {"twap": TWAP, "vwap": VWAP, "pov": POV, "almgren_chriss": AlmgrenChriss, "bertsimas_lo": BertsimasLo}
    for name, kind in kinds.items():
        assert type(made[name]) is kind


def test_more_urgency_is_more_risk_aversion() -> None:
    own = [[{"name": "almgren_chriss", "urgency": urgency}] for urgency in (1.0, 3.0, 9.0)]
    found = [estimates_of(fitted(bench_of(baselines=one)))["almgren_chriss"]["risk_aversion"] for one in own]
    assert found[0] < found[1] < found[2]


def test_no_baseline_passes_the_ceiling_and_the_cap_takes_from_it(bench: Workbench) -> None:
    results = results_of(bench, fitted(bench))
    assert [result.policy for result in results] == ALL
    assert [result.kind for result in results] == ["baseline"] * 6 + ["ceiling"] * 2
    tables = {result.policy: result.orders.set_index("order_id") for result in results}
    ceiling = tables["hindsight"]
    for name in ALL[:6]:
        pa = tables[name]["pa"]
        assert pa.index.equals(ceiling.index)
        assert (pa.isna() == ceiling["pa"].isna()).all()
        assert (pa.dropna() <= ceiling["pa"].dropna() + 1e-6).all()
    assert (tables["hindsight_uncapped"]["ffr"] == 1.0).all()
    assert tables["vwap"]["pa"].abs().max() > 1.0
    assert all(result.inventory is None for result in results[6:])


def test_default_baselines_are_those_of_the_headline() -> None:
    names = [one.name for one in RunConfig.load(None).baselines]
    rules = ["twap", "vwap", "pov", "almgren_chriss", "forecast"]
    assert names == [*rules, "hindsight", "filter_optimum", "filter_optimum"]


def test_what_is_attainable_is_shown_by_default_where_it_is_known() -> None:
    def named(**changes: object) -> list[str]:
        return [one.name for one in RunConfig.load(None, Layer("test", changes)).baselines]

    usual = ["twap", "vwap", "pov", "almgren_chriss", "forecast", "hindsight"]
    assert named(**{"market.seed": 3, "execution.rules.commission_bps": 1})[6:] == ["filter_optimum"] * 2
    assert named(**{"market.source": "bars"}) == usual
    assert named(**{"execution.rules.volume_limit": 0.1}) == usual
    assert named(simulator="random_liquidity") == usual
    assert named(baselines=["twap"]) == ["twap"]
    whole = RunConfig.load(None)
    assert RunConfig.load(None, Layer("again", whole.as_dict())) == whole
    other = RunConfig.load(None, Layer("again", whole.as_dict()), Layer("test", {"execution.rules.volume_limit": 0.1}))
    assert [one.name for one in other.baselines] == usual, "the default of another market"
    old = RunConfig.load(None, Layer("old", {"baselines": usual}))
    assert [one.name for one in old.baselines] == usual, "what a run of before was asked for"


def test_the_optimum_is_refused_where_it_is_not_known() -> None:
    with pytest.raises(ConfigError, match=r"filter_optimum.*volume_limit"):
        make_baselines(bench_of(baselines=["filter_optimum"], execution__rules__volume_limit=0.1))


def test_what_is_attainable_has_a_kind_of_its_own() -> None:
    own = [{"name": "filter_optimum", "knows_volatility": knows} for knows in (False, True)]
    own_bench = bench_of(baselines=["twap", *own])
    made = results_of(own_bench, fitted(own_bench))
    assert [result.kind for result in made] == ["baseline", "attainable", "unattainable"]
    assert [result.title for result in made] == ["TWAP", "filter optimum", "filter optimum with known volatility"]


def test_an_instrument_that_was_not_in_training_is_traded_evenly() -> None:
    bench = bench_of(baselines=["almgren_chriss", "bertsimas_lo", "twap"])
    train = bench.make_orders()[0]["train"]
    known = estimates_of(fitted(bench, train[train["instrument"] == "SYN001"]))
    for name in ("almgren_chriss", "bertsimas_lo"):
        impact = known[name]["impact"]
        known[name]["impact"] = {key: values[:1] for key, values in impact.items()}
    results = results_of(bench, make_baselines(bench, known))
    pa = pd.DataFrame({one.policy: one.orders.set_index("order_id")["pa"] for one in results})
    new = pa.index.str.startswith("SYN002")
    assert new.any()
    np.testing.assert_allclose(pa.loc[new, ["almgren_chriss", "bertsimas_lo"]], 0.0, atol=1e-9)
    assert (pa.loc[~new, ["almgren_chriss", "bertsimas_lo"]].abs() > 0.1).any(axis=None)


def test_one_baseline_with_several_settings_is_told_apart_by_them(tmp_path: Path) -> None:
    own = [{"name": "almgren_chriss", "risk_aversion": one} for one in (None, 1e-6, 30.0)]
    bench = bench_of(baselines=["twap", *own, {"name": "pov", "rate": 0.1}])
    fit = fitted(bench)
    names = ["null", "1.0e-06", "30.0"]
    assert list(fit) == ["twap", *(f"almgren_chriss-risk_aversion={one}" for one in names), "pov"]
    write_json(tmp_path / "baselines.json", estimates_of(fit))
    again = make_baselines(bench, json.loads((tmp_path / "baselines.json").read_text()))
    assert estimates_of(again) == estimates_of(fit)
    results = results_of(bench, fit)
    held = [one.inventory[:, 1].mean() for one in results[1:4] if one.inventory is not None]
    assert held[1] > held[0] > held[2], "more aversion is less left"
    assert results[2].display_name == "Almgren-Chriss with risk_aversion=1.0e-06"


def test_controls_of_a_forecast_stand_beside_it_and_the_oracle_is_not_attainable() -> None:
    own = [{"name": "forecast", "control": one} for one in ("none", "shuffled", "stale", "oracle")]
    bench = bench_of(baselines=["twap", *own, "hindsight"])
    results = results_of(bench, fitted(bench))
    controls = [f"forecast-control={one}" for one in ("none", "shuffled", "stale", "oracle")]
    assert [one.policy for one in results] == ["twap", *controls, "hindsight"]
    assert [one.kind for one in results] == ["baseline"] * 2 + ["control"] * 2 + ["unattainable", "ceiling"]
    assert results[4].orders["pa"].mean() > max(one.orders["pa"].mean() for one in results[:4])


def test_labels_are_names_of_files() -> None:
    parts = RunConfig.load(None, Layer("test", {"baselines": ["a/b.py:Own", {"name": "a/b.py:Own", "x": "é/..:* y"}]}))
    assert baseline_labels(parts.baselines)[1] == "Own-x=é_.._y"
    forecasts = [{"name": "ar", "ridge": 0.1}, {"name": "ar", "ridge": 0.2}, "sklearn.linear_model:Ridge", None]
    parts = RunConfig.load(None, Layer("test", {"baselines": [{"name": "mpc", "forecast": one} for one in forecasts]}))
    told = ["ar-ridge=0.1", "ar-ridge=0.2", "Ridge", "null"]
    assert baseline_labels(parts.baselines) == [f"mpc-forecast={one}" for one in told]


def test_a_run_whose_windows_a_baseline_cannot_trade_is_refused_before_it_starts() -> None:
    own = {"name": "vwap", "skip_open": 60}
    with pytest.raises(OrderError, match=r"SYN001 on .*skip_open.*skip_close"):
        bench_of(baselines=["twap", own], orders__end_time="10:30").try_out()


OWN_FORECAST = """
class Last:
    \"\"\"Expects the last return once more.\"\"\"

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def fit(self, X, y):
        self.rows = len(y)

    def predict(self, X):
        return self.weight * X[:, 0]
"""


def test_a_forecast_is_a_part_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_FORECAST)
    own = {"name": f"{tmp_path}/own.py:Last", "weight": -0.5}
    given = [{"name": "mpc", "forecast": one} for one in (None, "ar", own)]
    bench = bench_of(baselines=["mpc"])
    assert bench.config.baselines[0].settings["forecast"] == {"name": "ar", "ridge": 0.01}
    bench = bench_of(baselines=given)
    known = estimates_of(fitted(bench))
    assert list(known) == ["mpc-forecast=null", "mpc-forecast=ar", "mpc-forecast=Last"]
    forecasts = [one["forecast"] for one in known.values()]
    assert forecasts[0] is None
    assert len(forecasts[1][0]["coef"]) == 13
    assert forecasts[2][0]["rows"] > forecasts[2][1]["rows"] > 0
    write_json(tmp_path / "baselines.json", known)
    again = make_baselines(bench, json.loads((tmp_path / "baselines.json").read_text()))
    now, before = results_of(bench, again), results_of(bench, fitted(bench))
    for one, other in zip(now, before, strict=True):
        np.testing.assert_array_equal(one.pa, other.pa)
    with pytest.raises(ConfigError, match="wieght"):
        bench_of(baselines=[{"name": "mpc", "forecast": {**own, "wieght": 1.0}}])
