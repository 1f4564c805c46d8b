import io
import math

import numpy as np
import pandas as pd
import pytest

from rlwb.env import ConsoleWriter, CsvWriter, LogBuffer, LogCollector, LogLevel, LogWriter, vectorize_env
from rlwb.env.logs import wanted_level
from rlwb.errors import ConfigError
from tests.env.test_vector import collect
from tests.env.toy import orders, toy_env

NAN = math.nan


def test_collector_keeps_what_reaches_the_level():
    log = LogCollector(LogLevel.INFO)
    log.add_scalar("low", 1, LogLevel.PERIODIC)
    log.add_scalar("a", np.float32(0.5), LogLevel.INFO)
    log.add_scalar("b", np.array([3]), LogLevel.CRITICAL)
    log.add_string("c", "text", LogLevel.INFO)
    log.add_any("d", {1: 2}, LogLevel.INFO)
    assert log.logs() == {"a": (30, 0.5), "b": (40, 3.0), "c": (30, "text"), "d": (30, {1: 2})}
    assert type(log.logs()["b"][1]) is float
    log.reset()
    assert log.logs() == {}


def test_collector_copies_arrays():
    log, array = LogCollector(), np.zeros(2)
    log.add_array("x", array)
    log.add_array("f", pd.Series([1, 2]))
    array[:] = 1
    assert log.logs()["x"][1].tolist() == [0, 0]


def test_collector_without_a_level_follows_the_writers():
    log = LogCollector()
    assert log.wants(LogLevel.PERIODIC)
    assert not log.wants(LogLevel.DEBUG)
    log.wanted = wanted_level([LogWriter(LogLevel.CRITICAL), LogWriter(LogLevel.DEBUG)])
    assert log.wants(LogLevel.DEBUG)
    log.wanted = wanted_level([])
    assert not log.wants(LogLevel.CRITICAL)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda log: log.add_scalar("x", "high"), "'high'"),
        (lambda log: log.add_scalar("x", np.zeros(2)), "one number"),
        (lambda log: log.add_scalar("x", None), "None"),
        (lambda log: log.add_string("x", 3), "log a str"),
        (lambda log: log.add_array("x", [1, 2]), "list"),
        (lambda log: log.add_scalar("reward", 1), "another name"),
        (lambda log: [log.add_scalar("x", 1) for _ in range(2)], "twice"),
    ],
)
def test_collector_refuses(call, words):
    with pytest.raises(ConfigError, match=words):
        call(LogCollector())


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ([1.0, 3.0], None, 2.0),
        ([1.0, 3.0], "reward", 4.0),
        ([1.0, NAN, 3.0], "pa", 2.0),
        ([NAN, NAN], "pa", NAN),
        ([1, np.int64(2)], "n", 1.5),
        (["a", "b"], "text", "a"),
    ],
)
def test_aggregation(values, name, expected):
    got = LogWriter.aggregation(values, name)
    assert got == expected or (math.isnan(got) and math.isnan(expected))


def play(writer, episodes):
    """Call a writer as the batched environment does: once for every finished episode."""
    writer.on_env_all_ready()
    for rewards, values in episodes:
        writer.on_episode(len(rewards), rewards, [values])
    writer.on_env_all_done()


def test_buffer_means_over_the_episodes_that_have_the_value():
    calls = []
    buffer = LogBuffer(lambda episode, done, b: calls.append((episode, done, b.episode_metrics())))
    play(buffer, [([1.0, 2.0], {"pa": 4.0}), ([0.5], {"pa": NAN}), ([0.0], {"pa": 8.0, "ffr": 1.0})])
    metrics = buffer.collect_metrics()
    assert metrics == {"reward": 3.5 / 3, "length": 4 / 3, "pa": 6.0, "ffr": 1.0}
    assert buffer.collect_counts() == {"reward": 3, "length": 3, "pa": 2, "ffr": 1}
    assert [call[:2] for call in calls] == [(True, False)] * 3 + [(False, True)]
    assert calls[0][2] == {"reward": 3.0, "length": 2.0, "pa": 4.0}
    play(buffer, [([1.0], {"pa": NAN})])
    assert math.isnan(buffer.collect_metrics()["pa"])
    assert buffer.collect_counts()["pa"] == 0
    buffer.clear()
    with pytest.raises(ConfigError, match="No episode"):
        buffer.episode_metrics()


def test_levels_and_steps():
    class Steps(LogWriter):
        seen: list = []  # noqa: RUF012

        def log_step(self, reward, contents):
            self.seen.append((reward, contents))

    writer = Steps(LogLevel.INFO)
    writer.on_env_all_ready()
    writer.on_env_reset(0, {})
    writer.on_env_step(0, 1.5, False, {"a": (20, 1.0), "b": (30, 2.0)})
    writer.on_env_step(0, 0.5, True, {})
    assert Steps.seen == [(1.5, {"b": 2.0}), (0.5, {})]
    assert (writer.episode_count, writer.step_count) == (1, 2)


def test_counters_resume():
    writer = LogWriter()
    play(writer, [([1.0, 2.0], {}), ([1.0], {})])
    other = LogWriter()
    other.load_state_dict(writer.state_dict())
    play(other, [([1.0], {})])
    assert (other.global_episode, other.global_step, other.episode_count) == (3, 4, 1)


def test_console_line_by_hand():
    stream = io.StringIO()
    writer = ConsoleWriter(2, total_episodes=3, prefix="train", float_format=".1f", stream=stream)
    play(writer, [([1.0], {"pa": 2.0}), ([3.0], {"pa": NAN}), ([2.0], {"name": "x"})])
    assert stream.getvalue().splitlines() == [
        "train  [2/3]  reward 3.0 (2.0)  length 1.0 (1.0)  pa missing (2.0)",
        "train  [3/3]  reward 2.0 (2.0)  length 1.0 (1.0)",
    ]
    with pytest.raises(ConfigError):
        ConsoleWriter(0)


def test_csv_one_file_a_collect_nothing_overwritten(tmp_path):
    folder = tmp_path / "not" / "there" / "yet"
    writer = CsvWriter(folder)
    play(writer, [([1.0, 0.1 + 0.2], {"pa": 4.0, "who": "a,b"}), ([0.5], {"pa": NAN, "ffr": 1.0})])
    play(writer, [([2.0], {})])
    first = pd.read_csv(folder / "episodes-000001.csv", float_precision="round_trip")
    assert list(first) == ["episode", "length", "reward", "pa", "who", "ffr"]
    assert first["reward"].tolist() == [1.0 + (0.1 + 0.2), 0.5]
    assert first["pa"].isna().tolist() == [False, True]
    assert first["who"].tolist()[0] == "a,b"
    assert pd.read_csv(folder / "episodes-000002.csv")["episode"].tolist() == [2]
    play(CsvWriter(folder), [([3.0], {})])
    assert pd.read_csv(folder / "episodes-000003.csv")["reward"].tolist() == [3.0]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_csv_resumes_behind_its_collect(tmp_path):
    writer = CsvWriter(tmp_path)
    play(writer, [([1.0], {})])
    state = writer.state_dict()
    play(writer, [([2.0], {})])
    resumed = CsvWriter(tmp_path)
    resumed.load_state_dict(state)
    play(resumed, [([9.0], {})])
    second = pd.read_csv(tmp_path / "episodes-000002.csv")
    assert second["reward"].tolist() == [9.0]
    assert second["episode"].tolist() == [1]


def test_csv_keeps_a_collect_that_was_cut_off(tmp_path):
    writer = CsvWriter(tmp_path)
    writer.on_env_all_ready()
    writer.on_episode(1, [1.0], [{}])
    play(writer, [([2.0], {})])
    assert [pd.read_csv(tmp_path / f"episodes-00000{n}.csv")["reward"].tolist() for n in (1, 2)] == [[1.0], [2.0]]


def test_writers_on_an_environment(tmp_path):
    csv, buffer = CsvWriter(tmp_path), LogBuffer(lambda *_: None)
    with vectorize_env(toy_env, orders(8), concurrency=3, loggers=[csv, buffer]) as envs:
        _, _, metrics = collect(envs)
    frame = pd.read_csv(tmp_path / "episodes-000001.csv", float_precision="round_trip")
    assert sorted(frame["pa"]) == sorted(values["pa"] for values in metrics.values())
    assert frame["odd"].count() == buffer.collect_counts()["odd"] == 4
    assert buffer.collect_metrics()["odd"] == 1.0
    assert buffer.collect_metrics()["pa"] == pytest.approx(np.mean([values["pa"] for values in metrics.values()]))
