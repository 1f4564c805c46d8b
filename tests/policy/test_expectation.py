"""What policies say that they expect at their decisions: of prices, and of their actions."""

from __future__ import annotations

import numpy as np
import torch

from rlwb.policy import ActionMask
from tests.policy.test_dqn import table as values_table
from tests.policy.test_masks import QUARTERS
from tests.policy.test_ppo import table as chances_table
from tests.policy.test_signals import TRAIN, network, observed, panel


def test_chances_are_the_softmax_that_actions_are_drawn_by() -> None:
    chance = np.array([[0.1, 0.2, 0.6, 0.1], [0.7, 0.1, 0.1, 0.1]])
    told = chances_table().expectation(np.log(chance).astype(np.float32))
    assert told.chances is not None
    np.testing.assert_allclose(told.chances, chance, atol=1e-6)
    assert told.waiting is None
    assert told.values is None


def test_values_are_in_units_of_the_reward_and_missing_where_an_action_may_not_be_chosen() -> None:
    policy, value = values_table(), np.array([[2.0, 1.0, -3.0]], dtype=np.float32)
    policy.scale = 5.0
    np.testing.assert_allclose(policy.expectation(value).values, [[10.0, 5.0, -15.0]])
    policy.network.mask = _Second()
    np.testing.assert_allclose(policy.expectation(value).values, [[10.0, np.nan, -15.0]])


class _Second(ActionMask):
    """Forbids the second action."""

    def __init__(self) -> None:
        super().__init__(QUARTERS)

    def forward(self, obs: object) -> torch.Tensor:
        return torch.tensor([[True, False, True]]).expand(len(obs), 3)  # type: ignore[arg-type]


def test_waiting_costs_a_purchase_what_a_sale_gains_by_it_and_goes_with_what_came() -> None:
    one, ticks = network(), np.full(len(TRAIN), 8)
    with torch.no_grad():
        sale, purchase = (one.waiting(observed(TRAIN, ticks, acquiring=np.full(len(TRAIN), way))) for way in (0, 1))
        price = one.market.prices(one.tensor(panel().rows(TRAIN))).numpy()
    assert torch.equal(sale, -purchase)
    came = price[:, 12:].mean(axis=1) - price[:, 8:12].mean(axis=1)
    assert np.corrcoef(purchase.numpy(), came)[0, 1] > 0.2, "of the sessions that it was fitted on"
