"""The monitor of a service: figures for Prometheus, notebooks and its page, alerts, and when to fall back."""

from __future__ import annotations

import json
import logging
import math
import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from rlwb.errors import ConfigError
from rlwb.serving.confidence import confidence_sequence
from rlwb.serving.drift import KINDS, DriftReport, DriftTest

if TYPE_CHECKING:
    import pandas as pd

#: Upper bounds of the latency histograms in seconds: 0.02 to 50 ms, then a second.
LATENCY = (2e-5, 5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4, 5e-4, 7.5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 0.01, 0.02, 0.05, 1.0)
#: The route whose times the page and the summary show.
DECISIONS = "/v1/decisions"
#: Upper bounds of the number of decisions in a batch.
BATCH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)
#: Different actions that are counted apart; further ones are "other".
MOST_ACTIONS = 64
#: Alerts of one kind are logged at most once in this many seconds; all are counted.
ALERT_SECONDS = 60.0

#: Name to kind, labels and meaning of each metric; docs/serving/monitoring.md has the same table.
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "rlwb_bundle": ("info", ("name", "precision", "backend", "rlwb"), "The bundle that decides."),
    "rlwb_request_seconds": ("histogram", ("route",), "Time from a request's arrival to its answer."),
    "rlwb_requests": ("counter", ("route", "status"), "Requests answered."),
    "rlwb_refused": ("counter", ("reason",), "Requests, or entries of them, that were refused."),
    "rlwb_queue_depth": ("gauge", (), "Decisions that wait for a batch."),
    "rlwb_batch_size": ("histogram", (), "Decisions in a batch."),
    "rlwb_decision_seconds": ("histogram", (), "Time in which a batch was decided, inference included."),
    "rlwb_decisions": ("counter", ("source", "action"), "Decisions, by who decided and what."),
    "rlwb_decisions_repeated": ("counter", (), "Decisions that were asked for again."),
    "rlwb_bars": ("counter", ("outcome",), "Bars: accepted, repeated, corrected, refused; late ones are accepted too."),
    "rlwb_bars_refused": ("counter", ("reason",), "Bars that were refused."),
    "rlwb_orders_live": ("gauge", (), "Orders that are open."),
    "rlwb_orders_finished": ("counter", (), "Orders that ended."),
    "rlwb_pa_mean_bp": ("gauge", (), "Mean over days of the mean PA of their finished orders, basis points."),
    "rlwb_pa_low_bp": ("gauge", (), "Lower bound of its confidence sequence."),
    "rlwb_pa_high_bp": ("gauge", (), "Upper bound of its confidence sequence."),
    "rlwb_pa_days": ("gauge", (), "Days that are over and have a finished order with a PA."),
    "rlwb_drift_evidence": ("gauge", (), "How many times likelier the days are under a change of inputs than without."),
    "rlwb_drift_limit": ("gauge", (), "The evidence from which on it is an alarm."),
    "rlwb_drift_days": ("gauge", (), "Days that were judged."),
    "rlwb_drift_score": ("gauge", ("feature", "statistic"), "Normal score of the last day that was judged."),
    "rlwb_drift_feature_evidence": ("gauge", ("feature",), "Evidence of a feature by itself."),
    "rlwb_out_of_range": ("gauge", ("feature",), "Share of today's values far outside the training's range."),
    "rlwb_alarm": ("gauge", ("kind",), "1 while inputs have drifted or are out of range."),
    "rlwb_alerts": ("counter", ("kind",), "Alerts."),
    "rlwb_fallbacks": ("counter", ("reason",), "Decisions by the schedule in place of the policy."),
    "rlwb_traded_share": ("gauge", ("source",), "Share of the finished orders' amounts, by who decided."),
    "rlwb_advantage_bp": ("gauge", ("source",), "Price advantage of what each decided, by benchmark, basis points."),
    "rlwb_fallback_cost_bp": ("gauge", (), "What finished orders lost to the schedule's decisions, basis points."),
    "rlwb_shadow_decisions": ("counter", ("result",), "Decisions of the second bundle, equal or different."),
    "rlwb_shadow_difference": ("gauge", (), "Mean difference of its amounts as a share of the order."),
    "rlwb_process_cpu_seconds": ("counter", (), "Processor time of the process."),
    "rlwb_process_memory_bytes": ("gauge", (), "Resident memory of the process."),
    "rlwb_process_threads": ("gauge", (), "Threads of the process."),
    "rlwb_process_start_seconds": ("gauge", (), "When the monitor began, seconds since 1970."),
}

Mode = Literal["off", "warn", "schedule"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FallbackSettings:
    """What is done about orders whose inputs are not to be trusted: nothing, an alert, or an alert and the schedule.

    Parameters
    ----------
    drift
        The features of the last days are not those of the training; see `rlwb.serving.drift`.
    range_today
        More than half of today's values of a feature are far outside the training's range.
    out_of_range
        The newest features of the order's own instrument are far outside the training's range, or not finite.
    late_bars
        Bars that the decision needs are not there by the caller's clock.
    side
        The training had no order of this side.
    size
        The order is larger than the largest of the training.
    """

    drift: Mode = "warn"
    range_today: Mode = "schedule"
    out_of_range: Mode = "schedule"
    late_bars: Mode = "schedule"
    side: Mode = "schedule"
    size: Mode = "warn"

    def __post_init__(self) -> None:
        for name, mode in vars(self).items():
            if mode not in ("off", "warn", "schedule"):
                raise ConfigError(f"fallback {name} is {mode!r}; write 'off', 'warn' or 'schedule'.")


class DecisionLike(Protocol):
    """What the monitor reads of `rlwb.serving.policy.Decision`."""

    @property
    def action(self) -> Any: ...  # a number, the numbers of several parts, or None by the schedule
    @property
    def source(self) -> str: ...
    @property
    def repeated(self) -> bool: ...


class ArrivalsLike(Protocol):
    """What the monitor reads of `rlwb.serving.live.Arrivals`."""

    @property
    def accepted(self) -> int: ...
    @property
    def repeated(self) -> int: ...
    @property
    def corrected(self) -> int: ...
    @property
    def refused(self) -> Sequence[tuple[int, str]]: ...


class Alert(NamedTuple):
    """Something that a person should know."""

    at: float  # seconds since 1970
    kind: str
    text: str


class Histogram:
    """Counts of values by upper bounds, with their sum; a tenth of the time of one of prometheus_client."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def quantile(self, level: float) -> float:
        """Return a quantile, interpolated within its bucket as Prometheus does; NaN without values."""
        target, below = level * self.count, 0
        for at, number in enumerate(self.counts):
            if number and below + number >= target:
                low = self.bounds[at - 1] if at else 0.0
                high = self.bounds[min(at, len(self.bounds) - 1)]
                return low + (high - low) * (target - below) / number
            below += number
        return math.nan

    def cumulative(self) -> list[tuple[str, float]]:
        """Return the cumulative counts by bound, as text, ending with ``+Inf``."""
        sums = np.cumsum(self.counts).tolist()
        names = [*(repr(float(bound)) for bound in self.bounds), "+Inf"]
        return [(name, float(number)) for name, number in zip(names, sums, strict=True)]


class Monitor:
    """Counts what a service does, judges its inputs and results, and says when to fall back to the schedule.

    Calls take some microseconds. They come from one thread; `render`, `summary` and `overview` too.

    Parameters
    ----------
    statistics
        Of the training's features, by `rlwb.serving.drift.training_statistics`; None for a policy that reads no bars.
    sides
        Sides that the training had orders of, of -1 (sell) and 1 (buy).
    largest
        The largest amount of a training order; None is not known.
    fallback
        What is done about inputs that are not to be trusted.
    bundle
        Labels of the metric ``rlwb_bundle``: name, precision, backend, rlwb.
    alpha
        Largest probability of a false alarm of drift in a year.
    level
        Of the confidence sequence of the mean PA.
    clock
        Returns seconds since 1970.
    """

    def __init__(
        self,
        statistics: Mapping[str, Any] | None = None,
        *,
        sides: Iterable[int] = (-1, 1),
        largest: float | None = None,
        fallback: FallbackSettings | None = None,
        bundle: Mapping[str, str] | None = None,
        alpha: float = 0.05,
        level: float = 0.95,
        clock: Callable[[], float] = time.time,
    ) -> None:
        try:
            import prometheus_client
            import psutil
        except ImportError as error:
            raise ConfigError(
                f"watching a service needs the package {error.name}; pip install 'rlwb[serve]'."
            ) from None
        self.fallback = fallback or FallbackSettings()
        self.level, self.alpha = level, alpha
        self.requests: dict[str, Histogram] = {}
        self.decision_seconds, self.batch_size = Histogram(LATENCY), Histogram(BATCH)
        self.queue_depth = self.orders_live = 0
        self.alerts: deque[Alert] = deque(maxlen=50)
        self._count: dict[str, Counter[tuple[str, ...]]] = {
            name: Counter() for name, (kind, _, _) in METRICS.items() if kind == "counter"
        }
        self._actions: dict[float | None, str] = {None: "none"}
        self._days: dict[np.datetime64, list[float]] = {}  # sum and number of the PA of its orders
        self._today: np.datetime64 | None = None
        self._since: np.datetime64 | None = None
        # Share and share times advantage, by day and by who decided.
        self._parts: dict[np.datetime64, dict[str, list[float]]] = {}
        self._without_pa = 0
        self._shadow = [0.0, 0.0]
        self._clock, self._begin = clock, clock()
        self._logged: dict[str, float] = {}
        self._unsaid: Counter[str] = Counter()
        self._process = psutil.Process()
        self._process.cpu_percent(None)  # measured from here on
        self._text = prometheus_client.generate_latest
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(self))
        self.use(statistics, sides=sides, largest=largest, bundle=bundle)

    def use(
        self,
        statistics: Mapping[str, Any] | None,
        *,
        sides: Iterable[int] = (-1, 1),
        largest: float | None = None,
        bundle: Mapping[str, str] | None = None,
    ) -> None:
        """Watch another bundle from now on; drift begins anew, what was counted stays."""
        self.drift = None if statistics is None else DriftTest(statistics, self.alpha)
        self._sides, self._largest = frozenset(sides), math.inf if largest is None else largest
        self.bundle = {name: str((bundle or {}).get(name, "")) for name in METRICS["rlwb_bundle"][1]}

    # What the service tells

    def requested(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered: its route as a pattern, HTTP status and time."""
        histogram = self.requests.get(route)
        if histogram is None:
            histogram = self.requests[route] = Histogram(LATENCY)
        histogram.add(seconds)
        self._count["rlwb_requests"][route, str(status)] += 1

    def refused(self, reason: str, count: int = 1) -> None:
        """Count what was refused, by the reason of its `ServingError`."""
        self._count["rlwb_refused"][(reason,)] += count

    def queued(self, depth: int) -> None:
        """Take the number of decisions that wait."""
        self.queue_depth = depth

    def decided(self, seconds: float, decisions: Sequence[DecisionLike]) -> None:
        """Count the decisions of a batch that took `seconds`."""
        self.decision_seconds.add(seconds)
        self.batch_size.add(len(decisions))
        count, actions = self._count["rlwb_decisions"], self._actions
        for one in decisions:
            if one.repeated:
                self._count["rlwb_decisions_repeated"][()] += 1
            else:
                action = one.action[0] if isinstance(one.action, list) else one.action
                count[one.source, actions.get(action) or self._name(action)] += 1

    def _name(self, action: float) -> str:
        """Return the label of an action: a whole number, or one rounded to tenths."""
        text = f"{action:.1f}".removesuffix(".0")
        if text not in self._actions.values() and len(set(self._actions.values())) >= MOST_ACTIONS:
            text = "other"
        if len(self._actions) < 4096:
            self._actions[action] = text
        return text

    def arrived(self, arrivals: ArrivalsLike) -> None:
        """Count bars that came."""
        count = self._count["rlwb_bars"]
        for name in ("accepted", "repeated", "corrected", "late"):
            if number := getattr(arrivals, name, 0):
                count[(name,)] += number
        if arrivals.refused:
            count[("refused",)] += len(arrivals.refused)
            self._count["rlwb_bars_refused"].update((reason,) for _, reason in arrivals.refused)

    def observe(self, instruments: Sequence[str], date: np.datetime64, ticks: np.ndarray, values: np.ndarray) -> None:
        """Take the normalised features of ticks that are over; see `DriftTest.observe`."""
        self._reach(date)
        if self.drift is None:
            return
        ended = self.drift.observe(instruments, date, ticks, values)
        if ended is not None:
            self._judged(ended)
        if self.drift.range_alarm and self.fallback.range_today != "off":
            names = [n for n, s in zip(self.drift.columns, self.drift.share_out_of_range, strict=True) if s > 0.5]
            self.alert("range_today", f"most values of {', '.join(names)} on {date} are far outside the training's")

    def registered(self, count: int = 1) -> None:
        """Take note of orders that are open from now on."""
        self.orders_live += count

    def cancelled(self, count: int = 1) -> None:
        """Take note of orders that are gone without an end."""
        self.orders_live -= count

    def finished(
        self, date: np.datetime64, pa_bp: float, parts: Mapping[str, tuple[float, float]] | None = None
    ) -> None:
        """Take the result of an order that ended.

        Parameters
        ----------
        date
            Its day.
        pa_bp
            Its PA in basis points; NaN where it cannot be computed.
        parts
            Of who decided, what `advantage_by_source` gave.
        """
        self.orders_live = max(self.orders_live - 1, 0)
        self._count["rlwb_orders_finished"][()] += 1
        date = date.astype("datetime64[D]")
        self._reach(date)
        if self._since is not None and date < self._since:
            return
        for source, (share, advantage) in (parts or {}).items():
            if math.isfinite(advantage):
                sums = self._parts.setdefault(date, {}).setdefault(source, [0.0, 0.0])
                sums[0] += share
                sums[1] += share * advantage
        if not math.isfinite(pa_bp):
            self._without_pa += 1
            return
        day = self._days.setdefault(date, [0.0, 0.0])
        day[0] += pa_bp
        day[1] += 1

    def end_day(self) -> DriftReport | None:
        """Judge the day that is under way now, without waiting for a bar of the next."""
        ended = None if self.drift is None else self.drift.close_day()
        if ended is not None:
            self._judged(ended)
        if self._today is not None:
            self._today += np.timedelta64(1, "D")
        return ended

    def state(self, before: np.datetime64, judged: np.datetime64 | None = None) -> dict[str, Any]:
        """Return the results of the days before one, as values that JSON holds, for `restore`.

        Evidence of drift is that of the days before `judged`: the features of a day are the same again only where the
        day before it is told again too.
        """
        return {
            "before": str(before.astype("datetime64[D]")),
            "bundle": self.bundle,
            "days": {str(date): sums for date, sums in self._days.items() if date < before},
            "parts": {str(date): parts for date, parts in self._parts.items() if date < before},
            "drift": None if self.drift is None else self.drift.state(judged or before),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state` after a restart; what is told again of the days before it is not counted twice.

        Evidence of drift is taken over if the bundle is the same.
        """
        self._since = np.datetime64(state["before"], "D")
        self._days = {np.datetime64(date, "D"): list(sums) for date, sums in state["days"].items()}
        self._parts = {
            np.datetime64(date, "D"): {source: list(sums) for source, sums in parts.items()}
            for date, parts in state["parts"].items()
        }
        self._reach(self._since)
        if self.drift is not None and state["drift"] is not None and state["bundle"] == self.bundle:
            self.drift.restore(state["drift"])

    def _reach(self, date: np.datetime64) -> None:
        date = date.astype("datetime64[D]")
        if self._today is None or date > self._today:
            self._today = date

    def _judged(self, report: DriftReport) -> None:
        if report.alarm and self.fallback.drift != "off":
            worst = report.columns[int(report.by_feature.argmax())]
            self.alert("drift", f"inputs until {report.date} differ from the training's: evidence {report.evidence:.3g}"
                       f" of {report.limit:.3g}, most of {worst}")  # fmt: skip

    def shadowed(self, amount: float, other: float, of: float, order_id: str = "") -> None:
        """Compare an amount with the second bundle's, in shares of the order's amount `of`."""
        difference = abs(amount - other) / of
        same = difference <= 1e-9
        self._count["rlwb_shadow_decisions"]["equal" if same else "different",] += 1
        self._shadow[0] += 1
        self._shadow[1] += difference
        if not same:
            self.alert("shadow", f"order {order_id}: {amount:g} here, {other:g} by the shadow")

    def alert(self, kind: str, text: str) -> None:
        """Count an alert; keep and log it if none of its kind was within `ALERT_SECONDS`."""
        self._count["rlwb_alerts"][(kind,)] += 1
        now = self._clock()
        if now - self._logged.get(kind, -math.inf) < ALERT_SECONDS:
            self._unsaid[kind] += 1
            return
        self._logged[kind] = now
        self.alerts.append(Alert(now, kind, text))
        unsaid = self._unsaid.pop(kind, 0)
        _log.warning("%s", json.dumps({"alert": kind, "text": text, "unsaid": unsaid, "at": round(now, 3)}))

    # What the service asks

    def should_fall_back(
        self, instrument: str, *, side: int = 0, amount: float = 0.0, late: bool = False, order_id: str = ""
    ) -> str | None:
        """Return why a decision is to be the schedule's, or None; alerts are given on the way.

        Parameters
        ----------
        instrument, side, amount
            The order's.
        late
            Whether bars that the decision needs are missing by the caller's clock.
        """
        settings, drift = self.fallback, self.drift
        found: list[tuple[str, Mode]] = []
        if late:
            found.append(("late_bars", settings.late_bars))
        if drift is not None:
            if drift.out_of_range(instrument):
                found.append(("out_of_range", settings.out_of_range))
            if drift.values_outside.any() and drift.range_alarm:
                found.append(("range_today", settings.range_today))
            if drift.report.alarm:
                found.append(("drift", settings.drift))
        if side and side not in self._sides:
            found.append(("side", settings.side))
        if amount > self._largest:
            found.append(("size", settings.size))
        if not found:
            return None
        for kind, mode in found:
            if mode != "off" and kind not in ("drift", "range_today"):  # those are told when they are found
                self.alert(kind, f"order {order_id or '?'} of {instrument}")
        reason = next((kind for kind, mode in found if mode == "schedule"), None)
        if reason is not None:
            self._count["rlwb_fallbacks"][(reason,)] += 1
        return reason

    # What people read

    def pa_by_day(self) -> pd.DataFrame:
        """Return mean PA of each day that is over and its confidence sequence: date, orders, pa, mean, lo, hi in bp."""
        import pandas as pd

        dates = sorted(date for date in self._days if self._today is None or date < self._today)
        sums = np.array([self._days[date] for date in dates], dtype=np.float64).reshape(-1, 2)
        pa = sums[:, 0] / np.maximum(sums[:, 1], 1)
        lo, hi = confidence_sequence(pa, level=self.level)
        mean = np.cumsum(pa) / np.arange(1, len(pa) + 1)
        days = np.array(dates, dtype="datetime64[D]")
        return pd.DataFrame(
            {"date": days, "orders": sums[:, 1].astype(int), "pa": pa, "mean": mean, "lo": lo, "hi": hi}
        )

    def summary(self) -> pd.DataFrame:
        """Return the figures, one a row: figure, value (NaN where there is none yet) and unit."""
        import pandas as pd

        view = self.overview()
        milliseconds = [
            (f"{name} {level}", view[name][level], "ms") for name in ("decision", "request") for level in ("p50", "p99")
        ]
        decisions = self._sum("rlwb_decisions")
        rows = [
            ("decisions", decisions, ""),
            ("decisions by schedule", self._sum("rlwb_decisions", ("schedule",)), ""),
            ("decisions repeated", self._sum("rlwb_decisions_repeated"), ""),
            *milliseconds,
            ("requests", view["request"]["count"], ""),
            ("refused", self._sum("rlwb_refused"), ""),
            *((f"bars {name}", self._sum("rlwb_bars", (name,)), "") for name in ("accepted", "late", "refused")),
            ("orders live", self.orders_live, ""),
            ("orders finished", self._sum("rlwb_orders_finished"), ""),
            ("orders without a PA", self._without_pa, ""),
            *((f"PA {name}", view["pa"][name], "bp") for name in ("mean", "lo", "hi")),
            ("PA days", view["pa"]["days"], ""),
            ("drift evidence", view["drift"] and view["drift"]["evidence"], ""),
            ("drift limit", view["drift"] and view["drift"]["limit"], ""),
            ("drift days", view["drift"] and view["drift"]["days"], ""),
            ("fallbacks", self._sum("rlwb_fallbacks"), ""),
            ("fallback cost", view["fallback"]["cost_bp"], "bp"),
            ("alerts", self._sum("rlwb_alerts"), ""),
            ("processor", view["process"]["cpu_percent"], "%"),
            ("memory", view["process"]["memory_bytes"] / 2**20, "MiB"),
            ("threads", view["process"]["threads"], ""),
        ]
        table = pd.DataFrame(rows, columns=["figure", "value", "unit"])
        return table.assign(value=table["value"].astype(float)).set_index("figure")

    def overview(self) -> dict[str, Any]:
        """Return what the page shows, as values that JSON holds; None where there is no number."""
        days = self.pa_by_day()
        last = days.iloc[-1] if len(days) else None
        requests = self.requests.get(DECISIONS, Histogram(LATENCY))
        fallbacks = {reason: number for (reason,), number in self._count["rlwb_fallbacks"].items()}
        return {
            "at": self._clock(),
            "since": self._begin,
            "bundle": self.bundle,
            "request": {
                **_times(requests),
                "count": requests.count,
                "bounds": list(requests.bounds),
                "counts": requests.counts,
            },
            "decision": {**_times(self.decision_seconds), "count": self._sum("rlwb_decisions")},
            "decisions": [
                {"source": source, "action": action, "count": number}
                for (source, action), number in sorted(self._count["rlwb_decisions"].items())
            ],
            "queue": self.queue_depth,
            "refused": {reason: number for (reason,), number in self._count["rlwb_refused"].items()},
            "bars": {name: number for (name,), number in self._count["rlwb_bars"].items()},
            "orders": {"live": self.orders_live, "finished": self._sum("rlwb_orders_finished")},
            "pa": {
                "level": self.level,
                "days": len(days),
                **{name: _number(last[name]) if last is not None else None for name in ("mean", "lo", "hi")},
                "by_day": [
                    {
                        "date": f"{row.date:%Y-%m-%d}",
                        **{n: _number(getattr(row, n)) for n in ("pa", "mean", "lo", "hi")},
                    }
                    for row in days.tail(250).itertuples()
                ],
            },
            "drift": self._drift_overview(),
            "fallback": {"by_reason": fallbacks, "cost_bp": _number(self.fallback_cost()), "parts": self._advantages()},
            "shadow": {
                **{name: self._sum("rlwb_shadow_decisions", (name,)) for name in ("equal", "different")},
                "difference": _number(self._shadow[1] / self._shadow[0]) if self._shadow[0] else None,
            },
            "alerts": [one._asdict() for one in reversed(self.alerts)],
            "process": {
                "cpu_percent": self._process.cpu_percent(None),
                "memory_bytes": self._process.memory_info().rss,
                "threads": self._process.num_threads(),
            },
        }

    def _drift_overview(self) -> dict[str, Any] | None:
        if self.drift is None:
            return None
        report = self.drift.report
        outside = self.drift.share_out_of_range
        return {
            "evidence": _number(report.evidence),
            "limit": report.limit,
            "alpha": self.alpha,
            "alarm": report.alarm,
            "range_alarm": self.drift.range_alarm,
            "days": report.days,
            "date": None if report.date is None else str(report.date),
            "features": [
                {
                    "feature": name,
                    **{kind: _number(report.scores[row, at]) for row, kind in enumerate(KINDS)},
                    "evidence": _number(report.by_feature[at]),
                    "out_of_range": float(outside[at]),
                }
                for at, name in enumerate(report.columns)
            ],
        }

    def _sums(self) -> dict[str, list[float]]:
        """Return share and share times advantage of all finished orders, by who decided."""
        sums: dict[str, list[float]] = {}
        for parts in self._parts.values():
            for source, (share, advantage) in parts.items():
                before = sums.get(source, [0.0, 0.0])
                sums[source] = [before[0] + share, before[1] + advantage]
        return sums

    def _advantages(self) -> dict[str, dict[str, float | None]]:
        sums = self._sums()
        total = sum(share for share, _ in sums.values())
        return {
            source: {"share": share / total if total else None, "bp": advantage / share if share else None}
            for source, (share, advantage) in sums.items()
        }

    def fallback_cost(self) -> float:
        """Return what finished orders lost because the schedule decided, in basis points of their amount.

        The share that the schedule decided, times how much better the policy's own decisions were by the benchmark.
        NaN before the policy has decided in any. Orders fall back for a reason, so the two parts may have had other
        markets: it is a comparison of what was, not of what would have been.
        """
        sums = self._sums()
        if not sums:
            return math.nan
        schedule, policy = (sums.get(source, [0.0, 0.0]) for source in ("schedule", "policy"))
        if not schedule[0]:
            return 0.0
        if not policy[0]:
            return math.nan
        total = sum(share for share, _ in sums.values())
        return schedule[0] / total * (policy[1] / policy[0] - schedule[1] / schedule[0])

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        found: bytes = self._text(self._registry)
        return found

    def _sum(self, name: str, start: tuple[str, ...] = ()) -> int:
        return sum(number for labels, number in self._count[name].items() if labels[: len(start)] == start)

    def histograms(self, name: str) -> list[tuple[tuple[str, ...], Histogram]]:
        """Return labels and counts of each series of a histogram; see `METRICS`."""
        if name == "rlwb_request_seconds":
            return [((route,), one) for route, one in self.requests.items()]
        return [((), self.batch_size if name == "rlwb_batch_size" else self.decision_seconds)]

    def values(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield labels and value of each series of a counter or gauge; see `METRICS`."""
        if METRICS[name][0] == "counter" and name != "rlwb_process_cpu_seconds":
            yield from self._count[name].items() or ([] if METRICS[name][1] else [((), 0)])
            return
        yield from self._gauges(name)

    def _gauges(self, name: str) -> Iterable[tuple[tuple[str, ...], float]]:
        drift = self.drift
        match name.removeprefix("rlwb_"):
            case "queue_depth":
                return [((), self.queue_depth)]
            case "orders_live":
                return [((), self.orders_live)]
            case "traded_share" | "advantage_bp" as which:
                key = "share" if which == "traded_share" else "bp"
                found = [((source,), part[key]) for source, part in self._advantages().items()]
                return [(labels, value) for labels, value in found if value is not None]
            case "fallback_cost_bp":
                return [((), self.fallback_cost())]
            case "shadow_difference":
                return [((), self._shadow[1] / self._shadow[0] if self._shadow[0] else math.nan)]
            case "process_cpu_seconds":
                times = self._process.cpu_times()
                return [((), times.user + times.system)]
            case "process_memory_bytes":
                return [((), self._process.memory_info().rss)]
            case "process_threads":
                return [((), self._process.num_threads())]
            case "process_start_seconds":
                return [((), self._begin)]
            case "pa_mean_bp" | "pa_low_bp" | "pa_high_bp" | "pa_days" as which:
                days = self.pa_by_day()
                column = {"pa_mean_bp": "mean", "pa_low_bp": "lo", "pa_high_bp": "hi"}.get(which)
                if column is None:
                    return [((), len(days))]
                return [((), float(days[column].iloc[-1]) if len(days) else math.nan)]
        if drift is None:
            return []
        report = drift.report
        match name.removeprefix("rlwb_"):
            case "drift_evidence":
                return [((), report.evidence)]
            case "drift_limit":
                return [((), report.limit)]
            case "drift_days":
                return [((), report.days)]
            case "drift_score":
                pairs = [(row, at) for row in range(len(KINDS)) for at in range(len(report.columns))]
                return [((report.columns[at], KINDS[row]), float(report.scores[row, at])) for row, at in pairs]
            case "drift_feature_evidence":
                return [((name,), float(e)) for name, e in zip(report.columns, report.by_feature, strict=True)]
            case "out_of_range":
                return [((name,), float(s)) for name, s in zip(drift.columns, drift.share_out_of_range, strict=True)]
            case "alarm":
                return [(("drift",), float(report.alarm)), (("range_today",), float(drift.range_alarm))]
        raise KeyError(name)


class _Collector:
    """Makes metric families of a monitor's counts when they are asked for."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def collect(self) -> Iterator[Any]:
        """Yield the families in the sequence of `METRICS`."""
        from prometheus_client import core

        monitor = self._monitor
        kinds = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "info": core.InfoMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        for name, (kind, labels, meaning) in METRICS.items():
            if kind == "info":
                yield kinds[kind](name, meaning, value=monitor.bundle)
                continue
            family = kinds[kind](name, meaning, labels=labels)
            if kind == "histogram":
                for values, one in monitor.histograms(name):
                    family.add_metric(values, one.cumulative(), sum_value=one.sum)
            else:
                for values, number in monitor.values(name):
                    family.add_metric(values, number)
            yield family


def advantage_by_source(
    prices: np.ndarray, step: np.ndarray, side: int, amount: float, steps: Iterable[tuple[int, float, str]]
) -> dict[str, tuple[float, float]]:
    """Split a finished order by who decided: the share that each traded, and its price advantage.

    Parameters
    ----------
    prices
        Price of each tick of the order's window, float64 of shape ``(n,)``, NaN where there is none.
    step
        Step of each of these ticks, int of shape ``(n,)``.
    side
        1 to buy, -1 to sell.
    amount
        The order's amount.
    steps
        Number, amount and source of each decision.

    Returns
    -------
    dict
        To each source its share of the amount, and the mean over that share of ``side (1 - price / benchmark)`` in
        basis points, by the mean price of the step and the mean of the window; NaN where a step has no price.
    """
    valid = np.isfinite(prices) & (prices > 0)
    benchmark = float(prices[valid].mean()) if valid.any() else math.nan
    sums: dict[str, list[float]] = {}
    for number, traded, source in steps:
        share = traded / amount
        own = prices[valid & (step == number)]
        part = sums.setdefault(source, [0.0, 0.0])
        part[0] += share
        if share:
            price = float(own.mean()) if len(own) else math.nan
            part[1] += share * side * (1 - price / benchmark) * 1e4
    return {source: (share, total / share if share else math.nan) for source, (share, total) in sums.items()}


def _times(histogram: Histogram) -> dict[str, float | None]:
    return {name: _number(histogram.quantile(level) * 1e3) for name, level in (("p50", 0.5), ("p99", 0.99))}


def _number(value: float) -> float | None:
    """Return a float for JSON; None where it is not finite."""
    return float(value) if math.isfinite(value) else None
