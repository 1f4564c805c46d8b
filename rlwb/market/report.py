"""The former home of `rlwb.market.findings`."""

from rlwb.market.findings import KINDS, Report, counted, printable

REASONS = KINDS
__all__ = ["KINDS", "REASONS", "Report", "counted", "printable"]
