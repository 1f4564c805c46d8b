"""Backends, which compute a policy's decisions in service: torch, as in the backtest, or onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from rlwb.errors import BundleError, ConfigError, InterpreterError
from rlwb.learner import Learner
from rlwb.serving.onnx import HEAD, OUTPUTS, POLICY, make_session

Kind = Literal["torch", "onnx"]


class Backend(Protocol):
    """Chooses the actions of a policy that no longer learns."""

    def act(self, obs: Mapping[str, Any]) -> np.ndarray:
        """Return the action that the policy holds best, for each of N observations.

        Parameters
        ----------
        obs
            Observations of the declared space, or what the state interpreter's ``refer`` gives with ``market_states``,
            float32 of shape (N, H), the state of the market at each decision.

        Raises
        ------
        InterpreterError
            When the network answers NaN or infinity.
        """


class TorchBackend:
    """The learner itself: to the last bit the decisions of the backtest.

    Parameters
    ----------
    learner
        The policy, on the CPU.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner

    def act(self, obs: Mapping[str, Any]) -> np.ndarray:
        states = obs.get("market_states")
        # Rows are taken of arrays alone.
        given = dict(obs) if states is None else {**obs, "market_states": np.asarray(states)}
        return self.learner.act(given)


class OnnxBackend:
    """The graphs of `rlwb.serving.onnx` in onnxruntime, on the thread that calls; actions as torch's up to rounding.

    Parameters
    ----------
    policy
        Graph, or its path, that reads observations of the declared space.
    head
        That which reads the state of the market in place of the bars, where the network has one.
    """

    def __init__(self, policy: bytes | str, head: bytes | str | None = None) -> None:
        self._policy = _Graph(policy)
        self._head = None if head is None else _Graph(head)

    def act(self, obs: Mapping[str, Any]) -> np.ndarray:
        if self._head is not None and "market_states" in obs:
            action, scores = self._head(obs)
        else:
            action, scores = self._policy(self._with_bars(obs))
        if not np.isfinite(scores).all():
            raise InterpreterError("the network answers NaN or infinity; look for missing numbers in the observations.")
        return action

    def _with_bars(self, obs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return observations with the blocks that the graph reads, where they name sessions instead."""
        if "session" not in obs or "data_processed" in obs:
            return obs
        panel, session, blocks = obs["features"], np.asarray(obs["session"]), {}
        if "data_processed" in self._policy.names:
            blocks["data_processed"] = panel.block(session, np.asarray(obs["cur_tick"]))
        if "data_processed_prev" in self._policy.names:
            blocks["data_processed_prev"] = panel.block_previous(session)
        return {**obs, **blocks}


class _Graph:
    """A graph that takes what it needs from a dict of observations."""

    def __init__(self, graph: bytes | str) -> None:
        session = make_session(graph)
        self.names = [one.name for one in session.get_inputs()]
        self._run = session.run

    def __call__(self, obs: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        try:
            feed = {name: np.asarray(obs[name]) for name in self.names}
        except KeyError as error:
            raise InterpreterError(
                f"the observations lack {error.args[0]}, which the policy's graph reads; give those of its space."
            ) from error
        action, scores = self._run(OUTPUTS, feed)
        return action, scores


class _Served(Protocol):
    """The parts of a bundle that a backend is made of."""

    @property
    def path(self) -> Path:
        """Its folder."""

    @property
    def learner(self) -> Learner:
        """The policy, with its weights."""


def make_backend(bundle: _Served, kind: Kind) -> Backend:
    """Return what computes the decisions of a bundle.

    Raises
    ------
    BundleError
        When onnx is asked for and the bundle has no graph, as its network could not be exported.
    ConfigError
        For another kind, or when onnxruntime is not installed.
    """
    if kind == "torch":
        return TorchBackend(bundle.learner)
    if kind != "onnx":
        raise ConfigError(f"there is no backend {kind!r}; choose torch or onnx.")
    policy, head = (Path(bundle.path) / name for name in (POLICY, HEAD))
    if not policy.is_file():
        raise BundleError(f"the bundle {bundle.path} has no {POLICY}, as its network could not be exported; use torch.")
    return OnnxBackend(str(policy), str(head) if head.is_file() else None)
