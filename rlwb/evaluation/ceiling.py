"""Whether any policy did better than the day's prices allow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rlwb.evaluation.results import PolicyResult, check_same_orders, finite_or_nan

#: Excess over a ceiling, in basis points, that is rounding. The engine calls an order complete with 1e-9 of its amount
#: left, which is worth 1e-5 bp where the price doubles within the window.
ROUNDING_BP = 1e-4


def above_ceiling(results: Sequence[PolicyResult], ceiling: PolicyResult) -> pd.DataFrame:
    """Return the orders on which a policy has a PA above the ceiling by more than rounding, the farthest above first.

    Knowing the future does not lift a policy above the ceiling, which knows it too. What does is a fill, a price or a
    benchmark that is not that of the market and the rules.

    Parameters
    ----------
    results
        Policies; ceilings among them are passed over.
    ceiling
        The bound of the same orders under the same rules; NaN where nothing can be filled.

    Returns
    -------
    DataFrame
        Columns `policy`, `order_id`, `instrument`, `date`, `pa` and `ceiling` (basis points); no rows when all is well.
    """
    policies = [result for result in results if result.kind != "ceiling"]
    check_same_orders([ceiling, *policies])
    bound = pd.Series(ceiling.pa, index=ceiling.orders["order_id"])
    found = []
    for result in policies:
        most = finite_or_nan(bound.reindex(result.orders["order_id"]))
        above = ~np.isnan(result.pa) & ~(result.pa <= most + ROUNDING_BP)
        rows = result.orders.loc[above, ["order_id", "instrument", "date"]]
        found.append(rows.assign(policy=result.policy, pa=result.pa[above], ceiling=most[above]))
    columns = ["policy", "order_id", "instrument", "date", "pa", "ceiling"]
    table = pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)
    excess = (table["pa"] - table["ceiling"]).astype(np.float64).fillna(np.inf)
    return table.loc[excess.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)
