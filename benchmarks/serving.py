"""Measure decisions in process and over HTTP, beside plain handlers; writes ``results/serving.json``.

The server has one core and the generator (`benchmarks.load`) another of the same machine. Every decision that is
measured is a new one: an order is asked once in each step. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import load
from benchmarks.load import Load, drive, request
from benchmarks.measure import context, run_job
from benchmarks.run import results_file
from benchmarks.serving_parts import SMALL, Day, as_json, make_bundle, process
from benchmarks.table import RESULTS, insert, number
from rlwb.experiment.run import RunDirectory
from rlwb.files import write_json, write_text

_ROOT = Path(__file__).resolve().parents[1]
_PLAIN_VENV = _ROOT / ".bench-serving-venv"
_REQUIREMENTS = Path(__file__).parent / "plain_requirements.txt"
_SERVER, _GENERATOR = 0, 1
#: The bound on p99 under which the highest loads are compared, in milliseconds; more where a plain handler with one
#: connection needs a third of it or more, as on a machine that does other work too.
BOUND_MS = 25.0
#: Requests a second at which latency is measured with a server that is not at its limit.
MODERATE = 1000.0
_FLASK, _FASTAPI = "plain Flask on waitress", "plain FastAPI on uvicorn"


# In process


def plain_requests(day: Day, amounts: Sequence[float], steps: int, ticks_per_step: int) -> list[dict[str, Any]]:
    """Return what a plain handler is asked, one request an order, over all instruments and steps in turn."""
    from rlwb.market.references import References

    sessions, references = day.sessions, References(day.sessions)
    asked = []
    for at, amount in enumerate(amounts):
        row, step = int(day.rows[at % len(day.rows)]), at // len(day.rows) % steps
        names = ("open", "high", "low", "close", "volume")
        columns = [sessions.fields[name][row, : step * ticks_per_step].tolist() for name in names]
        asked.append(
            {
                "direction": "BUY" if at % 2 else "SELL",
                "amount": amount,
                "path": [amount * (1 - k / steps) for k in range(step + 1)],
                "steps": steps,
                "previous_close": float(references.price[row]),
                "mean_volume": float(references.volume[row]),
                "bars": [dict(zip(names, bar, strict=True)) for bar in zip(*columns, strict=True)],
            }
        )
    return asked


def write_plain(bundle: Any, folder: Path) -> None:
    """Write the bundle's network and statistics as the plain handler reads them."""
    import torch

    state = bundle.learner.network.state_dict()
    names = {name: name.removeprefix("trunk.").replace("market.gru", "market") for name in state}
    kept = {new: state[old] for old, new in names.items() if not new.startswith("critic")}
    torch.save(kept, folder / "plain.pt")
    settings = {
        "mean": bundle.normaliser.mean.tolist(),
        "scale": bundle.normaliser.scale.tolist(),
        "clip": bundle.config.features.clip,
        "hidden": int(state["actor.weight"].shape[1]),
        "shares": bundle.action_interpreter.shares.tolist(),
    }
    write_json(folder / "plain.json", settings)


def _orders(day: Day, count: int) -> list[Any]:
    import pandas as pd

    from rlwb.execution.order import Direction, Order

    amounts = np.random.default_rng(0).uniform(100, 10_000, count).round(2).tolist()
    names, date = day.instruments, pd.Timestamp(day.date)
    return [
        Order(names[at % len(names)], date, Direction.BUY if at % 2 else Direction.SELL, amount, order_id=f"o{at}")
        for at, amount in enumerate(amounts)
    ]


def _policy(bundle: Any, day: Day, backend: str) -> Any:
    import pandas as pd

    from rlwb.serving.policy import BundlePolicy

    policy = BundlePolicy(bundle, backend=backend)  # type: ignore[arg-type]
    policy.market.load_history(pd.DataFrame(day.before()))
    return policy


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.quantile(np.array(seconds) * 1e3, [0.5, 0.99]).tolist()
    return {"p50": p50, "p99": p99}


def in_process(
    folder: Path,
    bundle: str,
    run: str,
    backend: str,
    batches: Sequence[int],
    orders: int,
    core: int,
    cached: bool = True,
) -> dict[str, Any]:
    """Decide about orders at every step of a day: one by one, then in batches; a job of `run_job`."""
    from rlwb.serving.bundle import open_bundle

    load.pin(core)
    opened, day = open_bundle(Path(bundle)), Day.of(RunDirectory(run))
    found: dict[str, Any] = {}
    for size in batches:
        policy = _policy(opened, day, backend)
        given, market = _orders(day, max(orders, size)), policy.market
        ids, amounts = policy.register(given), [one.amount for one in given]
        steps, ticks = policy.engine.max_step, policy.engine.ticks_per_step
        spans, bars, counted = [], [], 0
        for step in range(steps):
            if step:
                columns = day.columns(day.rows.tolist(), (step - 1) * ticks, step * ticks)
                began = time.perf_counter()
                market.add(columns)
                bars.append((time.perf_counter() - began) / len(columns["instrument"]))
            positions = [amount * (1 - step / steps) for amount in amounts]
            if size == 1:
                policy.decide(given[0], None, positions[0])
            for at in range(1 if size == 1 else 0, len(ids) - size + 1, size):
                if not cached:  # features and states of all sessions are made anew for each call
                    market._done[:], market._encoded[:] = 0, -1
                if size == 1:
                    one, position = given[at], positions[at]
                    began = time.perf_counter()
                    policy.decide(one, None, position)
                else:
                    some, told = ids[at : at + size], positions[at : at + size]
                    began = time.perf_counter()
                    policy.decide_many(some, told)
                spans.append(time.perf_counter() - began)
                counted += size
        found[str(size)] = {**_spread(spans), "rate": counted / sum(spans), "bar_ms": float(np.median(bars)) * 1e3}
    return found


def plain_in_process(folder: Path, plain: str, bundle: str, run: str, orders: int, core: int) -> dict[str, Any]:
    """Call the plain handler's function; check that it answers what rlwb answers; a job of `run_job`."""
    from benchmarks.plain import Handler
    from rlwb.serving.bundle import open_bundle

    load.pin(core)
    opened, day = open_bundle(Path(bundle)), Day.of(RunDirectory(run))
    policy, handler = _policy(opened, day, "torch"), Handler(Path(plain))
    steps, ticks = policy.engine.max_step, policy.engine.ticks_per_step
    given = _orders(day, orders)
    asked = plain_requests(day, [one.amount for one in given], steps, ticks)
    spans, amounts = [], []
    for one in asked:
        began = time.perf_counter()
        amounts.append(handler.amount(one))
        spans.append(time.perf_counter() - began)
    differing = 0
    policy.register(given)
    for step in range(steps):
        if step:
            policy.market.add(day.columns(day.rows.tolist(), (step - 1) * ticks, step * ticks))
        for at, one in enumerate(given):
            if len(asked[at]["path"]) == step + 1:
                again = policy.decide(one, None, asked[at]["path"])
                differing += abs(again.amount - amounts[at]) > 1e-6 * (one.amount or 0)
    return {**_spread(spans), "rate": len(spans) / sum(spans), "differing": differing, "compared": len(asked)}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"in_process": in_process, "plain_in_process": plain_in_process}


# Over HTTP


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def ask(port: int, method: str, path: str, body: Any = None, timeout: float = 120) -> Any:
    """Send one request and return what the answer holds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        raw = None if body is None else json.dumps(body).encode()
        connection.request(method, path, raw, {"content-type": "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path} was answered by {answer.status}: {content[:500]!r}")
        return json.loads(content) if content else None
    finally:
        connection.close()


def wait_for(port: int, started: subprocess.Popen, path: str, log: Path, seconds: float = 60.0) -> None:
    """Wait until a server answers."""
    for _ in range(int(seconds / 0.1)):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            connection.getresponse().read()
            connection.close()
            return
        except OSError:
            if started.poll() is not None:
                break
            time.sleep(0.1)
    raise SystemExit(f"the server does not answer; the end of what it said:\n{log.read_text()[-2000:]}")


class Served:
    """A running service, and orders that have not been asked about in the step that the market has reached."""

    def __init__(self, port: int, day: Day, orders: int, steps: int, ticks: int) -> None:
        self.port, self.day, self.steps, self.ticks = port, day, steps, ticks
        names = day.instruments
        amounts = np.random.default_rng(1).uniform(100, 10_000, orders).round(2).tolist()
        table = [
            {
                "order_id": f"o{at}",
                "instrument": names[at % len(names)],
                "date": str(day.date),
                "direction": "BUY" if at % 2 else "SELL",
                "amount": amount,
            }
            for at, amount in enumerate(amounts)
        ]
        for at in range(0, orders, 5000):
            ask(port, "POST", "/v1/orders", table[at : at + 5000])
        self.amounts, self.step, self._next = amounts, 0, 0

    def take(self, count: int) -> list[dict[str, Any]]:
        """Return so many questions that are new, letting the market go on where a step has not as many left."""
        count = min(count, len(self.amounts))
        if self._next + count > len(self.amounts):
            self.step += 1
            if self.step >= self.steps:
                raise SystemExit("the day is over; register more orders.")
            told = as_json(
                self.day.columns(self.day.rows.tolist(), (self.step - 1) * self.ticks, self.step * self.ticks)
            )
            ask(self.port, "POST", "/v1/bars", told)
            self._next = 0
        some = range(self._next, self._next + count)
        self._next += count
        left = 1 - self.step / self.steps
        return [{"order_id": f"o{at}", "position": self.amounts[at] * left} for at in some]

    def singles(self, count: int) -> list[bytes]:
        """Return so many requests with one decision each."""
        return [request("POST", "/v1/decisions", json.dumps(one).encode()) for one in self.take(count)]

    def batches(self, count: int, size: int) -> list[bytes]:
        """Return so many requests with `size` decisions each."""
        several = [self.take(size) for _ in range(count)]
        return [request("POST", "/v1/decisions", json.dumps(some).encode()) for some in several]


@contextmanager
def serving(
    bundle: Path, folder: Path, day: Day, orders: int, shape: tuple[int, int], *options: str
) -> Iterator[Served]:
    """Run ``rlwb serve`` with a journal on the server's core."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir=folder) as place:
        state, log, history = Path(place) / "journal", Path(place) / "log.txt", folder / "history.parquet"
        words = [sys.executable, "-m", "rlwb.cli", "serve", str(bundle), "--port", str(port), "--state", str(state)]
        with process([*words, "--history", str(history), *options], log, core=_SERVER) as started:
            wait_for(port, started, "/health", log)
            yield Served(port, day, orders, *shape)


@contextmanager
def plain_serving(kind: str, plain: Path, folder: Path, python: Path) -> Iterator[int]:
    """Run a plain handler on the server's core."""
    port, log = free_port(), folder / "plain.log"
    if kind == _FLASK:
        words = [python, "-m", "waitress", f"--listen=127.0.0.1:{port}", "--connection-limit=1000"]
        words += ["--call", "benchmarks.plain:flask_app"]
    else:
        told = ["--factory", "benchmarks.plain:fastapi_app", "--port", str(port), "--no-access-log"]
        words = [sys.executable, "-m", "uvicorn", *told, "--log-level", "warning"]
    with process([str(word) for word in words], log, core=_SERVER, PLAIN_MODEL=str(plain)) as started:
        wait_for(port, started, "/nothing", log)
        yield port


def sound(found: Load) -> Load:
    """Return a load whose answers were all good ones; stop otherwise."""
    if not found.is_sound:
        wrong = found.bodies[int(np.argmax(found.status >= 300))]
        raise SystemExit(
            f"{(found.status >= 300).sum()} of {len(found.status)} answers were refusals, such as {wrong!r}"
        )
    return found


def highest(
    make: Callable[[int], list[bytes]], port: int, start: float, seconds: float, bound: float, least: int = 200
) -> Load:
    """Return the load with the highest rate, arriving at random times, whose p99 stays below a bound in ms.

    The rate goes up or down by a quarter until it has crossed the bound, then by half of that, twice. Each is tried for
    so many seconds, and with so many requests at least.
    """
    best: Load | None = None
    rate, factor, went = start, 1.25, 0
    for _ in range(14):
        count = int(max(rate * seconds, least))
        found = drive(port, make(count), 64, rate=rate, seed=int(rate))
        good = found.is_sound and found.ms(0.99) <= bound and found.rate >= 0.9 * rate
        if good and (best is None or found.rate > best.rate):
            best = found
        direction = 1 if good else -1
        if went and direction != went:
            factor = 1 + (factor - 1) / 2
            if factor < 1.05:
                break
        went = direction
        rate *= factor if good else 1 / factor
    if best is None:
        raise SystemExit(f"p99 stays above {bound:g} ms at every load that was tried, down to {rate:.0f} requests/s")
    return best


def plain_python(args: argparse.Namespace) -> Path:
    """Return the interpreter that has Flask, making its environment the first time."""
    if args.plain:
        return Path(args.plain)
    stamp, python = _PLAIN_VENV / ".installed", _PLAIN_VENV / "bin" / "python"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        import site

        print("making the environment of the Flask handler in .bench-serving-venv", flush=True)
        subprocess.run([args.python, "-m", "venv", "--clear", str(_PLAIN_VENV)], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)], check=True)
        (packages,) = _PLAIN_VENV.glob("lib/python*/site-packages")
        write_text(packages / "rlwb.pth", "\n".join(site.getsitepackages()) + "\n")
        write_text(stamp, wanted)
    return python


# The rows


class Rows:
    """Rows of the results, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(
        self,
        figure: str,
        unit: str,
        ours: tuple[float, float | None],
        plain: tuple[float, float | None] | None = None,
        *,
        against: str | None = None,
        goal: float | None = None,
        goal_p99: float | None = None,
        goal_ratio: float | None = None,
    ) -> None:
        """Add a figure: value and p99 in ms of both sides. Latencies are better when less, all else when more."""
        value, p99 = ours
        less = unit == "ms"
        ratio = None if plain is None else plain[0] / value if less else value / plain[0]
        met = [] if goal is None else [value <= goal if less else value >= goal]
        met += [] if goal_p99 is None else [p99 is not None and p99 <= goal_p99]
        met += [] if goal_ratio is None else [ratio is not None and ratio >= goal_ratio]
        row = {
            "figure": figure,
            "unit": unit,
            "rlwb": value,
            "plain_handler": None if plain is None else plain[0],
            "ratio": ratio,
            "p99_rlwb": p99,
            "p99_plain": None if plain is None else plain[1],
            "against": against,
            "goal": goal,
            "goal_p99": goal_p99,
            "goal_ratio": goal_ratio,
            "met": all(met) if met else None,
        }
        self.rows.append(row)
        told = "" if plain is None else f", plain {number(plain[0])} ({number(ratio)}×)"
        print(f"{figure}: {number(value)} {unit}, p99 {number(p99)} ms{told}", flush=True)


def latency(found: Load) -> tuple[float, float]:
    return found.ms(0.5), found.ms(0.99)


def rate(found: Load) -> tuple[float, float]:
    return found.rate, found.ms(0.99)


def measure(work: Path, python: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Run everything."""
    rows = Rows()
    run, bundle = make_bundle(work, SMALL)
    day = Day.of(run)
    import pandas as pd

    pd.DataFrame(day.before()).to_parquet(work / "history.parquet")
    from rlwb.serving.bundle import open_bundle
    from rlwb.serving.policy import BundlePolicy

    opened = open_bundle(bundle)
    engine = BundlePolicy(opened).engine
    shape = (engine.max_step, engine.ticks_per_step)
    plain = work / "plain"
    plain.mkdir()
    write_plain(opened, plain)
    bundles = {"": bundle, "int8": quantised(bundle, work / "int8")}
    _in_process(rows, work, run, bundles, plain, quick)
    with ExitStack() as stack:
        load.pin(_GENERATOR)
        stack.callback(lambda: None)
        _over_http(rows, work, day, bundles, plain, python, shape, quick)
    return rows.rows


def quantised(bundle: Path, out: Path) -> Path:
    """Write the bundle in int8, whether or not it agrees: its policy is hardly trained, and here it is for speed."""
    from rlwb.serving.quantise import Limits, quantise_bundle

    return quantise_bundle(bundle, out, to="int8", limits=Limits(0.0, 1e9))


def _in_process(rows: Rows, work: Path, run: RunDirectory, bundles: dict[str, Path], plain: Path, quick: bool) -> None:
    orders, common = 64 if quick else 1024, {"run": str(run.path), "core": _SERVER}
    one = run_job(
        "serving", "plain_in_process", work, plain=str(plain), bundle=str(bundles[""]), orders=orders, **common
    )
    if one["differing"]:
        raise SystemExit(
            f"the plain handler answers {one['differing']} of {one['compared']} otherwise; not comparable."
        )
    print(f"the plain handler and rlwb answer the same {one['compared']} questions alike", flush=True)
    theirs = one["p50"], one["p99"]
    kinds = [("onnx", "", True), ("torch", "", True), ("onnx", "int8", True), ("onnx", "", False), ("torch", "", False)]
    for backend, kind, cached in kinds:
        if kind not in bundles:
            continue
        sizes = [1, 64, 1024] if cached or quick else [1, 64]
        told = {"batches": sizes, "orders": orders if cached else min(orders, 128), "cached": cached}
        found = run_job("serving", "in_process", work, bundle=str(bundles[kind]), backend=backend, **told, **common)
        name = f"{backend}{', int8' if kind else ''}{'' if cached else ', without the cache'}"
        first = backend == "onnx" and cached and not kind
        rows.add(
            *(f"decision in process, {name}", "ms", (found["1"]["p50"], found["1"]["p99"]), theirs),
            against="the plain handler's function",
            goal_p99=0.2 if first else None,
        )
        for size in sizes[1:]:
            value = found[str(size)]
            rows.add(f"decisions in process, batch {size:,}, {name}", "decisions/s", (value["rate"], value["p99"]))
        if first:
            rows.add("a bar of one instrument among 20, in process", "ms", (found["1"]["bar_ms"], None))


def _over_http(
    rows: Rows,
    work: Path,
    day: Day,
    bundles: dict[str, Path],
    plain: Path,
    python: Path,
    shape: tuple[int, int],
    quick: bool,
) -> None:
    seconds, orders, most = (0.3, 6000, 1000) if quick else (2.0, 30_000, 8000)
    bound, least = (500.0, 20) if quick else (BOUND_MS, 200)
    amounts = np.random.default_rng(2).uniform(100, 10_000, 20 * shape[0]).tolist()
    asked = [request("POST", "/decide", json.dumps(one).encode()) for one in plain_requests(day, amounts, *shape)]
    theirs: dict[str, dict[Any, Load]] = {}
    for kind in (_FLASK, _FASTAPI):
        with plain_serving(kind, plain, work, python) as port:
            cycle = [asked[at] for at in np.random.default_rng(3).integers(0, len(asked), 20_000)]
            sound(drive(port, cycle[:50]))
            found: dict[Any, Load] = {}
            for connections in (1, 16, 64):
                found[connections] = sound(drive(port, cycle, connections, seconds=seconds))
            start = found[1].rate * 0.6
            span = max(seconds, 0.5) if quick else 3.0
            bound = max(bound, 3 * found[1].ms(0.99))
            found["best"] = highest(lambda count, cycle=cycle: cycle[:count], port, start, span, bound, least)
            theirs[kind] = found
            told = ", ".join(
                f"{key}: {one.rate:.0f}/s p50 {one.ms(0.5):.1f} p99 {one.ms(0.99):.1f} ms" for key, one in found.items()
            )
            print(f"{kind}, connections and best: {told}", flush=True)
    faster = max(theirs, key=lambda kind: theirs[kind]["best"].rate)
    with serving(bundles[""], work, day, orders, shape, "--backend", "onnx") as ours:
        sound(drive(ours.port, ours.singles(min(500, orders // 4))))
        for connections in (1, 16, 64):
            found_ = sound(drive(ours.port, ours.singles(most), connections, seconds=seconds))
            other = theirs[faster][connections]
            name = f"HTTP, {connections} connection{'s' if connections > 1 else ''}"
            rows.add(f"{name}, latency", "ms", latency(found_), latency(other), against=faster)
            rows.add(f"{name}, requests", "requests/s", rate(found_), rate(other), against=faster)
            base = found_
        moderate = sound(drive(ours.port, ours.singles(int(MODERATE * seconds)), 16, rate=MODERATE))
        rows.add(f"HTTP, {MODERATE:,.0f} requests/s at random times", "ms", latency(moderate), goal=1.0, goal_p99=5.0)
        best = highest(ours.singles, ours.port, base.rate * 0.7, min(seconds, 1.5), bound, least)
        for title, kind in (("", faster), *((f", beside {kind}", kind) for kind in theirs)):
            goals: dict[str, Any] = {"goal": None if title else 3000, "goal_ratio": 10}
            other = rate(theirs[kind]["best"])
            rows.add(
                f"single request{title}",
                "requests/s",
                rate(best),
                other,
                against=f"{kind}, p99 below {bound:.0f} ms",
                **goals,
            )
        for size in (64, 1024):
            some = sound(drive(ours.port, ours.batches(max(2, most // size), size), 2, seconds=seconds))
            goal = 50_000 if size == 1024 else None
            rows.add(f"HTTP, {size:,} decisions a request", "decisions/s", (some.rate * size, some.ms(0.99)), goal=goal)
    variants = [
        ("without micro-batching", "", ("--backend", "onnx", "--batch", "1")),
        ("torch", "", ("--backend", "torch")),
        ("int8", "int8", ("--backend", "onnx")),
    ]
    for name, kind, options in variants:
        if kind not in bundles:
            continue
        with serving(bundles[kind], work, day, orders, shape, *options) as ours:
            sound(drive(ours.port, ours.singles(min(500, orders // 4))))
            for connections in (1, 64):
                found_ = sound(drive(ours.port, ours.singles(most), connections, seconds=seconds))
                title = f"HTTP, {connections} connection{'s' if connections > 1 else ''}, {name}"
                rows.add(f"{title}, requests", "requests/s", rate(found_))
            some = sound(drive(ours.port, ours.batches(max(2, most // 1024), 1024), 2, seconds=seconds))
            rows.add(f"HTTP, 1,024 decisions a request, {name}", "decisions/s", (some.rate * 1024, some.ms(0.99)))
    port, log = free_port(), work / "nothing.log"
    with process([sys.executable, "-m", "benchmarks.load", str(port)], log, core=_SERVER) as started:
        wait_for(port, started, "/", log)
        nothing = [request("POST", "/v1/decisions", b'{"order_id": "o1", "position": 1.0}')] * 20_000
        found_ = sound(drive(port, nothing, 64, seconds=seconds))
        rows.add("the generator's ceiling, a server that does nothing", "requests/s", rate(found_))


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table, with the machine and the date under it."""
    lines = [
        "| figure | unit | rlwb | p99, ms | plain handler | p99, ms | ratio | goal |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        signs = ("≤", " ms") if row["unit"] == "ms" else ("≥", "")
        goals = [] if row["goal"] is None else [f"{signs[0]} {row['goal']:,.0f}{signs[1]}"]
        goals += [] if row["goal_p99"] is None else [f"p99 ≤ {row['goal_p99']:g} ms"]
        goals += [] if row["goal_ratio"] is None else [f"≥ {row['goal_ratio']:g}×"]
        goals += [] if row["met"] is None else ["met" if row["met"] else "missed"]
        ratio = "–" if row["ratio"] is None else f"{number(row['ratio'])}×"
        figures = [number(row[name]) for name in ("rlwb", "p99_rlwb", "plain_handler", "p99_plain")]
        unit = "ms, median" if row["unit"] == "ms" else row["unit"]
        lines.append("| " + " | ".join([row["figure"], unit, *figures, ratio, ", ".join(goals)]) + " |")
    return "\n".join([*lines, "", f"{rows[0]['machine']}; {rows[0]['date']}."])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short loads, to see that all runs")
    parser.add_argument("--python", default="python3.11", help="what makes the environment of the Flask handler")
    parser.add_argument("--plain", type=Path, help="an interpreter that has Flask and waitress, in place of that")
    parser.add_argument("--out", type=Path, help="where the figures go; a file in results/ by default")
    parser.add_argument("--into", type=Path, help="measure nothing; write the table of the results into a document")
    args = parser.parse_args(arguments)
    if args.into:
        rows = json.loads((args.out or RESULTS.with_name("serving.json")).read_text(encoding="utf-8"))
        write_text(args.into, insert(args.into.read_text(encoding="utf-8"), markdown(rows), "serving"))
        return
    python, out = plain_python(args), results_file(args, "serving")
    about = context(", the server on one core, the generator on the other, on the same machine")
    with tempfile.TemporaryDirectory(prefix="rlwb-serving-", ignore_cleanup_errors=True) as work:
        rows = [{**row, **about} for row in measure(Path(work), python, quick=args.quick)]
    write_json(out, rows)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
