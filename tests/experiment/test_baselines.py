"""The baselines of a run: what they are told, and what it is from."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from rlwb.experiment.baselines import Estimates, baseline_results

from rlwb.errors import ConfigError
from rlwb.execution import POV, TWAP, VWAP, AlmgrenChriss, BertsimasLo
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.market import Sessions

ALL = ["twap", "vwap", "pov", "almgren_chriss", "bertsimas_lo", "hindsight", "hindsight_uncapped"]
SMALL = {"market.instruments": 2, "market.days": 12}


def bench_of(**changes: object) -> Workbench:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return Workbench(RunConfig.load(None, Layer("test", {**SMALL, **named})))


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
    known = Estimates.fit(bench, parts["train"])
    assert Estimates.fit(other, parts["train"]) == known
    assert known.sessions == (~later).sum()
    assert known.impact is not None
    assert known.impact.instruments == ("SYN001", "SYN002")
    assert known.risk_aversion is not None
    assert known.risk_aversion > 0


def test_estimates_go_through_the_runs_file_and_back(bench: Workbench, tmp_path) -> None:  # type: ignore[no-untyped-def]
    known = Estimates.fit(bench, bench.make_orders()[0]["train"])
    write_json(tmp_path / "baselines.json", known)
    assert Estimates.from_dict(json.loads((tmp_path / "baselines.json").read_text())) == known
    few = Estimates.fit(bench_of(baselines=["twap", "pov"]), bench.make_orders()[0]["train"])
    assert dataclasses.astuple(few)[1:] == (None, None, None)
    assert Estimates.from_dict(dataclasses.asdict(few)) == few


def test_names_are_policies(bench: Workbench) -> None:
    known = Estimates.fit(bench, bench.make_orders()[0]["train"])
    kinds = {"twap": TWAP, "vwap": VWAP, "pov": POV, "almgren_chriss": AlmgrenChriss, "bertsimas_lo": BertsimasLo}
    for name, kind in kinds.items():
        assert type(known.policy(name)) is kind


def test_more_urgency_is_more_risk_aversion() -> None:
    orders = bench_of().make_orders()[0]["train"]
    found = [Estimates.fit(bench_of(backtest__urgency=urgency), orders).risk_aversion for urgency in (1.0, 3.0, 9.0)]
    assert found[0] < found[1] < found[2]  # type: ignore[operator]


def test_no_baseline_passes_the_ceiling_and_the_cap_takes_from_it(bench: Workbench) -> None:
    parts, _ = bench.make_orders()
    results = baseline_results(bench, Estimates.fit(bench, parts["train"]), bench.bind(parts["test"]))
    assert [result.policy for result in results] == ALL
    assert [result.kind for result in results] == ["baseline"] * 5 + ["ceiling"] * 2
    tables = {result.policy: result.orders.set_index("order_id") for result in results}
    ceiling = tables["hindsight"]
    for name in ALL[:5]:
        pa = tables[name]["pa"]
        assert pa.index.equals(ceiling.index)
        assert (pa.isna() == ceiling["pa"].isna()).all()
        assert (pa.dropna() <= ceiling["pa"].dropna() + 1e-6).all()
    assert (tables["hindsight_uncapped"]["ffr"] == 1.0).all()
    assert tables["vwap"]["pa"].abs().max() > 1.0
    assert all(result.inventory is None for result in results[5:])


def test_default_baselines_are_those_of_the_headline() -> None:
    assert RunConfig.load(None).baselines == ("twap", "vwap", "pov", "almgren_chriss", "hindsight")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"baselines": ["twap", "twap"]}, "baselines names twap twice; keep one"),
        ({"baselines": ["twap"], "backtest.urgency": 2.0}, "urgency has no effect without almgren_chriss"),
        ({"baselines": ["hindsight_uncapped"]}, "the rules have no cap to leave out; use hindsight"),
        ({"baselines": ["vwp"]}, "baselines"),
        ({"backtest.urgency": 0.0}, "backtest.urgency"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig.load(None, Layer("test", changes))


def test_an_instrument_that_was_not_in_training_is_traded_evenly() -> None:
    bench = bench_of(baselines=["almgren_chriss", "bertsimas_lo", "twap"])
    parts, _ = bench.make_orders()
    train = parts["train"][parts["train"]["instrument"] == "SYN001"]
    known = Estimates.fit(bench, train)
    assert known.impact is not None
    only = dataclasses.replace(
        known, impact=type(known.impact)(*((values[:1]) for values in dataclasses.astuple(known.impact)))
    )
    results = baseline_results(bench, only, bench.bind(parts["test"]))
    pa = pd.DataFrame({one.policy: one.orders.set_index("order_id")["pa"] for one in results})
    new = pa.index.str.startswith("SYN002")
    assert new.any()
    np.testing.assert_allclose(pa.loc[new, ["almgren_chriss", "bertsimas_lo"]], 0.0, atol=1e-9)
    assert (pa.loc[~new, ["almgren_chriss", "bertsimas_lo"]].abs() > 0.1).any(axis=None)
