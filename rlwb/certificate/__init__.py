"""Markets that are solved exactly, so that any learner can be measured against a known optimum."""

from rlwb.certificate.almgren_chriss import Point, WalkMarket, WalkSettings, walk_market
from rlwb.certificate.certify import METHODS, Curve, certify, fit
from rlwb.certificate.gaussian import GaussianSettings, GridSolution, gaussian_market
from rlwb.certificate.market import CertifiedMarket, Solution, Value
from rlwb.certificate.trace import DIALLED, trace
from rlwb.certificate.tree import TreeSettings, TreeSolution, tree_market, tree_paths

__all__ = [
    "DIALLED",
    "METHODS",
    "CertifiedMarket",
    "Curve",
    "GaussianSettings",
    "GridSolution",
    "Point",
    "Solution",
    "TreeSettings",
    "TreeSolution",
    "Value",
    "WalkMarket",
    "WalkSettings",
    "certify",
    "fit",
    "gaussian_market",
    "trace",
    "tree_market",
    "tree_paths",
    "walk_market",
]
