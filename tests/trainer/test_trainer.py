from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rlwb.errors import CheckpointError, ConfigError, InterpreterError
from rlwb.learner import Learner
from rlwb.trainer import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpisodesWriter,
    MetricsWriter,
    Trainer,
    backtest,
    load_checkpoint,
    save_checkpoint,
)
from rlwb.trainer.trainer import bar_figures
from tests.trainer.corridor import Arrival, GustyWalker, Place, corridor
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import assert_same_weights, small_ppo, small_vessel, weights

HOOKS = [name for name in dir(Callback) if name.startswith("on_")]


class Notes(Callback):
    """Writes down every hook, with what the trainer knew."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []
        for hook in HOOKS:
            setattr(self, hook, lambda trainer, _vessel, hook=hook: self.seen.append((hook, trainer.current_iter)))


class Keep(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_iter_end(self, trainer, vessel) -> None:
        self.rows.append({k: v for k, v in trainer.metrics.items() if k != "seconds"})


def on_iter_end(call) -> Callback:
    callback = Callback()
    callback.on_iter_end = lambda _trainer, _vessel: call()  # type: ignore[method-assign]
    return callback


def trained(make=small_vessel, iterations: int = 2, **trainer: Any):
    vessel, keep = make(), Keep()
    Trainer(max_iters=iterations, val_every_n_iters=1, callbacks=[keep], **trainer).fit(vessel)
    return vessel.policy, keep.rows


# The loop


def test_hooks_come_in_order() -> None:
    notes, vessel = Notes(), corridor_vessel()
    trainer = Trainer(max_iters=2, val_every_n_iters=2, callbacks=[notes], finite_env_type="dummy")
    trainer.fit(vessel)
    trainer.test(vessel)
    assert notes.seen == [
        ("on_fit_start", 0),
        ("on_iter_start", 0),
        ("on_train_start", 0),
        ("on_train_end", 1),
        ("on_iter_end", 1),
        ("on_iter_start", 1),
        ("on_train_start", 1),
        ("on_train_end", 2),
        ("on_validate_start", 2),
        ("on_validate_end", 2),
        ("on_iter_end", 2),
        ("on_fit_end", 2),
        ("on_test_start", 2),
        ("on_test_end", 2),
    ]
    assert set(HOOKS) == {name for name, _ in notes.seen}


def test_metrics_hold_training_validation_and_test() -> None:
    vessel = small_vessel()
    trainer = Trainer(max_iters=1, val_every_n_iters=1)
    trainer.fit(vessel)
    episodes = trainer.test(vessel)
    m = trainer.metrics
    assert m["episodes"] == 12
    assert m["val/episodes"] == 10
    assert m["test/episodes"] == len(vessel.test_initial_states) == episodes.count
    assert m["transitions"] == pytest.approx(m["length"] * 12)
    assert m["val/pa"] == np.nanmean(trainer.validation.metrics["pa"])
    assert {"reward", "pa", "ffr", "loss", "seconds", "val/reward", "val/ffr", "test/pa"} <= m.keys()


def test_higher_ranks_are_called_last_and_the_callers_list_stays_as_it_was(tmp_path: Path) -> None:
    callbacks = [Checkpoint(tmp_path), MetricsWriter(tmp_path), Notes()]
    given = list(callbacks)
    trainer = Trainer(max_iters=1, callbacks=callbacks)
    assert [type(c).__name__ for c in trainer.callbacks] == ["Notes", "MetricsWriter", "Checkpoint"]
    trainer.fit(small_vessel())
    assert callbacks == given


@pytest.mark.parametrize("kind", ["native", "dummy", "shmem"])
def test_metrics_are_means_of_the_episodes_figures(kind: str) -> None:
    trainer = Trainer(max_iters=1, val_every_n_iters=1, finite_env_type=kind, concurrency=2)
    trainer.fit(corridor_vessel())
    m, episodes, validation = trainer.metrics, trainer.episodes, trainer.validation
    assert episodes.count == 40
    assert len(episodes.reward) == 0
    for prefix, one in (("", episodes), ("val/", validation)):
        assert m[f"{prefix}reward/end"] == one.metrics["reward/end"].mean() == m[f"{prefix}won"]
        assert m[f"{prefix}reward/haste"] == pytest.approx(-0.01 * m[f"{prefix}length"])
        assert m[f"{prefix}reward"] == pytest.approx(m[f"{prefix}reward/end"] + m[f"{prefix}reward/haste"])
        # Places after each step, at which the walker won or lost at last.
        assert 0 <= one.metrics["aux/place"].min() <= m[f"{prefix}aux/place"] <= one.metrics["aux/place"].max() <= 6
    started_there = np.isfinite(episodes.metrics["from_the_middle"])
    assert m["from_the_middle"] == np.nanmean(episodes.metrics["from_the_middle"])
    assert m["from_the_middle_count"] == started_there.sum()


def test_every_environment_type_gives_the_same_figures() -> None:
    states, found = [3, 1, 5, 2, 4], []

    class Right:
        def act(self, obs, noise=None):
            return np.ones(len(obs), dtype=int)

    for kind, concurrency in (("native", 1), ("dummy", 2), ("subproc", 2), ("shmem", 5)):
        vessel = corridor_vessel(simulator=corridor(GustyWalker))
        with vessel.make_env(states, finite_env_type=kind, concurrency=concurrency, seed=7) as env:
            vessel.policy = Right()
            found.append(vessel.validate(env))
    assert found[0].metrics["blown"].sum() > 0
    assert {"won", "reward/end", "aux/place"} <= found[0].metrics.keys()
    for other in found[1:]:
        np.testing.assert_array_equal(other.length, found[0].length)
        np.testing.assert_array_equal(other.returns, found[0].returns)
        assert other.metrics.keys() == found[0].metrics.keys()
        for name, values in found[0].metrics.items():
            np.testing.assert_array_equal(other.metrics[name], values, err_msg=name)


def test_fast_dev_run_cuts_everything_to_a_handful() -> None:
    notes, vessel = Notes(), small_vessel()
    trainer = Trainer(max_iters=1000, val_every_n_iters=500, callbacks=[notes], fast_dev_run=2)
    trainer.fit(vessel)
    assert trainer.current_iter == 2
    assert ("on_validate_end", 1) in notes.seen
    assert trainer.metrics["episodes"] == trainer.metrics["val/episodes"] == 8
    assert trainer.test(vessel).count == 8
    Trainer(fast_dev_run=1).fit(small_vessel(val_initial_states=None))


def test_a_users_own_subject_trains() -> None:
    vessel = corridor_vessel()
    trainer = Trainer(max_iters=15, val_every_n_iters=15, finite_env_type="dummy", concurrency=5)
    trainer.fit(vessel)
    assert trainer.metrics["val/won"] == 1.0
    assert trainer.metrics["val/length"] == pytest.approx((5 + 3 + 1) / 3)


def test_a_simulators_own_randomness_differs_by_iteration_and_not_by_validation() -> None:
    gusts: list[list[float]] = [[], []]

    class Gusts(Callback):
        def on_iter_end(self, trainer, vessel) -> None:
            gusts[0].append(trainer.metrics["blown"])
            gusts[1].append(trainer.metrics["val/blown"])

    class Right(Learner):
        def act(self, obs, noise=None):
            return np.ones(len(obs), dtype=int)

        def learn(self, obs, action, reward, done) -> dict[str, float]:
            return {}

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state) -> None:
            pass

    vessel = corridor_vessel(simulator=corridor(GustyWalker), train_initial_states=[3], policy=Right())
    Trainer(max_iters=6, val_every_n_iters=1, finite_env_type="dummy", callbacks=[Gusts()]).fit(vessel)
    assert len(set(gusts[0])) > 2
    assert len(set(gusts[1])) == 1
    assert len({vessel.env_seed(i) for i in range(100)}) == 100


# Resume


def run(folder: Path, iterations: int, resume_from: int | None = None, **trainer: Any):
    vessel = small_vessel(policy=small_ppo(gamma=0.9))
    stopper = EarlyStopping(patience=100, restore_best_weights=False)
    writers = [MetricsWriter(folder), EpisodesWriter(folder / "episodes")]
    t = Trainer(
        max_iters=iterations,
        val_every_n_iters=2,
        callbacks=[Checkpoint(folder, keep_best=2, keep_last=2), *writers, stopper],
        **trainer,
    )
    t.fit(vessel, folder / f"{resume_from:04d}.pt" if resume_from else None)
    return vessel, stopper, t


@pytest.mark.parametrize(("kind", "half"), [("native", 5), ("dummy", 2)])
def test_e01_half_of_the_iterations_a_kill_and_the_rest_equal_all_in_one_go(
    tmp_path: Path, kind: str, half: int
) -> None:
    kwargs, n = {"finite_env_type": kind, "concurrency": 3}, 2 * half
    whole = run(tmp_path / "whole", n, **kwargs)
    run(tmp_path / "cut", half, **kwargs)
    resumed = run(tmp_path / "cut", n, resume_from=half, **kwargs)
    assert_same_weights(whole[0].policy, resumed[0].policy)
    assert resumed[2].current_iter == n
    for name in ("train", "validation"):
        a, b = (
            pd.read_csv(tmp_path / part / f"{name}.csv").drop(columns="seconds", errors="ignore")
            for part in ("whole", "cut")
        )
        pd.testing.assert_frame_equal(a, b, check_exact=True)
        assert list(a["iteration"]) == list(range(1, n + 1) if name == "train" else range(2, n + 1, 2))
    assert whole[1].state_dict() == resumed[1].state_dict()
    episodes, again = (sorted((tmp_path / part / "episodes").glob("*.csv")) for part in ("whole", "cut"))
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in episodes]
    assert len(again) == n
    assert sorted(p.name for p in (tmp_path / "whole").glob("*.pt")) == sorted(
        p.name for p in (tmp_path / "cut").glob("*.pt")
    )
    last, other = (load_checkpoint(tmp_path / part / "latest") for part in ("whole", "cut"))
    assert last["vessel"]["queue"] == other["vessel"]["queue"]
    assert last["vessel"]["policy"]["return_statistics"] == other["vessel"]["policy"]["return_statistics"]


def test_a_run_that_ended_trains_on_when_max_iters_is_raised(tmp_path: Path) -> None:
    run(tmp_path, 2)
    assert run(tmp_path, 2, resume_from=2)[2].current_iter == 2
    assert run(tmp_path, 3, resume_from=2)[2].current_iter == 3


class Script(Callback):
    """Sets the watched figure to a written value."""

    rank = -1

    def __init__(self, values: list[float]) -> None:
        self.values = values

    def on_validate_end(self, trainer, vessel) -> None:
        trainer.metrics["val/pa"] = self.values[trainer.current_iter - 1]


def test_e03_patience_counts_on_across_a_resume_and_stopped_stays_stopped(tmp_path: Path) -> None:
    values = [0.0, 5.0] + [1.0] * 20

    def go(max_iters: int, ckpt: str | None = None, **fit: Any) -> Trainer:
        callbacks = [Script(values), EarlyStopping(patience=3), Checkpoint(tmp_path)]
        trainer = Trainer(max_iters=max_iters, val_every_n_iters=1, callbacks=callbacks)
        trainer.fit(small_vessel(), None if ckpt is None else tmp_path / ckpt, **fit)
        return trainer

    go(4)
    assert go(20, "0004.pt").current_iter == 5
    assert go(20, "latest").current_iter == 5
    assert go(20, "latest", train_on=True).current_iter == 6
    values[6:] = [9.0] * 20
    assert go(20, "0006.pt", train_on=True).current_iter == 10


def test_state_of_several_callbacks_of_a_kind(tmp_path: Path) -> None:
    class Counter(Callback):
        count = 0

        def on_iter_end(self, trainer, vessel) -> None:
            self.count += self.by

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state) -> None:
            self.count = state["count"]

    def counters() -> list[Counter]:
        one, two = Counter(), Counter()
        one.by, two.by = 1, 10
        return [one, two]

    Trainer(max_iters=2, callbacks=[*counters(), Checkpoint(tmp_path)]).fit(small_vessel())
    again = counters()
    Trainer(max_iters=3, callbacks=[*again, Checkpoint(tmp_path)]).fit(small_vessel(), tmp_path / "latest")
    assert [c.count for c in again] == [3, 30]
    assert list(load_checkpoint(tmp_path / "latest")["callbacks"])[:2] == ["Counter", "Counter 2"]


def test_a_state_needs_a_vessel_and_a_trainers_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no vessel yet"):
        Trainer(max_iters=1).state_dict()
    trainer = Trainer(max_iters=1)
    trainer.fit(small_vessel())
    with pytest.raises(CheckpointError, match="lacks"):
        trainer.load_state_dict({"iteration": 3})


@pytest.mark.parametrize("changed", [{"vessel": 3}, {"iteration": "x"}, {"metrics": 3}], ids=str)
def test_k08_a_training_does_not_go_on_from_a_checkpoint_of_another_shape(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    Trainer(max_iters=1, callbacks=[Checkpoint(tmp_path)]).fit(small_vessel())
    path = tmp_path / "0009.pt"
    save_checkpoint(path, {**load_checkpoint(tmp_path / "latest"), **changed})
    with pytest.raises(CheckpointError, match=r"0009\.pt is damaged"):
        Trainer(max_iters=2).fit(small_vessel(), path)


def test_another_stream_of_initial_states_is_refused(tmp_path: Path) -> None:
    Trainer(max_iters=1, callbacks=[Checkpoint(tmp_path)]).fit(small_vessel())
    with pytest.raises(CheckpointError, match="orders"):
        Trainer(max_iters=2).fit(
            small_vessel(train_initial_states=small_vessel().test_initial_states), tmp_path / "latest"
        )


# Seeds and workers


def test_e15_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one, two, other = trained(), trained(), trained(lambda: small_vessel(seed=1))
    assert_same_weights(one[0], two[0])
    assert one[1] == two[1]
    assert one[1][0] != other[1][0]


def test_e15_orders_give_the_same_run_for_every_environment_type() -> None:
    policy, rows = trained(finite_env_type="dummy", concurrency=1)
    for kind, concurrency in (("dummy", 4), ("shmem", 1)):
        other, other_rows = trained(finite_env_type=kind, concurrency=concurrency)
        assert_same_weights(policy, other)
        assert other_rows == rows
    native, native_rows = trained()
    start = weights(small_ppo())
    for name, value in weights(policy).items():
        moved = np.abs(value - start[name]).max()
        np.testing.assert_allclose(weights(native)[name], value, rtol=0, atol=2e-3 * moved, err_msg=name)
    losses = {"loss", "policy_loss", "value_loss", "entropy"}
    for a, b in zip(native_rows, rows, strict=True):
        assert {k: v for k, v in a.items() if k not in losses} == {k: v for k, v in b.items() if k not in losses}
        for name in losses:
            assert a[name] == pytest.approx(b[name], rel=1e-3, abs=1e-5)


def test_k17_before_the_first_update_all_types_give_the_same_bits_and_after_it_three_do() -> None:
    """Native reads a session once for all decisions in it, so only the gradients of what reads bars are summed so."""
    updated: dict[str, Any] = {}
    for kind in ("native", "dummy", "subproc", "shmem"):
        policy = small_ppo(previous_day=True, repeat=1, batch_size=10**6)  # one step
        trainer = Trainer(max_iters=1, finite_env_type=kind, concurrency=2)
        trainer.fit(small_vessel(policy=policy))
        figures = {name: value for name, value in trainer.metrics.items() if name != "seconds"}
        updated[kind] = weights(policy), figures
    for kind in ("subproc", "shmem"):
        np.testing.assert_equal(updated[kind], updated["dummy"])
    (native, figures), (slots, others) = updated["native"], updated["dummy"]
    assert figures == others, "losses and figures of the first iteration"
    for name, value in native.items():
        if name.startswith("trunk.market."):
            np.testing.assert_allclose(value, slots[name], rtol=0, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(value, slots[name], err_msg=name)


def test_e15_a_users_subject_gives_the_same_run_for_every_environment_type() -> None:
    def make():
        return corridor_vessel(simulator=corridor(GustyWalker))

    policy, rows = trained(make, finite_env_type="dummy", concurrency=1)
    for kind, concurrency in (("dummy", 4), ("subproc", 1), ("subproc", 4), ("shmem", 4)):
        other, other_rows = trained(make, finite_env_type=kind, concurrency=concurrency)
        assert_same_weights(policy, other)
        np.testing.assert_equal(other_rows, rows)


def test_c11_validation_is_deterministic_and_equals_the_backtest() -> None:
    vessel = small_vessel()
    trainer = Trainer(max_iters=2, val_every_n_iters=1)
    trainer.fit(vessel)
    logged = trainer.validation.metrics["pa"]
    assert np.isfinite(logged).all()
    parts = (vessel.simulator, vessel.state_interpreter, vessel.val_initial_states, vessel.action_interpreter)
    for _ in range(2):
        with vessel.make_env(vessel.val_seed_iterator()) as env:
            np.testing.assert_array_equal(vessel.validate(env).metrics["pa"], logged)
    for kwargs in (
        {},
        {"chunk": 3},
        {"finite_env_type": "dummy"},
        {"finite_env_type": "dummy", "concurrency": 7},
    ):
        episodes = backtest(*parts, vessel.policy, **kwargs)
        np.testing.assert_array_equal(episodes.metrics["pa"], logged, err_msg=str(kwargs))


# Wrong input


def test_c05_observations_of_nothing_but_nan_are_named_not_skipped() -> None:
    class Nothing(Place):
        def interpret(self, known):
            return np.full((len(known), 7), np.nan, dtype=np.float32)

    with pytest.raises(InterpreterError, match="Nothing holds NaN"):
        Trainer(max_iters=1, finite_env_type="dummy").fit(corridor_vessel(state_interpreter=Nothing()))


def test_c05_observations_that_look_like_a_filler_are_episodes_like_others() -> None:
    import gymnasium as gym

    class Full(Place):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (7,), np.float32)

        def interpret(self, known):
            return np.full((len(known), 7), np.finfo(np.float32).max / 1e30, dtype=np.float32)

    trainer = Trainer(max_iters=2, val_every_n_iters=1, finite_env_type="dummy", concurrency=3)
    trainer.fit(corridor_vessel(state_interpreter=Full()))
    assert trainer.metrics["episodes"] == 40
    assert trainer.metrics["val/episodes"] == 3


def test_a_faulty_reward_is_named_before_training() -> None:
    class Wrong(Arrival):
        def reward(self, outcome):
            return None

    with pytest.raises(InterpreterError, match="Wrong returned None"):
        Trainer(max_iters=1, finite_env_type="dummy").fit(corridor_vessel(reward=Wrong()))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_iters": 0}, "at least 1 iteration"),
        ({"max_iters": 1, "val_every_n_iters": 0}, "validate every 1"),
        ({"max_iters": 1, "concurrency": 0}, "concurrency is 0"),
        ({"max_iters": 1, "finite_env_type": "natve"}, "'natve'.*native, dummy, subproc, shmem"),
        ({"fast_dev_run": 0}, "at least 1 iteration"),
    ],
)
def test_e23_impossible_limits_are_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(**kwargs)


def test_e23_limits_of_one() -> None:
    vessel = small_vessel(episode_per_iter=1, policy=small_ppo(batch_size=10**6, repeat=1))
    trainer = Trainer(max_iters=1, val_every_n_iters=1)
    trainer.fit(vessel)
    assert trainer.metrics["episodes"] == 1
    assert trainer.current_iter == 1
    more = Trainer(max_iters=1, finite_env_type="dummy", concurrency=50)
    more.fit(small_vessel())
    assert more.metrics["episodes"] == 12


def test_e23_no_limit_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="set max_iters"):
        Trainer().fit(small_vessel())
    with pytest.raises(ConfigError, match="val_every_n_iters is empty"):
        Trainer(callbacks=[EarlyStopping()]).fit(small_vessel())
    with pytest.raises(ConfigError, match="no val_initial_states"):
        Trainer(max_iters=1, val_every_n_iters=1).fit(small_vessel(val_initial_states=None))
    with pytest.raises(ConfigError, match="no test_initial_states"):
        Trainer(max_iters=1).test(small_vessel(test_initial_states=None))


def test_without_max_iters_a_callback_ends_the_fit() -> None:
    trainer = Trainer(val_every_n_iters=1, callbacks=[Script([1.0] * 9), EarlyStopping(patience=2)])
    ends: list[bool] = []
    trainer.callbacks.append(on_iter_end(lambda: ends.append(trainer.is_last_iter)))
    trainer.fit(small_vessel())
    assert trainer.current_iter == 3
    assert ends == [False, False, True]


def test_the_last_iteration_is_known_in_it() -> None:
    ends: list[bool] = []
    trainer = Trainer(max_iters=3)
    trainer.callbacks.append(on_iter_end(lambda: ends.append(trainer.is_last_iter)))
    trainer.fit(small_vessel())
    assert ends == [False, False, True]


def test_a_bar_shows_the_net_pa_where_it_differs() -> None:
    assert bar_figures({"reward": 0.5, "pa": 1.25, "pa_net": 1.0, "loss": 3.0}) == {"reward": "0.5", "pa_net": "1"}
    assert bar_figures({"pa": 1.0, "pa_net": 1.0, "val/pa": 12.3456}) == {"pa": "1", "val/pa": "12.3"}


def test_gradients_are_on_after_a_training_that_was_stopped_where_they_are_off() -> None:
    """An interrupt within ``torch.no_grad`` may leave them off, of which the next training would fail."""

    class Stops(Callback):
        def on_train_end(self, trainer, vessel) -> None:
            torch.set_grad_enabled(False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Trainer(max_iters=1, callbacks=[Stops()]).fit(corridor_vessel())
    assert torch.is_grad_enabled()
    with torch.no_grad():
        Trainer(max_iters=1).fit(corridor_vessel())
        assert not torch.is_grad_enabled(), "as it was"
