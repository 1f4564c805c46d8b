"""The load generator against a server that does as it is told, the search for the highest load, rows and table."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from benchmarks import serving, soak
from benchmarks.load import Load, drive, request
from benchmarks.plain import Handler, Model
from benchmarks.table import RESULTS, insert

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def server(answer: Callable[[int], bytes | None]) -> Iterator[int]:
    """Answer each request by its number on its connection; None closes the connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def talk(connection: socket.socket) -> None:
        number = 0
        with connection:
            while data := connection.recv(1 << 16):
                assert data.startswith(b"POST /x HTTP/1.1\r\n")
                said = answer(number)
                number += 1
                if said is None:
                    return
                connection.sendall(said[:20])
                connection.sendall(said[20:])

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def whole(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d Some Words\r\nServer: x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


REQUESTS = [request("POST", "/x", b"%d" % number) for number in range(60)]


@pytest.mark.parametrize("rate", [None, 2000.0])
def test_every_request_is_answered_once(rate: float | None) -> None:
    with server(lambda number: whole(b"abc", 503 if number == 3 else 200)) as port:
        found = drive(port, REQUESTS, 4, rate=rate)
    assert sorted(found.place.tolist()) == list(range(60))
    assert set(found.bodies) == {b"abc"}
    assert (found.status == 503).sum() == 4
    assert not found.is_sound
    assert found.rate == pytest.approx(56 / found.seconds)
    assert (found.latency > 0).all()


def test_a_connection_that_the_server_closes_is_opened_again() -> None:
    with server(lambda number: None if number == 5 else whole(b"")) as port:
        found = drive(port, REQUESTS, 2)
    assert found.is_sound
    assert len(found.place) == 60


def test_no_request_is_sent_after_the_time() -> None:
    with server(lambda number: time.sleep(0.01) or whole(b"")) as port:
        assert 0 < len(drive(port, REQUESTS, 1, seconds=0.1).place) < 60


def test_latency_counts_from_when_a_request_was_due() -> None:
    """One stall of 0.3 s on the only connection is borne by all that fall due meanwhile, not by one of them."""
    with server(lambda number: (time.sleep(0.3) if number == 0 else None) or whole(b"")) as port:
        found = drive(port, REQUESTS, 1, rate=1000)
    assert (found.latency > 0.15).sum() > 20


def load(rate: float, p99_ms: float) -> Load:
    latency = np.full(1000, p99_ms / 1e3)
    return Load(latency, np.full(1000, 200), np.arange(1000), [], 1000 / rate)


def test_the_highest_load_is_the_last_below_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose p99 is 1 ms below 1,000 requests/s and 100 ms above."""
    monkeypatch.setattr(serving, "drive", lambda port, some, n, rate, seed: load(rate, 1.0 if rate <= 1000 else 100.0))
    for start in (100.0, 990.0, 4000.0):
        found = serving.highest(lambda count: [b""] * count, 0, start, 1.0, 25.0)
        assert 900 < found.rate <= 1000
    monkeypatch.setattr(serving, "drive", lambda port, some, n, rate, seed: load(rate, 100.0))
    with pytest.raises(SystemExit, match="above 25 ms"):
        serving.highest(lambda count: [b""] * count, 0, 100.0, 1.0, 25.0)


def test_ratios_above_one_are_in_rlwbs_favour_whatever_the_unit() -> None:
    rows = serving.Rows()
    rows.add("latency", "ms", (0.5, 2.0), (5.0, 20.0), goal=1.0, goal_p99=1.5)
    rows.add("single request", "requests/s", (3000.0, 20.0), (100.0, 24.0), goal=3000, goal_ratio=10)
    rows.add("alone", "decisions/s", (7.0, None))
    assert [row["ratio"] for row in rows.rows] == [10.0, 30.0, None]
    assert [row["met"] for row in rows.rows] == [False, True, None]
    about = {"machine": "M", "date": "D"}
    table = serving.markdown([{**row, **about} for row in rows.rows]).splitlines()
    assert "| latency | ms, median | 0.500 | 2.00 | 5.00 | 20.0 | 10.0× | ≤ 1 ms, p99 ≤ 1.5 ms, missed |" in table
    assert "| alone | decisions/s | 7.00 | – | – | – | – |  |" in table


def test_the_table_of_the_page_is_that_of_the_results() -> None:
    page = (ROOT / "docs" / "serving" / "speed.md").read_text(encoding="utf-8")
    if not RESULTS.with_name("serving.json").exists():
        assert insert(page, "", "serving").replace("\n\n<!-- /", "\n<!-- /") == page
        return
    rows = json.loads(RESULTS.with_name("serving.json").read_text(encoding="utf-8"))
    assert insert(page, serving.markdown(rows), "serving") == page, "run python -m benchmarks.serving --into the page"
    (single,) = [row for row in rows if row["figure"] == "single request"]
    assert {"figure", "unit", "rlwb", "plain_handler", "ratio", "p99_rlwb", "p99_plain"} <= single.keys()


def test_the_plain_handler_asks_for_all_that_is_left_in_the_last_step(tmp_path: Path) -> None:
    import torch

    model = Model(5, 4, 3)
    with torch.no_grad():
        model.actor.weight.zero_()
        model.actor.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))  # half of the order
    torch.save(model.state_dict(), tmp_path / "plain.pt")
    settings = {"mean": [0.0] * 5, "scale": [1.0] * 5, "clip": 20.0, "hidden": 4, "shares": [0.0, 0.5, 1.0]}
    (tmp_path / "plain.json").write_text(json.dumps(settings))
    handler = Handler(tmp_path)
    bar = dict.fromkeys(("open", "high", "low", "close"), 10.0) | {"volume": 100.0}
    asked = {"direction": "BUY", "amount": 8.0, "steps": 3, "previous_close": 10.0, "mean_volume": 100.0}
    assert handler.amount({**asked, "path": [8.0], "bars": []}) == 4.0
    assert handler.amount({**asked, "path": [8.0, 3.0], "bars": [bar]}) == 3.0
    assert handler.amount({**asked, "path": [8.0, 8.0, 7.0], "bars": [bar, bar]}) == 7.0


def test_the_soak_tells_growth_and_what_was_lost() -> None:
    tally = soak.Tally(requests=3, lost_orders=1)
    tally.rss = [[[0.0, 90.0], [3.0, 100.0]], [[at, 100.0 + 10 * at] for at in range(31)]]
    found = soak.figures(tally, 5.0)
    assert (found["rss_start"], found["rss_end"], found["rss_max"]) == (100.0, 400.0, 400.0)
    assert found["rss_grown_in_last_life"] == 200.0
    assert "grew from 200.0 to 400.0 MB" in found["faults"][0]
    assert found["lost_orders"] == 1
