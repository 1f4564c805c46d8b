"""A feature: the log range of today's prices so far."""

import numpy as np

from rlwb.market import feature


@feature("range_so_far", needs=["high", "low"])
def range_so_far(block):
    high = np.fmax.accumulate(block["high"], axis=1)
    low = np.fmin.accumulate(block["low"], axis=1)
    return np.log(high / low)
