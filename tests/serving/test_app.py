"""The service over HTTP: every answer is described, every wrong request a problem with a reason, and a kill no loss."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.serving import wire
from rlwb.serving.app import Api, Front, Limits, Security
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.journal import Journal
from rlwb.serving.monitor import FallbackSettings
from rlwb.serving.policy import BundlePolicy
from rlwb.serving.process import (
    LOOPBACK,
    fallback_of,
    hosts_of,
    is_loopback,
    limits_of,
    listen,
    named_bundles,
    token_of,
)
from rlwb.serving.service import Service
from tests.serving.desk import DAY, Desk

ORDER = {"order_id": "o", "instrument": "AAA", "date": DAY, "direction": "BUY", "amount": 1000.0}
ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-enough-letters"


@pytest.fixture(scope="module")
def bundle(bundle_path: Path) -> Bundle:
    return open_bundle(bundle_path)


@pytest.fixture(scope="module")
def desk(bundle: Bundle) -> Desk:
    return Desk(bundle.calendar)


class Web:
    """A client of the application in this process."""

    def __init__(self, bundle: Bundle, security: Security | None = None, **settings: Any) -> None:
        self.runner = asyncio.Runner()
        self.bundle = bundle
        self.service = Service(BundlePolicy(bundle, capacity=16), journal=Journal())
        bundles = {name: lambda: BundlePolicy(bundle, capacity=16) for name in ("main", "second")}
        self.api = Api(self.service, bundles=bundles, **settings)
        transport = httpx.ASGITransport(Front(self.api, security or Security(None, LOOPBACK)))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000")

    def ask(self, method: str, path: str, content: Any = None, **settings: Any) -> httpx.Response:
        if content is not None and not isinstance(content, bytes):
            settings["json"] = content
        elif content is not None:
            settings |= {"content": content}
            settings["headers"] = {"content-type": "application/json", **settings.get("headers", {})}
        return self.runner.run(self.client.request(method, path, **settings))

    def post(self, path: str, content: Any, **settings: Any) -> Any:
        answer = self.ask("POST", path, content, **settings)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def all(self, *requests: tuple[str, str, Any]) -> list[httpx.Response]:
        async def ask() -> list[httpx.Response]:
            one = (self.client.request(method, path, json=content) for method, path, content in requests)
            return await asyncio.gather(*one)

        return self.runner.run(ask())

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()
        self.service.close()


@pytest.fixture
def web(bundle: Bundle) -> Iterator[Web]:
    made = Web(bundle)
    yield made
    made.close()


def bars(desk: Desk, first: int, last: int) -> list[dict[str, Any]]:
    return json.loads(wire.as_bytes(desk.bars("AAA", first, last)))


def problem(answer: httpx.Response) -> str:
    content = answer.json()
    assert content["error"].endswith(".")
    return content["reason"]


def test_an_order_from_its_registration_to_its_end(web: Web, desk: Desk) -> None:
    assert web.post("/v1/orders", [ORDER]) == {"order_ids": ["o"]}
    first = web.post("/v1/decisions", {"order_id": "o"})
    assert (first["step"], first["position"], first["source"], first["repeated"]) == (0, 1000.0, "policy", False)
    fill = {"fill_id": "1", "order_id": "o", "amount": 300.0, "price": 10.0}
    assert web.post("/v1/fills", fill) == {"positions": [700.0]}
    told = web.post("/v1/bars", bars(desk, 0, desk.ticks // 2))
    assert told == {"accepted": desk.ticks // 2, "repeated": 0, "corrected": 0, "refused": []}
    second, unknown = web.post("/v1/decisions", [{"order_id": "o"}, {"order_id": "x"}])
    assert (second["position"], unknown["reason"], unknown["order_id"]) == (700.0, "unknown_order", "x")
    shown = web.ask("GET", "/v1/orders/o").json()
    assert [step["position"] for step in shown["steps"]] == [1000.0, 700.0]
    assert web.ask("GET", "/v1/orders?status=open").json()["orders"] == [shown]
    assert web.ask("DELETE", "/v1/orders/o").json()["status"] == "cancelled"
    assert web.ask("GET", "/v1/orders/o").json()["status"] == "cancelled"


def test_bars_as_columns_are_those_as_rows(web: Web, desk: Desk) -> None:
    rows = bars(desk, 0, 3)
    columns = {name: [row[name] for row in rows] for name in ("datetime", "open", "high", "low", "close", "volume")}
    assert web.post("/v1/bars", rows)["accepted"] == 3
    assert web.post("/v1/bars", {"instrument": "AAA", **columns})["repeated"] == 3
    assert web.post("/v1/bars", {"instrument": ["AAA"] * 3, **columns})["repeated"] == 3


def test_stamps_with_a_zone_are_brought_to_the_calendars(web: Web, desk: Desk) -> None:
    zone = desk.calendar.timezone
    assert zone is not None
    import zoneinfo

    stamp = desk.stamp(0).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    row = {**bars(desk, 0, 1)[0], "datetime": stamp.astimezone(zoneinfo.ZoneInfo("UTC")).isoformat()}
    assert web.post("/v1/bars", [row])["accepted"] == 1
    assert web.post("/v1/bars", bars(desk, 0, 1))["repeated"] == 1


def test_numbers_come_back_to_the_last_bit(web: Web) -> None:
    amount = 0.1 + 0.2
    web.post("/v1/orders", {**ORDER, "amount": amount})
    assert web.post("/v1/decisions", {"order_id": "o"})["position"] == amount


def test_a_prediction_is_the_policys(web: Web, bundle: Bundle) -> None:
    space = web.service.policy.state_interpreter.observation_space
    samples = [space.sample() for _ in range(3)]
    obs = {name: np.nan_to_num([np.clip(one[name], -1e3, 1e3) for one in samples]) for name in space.spaces}
    found = web.post("/predict", {"observations": {name: values.tolist() for name, values in obs.items()}})
    assert found == {"actions": web.service.policy.predict(obs).tolist()}
    for value in ([1, [2]], "text", [None], [{}], [1e300], [True]):
        wrong = {name: value for name in obs}  # noqa: C420
        assert problem(web.ask("POST", "/predict", {"observations": wrong})) == "bad_observation"
    many = {"observations": dict.fromkeys(obs, [0.0] * 4097)}
    assert problem(web.ask("POST", "/predict", many)) == "too_large"
    for wrong in ({}, {"x": [1]}):
        answer = web.ask("POST", "/predict", {"observations": wrong})
        assert (answer.status_code, problem(answer)) == (422, "bad_observation")


WRONG = [
    ("POST", "/v1/orders", b"", 400, "bad_json"),
    ("POST", "/v1/orders", b"{", 400, "bad_json"),
    ("POST", "/v1/orders", b"\xff", 400, "bad_json"),
    ("POST", "/predict", b'{"observations": {"x": ' + b"[" * 100_000, 400, "bad_json"),
    ("POST", "/v1/orders", b"null", 400, "invalid"),
    ("POST", "/v1/orders", {**ORDER, "amount": "1"}, 400, "invalid"),
    ("POST", "/v1/orders", {**ORDER, "amount": -1}, 400, "invalid"),
    ("POST", "/v1/orders", json.dumps({**ORDER, "amount": 0}).replace("0}", "1e999}").encode(), 400, "invalid"),
    ("POST", "/v1/orders", json.dumps({**ORDER, "amount": 0}).replace("0}", "NaN}").encode(), 400, "bad_json"),
    ("POST", "/v1/orders", {**ORDER, "amuont": 1}, 400, "invalid"),
    ("POST", "/v1/orders", {**ORDER, "date": "2024-02-30"}, 422, "bad_order"),
    ("POST", "/v1/orders", {**ORDER, "date": "1024-02-30"}, 400, "invalid"),
    ("POST", "/v1/orders", {**ORDER, "date": "2024-03-03"}, 422, "bad_data"),
    ("POST", "/v1/orders", {**ORDER, "start": "25:00"}, 400, "invalid"),
    ("POST", "/v1/orders", {**ORDER, "start": "24:30"}, 422, "bad_order"),
    ("POST", "/v1/orders", {**ORDER, "instrument": "  "}, 422, "bad_order"),
    ("POST", "/v1/orders", {**ORDER, "instrument": "A" * 100}, 422, "bad_data"),
    ("POST", "/v1/orders", {**ORDER, "instrument": "A\0"}, 400, "invalid"),
    ("POST", "/v1/orders", [ORDER] * 10_001, 413, "too_large"),
    ("POST", "/v1/orders", b'"' + b"x" * 17 * 2**20 + b'"', 413, "too_large"),
    ("POST", "/v1/bars", [{"instrument": "A"}], 400, "invalid"),
    ("POST", "/v1/bars", {"instrument": "A", "datetime": ["2024-03-04T09:30:00"]}, 422, "bad_bars"),
    ("POST", "/v1/bars", {"instrument": ["A", "B"], "datetime": ["2024-03-04T09:30:00"]}, 422, "bad_bars"),
    ("POST", "/v1/bars", {"until": "0001-01-01T00:00:00Z"}, 422, "bad_time"),
    ("POST", "/v1/bars", {"until": "9999-12-31T23:59:59-10:00"}, 422, "bad_time"),
    ("POST", "/v1/fills", {"fill_id": "1", "order_id": "x", "amount": 1, "price": 1}, 404, "unknown_order"),
    ("POST", "/v1/decisions", {"order_id": "x"}, 404, "unknown_order"),
    ("POST", "/v1/decisions", {"order_id": 1}, 400, "invalid"),
    ("POST", "/v1/bundle", {"name": "../../etc/passwd"}, 404, "unknown_bundle"),
    ("GET", "/v1/orders/x", None, 404, "unknown_order"),
    ("DELETE", "/v1/orders/x%2F..%2F..", None, 404, "unknown_order"),
    ("GET", "/v1/orders?limit=1e3", None, 400, "invalid"),
    ("GET", "/v1/orders?limit=0", None, 400, "invalid"),
    ("GET", "/v1/orders?after=-1", None, 400, "invalid"),
    ("GET", "/v1/orders?status=gone", None, 400, "invalid"),
    ("GET", "/v1/orders?order=up", None, 400, "invalid"),
    ("GET", "/v1", None, 404, "no_such_path"),
    ("GET", "/../etc/passwd", None, 404, "no_such_path"),
    ("GET", "/v1/decisions", None, 405, "bad_method"),
    ("PATCH", "/v1/orders/x", None, 405, "bad_method"),
    ("POST", "/health", {}, 405, "bad_method"),
    ("PUT", "/docs", {}, 405, "bad_method"),
]


@pytest.mark.parametrize(("method", "path", "content", "status", "reason"), WRONG, ids=lambda one: str(one)[:30])
def test_a_wrong_request_is_a_problem(web: Web, method: str, path: str, content: Any, status: int, reason: str) -> None:
    answer = web.ask(method, path, content)
    assert (answer.status_code, problem(answer)) == (status, reason)
    assert ("allow" in answer.headers) == (status == 405)
    assert web.service.orders().total == 0
    assert not list(web.service.journal.events())


def test_nothing_wrong_with_a_position_or_clock_of_another_day(web: Web, desk: Desk) -> None:
    web.post("/v1/orders", ORDER)
    for content, status, reason in (
        ({"order_id": "o", "position": 1001.0}, 422, "bad_order"),
        ({"order_id": "o", "now": "2024-03-03T10:00:00"}, 409, "not_begun"),
        ({"order_id": "o", "now": "2024-03-05T10:00:00"}, 409, "order_over"),
    ):
        answer = web.ask("POST", "/v1/decisions", content)
        assert (answer.status_code, problem(answer)) == (status, reason)


def test_all_that_can_be_answered_is_described(web: Web) -> None:
    described = web.ask("GET", "/openapi.json").json()
    assert described["openapi"].startswith("3.")
    operations = {
        (method.upper(), path) for path, each in described["paths"].items() for method in each if method != "parameters"
    }
    assert operations == {(one.method, one.path) for one in web.api.operations}
    for method, path, _, status, _ in WRONG:
        known = described["paths"].get(path.partition("?")[0], {}).get(method.lower())
        assert known is None or str(status) in known["responses"], (method, path, status)
    refs = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)))
    assert refs <= described["components"]["schemas"].keys()
    listed = web.ask("GET", "/docs").text
    assert all(f"{method} {path}" in listed for method, path in operations)
    assert "http" not in listed  # nothing of it comes from elsewhere


def test_single_decisions_that_wait_together_are_decided_together(web: Web) -> None:
    web.post("/v1/orders", [{**ORDER, "order_id": str(number)} for number in range(20)])
    calls = []
    decide = web.service.policy.decide_many
    web.service.policy.decide_many = lambda ids, *rest, **more: calls.append(len(ids)) or decide(ids, *rest, **more)  # type: ignore[method-assign, func-returns-value]
    answers = web.all(*(("POST", "/v1/decisions", {"order_id": str(number)}) for number in range(20)))
    assert [one.json()["order_id"] for one in answers] == [str(number) for number in range(20)]
    assert sum(calls) == 20
    assert len(calls) < 20


def test_overload_is_told_at_once_and_passes(bundle: Bundle) -> None:
    web = Web(bundle, limits=Limits(queue=2, window=0.02))
    web.post("/v1/orders", ORDER)
    answers = web.all(*[("POST", "/v1/decisions", {"order_id": "o"})] * 6)
    codes = sorted(one.status_code for one in answers)
    assert codes == [200, 200, 503, 503, 503, 503]
    refused = [one for one in answers if one.status_code == 503]
    assert {problem(one) for one in refused} == {"full"}
    assert all(int(one.headers["retry-after"]) >= 1 for one in refused)
    assert web.post("/v1/decisions", {"order_id": "o"})["repeated"]
    web.close()


def test_a_repeated_request_under_its_key_is_answered_as_before(web: Web, desk: Desk) -> None:
    key = {"headers": {"idempotency-key": "k1"}}
    web.post("/v1/orders", ORDER)
    first = web.post("/v1/decisions", {"order_id": "o"}, **key)
    web.post("/v1/bars", bars(desk, 0, desk.ticks // 2))
    assert web.post("/v1/decisions", {"order_id": "o"}, **key) == first
    assert web.post("/v1/decisions", {"order_id": "o"})["step"] > first["step"]
    for path, content in (("/v1/decisions", {"order_id": "p"}), ("/v1/fills", {"order_id": "o"})):
        answer = web.ask("POST", path, content, **key)
        assert (answer.status_code, problem(answer)) == (409, "key_reused")
    refused = {"headers": {"idempotency-key": "k2"}}
    assert web.ask("POST", "/v1/decisions", {"order_id": "new"}, **refused).status_code == 404
    web.post("/v1/orders", {**ORDER, "order_id": "new", "start": None})
    assert web.post("/v1/decisions", {"order_id": "new"}, **refused)["step"] >= 0
    answer = web.ask("POST", "/v1/orders", ORDER, headers={"idempotency-key": "x" * 200})
    assert problem(answer) == "bad_key"


def test_who_has_no_token_learns_nothing(bundle: Bundle) -> None:
    web = Web(bundle, Security(TOKEN, LOOPBACK))
    for path in ("/v1/orders", "/v1/orders/o", "/info", "/metrics", "/nothing", "/v1/summary"):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}):
            answer = web.ask("GET", path, headers=headers)
            assert (answer.status_code, problem(answer)) == (401, "unauthorised")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert web.ask("POST", "/v1/orders", ORDER).status_code == 401
    assert web.ask("GET", "/health").json() == {"live": True, "ready": True, "reason": None}
    assert web.ask("POST", "/v1/orders", ORDER, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    web.close()


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"host": "evil.example"}, 400, "bad_host"),
        ({"host": "127.0.0.1.evil.example:8000"}, 400, "bad_host"),
        ({"origin": "http://evil.example"}, 403, "bad_origin"),
        ({"origin": "null"}, 403, "bad_origin"),
        ({"content-type": "text/plain"}, 415, "bad_content_type"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "bad_content_type"),
        ({"content-length": "99999999999"}, 413, "too_large"),
    ],
)
def test_pages_of_other_sites_cannot_reach_it(web: Web, headers: dict[str, str], status: int, reason: str) -> None:
    answer = web.ask("POST", "/v1/orders", json.dumps(ORDER).encode(), headers=headers)
    assert (answer.status_code, problem(answer)) == (status, reason)
    assert web.service.orders().total == 0
    assert "access-control-allow-origin" not in answer.headers


def test_a_body_in_parts_is_limited_as_it_comes(web: Web) -> None:
    async def parts() -> Any:
        for _ in range(40):
            yield b"x" * 2**20

    async def ask() -> httpx.Response:
        return await web.client.post("/v1/orders", content=parts(), headers={"content-type": "application/json"})

    answer = web.runner.run(ask())
    assert (answer.status_code, problem(answer)) == (413, "too_large")


def test_another_bundle_takes_over_between_requests(web: Web, desk: Desk) -> None:
    web.post("/v1/orders", ORDER)
    first = web.post("/v1/decisions", {"order_id": "o"})
    asked = [("POST", "/v1/decisions", {"order_id": "o"})] * 10
    answers = web.all(*asked, ("POST", "/v1/bundle", {"name": "second"}), *asked)
    assert [one.status_code for one in answers] == [200] * 21
    assert all(one.json()["amount"] == first["amount"] for one in answers if "amount" in one.json())
    assert web.ask("GET", "/info").json()["bundle"] == "second"
    web.post("/v1/bars", bars(desk, 0, desk.ticks // 2))
    assert web.post("/v1/decisions", {"order_id": "o"})["step"] > 0


def test_a_bundle_of_another_clock_is_refused(web: Web, bundle: Bundle) -> None:
    import dataclasses

    record = {**bundle.spec.record, "ticks_per_step": 99}
    other = dataclasses.replace(bundle, spec=bundle.spec.model_copy(update={"record": record}))
    web.api.bundles["other"] = lambda: BundlePolicy(other, capacity=4)
    answer = web.ask("POST", "/v1/bundle", {"name": "other"})
    assert (answer.status_code, problem(answer)) == (409, "bundle_differs")
    assert "ticks_per_step" in answer.json()["error"]
    assert web.service.name == "main"


def test_metrics_and_info_tell_what_happens(web: Web) -> None:
    web.post("/v1/orders", ORDER)
    web.post("/v1/decisions", {"order_id": "o"})
    web.ask("GET", "/v1/orders/none")
    text = web.ask("GET", "/metrics").text
    assert 'rlwb_requests_total{route="/v1/decisions",status="200"} 1.0' in text
    assert 'rlwb_refused_total{reason="unknown_order"} 1.0' in text
    info = web.ask("GET", "/info").json()
    assert info["card"].startswith("# ")
    assert info["calendar"]["segments"]


def test_a_fault_of_ours_is_logged_and_says_nothing_of_itself(web: Web, caplog: pytest.LogCaptureFixture) -> None:
    web.service.policy.predict = lambda obs: 1 / 0  # type: ignore[method-assign, return-value]
    answer = web.ask("POST", "/predict", {"observations": {"x": [1]}})
    assert (answer.status_code, problem(answer)) == (500, "fault")
    assert "ZeroDivision" not in answer.text
    assert "ZeroDivisionError" in caplog.text


def test_a_stopping_service_says_so(web: Web) -> None:
    web.api.stopping = True
    assert web.ask("GET", "/health").status_code == 503
    answer = web.ask("POST", "/v1/orders", ORDER)
    assert (answer.status_code, problem(answer)) == (503, "stopping")


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    from rlwb.packages import require_packages

    require_packages("a service", "serve", "fastapi", "uvicorn")
    with pytest.raises(ConfigError, match=r"no_such_package.*rlwb\[serve\]"):
        require_packages("a service", "serve", "fastapi", "no_such_package")


def test_options_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RLWB_SERVE_TOKEN", raising=False)
    assert token_of(None) is None
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert token_of(tmp_path / "token") == TOKEN
    monkeypatch.setenv("RLWB_SERVE_TOKEN", "short")
    for wrong in (lambda: token_of(None), lambda: token_of(tmp_path / "none")):
        with pytest.raises(ConfigError):
            wrong()
    assert named_bundles(["a=b/c", "d=e=f"]) == {"a": Path("b/c"), "d": Path("e=f")}
    for words in (["a"], ["=b"], ["a="], ["a=b", "a=c"], ["main=b"]):
        with pytest.raises(ConfigError):
            named_bundles(words)
    assert fallback_of(["late_bars=off", "drift=schedule"]) == FallbackSettings(late_bars="off", drift="schedule")
    for word in ("weather=off", "drift=maybe", "drift"):
        with pytest.raises(ConfigError, match=word[:5]):
            fallback_of([word])
    with pytest.raises(ConfigError, match="--batch"):
        limits_of(batch=0, window=0, queue=1, deadline=1)
    assert [is_loopback(host) for host in ("localhost", "127.1.2.3", "::1", "0.0.0.0", "10.0.0.1", "a.b")] == [
        *(True, True, True, False, False, False)
    ]
    assert hosts_of("127.0.0.2") == {*LOOPBACK, "127.0.0.2"}
    assert hosts_of("::1") == LOOPBACK
    assert hosts_of("0.0.0.0") == frozenset()
    taken = listen("127.0.0.1", 0)
    with pytest.raises(ConfigError, match="--port"):
        listen("127.0.0.1", taken.getsockname()[1])
    taken.close()


class Process:
    """``rlwb serve`` in a process of its own."""

    def __init__(self, *words: str) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        environment.pop("RLWB_SERVE_TOKEN", None)
        command = [sys.executable, "-m", "rlwb.cli", "serve", *words, "--port", "0"]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.child.stderr is not None
        port = self.said(r"listening address=\S+ port=(\d+)")
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port[1]}", timeout=30)

    def said(self, pattern: str) -> re.Match[str]:
        """Wait for a line of the log."""
        lines = []
        assert self.child.stderr is not None
        for line in self.child.stderr:
            lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError("".join(lines))

    def post(self, path: str, content: Any) -> Any:
        answer = self.client.post(path, json=content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def end(self, number: int) -> int:
        self.child.send_signal(number)
        self.child.communicate(timeout=30)
        self.client.close()
        return self.child.returncode


def test_a_killed_process_comes_back_and_a_stopped_one_ends_well(bundle_path: Path, desk: Desk, tmp_path: Path) -> None:
    """What the page of the service shows is asked on the way, by its own commands."""
    words = (str(bundle_path), "--state", str(tmp_path / "j.db"))
    process = Process(*words)
    page = (ROOT / "docs" / "serving" / "service.md").read_text(encoding="utf-8")
    shown = re.findall(r"```console\n\$ (curl .*?)\n(\{.*?)\n```", page, re.DOTALL)
    assert len(shown) >= 5
    for command, expected in shown:
        command = command.replace("localhost:8000", process.client.base_url.netloc.decode())
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        assert shape(json.loads(result.stdout)) == shape(json.loads(expected)), command

    process.post("/v1/orders", ORDER)
    process.post("/v1/bars", bars(desk, 0, desk.ticks // 2))
    decided = process.post("/v1/decisions", {"order_id": "o", "position": 600.0})
    before = process.client.get("/v1/orders").json()
    process.child.send_signal(signal.SIGHUP)
    assert process.said("bundle swapped")
    assert process.post("/v1/decisions", {"order_id": "o"}) == {**decided, "repeated": True}
    assert process.end(signal.SIGKILL) == -signal.SIGKILL

    process = Process(*words)
    assert process.client.get("/v1/orders").json() == before
    assert process.post("/v1/decisions", {"order_id": "o", "position": 500.0}) == {**decided, "repeated": True}
    process.post("/v1/bars", bars(desk, desk.ticks // 2, desk.ticks - 1))
    assert process.post("/v1/decisions", {"order_id": "o", "position": 400.0})["amount"] == 400.0
    assert process.end(signal.SIGTERM) == 0


def shape(value: Any) -> Any:
    """Return what an answer of the page has in common with the one of another bundle: names and kinds of values."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
