"""Load a real ``rlwb serve`` with a journal for some minutes, kill it, and see what is lost; ``results/soak.json``.

Traders register orders, a feed sends the bars of one day after another (late ones, repeated ones, corrected ones,
overtaking each other), decisions are asked for and fills reported, and beside them come random bytes, broken JSON,
large bodies, wrong methods, clients that stall and clients that hang up. The process is ended by SIGKILL and SIGTERM
again and again and started with the same journal; after each start every order, fill and decision that was acknowledged
must be there, and a decision that is asked for again must be the same.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.load import request
from benchmarks.measure import context
from benchmarks.serving import free_port
from benchmarks.serving_parts import SMALL, Day, as_json, make_bundle
from benchmarks.table import RESULTS
from rlwb.files import write_json

#: Growth of memory over the last life, after it has warmed up, above which the soak fails: share and megabytes.
_GROWTH, _GROWTH_MB = 0.2, 60.0
_ORDERS = 60  # a day
_STEPS_A_SECOND = 3.0  # as long as the machine keeps up


@dataclass
class Tally:
    """What happened."""

    requests: int = 0
    kills: int = 0
    stops: int = 0
    garbage: int = 0
    lost_orders: int = 0
    lost_fills: int = 0
    lost_decisions: int = 0
    changed_decisions: int = 0
    days: int = 0
    errors_by_kind: Counter[str] = field(default_factory=Counter)  # answers to requests that were meant to be right
    answers_to_garbage: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    rss: list[list[float]] = field(default_factory=list)  # of each life: seconds since its start, MB
    restart_seconds: list[float] = field(default_factory=list)


class GoneError(Exception):
    """There was no answer."""


class Soak:
    """One service after another on one journal, and those who talk to it."""

    def __init__(self, bundle: Path, history: Path, day: Day, folder: Path, seed: int) -> None:
        self.bundle, self.history, self.day, self.folder = bundle, history, day, folder
        self.rng, self.tally, self.port = np.random.default_rng(seed), Tally(), free_port()
        self.log = folder / "serve.log"
        self.process: asyncio.subprocess.Process | None = None
        self.is_up = asyncio.Event()
        self.orders: dict[str, dict[str, Any]] = {}  # acknowledged, of today
        self.fills: dict[str, dict[str, float]] = {}
        self.decisions: dict[tuple[str, int], dict[str, Any]] = {}
        self.unsure: set[str] = set()  # orders of which a fill was sent and not answered
        self.is_over = False
        self.step = 0

    # The process

    async def start(self) -> None:
        """Start the service and wait until it answers."""
        words = ["serve", str(self.bundle), "--port", str(self.port), "--state", str(self.folder / "journal")]
        words += ["--history", str(self.history), "--backend", "onnx"]
        began = time.monotonic()
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rlwb.cli", *words, stdout=log, stderr=log
            )
        while True:
            with contextlib.suppress(GoneError):
                status, _ = await self.send("GET", "/health")
                if status == 200:
                    break
            if self.process.returncode is not None or time.monotonic() - began > 120:
                raise SystemExit(f"the service did not start:\n{self.log.read_text(errors='replace')[-3000:]}")
            await asyncio.sleep(0.1)
        self.tally.restart_seconds.append(round(time.monotonic() - began, 2))
        self.tally.rss.append([])

    async def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.is_up.clear()
        self.process.send_signal(number)
        code = await self.process.wait()
        if number == signal.SIGTERM and code != 0:
            self.tally.faults.append(f"SIGTERM ended it with {code}")

    async def watch(self) -> None:
        """Note the memory of the process every half second."""
        began, known = 0.0, 0
        while not self.is_over:
            if self.is_up.is_set() and self.process is not None:
                if self.process.pid != known:
                    began, known = time.monotonic(), self.process.pid
                with contextlib.suppress(psutil.Error):
                    rss = psutil.Process(known).memory_info().rss / 1e6
                    self.tally.rss[-1].append([round(time.monotonic() - began, 1), round(rss, 1)])
            await asyncio.sleep(0.5)

    # Requests

    async def send(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Send one request on a connection of its own; raise `GoneError` without an answer."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = ["connection: close", *([f"idempotency-key: {key}"] if key else [])]
        answer = await self.raw(request(method, path, raw, headers))
        head, _, content = answer.partition(b"\r\n\r\n")
        if len(head) < 12:
            raise GoneError
        try:
            told = json.loads(content) if b"application/json" in head else content
        except ValueError:
            raise GoneError from None
        return int(head[9:12]), told

    async def raw(self, data: bytes, *, stall: float = 0.0, hang_up: bool = False) -> bytes:
        """Send bytes and return what comes back until the other side closes."""
        writer = None
        try:
            async with asyncio.timeout(40):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
                half = len(data) // 2 if stall or hang_up else len(data)
                writer.write(data[:half])
                await writer.drain()
                if hang_up:
                    return b""
                if stall:
                    await asyncio.sleep(stall)
                    writer.write(data[half:])
                    await writer.drain()
                return await reader.read()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            raise GoneError from None
        finally:
            if writer is not None:
                writer.close()

    async def ask(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """Send a request until it is answered; return the content, or None where it is refused."""
        while True:
            await self.is_up.wait()
            self.tally.requests += 1
            try:
                status, told = await self.send(method, path, body, key)
            except GoneError:
                self.tally.errors_by_kind["no answer, the process was ended"] += 1
                await asyncio.sleep(0.05)
                continue
            if status < 300:
                return told
            reason = told.get("reason", "?") if isinstance(told, dict) else "?"
            self.tally.errors_by_kind[f"{status} {reason}"] += 1
            if status >= 500 and status != 503:
                self.tally.faults.append(f"{method} {path}: {status} {told}"[:500])
            if status != 503:
                return None
            await asyncio.sleep(0.05)

    # Who talks

    async def trade(self) -> None:
        """Live through one day after another."""
        number = 0
        while not self.is_over:
            date = np.busday_offset(self.day.date.astype("datetime64[D]"), number, roll="forward")
            await self.one_day(number, date)
            number += 1
            self.tally.days += 1

    async def one_day(self, number: int, date: np.datetime64) -> None:
        rng, day, names = self.rng, self.day, self.day.instruments
        # Old days are settled once the new one begins; what may be asked about is of today.
        self.orders, self.fills, self.decisions, self.unsure = {}, {}, {}, set()
        made = [
            {
                "order_id": f"d{number}-{at}",
                "instrument": names[at % len(names)],
                "date": str(date),
                "direction": "BUY" if rng.random() < 0.5 else "SELL",
                "amount": round(float(rng.uniform(100, 10_000)), 2),
            }
            for at in range(_ORDERS)
        ]
        for at in range(0, _ORDERS, 20):
            if await self.ask("POST", "/v1/orders", made[at : at + 20], key=f"o{number}-{at}") is not None:
                self.orders |= {one["order_id"]: one for one in made[at : at + 20]}
        ticks, width = day.num_ticks, 6
        for step in range(ticks // width):
            if self.is_over:
                return
            self.step, began = step, time.monotonic()
            if step:
                await self.feed(date, (step - 1) * width, step * width)
            await asyncio.gather(*(self.work(number, one, step) for one in made))
            await asyncio.sleep(max(0.0, 1 / _STEPS_A_SECOND - (time.monotonic() - began)))
        await self.feed(date, ticks - width, ticks)

    async def feed(self, date: np.datetime64, start: int, stop: int) -> None:
        """Send the bars of some ticks, not in their order, some of them twice, some corrected."""
        rng, rows = self.rng, self.day.rows.tolist()
        pieces = []
        for low in range(0, len(rows), 5):
            columns = self.day.columns(rows[low : low + 5], start, stop, date)
            pieces.append(columns)
            if rng.random() < 0.2:
                pieces.append(columns)
            if rng.random() < 0.1:
                one = {name: list(values)[:3] for name, values in columns.items()}
                pieces.append({**one, "close": [value * 1.0001 for value in one["close"]], "high": [1e6] * 3})
        for at in rng.permutation(len(pieces)):
            await self.ask("POST", "/v1/bars", as_json(pieces[at]))

    async def work(self, number: int, order: dict[str, Any], step: int) -> None:
        """Ask for one decision and report its fill."""
        name = order["order_id"]
        told = await self.ask("POST", "/v1/decisions", {"order_id": name})
        if told is None:
            return
        self.note(told)
        if told["amount"] <= 0 or self.rng.random() < 0.3:
            return
        fill = {"fill_id": f"{name}-{step}", "order_id": name, "amount": told["amount"], "price": 10.0}
        self.unsure.add(name)
        if await self.ask("POST", "/v1/fills", fill, key=f"f-{name}-{step}") is not None:
            self.fills.setdefault(name, {})[fill["fill_id"]] = fill["amount"]
        self.unsure.discard(name)

    def note(self, told: dict[str, Any]) -> None:
        """Keep a decision, which must be the one that was told before."""
        place = told["order_id"], told["step"]
        plain = {name: told[name] for name in ("tick", "position", "amount", "action", "source")}
        if self.decisions.setdefault(place, plain) != plain:
            self.tally.changed_decisions += 1
            self.tally.faults.append(f"step {place} was {self.decisions[place]}, then {plain}")

    async def ask_again(self) -> None:
        """Ask for decisions that were told before, and for pages, without a pause."""
        while not self.is_over:
            await self.is_up.wait()
            for path in ("/health", "/metrics", "/info", "/v1/orders?limit=50", "/v1/summary", "/"):
                await self.ask("GET", path)
            known = list(self.decisions)[-40:]
            if known:
                told = await self.ask("POST", "/v1/decisions", [{"order_id": name} for name, _ in known])
                for one in told or ():
                    if "error" not in one:
                        self.note(one)
            await asyncio.sleep(0.05)

    async def spoil(self) -> None:
        """Send what no client should."""
        rng = np.random.default_rng(1)
        while not self.is_over:
            await self.is_up.wait()
            self.tally.garbage += 1
            body = json.dumps({"order_id": "d0-0"}).encode()
            right = request("POST", "/v1/decisions", body, ["connection: close"])
            kind = int(rng.integers(9))
            how: dict[str, Any] = {}
            if kind == 0:
                data = rng.bytes(int(rng.integers(1, 4000))) + b"\r\n\r\n"
            elif kind == 1:
                data = request("POST", "/v1/orders", rng.bytes(200), ["connection: close"])
            elif kind == 2:
                data = request("POST", "/v1/bars", b"[" * 100_000, ["connection: close"])
            elif kind == 3:
                data = request("POST", "/v1/bars", b" " * (17 << 20), ["connection: close"])
            elif kind == 4:
                data, how = right, {"stall": 0.5}
            elif kind == 5:
                data, how = right, {"hang_up": True}
            elif kind == 6:
                data = request("PATCH", "/v1/orders/../../etc/passwd", b"{}", ["connection: close"])
            elif kind == 7:
                data = right.replace(b"content-length: ", b"content-length: 9")[: len(right)]
                how = {"hang_up": True}
            else:
                data = bytearray(right)
                data[int(rng.integers(len(data)))] = int(rng.integers(256))
                data, how = bytes(data), {"stall": 0.01} if rng.random() < 0.2 else {}
            try:
                answer = await asyncio.wait_for(self.raw(data, **how), 3.0)
                status = answer[9:12].decode("latin-1") or "closed"
            except (GoneError, TimeoutError):
                status = "no answer"
            self.tally.answers_to_garbage[status] += 1
            if status.startswith("5") and status != "503":
                self.tally.faults.append(f"garbage of kind {kind} was answered by {status}: {answer[-300:]!r}")
            await asyncio.sleep(0.02)

    async def disturb(self, until: float, lives: int) -> None:
        """End the process now and then; leave the last third of the time to one life."""
        span = (until - time.monotonic()) * 2 / 3 / lives
        for life in range(lives):
            await asyncio.sleep(max(0.5, span * float(self.rng.uniform(0.6, 1.2))))
            if time.monotonic() > until - 5:
                break
            if life % 4 == 3:
                self.tally.stops += 1
                await self.end(signal.SIGTERM)
            else:
                self.tally.kills += 1
                await self.end(signal.SIGKILL)
            await self.start()
            await self.check()
            self.is_up.set()

    async def check(self) -> None:
        """See that all that was acknowledged is there; nobody else talks meanwhile."""
        known_fills, known_decisions = self.fills, self.decisions
        for name in list(self.orders):
            try:
                status, told = await self.send("GET", f"/v1/orders/{name}")
            except GoneError:
                status, told = 0, None
            self.tally.requests += 1
            if status != 200:
                self.tally.lost_orders += 1
                self.tally.faults.append(f"order {name} is lost: {status} {told}")
                continue
            filled, least = told["filled"], sum(known_fills.get(name, {}).values())
            if filled < least * (1 - 1e-9) or (name not in self.unsure and filled > least * (1 + 1e-9)):
                self.tally.lost_fills += 1
                self.tally.faults.append(f"order {name} has fills of {filled}, acknowledged were {least}")
            steps = {one["step"]: one for one in told["steps"]}
            for (owner, number), known in known_decisions.items():
                if owner == name and steps.get(number, {}).get("amount") != known["amount"]:
                    self.tally.lost_decisions += 1
                    self.tally.faults.append(f"step {number} of {name} was {known}, and is {steps.get(number)}")
        latest: dict[str, int] = {}
        for name, number in known_decisions:
            latest[name] = max(latest.get(name, 0), number)
        for name, number in latest.items():
            with contextlib.suppress(GoneError):
                status, told = await self.send("POST", "/v1/decisions", {"order_id": name})
                self.tally.requests += 1
                if status == 200 and told["step"] == number:
                    self.note(told)

    async def run(self, seconds: float, lives: int) -> Tally:
        """Do all at once for so long."""
        await self.start()
        self.is_up.set()
        until = time.monotonic() + seconds
        others = [asyncio.ensure_future(one()) for one in (self.trade, self.ask_again, self.spoil, self.watch)]
        try:
            disturbing = asyncio.ensure_future(self.disturb(until, lives))
            while time.monotonic() < until or not disturbing.done():
                for one in (*others, disturbing):
                    if one.done() and one.exception() is not None:
                        raise one.exception()  # type: ignore[misc]
                await asyncio.sleep(0.2)
            self.is_over = True
            await asyncio.wait(others, timeout=60)
            await self.check()
        finally:
            self.is_over = True
            for one in (*others, disturbing):
                one.cancel()
            await asyncio.gather(*others, disturbing, return_exceptions=True)
            await self.end(signal.SIGTERM)
        return self.tally


def figures(tally: Tally, seconds: float) -> dict[str, Any]:
    """Return the figures of ``soak.json``; memory in MB, of the first life and of the last, each after a warm-up."""
    first, last = tally.rss[0], tally.rss[-1]
    warm = [rss for at, rss in last if at >= min(20.0, last[-1][0] / 3)] if last else [float("nan")]
    start = next((rss for at, rss in first if at >= 3.0), first[-1][1] if first else float("nan"))
    grown = warm[-1] - warm[0]
    if grown > max(_GROWTH * warm[0], _GROWTH_MB):
        tally.faults.append(f"the last life grew from {warm[0]} to {warm[-1]} MB")
    told = {
        name: getattr(tally, name)
        for name in ("requests", "kills", "stops", "garbage", "days", "lost_orders", "lost_fills", "lost_decisions")
    }
    return {
        **told,
        "changed_decisions": tally.changed_decisions,
        "errors_by_kind": dict(sorted(tally.errors_by_kind.items())),
        "answers_to_garbage": dict(sorted(tally.answers_to_garbage.items())),
        "rss_start": start,
        "rss_end": warm[-1],
        "rss_max": max(rss for life in tally.rss for _, rss in life),
        "rss_grown_in_last_life": round(grown, 1),
        "rss_of_last_life": last[:: max(1, len(last) // 40)],
        "restart_seconds": tally.restart_seconds,
        "seconds": round(seconds, 1),
        "faults": tally.faults[:20],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--lives", type=int, help="how often the process is ended; four times a minute by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a quarter of a minute and two lives; nothing is written")
    parser.add_argument("--out", type=Path, help="where the figures go; results/soak.json by default")
    asked = parser.parse_args(arguments)
    minutes = 0.25 if asked.quick else asked.minutes
    lives = asked.lives or (2 if asked.quick else max(2, round(4 * minutes)))
    with tempfile.TemporaryDirectory(prefix="rlwb-soak-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        run, bundle = make_bundle(folder, SMALL)
        day, history = Day.of(run), folder / "history.parquet"
        import pandas as pd

        pd.DataFrame(day.before()).to_parquet(history)

        async def soak() -> Tally:
            return await Soak(bundle, history, day, folder, asked.seed).run(60 * minutes, lives)

        began = time.monotonic()
        found = figures(asyncio.run(soak()), time.monotonic() - began)
    print(json.dumps({name: value for name, value in found.items() if name != "rss_of_last_life"}, indent=2))
    if asked.out or not asked.quick:
        write_json(asked.out or RESULTS.with_name("soak.json"), {**context(), **found})
    return int(bool(found["faults"]))


if __name__ == "__main__":
    sys.exit(main())
