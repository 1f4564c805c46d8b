from __future__ import annotations

import numpy as np
import pytest

from rlwb.env import Active, FiniteVectorEnv, StepResult, make_env
from rlwb.errors import RlwbError
from rlwb.trainer import Episodes, collect
from tests.trainer.corridor import Arrival, Place, Walk, corridor
from tests.trainer.small import small, small_vessel

PARTS = (corridor(), Place(), Walk(), Arrival())


class Right:
    def act(self, obs, noise=None):
        return np.ones(len(obs), dtype=int)


@pytest.mark.parametrize("concurrency", [1, 3, 20])
def test_every_initial_state_once_and_episodes_end_to_end(concurrency: int) -> None:
    states = [4, 1, 5, 3, 3, 2]
    with make_env(*PARTS, states, finite_env_type="dummy", concurrency=concurrency) as env:
        episodes = collect(env, Right(), keep=True)
    assert episodes.count == 6
    np.testing.assert_array_equal(episodes.length, [6 - s for s in states])
    np.testing.assert_array_equal(episodes.metrics["won"], np.ones(6))
    walked = [place for state in states for place in range(state, 6)]
    np.testing.assert_array_equal(episodes.obs.argmax(axis=1), walked)
    np.testing.assert_array_equal(np.flatnonzero(episodes.done), np.cumsum(episodes.length) - 1)
    np.testing.assert_allclose(episodes.returns, 1 - 0.01 * episodes.length)
    ends = np.cumsum(episodes.length)
    np.testing.assert_allclose(
        episodes.returns, [episodes.reward[e - n : e].sum() for n, e in zip(episodes.length, ends, strict=True)]
    )


def test_c09_a_metric_of_some_episodes_is_missing_in_the_others() -> None:
    with make_env(*PARTS, [1, 3, 2, 3], finite_env_type="dummy", concurrency=2) as env:
        episodes = collect(env, Right())
    np.testing.assert_array_equal(episodes.metrics["from_the_middle"], [np.nan, 3, np.nan, 3])
    means = episodes.means()
    assert means["from_the_middle"] == 3
    assert means["from_the_middle_count"] == 2
    assert means["won"] == 1
    assert "won_count" not in means


def test_a_figure_that_no_episode_has_is_missing() -> None:
    nothing = {"pa": np.array([np.nan, np.nan])}
    means = Episodes(2, np.array([1, 1]), np.zeros(2), nothing).means()
    assert np.isnan(means["pa"])
    assert means["pa_count"] == 0


def test_c07_episodes_of_any_length_side_by_side_equal_those_one_by_one() -> None:
    vessel, orders = small_vessel(), small().orders
    gathered = {}
    for kind, concurrency in (("native", 1), ("dummy", 1), ("dummy", 8)):
        with vessel.make_env(orders, finite_env_type=kind, concurrency=concurrency) as env:
            gathered[kind, concurrency] = collect(env, vessel.policy, seed=(1,), keep=True)
    one = gathered["dummy", 1]
    assert set(one.length) == {1, 2, 3, 4}
    for other in gathered.values():
        np.testing.assert_array_equal(other.length, one.length)
        np.testing.assert_array_equal(other.returns, one.returns)
        for name in ("action", "reward", "done"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
        for name, values in one.metrics.items():
            np.testing.assert_array_equal(other.metrics[name], values, err_msg=name)
        for name in other.obs.keys() & one.obs.keys():
            np.testing.assert_array_equal(other.obs[name], one.obs[name], err_msg=name)
            assert other.obs[name].dtype == one.obs[name].dtype


class Skips(FiniteVectorEnv):
    """Starts at episode 1."""

    def reset(self) -> Active:
        return Active(np.array([1]), np.zeros((1, 1)))

    def step(self, action):
        return StepResult(np.array([1]), np.zeros(1), np.array([True])), Active(np.array([], dtype=int), {})

    def metrics(self):
        return {}

    def close(self) -> None: ...


def test_an_environment_that_skips_an_episode_is_refused() -> None:
    with pytest.raises(RlwbError, match="no step of episode 0"):
        collect(Skips(), Right())
