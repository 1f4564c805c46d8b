"""Transient impact estimated from fills and bars: a propagator, in the units of the execution rules.

With u the share that an order's fills take of a tick's volume, h linear or the root, G what is left of a move after the
time since its tick (`rlwb.execution.ExecutionRules.transient_left`), and ``D_s = transient * h(u_s)`` the move that the
fills of tick s make, the model says, in basis points along the order's side,

- of the price at tick t's end, beside that at the end of the tick before: ``drift + permanent * h(u_t) + D_t - sum_s<t
  D_s (G(t - 1 - s) - G(t - s)) + noise``, one row a tick from an order's first fill on;
- of the fills of tick t, beside the same price: ``half spread + m D_t - sum_s<t D_s (G(t - 1 - s) - G(t - s)) +
  noise``, m being the mean of a fill's own move that it pays, 1/2 or 2/3.

Both are linear in all but the half-life, of which a grid is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlwb.evaluation.bootstrap import Interval, day_sums, statistic_interval
from rlwb.execution import ExecutionRules
from rlwb.execution.kernel import mean_move

#: The linear parameters, in their order.
LINEAR = ("half_spread_bps", "drift_bps", "permanent_impact_bps", "transient_impact_bps")
_HALF_LIVES = 80  # that are tried, from a quarter of a tick to the longest that the data can tell
#: Deviations beyond which a residual counts linearly (Huber's 95 % efficiency), and a deviation over the median one.
HUBER, MAD = 1.345, 1.4826
_PASSES = 3
_SOUND = 1e-10  # the least determinant, with ones on the diagonal, of a matrix that is solved


@dataclass(frozen=True)
class Path:
    """Fills of N orders and the market's answer in L ticks each, from their first fill on; float64 of shape (N, L).

    Attributes
    ----------
    share
        Part of the tick's volume that was taken, 0 where nothing was.
    moved, paid
        Of the price at the tick's end, and of the fills, beside the price at the end of the tick before: basis points
        along the order's side, over the instrument's deviation; NaN where there is none.
    scale : float64 of shape (N,)
        The deviation.
    dates : datetime64[D] of shape (N,)
    """

    share: np.ndarray
    moved: np.ndarray
    paid: np.ndarray
    scale: np.ndarray
    dates: np.ndarray


def fit_propagator(
    path: Path,
    shapes: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    decay: Literal["power", "exponential"],
    blocks: int,
    **settings: Any,
) -> tuple[dict[str, Interval], str, dict[str, float]]:
    """Fit the model to orders by least squares under Huber's weights, with the shape that predicts other days better.

    Parameters
    ----------
    blocks
        Blocks of days that are left out and predicted.
    settings
        rng, level and resamples of the intervals, which draw whole days.

    Returns
    -------
    dict, str, dict
        Intervals of `LINEAR` and of ``transient_half_life``, in ticks; the shape, and R2 of days left out by shape.
    """
    tried = np.geomspace(0.25, path.share.shape[1], _HALF_LIVES)
    sums = {name: _sums(path, shape, name == "square_root", decay, tried) for name, shape in shapes.items()}
    r2 = {name: _out_of_sample_r2(parts, path.dates, blocks) for name, parts in sums.items()}
    best = max(r2, key=lambda name: r2[name])
    days, day = np.unique(path.dates, return_inverse=True)
    parts = [_with_each_left_out(day_sums(sums[best], day, len(days)))]
    found: dict[str, Interval] = {}
    for which, name in enumerate(LINEAR):
        found[name] = statistic_interval(
            parts, [days], statistic=lambda rows, which=which: _solved(rows)[1][:, which], **settings
        )
    found["transient_half_life"] = statistic_interval(
        parts, [days], statistic=lambda rows: tried[_solved(rows)[0]], **settings
    )
    return found, best, r2


def _sums(
    path: Path, shape: Callable[[np.ndarray], np.ndarray], is_root: bool, decay: Any, tried: np.ndarray
) -> np.ndarray:
    """Return each order's normal equations for every half-life tried, float64 of shape (N, M); see `_unpacked`.

    Rows are weighed by Huber's weights of the residuals of the fit to all, which is made anew a few times.
    """
    moves, ticks = shape(np.minimum(path.share, 1.0)), path.share.shape[1]
    lag = np.arange(ticks) - np.arange(ticks)[:, None]
    one, none = 1.0 / path.scale[:, None] + np.zeros(moves.shape), np.zeros(moves.shape)
    own = 1.0 - mean_move(1.0, is_root)
    target = np.stack([path.moved, path.paid])
    there = np.isfinite(target)
    weight = np.where(there, 1.0, 0.0)
    target = np.where(there, target, 0.0)

    def columns(half_life: float) -> np.ndarray:
        rules = ExecutionRules(
            volume_limit=1.0, transient_impact_bps=1.0, transient_half_life=half_life, transient_decay=decay
        )
        left = rules.transient_left(np.arange(-1, ticks).clip(0))
        kernel = np.where(lag > 0, left[lag.clip(0) + 1] - left[lag.clip(0)], np.where(lag == 0, 1.0, 0.0))
        felt = moves @ kernel
        rows = [[none, one, moves * one, felt * one], [one, none, none, (felt - own * moves) * one]]
        return np.moveaxis(np.array(rows), 1, -1)  # (2, N, L, 4)

    parts = np.zeros((0, 0))
    for _ in range(_PASSES):
        parts = np.concatenate([_normal(columns(one), target, weight) for one in tried], axis=1)
        parts = np.concatenate([parts, (weight * target**2).sum(axis=(0, 2))[:, None]], axis=1)
        which, solution = _solved(parts.sum(axis=0, keepdims=True))
        left_over = target - columns(float(tried[which[0]])) @ solution[0]
        bound = HUBER * MAD * np.array([np.median(np.abs(left_over[k][there[k]])) for k in range(2)])[:, None, None]
        size = np.maximum(np.abs(left_over), 1e-300)
        weight = np.where(there, np.minimum(1.0, np.maximum(bound, 1e-12) / size), 0.0)
    return parts


def _normal(rows: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return ``X' W X`` and ``X' W y`` of each order, one after the other, of shape (N, 20)."""
    weighed = rows * weight[..., None]
    matrix = np.einsum("knla,knlb->nab", weighed, rows, optimize=True)
    along = np.einsum("knla,knl->na", weighed, target, optimize=True)
    return np.concatenate([matrix.reshape(len(matrix), -1), along], axis=1)


def _unpacked(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matrices (B, G, 4, 4), right sides (B, G, 4) and squares (B,) in sums of the rows of `_sums`."""
    size = len(LINEAR)
    parts = sums[:, :-1].reshape(len(sums), -1, size * (size + 1))
    return parts[:, :, : size * size].reshape(*parts.shape[:2], size, size), parts[:, :, size * size :], sums[:, -1]


def _with_each_left_out(sums: np.ndarray) -> np.ndarray:
    """Return the sums of D days with each day's score as it would be with the day left out, of the same shape.

    A day pulls the fit towards itself, so that its score is too small (CR3 of Bell and McCaffrey, Survey Methodology
    28, 2002). The sum over all days stays.
    """
    matrix, along, squares = _unpacked(sums)
    whole = matrix.sum(axis=0)
    found = (np.linalg.pinv(whole) @ along.sum(axis=0)[..., None])[..., 0]
    fitted = (matrix @ found[..., None])[..., 0]
    score = (whole @ (np.linalg.pinv(whole - matrix) @ (along - fitted)[..., None]))[..., 0]
    along = fitted + score - score.mean(axis=0)
    parts = np.concatenate([matrix.reshape(*matrix.shape[:2], -1), along], axis=2)
    return np.concatenate([parts.reshape(len(sums), -1), squares[:, None]], axis=1)


def _solved(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the half-life that explains most and its coefficients, int of shape (B,) and (B, 4); NaN where none is."""
    matrix, along, _ = _unpacked(sums)
    diagonal = np.sqrt(np.maximum(np.einsum("bgaa->bga", matrix), 1e-300))
    sound = np.linalg.det(matrix / (diagonal[..., None] * diagonal[..., None, :])) > _SOUND
    found = np.full(along.shape, np.nan)
    found[sound] = np.linalg.solve(matrix[sound], along[sound][..., None])[..., 0]
    explained = np.where(sound, (along * np.nan_to_num(found)).sum(axis=2), -np.inf)
    which = explained.argmax(axis=1)
    return which, found[np.arange(len(sums)), which]


def _out_of_sample_r2(parts: np.ndarray, dates: np.ndarray, blocks: int) -> float:
    """Return the share of the squares on blocks of days that fits to the other days predict, beyond the constants."""
    missed = total = 0.0
    for block in np.array_split(np.unique(dates), blocks):
        out = np.isin(dates, block)
        inside, outside = parts[~out].sum(axis=0, keepdims=True), parts[out].sum(axis=0, keepdims=True)
        which, found = _solved(inside)
        matrix, along, squares = (part[0] for part in _unpacked(outside))
        matrix, along, coefficients = matrix[which[0]], along[which[0]], found[0]
        own, right, _ = (part[0] for part in _unpacked(inside))
        plain = np.linalg.solve(own[which[0]][:2, :2], right[which[0]][:2])
        missed += float(squares - 2 * coefficients @ along + coefficients @ matrix @ coefficients)
        total += float(squares - 2 * plain @ along[:2] + plain @ matrix[:2, :2] @ plain)
    return 1.0 - missed / total if total > 0 else float("nan")
