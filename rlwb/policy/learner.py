"""What the learners with one network and one optimiser share."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlwb.batch import count_rows, take_rows
from rlwb.errors import CheckpointError, ConfigError, InterpreterError, RlwbError
from rlwb.learner import Expectation, Learner
from rlwb.policy.adam import Adam
from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.episodes import last_rows
from rlwb.policy.gru import ALIGN
from rlwb.policy.network import Network, device_of

logger = logging.getLogger(__name__)


class NetworkLearner(Learner):
    """A learner with one network that chooses among actions, and one Adam (arXiv 1412.6980).

    The network has ``actions`` and ``causal``, the settings ``learning_rate``, ``decay_updates`` and ``max_grad_norm``.
    The seed and `updates`, the calls of `learn` so far, name all random numbers of an update, so that no random state
    needs saving.

    Attributes
    ----------
    whole_episodes
        Whether minibatches hold whole episodes, which causal networks need. Without, transitions are taken one by one,
        so that those of a minibatch resemble each other less; that is better where episodes are long.
    """

    _whole_episodes = True

    def __init__(self, network: Any, settings: Any, seed: int) -> None:
        self.network = network.eval()
        self.settings = settings
        self.seed = seed
        self.updates = 0
        self.optimizer = Adam(network.parameters(), settings.learning_rate)

    def check(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        name = type(self).__name__
        if not isinstance(action_space, gym.spaces.Discrete):
            raise ConfigError(
                f"{name} chooses among actions, the action interpreter's space is {action_space}; set "
                "action_interpreter to categorical, or algorithm to one that takes a number, such as ppo or pathwise."
            )
        if action_space.n != self.network.actions:
            raise ConfigError(
                f"{name} chooses among {self.network.actions} actions, the action interpreter's space "
                f"is {action_space}; give an action interpreter with Discrete({self.network.actions})."
            )
        self._check_observations(observation_space)

    def _check_observations(self, observation_space: gym.Space[Any]) -> None:
        """Refuse observations with other features a tick than the network reads."""
        parts = observation_space.spaces if isinstance(observation_space, gym.spaces.Dict) else {}
        if "data_processed" not in parts:
            return
        *_, seen = parts["data_processed"].shape or (0,)
        reads = {part.channels for part in self.network.modules() if isinstance(part, MarketEncoder)}
        if reads - {seen}:
            raise ConfigError(
                f"the network of {type(self).__name__} reads {max(reads)} features a tick, the observations hold "
                f"{seen}; give it channels={seen}, or the features that it was made for."
            )

    def record(self) -> dict[str, Any]:
        return {**super().record(), "network": type(self.trunk).__qualname__}

    @property
    def whole_episodes(self) -> bool:
        return self._whole_episodes

    @whole_episodes.setter
    def whole_episodes(self, value: bool) -> None:
        if self.network.causal and not value:
            raise ConfigError(
                f"{type(self.trunk).__name__} is a causal network, which reads whole episodes; leave whole_episodes "
                "True, or give a network with causal = False."
            )
        self._whole_episodes = value

    @property
    def trunk(self) -> Any:
        """The network below the head; the network itself where it has none."""
        return getattr(self.network, "trunk", self.network)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return device_of(self.network)

    @torch.no_grad()
    def expectation(self, obs: Any) -> Expectation:
        """Return what the network expects waiting to cost, where one of its parts forecasts prices."""
        found = [one.waiting(obs) for one in self.network.modules() if isinstance(one, Network)]
        waiting = next((one for one in found if one is not None), None)
        return Expectation(None if waiting is None else waiting.double().cpu().numpy())

    def _set_learning_rate(self) -> None:
        """Let the rate fall in a line to 0 within ``decay_updates``; it depends on `updates` alone."""
        within = self.settings.decay_updates
        left = 1.0 if within is None else max(0.0, 1.0 - self.updates / within)
        self.optimizer.learning_rate = float(self.settings.learning_rate * left)

    def _step(self, loss: torch.Tensor) -> None:
        """Move the weights once against the gradient of `loss`."""
        if not bool(torch.isfinite(loss)):
            raise RlwbError(
                f"the loss of update {self.updates + 1} is {float(loss.detach())}, so the weights would be lost; "
                "lower learning_rate, or scale the reward down."
            )
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.optimizer.weights, max_norm=self.settings.max_grad_norm)
        self.optimizer.step()

    def _mark_episodes(self, obs: Any, done: np.ndarray) -> Any:
        """Tell a causal network which rows share an episode: ``path`` names the last row of each row's episode."""
        if isinstance(obs, dict) and self.network.causal:
            return {**obs, "path": last_rows(done)}
        return obs

    def state_dict(self) -> dict[str, Any]:
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "device": self.device.type,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.updates = state["updates"]
            self._load_own(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise CheckpointError(
                f"the state is not that of this policy ({' '.join(lines[:2]) or type(error).__name__}); build the "
                "policy with the settings it was saved with."
            ) from error
        if state["device"] != self.device.type:
            logger.warning(
                "the policy was saved on %s and goes on on %s; figures agree up to rounding, not to the last bit",
                state["device"],
                self.device.type,
            )

    def _load_own(self, state: Mapping[str, Any]) -> None:
        """Load what a subclass adds to the state."""

    def acting(self) -> NetworkLearner:
        one = copy.copy(self)
        del one.optimizer
        if one.device.type != "cpu":  # which other processes may not have
            one.network = copy.deepcopy(self.network).cpu()
        return one

    def weights(self) -> dict[str, Any]:
        return {"network": self.network.state_dict()}

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        load_by_name(self.network, weights["network"])


@contextmanager
def training_mode(network: nn.Module) -> Iterator[None]:
    """Let layers like dropout behave as in training; a policy acts without."""
    network.train()
    try:
        yield
    finally:
        network.eval()


def load_by_name(module: nn.Module, weights: Mapping[str, Any]) -> None:
    """Load weights into a module that must have exactly these, of these shapes.

    Raises
    ------
    CheckpointError
        Naming the first weight that is missing, left over or of another shape.
    """
    own = module.state_dict()
    for name in [*own, *weights]:
        if name not in weights:
            raise CheckpointError(f"the weight {name} of the network is missing; build the policy as it was trained.")
        if name not in own:
            raise CheckpointError(f"the network has no weight {name}; build the policy as it was trained.")
        found = getattr(weights[name], "shape", ())
        if tuple(found) != tuple(own[name].shape):
            raise CheckpointError(
                f"the weight {name} has shape {tuple(found)}, the network's has {tuple(own[name].shape)}; build the "
                "policy as it was trained."
            )
    module.load_state_dict(weights)


def fill_up(obs: Any) -> Any:
    """Repeat the last observation until their number is a multiple of `ALIGN`."""
    rows = count_rows(obs)
    if rows % ALIGN == 0:
        return obs
    # Products of other sizes take other code paths in the libraries below, with other roundings.
    return take_rows(obs, np.minimum(np.arange(rows + -rows % ALIGN), rows - 1))


class AllOne:
    """Answers the same always; with `TwapRelativeActionInterpreter` and 1 this is TWAP.

    Parameters
    ----------
    value
        The answer.
    """

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the value for each of the N observations, of shape (N,)."""
        return np.full(count_rows(obs), self.value)


def check_answers(answers: torch.Tensor) -> None:
    """Raise `InterpreterError` when a network's answers are not all finite."""
    if not bool(torch.isfinite(answers).all()):
        raise InterpreterError(
            "the network answers NaN or infinity; look for missing numbers in the observations, or lower "
            "learning_rate if the training has diverged."
        )


def check_settings(
    *,
    positive: Mapping[str, float | None] = {},
    shares: Mapping[str, float] = {},
    counts: Mapping[str, int | None] = {},
    weights: Mapping[str, float] = {},
) -> None:
    """Raise `ConfigError` for a setting out of its range, by name; None is a setting that is off."""
    for values, holds, rule in (
        (positive, lambda value: value > 0, "be above 0"),
        (shares, lambda value: 0 <= value <= 1, "lie in [0, 1]"),
        (counts, lambda value: value >= 1, "be at least 1"),
        (weights, lambda value: value >= 0, "be 0 or more"),
    ):
        for name, value in values.items():
            if value is not None and not holds(value):
                raise ConfigError(f"{name} is {value}; it must {rule}.")
