"""Requests a second of a bundle behind Ray Serve, beside ``rlwb serve`` alone; writes ``results/ray_serve.json``.

The same bundle, application and requests: new decisions, one an order, and stateless predictions of one observation.
Both services run all the time and take turns, so that a machine with other work slows all alike. Generator, proxy and
replicas share its cores, so that two replicas cannot show twice one.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.load import drive, request
from benchmarks.measure import context
from benchmarks.run import environment, results_file
from benchmarks.serving_parts import SMALL, make_bundle, process
from rlwb.files import write_json
from rlwb.serving.bundle import open_bundle
from rlwb.serving.ray_serve import shard_of

_CONNECTIONS = (1, 16)
_PROCESS = "from rlwb.cli import main; main()"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def running(command: Sequence[Any], port: int, paths: Sequence[str], log: Path, **env: str) -> Iterator[int]:
    """Run a service until the block is left; yield its port once it answers at all of `paths`."""
    with process([str(word) for word in command], log, **env) as started:
        for _ in range(600):
            if all(_answers(port, path) for path in paths):
                break
            if started.poll() is not None:
                raise SystemExit(f"the service ended: {log.read_text(encoding='utf-8')[-2000:]}")
            time.sleep(0.2)
        yield port


def post(port: int, path: str, content: Any) -> Any:
    data = json.dumps(content).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.load(answer)


@dataclass(frozen=True)
class Case:
    """Where requests go: a port, below it shards of how many, and how many of them get any."""

    port: int
    shards: int = 0
    used: int = 1

    def place(self, instrument: str) -> str | None:
        """Return the prefix of an instrument's shard; None where that is not used."""
        number = shard_of(instrument, self.shards) if self.shards else 0
        return None if number >= self.used else f"/shards/{number}" if self.shards else ""


def decisions(case: Case, count: int, sessions: Any, part: str) -> list[bytes]:
    """Register new orders where they belong, and return a request for the first decision of each."""
    date, asked = str(np.datetime64(sessions.dates.max(), "D")), []
    names = [str(name) for name in np.unique(sessions.instruments) if case.place(str(name)) is not None]
    for at, name in enumerate(names):
        ids = [f"{part}-{number}" for number in range(at, count, len(names))]
        order = {"instrument": name, "date": date, "direction": "BUY", "amount": 100.0}
        post(case.port, f"{case.place(name)}/v1/orders", [{**order, "order_id": one} for one in ids])
        asked += [(number, case.place(name), one) for number, one in enumerate(ids)]
    asked.sort()
    return [request("POST", f"{place}/v1/decisions", json.dumps({"order_id": one}).encode()) for _, place, one in asked]


def predictions(case: Case, count: int, observation: dict[str, Any]) -> list[bytes]:
    """Return requests for the action of one observation."""
    place = "/shards/0" if case.shards and case.used == 1 else ""
    return [request("POST", f"{place}/predict", json.dumps({"observations": observation}).encode())] * count


def measured(cases: dict[str, Case], count: int, rounds: int, sessions: Any, observation: Any) -> dict[str, Any]:
    """Return the figures of each case: medians over rounds in which all cases take turns."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in cases}
    for number in range(rounds + 1):
        for connections in _CONNECTIONS:
            for kind in ("decisions", "predictions"):
                for name, case in cases.items():
                    if kind == "decisions":
                        asked = decisions(case, count, sessions, f"{number}-{connections}-{name}")
                    else:
                        asked = predictions(case, count // 4, observation)
                    load = drive(case.port, asked, connections)
                    assert load.is_sound, name
                    told = {"rate": load.rate, "p50_ms": load.ms(0.5), "p99_ms": load.ms(0.99)}
                    for figure, value in told.items() if number else ():  # the first round warms up
                        found[name].setdefault(f"{kind}_{connections}_{figure}", []).append(value)
    return {name: {key: round(float(np.median(x)), 3) for key, x in rows.items()} for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few requests, to see that all runs")
    parser.add_argument("--python", default="python3.11", help="what makes the environment")
    parser.add_argument("--ray", type=Path, help="an interpreter that has rlwb and ray, in place of .bench-ray-venv")
    parser.add_argument("--out", type=Path, help="where the figures go; a file in results/ by default")
    args = parser.parse_args()
    ray = args.ray or environment("ray", args.python)
    count = 100 if args.quick else 400
    with tempfile.TemporaryDirectory(prefix="rlwb-ray-") as scratch:
        folder = Path(scratch)
        run, bundle = make_bundle(folder, SMALL)
        opened = open_bundle(bundle)
        from rlwb.experiment.orders import workbench

        bench = workbench(run, run.config)
        features = bench.features(normaliser=opened.normaliser)
        space: Any = opened.state_interpreter(features).observation_space
        space.seed(0)
        observation = {name: np.asarray(value)[None].tolist() for name, value in space.sample().items()}
        alone, shared, quick = _free_port(), _free_port(), _free_port()
        plain = [sys.executable, "-c", _PROCESS, "serve", bundle, "--port", alone]
        paths = ["/health", "/shards/0/health", "/shards/1/health"]
        with ExitStack() as stack:
            stack.enter_context(running(plain, alone, ["/health"], folder / "plain.log"))
            for port, env in ((shared, {}), (quick, {"RAY_SERVE_ENABLE_HA_PROXY": "1"})):
                own = folder / str(port)
                own.mkdir()
                command = [ray, "-m", "benchmarks.inside.ray_service", bundle, own, port, 2]
                stack.enter_context(running(command, port, paths, folder / f"{port}.log", **env))
            cases = {
                "rlwb serve": Case(alone),
                "Ray Serve, 1 replica": Case(shared, 2, 1),
                "Ray Serve, 2 replicas": Case(shared, 2, 2),
                "Ray Serve with HAProxy, 1 replica": Case(quick, 2, 1),
                "Ray Serve with HAProxy, 2 replicas": Case(quick, 2, 2),
            }
            rows = measured(cases, count, 1 if args.quick else 3, bench.sessions, observation)
    for name, row in rows.items():
        print(f"{name}: {row}")
    out = results_file(args, "ray_serve")
    write_json(out, {"requests": count, "rows": rows, **context()})
    print(f"written to {out}")


if __name__ == "__main__":
    main()
