"""The simple rule with boosted trees for a forecast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines.forecast_rule import ForecastRule, Samples
from rlwb.execution.engine import Engine
from rlwb.packages import require_packages


class Forest(NamedTuple):
    """Binary trees whose values add up, node by node.

    Attributes
    ----------
    root : int64 of shape (trees,)
        First node of each tree.
    column, left, right : int64 of shape (nodes,)
        Column that a node compares, and where to go from it; a leaf goes to itself.
    threshold, value : float64 of shape (nodes,)
        A row goes left where its column is at most the threshold; the value counts at leaves.
    """

    root: np.ndarray
    column: np.ndarray
    left: np.ndarray
    right: np.ndarray
    threshold: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, model: Any, count: int) -> Forest:
        """Return the first `count` trees of a fitted ``HistGradientBoostingRegressor``, without its constant."""
        trees = [stage[0].nodes for stage in model._predictors[:count]]  # scikit-learn has no public form of them
        first = np.cumsum([0, *(len(nodes) for nodes in trees)])
        nodes = np.concatenate(trees)
        own, is_leaf = np.arange(len(nodes)), nodes["is_leaf"].astype(bool)
        base = np.repeat(first[:-1], np.diff(first))
        left, right = (np.where(is_leaf, own, base + nodes[name].astype(np.int64)) for name in ("left", "right"))
        column = np.where(is_leaf, 0, nodes["feature_idx"].astype(np.int64))
        return cls(first[:-1], column, left, right, np.where(is_leaf, 0.0, nodes["num_threshold"]), nodes["value"])

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the sum of the trees' values, float64 of shape (N,)."""
        rows, total = np.arange(len(X)), np.zeros(len(X))
        for root in self.root:
            node = np.full(len(X), root)
            while True:
                after = np.where(X[rows, self.column[node]] <= self.threshold[node], self.left[node], self.right[node])
                if (after == node).all():
                    break
                node = after
            total += self.value[node]
        return total


#: No tree, where there is nothing to fit one on.
NOTHING = Forest(*(np.zeros(0, dtype=kind) for kind in (*[np.int64] * 4, *[np.float64] * 2)))


class ForecastTreesRule(ForecastRule):
    """`ForecastRule` with the forecast of gradient-boosted trees, one model for all steps of the day.

    The trees see what the ridge sees, and the step of the day. They are fitted on each sample and its mirror image, and
    the forecast is half the difference of the two, so that sides stay mirror images. It needs scikit-learn
    (``HistGradientBoostingRegressor``), of the extra ``trees``.

    Parameters
    ----------
    engine, control, abstain, seed
        See `ForecastRule`.
    blocks : blocks
        See `ForecastRule`.
    trees : trees
        Most trees; as many are used as predict the blocks left out best.
    leaves : leaves
        Most leaves of a tree, 2 or more.
    min_samples : samples
        Fewest samples of a leaf, each of which counts once for each side.
    learning_rate
        Share of each tree's own best value that is taken, above 0 to 1.

    Raises
    ------
    ConfigError
        As `ForecastRule`, for numbers out of range, and where scikit-learn is not installed.
    """

    def __init__(
        self,
        engine: Engine,
        control: Literal["none", "shuffled", "stale", "oracle"] = "none",
        abstain: bool = False,
        blocks: int = 5,
        trees: int = 100,
        leaves: int = 8,
        min_samples: int = 200,
        learning_rate: float = 0.05,
        seed: int = 0,
    ) -> None:
        require_packages("the baseline forecast_trees", "trees", "sklearn")
        super().__init__(engine, control, abstain, blocks, seed)
        for name, value, least in (("trees", trees, 1), ("leaves", leaves, 2), ("min_samples", min_samples, 1)):
            if value < least:
                raise ConfigError(f"{name} is {value!r}; give {least} or more.")
        if not 0 < learning_rate <= 1:
            raise ConfigError(f"learning_rate is {learning_rate!r}; give a number above 0, at most 1.")
        self.trees = trees
        self.leaves = leaves
        self.min_samples = min_samples
        self.learning_rate = learning_rate
        self.forests: list[Forest] = []

    def learn(self, samples: Iterator[Samples]) -> None:
        some = [*samples]
        self.forests = []
        if not sum(len(one.y) for one in some):
            return
        known = np.concatenate([one.X for one in some])
        y, block = (np.concatenate([getattr(one, name) for one in some]) for name in ("y", "block"))
        cell = np.repeat([one.cell for one in some], [len(one.y) for one in some])
        X = np.vstack([np.column_stack([side * known, cell]) for side in (1.0, -1.0)])
        y, block = np.concatenate([y, -y]), np.tile(block, 2)
        models, error = [], np.zeros(self.trees)
        for left_out in range(-1, self.blocks):
            own = block == left_out
            models.append(None if own.all() else self._model().fit(X[~own], y[~own]))
            if own.any() and models[-1] is not None:
                error += [((y[own] - told) ** 2).sum() for told in models[-1].staged_predict(X[own])]
        count = int(np.argmin(error)) + 1
        self.forests = [NOTHING if model is None else Forest.of(model, count) for model in models]

    def expect(self, X: np.ndarray, cell: np.ndarray) -> np.ndarray:
        one, other = (np.column_stack([side * X, cell]) for side in (1.0, -1.0))
        found = [(forest.predict(one) - forest.predict(other)) / 2 for forest in self.forests]
        return np.column_stack(found) if found else np.zeros((len(X), self.blocks + 1))

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        del state["coef"]
        forests = [{name: one.tolist() for name, one in each._asdict().items()} for each in self.forests]
        return {**state, "forests": forests}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict({**state, "coef": []})
        self.forests = [Forest(**{name: np.array(one) for name, one in each.items()}) for each in state["forests"]]

    def _model(self) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(
            max_iter=self.trees,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_samples,
            learning_rate=self.learning_rate,
            early_stopping=False,
            random_state=self.seed,
        )
