"""The strategy for Qlib's nested executor, run in a loop that stands in for Qlib and in Qlib itself where it is."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.experiment.backtest import checkpoint_policy, choose_checkpoints, play
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.market import Calendar, Sessions
from rlwb.serving.export import export_run

ROOT = Path(__file__).resolve().parents[2]
SECOND = pd.Timedelta("1s")


class Order:
    """The fields of Qlib's order that count here."""

    BUY, SELL = 1, 0

    def __init__(self, stock_id: str, amount: float, direction: int, start_time: Any, end_time: Any) -> None:
        self.stock_id, self.amount, self.direction = stock_id, amount, direction
        self.start_time, self.end_time, self.deal_amount = start_time, end_time, 0.0


class Decision:
    def __init__(self, order_list: list[Order], strategy: Any, trade_range: Any = None) -> None:
        self.order_list, self.trade_range = order_list, trade_range

    def get_decision(self) -> list[Order]:
        return self.order_list


class Strategy:
    """Qlib's base class, as far as an inner strategy uses it."""

    def __init__(self, outer_trade_decision: Any = None, level_infra: Any = None, common_infra: Any = None) -> None:
        self.trade_calendar: Any = None
        self.trade_exchange: Any = None
        self.outer_trade_decision = outer_trade_decision

    def reset(self, level_infra: Any = None, common_infra: Any = None, outer_trade_decision: Any = None) -> None:
        if outer_trade_decision is not None:
            self.outer_trade_decision = outer_trade_decision


class Market:
    """Qlib's data, calendar and exchange on the sessions of a run; asking for bars of the future is an error."""

    freq = "bars"

    def __init__(self, sessions: Sessions) -> None:
        self.sessions, self.step, self.date = sessions, 0, sessions.dates[0]
        self.suspended: set[int] = set()
        self.cap = np.inf

    def stamps(self, date: Any) -> pd.DatetimeIndex:
        clock = self.sessions.calendar
        shift = clock.tick_seconds if clock.label == "end" else 0
        return pd.Timestamp(date) + pd.to_timedelta(clock.tick_start + shift, unit="s")

    def get_step_time(self, step: int | None = None) -> tuple[pd.Timestamp, pd.Timestamp]:
        stamps, step = self.stamps(self.date), self.step if step is None else step
        after = stamps[step + 1] if step + 1 < len(stamps) else pd.Timestamp(self.date) + pd.Timedelta("1d")
        return stamps[step], after - SECOND

    def features(
        self, instruments: list[str], fields: list[str], start_time: Any, end_time: Any, freq: str
    ) -> pd.DataFrame:
        assert freq == self.freq
        assert end_time < self.get_step_time()[0]
        parts = []
        for name in instruments:
            for row in np.flatnonzero(self.sessions.instruments == name):
                columns = {field: self.sessions.fields[field[1:]][row].astype(np.float32) for field in fields}
                index = pd.MultiIndex.from_product([[name], self.stamps(self.sessions.dates[row])])
                parts.append(pd.DataFrame(columns, index.set_names(["instrument", "datetime"])))
        found = pd.concat(parts)
        stamps = found.index.get_level_values("datetime")
        return found[(stamps >= start_time) & (stamps <= end_time)]

    def check_stock_suspended(self, stock_id: str, start_time: Any, end_time: Any) -> bool:
        return self.step in self.suspended

    def deal(self, order: Order) -> tuple[Order, float, float, float]:
        order.deal_amount = min(order.amount, self.cap)
        return order, 0.0, 0.0, 0.0


def execute(inner: Any, market: Market, date: Any, orders: list[Order], window: tuple[int, int]) -> list[list[Any]]:
    """Do what Qlib's nested executor does in a day; return the results of each step."""
    market.date, done = date, []
    inner.trade_calendar = inner.trade_exchange = market
    inner.reset(outer_trade_decision=Decision(orders, None, window))
    for market.step in range(window[0], window[1] + 1):
        asked = inner.generate_trade_decision(done[-1] if done else None).get_decision()
        done.append([market.deal(order) for order in asked])
        inner.post_exe_step(done[-1])
    inner.post_upper_level_exe_step()
    return done


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return the module of the strategy, with a few classes in the place of Qlib's."""
    held = SimpleNamespace(features=None)
    parts: dict[str, dict[str, Any]] = {
        "qlib": {},
        "qlib.backtest": {},
        "qlib.strategy": {},
        "qlib.backtest.decision": {"Order": Order, "TradeDecisionWO": Decision},
        "qlib.backtest.utils": {"get_start_end_idx": lambda calendar, decision: decision.trade_range},
        "qlib.data": {"D": held},
        "qlib.strategy.base": {"BaseStrategy": Strategy},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "rlwb.serving.qlib", raising=False)
    module = importlib.import_module("rlwb.serving.qlib")
    yield module, held
    sys.modules.pop("rlwb.serving.qlib", None)


@pytest.fixture(scope="module")
def exported(finished_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qlib") / "bundle"
    export_run(finished_run.path, folder)
    return folder


@pytest.fixture(scope="module")
def played(finished_run: RunDirectory) -> tuple[Any, pd.DataFrame, Any, Any]:
    """Return the parts of the run, its test orders, their backtest, and the features of its best checkpoint."""
    bench = workbench(finished_run, finished_run.config)
    table = load_orders(finished_run, bench, "test")
    playable = checkpoint_policy(bench, choose_checkpoints(finished_run, finished_run.config).chosen[0].path)
    return bench, table, play(bench, playable, bench.align(table)), playable[1].features


def asked_for(rows: pd.DataFrame) -> list[Order]:
    sides = {"BUY": Order.BUY, "SELL": Order.SELL}
    return [Order(row.instrument, row.amount, sides[row.direction], None, None) for row in rows.itertuples()]


def test_decisions_inside_a_nested_executor_are_those_of_the_backtest(
    played: tuple[Any, pd.DataFrame, Any, Any], exported: Path, fake: Any
) -> None:
    bench, table, episodes, _ = played
    module, data = fake
    market = Market(bench.sessions)
    data.features, inner = market.features, module.BundleStrategy(exported)
    for date, rows in table.groupby("date"):
        done = execute(inner, market, date, asked_for(rows), (0, bench.sessions.calendar.num_ticks - 1))
        filled = sum(order.deal_amount for step in done for order, *_ in step)
        assert filled == pytest.approx(rows["amount"].sum(), rel=1e-9)
    assert not inner.refused
    assert len(inner.policy) == 0
    for number, row in enumerate(table.itertuples()):
        name = f"{row.instrument} {row.date:%Y-%m-%d}"
        mine = [
            one for one in inner.decisions if one.order_id.startswith(name) and f" {row.direction} " in one.order_id
        ]
        assert [one.step for one in mine] == list(range(episodes.length[number]))
        requested = episodes.details["requested"][number, : len(mine)]
        np.testing.assert_allclose([one.amount for one in mine], requested, rtol=0, atol=1e-9 * row.amount)


def test_the_features_of_each_day_refer_to_the_whole_day_before(
    played: tuple[Any, pd.DataFrame, Any, Any], exported: Path, fake: Any
) -> None:
    bench, table, _, features = played
    module, data = fake
    market, ticks = Market(bench.sessions), bench.sessions.calendar.num_ticks
    market.cap = 0.0  # so that the orders go on to the last step, which sees the day but for its last bars
    data.features, inner = market.features, module.BundleStrategy(exported)
    for date, rows in table.groupby("date"):
        execute(inner, market, date, asked_for(rows), (0, ticks - 1))
        known = inner.policy.market
        for name in rows["instrument"].unique():
            row = np.array([known.row(name, date)])
            (reached,) = known.reached(row)
            assert ticks - bench.config.execution.ticks_per_step <= reached < ticks
            wanted = features.rows(bench.sessions.rows([name], [date]))[0, :reached]
            np.testing.assert_allclose(known.features.rows(row)[0, :reached], wanted, atol=1e-4)  # bars are float32


class Stub:
    """A policy that decides a fixed share of the order in each step, on a clock of three steps of four ticks."""

    def __init__(self, sessions: Sessions, share: float, catch_up: bool = True) -> None:
        self.bundle = SimpleNamespace(
            calendar=sessions.calendar, spec=SimpleNamespace(bars=SimpleNamespace(fields=["close"]))
        )
        cell = sessions.calendar.cells(4)
        self.engine = SimpleNamespace(cell=cell, rules=SimpleNamespace(catch_up=catch_up))
        self.share, self.orders, self.bars = share, {}, []
        self.market = SimpleNamespace(load_history=self.take, add=self.take, reach=lambda row, tick: None)
        self.market.row = self.market.open = lambda instrument, date: 0
        self.ticks: list[int] = []

    def take(self, bars: pd.DataFrame) -> Any:
        self.bars.append(bars)
        return SimpleNamespace(refused=((0, "impossible"),) if len(self.bars) == 1 else ())

    def register(self, orders: list[Any]) -> list[str]:
        self.orders |= {order.order_id: order for order in orders}
        return list(self.orders)

    def forget(self, order_id: str) -> None:
        del self.orders[order_id]

    def decide_many(self, names: list[str], positions: list[float]) -> list[Any]:
        kind = SimpleNamespace
        return [
            kind(order_id=name, amount=min(self.share * self.orders[name].amount, left), position=left)
            for name, left in zip(names, positions, strict=True)
        ]


def strategy(module: Any, data: Any, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Any, Market]:
    """Return a strategy with a stub, on a clock of twelve minutes."""
    calendar = Calendar(segments=(("09:30", "09:42"),), **settings.pop("clock", {}))
    prices = np.full((2, 12), 10.0)
    fields = {**dict.fromkeys(("open", "high", "low", "close"), prices), "volume": prices}
    dates = np.array(["2024-03-04", "2024-03-05"], dtype="datetime64[D]")
    sessions = Sessions(calendar, np.array(["A", "A"]), dates, np.full(2, 12, np.int32), fields)
    monkeypatch.setattr(module, "open_bundle", lambda path, trust_code: path)
    monkeypatch.setattr(module, "BundlePolicy", lambda bundle, backend: Stub(sessions, **settings))
    market = Market(sessions)
    data.features = market.features
    return module.BundleStrategy("bundle"), market


def asked(done: list[list[Any]]) -> list[float]:
    return [sum(order.amount for order, *_ in step) for step in done]


DAY = pd.Timestamp("2024-03-05")


def test_a_decision_is_asked_for_evenly_over_the_bars_of_its_step(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)
    done = execute(inner, market, DAY, [Order("A", 80.0, Order.SELL, None, None)], (0, 11))
    assert asked(done) == pytest.approx([10.0] * 8 + [0.0] * 4)  # 40 in four bars, 40 in four more, and it is done
    assert [one.position for one in inner.decisions] == [80.0, 40.0]
    assert {order.direction for step in done for order, *_ in step} == {Order.SELL}
    assert inner.refused == {"impossible": 1}


def test_the_market_is_given_each_earlier_bar_once_and_in_its_part(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.25)
    execute(inner, market, DAY, [Order("A", 80.0, Order.BUY, None, None)], (6, 11))
    days = [bars["datetime"].dt.normalize().unique().tolist() for bars in inner.policy.bars]
    assert days == [[DAY - pd.Timedelta("1d")], [DAY], [DAY]]
    assert [len(bars) for bars in inner.policy.bars] == [12, 6, 2]  # before 09:36, where the order and its step begin


def test_a_history_without_a_session_is_counted_and_does_without(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)

    def nothing_left(bars: pd.DataFrame) -> Any:
        raise DataError("no session is left")

    inner.policy.market.load_history = nothing_left
    done = execute(inner, market, DAY, [Order("A", 80.0, Order.BUY, None, None)], (0, 11))
    assert sum(asked(done)) == pytest.approx(80.0)
    assert inner.refused["sparse_session"] == 12


def test_a_window_within_steps_begins_and_ends_there(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)
    market_day = [Order("A", 24.0, Order.BUY, None, None)]
    done = execute(inner, market, DAY, market_day, (2, 8))
    assert asked(done) == pytest.approx([6.0, 6.0, 3.0, 3.0, 3.0, 3.0, 0.0])  # 12 in two bars, 12 in four


def test_a_bar_without_a_price_leaves_its_share_to_the_step_s_later_bars(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.25)
    market.suspended = {1, 2}
    done = execute(inner, market, DAY, [Order("A", 48.0, Order.BUY, None, None)], (0, 11))
    assert asked(done)[:5] == pytest.approx([3.0, 0.0, 0.0, 9.0, 3.0])


@pytest.mark.parametrize(
    ("catch_up", "last"), [(True, [10.0, 40 / 3, 20.0, 40.0]), (False, [10.0, 10.0, 10.0, 40.0])], ids=["on", "off"]
)
def test_what_the_exchange_cuts_is_asked_for_again_in_the_last_step_alone(
    fake: Any, monkeypatch: pytest.MonkeyPatch, catch_up: bool, last: list[float]
) -> None:
    inner, market = strategy(*fake, monkeypatch, share=1.0, catch_up=catch_up)
    market.cap = 0.0
    done = execute(inner, market, DAY, [Order("A", 40.0, Order.BUY, None, None)], (0, 11))
    assert asked(done) == pytest.approx([10.0] * 8 + last)
    assert [one.position for one in inner.decisions] == [40.0] * 3


def test_orders_of_one_instrument_and_side_are_kept_apart(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)
    orders = [Order("A", amount, Order.BUY, None, None) for amount in (8.0, 16.0, 0.0)]
    done = execute(inner, market, DAY, orders, (0, 11))
    assert [[order.amount for order, *_ in step] for step in done[:2]] == [[1.0, 2.0]] * 2
    assert len({one.order_id for one in inner.decisions}) == 2
    execute(inner, market, DAY, [], (0, 11))
    assert not inner.policy.orders


def test_stamps_at_the_end_of_bars_are_read_by_the_bundle_s_calendar(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5, clock={"label": "end"})
    done = execute(inner, market, DAY, [Order("A", 24.0, Order.BUY, None, None)], (2, 8))
    assert asked(done) == pytest.approx([6.0, 6.0, 3.0, 3.0, 3.0, 3.0, 0.0])


def test_steps_of_another_clock_and_changed_orders_are_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)
    monkeypatch.setattr(market, "stamps", lambda date: pd.Timestamp(date) + pd.to_timedelta(np.arange(12) * 50, "s"))
    with pytest.raises(DataError, match="2024-03-05 00:00:00"):
        execute(inner, market, DAY, [Order("A", 1.0, Order.BUY, None, None)], (0, 11))
    with pytest.raises(ConfigError, match="changed its orders"):
        inner.alter_outer_trade_decision(Decision([], None))


def test_steps_longer_than_the_policy_s_are_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inner, market = strategy(*fake, monkeypatch, share=0.5)

    def five_minutes(step: int | None = None) -> tuple[pd.Timestamp, pd.Timestamp]:
        begin = DAY + pd.Timedelta("09:30:00") + pd.Timedelta("5min") * (market.step if step is None else step)
        return begin, begin + pd.Timedelta("5min") - SECOND

    monkeypatch.setattr(market, "get_step_time", five_minutes)
    with pytest.raises(ConfigError, match="tick 5"):
        execute(inner, market, DAY, [Order("A", 1.0, Order.BUY, None, None)], (0, 1))


def test_without_qlib_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "qlib", None)
    monkeypatch.delitem(sys.modules, "rlwb.serving.qlib", raising=False)
    with pytest.raises(ConfigError, match="pyqlib"):
        importlib.import_module("rlwb.serving.qlib")


def test_the_figures_that_are_told_of_say_that_all_are_equal() -> None:
    told = json.loads((ROOT / "benchmarks" / "results" / "qlib_strategy.json").read_text())
    assert told["equal"] == told["decisions"] >= 5000
    assert sum(case["decisions"] for case in told["cases"].values()) == told["decisions"]
    assert told["largest_difference"] <= 1e-9
    assert not any(case["only_in_qlib"] + case["refused_bars"] for case in told["cases"].values())


@pytest.mark.filterwarnings("ignore")
def test_inside_qlib_itself_decisions_are_those_of_the_backtest(
    played: tuple[Any, pd.DataFrame, Any, Any], exported: Path, tmp_path: Path
) -> None:
    pytest.importorskip("qlib.strategy.base", reason="pyqlib is an extra: pip install 'rlwb[qlib]'")
    from benchmarks.peer import strategy as job
    from benchmarks.qlib_strategy import write_bars

    bench, table, episodes, _ = played
    freq = write_bars(tmp_path / "bars", bench.sessions)
    (tmp_path / "bundle").symlink_to(exported)
    kept = (table["date"] < table["date"].max()).to_numpy()  # Qlib's calendar must go on after the last step
    table[kept].to_parquet(tmp_path / "orders.parquet")
    assert job.run(tmp_path, freq)["refused_bars"] == 0
    theirs = pd.read_parquet(tmp_path / "theirs.parquet").sort_values(["order_id", "step"])
    requested = pd.DataFrame(episodes.details["requested"][kept], index=table["order_id"][kept]).sort_index()
    length = pd.Series(episodes.length[kept], index=table["order_id"][kept]).sort_index()
    wanted = np.concatenate([requested.loc[name].to_numpy()[:count] for name, count in length.items()])
    np.testing.assert_allclose(theirs["amount"], wanted, rtol=0, atol=1e-9 * table["amount"].max())
