"""The numbers by which report.html plays a run's policy: weights, bars, rules and orders, as its script reads them."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field

from rlwb.errors import ConfigError
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    OrderBatch,
    OrderExecution,
    PositionShareActionInterpreter,
    TwapRelativeActionInterpreter,
)
from rlwb.execution.interpreters import CurrentStepStateInterpreter, FullHistoryStateInterpreter
from rlwb.execution.order import FORMS_OF_FILLS
from rlwb.execution.rules import outer_fields
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.market import MarketFeatures
from rlwb.market.calendar import text_of

if TYPE_CHECKING:
    from torch import nn

    from rlwb.evaluation import PolicyResult

#: Action interpreters to what an action is: a choice among shares of the amount, a share of what is left, or a multiple
#: of the even pace.
ACTIONS: dict[type[ActionInterpreter[Any]], str] = {
    CategoricalActionInterpreter: "choice",
    PositionShareActionInterpreter: "share",
    TwapRelativeActionInterpreter: "pace",
}
#: The file, in the folder of a backtest.
PLAYER = "player.json"
#: Most bytes of bars, features and orders; of more, sessions evenly over the test days are kept.
MOST_BYTES = 1_100_000
#: Bytes of an order's names, dates and numbers, about.
_ORDER_BYTES = 80


class Player(BaseModel, extra="allow"):
    """Names and types of player.json that a report reads; the others are for its script (docs/report.md).

    Attributes
    ----------
    refused
        Why the page cannot play this run, as a sentence; null where it can.
    policy
        Name of the checkpoint in the backtest.
    network
        Name of its network.
    shown, of
        How many of the test orders the page holds.
    """

    refused: str | None
    policy: str
    network: str = ""
    shown: int = Field(default=0, ge=0)
    of: int = Field(default=0, ge=0)


def write_player(path: Path, bench: Workbench, playable: Any, orders: OrderBatch, result: PolicyResult) -> None:
    """Write ``player.json``.

    Parameters
    ----------
    path
        The file.
    bench
        The run's parts.
    playable
        The policy with its interpreters.
    orders
        The test orders.
    result
        The policy's result on them.
    """
    write_json(path, player_of(bench, playable, orders, result))


def player_of(bench: Workbench, playable: Any, orders: OrderBatch, result: PolicyResult) -> dict[str, Any]:
    """Return what ``player.json`` holds; where the page cannot play the policy, why."""
    learner, sees, acts = playable
    try:
        _check_market(bench, orders)
        _check_interpreters(sees, acts)
        network = _network(learner, sees)
    except ConfigError as error:
        return {"refused": str(error), "policy": result.policy}
    engine, reads = bench.engine, network["reads"]
    sessions = np.unique(orders.session)
    market = _market(engine, sessions, sees.features if reads else None, reads)
    assert result.inventory is not None, "a policy that trades has an inventory"
    order = _ORDER_BYTES + 4 * result.inventory.shape[1]
    each = (sum(array.nbytes for array in market.values()) + order * len(orders)) / len(sessions)
    if (most := max(1, int(MOST_BYTES / each))) < len(sessions):
        kept = np.linspace(0, len(sessions) - 1, most).round().astype(int)
        sessions, market = sessions[kept], {name: array[kept] for name, array in market.items()}
    rows = np.flatnonzero(np.isin(orders.session, sessions))
    some = orders[rows]
    judged = result.orders.iloc[rows]
    ids, instruments, dates = (some.source[name][some.row] for name in ("order_id", "instrument", "date"))
    aversion = some.forms.get("aversion", np.zeros(len(some)))
    return {
        "refused": None,
        "policy": result.policy,
        "network": bench.config.network.name,
        "shown": len(rows),
        "of": len(orders),
        **network,
        "acts": ACTIONS[type(acts)],
        "shares": acts.shares.tolist() if isinstance(acts, CategoricalActionInterpreter) else [],
        "dial": [float(one.risk_aversion or 0.0) for one in bench.objective.dial],
        "max_step": engine.max_step,
        "cell": engine.cell.tolist(),
        "segment": bench.sessions.calendar.segment.tolist(),
        "times": _times(bench),
        "rules": _rules(engine),
        "market": {name: packed(array) for name, array in market.items()},
        "orders": {
            "id": ids.tolist(),
            "instrument": instruments.tolist(),
            "date": np.datetime_as_string(dates.astype("M8[D]")).tolist(),
            "session": packed(np.searchsorted(sessions, some.session)),
            "side": packed(some.side),
            "amount": packed(some.amount),
            "start": packed(some.start),
            "end": packed(some.end),
            "aversion": packed(np.nan_to_num(aversion)),
        },
        "recorded": {
            "left": packed(np.asarray(result.inventory, dtype=np.float32)[rows]),
            "pa": packed(judged[bench.config.execution.rules.judged_by].to_numpy(np.float64)),
        },
    }


def packed(array: np.ndarray) -> dict[str, Any]:
    """Return an array as JSON holds it: shape, type, and little-endian bytes in base64; floats as short as exact."""
    array = np.asarray(array)
    if array.dtype.kind == "f":
        short = array.astype(np.float32)
        array = short if np.array_equal(short, array, equal_nan=True) else array.astype(np.float64)
    else:
        array = array.astype(np.int32)
    data = base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")
    return {"shape": list(array.shape), "type": f"{array.dtype.kind}{array.dtype.itemsize}", "data": data}


def _check_market(bench: Workbench, orders: OrderBatch) -> None:
    if type(bench.simulator) is not OrderExecution:
        raise ConfigError(f"The page replays bars, which is not what the simulator {bench.config.simulator.name} does.")
    if stated := sorted(FORMS_OF_FILLS & orders.forms.keys() | {"latest_end"} & orders.source.keys()):
        raise ConfigError(f"The page does not know the forms that these orders state: {', '.join(stated)}.")


def _check_interpreters(sees: StateInterpreter[Any], acts: ActionInterpreter[Any]) -> None:
    known = (CurrentStepStateInterpreter, FullHistoryStateInterpreter)
    if type(sees) not in known or getattr(sees, "forms", False):
        raise ConfigError(f"The page does not build the observations of {type(sees).__name__} with these settings.")
    if type(acts) not in ACTIONS:
        raise ConfigError(
            "The page plays choices among shares of the amount, shares of what is left and multiples of the even pace, "
            f"and the actions of {type(acts).__name__} are others."
        )


def _network(learner: Any, sees: StateInterpreter[Any]) -> dict[str, Any]:
    """Return a policy's head, layers and what it reads of the market; refuse what the script has no forward pass of."""
    from rlwb.policy import DQN, MLP, PPO, ActorCritic, Dialled, QNetwork, Signals
    from rlwb.policy.bounded import BoundedActorCritic
    from rlwb.policy.pathwise import Pathwise, ShareHead

    network: Any = getattr(learner, "network", None)
    acts_as = next((one for one in (PPO, DQN, Pathwise) if type(learner).act is one.act), None)
    if acts_as is None or type(network) not in (ActorCritic, QNetwork, BoundedActorCritic, ShareHead):
        raise ConfigError(f"The page does not know how {type(learner).__name__} chooses its actions.")
    trunk, dial = network.trunk, None
    if type(trunk) is Dialled:
        dial, trunk = _linear(trunk.layers), trunk.trunk
    if type(trunk) not in (Signals, MLP):
        raise ConfigError(
            f"The page plays the networks signals and mlp, and has no forward pass of {type(trunk).__name__}."
        )
    made = {
        "head": _head(network),
        "dial_layer": dial,
        "layers": [_linear(one) for one in trunk.layers[::2]],
        "reads": [],
    }
    if type(trunk) is MLP:
        table, layer = trunk.direction[0], trunk.direction[2]
        return {**made, "mlp": {"table": _weights(table.weight), "layer": _linear(layer)}}
    market = trunk.market
    columns = [name for name in ("close", "open", "volume") if name in market.place]
    at = [market.place[name] for name in columns]
    signals = {
        "mean": dict(zip(columns, market.mean[at].tolist(), strict=True)),
        "scale": dict(zip(columns, market.scale[at].tolist(), strict=True)),
        "deviation": float(market.deviation),
        "usual_move": float(trunk.usual_move),
        "law": _law(market.filter.law),
    }
    arrays = {
        "decays": market.decays,
        "usual": market.usual,
        "slopes": market.filter.slopes,
        "usual_variance": market.filter.usual,
        "coefficients": trunk.coefficients,
        "unit": trunk.unit,
    }
    return {
        **made,
        "reads": columns,
        "signals": {**signals, **{name: _weights(value) for name, value in arrays.items()}},
    }


def _head(network: Any) -> dict[str, Any]:
    """Return the last layer and what its numbers are: scores of chances, values, or the log odds of a number."""
    from rlwb.policy import ActorCritic
    from rlwb.policy.bounded import BoundedActorCritic
    from rlwb.policy.pathwise import ShareHead

    if isinstance(network, ShareHead):
        return {"kind": "number", "high": 1.0, "unit": 1.0, **_linear(network.share)}
    if isinstance(network, BoundedActorCritic):
        return {"kind": "number", "high": network.high, "unit": network.unit, **_linear(network.actor)}
    is_chance = isinstance(network, ActorCritic)
    return {
        "kind": "chance" if is_chance else "value",
        "mask": network.mask is not None,
        "mask_completes": network.mask is None or network.mask.complete_at_end,
        "even_start": is_chance and network.start is not None,
        **_linear(network.actor if is_chance else network.head),
    }


def _law(law: Any) -> dict[str, float]:
    """Return the filter's constants as torch rounds them: what they differ by in a last digit, 1 - phi enlarges."""
    begin = law[3].exp(), law[4].exp()
    return {
        "phi": float(law[0].sigmoid()),
        "level_efficient": float(law[1]),
        "level_transient": float(law[2]) if math.isfinite(law[2]) else -1e38,  # whose exponential is 0
        "morning": float(begin[0]),
        "gain": float(begin[0] / (begin[1] + 2.0 * begin[0])) if begin[1] > 0 else 0.0,
    }


def _linear(layer: nn.Module) -> dict[str, Any]:
    return {"weight": _weights(layer.weight), "bias": _weights(layer.bias)}


def _weights(tensor: Any) -> dict[str, Any]:
    return packed(tensor.detach().cpu().numpy())


def _market(
    engine: Engine, sessions: np.ndarray, features: MarketFeatures | None, reads: list[str]
) -> dict[str, np.ndarray]:
    """Return by name what the script reads of each session: prices as the rules need them, and features."""
    rules, market = engine.rules, engine.market
    found = {"price": market.price[sessions]}
    if rules.volume_limit is not None or rules.benchmark == "vwap":
        found["volume"] = market.volume[sessions]
    if market.half_spread.shape[0]:
        found["half_spread"] = market.half_spread[sessions]
    if market.halted.shape[0] and market.halted[sessions].any():
        found["halted"] = market.halted[sessions].astype(np.int32)
    if market.lower.shape[0]:
        found |= {"lower": market.lower[sessions], "upper": market.upper[sessions]}
    opening, closing = outer_fields(engine.sessions, rules, market.price)
    if rules.benchmark in ("arrival", "open") and opening.shape[0]:
        found["opening"] = opening[sessions]
    if not np.array_equal(closing[sessions], found["price"], equal_nan=True):
        found["closing"] = closing[sessions]
    if features is not None:
        rows = features.rows(sessions)
        found |= {f"feature_{name}": rows[..., features.columns.index(name)] for name in reads}
        if "open" in reads:  # of which the network reads the first alone
            found["feature_open"] = found["feature_open"][:, 0]
    return found


def _rules(engine: Engine) -> dict[str, Any]:
    """Return the rules as numbers and words; a cap that is none is null."""
    rules, terms = engine.rules, engine.terms
    own = {name: getattr(terms, name) for name in terms._fields if name != "decay"}
    named = ("benchmark", "odd_lot", "commission_bps", "sell_tax_bps", "half_spread_bps", "min_fee", "price_field")
    return {
        **{name: value if isinstance(value, bool) or math.isfinite(value) else None for name, value in own.items()},
        "decay": terms.decay.tolist(),
        **{name: getattr(rules, name) for name in named},
        "have_costs": rules.have_costs,
        "unfilled_at": None if not rules.values_unfilled else "end" if rules.unfilled_at == "end" else "close",
        "pa": rules.name_judged("PA"),
        "benchmark_title": rules.benchmark_title,
    }


def _times(bench: Workbench) -> Mapping[str, list[str]]:
    """Return the clock at the beginning and at the end of each tick."""
    calendar = bench.sessions.calendar
    starts = [int(one) for one in calendar.tick_start]
    return {
        "start": [text_of(one) for one in starts],
        "end": [text_of(one + calendar.tick_seconds) for one in starts],
    }
