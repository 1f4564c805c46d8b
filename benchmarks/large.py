"""A market larger than one would load: written in parts, opened mapped, trained on; writes ``results/large.json``."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import context, peak_memory, run_job, status_memory
from benchmarks.scale import DAYS
from benchmarks.table import RESULTS
from rlwb.errors import DataError
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    OrderExecution,
    PAPenaltyReward,
    generate_orders,
    split_orders,
)
from rlwb.files import write_json
from rlwb.market import MarketFeatures, Sessions
from rlwb.market.sessions import save_parts
from rlwb.market.store import META
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, Recurrent, make_network
from rlwb.trainer import Callback, Trainer, TrainingVessel

_FIELDS = 5
#: Instruments a part; their bars at one minute take 50 MB for 250 days.
_PART = 20
#: Share of the free disk that a market may take.
_USABLE = 0.9
_DECISIONS, _CHOICES = 8, 4


def market_parts(instruments: int, days: int, ticks: int) -> Iterator[Sessions]:
    """Return the synthetic market some instruments at a time; each part has a common factor of its own."""
    session, minutes = DAYS[ticks]
    for low in range(0, instruments, _PART):
        count = min(_PART, instruments - low)
        part = synthetic_sessions(
            SyntheticSettings(instruments=count, days=days, session=session, tick_minutes=minutes, seed=low // _PART)
        )
        names = np.repeat([f"L{low + number:06d}" for number in range(count)], days)
        yield Sessions(part.calendar, names, part.dates, part.num_ticks, part.fields, report=part.report)


def fitting(instruments: int, days: int, ticks: int, free: int) -> int:
    """Return as many of the instruments as `free` bytes of disk hold, in float64."""
    return min(instruments, int(_USABLE * free) // (days * ticks * _FIELDS * 8))


def write_market(folder: Path, instruments: int, days: int, ticks: int) -> tuple[int, float | None]:
    """Write the market to `folder` unless it is there; return its number of instruments, and the seconds it took."""
    if (folder / META).exists():
        there = Sessions.open(folder, verify=False)
        if (len(there), there.calendar.num_ticks) == (instruments * days, ticks):
            print(f"{folder} holds the market already", flush=True)
            return instruments, None
        raise DataError(f"{folder} holds {there}, another market; name another folder or remove it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    held = fitting(instruments, days, ticks, shutil.disk_usage(folder.parent).free)
    if held < instruments:
        print(f"the disk holds {held:,} of the {instruments:,} instruments", flush=True)
    if not held:
        raise DataError(f"the disk of {folder} does not hold a single instrument; free some or name another folder.")
    began = time.perf_counter()
    save_parts(market_parts(held, days, ticks), folder)
    return held, time.perf_counter() - began


class Watch:
    """Seconds and peak memory of each stage.

    Mapped files count as resident while the machine has room for them, so the memory of the process's own (RssAnon)
    is watched beside; only Linux tells it, at the moment, hence the thread.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.own: dict[str, float] = {}
        self._peak = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def run(self, name: str, stage: Callable[[], Any]) -> Any:
        """Run a stage under a name."""
        self._peak, began = status_memory("RssAnon"), time.perf_counter()
        result = stage()
        self.seconds[name] = time.perf_counter() - began
        self.own[name] = max(self._peak, status_memory("RssAnon"))
        print(f"{name}: {self.seconds[name]:.3g} s, {self.own[name]:,.0f} MB", flush=True)
        return result

    def _sample(self) -> None:
        while not self._end.wait(0.02):
            self._peak = max(self._peak, status_memory("RssAnon"))


class _Seconds(Callback):
    """Keeps the seconds of every iteration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.seconds.append(trainer.metrics["seconds"])


def train(folder: Path, market: str, iterations: int, episodes: int) -> dict[str, Any]:
    """Open the market, make orders and features for its training part, and train as a run does."""
    torch.set_num_threads(1)
    bare = peak_memory()
    with Watch() as watch:
        figures = _stages(market, iterations, episodes, watch)
    return {**figures, "resident_after_imports_mb": bare}


def _stages(market: str, iterations: int, episodes: int, watch: Watch) -> dict[str, Any]:
    sessions = watch.run("open", lambda: Sessions.open(market))
    table = watch.run("orders", lambda: split_orders(generate_orders(sessions))["train"])
    days = table["date"].to_numpy().astype("datetime64[D]")
    features = watch.run("features", lambda: MarketFeatures.build(sessions, fit_rows=np.isin(sessions.dates, days)))
    simulator = OrderExecution(Engine(sessions, sessions.calendar.num_ticks // _DECISIONS))
    orders = watch.run("bind", lambda: simulator.align(table))
    channels = features.shape[2]
    net = make_network(lambda: ActorCritic(Recurrent(channels), _CHOICES + 1), seed=0)
    vessel = TrainingVessel(
        simulator=simulator,
        state_interpreter=FullHistoryStateInterpreter(features, simulator.engine.max_step),
        action_interpreter=CategoricalActionInterpreter(_CHOICES),
        policy=PPO(net),
        reward=PAPenaltyReward(),
        train_initial_states=orders,
        episode_per_iter=episodes,
    )
    each = _Seconds()
    trainer = Trainer(max_iters=iterations, callbacks=[each])
    watch.run("train", lambda: trainer.fit(vessel))
    rows = np.random.default_rng(0).choice(len(sessions), min(episodes, len(sessions)), replace=False)
    watch.run("rows", lambda: features.rows(rows))
    return {
        "train_orders": len(orders),
        "episodes_an_iteration": episodes,
        "transitions": int(trainer.metrics["transitions"]),
        **{f"{name}_seconds": seconds for name, seconds in watch.seconds.items()},
        "iteration_seconds": each.seconds,
        "seconds_an_iteration": float(np.median(each.seconds[1:] or each.seconds)),
        "peak_resident_mb": peak_memory(),
        "peak_own_mb": max(watch.own.values()),
        "peak_own_mb_by_stage": watch.own,
    }


JOBS = {"train": train}


def measure(args: argparse.Namespace, folder: Path, scratch: Path) -> dict[str, Any]:
    """Write the market, train on it, and return all figures."""
    instruments, seconds = write_market(folder, args.instruments, args.days, args.ticks)
    asked = {"market": str(folder.absolute()), "iterations": args.iterations, "episodes": args.episodes}
    return {
        **context(", 1 thread"),
        "instruments": instruments,
        "days": args.days,
        "ticks": args.ticks,
        "sessions": instruments * args.days,
        "bars": instruments * args.days * args.ticks,
        "disk_mb": sum(path.stat().st_size for path in folder.iterdir()) / 1e6,
        "write_seconds": seconds,
        **run_job("large", "train", scratch, **asked),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instruments", type=int, default=5000)
    parser.add_argument("--days", type=int, default=250)
    parser.add_argument("--ticks", type=int, default=240, choices=sorted(DAYS))
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--episodes", type=int, default=1000, help="episodes an iteration")
    parser.add_argument("--folder", type=Path, help="kept, and used again; a temporary one by default")
    parser.add_argument("--out", type=Path, default=RESULTS.with_name("large.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlwb-large-") as scratch:
        results = measure(args, args.folder or Path(scratch) / "market", Path(scratch))
    write_json(args.out, results)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
