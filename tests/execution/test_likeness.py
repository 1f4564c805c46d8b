"""Training orders beside test orders: what is said where they differ."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.execution import Engine, OrderSettings, align_orders, generate_orders
from rlwb.execution.likeness import unlike
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=6, days=41))


@pytest.fixture(scope="module")
def halves(sessions: Sessions) -> tuple[pd.DataFrame, pd.DataFrame]:
    return halves_of(generate_orders(sessions))


def halves_of(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    middle = table["date"].unique()[20]
    return table[table["date"] < middle], table[table["date"] >= middle]


def said(sessions: Sessions, train: pd.DataFrame, test: pd.DataFrame, part: str = "train") -> list[str]:
    parts = {part: align_orders(train, sessions), "test": align_orders(test, sessions)}
    return unlike(Engine(sessions, 6), parts)


def test_j05_orders_of_one_recipe_are_alike(sessions: Sessions) -> None:
    for seed in range(5):
        assert said(sessions, *halves_of(generate_orders(sessions, OrderSettings(), seed=seed))) == []


@pytest.mark.parametrize("part", ["train", "valid"])
def test_j05_one_side_alone_to_learn_from(
    sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame], part: str
) -> None:
    train, test = halves
    title = {"train": "training", "valid": "validation"}[part]
    sells = said(sessions, train[train["direction"] == "SELL"], test, part)
    assert sells == [f"{title} and test orders differ in side: 0 % of the {title} orders buy, of the test orders 50 %"]
    buys = said(sessions, train, test[test["direction"] == "BUY"], part)
    assert len(buys) == 1
    assert "50 %" in buys[0]
    assert "100 %" in buys[0]


def test_j05_instruments_that_are_not_learnt_from(
    sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    train, test = halves
    found = said(sessions, train[train["instrument"] > "SYN002"], test)
    count = int((test["instrument"] <= "SYN002").sum())
    assert len(found) == 1
    assert f"{count} of {len(test)} test orders are of 2 instruments" in found[0]
    assert "SYN001" in found[0]


@pytest.mark.parametrize("times", [0.1, 3.0, 10.0])
def test_j05_other_sizes(sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame], times: float) -> None:
    train, test = halves
    found = said(sessions, train, test.assign(amount=test["amount"] * times))
    assert len(found) == 1
    assert "differ in size" in found[0]
    assert said(sessions, train, test.assign(amount=test["amount"] * 1.1)) == []


def test_j05_sizes_of_another_spread_and_the_same_middle(
    sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    train, test = halves
    size = np.log(train["amount"])
    usual = size.groupby(train["instrument"]).transform("mean")
    found = said(sessions, train.assign(amount=np.exp(usual + 0.1 * (size - usual))), test)
    assert any("differ in size" in text for text in found)


def test_j05_other_windows(sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    train, test = halves
    late = said(sessions, train, test.assign(start=test["date"] + pd.Timedelta(hours=11)))
    start, length = (next(text for text in late if f"differ in {name}" in text) for name in ("start", "length"))
    assert "09:30 to 09:30 (training), 11:00 to 11:00 (test)" in start
    assert "bars (training)" in length
    early = said(sessions, train, test.assign(end=test["date"] + pd.Timedelta(hours=11)))
    assert any("differ in length" in text for text in early)
    assert not any("differ in start" in text for text in early)


def test_forms_that_only_test_orders_state_are_told(
    sessions: Sessions, halves: tuple[pd.DataFrame, pd.DataFrame]
) -> None:
    train, test = halves
    some = np.where(np.arange(len(test)) % 2 == 0, 0.1, np.nan)
    text = "max_participation: 0 % of the training orders state one, of the test orders 50 %"
    assert said(sessions, train, test.assign(max_participation=some)) == [f"training and test orders differ in {text}"]
    assert said(sessions, train.assign(max_participation=0.1), test.assign(max_participation=0.2)) == []
