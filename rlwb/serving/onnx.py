"""A learner's decision as ONNX graphs, which run without torch.

``policy.onnx`` takes observations of the declared space, the bars among them, ``head.onnx`` the state of the market in
place of the bars. Both hold the network, the mask of actions, the even start and the choice itself, and answer with the
action and the scores that it follows from.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rlwb.errors import BundleError, ConfigError, RlwbError
from rlwb.learner import Learner

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnxruntime

#: Files of a bundle.
POLICY, HEAD = "policy.onnx", "head.onnx"
#: What the graphs answer.
OUTPUTS = ("action", "scores")
#: Observations of the bars, which the state of the market stands for.
BARS = ("data_processed", "data_processed_prev", "cur_tick")
#: The largest difference of a score between torch and a graph (`score_distance`).
TOLERANCE = 1e-5
#: Rows that are checked at once, which bounds the memory: onnxruntime's attention takes the square of the ticks.
ROWS = 16
_OPSET = 17
#: No score that a network gives an action is as large as this.
_BARRED = 1e30


def export_graphs(learner: Learner, obs: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """Return the ONNX graphs of a learner's greedy decision by file name, checked against torch.

    Parameters
    ----------
    learner
        Its ``greedy(obs)`` says in torch which actions it holds best and the scores they follow from, made by the
        module ``network``.
    obs
        N observations of the declared space, 2 or more, by which the graphs are traced and checked.

    Returns
    -------
    dict
        ``policy.onnx``, and ``head.onnx`` where the network takes the state of the market in place of the bars.

    Raises
    ------
    BundleError
        When the learner draws its actions, torch cannot trace it, or a graph decides otherwise than torch.
    """
    import torch

    given = {name: np.asarray(part) for name, part in obs.items()}
    graphs = {POLICY: _export(learner, given)}
    with torch.no_grad():
        trunk = getattr(learner, "trunk", None)
        states = trunk.market_states(given) if trunk is not None else None
    if states is not None:
        known = {name: part for name, part in given.items() if name not in BARS}
        # A network of one's own may make such states and yet want the bars.
        with contextlib.suppress(BundleError):
            graphs[HEAD] = _export(learner, {**known, "market_states": states.numpy()})
    return graphs


def make_session(graph: bytes | str) -> onnxruntime.InferenceSession:
    """Return a session of a graph, given itself or by its path, that runs on the thread that calls it.

    Raises
    ------
    ConfigError
        When onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError("a graph needs the package onnxruntime; pip install 'rlwb[export]'.") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Errors alone: notes on removed constants are for the exporter's developers.
    options.log_severity_level = 3
    # Weights that are stored in 8 bits become float32 once, when the session is made, not at every decision.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def check_agreement(learner: Learner, graph: bytes, obs: Mapping[str, np.ndarray]) -> None:
    """Raise `BundleError` unless a graph answers N observations as the learner does, alone and together.

    Parameters
    ----------
    learner, obs
        See `export_graphs`.
    graph
        The graph, which takes `obs` by name.
    """
    import torch

    name = type(learner).__name__
    session, count = None, len(next(iter(obs.values())))
    for rows in (slice(0, 1), *(slice(low, low + ROWS) for low in range(0, count, ROWS))):
        given = {part: values[rows] for part, values in obs.items()}
        with torch.no_grad():
            wanted, near = (part.numpy() for part in learner.greedy(given))  # type: ignore[attr-defined]
        try:
            session = session or make_session(graph)
            action, scores = session.run(OUTPUTS, {one.name: given[one.name] for one in session.get_inputs()})
        except Exception as error:  # onnxruntime's errors have no base of their own
            reason = " ".join(str(error).split())[:160]
            raise BundleError(f"onnxruntime cannot run the graph of {name} ({reason}); serve it by torch.") from error
        distance = score_distance(scores, near)
        same = action == wanted if wanted.dtype.kind == "i" else np.ones(len(wanted), dtype=bool)
        if not same.all() or not distance.max() <= TOLERANCE:
            raise BundleError(
                f"the ONNX graph of {name} decides otherwise than torch: {int((~same).sum())} of "
                f"{len(same)} actions differ, scores by up to {distance.max():.1e}; serve it by torch."
            )


def score_distance(scores: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return how far scores are off, as a share of the row's largest score, or of 1 where that is larger.

    A score is a sum, whose rounding goes with the size of its parts and not with that of what is left of them. Scores
    of actions that are barred, the smallest numbers there are, say nothing of that size.

    Parameters
    ----------
    scores, wanted : float of shape (N, ...)
        Of N observations.
    """
    size = np.abs(wanted).reshape(len(wanted), -1)
    largest = np.where(size < _BARRED, size, 0.0).max(axis=1, initial=1.0)
    return np.asarray(np.abs(scores - wanted) / largest.reshape(-1, *[1] * (wanted.ndim - 1)))


def _export(learner: Learner, obs: dict[str, np.ndarray]) -> bytes:
    """Return the graph of a learner's decision on such observations; see `export_graphs`."""
    import torch
    from torch import nn

    class Decision(nn.Module):
        """The learner's greedy decision as a module, whose weights are its network's."""

        def __init__(self) -> None:
            super().__init__()
            self.network = learner.network  # type: ignore[attr-defined]

        def forward(self, *parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            action, scores = learner.greedy(dict(zip(obs, parts, strict=True)))  # type: ignore[attr-defined]
            return action, scores

    name = type(learner).__name__
    if not hasattr(learner, "greedy"):
        raise BundleError(f"{name} has no method greedy, by which its decision could be exported; serve it by torch.")
    inputs, file = tuple(torch.from_numpy(part[:ROWS]) for part in obs.values()), io.BytesIO()
    try:
        with torch.no_grad(), _quiet():
            torch.onnx.export(
                Decision().eval(),
                inputs,
                file,
                dynamo=False,
                opset_version=_OPSET,
                input_names=list(obs),
                output_names=list(OUTPUTS),
                dynamic_axes={part: {0: "orders"} for part in (*obs, *OUTPUTS)},
            )
    except RlwbError as error:
        raise BundleError(f"the decision of {name} cannot be exported: {error}") from error
    except Exception as error:  # torch raises what it likes at code that it cannot trace
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise BundleError(f"torch cannot trace the decision of {name} ({reason}); serve it by torch.") from error
    graph = file.getvalue()
    check_agreement(learner, graph, obs)
    return graph


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what torch tells of its exporter, and the whole graph that it prints where one cannot be made."""
    from torch import _C

    logger = logging.getLogger("torch.onnx")
    level, tell = logger.level, getattr(_C, "_jit_onnx_log", None)
    logger.setLevel(logging.ERROR)
    _C._jit_onnx_log = lambda *_: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        _C._jit_onnx_log = tell
