"""The service on Ray Serve: where requests go, and on Ray itself, where it is, two shards and two replicas."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.market import Sessions
from rlwb.serving import ray_serve
from rlwb.serving.export import export_run
from rlwb.serving.process import make_front
from rlwb.serving.ray_serve import deploy, shard_of


def test_the_shard_of_an_instrument_is_the_same_everywhere() -> None:
    assert [shard_of(name, 2) for name in ("SYN001", "SYN002", "SYN003", "é")] == [0, 1, 0, 1]
    assert {shard_of(str(number), 3) for number in range(100)} == {0, 1, 2}
    with pytest.raises(ConfigError, match="shards is 0"):
        shard_of("A", 0)


def answered(path: str, root: str, paths: tuple[str, ...] | None) -> tuple[int, dict[bytes, bytes], dict[str, Any]]:
    """Return status, headers and content of an answer below a route prefix, from an app that tells its scope."""
    sent: list[dict[str, Any]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"1")]})
        told = {"path": scope["path"], "root": scope["root_path"]}
        await send({"type": "http.response.body", "body": json.dumps(told).encode()})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    mounted = ray_serve._mounted(app, "r1", paths)
    asyncio.run(mounted({"type": "http", "method": "GET", "path": path, "root_path": root}, None, send))
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(sent[1]["body"])


def test_an_app_answers_below_its_prefix_as_at_the_root() -> None:
    status, headers, told = answered("/shards/1/v1/orders", "/shards/1", None)
    assert (status, told) == (200, {"path": "/v1/orders", "root": ""})
    assert headers == {b"a": b"1", b"x-replica": b"r1"}
    assert answered("/shards/1", "/shards/1", None)[2]["path"] == "/"


def test_replicas_without_orders_refuse_what_is_about_orders() -> None:
    assert answered("/predict", "", ("/predict",))[0] == 200
    status, headers, told = answered("/v1/orders", "", ("/predict",))
    assert status == 404
    assert told["reason"] == "no_shard"
    assert headers[b"x-replica"] == b"r1"


def test_without_ray_its_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"rlwb\[ray,serve\]"):
        deploy(tmp_path, tmp_path)


@pytest.fixture
def parts(finished_run: RunDirectory, tmp_path: Path) -> tuple[Path, Path, Sessions, pd.DataFrame]:
    """Return a bundle, a file of the bars before the last date, all bars, and the test orders of the last date."""
    bench = workbench(finished_run, finished_run.config)
    sessions, table = bench.sessions, load_orders(finished_run, bench, "test")
    day = np.datetime64(table["date"].max(), "D")
    earlier = bars_of(sessions, np.flatnonzero(sessions.dates < day), slice(None))
    pd.DataFrame(earlier).to_parquet(tmp_path / "history.parquet")
    bundle = export_run(finished_run.path, tmp_path / "bundle")
    return bundle, tmp_path / "history.parquet", sessions, table[table["date"] == day]


def bars_of(sessions: Sessions, rows: np.ndarray, ticks: slice) -> dict[str, list[Any]]:
    """Return bars as columns, with stamps as text."""
    start = sessions.calendar.tick_start[ticks] + (sessions.calendar.label == "end") * sessions.calendar.tick_seconds
    stamps = sessions.dates[rows][:, None].astype("datetime64[s]") + start.astype("timedelta64[s]")
    fields = {name: sessions.fields[name][rows][:, ticks].ravel().tolist() for name in sessions.fields}
    names = np.repeat(sessions.instruments[rows].astype(str), stamps.shape[1])
    return {"instrument": names.tolist(), "datetime": stamps.ravel().astype(str).tolist(), **fields}


def played(send: Any, sessions: Sessions, orders: pd.DataFrame, step: int, between: Any = None) -> list[Any]:
    """Register orders, then bring bars and ask for decisions step by step; return the decisions.

    `send` takes an instrument, a method, a path and content; `between` is called half way.
    """
    names, position = {}, {}
    for row in orders.itertuples():
        order = {name: getattr(row, name) for name in ("instrument", "direction", "amount", "order_id")}
        (name,) = send(row.instrument, "POST", "/v1/orders", order | {"date": f"{row.date:%Y-%m-%d}"})["order_ids"]
        names[name], position[name] = row.instrument, row.amount
    rows = sessions.rows(sorted(set(names.values())), [orders["date"].iloc[0]] * len(set(names.values())))
    made = []
    for number, tick in enumerate(range(0, sessions.calendar.num_ticks, step)):
        if number == 2 and between:
            between()
        for row in rows if tick else ():
            found = send(
                str(sessions.instruments[row]),
                "POST",
                "/v1/bars",
                bars_of(sessions, np.array([row]), slice(tick - step, tick)),
            )
            assert not found["refused"]
        for name, instrument in names.items():
            if position[name] > 0:
                one = send(instrument, "POST", "/v1/decisions", {"order_id": name, "position": position[name]})
                position[name] -= one["amount"]
                made.append((name, one["step"], one["amount"], one["source"]))
    return made


@pytest.mark.filterwarnings("ignore")
def test_two_shards_decide_as_one_process_and_come_back_from_their_journals(
    parts: tuple[Path, Path, Sessions, pd.DataFrame], tmp_path: Path
) -> None:
    ray = pytest.importorskip("ray", reason="Ray Serve is an extra: pip install 'rlwb[ray,serve]'")
    import httpx
    import psutil
    from ray import serve

    bundle, history, sessions, orders = parts
    step = 6 if sessions.calendar.num_ticks % 6 == 0 else 1
    front = make_front(bundle, history=history)

    def alone(instrument: str, method: str, path: str, content: Any) -> Any:
        async def ask() -> Any:
            transport = httpx.ASGITransport(front)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return (await client.request(method, path, json=content)).raise_for_status().json()

        return asyncio.run(ask())

    expected = played(alone, sessions, orders, step)
    assert len({name for name, *_ in expected}) == len(orders)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        deploy(bundle, tmp_path, shards=2, replicas=2, history=str(history), cpus=0)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            replicas: dict[int, set[str]] = {0: set(), 1: set()}

            def sharded(instrument: str, method: str, path: str, content: Any) -> Any:
                number = shard_of(instrument, 2)
                answer = client.request(method, f"/shards/{number}{path}", json=content).raise_for_status()
                replicas[number].add(answer.headers["x-replica"])
                return answer.json()

            def kill() -> None:
                ours = psutil.Process().children(recursive=True)
                (process,) = [one for one in ours if "ServeReplica:shard-0" in " ".join(one.cmdline())]
                process.kill()
                process.wait(10)

            assert played(sharded, sessions, orders, step, kill) == expected
            assert [len(replicas[number]) for number in (0, 1)] == [2, 1]  # the first was killed and made again
            kept = {number: client.get(f"/shards/{number}/v1/orders").json()["total"] for number in (0, 1)}
            assert kept == {
                number: sum(shard_of(name, 2) == number for name in orders["instrument"]) for number in (0, 1)
            }
            space = front.api.service.policy.state_interpreter.observation_space
            obs = {name: np.asarray(value)[None].tolist() for name, value in space.sample().items()}
            answers = [client.post("/predict", json={"observations": obs}).raise_for_status() for _ in range(40)]
            assert len({answer.headers["x-replica"] for answer in answers}) == 2
            assert {str(answer.json()["actions"]) for answer in answers} == {
                str(alone("", "POST", "/predict", {"observations": obs})["actions"])
            }
            assert client.post("/v1/orders", json={}).status_code == 404
    finally:
        serve.shutdown()
        ray.shutdown()
