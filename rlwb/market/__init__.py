"""Bars in, one dense panel out: calendar, readers, validation, `Sessions`, features, and a synthetic market."""

from rlwb.market.build import build_sessions
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.importing import import_bars
from rlwb.market.dataset.state import read_conflicts, read_state
from rlwb.market.feature_registry import feature, feature_names
from rlwb.market.features import FeatureSettings, MarketFeatures, Normaliser
from rlwb.market.findings import Report
from rlwb.market.load import load_sessions, read_bars
from rlwb.market.qlib_tables import read_qlib_features
from rlwb.market.resample import resample
from rlwb.market.sessions import Sessions
from rlwb.market.synthetic import SyntheticSettings, sessions_to_bars, synthetic_bars, synthetic_sessions

__all__ = [
    "Calendar",
    "FeatureSettings",
    "MarketFeatures",
    "Normaliser",
    "Report",
    "Sessions",
    "SyntheticSettings",
    "build_sessions",
    "feature",
    "feature_names",
    "import_bars",
    "load_sessions",
    "read_bars",
    "read_conflicts",
    "read_qlib_features",
    "read_state",
    "resample",
    "sessions_to_bars",
    "synthetic_bars",
    "synthetic_sessions",
]
