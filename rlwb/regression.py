"""Linear regression with a ridge, from sums of products, for any number of penalties at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def ridge(square: np.ndarray, moment: np.ndarray, penalties: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the coefficients of a regression through the origin by penalty, float64 of shape (P, C, …).

    The eigenvectors of the matrix serve all penalties (Hastie, Tibshirani and Friedman, "The Elements of Statistical
    Learning", 2009, section 3.4.1).

    Parameters
    ----------
    square : float64 of shape (C, C)
        ``X.T @ X``, or a multiple of it; of centred columns, where there is a constant besides.
    moment : float64 of shape (C, …)
        ``X.T @ y``, or the same multiple of it.
    penalties : of shape (P,), 0 or more
        Weights of the squared coefficients in units of each column's own square, so that no column's unit matters. A
        column of zeros has the coefficient 0, and so has, at a penalty of 0, what the columns do not tell.
    """
    size = np.sqrt(np.maximum(np.diag(square), 0.0))
    size[size == 0] = np.inf
    roots, vectors = np.linalg.eigh(square / np.outer(size, size))
    roots[roots <= len(roots) * np.finfo(np.float64).eps * roots.max(initial=0.0)] = 0.0
    weights = roots + np.asarray(penalties, dtype=np.float64)[:, None]
    inverse = np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0)
    along = vectors.T @ (moment.T / size).T
    solved = np.einsum("ab,pb,b...->pa...", vectors, inverse, along)
    found: np.ndarray = np.moveaxis(np.moveaxis(solved, 1, -1) / size, -1, 1)
    return found
