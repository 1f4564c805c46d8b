"""The monitor: what it counts, what it says of PA and drift, when it falls back, and that its names are documented."""

from __future__ import annotations

import json
import logging
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rlwb.errors import ConfigError
from rlwb.serving.confidence import confidence_sequence
from rlwb.serving.drift import KINDS
from rlwb.serving.monitor import METRICS, FallbackSettings, Histogram, Monitor, advantage_by_source

ROOT = Path(__file__).resolve().parents[2]
DAY = np.datetime64("2024-01-03")
#: Level and spread of one feature over 100 training days, one instrument each.
PART = {
    "mean": 0.0,
    "day": 1.0,
    "rest": 0.0,
    "instrument": 0.0,
    "repeat_day": 0.0,
    "repeat_rest": 0.0,
    "inflation": 1.0,
}
STATISTICS: dict[str, Any] = {
    "columns": ["close"],
    "days": 100,
    "instruments": 1.0,
    "clip": 20.0,
    "profile": [[0.0], [0.0]],
    "low": [-2.0],
    "high": [2.0],
    "statistics": {kind: {name: [value] for name, value in PART.items()} for kind in KINDS},
}


class Made(NamedTuple):
    action: Any
    source: str = "policy"
    repeated: bool = False


class Came(NamedTuple):
    accepted: int = 0
    repeated: int = 0
    corrected: int = 0
    refused: tuple[tuple[int, str], ...] = ()


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def samples(monitor: Monitor) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What a Prometheus server reads."""
    text = monitor.render().decode()
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def busy() -> Monitor:
    """A monitor that has seen one of everything."""
    monitor = Monitor(STATISTICS, bundle={"name": "b", "precision": "float32", "backend": "torch", "rlwb": "1"})
    monitor.requested("/v1/decisions", 200, 0.0012)
    monitor.refused("late_bars")
    monitor.queued(3)
    monitor.decided(0.0004, [Made(2), Made(2), Made(None, "schedule"), Made(0.25, repeated=True)])
    monitor.arrived(Came(5, 1, 2, ((0, "off_grid"),)))
    monitor.registered(2)
    for tick in range(2):
        monitor.observe(["A"], DAY, np.array([tick]), np.array([[0.5]]))
    monitor.finished(DAY, 12.0, {"policy": (0.5, 20.0), "schedule": (0.5, 4.0)})
    monitor.end_day()
    assert monitor.should_fall_back("A", late=True) == "late_bars"
    monitor.shadowed(10.0, 10.0, 100.0)
    monitor.shadowed(10.0, 15.0, 100.0)
    return monitor


def test_prometheus_reads_what_was_counted() -> None:
    found = samples(busy())

    def value(metric: str, **labels: str) -> float:
        return found[f"rlwb_{metric}", tuple(sorted(labels.items()))]

    assert value("decisions_total", source="policy", action="2") == 2
    assert value("decisions_total", source="schedule", action="none") == 1
    assert value("decisions_repeated_total") == 1
    assert value("decision_seconds_count") == 1
    assert value("decision_seconds_bucket", le="0.0003") == 0
    assert value("decision_seconds_bucket", le="0.0005") == 1
    assert value("batch_size_bucket", le="4.0") == 1
    assert value("batch_size_sum") == 4
    assert value("requests_total", route="/v1/decisions", status="200") == 1
    assert value("request_seconds_sum", route="/v1/decisions") == pytest.approx(0.0012)
    assert value("refused_total", reason="late_bars") == 1
    assert value("queue_depth") == 3
    assert [value("bars_total", outcome=one) for one in ("accepted", "repeated", "corrected", "refused")] == [
        5,
        1,
        2,
        1,
    ]
    assert value("bars_refused_total", reason="off_grid") == 1
    assert value("orders_live") == 1
    assert value("orders_finished_total") == 1
    assert value("pa_mean_bp") == 12
    assert value("pa_low_bp") == -math.inf
    assert value("pa_days") == 1
    assert value("drift_days") == 1
    assert value("drift_score", feature="close", statistic="level") == pytest.approx(0.438, abs=0.001)
    assert value("drift_limit") == 310 / 0.05
    assert value("fallbacks_total", reason="late_bars") == 1
    assert value("fallback_cost_bp") == pytest.approx(8.0)  # half of the amount, 16 bp worse
    assert value("traded_share", source="schedule") == 0.5
    assert value("shadow_decisions_total", result="equal") == 1
    assert value("shadow_difference") == pytest.approx(0.025)
    assert value("alerts_total", kind="shadow") == 1
    assert value("bundle_info", name="b", precision="float32", backend="torch", rlwb="1") == 1
    assert value("process_memory_bytes") > 1e6
    assert value("process_threads") >= 1


def test_the_names_of_the_page_are_those_that_are_rendered() -> None:
    page = (ROOT / "docs" / "serving" / "monitoring.md").read_text()
    rows = re.findall(r"^\| `(rlwb_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    written = {name: (kind, tuple(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    assert written == METRICS
    suffix = {"counter": "_total", "info": "_info"}
    families = {
        family.name + suffix.get(family.type, ""): {label for one in family.samples for label in one.labels} - {"le"}
        for family in text_string_to_metric_families(busy().render().decode())
    }
    for name, (kind, labels, _) in METRICS.items():
        shown = {"counter": "", "info": "_info"}.get(kind, "")
        rendered = families.get(name + suffix.get(kind, ""), families.get(name + shown))
        assert rendered == set(labels), name


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "docs" / "serving" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(asked) > 15
    exist = {name for name, _ in samples(busy())}
    for expression in asked:
        names = re.findall(r"rlwb_\w+", expression)
        assert names, expression
        assert set(names) <= exist, expression
        labels = re.findall(r"by \(([\w, ]+)\)|\{(\w+)=", expression)
        known = {label for _, pairs in samples(busy()) for label, _ in pairs}
        for group in labels:
            assert set(re.split(r", ?", group[0] or group[1])) <= known, expression
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_a_quantile_lies_where_its_bucket_says() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    for value in (0.5, 1.5, 1.6, 3.0):
        histogram.add(value)
    assert histogram.counts == [1, 2, 1, 0]
    assert histogram.quantile(0.5) == 1.5  # the first of two in (1, 2]
    assert histogram.quantile(1.0) == 4.0
    assert histogram.sum == pytest.approx(6.6)
    assert math.isnan(Histogram((1.0,)).quantile(0.5))


def test_actions_beyond_the_number_that_is_counted_apart_are_others() -> None:
    monitor = Monitor()
    monitor.decided(1e-4, [Made(number) for number in range(200)] + [Made([0.31, 0.9]), Made(0.0)])
    counts = {row["action"]: row["count"] for row in monitor.overview()["decisions"]}
    assert len(counts) == 64
    assert counts["0"] == 2
    assert counts["other"] == 202 - 2 - 62


def test_the_mean_of_a_day_waits_for_its_end_and_days_count_the_same() -> None:
    monitor = Monitor()
    means = []
    rng = np.random.default_rng(0)
    for day in range(30):
        pa = rng.normal(5.0, 20.0, 1 + day % 3)
        means.append(pa.mean())
        for one in pa:
            monitor.finished(DAY + day, one)
        monitor.finished(DAY + day, math.nan)
    table = monitor.pa_by_day()
    assert len(table) == 29
    assert table["pa"].to_numpy() == pytest.approx(means[:-1])
    monitor.end_day()
    table = monitor.pa_by_day()
    lo, hi = confidence_sequence(np.array(means))
    last = table.iloc[-1]
    assert (last["mean"], last["lo"], last["hi"]) == pytest.approx((np.mean(means), lo[-1], hi[-1]))
    assert monitor.summary().loc["orders without a PA", "value"] == 30


def test_what_each_source_gained_is_measured_by_the_window() -> None:
    """Mean of the window 100; the policy sells 60 of 100 at 101 and 30 at 99, the schedule 10 where no price is."""
    prices = np.array([101.0, 101.0, 99.0, 99.0, np.nan])
    step = np.array([0, 0, 1, 1, 2])
    found = advantage_by_source(
        prices, step, -1, 100.0, [(0, 60.0, "policy"), (1, 30.0, "policy"), (2, 10.0, "schedule")]
    )
    share, gain = found["policy"]
    assert share == pytest.approx(0.9)
    assert gain == pytest.approx((0.6 * 100 - 0.3 * 100) / 0.9)
    assert found["schedule"][0] == 0.1
    assert math.isnan(found["schedule"][1])
    assert {type(part) for pair in found.values() for part in pair} == {float}, "which a journal can hold"


def test_the_cost_of_the_schedule_is_missing_where_the_policy_never_decided() -> None:
    monitor = Monitor()
    assert monitor.overview()["fallback"]["cost_bp"] is None
    monitor.finished(DAY, 1.0, {"schedule": (1.0, 0.0)})
    assert monitor.overview()["fallback"]["cost_bp"] is None
    monitor.finished(DAY, 1.0, {"policy": (1.0, 10.0)})
    assert monitor.overview()["fallback"]["cost_bp"] == pytest.approx(5.0)


def test_inputs_out_of_range_and_sides_never_seen_go_to_the_schedule() -> None:
    monitor = Monitor(STATISTICS, sides=[-1], largest=1e6)
    assert monitor.should_fall_back("A", side=-1, amount=10.0) is None
    assert monitor.should_fall_back("A", side=1, amount=10.0) == "side"
    assert monitor.should_fall_back("A", side=-1, amount=2e6) is None
    assert monitor.overview()["alerts"][0]["kind"] == "size"
    monitor.observe(["A", "B"], DAY, np.zeros(2, int), np.array([[4.1], [0.0]]))
    assert monitor.should_fall_back("A", side=-1) == "out_of_range"
    assert monitor.should_fall_back("B", side=-1) is None
    monitor.observe(["A", "B"], DAY, np.ones(2, int), np.array([[np.nan], [4.1]]))
    assert monitor.should_fall_back("C", side=-1) == "range_today"


@pytest.mark.parametrize(("mode", "reason"), [("off", None), ("warn", None), ("schedule", "drift")])
def test_drift_does_what_was_set(mode: str, reason: str | None) -> None:
    monitor = Monitor(STATISTICS, fallback=FallbackSettings(drift=mode, range_today="off"))  # type: ignore[arg-type]
    for day in range(12):
        for tick in range(2):
            monitor.observe(["A"], DAY + day, np.array([tick]), np.array([[3.5]]))
    assert monitor.drift is not None
    assert monitor.drift.report.alarm
    assert monitor.should_fall_back("A") == reason
    assert ("drift" in {one.kind for one in monitor.alerts}) == (mode != "off")


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="late_bars"):
        FallbackSettings(late_bars="stop")  # type: ignore[arg-type]


def test_alerts_are_logged_once_a_minute_and_counted_always(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    monitor = Monitor(clock=clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            monitor.alert("late_bars", "order 1\nof A")
        clock.now += 61
        monitor.alert("late_bars", "order 2 of A")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [(line["text"], line["unsaid"]) for line in lines] == [("order 1\nof A", 0), ("order 2 of A", 4)]
    assert samples(monitor)["rlwb_alerts_total", (("kind", "late_bars"),)] == 6
    assert [one.text for one in monitor.alerts] == ["order 1\nof A", "order 2 of A"]


def test_the_overview_is_json_and_the_summary_has_numbers() -> None:
    json.dumps(Monitor().overview(), allow_nan=False)
    monitor = busy()
    view = json.loads(json.dumps(monitor.overview(), allow_nan=False))
    assert view["decision"]["count"] == 3
    assert view["fallback"]["parts"]["policy"] == {"share": 0.5, "bp": 20.0}
    assert view["pa"]["lo"] is None
    table = monitor.summary()
    assert list(table.columns) == ["value", "unit"]
    assert table.loc["decisions", "value"] == 3
    assert table.loc["bars accepted", "value"] == 5
    assert math.isnan(Monitor().summary().loc["drift evidence", "value"])


def test_another_bundle_begins_its_drift_anew_and_keeps_the_counts() -> None:
    monitor = busy()
    monitor.use(None, sides=[1], bundle={"name": "c"})
    assert monitor.overview()["drift"] is None
    assert samples(monitor)["rlwb_orders_finished_total", ()] == 1
    assert monitor.should_fall_back("A", side=-1) == "side"
    assert monitor.bundle["name"] == "c"


def test_a_restored_monitor_goes_on_as_if_there_had_been_no_restart() -> None:
    rng = np.random.default_rng(4)
    told = [(DAY + day, rng.normal(), rng.normal(5.0, 20.0)) for day in range(12)]

    def tell(monitor: Monitor, days: slice) -> None:
        for date, level, pa in told[days]:
            for tick in range(2):
                monitor.observe(["A"], date, np.array([tick]), np.array([[level + 0.01 * tick]]))
            monitor.finished(date, pa, {"policy": (0.75, pa), "schedule": (0.25, 0.0)})

    whole = Monitor(STATISTICS)
    tell(whole, slice(0, 12))
    kept = Monitor(STATISTICS)
    tell(kept, slice(0, 10))
    state = json.loads(json.dumps(kept.state(DAY + 7), allow_nan=False))
    again = Monitor(STATISTICS)
    again.restore(state)
    tell(again, slice(5, 12))  # two of the days are told twice
    for part in ("pa", "drift", "fallback"):
        assert json.dumps(again.overview()[part]) == json.dumps(whole.overview()[part])
    other = Monitor(STATISTICS, bundle={"name": "another"})
    other.restore(state)
    assert other.overview()["drift"]["days"] == 0
    assert other.overview()["pa"]["days"] == 7
