"""Feeds of bars: panels and files played tick by tick, sockets, and the pace."""

from __future__ import annotations

import dataclasses
import json
import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, Sessions
from rlwb.serving.feeds import HISTORY, Arrival, SessionsFeed, SocketFeed, bars_of, no_bars, open_feed, paced, read_past
from tests.execution.markets import sessions_of
from tests.market.helpers import random_bars

NAN = float("nan")


def times(arrivals: list[Arrival]) -> list[str]:
    return [f"{one.time:%d %H:%M}" for one in arrivals]


def test_a_panel_tells_each_bar_when_its_tick_is_over() -> None:
    lunch = (("09:30", "09:32"), ("13:00", "13:01"))
    panel = sessions_of([[10.0, NAN, 12.0]], [[100.0, NAN, 300.0]], segments=lunch)
    arrivals = list(SessionsFeed(panel))
    assert times(arrivals) == ["01 09:30", "01 09:31", "01 09:32", "01 13:01"]
    assert [len(one.bars) for one in arrivals] == [0, 1, 0, 1], "a tick without a bar is over all the same"
    assert arrivals[3].bars.to_dict("records") == [
        {
            "instrument": "AAA",
            "datetime": pd.Timestamp("2024-01-01 13:00"),
            **dict.fromkeys(("open", "high", "low", "close"), 12.0),
            "volume": 300.0,
        }
    ]
    assert len(SessionsFeed(panel)) == 4


def test_stamps_are_named_as_the_calendar_says_and_halts_are_told() -> None:
    calendar = Calendar((("09:30", "09:32"),), label="end", weekdays=(0, 1, 2, 3, 4, 5, 6))
    one = sessions_of([[10.0, 11.0]])
    panel = Sessions(
        calendar,
        one.instruments,
        one.dates,
        one.num_ticks,
        one.fields,
        halted=np.array([[False, True]]),
        factor=np.array([2.0]),
    )
    bars = pd.concat([each.bars for each in SessionsFeed(panel)])
    assert [f"{stamp:%H:%M}" for stamp in bars["datetime"]] == ["09:31", "09:32"]
    assert bars["halted"].tolist() == [False, True]
    assert bars["factor"].tolist() == [2.0, 2.0]


def test_the_bars_of_a_day_come_together_and_other_instruments_stay_out() -> None:
    panel = sessions_of([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], instruments=["A", "B", "C"])
    arrivals = list(SessionsFeed(panel, instruments=["C", "A"]))
    assert [one.bars["close"].tolist() for one in arrivals] == [[], [1.0, 5.0], [2.0, 6.0]]


def test_an_early_close_ends_the_day() -> None:
    panel = sessions_of([[1.0, 2.0, NAN], [1.0, 2.0, 3.0]], num_ticks=[2, 3])
    assert times(list(SessionsFeed(panel, ["2024-01-01"]))) == ["01 09:30", "01 09:31", "01 09:32"]


def test_history_reaches_back_to_the_last_sessions_with_a_close() -> None:
    closes = [[1.0, NAN], [2.0, 2.5], [NAN, NAN], [3.0, 3.5], [4.0, 4.5], [9.0, 9.0]]
    feed = SessionsFeed(sessions_of(closes, [[NAN, NAN] if math.isnan(a) else [5.0, 5.0] for a, _ in closes]))
    assert HISTORY == 3
    told = feed.history(np.datetime64("2024-01-06"))
    assert sorted(set(told["datetime"].dt.day)) == [2, 4, 5], "the third has no bar at all"
    assert told["datetime"].is_monotonic_increasing
    assert feed.history(np.datetime64("2024-01-01")).empty


def test_a_file_and_a_data_set_are_played_alike(tmp_path: Path) -> None:
    calendar = Calendar.preset("cn", tick_minutes=30)
    bars = random_bars(calendar, ["000001", "NA"], ["2024-01-03", "2024-01-04"])
    bars.to_csv(tmp_path / "bars.csv", index=False)
    feed = open_feed(tmp_path / "bars.csv", calendar)
    assert isinstance(feed, SessionsFeed)
    assert feed.sessions.save(tmp_path / "panel").is_dir()
    played = [pd.concat([one.bars for one in each]) for each in (feed, open_feed(tmp_path / "panel"))]
    pd.testing.assert_frame_equal(*played)
    merged = played[0].sort_values(["instrument", "datetime"], ignore_index=True)
    given = bars.sort_values(["instrument", "datetime"], ignore_index=True)
    np.testing.assert_array_equal(merged["close"], given["close"])
    assert merged["instrument"].tolist() == given["instrument"].tolist()


def test_a_day_that_the_bars_lack_is_named() -> None:
    with pytest.raises(DataError, match="2024-01-09"):
        SessionsFeed(sessions_of([[1.0, 2.0]]), ["2024-01-01", "2024-01-09"])


@given(speed=st.sampled_from([1.0, 60.0, 600.0]), gaps=st.lists(st.integers(1, 7200), max_size=8))
def test_the_pace_is_that_of_the_market_without_its_breaks(speed: float, gaps: list[int]) -> None:
    moments = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.cumsum([0, *gaps]), unit="s")
    clock, came = [100.0], []

    def sleep(seconds: float) -> None:
        assert seconds > 0
        clock[0] += seconds

    for one in paced([Arrival(each, no_bars()) for each in moments], speed, 60, now=lambda: clock[0], sleep=sleep):
        came.append(clock[0])
        assert one.time == moments[len(came) - 1]
    expected = 100.0 + np.cumsum([0, *(min(gap, 60) / speed for gap in gaps)])
    np.testing.assert_allclose(came, expected)


def test_an_arrival_that_took_long_does_not_hurry_the_next() -> None:
    clock, waits = [0.0], []
    moments = [Arrival(pd.Timestamp("2024-01-01") + pd.Timedelta(minutes=i), no_bars()) for i in range(3)]

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    for number, _ in enumerate(paced(moments, 60, 60, now=lambda: clock[0], sleep=sleep)):
        clock[0] += 2.5 if number == 0 else 0.0
    assert waits == [1.0], "the second comes at once, the third a second after it"


@pytest.mark.parametrize("speed", [0, math.inf])
def test_without_a_pace_nothing_waits(speed: float) -> None:
    moments = [Arrival(pd.Timestamp(2024, 1, day), no_bars()) for day in (1, 2)]
    assert list(paced(moments, speed, 60, sleep=lambda _: pytest.fail("waits"))) == moments


@pytest.mark.parametrize("speed", [-1, math.nan])
def test_a_wrong_speed_is_refused(speed: float) -> None:
    with pytest.raises(ConfigError, match="speed"):
        list(paced([], speed, 60))


@contextmanager
def sender(*connections: bytes) -> Iterator[str]:
    """Serve each of `connections` to one caller after the other; yield the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for content in connections:
            with suppress(OSError):
                caller, _ = server.accept()
                with caller:
                    caller.sendall(content)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def line(minute: int, **bar: object) -> bytes:
    stamp = f"2024-01-02T09:{minute - 1:02}"
    bars = [{"instrument": "A", "datetime": stamp, **bar}] if bar else []
    text = json.dumps({"time": f"2024-01-02T09:{minute:02}", "bars": bars})
    return text.encode() + b"\n"


END = b'{"end": true}\n'


def test_a_socket_tells_bars_and_the_time() -> None:
    with sender(
        line(30) + line(31, close=0.1, volume=None, halted=True) + b'{"time": "2024-01-02T09:32"}\n' + END
    ) as at:
        arrivals = list(SocketFeed(at))
    assert times(arrivals) == ["02 09:30", "02 09:31", "02 09:32"]
    assert [len(one.bars) for one in arrivals] == [0, 1, 0]
    bar = arrivals[1].bars.iloc[0]
    assert bar["close"] == 0.1
    assert math.isnan(bar["volume"])
    assert bar["halted"]
    assert bar["datetime"] == pd.Timestamp("2024-01-02 09:30")


def test_a_number_of_any_length_is_a_number() -> None:
    with sender(line(31, close="#").replace(b'"#"', b"9" * 5000) + END) as at:
        (arrival,) = SocketFeed(at)
    assert arrival.bars["close"].tolist() == [math.inf], "which the market refuses by its own rule"


def test_a_unix_socket_is_one_too(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        feed = open_feed(f"unix:{tmp_path / 's'}")
        arrivals = iter(feed)

        def serve() -> None:
            caller, _ = server.accept()
            with caller:
                caller.sendall(line(30) + END)

        thread = threading.Thread(target=serve)
        thread.start()
        assert times(list(arrivals)) == ["02 09:30"]
        thread.join()


def test_a_lost_connection_is_made_again_and_the_time_does_not_go_back() -> None:
    waits: list[float] = []
    torn = line(33, close=3.0)[:-9]  # cut within a line
    first, second = line(31, close=1.0) + line(32, close=2.0) + torn, line(31, close=1.0) + line(33, close=3.0) + END
    with sender(first, second) as at:
        feed = SocketFeed(at, sleep=waits.append)
        arrivals = list(feed)
    assert times(arrivals) == ["02 09:31", "02 09:32", "02 09:32", "02 09:33"]
    assert [one.bars["close"].tolist() for one in arrivals] == [[1.0], [2.0], [1.0], [3.0]]
    assert (feed.lost, waits) == (1, [1.0])


def test_after_some_attempts_it_gives_up_and_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    waits: list[float] = []
    with pytest.raises(DataError, match=f"tcp://127.0.0.1:{port}"):
        list(SocketFeed(f"tcp://127.0.0.1:{port}", attempts=9, sleep=waits.append))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"hello\n", "JSON"),
        (b"[1]\n", "object"),
        (b'{"bars": []}\n', "time"),
        (b'{"time": "2024-01-02T09:31", "price": 3}\n', "object"),
        (b'{"time": "2024-01-02T09:31Z"}\n', "2024-01-02T09:31Z"),
        (b'{"time": 3}\n', "3"),
        (b'{"time": "2024-01-02T09:31", "bars": [3]}\n', "bars"),
        (line(31, close="3"), "close"),
        (line(31, close=True), "close"),
        (line(31, instrument=7), "instrument"),
        (line(31, price=7), "price"),
        (line(31, halted="no"), "halted"),
        (line(31, datetime="yesterday", close=1), "yesterday"),
        (line(31, datetime="9999-01-01", close=1), "9999-01-01"),
        (b"[" * 50_000 + b"\n", "JSON"),
        (b" " * 3000 + b"\n", "2,000 bytes"),
    ],
)
def test_a_wrong_line_is_refused_by_its_number(content: bytes, named: str) -> None:
    limit = {} if b"[[" in content else {"longest_line": 2000}
    with sender(line(30) + content) as at, pytest.raises(DataError, match=named) as caught:
        list(SocketFeed(at, **limit))
    assert f"{at}, line 2" in str(caught.value)


@pytest.mark.parametrize("address", ["tcp://host", "tcp://host:port", "unix:", "http://host:80", "host:80"])
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        SocketFeed(address)


def test_earlier_days_come_on_the_clock_of_the_bundle_whatever_zone_and_label_they_state(tmp_path: Path) -> None:
    calendar = Calendar((("09:30", "09:32"),), timezone="America/New_York", label="end")
    bars = pd.DataFrame(
        {
            "instrument": "0001",
            "datetime": ["2024-03-01T14:31:00+00:00", "2024-03-01T14:32:00+00:00"],
            **{name: [10.0, 11.0] for name in ("open", "high", "low", "close", "volume")},
        }
    )
    bars.to_csv(tmp_path / "past.csv", index=False)
    past = read_past(tmp_path / "past.csv", calendar)
    past.save(tmp_path / "panel")
    starts = dataclasses.replace(calendar, label="start")
    for source, clock, first in (("past.csv", calendar, 31), ("panel", calendar, 31), ("panel", starts, 30)):
        told, tick = bars_of(read_past(tmp_path / source, clock), np.arange(1))
        assert told["datetime"].tolist() == [pd.Timestamp(f"2024-03-01 09:{first + at}") for at in (0, 1)]
        assert told["instrument"].tolist() == ["0001", "0001"]
        assert tick.tolist() == [0, 1]
    with pytest.raises(ConfigError, match="clock"):
        read_past(tmp_path / "panel", Calendar((("09:30", "09:33"),), timezone="America/New_York"))
