"""All decisions that orders can come to, with what each action of each would earn and where it leads.

Prices of a replayed market do not depend on the policy, so what would have come of the actions that were not taken can
be computed: every action is executed in a copy of the state. States of an order from which all goes on alike are one,
so that a few amounts that can be left make a small tree.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.batch import join
from rlwb.errors import ConfigError
from rlwb.execution.interpreters import (
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    FullHistoryStateInterpreter,
)
from rlwb.execution.kernel import TOLERANCE
from rlwb.execution.order import Order
from rlwb.execution.rewards import PAPenaltyReward
from rlwb.execution.simulator import OrderExecution
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward, sum_parts
from rlwb.simulator import Simulator

#: Decisions that an order may come to, at most; bounds time and memory.
MOST = 2048
#: Bits of an amount, or of a sum of what steps asked for, in units of the tolerance.
_BITS = 40
#: Rules by which what an order has traded at which prices moves what is yet to come.
STAYING = ("permanent_impact_bps", "transient_impact_bps", "min_fee")
#: Parts for which an order's step and position are all that counts of its path, under rules for which they are.
_BY_POSITION = (
    OrderExecution,
    CurrentStepStateInterpreter,
    FullHistoryStateInterpreter,
    CategoricalActionInterpreter,
    PAPenaltyReward,
)


@dataclass(frozen=True, eq=False)
class DecisionTree:
    """The M decisions that N orders can come to, step by step, with A actions each.

    Attributes
    ----------
    obs
        Observations of the decisions, M rows; the N first are those of the orders' first steps.
    cuts : int64 of shape (K + 1,)
        The decisions of step k are the rows ``cuts[k]`` to ``cuts[k + 1] - 1``.
    reward : float64 of shape (M, A)
        Reward of the step, by action.
    following : int64 of shape (M, A)
        Row of the decision that the action leads to; M where the order ends.
    """

    obs: Any
    cuts: np.ndarray
    reward: np.ndarray
    following: np.ndarray

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def steps(self) -> list[slice]:
        """The rows of each step."""
        return [slice(*rows) for rows in itertools.pairwise(self.cuts.tolist())]

    def worth(self, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what decisions and their actions are worth under a policy: the rewards from there on, on average.

        Parameters
        ----------
        chance : float64 of shape (M, A)
            Chance of each action.

        Returns
        -------
        value : float64 of shape (M,)
        action_value : float64 of shape (M, A)
        """
        value, action_value = np.zeros(len(self) + 1), np.empty_like(self.reward)
        for rows in reversed(self.steps):
            action_value[rows] = self.reward[rows] + value[self.following[rows]]
            value[rows] = (chance[rows] * action_value[rows]).sum(axis=1)
        return value[:-1], action_value

    def reached(self, chance: np.ndarray) -> np.ndarray:
        """Return the chance that an order comes to each decision under a policy, float64 of shape (M,)."""
        found = np.zeros(len(self) + 1)
        found[: self.cuts[1]] = 1.0
        for rows in self.steps:
            np.add.at(found, self.following[rows], found[rows, None] * chance[rows])
        return found[:-1]


def decision_tree(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    action_interpreter: ActionInterpreter[Any],
    reward: Reward[Any],
    orders: Sequence[Order],
    seeds: np.ndarray,
    *,
    by_path: bool = False,
) -> DecisionTree:
    """Return the decisions of orders, each of the discrete actions executed by the simulator.

    States of an order in the same step with the same position are one decision (under lots, where as much was asked for
    as well), unless more counts for what comes: in what the policy reads, the reward, the rules, or in a part of one's
    own. Then only actions that leave the same after the same decision are one, and the tree grows fast with actions and
    steps.

    Parameters
    ----------
    seeds : uint64 of shape (N,)
        Seeds of random numbers that the simulator may draw.
    by_path
        Whether the policy reads more of an order's path than its position.

    Raises
    ------
    ConfigError
        When an order can come to more than `MOST` decisions, or the simulator's states cannot be copied.
    """
    if not isinstance(simulator, OrderExecution):
        raise ConfigError(
            f"the simulator {type(simulator).__name__} cannot take several actions from one state; derive it from "
            "OrderExecution, or choose a learner that needs the action taken alone, such as ppo."
        )
    rules = simulator.engine.rules
    parts = (simulator, state_interpreter, action_interpreter, reward)
    own = [type(part).__name__ for part in parts if type(part) not in _BY_POSITION]
    reasons = [*["the network, which reads the path of the position"] * by_path, *own]
    reasons += [name for name in STAYING if getattr(rules, name)]
    asks_count = bool(own or rules.lot_size)  # lots round what was asked for so far
    count = int(action_interpreter.action_space.n)
    state, order = simulator.start(orders, seeds), np.arange(len(orders))
    batch = state.orders
    decisions, cuts, levels = np.zeros(len(orders), dtype=np.int64), [0], []
    while len(state):
        size, known = len(state), state.known
        decisions += np.bincount(order, minlength=len(orders))
        if decisions.max() > MOST:
            raise ConfigError(_too_many(batch.label(int(decisions.argmax())), len(cuts), reasons))
        cuts.append(cuts[-1] + size)
        action, parent = np.tile(np.arange(count), size), np.repeat(np.arange(size), count)
        before = state.take(parent)
        after = simulator.step(before, action_interpreter.interpret(before.known, action))
        earned = sum_parts(reward.parts(after.outcome)).reshape(size, count)
        goes_on = np.flatnonzero(~after.done)
        owner = order[parent[goes_on]]
        shares = [after.now.position, after.now.requested] if asks_count else [after.now.position]
        same, first = (parent[goes_on] if reasons else owner), goes_on
        for share in shares:
            units = np.rint(share[goes_on] / (TOLERANCE * batch.amount[owner])).astype(np.int64)
            _, first, same = np.unique((same << _BITS) + units, return_index=True, return_inverse=True)
        following = np.full(size * count, -1)
        following[goes_on] = cuts[-1] + same
        levels.append((state_interpreter.refer(known), earned, following.reshape(size, count)))
        state, order = after.take(goes_on[first]), owner[first]
    obs, earned_in, leads_to = zip(*levels, strict=True)
    following = np.concatenate(leads_to)
    following[following < 0] = cuts[-1]
    return DecisionTree(join(obs), np.array(cuts), np.concatenate(earned_in), following)


def _too_many(order: str, step: int, reasons: list[str]) -> str:
    why = f", since more than the position counts, by {' and '.join(reasons)}" if reasons else ""
    return (
        f"{order} can come to more than {MOST:,} decisions within {step} steps{why}; "
        f"{'change that, ' if reasons else ''}take fewer actions or steps, or choose a learner that samples them, such "
        "as ppo."
    )
