"""Transitions that an off-policy learner keeps: whole episodes, drawn uniformly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlwb.batch import join, split_shared, take_rows
from rlwb.errors import ConfigError
from rlwb.learner import Cut
from rlwb.policy.episodes import check_episodes, last_rows


class Transitions(NamedTuple):
    """Episodes laid end to end; a transition's next observation is the next row, unless it ends its episode.

    Attributes
    ----------
    obs
        An array of N rows, or a mapping of such.
    action, reward, done
        Of shape (N,); `done` marks the last row of each episode.
    beyond
        Rows that are no transitions but what was seen when an episode was cut off, bool of shape (N,); None for none.
        Their actions and rewards mean nothing.
    """

    obs: Any
    action: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    beyond: np.ndarray | None = None

    @classmethod
    def of(
        cls, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, cut: Cut | None = None
    ) -> Transitions:
        """Return episodes with a row more for each that was cut off, its last."""
        if cut is None:
            return cls(obs, action, reward, done)
        count, more = len(done), len(cut.rows)
        order = np.insert(np.arange(count), cut.rows + 1, count + np.arange(more))
        obs, shared = split_shared(obs)
        obs = join([obs, split_shared(cut.obs)[0]], order)
        own, beyond = np.concatenate([np.arange(count), cut.rows])[order], order >= count
        ended = done.copy()
        ended[cut.rows] = False
        return cls(
            {**obs, **shared} if shared else obs,
            action[own],
            np.where(beyond, 0.0, reward[own]),
            ended[own] | beyond,
            beyond,
        )

    @property
    def real(self) -> np.ndarray:
        """The rows that are transitions, int64 of shape (M,)."""
        return np.arange(len(self.done)) if self.beyond is None else np.flatnonzero(~self.beyond)


class Replay:
    """A lasting buffer of transitions; whole episodes leave it, the oldest first.

    Parameters
    ----------
    size
        Most transitions to keep.

    Notes
    -----
    Observations of the native environment name their session, so that one takes some 80 bytes, in memory and in a
    checkpoint; those with blocks take the blocks' size. What all rows share, like the panel under ``features``, is not
    kept with them: draws hold that of the episodes that were added last.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: Transitions | None = None
        self._shared: dict[str, Any] = {}
        self._ends = np.empty(0, dtype=np.int64)
        self._real = self._ends

    def __len__(self) -> int:
        return 0 if self.rows is None else len(self.rows.done)

    def add(self, new: Transitions) -> None:
        """Add episodes, letting go of old ones.

        Raises
        ------
        ConfigError
            When the rows are no whole episodes, or do not fit.
        RlwbError
            When a reward is not finite.
        """
        check_episodes(new.obs, new.action, new.reward, new.done)
        if len(new.done) > self.size:
            raise ConfigError(
                f"replay_size is {self.size}, but one collect has {len(new.done)} transitions; keep at least those."
            )
        obs, self._shared = split_shared(new.obs)
        new = new._replace(obs=obs)
        joined = new if self.rows is None else _joined(self.rows, new)
        ends = np.flatnonzero(joined.done)
        excess = len(joined.done) - self.size
        # The first row of the first episode that may stay.
        first = 0 if excess <= 0 else int(ends[np.searchsorted(ends, excess - 1)]) + 1
        self._hold(_rows(joined, np.arange(first, len(joined.done))) if first else joined)

    def sample(self, transitions: int, rng: np.random.Generator) -> Transitions:
        """Draw whole episodes with replacement, as many as have `transitions` transitions on average.

        Every transition has the same chance. Whole episodes let a causal network pass over a day once for all of its
        decisions, and hold each transition's next observation.
        """
        assert self.rows is not None, "episodes were added before"
        count = max(1, round(transitions * len(self._ends) / len(self)))
        drawn = rng.integers(len(self._ends), size=count)
        starts = np.concatenate([[0], self._ends[:-1] + 1])[drawn]
        lengths = self._ends[drawn] - starts + 1
        within = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
        return self._with_shared(_rows(self.rows, np.repeat(starts, lengths) + within))

    def sample_single(self, transitions: int, ahead: int, rng: np.random.Generator) -> tuple[Transitions, np.ndarray]:
        """Draw single transitions with replacement, each with the rows after it that its target is made of.

        Parameters
        ----------
        transitions
            Number of transitions B.
        ahead
            Most rows after each, 1 or more; fewer where its episode ends before.

        Returns
        -------
        Transitions
            Each draw as an episode of its own. The last row of one that goes on is `beyond`.
        int64 of shape (B,)
            The rows of the drawn transitions themselves.
        """
        assert self.rows is not None, "episodes were added before"
        drawn = self._real[rng.integers(len(self._real), size=transitions)]
        last = self._ends[np.searchsorted(self._ends, drawn)]
        lengths = np.minimum(drawn + ahead, last) - drawn + 1
        stops = lengths.cumsum()
        within = np.arange(stops[-1]) - np.repeat(stops - lengths, lengths)
        rows = _rows(self.rows, np.repeat(drawn, lengths) + within)
        done, beyond = np.zeros(len(within), dtype=bool), np.zeros(len(within), dtype=bool)
        if rows.beyond is not None:
            beyond |= rows.beyond
        done[stops - 1] = True
        beyond[stops[drawn + ahead <= last] - 1] = True
        return self._with_shared(rows._replace(done=done, beyond=beyond)), stops - lengths

    def everything(self) -> Transitions:
        """Return all transitions that are kept."""
        assert self.rows is not None, "episodes were added before"
        return self._with_shared(self.rows)

    def state_dict(self) -> dict[str, Any]:
        """Return all transitions."""
        rows = {} if self.rows is None else self.rows._asdict()
        return {name: part for name, part in rows.items() if part is not None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Hold the transitions that `state_dict` gave, as arrays or tensors."""
        if state:
            self._hold(Transitions(**_as_arrays(state)))
        else:
            self.rows, self._ends = None, self._ends[:0]

    def _with_shared(self, rows: Transitions) -> Transitions:
        return rows._replace(obs={**rows.obs, **self._shared}) if self._shared else rows

    def _hold(self, rows: Transitions) -> None:
        self.rows = rows
        self._ends = np.flatnonzero(rows.done)
        self._real = rows.real


def n_step_targets(
    reward: np.ndarray,
    done: np.ndarray,
    ahead: np.ndarray,
    gamma: float,
    steps: int,
    beyond: np.ndarray | None = None,
) -> np.ndarray:
    """Return what the values of episodes laid end to end should be, float64 of shape (N,).

    ``y_t = r_t + … + gamma^(n-1) r_(t+n-1) + gamma^n v_(t+n)``, with r and v zero beyond an episode's end (Sutton and
    Barto, Reinforcement Learning, 2nd edition, equation 7.1). Where a row is `beyond`, its v stands for all that
    follows.

    Parameters
    ----------
    reward, done, ahead
        Of shape (N,): r, whether a row ends its episode, and v.
    gamma, steps
        Discount, and n.
    beyond : bool of shape (N,), optional
        See `Transitions`.
    """
    if beyond is not None:
        reward = np.where(beyond, ahead, reward)
    last, row = last_rows(done), np.arange(len(done))
    target, weight = np.zeros(len(done)), 1.0
    for _ in range(min(steps, len(done))):
        target += np.where(row <= last, weight * reward[np.minimum(row, last)], 0.0)
        row, weight = row + 1, weight * gamma
    return target + np.where(row <= last, weight * ahead[np.minimum(row, last)], 0.0)


def _joined(one: Transitions, other: Transitions) -> Transitions:
    if one.beyond is not None or other.beyond is not None:
        one, other = (
            part._replace(beyond=np.zeros(len(part.done), dtype=bool)) if part.beyond is None else part
            for part in (one, other)
        )
    return Transitions(*map(join, zip(one, other, strict=True)))


def _rows(transitions: Transitions, rows: np.ndarray) -> Transitions:
    return Transitions(*(take_rows(part, rows) for part in transitions))


def _as_arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_arrays(part) for key, part in value.items()}
    return tuple(map(_as_arrays, value)) if isinstance(value, tuple) else np.asarray(value)
