"""What rules are refused, what presets hold, and what is printed of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import Engine, ExecutionRules, OrderBatch, align_orders
from rlwb.execution.presets import published_impact
from tests.execution.markets import order, sessions_of

WITHOUT_EFFECT = {
    "price_tick has no effect": {"price_tick": 0.05},
    "odd_lot 'leave' has no effect": {"odd_lot": "leave"},
    "half_spread_bps has no place": {"price_field": "quotes", "half_spread_bps": 1.0},
    "temporary_impact_shape has no effect": {"temporary_impact_shape": "square_root", "volume_limit": 0.1},
    "permanent_impact_shape has no effect": {
        "permanent_impact_shape": "square_root",
        "temporary_impact_bps": 1.0,
        "volume_limit": 1.0,
    },
    "transient_impact_shape has no effect": {"transient_impact_shape": "linear"},
    "transient_decay has no effect": {"transient_decay": "exponential"},
    "transient_half_life has no effect": {"transient_half_life": 5.0},
    "transient_exponent has no effect without": {"transient_exponent": 0.4},
    "transient_exponent has no effect under": {
        "transient_impact_bps": 1.0,
        "transient_half_life": 5.0,
        "transient_decay": "exponential",
        "transient_exponent": 0.4,
        "volume_limit": 1.0,
    },
    "needs a transient_half_life": {"transient_impact_bps": 1.0, "volume_limit": 1.0},
    "transient_impact_bps counts the share.*needs a volume_limit": {
        "transient_impact_bps": 1.0,
        "transient_half_life": 5.0,
    },
    "temporary_impact_bps counts the share.*needs a volume_limit": {"temporary_impact_bps": 1.0},
    "permanent_impact_bps counts the share.*needs a volume_limit": {"permanent_impact_bps": 1.0},
}


@pytest.mark.parametrize("message", WITHOUT_EFFECT)
def test_a_setting_without_effect_is_refused(message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExecutionRules(**WITHOUT_EFFECT[message])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temporary_impact_bps", -1.0),
        ("permanent_impact_bps", float("nan")),
        ("temporary_impact_shape", "cubic"),
        ("transient_decay", "gamma"),
        ("transient_half_life", 0.0),
        ("transient_exponent", float("inf")),
        ("transient_impact_bps", -1.0),
        ("halts", 1),
        ("price_field", "mid"),
        ("min_fee", float("inf")),
    ],
)
def test_impossible_values_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        ExecutionRules(**{"volume_limit": 0.1, name: value})  # type: ignore[arg-type]


def test_a_minimum_fee_alone_is_a_flat_fee_and_a_cost() -> None:
    assert ExecutionRules(min_fee=5.0).have_costs
    assert not ExecutionRules(volume_limit=0.1, lot_size=100, price_limit=0.1).have_costs
    assert not ExecutionRules(commission_bps=1.0).costs_by_tick
    assert ExecutionRules(price_field="quotes").costs_by_tick
    passing = ExecutionRules(volume_limit=1.0, transient_impact_bps=1.0, transient_half_life=5.0)
    assert passing.costs_by_tick
    assert passing.have_costs


def test_presets_hold_the_published_figures_and_take_changes() -> None:
    cn = ExecutionRules.preset("cn", volume_limit=0.1)
    assert (cn.lot_size, cn.price_limit, cn.price_tick, cn.volume_limit) == (100, 0.1, 0.01, 0.1)
    assert (cn.commission_bps, cn.sell_tax_bps, cn.min_fee) == (3.1, 5.0, 5.0)
    assert ExecutionRules.preset("us") == ExecutionRules(lot_size=1, sell_tax_bps=0.206)
    assert ExecutionRules.preset("crypto") == ExecutionRules(commission_bps=10.0)
    with pytest.raises(ConfigError, match="no rules for the market 'eu'; choose one of cn, us, crypto, qlib"):
        ExecutionRules.preset("eu")


OTHER = {
    "benchmark": "arrival",
    "unfilled_at": "end",
    "price_field": "vwap",
    "halts": False,
    "volume_limit": 0.125,
    "complete_at_end": False,
    "catch_up": False,
    "step_grid": "session",
    "lot_size": 10.0,
    "odd_lot": "leave",
    "price_limit": 0.3,
    "price_tick": 0.5,
    "commission_bps": 1.5,
    "sell_tax_bps": 2.5,
    "half_spread_bps": 3.5,
    "min_fee": 4.5,
    "temporary_impact_bps": 5.5,
    "temporary_impact_shape": "square_root",
    "permanent_impact_bps": 6.5,
    "permanent_impact_shape": "square_root",
    "transient_impact_bps": 7.5,
    "transient_impact_shape": "linear",
    "transient_decay": "power",
    "transient_half_life": 8.5,
    "transient_exponent": 0.4,
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(ExecutionRules)])
def test_the_description_tells_every_rule(name: str) -> None:
    full = ExecutionRules(**OTHER)  # type: ignore[arg-type]
    other = {"volume_limit": 0.25, "lot_size": 20.0, "price_limit": 0.2}.get(name, getattr(ExecutionRules(), name))
    if name in ("temporary_impact_bps", "permanent_impact_bps", "transient_impact_bps", "transient_half_life"):
        other = 0.75
    if name == "price_tick":
        other = 0.75
    if name == "transient_decay":  # which no exponent belongs to
        full, other = dataclasses.replace(full, transient_exponent=None), "exponential"
    assert dataclasses.replace(full, **{name: other}).describe() != full.describe()


@pytest.mark.parametrize(("decay", "left"), [("power", [1.0, 0.5, 0.2]), ("exponential", [1.0, 0.5, 2.0**-8])])
def test_half_of_a_transient_move_is_left_at_the_half_life(decay: str, left: list[float]) -> None:
    """With the exponent 0.5 tau is a third of the half-life, so 8 half-lives later 1 / sqrt(25) is left."""
    rules = ExecutionRules(volume_limit=1.0, transient_impact_bps=1.0, transient_half_life=3.0, transient_decay=decay)  # type: ignore[arg-type]
    assert rules.transient_left(np.array([0.0, 3.0, 24.0])) == pytest.approx(left)
    assert ExecutionRules().transient_left(np.array([0.0, 3.0])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("exponent", "left"), [(1e-4, [1.0, 0.5, 0.5, 0.5]), (1e17, [1.0, 0.5, 0.25, 2.0**-8])])
def test_half_is_left_at_the_half_life_whatever_the_exponent(exponent: float, left: list[float]) -> None:
    """A small exponent leaves the half for long, and a large one is the exponential decay."""
    rules = ExecutionRules(
        volume_limit=1.0, transient_impact_bps=1.0, transient_half_life=3.0, transient_exponent=exponent
    )
    assert rules.transient_left(np.array([0.0, 3.0, 6.0, 24.0])) == pytest.approx(left, abs=3e-4)


def idle(rules: ExecutionRules, amount: float = 100.0, volume: float = 1000.0) -> list[str]:
    """What is said of rules that cannot act on a buy at 10, on the second of two days."""
    sessions = sessions_of([[10.0] * 2] * 2, volume, halted=np.zeros((2, 2), dtype=bool))
    batch: OrderBatch = align_orders([order(amount, day=2)], sessions)
    return Engine(sessions, 1, rules).idle_rules(batch)


def test_j02_a_rule_that_cannot_act_on_the_data_says_so() -> None:
    full = ExecutionRules(volume_limit=0.1, price_limit=0.1, lot_size=100, odd_lot="leave")
    assert idle(full, 150.0) == []
    assert [text.partition(":")[0] for text in idle(full, 200.0)] == ["odd_lot leave"]
    assert [text.partition(":")[0] for text in idle(ExecutionRules(sell_tax_bps=5.0))] == ["sell_tax_bps"]
    dry = idle(ExecutionRules(volume_limit=0.1), volume=0.0)
    assert [text[: text.index(" orders")] for text in dry] == ["volume_limit: 1 of 1"]


def test_j02_a_price_limit_counts_the_orders_without_an_earlier_close() -> None:
    rules = ExecutionRules(price_limit=0.1)
    sessions = sessions_of([[10.0] * 2] * 3, halted=np.zeros((3, 2), dtype=bool))
    first, second, both = ([order(1.0, day=day) for day in days] for days in ((1,), (2,), (1, 2)))
    found = [Engine(sessions, 1, rules).idle_rules(align_orders(orders, sessions)) for orders in (first, second, both)]
    assert [len(texts) for texts in found] == [1, 0, 1]
    assert "price_limit: 1 of 1 orders" in found[0][0]
    assert "price_limit: 1 of 2 orders" in found[2][0]


@pytest.mark.parametrize(("tick", "refused"), [(10.0, True), (20.0, True), (9.0, False)])
def test_j02_a_price_tick_of_all_prices_and_more_is_refused(tick: float, refused: bool) -> None:
    rules = ExecutionRules(price_limit=0.1, price_tick=tick)
    if refused:
        with pytest.raises(ConfigError, match=rf"price_tick is {tick:g}.*above 10"):
            idle(rules)
    else:
        assert idle(rules) == []


def test_j02_a_price_tick_above_some_prices_counts_their_orders() -> None:
    sessions = sessions_of([[0.5] * 2, [5.0] * 2, [5.0] * 2], halted=np.zeros((3, 2), dtype=bool))
    batch = align_orders([order(1.0, day=day) for day in (2, 3)], sessions)
    found = Engine(sessions, 1, ExecutionRules(price_limit=0.1, price_tick=0.5)).idle_rules(batch)
    assert len(found) == 1
    assert "1 of 2 orders" in found[0]
    assert "0.5" in found[0]


def test_published_impact_by_hand() -> None:
    """Daily volatility 200 bp; 256 days of turnover have the fourth root 4; 0.1 ** 0.1 is 0.7943."""
    found = published_impact("almgren2005", daily_volatility_bps=200, ticks=390, turnover_days=256)
    rules = ExecutionRules(**found)
    assert rules.temporary_impact_bps == pytest.approx(0.142 * 200 * 0.794328, rel=1e-5)
    assert rules.permanent_impact_bps == pytest.approx(0.314 * 200 * 4 / 390)
    assert (rules.temporary_impact_shape, rules.permanent_impact_shape) == ("square_root", "linear")
    # at 10 % of the volume root and power agree
    assert rules.temporary_impact_bps * 0.1**0.5 == pytest.approx(0.142 * 200 * 0.1**0.6)
    law = ExecutionRules(**published_impact("square_root_law", daily_volatility_bps=150, share_of_day=0.25))
    # an order of 10 % of the volume in a quarter of the day is 2.5 % of the day's: 150 * sqrt(0.025) * 2/3 on average
    assert law.temporary_impact_bps * 0.1**0.5 == pytest.approx(150 * 0.025**0.5 * 2 / 3)
    assert law.permanent_impact_bps == 0
    whole = published_impact("propagator", daily_volatility_bps=150, ticks=390, tick_minutes=1)
    rules = ExecutionRules(**whole)
    assert rules.transient_impact_bps == pytest.approx(150 * (3 / 390) ** 0.5 / 2)


@pytest.mark.parametrize(("bars", "less"), [(1, 0.134), (4, 0.05), (20, 0.02), (195, 0.006)])
def test_the_propagator_is_the_square_root_law_for_orders_of_any_length(bars: int, less: float) -> None:
    """An order of 10 % of its bars moves the price by 150 bp times the root of its share of the day's volume."""
    rules = ExecutionRules(**published_impact("propagator", daily_volatility_bps=150, ticks=390, tick_minutes=1))
    assert rules.transient_impact_bps
    moved = rules.transient_impact_bps * 0.1**0.5 * rules.transient_left(np.arange(bars)).sum()
    law = 150 * (0.1 * bars / 390) ** 0.5
    assert 1 - less == pytest.approx(moved / law, abs=0.004)


@pytest.mark.parametrize(
    ("source", "figures", "words"),
    [
        ("kyle", {}, "almgren2005, square_root_law, propagator"),
        ("propagator", {"ticks": 390}, "ticks and tick_minutes"),
        ("almgren2005", {"ticks": 390}, "ticks and turnover_days"),
        ("square_root_law", {"share_of_day": 0.1, "ticks": 390}, "share_of_day"),
        ("square_root_law", {"share_of_day": 0.0}, "share_of_day is 0"),
    ],
)
def test_published_impact_names_what_it_needs(source: str, figures: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        published_impact(source, daily_volatility_bps=100, **figures)
