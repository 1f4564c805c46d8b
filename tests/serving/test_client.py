"""The client over HTTP: what it sends, what it sends again, and how refusals are told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ServingError
from rlwb.execution import Order
from rlwb.serving.client import Fill, HTTPClient

Answers = list[tuple[int, Any]]


@contextmanager
def server(*answers: tuple[int, Any]) -> Iterator[tuple[str, list[tuple[str, dict[str, str], Any]]]]:
    """Give these answers, one after the other; yield the URL and what was asked: request line, headers, content."""
    left, asked = list(answers), list[tuple[str, dict[str, str], Any]]()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("content-length", 0))
            content = json.loads(self.rfile.read(length)) if length else None
            asked.append((f"{self.command} {self.path}", {k.lower(): v for k, v in self.headers.items()}, content))
            status, body = left.pop(0)
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if status == 503:
                self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *words: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{made.server_port}/", asked
        finally:
            made.shutdown()
            thread.join()


def test_orders_say_what_they_state_and_no_more() -> None:
    day = "2024-03-01"
    one = Order("A", day, "BUY", 0.1 + 0.2, "09:30", f"{day} 11:00", "a", limit_price=5.0)
    two = Order("B", day, "SELL", 7, order_id="b", end=pd.Timestamp("2024-03-02"))
    with server((200, {"order_ids": ["a", "b"]})) as (url, asked):
        assert HTTPClient(url).register([one, two]) == ["a", "b"]
    ((line, headers, content),) = asked
    assert line == "POST /v1/orders"
    assert headers["content-type"] == "application/json"
    assert content == [
        {
            "order_id": "a",
            "instrument": "A",
            "date": day,
            "direction": "BUY",
            "amount": 0.1 + 0.2,
            "start": "09:30:00",
            "end": "11:00:00",
            "limit_price": 5.0,
        },
        {"order_id": "b", "instrument": "B", "date": day, "direction": "SELL", "amount": 7.0, "end": "24:00"},
    ]


def test_a_full_service_is_asked_again_under_the_same_key() -> None:
    full = (503, {"error": "full", "reason": "full"})
    with server(full, full, (200, {"positions": [1.0]}), (200, {"positions": [0.0]})) as (url, asked):
        client = HTTPClient(url, token="t" * 16)
        client.report([Fill("a/0", "a", 1.0, 2.0)])
        client.report([Fill("a/1", "a", 1.0, 2.0)])
    keys = [headers["idempotency-key"] for _, headers, _ in asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert asked[2][2] == [{"fill_id": "a/0", "order_id": "a", "amount": 1.0, "price": 2.0}]
    assert asked[0][1]["authorization"] == "Bearer " + "t" * 16


def test_a_service_that_stays_full_is_told_by_its_reason() -> None:
    full = (503, {"error": "1024 decisions wait", "reason": "full"})
    with server(full, full) as (url, asked), pytest.raises(ServingError, match="1024 decisions wait") as caught:
        HTTPClient(url, attempts=1).decide(["a"], [1.0])
    assert caught.value.reason == "full"
    assert len(asked) == 2


def test_bars_are_columns_with_nulls_and_the_time_until_which_all_is_over() -> None:
    stamps = pd.to_datetime(["2024-03-01 09:30", "2024-03-01 09:30"])
    bars = pd.DataFrame({"instrument": ["A", "B"], "datetime": stamps, "close": [0.1, np.nan], "halted": [True, False]})
    answer = (
        200,
        {"accepted": 1, "repeated": 0, "corrected": 0, "refused": [{"index": 1, "reason": "price_negative"}]},
    )
    with server(answer, answer) as (url, asked):
        client = HTTPClient(url)
        assert client.add_bars(bars, until=pd.Timestamp("2024-03-01 09:31")) == ["price_negative"]
        client.add_bars(bars[:0], until=pd.Timestamp("2024-03-01 09:32"))
        assert client.add_bars(bars[:0]) == []
    assert asked[0][2] == {
        "instrument": ["A", "B"],
        "datetime": ["2024-03-01T09:30:00"] * 2,
        "close": [0.1, None],
        "until": "2024-03-01T09:31:00",
    }
    assert asked[1][2]["until"] == "2024-03-01T09:32:00"
    assert len(asked) == 2, "nothing to tell is not told"


def test_decisions_that_are_refused_stand_among_the_others() -> None:
    given = {"order_id": "a", "step": 0, "amount": 2.5, "action": 1, "source": "schedule", "reason": "drift"}
    with server((200, [given, {"error": "no such order", "reason": "unknown_order", "order_id": "b"}])) as (url, asked):
        one, two = HTTPClient(url).decide(["a", "b"], [5.0, 6.0])
    assert one == (2.5, 1, "schedule", "drift")
    assert np.isnan(two.amount)
    assert two[1:] == (None, "refused", "unknown_order")
    assert asked[0][2] == [{"order_id": "a", "position": 5.0}, {"order_id": "b", "position": 6.0}]


def test_orders_that_are_gone_are_passed_over_and_ids_are_quoted() -> None:
    with server((404, {"error": "unknown", "reason": "unknown_order"}), (200, {})) as (url, asked):
        HTTPClient(url).forget(["a/b", "c d"])
    assert [line for line, _, _ in asked] == ["DELETE /v1/orders/a%2Fb", "DELETE /v1/orders/c%20d"]


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        ((422, {"error": "the date is closed", "reason": "bad_order"}), "bad_order", "the date is closed"),
        ((200, b"<html>"), "bad_answer", "JSON"),
        ((500, [1]), "refused", "500"),
    ],
)
def test_refusals_and_odd_answers_are_told(answer: tuple[int, Any], reason: str, words: str) -> None:
    with server(answer) as (url, _), pytest.raises(ServingError, match=words) as caught:
        HTTPClient(url).order("a")
    assert caught.value.reason == reason
