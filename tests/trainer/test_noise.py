from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.env import DataQueue
from rlwb.trainer import ActionNoise

places = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 40)), min_size=1, max_size=40)


@given(places, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_a_draw_depends_on_episode_and_step_alone(rows, random) -> None:
    episode, step = np.array(rows).T
    together = ActionNoise(3, 1).draw(episode, step)
    order = np.array(random.sample(range(len(rows)), len(rows)))
    source = ActionNoise(3, 1)
    alone = np.array([source.draw(episode[[i]], step[[i]])[0] for i in order])
    np.testing.assert_array_equal(alone, together[order])


def test_draws_are_uniform_and_differ_by_seed_and_iteration() -> None:
    episode = np.repeat(np.arange(2000), 20)
    step = np.tile(np.arange(20), 2000)
    one = ActionNoise(0, 1).draw(episode, step)
    assert ((one >= 0) & (one < 1)).all()
    assert len(np.unique(one)) == len(one)
    counts = np.histogram(one, bins=20, range=(0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 45  # 19 degrees of freedom, p = 0.0007
    for other in (ActionNoise(0, 2), ActionNoise(1, 1), ActionNoise(0)):
        assert abs(np.corrcoef(one, other.draw(episode, step))[0, 1]) < 0.02


def test_exploration_is_independent_of_the_order_of_initial_states() -> None:
    # numpy's generators of [seed, n] and [seed, n, 0, 0] are one and the same.
    noise = ActionNoise(5, 0).draw(np.arange(1000), np.zeros(1000, dtype=int))
    same_bits = np.random.default_rng([5, 0]).random((1024, 16))[:1000, 0]
    assert not np.array_equal(noise, same_bits)
    order = np.array(list(DataQueue(range(1000), seed=5)))
    assert abs(np.corrcoef(noise, order)[0, 1]) < 0.1
