import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.evaluation import PolicyResult
from rlwb.evaluation.results import check_same_orders, day_matrix
from tests.evaluation.tables import baseline, checkpoint, order_table


def test_missing_columns_are_named():
    with pytest.raises(DataError, match=r"'last' lacks the columns pa, ffr"):
        PolicyResult("last", "last", order_table([1.0]).drop(columns=["pa", "ffr"]))


def test_unknown_kind_and_repeated_orders_are_refused():
    with pytest.raises(DataError, match="kind 'best'"):
        PolicyResult("a", "best", order_table([1.0]))
    with pytest.raises(DataError, match="'order-0' twice"):
        PolicyResult("a", "last", pd.concat([order_table([1.0])] * 2))


def test_inventory_must_have_a_row_an_order():
    with pytest.raises(DataError, match=r"shape \(3, 2\).*2 orders"):
        PolicyResult("a", "last", order_table([1.0, 2.0]), inventory=np.ones((3, 2)))


def test_infinite_pa_is_missing_and_the_table_is_not_touched():
    result = checkpoint([1.0, np.inf])
    assert np.isnan(result.pa[1])
    assert np.isinf(result.orders["pa"].iloc[1])


def test_policies_on_other_orders_are_not_compared():
    with pytest.raises(DataError, match=r"1 only in the first, 0 only in the second"):
        check_same_orders([checkpoint([1.0, 2.0]), baseline([1.0])])


def test_day_means_leave_out_days_without_a_pa():
    # days 0, 1, 2 hold (1, 4), (2, nan), (nan, nan)
    result = checkpoint([1.0, 2.0, np.nan, 4.0, np.nan, np.nan], days=3)
    assert day_matrix([result])["checkpoint-0001"].to_list() == [2.5, 2.0]
    both = day_matrix([result, baseline([0.0] * 6, days=3)])
    assert both.shape == (3, 2)
    assert both["checkpoint-0001"].isna().tolist() == [False, False, True]


def test_values_follow_the_orders_of_another_result_and_what_the_table_lacks_is_missing():
    first, second = checkpoint([1.0, 2.0, 3.0]), baseline([4.0, np.inf, 6.0])
    second.orders.sort_index(ascending=False, inplace=True)
    np.testing.assert_array_equal(second.values("pa"), [6.0, np.nan, 4.0])
    np.testing.assert_array_equal(second.values("pa", first), [4.0, np.nan, 6.0])
    assert np.isnan(second.values("pa_net", first)).tolist() == [True] * 3
