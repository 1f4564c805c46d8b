"""Bundles of less precision: weights in 8 or 16 bits, beside how their decisions agree with the original's.

The weights alone are rounded; what is computed with them is computed in float32 still. Products of 8-bit numbers would
take a scale from all rows that are decided together, so that an order's decision would depend on its company, and in
networks as small as these they are no faster.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import BundleError, ConfigError
from rlwb.execution import Engine, ExecutionState, OrderBatch, align_orders
from rlwb.execution.engine import Fills
from rlwb.learner import Learner
from rlwb.market import Sessions
from rlwb.packages import require_packages
from rlwb.seeds import generator
from rlwb.serving.bundle import Bundle, join_tensors, open_bundle
from rlwb.serving.parts import ServedParts
from rlwb.serving.precision import Precision, expanded, reduced, shrunk
from rlwb.serving.spec import CARD, CASES, SPEC, WEIGHTS, sha256

if TYPE_CHECKING:
    from rlwb.experiment.workbench import Workbench


@dataclass(frozen=True)
class Limits:
    """How far a bundle of less precision may be from the original.

    Parameters
    ----------
    equal
        Least share of the recorded observations to which both give the same action.
    pa_bp
        Basis points that the confidence interval of the mean difference in PA must lie within, where there are days
        enough for one. A tenth of what the example run gains, and about twice what its chosen checkpoints differ by.
    """

    equal: float = 0.99
    pa_bp: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.equal <= 1 and self.pa_bp >= 0):
            raise ConfigError(
                f"the limits are {self.equal} and {self.pa_bp}; the share of equal actions must lie in [0, 1], the "
                "difference in PA be 0 or more."
            )


def quantise_bundle(
    path: Path,
    out: Path,
    to: Precision,
    *,
    run: Path | None = None,
    limits: Limits | None = None,
    force: bool = False,
    trust_code: bool = False,
    echo: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write a bundle again with weights of less precision, open it, and return where it is.

    Parameters
    ----------
    path
        The original.
    out
        Where the new one goes, whole or not at all.
    to
        ``int8``: matrices as 8-bit numbers with a scale for each row, vectors as they are. ``float16``: all weights.
    run
        A run whose test orders both are judged on; by default the orders that the bundle has recorded.
    limits
        Above which nothing is written.
    force
        Replace a bundle that is there.
    trust_code
        Run the code that the bundle and the run name.

    Raises
    ------
    BundleError
        When the original cannot be opened or is rounded itself, or the two differ by more than the limits.
    """
    from rlwb.serving.cases import case_observations, share_equal
    from rlwb.serving.export import check_out, safetensors_of, write_bundle

    limits = limits or Limits()
    check_out(out, force=force)
    original = open_bundle(path, trust_code=trust_code)
    if original.spec.onnx:
        require_packages("a bundle with ONNX files", "export", "onnx")
    if original.spec.precision != "float32":
        raise BundleError(f"{path} is of precision {original.spec.precision}; give the original.")
    stored = reduced(original.read_arrays(WEIGHTS), to, _estimated(original.learner))
    learner = _learner(original, stored)
    obs, before = case_observations(original)
    after = np.asarray(learner.act(obs))
    equal = share_equal(before, after)
    echo(f"cases: {100 * equal:.1f} % of {len(before)} actions are the original's")
    judged = compare_pa(original, learner, run=run, trust_code=trust_code)
    echo(_told(judged))
    _check_limits(limits, equal, judged)
    arrays = original.read_arrays(CASES)
    arrays |= {"action": after, "original/action": before, **decisions(original, learner)}
    contents = {WEIGHTS: safetensors_of(stored), CASES: safetensors_of(arrays)}
    contents |= _graphs(original, learner, obs, to)
    sizes = {name: [(original.path / name).stat().st_size, len(content)] for name, content in contents.items()}
    agreement = {
        "original": sha256((original.path / SPEC).read_bytes()),
        "observations": len(before),
        "equal": equal,
        **judged,
        "limits": dataclasses.asdict(limits),
        "bytes": {name: size for name, size in sizes.items() if name != CASES},
    }
    card = original.path / CARD
    if card.is_file():
        title, rest = card.read_text(encoding="utf-8").split("\n", 1)
        same = f"{100 * equal:.1f} % of {len(before)} recorded actions are the original's"
        told = f"Its weights are in {to}: {same}; {_told(judged)}."
        contents[CARD] = f"{title}\n\n{told}\n{rest}".encode()
    note = f"decisions of the policy with weights in {to}, at the positions that the original's led to"
    cases = original.spec.cases.model_copy(update={"note": note})
    update = {"precision": to, "agreement": agreement, "cases": cases}
    spec = original.spec.model_copy(update=update)
    check = partial(open_bundle, trust_code=True)
    write_bundle(out, spec, contents, source=original.path, check=check)
    return out


def compare_pa(
    bundle: Bundle, learner: Learner, *, run: Path | None = None, trust_code: bool = False
) -> dict[str, Any]:
    """Return how much PA a learner with a bundle's weights rounded loses or gains, in plain values by name.

    ``orders`` and ``days`` count what was compared, ``on`` says what; ``pa_bp`` is the mean difference in basis points,
    ``interval_bp`` its 95 % interval by resampling days, None where days are too few; ``pa_equal`` the share of orders
    with the same PA.
    """
    from rlwb.experiment.backtest import play

    if run is None and not bundle.spec.cases.orders:
        raise ConfigError(f"{bundle.path} has no recorded orders to compare on; name a run, by --run.")
    bench, orders, on = _market(bundle) if run is None else _market_of(run, bundle, trust_code)
    sees = bench.state_interpreter(bench.features(normaliser=bundle.normaliser))
    learner.trained_for = bundle.learner.trained_for
    before, after = (
        np.asarray(play(bench, (policy, sees, bench.action_interpreter), orders).metrics["pa"])
        for policy in (bundle.learner, learner)
    )
    dates = orders.table["date"].to_numpy()
    return {"on": on, **pa_difference(before, after, dates, generator(bundle.config.seed))}


def pa_difference(before: np.ndarray, after: np.ndarray, dates: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Return what `compare_pa` does of the PA of N orders before and after, float64 of shape (N,), and their dates."""
    from rlwb.evaluation.bootstrap import day_interval

    apart = after - before
    found = day_interval(apart, dates, rng)
    known = ~np.isnan(apart)
    has_interval = bool(np.isfinite([found.lo, found.hi]).all())
    return {
        "orders": found.orders,
        "days": found.days,
        "pa_equal": float((apart[known] == 0).mean()) if known.any() else None,
        "pa_bp": found.estimate if np.isfinite(found.estimate) else None,
        "interval_bp": [found.lo, found.hi] if has_interval else None,
    }


def _check_limits(limits: Limits, equal: float, judged: Mapping[str, Any]) -> None:
    if equal < limits.equal:
        raise BundleError(
            f"{100 * equal:.1f} % of the recorded actions are the original's, the limit is {100 * limits.equal:g} %; "
            "keep the original, or lower the limit."
        )
    interval = judged["interval_bp"]
    if interval is not None and max(abs(interval[0]), abs(interval[1])) > limits.pa_bp:
        raise BundleError(
            f"{_told(judged)}, which is not within {limits.pa_bp:g} bp; keep the original, or raise the limit."
        )


def _told(judged: Mapping[str, Any]) -> str:
    interval, mean = judged["interval_bp"], judged["pa_bp"]
    around = "too few days for an interval" if interval is None else f"interval [{interval[0]:.3f}, {interval[1]:.3f}]"
    size = "unknown" if mean is None else f"{mean:.3f} bp"
    orders = f"{judged['orders']:,} orders on {judged['days']} days ({judged['on']})"
    return f"the PA over {orders} differs by {size} ({around})"


class _Recorded(ServedParts):
    """The parts of a bundle's policy on the bars that the bundle has recorded."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.config, bundle.calendar, bundle.spec.bars)
        self.bundle = bundle

    @cached_property
    def sessions(self) -> Sessions:
        from rlwb.serving.cases import case_sessions

        return case_sessions(self.bundle)

    @cached_property
    def engine(self) -> Engine:
        execution = self.config.execution
        return Engine(self.sessions, execution.ticks_per_step, execution.rules)


def _market(bundle: Bundle) -> tuple[Workbench, OrderBatch, str]:
    """Return the recorded market and orders of a bundle, and what they are."""
    from rlwb.serving.cases import case_orders

    bench = _Recorded(bundle)
    orders = align_orders(case_orders(bundle), bench.sessions, bench.engine.rules)
    return bench, orders, "the recorded orders"


def _market_of(path: Path, bundle: Bundle, trust_code: bool) -> tuple[Workbench, OrderBatch, str]:
    """Return the market and the test orders of a run, and what they are."""
    from rlwb.experiment.orders import load_orders, workbench
    from rlwb.experiment.own_code import require_trust
    from rlwb.experiment.run import RunDirectory

    run = RunDirectory.open(path)
    require_trust(run.config, given=trust_code)
    bench = workbench(run, run.config)
    orders = bench.align(load_orders(run, bench, "test"), bench.objective.middle)
    return bench, orders, f"the test orders of {run.path.name}"


def _estimated(learner: Learner) -> set[str]:
    """Return the names of what a learner's networks estimate without gradients, such as regressions.

    They are few, and sums of them in which terms cancel do not bear rounding.
    """
    from torch import nn

    networks = {name: part for name, part in vars(learner).items() if isinstance(part, nn.Module)}
    return {f"{name}.{buffer}" for name, network in networks.items() for buffer, _ in network.named_buffers()}


def _learner(bundle: Bundle, stored: Mapping[str, np.ndarray]) -> Learner:
    """Return the policy of a bundle with the weights that are stored in less precision."""
    import torch

    made = bundle.parts.learner(bundle.blank_features)
    weights = {name: torch.from_numpy(values) for name, values in expanded(stored).items()}
    made.load_weights(join_tensors(bundle.spec.weights, weights))
    return made


def decisions(bundle: Bundle, learner: Learner) -> dict[str, np.ndarray]:
    """Return a learner's actions and amounts where a bundle's policy decided about the recorded orders.

    The arrays are those of ``cases.safetensors`` by name; the orders go on with what the bundle's policy decided.
    """
    from rlwb.serving.cases import case_decisions

    if not bundle.spec.cases.orders:
        return {}
    bench, orders, _ = _market(bundle)
    sees, acts = bench.state_interpreter(bench.features(normaliser=bundle.normaliser)), bench.action_interpreter
    table = case_decisions(bundle)
    actions, amounts = [], []
    for place, rows in table.groupby("order", sort=True):
        position, asked = (rows[name].to_numpy() for name in ("position", "amount"))
        count = len(rows)
        start = ExecutionState.start(bench.engine, orders[np.full(count, place)])
        told = {name: rows[name].to_numpy().astype(np.int32) for name in ("step", "tick")}
        now = dataclasses.replace(start.now, **told, position=position)
        left = tuple(np.full(count, value) for value in position)
        zero = np.zeros(count)
        steps = tuple(
            Fills(np.full(count, ask), before - after, zero, zero, zero, zero)
            for ask, before, after in zip(asked, left, left[1:], strict=False)
        )
        known = dataclasses.replace(start, now=now, steps=steps, left=left).known
        action = np.asarray(learner.act(sees.refer(known)))
        actions.append(action.astype(np.float64))
        amounts.append(np.asarray(acts.interpret(known, action), dtype=np.float64))
    return {"decision/action": np.concatenate(actions), "decision/amount": np.concatenate(amounts)}


def _graphs(bundle: Bundle, learner: Learner, obs: Mapping[str, np.ndarray], to: Precision) -> dict[str, bytes]:
    """Return the ONNX graphs of a learner with rounded weights, none where the original has none."""
    from rlwb.serving.onnx import export_graphs

    if not bundle.spec.onnx:
        return {}
    return {name: shrunk(graph, to) for name, graph in export_graphs(learner, obs).items()}
