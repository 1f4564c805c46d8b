"""Ridge regression from sums of products, against least squares with the penalty as further rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.regression import ridge


@given(seed=st.integers(0, 999), rows=st.integers(1, 30), columns=st.integers(1, 6), penalty=st.floats(1e-3, 100.0))
def test_it_is_least_squares_with_rows_for_the_penalty(seed: int, rows: int, columns: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, columns)
    y = rng.normal(size=(rows, 2))
    size = np.linalg.norm(X, axis=0)
    more = np.concatenate([X, np.sqrt(penalty) * np.diag(size)]), np.concatenate([y, np.zeros((columns, 2))])
    expected = np.linalg.lstsq(more[0] / size, more[1], rcond=None)[0] / size[:, None]
    both = ridge(X.T @ X, X.T @ y, [penalty, 2 * penalty])
    assert both.shape == (2, columns, 2)
    np.testing.assert_allclose(both[0] * size[:, None], expected * size[:, None], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ridge(X.T @ X, X.T @ y[:, 0], [penalty])[0], both[0, :, 0], rtol=1e-6, atol=1e-12)


def test_what_the_columns_do_not_tell_is_0() -> None:
    X = np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [3.0, 6.0, 0.0]])
    found = ridge(X.T @ X, X.T @ X[:, 0], [0.0])[0]
    assert found == pytest.approx([0.5, 0.25, 0.0]), "two columns that are one share it"
    assert ridge(np.zeros((2, 2)), np.zeros(2), [0.0, 1.0]).tolist() == [[0.0, 0.0]] * 2
