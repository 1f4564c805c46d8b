from __future__ import annotations

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tianshou.algorithm import algorithm_base
from tianshou.data import Batch, ReplayBuffer

from rlwb.errors import ConfigError, RlwbError
from rlwb.policy.replay import Replay, Transitions, n_step_targets
from rlwb.trainer import load_checkpoint, save_checkpoint
from tests.policy.test_episodes import ends, lengths_of


def episodes(lengths: list[int], first: int = 0) -> Transitions:
    """Transitions numbered from `first`; the number is their observation, action and reward."""
    number = np.arange(first, first + sum(lengths))
    return Transitions({"number": number.astype(np.int32)}, number, number.astype(float), ends(lengths))


def held(replay: Replay) -> list[int]:
    assert replay.rows is not None
    for part in (replay.rows.action, replay.rows.reward):
        np.testing.assert_array_equal(part, replay.rows.obs["number"])
    return replay.rows.obs["number"].tolist()


def test_the_oldest_episodes_make_room() -> None:
    replay = Replay(10)
    replay.add(episodes([3, 2]))
    assert held(replay) == [0, 1, 2, 3, 4]
    replay.add(episodes([4], 5))
    assert len(replay) == 9
    # 9 + 2 rows are one too many: the whole first episode of three leaves.
    replay.add(episodes([2], 9))
    assert held(replay) == [3, 4, 5, 6, 7, 8, 9, 10]
    replay.add(episodes([10], 11))
    assert held(replay) == list(range(11, 21))


@given(st.lists(lengths_of, min_size=1, max_size=6), st.integers(0, 200))
@settings(deadline=None, max_examples=100)
def test_what_is_held_is_the_newest_whole_episodes_that_fit(collects: list[list[int]], spare: int) -> None:
    replay, first = Replay(max(map(sum, collects)) + spare), 0
    for lengths in collects:
        replay.add(episodes(lengths, first))
        first += sum(lengths)
    bounds = [0, *np.cumsum([length for lengths in collects for length in lengths]).tolist()]
    begin = min(bound for bound in bounds if first - bound <= replay.size)
    assert held(replay) == list(range(begin, first))


def test_draws_are_whole_episodes_and_each_is_as_likely() -> None:
    replay = Replay(100)
    replay.add(episodes([1, 5, 2, 4]))
    rng, count = np.random.default_rng(0), np.zeros(12)
    for _ in range(2000):
        drawn = replay.sample(6, rng)
        assert drawn.done[-1]
        number = drawn.obs["number"]
        starts = number[np.concatenate([[True], drawn.done[:-1]])]
        assert set(starts.tolist()) <= {0, 1, 6, 8}
        assert (np.diff(number)[~drawn.done[:-1]] == 1).all()
        np.add.at(count, number, 1)
    # Two episodes a draw: each transition is drawn 1000 times on average, with a deviation of at most 39.
    np.testing.assert_allclose(count, 1000, atol=4 * 39)


@pytest.mark.parametrize(("transitions", "drawn"), [(1, 1), (4, 1), (5, 2), (6, 2), (24, 8)])
def test_a_draw_has_as_many_episodes_as_hold_its_transitions_and_one_at_least(transitions: int, drawn: int) -> None:
    # Episodes of 3 on average: 1 / 3 becomes 1 all the same, 4 / 3 is nearest to 1 and 5 / 3 to 2.
    replay = Replay(100)
    replay.add(episodes([1, 5, 2, 4]))
    assert replay.sample(transitions, np.random.default_rng(0)).done.sum() == drawn


def test_a_draw_depends_on_its_generator_alone() -> None:
    replay = Replay(100)
    replay.add(episodes([3] * 20))
    draws = [replay.sample(30, np.random.default_rng(seed)).action.tolist() for seed in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]
    assert len(draws[0]) == 30


def test_a_buffer_comes_back_from_a_file(tmp_path) -> None:
    replay, loaded = Replay(100), Replay(100)
    save_checkpoint(tmp_path / "empty.pt", replay.state_dict())
    replay.add(episodes([3, 1, 4]))
    save_checkpoint(tmp_path / "full.pt", replay.state_dict())
    for name in ("full", "empty"):
        state = load_checkpoint(tmp_path / f"{name}.pt")
        state.pop("format")
        loaded.load_state_dict(state)
        if name == "full":
            assert held(loaded) == held(replay)
            for a, b in zip(*(r.sample(5, np.random.default_rng(0)) for r in (loaded, replay)), strict=True):
                np.testing.assert_equal(a, b)
                assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    assert len(loaded) == 0
    loaded.add(episodes([2]))
    assert len(loaded.sample(2, np.random.default_rng(0)).done) == 2


def test_what_does_not_fit_is_refused() -> None:
    replay = Replay(5)
    with pytest.raises(ConfigError, match="replay_size is 5, but one collect has 6 transitions"):
        replay.add(episodes([2, 4]))
    whole = episodes([2, 3])
    for broken in (
        whole._replace(done=ends([2, 3])[::-1]),
        whole._replace(action=whole.action[1:]),
        whole._replace(obs={"number": np.arange(4)}),
    ):
        with pytest.raises(ConfigError, match="give whole episodes, one row a transition"):
            replay.add(broken)
    with pytest.raises(RlwbError, match="transition 1 is inf"):
        replay.add(whole._replace(reward=np.array([0, np.inf, 0, 0, 0])))
    assert len(replay) == 0


def test_n_step_targets_by_hand() -> None:
    # gamma 0.5. First episode: r = 1, 2, 4 and v = 10, 20, 40; second: r = 8, v = 80; v of a first row never counts.
    reward, ahead, done = np.array([1, 2, 4, 8.0]), np.array([10, 20, 40, 80.0]), ends([3, 1])
    # 1 + 0.5 * 20, 2 + 0.5 * 40, 4, 8
    np.testing.assert_allclose(n_step_targets(reward, done, ahead, 0.5, 1), [11, 22, 4, 8])
    # 1 + 0.5 * 2 + 0.25 * 40, 2 + 0.5 * 4, 4, 8
    np.testing.assert_allclose(n_step_targets(reward, done, ahead, 0.5, 2), [12, 4, 4, 8])
    # 1 + 0.5 * 2 + 0.25 * 4, …: no guess is left
    for steps in (3, 4, 100):
        np.testing.assert_allclose(n_step_targets(reward, done, ahead, 0.5, steps), [3, 4, 4, 8])


@pytest.mark.parametrize("steps", [1, 2, 3, 8])
def test_n_step_targets_equal_tianshou(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling it takes seconds.
    if not numba.config.DISABLE_JIT:
        monkeypatch.setattr(algorithm_base, "_nstep_return", algorithm_base._nstep_return.py_func)
    rng = np.random.default_rng(steps)
    done = ends(list(rng.integers(1, 7, size=30)))
    n, no = len(done), np.zeros(len(done), dtype=bool)
    reward, ahead = rng.normal(size=n), rng.normal(size=n)
    buffer = ReplayBuffer.from_data(np.arange(n), np.zeros(n), reward, done, no, done, np.arange(n) + 1)
    buffer.last_index[0] = n - 1  # from_data leaves it at 0, so that the first row counts as the last
    following = torch.tensor(np.append(ahead[1:], 0.0))
    theirs = algorithm_base.Algorithm.compute_nstep_return(
        Batch(rew=reward), buffer, np.arange(n), lambda _, rows: following[rows], gamma=0.9, n_step=steps
    )
    found = n_step_targets(reward, done, ahead, 0.9, steps)
    np.testing.assert_allclose(found, theirs.returns.numpy().ravel(), rtol=1e-9, atol=1e-12)


def test_what_all_rows_share_comes_from_the_newest_episodes_and_is_not_saved() -> None:
    replay, old, new = Replay(100), object(), object()
    for panel in (old, new):
        given = episodes([2, 1])
        replay.add(given._replace(obs={**given.obs, "features": panel}))
    assert replay.sample(4, np.random.default_rng(0)).obs["features"] is new
    assert replay.state_dict()["obs"].keys() == {"number"}
    loaded = Replay(100)
    loaded.load_state_dict(replay.state_dict())
    given = episodes([1])
    loaded.add(given._replace(obs={**given.obs, "features": old}))
    drawn = loaded.sample(50, np.random.default_rng(0)).obs
    assert drawn["features"] is old
    assert len(np.unique(drawn["number"])) == 3


def test_observations_of_another_form_are_refused() -> None:
    replay = Replay(100)
    replay.add(episodes([2]))
    with pytest.raises(ConfigError, match="session"):
        replay.add(episodes([2])._replace(obs={"session": np.arange(2)}))
    assert len(replay) == 2
