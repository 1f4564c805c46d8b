"""The native environment as Stable-Baselines3 takes it: many orders side by side in one ``VecEnv``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from rlwb.env import GymVectorEnv
from rlwb.errors import ConfigError
from rlwb.interop.environments import Config, order_executions
from rlwb.packages import require_packages

require_packages("rlwb.interop.sb3", "sb3", "stable_baselines3")

from stable_baselines3.common.monitor import Monitor  # noqa: E402 - where it is missed, that is said first
from stable_baselines3.common.vec_env import VecEnv  # noqa: E402


class NativeVecEnv(VecEnv):
    """A `GymVectorEnv` as a ``VecEnv`` of Stable-Baselines3.

    An episode that ends makes room for the next at once. The ``info`` of its last step holds what ``Monitor`` tells
    (``episode`` with return ``r``, length ``l`` and seconds ``t``), its last observation as ``terminal_observation``,
    and the simulator's figures, such as ``pa``, as ``metrics``. Masks for ``MaskablePPO`` are there where the actions
    are discrete.

    Parameters
    ----------
    env
        The environment, made with ``autoreset_mode="SameStep"``.
    """

    def __init__(self, env: GymVectorEnv) -> None:
        if env.metadata["autoreset_mode"] is not AutoresetMode.SAME_STEP:
            raise ConfigError('Stable-Baselines3 starts episodes at once: make env with autoreset_mode="SameStep".')
        self.env = env
        self._begun = time.monotonic()
        self._actions: np.ndarray | None = None
        self._returns, self._lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, dtype=np.int64)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> Any:
        obs, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0.0, 0
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, ended, _, told = self.env.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        metrics = told.get("final_info", {}).get("metrics", {})
        seconds = round(time.monotonic() - self._begun, 6)
        for slot in np.flatnonzero(ended).tolist():
            figures = {"r": float(self._returns[slot]), "l": int(self._lengths[slot]), "t": seconds}
            own = {name: float(values[slot]) for name, values in metrics.items() if not name.startswith("_")}
            last = told["final_obs"][slot]
            infos[slot] |= {"episode": figures, "terminal_observation": last, "metrics": own}
        self._returns[ended], self._lengths[ended] = 0.0, 0
        return obs, rewards.astype(np.float32), ended, infos

    def close(self) -> None:
        self.env.close()

    def has_attr(self, attr_name: str) -> bool:
        if attr_name == "action_masks" and not isinstance(self.action_space, gym.spaces.Discrete):
            return False
        return bool(super().has_attr(attr_name))

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise ConfigError(f"{attr_name} is one for all orders of the native environment; set it without indices.")
        setattr(self.env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        if method_name != "action_masks":
            raise ConfigError(
                f"the native environment has no {method_name} of one order; it has action_masks, and everything in env."
            )
        masks = self.env.action_masks()
        return [masks[index] for index in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Tell of ``Monitor`` that it is there, since its figures are."""
        return [issubclass(wrapper_class, Monitor) for _ in self._get_indices(indices)]


def make_vec_env(
    num_envs: int = 64, config: Config = None, part: str = "train", observation: str = "flat", **options: Any
) -> NativeVecEnv:
    """Return order execution as a ``VecEnv``: `num_envs` orders side by side, stepped as arrays.

    Parameters
    ----------
    num_envs
        Orders side by side; a rollout of PPO has `num_envs` times its ``n_steps`` transitions.
    config, part, observation, options
        As of `rlwb.interop.environments.order_executions`.
    """
    options = {"autoreset_mode": "SameStep", **options}
    return NativeVecEnv(order_executions(num_envs, config, part, observation, **options))


__all__: Sequence[str] = ["NativeVecEnv", "make_vec_env"]
