"""Results that the day's prices do not allow."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.evaluation import above_ceiling
from rlwb.evaluation.results import ROUNDING_BP
from tests.evaluation.tables import baseline, ceiling, checkpoint, unattainable


def test_what_is_above_is_listed_the_farthest_first() -> None:
    bound = ceiling([10.0, 20.0, np.nan, 40.0])
    good = baseline([10.0 + ROUNDING_BP / 2, -5.0, np.nan, np.nan])
    bad = checkpoint([10.5, 23.0, np.nan, 40.0])
    oracle = unattainable([1.0, 2.0, 0.0, 3.0])
    found = above_ceiling([good, bad, bound, oracle], bound)
    assert found[["policy", "order_id"]].to_numpy().tolist() == [
        ["teacher", "order-2"],  # where nothing can be filled
        ["checkpoint-0001", "order-1"],
        ["checkpoint-0001", "order-0"],
    ]
    assert found["pa"].tolist() == [0.0, 23.0, 10.5]
    assert found["ceiling"].tolist()[1:] == [20.0, 10.0]
    assert found["instrument"].eq("A").all()


def test_other_ceilings_may_be_above_and_orders_are_matched_by_their_ids() -> None:
    bound = ceiling([10.0, 20.0])
    uncapped = ceiling([11.0, 21.0], policy="hindsight_uncapped")
    turned = checkpoint([9.0, 19.0])
    turned.orders["order_id"] = ["order-0", "order-1"]
    assert above_ceiling([uncapped, turned], bound).empty
    turned.orders["order_id"] = ["order-1", "order-0"]
    assert above_ceiling([turned], bound)["order_id"].tolist() == ["order-0"]
    assert above_ceiling([], bound).empty


def test_other_orders_are_refused() -> None:
    with pytest.raises(DataError, match="did not trade the same orders"):
        above_ceiling([checkpoint([1.0])], ceiling([1.0, 2.0]))
