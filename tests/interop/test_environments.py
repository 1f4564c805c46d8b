"""Order execution by gymnasium's ids, and what other libraries ask of an environment."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env

import rlwb.interop  # noqa: F401 - it registers the ids
from rlwb.env import DataQueue, EnvWrapper
from rlwb.errors import ConfigError
from rlwb.execution import CategoricalActionInterpreter, CurrentStepStateInterpreter, Engine, OrderExecution
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from tests.env.toy import orders, toy_env
from tests.execution.markets import order, sessions_of

ID = "rlwb/OrderExecution-v0"
SMALL: dict[str, Any] = {"market": {"name": "synthetic", "instruments": 2, "days": 20}}


def small(**more: Any) -> RunConfig:
    return RunConfig.load(None, Layer("test", {**SMALL, **more}))


@pytest.mark.parametrize("observation", ["flat", "dict", "declared"])
@pytest.mark.parametrize("interpreter", ["full_history", "current_step"])
def test_m03_the_id_passes_gymnasiums_check_without_a_warning(observation: str, interpreter: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config = {**SMALL, "state_interpreter": {"name": interpreter}}
        env = gym.make(ID, config=config, observation=observation, render_mode="ansi")
        check_env(env.unwrapped)
    env.close()


def test_m03_the_spec_tells_the_id_and_makes_it_again() -> None:
    env = gym.make(ID, config=small(), part="valid")
    again = EnvSpec.from_json(env.spec.to_json()).make()  # type: ignore[union-attr]
    assert (again.spec.id, again.spec.kwargs["part"]) == (ID, "valid")  # type: ignore[union-attr]
    assert np.array_equal(env.reset(seed=3)[0], again.reset(seed=3)[0])
    assert json.loads(env.spec.to_json())["kwargs"]["config"]["market"]["days"] == 20  # type: ignore[union-attr]


def test_m03_a_file_of_parameters_and_its_parts(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("market: {name: synthetic, instruments: 2, days: 20}\naction_interpreter: position_share\n")
    env = gym.make(ID, config=file, part="test")
    first, second = (env.reset(options=None) and env.unwrapped.status.initial_state for _ in range(2))  # type: ignore[attr-defined]
    assert env.action_space == gym.spaces.Box(0.0, 1.0, (), np.float32)
    assert (first.order_id, second.order_id) < (second.order_id, first.order_id)  # in the sequence of the table
    assert env.spec.to_json()  # type: ignore[union-attr]


def test_m03_gymnasium_finds_the_id_by_the_packages_name() -> None:
    code = f"import gymnasium; print(gymnasium.make('rlwb.interop:{ID}', config={SMALL!r}).spec.id)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == ID


def test_m03_registering_costs_no_heavy_import() -> None:
    heavy = ("torch", "pandas", "tianshou", "scipy", "numba", "pydantic")
    code = f"import rlwb.interop, sys; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"part": "training"}, "training"), ({"observation": "raw"}, "raw"), ({"config": {"marke": 1}}, "market")],
)
def test_m03_wrong_keywords_are_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        gym.make(ID, **{"config": SMALL, **wrong})


def test_m03_the_spec_of_ones_own_parts_names_a_registered_id() -> None:
    env = toy_env(orders(3))
    parts = {"simulator": env.simulator, "state_interpreter": env.state_interpreter, "seed_iterator": orders(3)}
    again = gym.make(env.spec.id, **parts, action_interpreter=env.action_interpreter)  # type: ignore[union-attr]
    assert again.reset(seed=1)[0].keys() == env.reset(seed=1)[0].keys()


def one_env(**options: Any) -> EnvWrapper:
    """Execute 1,000 of AAA in four steps of two minutes at 100 … 107."""
    engine = Engine(sessions_of([[100.0, 101, 102, 103, 104, 105, 106, 107]]), 2)
    sees, acts = CurrentStepStateInterpreter(engine.max_step), CategoricalActionInterpreter(4)
    states = DataQueue([order(1000.0)], repeat=-1)
    return EnvWrapper(OrderExecution(engine), sees, acts, states, **options)


def test_m08_the_orders_state_as_text() -> None:
    env = one_env(render_mode="ansi")
    assert "no episode" in str(env.render())
    env.reset(seed=0)
    env.step(2)
    lines = str(env.render()).splitlines()
    assert "BUY 1,000 AAA on 2024-01-01" in lines[0]
    assert lines[1] == "step 2 of 4 at 09:32, 50.0 % left"
    assert lines[3].split() == ["0", "500", "500", "100.5", "500"]
    env.step(4)
    assert "done at 09:34, 0.0 % left" in str(env.render())


def test_m08_a_simulator_of_ones_own_is_told_by_its_initial_state() -> None:
    env = toy_env(orders(3))
    env.render_mode = "ansi"
    env.reset()
    env.step(1)
    assert str(env.render()).startswith("toy order 0\n1 decisions, reward ")


def test_m08_masks_of_the_single_environment() -> None:
    env = one_env()
    with pytest.raises(ConfigError, match="reset"):
        env.action_masks()
    env.reset(seed=0)
    env.step(2)
    assert env.action_masks().tolist() == [True, True, True, False, False]
    with pytest.raises(ConfigError, match="discrete"):
        gym.make(ID, config={**SMALL, "action_interpreter": "position_share"}).unwrapped.action_masks()  # type: ignore[attr-defined]


def test_m02_m03_the_id_makes_the_native_environment() -> None:
    envs = gym.make_vec(ID, num_envs=6, config=SMALL, part="valid")
    assert type(envs.unwrapped).__name__ == "GymVectorEnv"
    assert envs.spec.id == ID  # type: ignore[union-attr]
    obs, infos = envs.reset(seed=0)
    assert obs.shape == (6, *envs.single_observation_space.shape)  # type: ignore[misc]
    assert infos["initial_state"].tolist() == [0, 1, 2, 3, 4, 5]


def test_m08_masks_of_the_native_environment() -> None:
    envs = gym.make_vec(ID, num_envs=3, config=SMALL)
    envs.reset(seed=0)
    envs.step(np.array([2, 0, 4]))
    assert envs.unwrapped.action_masks().tolist() == [  # type: ignore[attr-defined]
        [True, True, True, False, False],
        [True] * 5,
        [True] * 5,  # the order is done, and the next not begun
    ]
