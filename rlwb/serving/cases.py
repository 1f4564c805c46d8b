"""Recorded cases of a bundle: observations and decisions of a backtest, and the same asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pandas as pd

from rlwb.batch import count_rows, join, take_rows
from rlwb.errors import BundleError
from rlwb.execution import Order, OrderBatch
from rlwb.execution.order import COLUMNS, FORMS
from rlwb.execution.state import Known
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.market import MarketFeatures, Sessions
from rlwb.serving.spec import CASES, CaseOrder, Cases, CaseSession

if TYPE_CHECKING:
    from rlwb.experiment.backtest import Playable
    from rlwb.experiment.workbench import Workbench
    from rlwb.serving.bundle import Bundle

OBSERVATIONS = 128
"""Largest number of observations that are recorded."""
ORDERS = 4
"""Number of orders that are recorded, from raw bars to amounts."""
TOLERANCE = 1e-5
"""Greatest difference, relative to 1 or to the action itself where that is larger, of an action that is no choice."""
_NEAR = 0.01  # actions that are no choices count as equal up to this, of 1 or of the action where it is larger
_CHANGED = "; packages or code have changed since it was made: export it again."
_UNRECORDED = (
    "No order is recorded: every one that was looked at has a tick without a price, which a service cannot know "
    "before, and which an even share in a backtest leaves out."
)
_WATCHED = 48  # orders that observations are taken from


class _Seen(StateInterpreter[Any]):
    """A state interpreter that keeps what it was told and what it said, in full or by reference."""

    def __init__(self, own: StateInterpreter[Any], *, in_full: bool) -> None:
        self.own, self.in_full = own, in_full
        self.known: list[Known] = []
        self.obs: list[Any] = []

    @property
    def observation_space(self) -> gym.Space[Any]:
        return self.own.observation_space

    def interpret(self, known: Known) -> Any:
        if not isinstance(known, Known):
            raise BundleError(
                f"the run's simulator shows interpreters a {type(known).__name__}, and a policy in service is shown "
                "rlwb.execution.state.Known; a policy that was trained on something else cannot be exported."
            )
        self.known.append(known)
        self.obs.append(self.own.interpret(known) if self.in_full else self.own.refer(known))
        return self.obs[-1]


class _Answered(ActionInterpreter[Any]):
    """An action interpreter that keeps answers and what they came to."""

    def __init__(self, own: ActionInterpreter[Any]) -> None:
        self.own = own
        self.actions: list[np.ndarray] = []
        self.amounts: list[np.ndarray] = []

    @property
    def action_space(self) -> gym.Space[Any]:
        return self.own.action_space

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        self.actions.append(np.asarray(action))
        self.amounts.append(np.asarray(self.own.interpret(known, action), dtype=np.float64))
        return self.amounts[-1]


def record_cases(
    bench: Workbench, playable: Playable, orders: OrderBatch, rng: np.random.Generator
) -> tuple[Cases, dict[str, np.ndarray]]:
    """Have a policy execute some orders of a backtest; return the cases, and the arrays of ``cases.safetensors``.

    Parameters
    ----------
    bench
        The run's parts.
    playable
        The policy, and its interpreters.
    orders
        The test orders.
    rng
        Draws the orders.
    """
    space = playable[2].action_space
    tolerance = 0.0 if isinstance(space, (gym.spaces.Discrete, gym.spaces.MultiDiscrete)) else TOLERANCE
    arrays = _observed(bench, playable, orders[np.sort(rng.permutation(len(orders))[:_WATCHED])])
    whole, note = _orders_to_record(bench, playable, orders, rng)
    told, decided = _decided(bench, playable, orders, whole) if len(whole) else ([], {})
    sessions, bars = _bars_of(bench, playable, orders[whole])
    observations = len(arrays["action"])
    cases = Cases(observations=observations, orders=told, sessions=sessions, tolerance=tolerance, note=note)
    return cases, {**arrays, **decided, **bars}


def _play(
    bench: Workbench, playable: Playable, orders: OrderBatch, first: int = 0, *, in_full: bool = False
) -> tuple[_Seen, _Answered]:
    """Execute orders as a backtest does, of which the first has the number `first` there."""
    from rlwb.env import make_env
    from rlwb.trainer.collect import collect

    policy, sees, acts = playable
    seen, answered = _Seen(sees, in_full=in_full), _Answered(acts)
    with make_env(bench.simulator, seen, answered, None, orders) as env:
        env.first_episode = first
        collect(env, policy)
    return seen, answered


def _observed(bench: Workbench, playable: Playable, orders: OrderBatch) -> dict[str, np.ndarray]:
    """Return observations of the declared space and the policy's answers to them, by name."""
    seen, _ = _play(bench, playable, orders, in_full=True)
    session = np.concatenate([known.session for known in seen.known])
    rows = np.unique(np.linspace(0, len(session) - 1, OBSERVATIONS).astype(np.int64))  # early and late steps alike
    obs, session = take_rows(join(seen.obs), rows), session[rows]
    arrays = {"action": np.asarray(playable[0].act(obs))}
    for name, values in _flat(obs).items():
        arrays |= _packed(name, values, session)
    return arrays


def _packed(name: str, values: np.ndarray, session: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array of N rows by the names in a file; blocks that are beginnings of one another are stored once.

    A block (N, T, …) of a session's bars is the session's whole one up to a tick, and 0 from there on.
    """
    if values.ndim < 3:
        return {f"observation/{name}": values}
    _, where = np.unique(session, return_inverse=True)
    ticks = np.arange(values.shape[1])
    filled = (values.reshape(*values.shape[:2], -1) != 0).any(axis=2)
    until = np.where(filled.any(axis=1), values.shape[1] - filled[:, ::-1].argmax(axis=1), 0)
    whole = np.zeros((where.max() + 1, *values.shape[1:]), values.dtype)
    for row in np.argsort(until, kind="stable"):  # the longest of a session last
        whole[where[row]] = values[row]
    beyond = (ticks >= until[:, None]).reshape(*filled.shape, *[1] * (values.ndim - 2))
    if not np.array_equal(np.where(beyond, 0, whole[where]), values):
        return {f"observation/{name}": values}
    return {
        f"block/{name}": whole,
        f"block_row/{name}": where.astype(np.int32),
        f"block_until/{name}": until.astype(np.int32),
    }


def _unpacked(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the observations by name that `_packed` has stored."""
    found = {}
    for key, values in arrays.items():
        kind, _, name = key.partition("/")
        if kind == "observation":
            found[name] = values
        elif kind == "block":
            rows, until = arrays[f"block_row/{name}"], arrays[f"block_until/{name}"]
            beyond = np.arange(values.shape[1]) >= until[:, None]
            found[name] = np.where(beyond.reshape(*beyond.shape, *[1] * (values.ndim - 2)), 0, values[rows])
            found[name] = found[name].astype(values.dtype)
    return found


def _flat(obs: Any, name: str = "") -> dict[str, np.ndarray]:
    """Return the arrays of a batch of observations by the names on the way to them, joined by dots."""
    if isinstance(obs, (dict, tuple)):
        pairs = obs.items() if isinstance(obs, dict) else enumerate(obs)
        return {key: one for place, part in pairs for key, one in _flat(part, f"{name}.{place}".lstrip(".")).items()}
    return {name: np.asarray(obs)}


def _deep(space: gym.Space[Any], flat: Mapping[str, np.ndarray], name: str = "") -> Any:
    """Return what `_flat` took apart, by the structure of the space."""
    if isinstance(space, gym.spaces.Dict):
        return {key: _deep(part, flat, f"{name}.{key}".lstrip(".")) for key, part in space.spaces.items()}
    if isinstance(space, gym.spaces.Tuple):
        return tuple(_deep(part, flat, f"{name}.{place}".lstrip(".")) for place, part in enumerate(space.spaces))
    return flat[name]


def _orders_to_record(
    bench: Workbench, playable: Playable, orders: OrderBatch, rng: np.random.Generator
) -> tuple[np.ndarray, str | None]:
    """Return the numbers of the orders to record, and what is to be said of them.

    Those go first whose session has the calendar's length and every tick of whose window has a price.
    """
    drawn = rng.permutation(len(orders))[:512]
    some, sessions = orders[drawn], bench.sessions
    ticks, price = np.arange(sessions.calendar.num_ticks), bench.engine.price[some.session]
    inside = (ticks >= some.start[:, None]) & (ticks < some.latest_end[:, None])
    lacks = (inside & ~((price > 0) & np.isfinite(price))).any(axis=1)
    is_short = sessions.num_ticks[some.session] < sessions.calendar.num_ticks
    if hasattr(playable[2], "engine"):  # an even share is one of ticks that turn out to have a price, in a backtest
        drawn, is_short = drawn[~lacks], is_short[~lacks]
        lacks = lacks[~lacks]
    chosen = drawn[np.lexsort([lacks, is_short])][:ORDERS]
    return chosen, None if len(chosen) else _UNRECORDED


def _decided(
    bench: Workbench, playable: Playable, orders: OrderBatch, numbers: np.ndarray
) -> tuple[list[CaseOrder], dict[str, np.ndarray]]:
    """Return the orders of these numbers with all their decisions, each order executed by itself."""
    told: list[CaseOrder] = []
    parts: list[dict[str, np.ndarray]] = []
    table = orders.table
    for place, number in enumerate(numbers.tolist()):
        seen, answered = _play(bench, playable, orders[number : number + 1], number)
        known = {name: [getattr(one, name) for one in seen.known] for name in ("step", "tick", "position")}
        parts.append(
            {
                "order": np.full(len(seen.known), place, np.int32),
                **{name: np.concatenate(values) for name, values in known.items()},
                "action": np.concatenate(answered.actions).astype(np.float64),
                "amount": np.concatenate(answered.amounts),
            }
        )
        cells = {name: _cell(table[name].iloc[number]) for name in (*COLUMNS, *FORMS) if name in table}
        told.append(CaseOrder(order_id=str(cells.pop("order_id")), columns=cells))
    return told, {f"decision/{name}": np.concatenate([one[name] for one in parts]) for name in parts[0]}


def _cell(value: Any) -> str | float | None:
    if value is None or pd.isna(value):
        return None
    if isinstance(value, (pd.Timestamp, np.datetime64)):
        return pd.Timestamp(value).isoformat()
    return value if isinstance(value, str) else float(value)


def _bars_of(
    bench: Workbench, playable: Playable, orders: OrderBatch
) -> tuple[list[CaseSession], dict[str, np.ndarray]]:
    """Return the sessions of orders, with as many earlier ones as their features need, and the bars of all."""
    panel, needed = bench.sessions, np.unique(orders.session)
    features: MarketFeatures | None = getattr(playable[1], "features", None)
    rows = needed
    for _ in range(64):
        before = panel.previous[rows]
        wider = np.union1d(rows, before[before >= 0])
        if features is None or len(wider) == len(rows):
            rows = wider
            break
        rows, is_enough = wider, _agrees(bench, features, needed, wider)
        if is_enough:
            break
    part = panel.select(rows)
    arrays = {f"bars/{name}": np.array(values) for name, values in part.fields.items()}
    if part.halted is not None:
        arrays["bars/halted"] = np.array(part.halted)
    factor = part.factor
    sessions = [
        CaseSession(
            instrument=str(part.instruments[row]),
            date=str(part.dates[row]),
            ticks=int(part.num_ticks[row]),
            factor=None if factor is None else float(factor[row]),
        )
        for row in range(len(part))
    ]
    return sessions, arrays


def _agrees(bench: Workbench, features: MarketFeatures, needed: np.ndarray, rows: np.ndarray) -> bool:
    """Tell whether a part of the panel gives the sessions `needed` the features that the whole panel gives."""
    own = MarketFeatures.build(bench.sessions.select(rows), bench.config.features, normaliser=features.normaliser)
    here = np.searchsorted(rows, needed)
    same = np.array_equal(own.rows(here), features.rows(needed))
    return same and np.array_equal(own.block_previous(here), features.block_previous(needed))


def case_orders(bundle: Bundle) -> list[Order]:
    """Return the recorded orders."""
    return [Order(**{**one.columns, "order_id": one.order_id}) for one in bundle.spec.cases.orders]  # type: ignore[arg-type]


def case_sessions(bundle: Bundle) -> Sessions:
    """Return the recorded bars as a panel."""
    told, arrays = bundle.spec.cases.sessions, bundle.read_arrays(CASES)
    return Sessions(
        bundle.calendar,
        np.array([one.instrument for one in told]),
        np.array([one.date for one in told], dtype="datetime64[D]"),
        np.array([one.ticks for one in told]),
        {name: arrays[f"bars/{name}"] for name in bundle.spec.bars.fields},
        halted=arrays.get("bars/halted"),
        factor=np.array([one.factor for one in told], dtype=np.float64) if bundle.spec.bars.factor else None,
    )


def case_decisions(bundle: Bundle) -> pd.DataFrame:
    """Return the recorded decisions: order (its place in `case_orders`), step, tick, position, action, amount."""
    arrays = bundle.read_arrays(CASES)
    found = {key.partition("/")[2]: values for key, values in arrays.items() if key.startswith("decision/")}
    return pd.DataFrame({name: found[name] for name in ("order", "step", "tick", "position", "action", "amount")})


def case_observations(bundle: Bundle) -> tuple[Any, np.ndarray]:
    """Return the recorded observations, a batch of the declared space, and the actions of shape (N, …)."""
    arrays = bundle.read_arrays(CASES)
    space = bundle.state_interpreter(bundle.blank_features).observation_space
    return unpack_observations(arrays, space), arrays["action"]


def unpack_observations(arrays: Mapping[str, np.ndarray], space: gym.Space[Any]) -> Any:
    """Return the observations, a batch of `space`, that the arrays of ``cases.safetensors`` hold."""
    return _deep(space, _unpacked(arrays))


def replay(bundle: Bundle) -> list[str]:
    """Ask the policy of a bundle for its recorded answers once more; return what was checked, in words.

    Raises
    ------
    BundleError
        When an answer differs, naming the case, and of an order the step.
    """
    try:
        lines = [_replay_observations(bundle)]
        if bundle.spec.onnx:
            lines.append(_replay_graphs(bundle))
        if bundle.spec.cases.orders:
            lines.append(_replay_orders(bundle))
    except BundleError:
        raise
    except Exception as error:  # arrays and orders of other shapes may raise anything
        raise BundleError(
            f"the recorded cases of {bundle.path} cannot be replayed ({type(error).__name__}: {error}); export it anew."
        ) from error
    return [*lines, *([bundle.spec.cases.note] if bundle.spec.cases.note else [])]


def _replay_observations(bundle: Bundle) -> str:
    obs, wanted = case_observations(bundle)
    found = np.asarray(bundle.learner.act(obs))
    rows = differing(found, wanted, bundle.spec.cases.tolerance)
    if len(rows):
        first = int(rows[0])
        raise BundleError(
            f"{bundle.path}: the policy answers observation {first} of {len(wanted)} with {_short(found, first)}, "
            f"recorded is {_short(wanted, first)} ({len(rows)} differ){_CHANGED}"
        )
    check_recorded(bundle, found)
    return f"{count_rows(obs)} observations: the policy's actions are those recorded"


def _replay_graphs(bundle: Bundle) -> str:
    """Have the ONNX files answer the recorded observations: by their bars, and by the state of the market."""
    import torch

    from rlwb.serving.backend import make_backend
    from rlwb.serving.onnx import HEAD, POLICY, ROWS

    if find_spec("onnxruntime") is None:
        return "the ONNX files were not run, as the package onnxruntime is not installed"
    obs, wanted = case_observations(bundle)
    backend, ways = make_backend(bundle, "onnx"), {POLICY: obs}
    if HEAD in bundle.spec.onnx:
        with torch.no_grad():
            states = bundle.learner.trunk.market_states(obs)  # type: ignore[attr-defined]
        ways[HEAD] = {**obs, "market_states": states.numpy()}
    for name, given in ways.items():
        parts = [np.arange(low, min(low + ROWS, len(wanted))) for low in range(0, len(wanted), ROWS)]
        found = np.concatenate([backend.act(take_rows(given, part)) for part in parts])
        rows = differing(found, wanted, bundle.spec.cases.tolerance)
        if len(rows):
            raise BundleError(
                f"{bundle.path}: {name} answers {len(rows)} of {len(wanted)} observations otherwise than recorded, the "
                f"first of them {int(rows[0])}{_CHANGED}"
            )
    return f"{' and '.join(ways)}: the actions are those recorded"


def share_equal(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of actions that are equal; those that are no choices count as equal up to 0.01."""
    near = 0.0 if before.dtype.kind in "iu" else _NEAR
    return 1.0 - len(differing(after, before, near)) / len(before)


def check_recorded(bundle: Bundle, actions: np.ndarray) -> None:
    """Raise `BundleError` unless the actions agree with the original's as the bundle says."""
    agreement = bundle.spec.agreement
    if agreement is None:
        return
    before = bundle.read_arrays(CASES).get("original/action")
    found = None if before is None else share_equal(before, actions)
    if found != agreement["equal"]:
        raise BundleError(
            f"{bundle.path}: {found} of its actions are the original's, recorded is {agreement['equal']}; quantise "
            "the original again."
        )


def _replay_orders(bundle: Bundle) -> str:
    """Have the recorded orders decided from raw bars, step by step."""
    from rlwb.serving.feeds import bars_of
    from rlwb.serving.policy import BundlePolicy, Decision

    panel, decided = case_sessions(bundle), case_decisions(bundle)
    tolerance = bundle.spec.cases.tolerance
    for place, order in enumerate(case_orders(bundle)):
        row = panel.row(order.instrument, order.date)
        policy = BundlePolicy(bundle, capacity=2)
        if row > panel.first[row]:
            policy.market.load_history(panel.select(np.arange(panel.first[row], row)))
        (name,) = policy.register([order])
        live, sent = policy.market.row(order.instrument, order.date), 0
        bars, at = bars_of(panel, np.array([row]))
        for wanted in decided[decided["order"] == place].itertuples():
            tick = int(wanted.tick)
            if tick > sent:
                policy.market.add(bars[(at >= sent) & (at < tick)])
                policy.market.reach(live, tick)
                sent = tick
            (found,) = policy.decide_many([name], [float(wanted.position)])
            if not isinstance(found, Decision):
                raise BundleError(f"{bundle.path}: step {wanted.step} of the recorded order {name}: {found}")
            slack = tolerance * max(1.0, abs(wanted.action)), tolerance * (order.amount or 1.0)
            pairs = {"action": (found.action, wanted.action), "amount": (found.amount, wanted.amount)}
            for (what, (now, then)), most in zip(pairs.items(), slack, strict=True):
                if now is None or not abs(now - then) <= most:
                    raise BundleError(
                        f"{bundle.path}: the policy decides order {name} at step {wanted.step} with the {what} "
                        f"{now!r}, recorded is {then!r}{_CHANGED}"
                    )
    return f"{len(bundle.spec.cases.orders)} orders: every decision from raw bars is the one recorded"


def differing(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> np.ndarray:
    """Return the rows in which answers differ by more than the tolerance, relative to 1 or the recorded answer."""
    if found.shape != wanted.shape:
        return np.arange(len(wanted))
    if not tolerance:
        apart = found != wanted
    else:
        apart = ~(np.abs(found - wanted) <= tolerance * np.maximum(1.0, np.abs(wanted)))
    return np.flatnonzero(apart.reshape(len(wanted), -1).any(axis=1))


def _short(answers: np.ndarray, row: int) -> Sequence[Any]:
    return answers[row].tolist() if answers.ndim and row < len(answers) else answers.tolist()
