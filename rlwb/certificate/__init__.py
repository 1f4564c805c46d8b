"""Markets that are solved exactly, so that any learner can be measured against a known optimum."""

from rlwb.certificate.certify import METHODS, Curve, certify, fit
from rlwb.certificate.gaussian import GaussianSettings, GridSolution, gaussian_market
from rlwb.certificate.market import CertifiedMarket, Solution, Value
from rlwb.certificate.tree import TreeSettings, TreeSolution, tree_market, tree_paths

__all__ = [
    "METHODS",
    "CertifiedMarket",
    "Curve",
    "GaussianSettings",
    "GridSolution",
    "Solution",
    "TreeSettings",
    "TreeSolution",
    "Value",
    "certify",
    "fit",
    "gaussian_market",
    "tree_market",
    "tree_paths",
]
