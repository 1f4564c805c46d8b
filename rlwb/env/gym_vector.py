"""The native environment as a `gymnasium.vector.VectorEnv`: episodes side by side in arrays, without end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, create_empty_array

from rlwb.batch import take, take_rows
from rlwb.env.data_queue import DataQueue
from rlwb.env.vector import check_actions
from rlwb.errors import ConfigError, DataError
from rlwb.interpreter import ActionInterpreter, StateInterpreter, as_width_of, check_rows_in_space, row_of
from rlwb.reward import AuxiliaryInfoCollector, Reward, sum_parts
from rlwb.seeds import check_seed, episode_seeds
from rlwb.simulator import Simulator, State


class GymVectorEnv(VectorEnv[Any, Any, np.ndarray]):
    """A vector environment of gymnasium's kind, for other libraries, that steps its episodes together as arrays.

    Slots start the initial states of an endless stream, each exactly once an epoch, in a new order every epoch; slots
    that become free together take theirs in the order of their numbers. Observations are of the state interpreter's
    space, in arrays of their own. ``infos`` has, as gymnasium lays it out, ``reward_parts`` and ``aux_info`` of every
    step, ``metrics`` (the simulator's figures, such as ``pa``) of an episode's last, and ``initial_state``, the number
    of the slot's initial state; values of slots that have none are NaN or 0, and False in the mask beside them.

    Parameters
    ----------
    simulator, state_interpreter, action_interpreter, reward, aux_info_collector
        As in `EnvWrapper`.
    initial_states
        What the episodes start from, for example an `OrderBatch`.
    num_envs
        Episodes side by side. Those that started together are stepped by one call, so that hundreds are fast.
    autoreset_mode
        When an episode that has ended makes room for the next: ``"NextStep"`` at the step after, which ignores the
        slot's action and gives reward 0; ``"SameStep"`` at once, with the end under ``final_obs`` and ``final_info``;
        ``"Disabled"`` when ``reset(options={"reset_mask": …})`` asks for it.
    shuffle
        Whether each epoch has an order of its own; otherwise every epoch runs 0, 1, ….
    seed
        Of the stream's order and of the episodes' own random numbers, until a reset gives another.
    """

    def __init__(
        self,
        simulator: Simulator[Any],
        initial_states: Sequence[Any],
        *,
        state_interpreter: StateInterpreter[Any],
        action_interpreter: ActionInterpreter[Any],
        reward: Reward[Any] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
        num_envs: int = 64,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}; give the number of episodes side by side, at least 1.")
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(mode.value for mode in AutoresetMode)
            raise ConfigError(f"autoreset_mode is {autoreset_mode!r}; choose one of {known}.") from None
        self.simulator = simulator
        self.initial_states = initial_states
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward = reward
        self.aux_info_collector = aux_info_collector
        self.num_envs = num_envs
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = state_interpreter.observation_space
        self.single_action_space = action_interpreter.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._queue = DataQueue(range(len(initial_states)), repeat=-1, shuffle=shuffle, seed=seed)
        self._seed = seed
        self._started = 0  # episodes since the last seed
        self._running: list[tuple[np.ndarray, State]] = []  # slots and state of episodes that started together
        self._free = np.ones(num_envs, dtype=bool)  # slots without an episode that runs
        self._obs: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every slot, or in those of ``options["reset_mask"]``, bool of shape (num_envs,).

        A seed starts the stream over; without one it goes on.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._seed, self._started = check_seed(seed), 0
            self._queue.reseed(self._seed)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or (self._obs is None and not mask.all()):
            raise ConfigError(
                f"reset_mask is {mask!r}; give a truth value for each of {self.num_envs} slots, all true at first."
            )
        self._running = [group for slots, state in self._running for group in _kept(slots, state, ~mask[slots])]
        infos: dict[str, Any] = {}
        obs = self._empty() if mask.all() else take_rows(self._obs, np.arange(self.num_envs))
        self._start(np.flatnonzero(mask), obs, infos)
        self._free &= ~mask
        self._obs = obs
        return obs, infos

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Act in every slot; an episode ends by itself only, so ``truncations`` are all False."""
        if self._obs is None or self.closed:
            raise ConfigError("no episode is running; call reset first, and nothing after close.")
        waiting = np.flatnonzero(self._free)
        if len(waiting) and self.autoreset_mode is AutoresetMode.DISABLED:
            raise ConfigError(
                f'the episode of slot {waiting[0]} has ended; reset it by options={{"reset_mask": …}}, or choose '
                "another autoreset_mode."
            )
        actions = self._checked(actions)
        at_once = self.autoreset_mode is AutoresetMode.SAME_STEP
        obs, rewards, ended = self._empty(), np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=bool)
        infos: dict[str, Any] = {}
        final: dict[str, Any] = {}
        going: list[tuple[np.ndarray, State]] = []
        for slots, before in self._running:
            state = self.simulator.step(before, self.action_interpreter.interpret(before.known, actions[slots]))
            done = np.asarray(state.done)
            ended[slots] = done
            rewards[slots] = self._judge(slots, state, infos, final if at_once else infos)
            _lay(obs, self.state_interpreter.interpret(state.known), slots)
            going += _kept(slots, state, ~done)
        self._running = going  # whoever is interrupted before may act again
        over = np.flatnonzero(ended)
        if at_once and len(over):
            last = take_rows(obs, over)  # in arrays of its own, before the next episodes take the rows
            final_obs = np.full(self.num_envs, None, dtype=object)
            for row, slot in enumerate(over):
                final_obs[slot] = row_of(last, row, self.single_observation_space)
            infos |= {"final_obs": final_obs, "_final_obs": ended.copy()}
            infos |= {"final_info": final, "_final_info": ended.copy()}
        if len(started := over if at_once else waiting):
            self._start(started, obs, infos)
        self._free = np.zeros_like(ended) if at_once else ended.copy()
        self._obs = obs
        return obs, rewards, ended, np.zeros(self.num_envs, dtype=bool), infos

    def action_masks(self) -> np.ndarray:
        """Return which actions are worth a choice in each slot, bool of shape (num_envs, n).

        See `ActionInterpreter.mask`; all are in a slot without an episode. Actions that are not discrete have no masks.
        """
        if not isinstance(self.single_action_space, gym.spaces.Discrete):
            raise ConfigError(f"the actions {self.single_action_space} are not discrete, so there is nothing to mask.")
        masks = np.ones((self.num_envs, int(self.single_action_space.n)), dtype=bool)
        for slots, state in self._running:
            mask = self.action_interpreter.mask(state.known)
            if mask is not None:
                masks[slots] = mask
        return masks

    def _checked(self, actions: Any) -> np.ndarray:
        """Return the actions, of which those that are used are in the space."""
        checked = check_actions(actions, self.num_envs)
        used = as_width_of(self.single_action_space, checked[~self._free])
        check_rows_in_space(self.single_action_space, used, f"the actions given to {type(self).__name__}")
        return checked

    def _start(self, slots: np.ndarray, obs: Any, infos: dict[str, Any]) -> None:
        """Start the next episodes of the stream in `slots`, and lay down their observations."""
        rows = np.array([next(self._queue) for _ in slots])
        states, numbers = take(self.initial_states, rows), self._started + np.arange(len(slots))
        state = self.simulator.start(states, episode_seeds(self._seed, numbers))
        if state.done.any():
            first = states[int(np.flatnonzero(state.done)[0])]
            raise DataError(f"The episode of {first} is over before its first decision; leave it out.")
        self._started += len(slots)
        self._running.append((slots, state))
        _lay(obs, self.state_interpreter.interpret(state.known), slots)
        self._put(infos, "initial_state", slots, rows)

    def _judge(self, slots: np.ndarray, state: State, infos: dict[str, Any], final: dict[str, Any]) -> np.ndarray:
        """Return the rewards of a group's step; its figures go to `infos`, those of episodes that end to `final`."""
        outcome, done = state.outcome, np.asarray(state.done)
        parts = {} if self.reward is None else self.reward.parts(outcome)
        collected = {} if self.aux_info_collector is None else self.aux_info_collector.collect(outcome)
        for told, rows in ((infos, np.flatnonzero(~done)), (final, np.flatnonzero(done))):
            for name, figures in (("reward_parts", parts), ("aux_info", collected)):
                self._put_all(told, name, slots[rows], {key: np.asarray(v)[rows] for key, v in figures.items()})
        if done.any():
            self._put_all(final, "metrics", slots[done], state.take(np.flatnonzero(done)).metrics())
        return sum_parts(parts) if parts else np.zeros(len(slots))

    def _put_all(self, infos: dict[str, Any], name: str, slots: np.ndarray, figures: dict[str, np.ndarray]) -> None:
        if len(slots) and figures:
            for key, values in figures.items():
                self._put(infos.setdefault(name, {}), key, slots, values)
            infos.setdefault(f"_{name}", np.zeros(self.num_envs, dtype=bool))[slots] = True

    def _put(self, infos: dict[str, Any], name: str, slots: np.ndarray, values: np.ndarray) -> None:
        """Lay values of some slots down as gymnasium does: an array of all slots, and a mask."""
        if name not in infos:
            missing = np.nan if values.dtype.kind == "f" else 0
            infos[name] = np.full((self.num_envs, *values.shape[1:]), missing, dtype=values.dtype)
            infos[f"_{name}"] = np.zeros(self.num_envs, dtype=bool)
        infos[name][slots] = values
        infos[f"_{name}"][slots] = True

    def _empty(self) -> Any:
        return create_empty_array(self.single_observation_space, self.num_envs)


def _kept(slots: np.ndarray, state: State, keep: np.ndarray) -> list[tuple[np.ndarray, State]]:
    """Return the group of the rows to keep; none of no row."""
    if keep.all():
        return [(slots, state)]
    return [(slots[keep], state.take(np.flatnonzero(keep)))] if keep.any() else []


def _lay(into: Any, batch: Any, slots: np.ndarray) -> None:
    """Write the rows of a batch to some slots."""
    if isinstance(into, dict):
        for key, part in into.items():
            _lay(part, batch[key], slots)
    elif isinstance(into, tuple):
        for part, values in zip(into, batch, strict=True):
            _lay(part, values, slots)
    else:
        into[slots] = batch
