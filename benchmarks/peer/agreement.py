"""What Qlib makes of markets and orders: fills, prices, rewards, observations and decisions, step by step."""

from __future__ import annotations

import hashlib
import types
import warnings
from pathlib import Path
from typing import Any

import torch

warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from qlib.backtest.decision import Order, OrderDir  # noqa: E402
from qlib.rl.data.pickle_styled import PickleProcessedDataProvider  # noqa: E402
from qlib.rl.order_execution.interpreter import (  # noqa: E402
    CategoricalActionInterpreter,
    FullHistoryStateInterpreter,
)
from qlib.rl.order_execution.network import Recurrent  # noqa: E402
from qlib.rl.order_execution.policy import PPO  # noqa: E402
from qlib.rl.order_execution.reward import PAPenaltyReward  # noqa: E402
from qlib.rl.order_execution.simulator_simple import SingleAssetOrderExecutionSimple  # noqa: E402
from qlib.rl.trainer import Trainer, TrainingVessel  # noqa: E402
from tianshou.data import Batch  # noqa: E402

from benchmarks.peer.data import keep_all_files  # noqa: E402

_NAMES = ["$high", "$low", "$open", "$close", "$volume"]
_SCALARS = ("acquiring", "cur_tick", "cur_step", "num_step", "target", "position")


def run(folder: Path, markets: list[str], values: list[float], penalty: float, hidden: int) -> dict[str, float]:
    """Write ``theirs.npz`` into the folder of each market, and the checkpoint of the policy beside them."""
    keep_all_files()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    steps = 0
    policy = None
    for name in markets:
        with np.load(folder / name / "market.npz") as file:
            market = dict(file)
        _write_files(folder / name, market)
        sees = FullHistoryStateInterpreter(
            int(market["max_step"]),
            market["close"].shape[1],
            5,
            PickleProcessedDataProvider(folder / name / "processed"),
        )
        acts = CategoricalActionInterpreter(values, int(market["max_step"]))
        if policy is None:
            policy = _policy(sees, acts, hidden, folder / "checkpoint.pth")
        found = _play(folder / name, market, sees, acts, policy, penalty)
        np.savez_compressed(folder / name / "theirs.npz", **found)
        steps += len(found["order"])
    return {"steps": steps}


def _policy(sees: Any, acts: Any, hidden: int, checkpoint: Path) -> PPO:
    """Return a policy, and save it as the trainer does; larger weights than fresh ones make it choose more freely."""
    network = Recurrent(sees.observation_space, hidden, hidden)
    policy = PPO(network, sees.observation_space, acts.action_space, lr=1e-4)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(3.0 if weight.dim() > 1 else 1.0)
        policy.actor.layer_out[0].bias.zero_()
    trainer = Trainer(max_iters=1)
    trainer.vessel = TrainingVessel(
        simulator_fn=None, state_interpreter=sees, action_interpreter=acts, policy=policy, reward=None
    )
    trainer.initialize()
    trainer.initialize_iter()
    trainer.metrics["reward"] = np.float64(0.0)  # as a trained one has it
    torch.save(trainer.state_dict(), checkpoint)
    return policy.eval()


def _write_files(folder: Path, market: dict[str, np.ndarray]) -> None:
    offsets = pd.to_timedelta(market["seconds"], unit="s")
    for kind in ("processed", "backtest"):
        (folder / kind).mkdir(exist_ok=True)
    for instrument in np.unique(market["instruments"]):
        rows = np.flatnonzero(market["instruments"] == instrument)
        present = market["present"][rows].ravel()
        dates = pd.DatetimeIndex(market["dates"][rows])
        stamps = np.concatenate([(date + offsets).to_numpy() for date in dates])
        index = pd.MultiIndex.from_arrays(
            [np.repeat(instrument, len(stamps)), stamps, np.repeat(dates.to_numpy(), len(offsets))],
            names=["instrument", "datetime", "date"],
        )
        prices = {"$close0": market["close"][rows].ravel(), "$volume0": market["volume"][rows].ravel()}
        pd.DataFrame(prices, index=index)[present].to_pickle(folder / "backtest" / f"{instrument}.pkl.backtest")
        blocks = np.concatenate([market["today"][rows], market["previous"][rows]], axis=2)
        table = pd.DataFrame(blocks.reshape(len(stamps), -1), index, [*_NAMES, *(f"{name}_1" for name in _NAMES)])
        table[present].to_pickle(folder / "processed" / f"{instrument}.pkl")


def _hash(block: np.ndarray, ticks: int) -> int:
    """Return a hash of a block with its rows padded to `ticks`."""
    whole = np.zeros((ticks, block.shape[1]), dtype=np.float32)
    whole[: len(block)] = block
    return int.from_bytes(hashlib.blake2b(whole.tobytes(), digest_size=8).digest(), "little", signed=True)


def _play(
    folder: Path, market: dict[str, np.ndarray], sees: Any, acts: Any, policy: PPO, penalty: float
) -> dict[str, Any]:
    orders, ticks = len(market["session"]), market["close"].shape[1]
    seconds, tick_of = market["seconds"], {int(second): tick for tick, second in enumerate(market["seconds"])}
    reward = PAPenaltyReward(penalty)
    reward.env = types.SimpleNamespace(logger=types.SimpleNamespace(add_scalar=lambda *_, **__: None))
    names = ("order", "action", "request", "fill", "price", "pa", "reward", "today", "previous", "history", *_SCALARS)
    rows: dict[str, list[Any]] = {name: [] for name in names}
    ended = {name: np.full(orders, np.nan) for name in ("twap", "pa", "ffr", "price")}
    fills, errors = np.zeros((orders, ticks)), np.full(orders, "", dtype="<U16")
    for number in range(orders):
        session, first, last = (int(market[name][number]) for name in ("session", "start", "end"))
        day = pd.Timestamp(market["dates"][session])
        order = Order(
            str(market["instruments"][session]),
            float(market["amount"][number]),
            OrderDir.BUY if market["side"][number] > 0 else OrderDir.SELL,
            day + pd.Timedelta(seconds=int(seconds[first])),
            day + pd.Timedelta(seconds=int(seconds[last - 1]) + 60),
        )
        try:
            simulator = SingleAssetOrderExecutionSimple(
                order,
                folder,
                ticks_per_step=int(market["ticks_per_step"]),
                vol_threshold=float(market["volume_limit"]) or None,
            )
            ended["twap"][number] = simulator.twap_price
            while not simulator.done():
                state = simulator.get_state()
                seen = sees.interpret(state)  # not sees(state), which refuses the days that lack a row
                batch = Batch(obs=Batch({name: value[None] for name, value in seen.items()}), info={})
                action = int(policy(batch).act[0])
                request = float(acts(state, action))
                simulator.step(request)
                step = simulator.history_steps.iloc[-1]
                for name in _SCALARS:
                    rows[name].append(float(seen[name]))
                rows["history"].append(seen["position_history"])
                rows["today"].append(_hash(seen["data_processed"], ticks))
                rows["previous"].append(_hash(seen["data_processed_prev"], ticks))
                told = (number, action, request, step["deal_amount"], step["trade_price"], step["pa"])
                for name, value in zip(("order", "action", "request", "fill", "price", "pa"), told, strict=True):
                    rows[name].append(value)
                rows["reward"].append(reward(simulator.get_state()))
        except Exception as error:  # its faults are part of what is compared
            errors[number] = type(error).__name__
            continue
        executed = simulator.history_exec["deal_amount"]
        places = [tick_of[int((stamp - day).total_seconds())] for stamp in executed.index]
        fills[number, places] = executed.to_numpy()
        if simulator.metrics is not None:
            for name, key in (("pa", "pa"), ("ffr", "ffr"), ("price", "trade_price")):
                ended[name][number] = simulator.metrics[key]
    kinds = {"order": np.int64, "action": np.int64, "today": np.int64, "previous": np.int64, "history": np.float32}
    flat = {name: np.array(values, dtype=kinds.get(name, np.float64)) for name, values in rows.items()}
    return {**flat, "fills": fills, "error": errors, **{f"order_{name}": values for name, values in ended.items()}}


JOBS = {"run": run}
