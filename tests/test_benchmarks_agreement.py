"""rlwb beside what Qlib did (L01, L04), recorded by ``make agreement``, without Qlib."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import agreement
from benchmarks.agreement import ASPECTS, CAUSES, RECORDED, VALUES, figures, judge, played_by_qlib
from benchmarks.agreement_markets import MARKETS, Market
from rlwb.policy import PPO, ActorCritic, QlibRecurrent

Pair = tuple[Market, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def recorded() -> tuple[list[Pair], PPO]:
    with np.load(RECORDED) as file:
        kept = dict(file)

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)}

    pairs = [(Market.of(under(f"{i}/market/")), under(f"{i}/theirs/")) for i in range(len(kept["names"]))]
    weights = {name: torch.from_numpy(value) for name, value in under("weights/").items()}
    width, channels = weights["trunk.market.front.0.weight"].shape
    network = ActorCritic(QlibRecurrent(channels, width, len(weights["trunk.join.2.weight"])), len(VALUES))
    network.load_state_dict(weights)
    return pairs, PPO(network)


def test_l01_l04_every_recorded_order_is_equal_or_explained(recorded: tuple[list[Pair], PPO]) -> None:
    found = figures(*recorded)
    assert found["unexplained"] == 0, found["first_unexplained"]
    assert found["compared"] == 12 * len(MARKETS) == found["equal"] + sum(found["explained"].values())
    assert {row["market"]: row["equal"] for row in found["markets"]}["sound"] == 12
    assert found["equal"] > 0.6 * found["compared"]
    for name in ASPECTS:
        assert found["aspects"][name]["equal"] + found["aspects"][name]["explained"] == found["compared"]
    assert sum(count > 10 for count in found["decisions_by_action"]) >= 3  # the policy does not always do the same
    named = Counter(name for causes in found["explained"] for name in causes.split(", "))
    assert set(named) <= {*CAUSES, "tolerance", "empty"}


def test_the_figures_that_are_told_of_add_up() -> None:
    told = json.loads((Path(agreement.__file__).parent / "results" / "agreement.json").read_text())
    assert told["unexplained"] == 0
    assert told["compared"] == told["equal"] + sum(told["explained"].values()) >= 3000
    assert sum(row["compared"] for row in told["markets"]) == told["compared"]
    assert {name for causes in told["explained"] for name in causes.split(", ")} <= told["causes"].keys()


@pytest.mark.parametrize("changed", ["fills", "fill", "price", "reward", "action", "today", "position", "order_twap"])
def test_l04_a_difference_is_found_and_never_explained_away(recorded: tuple[list[Pair], PPO], changed: str) -> None:
    (market, theirs), policy = recorded[0][0], recorded[1]
    values = theirs[changed].copy()
    if changed == "fills":
        values[0, np.argmax(values[0])] *= 1 + 1e-6
    elif changed == "fill":
        place = np.flatnonzero(theirs["fill"] > 0)[0]
        values[place] *= 1 + 1e-6
    else:
        values[0] = values[0] + 1 if values.dtype == np.int64 else values[0] * (1 + 1e-5) + 1e-4
    if changed == "price":
        values = theirs["price"] * (1 + 1e-6)
    played = played_by_qlib({**theirs, changed: values}, market)
    causes, _ = judge(market, played, theirs["error"], policy)
    assert None in causes


def test_l04_without_the_preset_capped_orders_differ(
    recorded: tuple[list[Pair], PPO], monkeypatch: pytest.MonkeyPatch
) -> None:
    preset = agreement.ExecutionRules.preset
    monkeypatch.setattr(
        agreement.ExecutionRules, "preset", lambda name, **changes: preset(name, catch_up=True, **changes)
    )
    pairs = [pair for pair in recorded[0] if pair[0].name in ("huge orders", "zero volume")]
    assert figures(pairs, recorded[1])["unexplained"] > 0
