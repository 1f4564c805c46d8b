"""Markets that are solved exactly, so that any learner can be measured against a known optimum."""

from rlwb.certificate.almgren_chriss import Point, WalkMarket, WalkSettings, walk_market
from rlwb.certificate.certify import METHODS, EmbeddedMarket, certify, run_config
from rlwb.certificate.garleanu_pedersen import GarleanuPedersenSettings, garleanu_pedersen_market
from rlwb.certificate.gaussian import GaussianSettings, GridSolution, gaussian_market
from rlwb.certificate.market import CertifiedMarket, Solution, Value
from rlwb.certificate.obizhaeva_wang import ObizhaevaWangSettings, obizhaeva_wang_market
from rlwb.certificate.runs import KINDS, MARKETS
from rlwb.certificate.trace import DIALLED, trace
from rlwb.certificate.tree import TreeSettings, TreeSolution, tree_market, tree_paths

__all__ = [
    "DIALLED",
    "KINDS",
    "MARKETS",
    "METHODS",
    "CertifiedMarket",
    "EmbeddedMarket",
    "GarleanuPedersenSettings",
    "GaussianSettings",
    "GridSolution",
    "ObizhaevaWangSettings",
    "Point",
    "Solution",
    "TreeSettings",
    "TreeSolution",
    "Value",
    "WalkMarket",
    "WalkSettings",
    "certify",
    "garleanu_pedersen_market",
    "gaussian_market",
    "obizhaeva_wang_market",
    "run_config",
    "trace",
    "tree_market",
    "tree_paths",
    "walk_market",
]
