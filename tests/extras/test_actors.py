"""Several collecting processes and one learner give the weights of one process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from rlwb.env.ray_actors import Connection
from rlwb.policy import DQN
from rlwb.trainer import Callback, Trainer, actors
from tests.policy.test_dqn import small_dqn
from tests.trainer.conftest import one_thread  # noqa: F401
from tests.trainer.small import assert_same_weights, small_ppo, small_vessel


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    connection = Connection(2)
    yield
    connection.close()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "BLOCK", 7)


def trained(policy: Any, count: int, *callbacks: Callback, iterations: int = 3) -> tuple[Any, list[dict[str, float]]]:
    class Keep(Callback):
        def on_iter_end(self, trainer: Trainer, vessel: Any) -> None:
            rows.append({name: value for name, value in trainer.metrics.items() if name != "seconds"})

    rows: list[dict[str, float]] = []
    vessel = small_vessel(policy=policy, episode_per_iter=20)
    Trainer(max_iters=iterations, val_every_n_iters=1, actors=count, callbacks=[*callbacks, Keep()]).fit(vessel)
    return policy, rows


class Kill(Callback):
    """Kills a collecting process in the middle of the second iteration."""

    def on_train_start(self, trainer: Trainer, vessel: Any) -> None:
        if trainer.current_iter == 1:
            assert trainer._collecting is not None
            pool = trainer._collecting.actors
            submit = pool.submit

            def deadly(*args: Any) -> Any:
                pool.submit = submit  # type: ignore[method-assign]
                call = submit(*args)
                os.kill(self.pid, signal.SIGKILL)
                return call

            self.pid = pool.processes()[0]
            pool.submit = deadly  # type: ignore[method-assign]


def test_the_weights_are_those_of_one_process_whatever_the_number_and_whichever_dies() -> None:
    alone, figures = trained(small_dqn(), 0)
    other, of_other = trained(small_dqn(), 2, killer := Kill())
    assert killer.pid
    assert of_other == figures
    assert_same_weights(alone, other)
    assert isinstance(other, DQN)
    assert len(other.replay) == len(alone.replay) > 0
    assert (other.replay.everything().reward == alone.replay.everything().reward).all()


def test_a_learner_on_its_own_episodes_gets_the_same_as_well() -> None:
    alone, figures = trained(small_ppo(), 0, iterations=2)
    other, of_other = trained(small_ppo(), 1, iterations=2)
    assert figures == of_other
    assert_same_weights(alone, other)


def test_what_acts_elsewhere_carries_no_buffer() -> None:
    policy = small_dqn()
    acting: Any = policy.acting()
    assert not hasattr(acting, "replay")
    assert not hasattr(acting, "optimizer")
    assert policy.replay is not None
