"""Cost analysis of fills: those of a known policy give its backtest again, and odd ones are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.cli import main
from rlwb.errors import ConfigError, OrderError
from rlwb.execution import ExecutionState, OrderBatch
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_PARTS, tick_charges
from rlwb.experiment import backtest
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.tca import launch_tca
from rlwb.experiment.training import train_policy
from rlwb.experiment.workbench import Workbench
from rlwb.market import Calendar
from rlwb.reading import read_json
from tests.market.helpers import random_bars

CLOCK = {"preset": "cn", "tick_minutes": 30, "label": "end"}
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=24)]
RULES: dict[str, Any] = {
    "volume_limit": 0.2,
    "complete_at_end": False,
    "half_spread_bps": 2.0,
    "commission_bps": 1.0,
    "min_fee": 3.0,
    "sell_tax_bps": 5.0,
    "temporary_impact_bps": 40.0,
    "temporary_impact_shape": "square_root",
    "permanent_impact_bps": 15.0,
    "transient_impact_bps": 25.0,
    "transient_half_life": 45.0,
}
QUOTES = {**{name: value for name, value in RULES.items() if name != "half_spread_bps"}, "price_field": "quotes"}


def settings_of(rules: dict[str, Any]) -> list[str]:
    return [
        *(f"market.calendar.{name}={value}" for name, value in CLOCK.items()),
        *(f"execution.rules.{name}={str(value).lower()}" for name, value in rules.items()),
        "execution.ticks_per_step=2",
        "backtest.bootstrap_samples=200",
    ]


SETTINGS = settings_of(RULES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tca")
    bars = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB"], DAYS)
    bars.assign(bid=bars["close"] * 0.9995, ask=bars["close"] * 1.0003).to_csv(folder / "bars.csv", index=False)
    return folder


def bench_of(folder: Path, settings: list[str]) -> Workbench:
    own = Layer("test", {"baselines": ["twap", "pov"], "market.source": str(folder / "bars.csv")})
    return Workbench(RunConfig.load(None, own, parse_assignments(settings)))


def fills_of(bench: Workbench, orders: OrderBatch, requested: np.ndarray) -> pd.DataFrame:
    """Return the fills of orders as a broker would report them, with spread and impact in their prices."""
    state = ExecutionState.start(bench.engine, orders)
    for request in requested.T:
        state = state.after(*bench.engine.step(orders, state.now, np.where(state.done, 0.0, request)))
    record, engine, table = state.tick_record(), bench.engine, orders.table
    charges = np.sum(tick_charges(engine, orders, record.fill), axis=0)
    i, tick = np.nonzero(record.fill)
    side, fill, bar = orders.side[i], record.fill[i, tick], engine.price[orders.session[i], tick]
    beside = charges[i, tick] / fill + bar * engine.rules.half_spread_bps / 1e4
    seconds = engine.sessions.calendar.tick_start[tick] + 90
    date = table["date"].to_numpy()[i]
    return pd.DataFrame(
        {
            "ClOrdID": table["order_id"].to_numpy()[i],
            "Symbol": table["instrument"].to_numpy()[i],
            "Side": np.where(side > 0, 1, 2),
            "OrderQty": orders.amount[i],
            "LastQty": fill,
            "LastPx": bar + side * beside,
            "TransactTime": (date + seconds.astype("m8[s]")).astype("M8[s]").astype(str),
            "start": table["start"].astype(str).to_numpy()[i],
            "end": table["end"].astype(str).to_numpy()[i],
            "decision_price": orders.forms.get("decision_price", np.full(len(orders), np.nan))[i],
        }
    )


def orders_of(bench: Workbench) -> OrderBatch:
    times = [("09:30", "11:30"), ("10:00", "15:00"), ("13:00", "14:30")]
    rows = [
        {
            "order_id": f"{name}-{day}",
            "instrument": name,
            "date": day,
            "direction": ("BUY", "SELL")[(k + j) % 2],
            "amount": 3000.0 + 700 * k,
            "start": f"{day} {times[k % 3][0]}",
            "end": f"{day} {times[k % 3][1]}",
            "decision_price": 10.0 + k,
        }
        for k, day in enumerate(DAYS[:10])
        for j, name in enumerate(("AAA", "BBB"))
    ]
    return bench.align(pd.DataFrame(rows))


@pytest.mark.parametrize("rules", [RULES, QUOTES], ids=["stated spread", "quotes"])
def test_fills_of_a_known_policy_reproduce_its_backtest(folder: Path, tmp_path: Path, rules: dict[str, Any]) -> None:
    settings = settings_of(rules)
    bench = bench_of(folder, settings)
    orders = orders_of(bench)
    baselines = backtest.make_baselines(bench)
    known = {name: backtest.baseline_result(bench, name, one, orders).orders for name, one in baselines.items()}
    episodes = backtest.play(bench, backtest.baseline_playable(baselines["pov"]), orders)
    fills = fills_of(bench, orders, episodes.details["requested"])
    fills.to_csv(tmp_path / "fills.csv", index=False)
    assert 0 < known["pov"]["ffr"].min() < known["pov"]["ffr"].max()
    done = launch_tca(
        tmp_path / "fills.csv", folder / "bars.csv", None, settings, out=tmp_path / "out", echo=lambda _: None
    )
    own = pd.read_parquet(tmp_path / "out" / "orders" / "fills.parquet").set_index("order_id")
    expected = known["pov"].set_index("order_id").loc[own.index]
    left_out = {"start", "end", "reward", "num_steps", "cost_impact_off"}
    for name in [name for name in expected if name not in left_out and not name.startswith("reward/")]:
        if expected[name].dtype == object or name == "date":
            assert own[name].tolist() == expected[name].tolist(), name
        else:
            np.testing.assert_allclose(own[name], expected[name], rtol=1e-9, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(own["cost_within_bar"], 0.0, atol=1e-6)
    charged = own[["cost_spread", *(f"cost_{part}" for part in IMPACT_PARTS)]].sum(axis=1)
    side = np.where(own["direction"] == "BUY", 1.0, -1.0)
    np.testing.assert_allclose(side * own["filled"] * (own["price_paid"] - own["price"]), charged, rtol=1e-6)
    # The other policies trade the same orders as in a backtest.
    twap = pd.read_parquet(tmp_path / "out" / "orders" / "twap.parquet").set_index("order_id")
    same = known["twap"].set_index("order_id").loc[twap.index]
    np.testing.assert_allclose(twap["cost"], same["cost"], rtol=1e-12)
    excess = done.excess.set_index("policy")
    paid, worth = own["cost"] - twap["cost"], own["amount"] * own["arrival"]
    assert excess.loc["twap", "excess"] == pytest.approx(1e4 * paid.sum() / worth.sum(), rel=1e-9)
    assert excess.loc["pov", "excess"] == pytest.approx(0.0, abs=1e-6)
    assert excess.index.tolist() == ["twap", "vwap", "pov"]
    table = done.costs.set_index(["policy", "component"])
    assert table.loc[("fills", "total"), "currency"] == pytest.approx(own["cost"].sum(), rel=1e-12)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "your fills" in page
    assert f"{table.loc[('fills', 'total'), 'cost_bp']:.2f} bp of their value at arrival" in page
    with pytest.raises(ConfigError, match="is not empty"):
        launch_tca(tmp_path / "fills.csv", folder / "bars.csv", None, settings, out=tmp_path / "out")


def one_order(**change: Any) -> dict[str, Any]:
    row = {
        "order_id": "a",
        "instrument": "AAA",
        "side": "BUY",
        "order_quantity": 300.0,
        "quantity": 100.0,
        "price": 10.0,
    }
    times = {"time": "2024-03-05 10:10", "start": "2024-03-05 10:00", "end": "2024-03-05 11:30"}
    return {**row, **times, **change}


def analysed(folder: Path, name: str, rows: list[dict[str, Any]], *changes: str) -> Any:
    pd.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)
    settings = [word for word in SETTINGS if "rules" not in word] + list(changes)
    return launch_tca(
        folder / f"{name}.csv", folder / "bars.csv", None, settings, out=folder / name, echo=lambda _: None
    )


def test_one_order_by_hand(folder: Path) -> None:
    bars = pd.read_csv(folder / "bars.csv", parse_dates=["datetime"])
    day = bars[(bars["instrument"] == "AAA") & (bars["datetime"].dt.strftime("%Y-%m-%d") == "2024-03-05")]
    day = day.set_index(day["datetime"].dt.strftime("%H:%M"))  # bars are named by their end
    first, second, last = (float(day.loc[at, "close"]) for at in ("10:30", "11:00", "15:00"))
    arrival = float(day.loc["10:30", "open"])
    rows = [
        one_order(price=first + 0.01, fee=0.5),
        one_order(price=first + 0.03, fee=0.5, time="2024-03-05 10:20"),
        one_order(price=second, quantity=50.0, fee=0.2, time="2024-03-05 10:31"),
    ]
    changes = ("execution.rules.half_spread_bps=1", "execution.rules.commission_bps=9")
    done = analysed(folder, "hand", [{**row, "decision_price": arrival - 0.02} for row in rows], *changes)
    own = pd.read_parquet(folder / "hand" / "orders" / "fills.parquet").iloc[0]
    twap, notional = float(day.loc[["10:30", "11:00", "11:30"], "close"].mean()), 200 * first + 50 * second
    expected = {
        "delay": 300 * 0.02,
        "drift": 250 * (twap - arrival),
        "selection": notional - 250 * twap,
        "spread": notional * 1e-4,
        "within_bar": 100 * 0.01 + 100 * 0.03 - notional * 1e-4,
        "commission": 1.2,  # what the fills state, not what the rules do
        "opportunity": 50 * (last - arrival),
    }
    for part, column in COST_COLUMNS.items():
        value = sum(expected.values()) if part == "total" else expected.get(part, 0.0)
        assert own[column] == pytest.approx(value, rel=1e-5, abs=2e-3), part  # bars are stored in float32
    assert own["price_paid"] == pytest.approx((100 * (first + 0.01) + 100 * (first + 0.03) + 50 * second) / 250)
    assert own["cost"] == sum(own[column] for part, column in COST_COLUMNS.items() if part != "total")
    assert not [note for note in done.notes if "state no" in note]


def test_what_is_odd_is_told_and_nothing_is_dropped_in_silence(folder: Path) -> None:
    rows = [
        one_order(),
        one_order(order_id="b", instrument="ZZZ"),
        one_order(order_id="c", time="2024-03-05 15:20", start="", end="", order_quantity=""),
        one_order(order_id="h", order_quantity="", start="", end=""),
        one_order(order_id="d", time="2024-03-05 12:10", start="2024-03-05 11:00", end="2024-03-05 14:00"),
        one_order(order_id="e", price=99.0, decision_time="2024-03-05 09:40"),
        one_order(order_id="f"),
        one_order(order_id="f", side="SELL"),
        one_order(order_id="g", quantity=100.0),
        one_order(order_id="g", quantity=100.0),
    ]
    done = analysed(folder, "odd", rows)
    told = "\n".join(done.notes)
    for words in (
        "left out: the instrument is not in the data (1 of ",
        "left out: no start, and every fill outside the session (1 orders, first c)",
        "lie outside the session and count in its nearest bar; first order d",
        "lie outside the prices of their bar; first order",
        "side 'SELL' differs",
        "fills equal another in everything",
        "orders state no order quantity",
        "have no price of their decision",
    ):
        assert words in told, words
    page = (folder / "odd" / "report.html").read_text()
    assert "CVaR 95 %, bp</th>" in page, "the table that the notes on risk are about"
    assert "pay neither spread nor fees" in page, "the rules charge nothing"
    own = pd.read_parquet(folder / "odd" / "orders" / "fills.parquet").set_index("order_id")
    assert own.index.tolist() == ["a", "e", "f", "g", "h", "d"]
    assert own.loc["e", "cost_delay"] != 0.0, "priced at the time of its decision"
    assert own.loc["g", "filled"] == 200.0
    assert json.loads((folder / "odd" / "notes.json").read_text())["notes"] == done.notes
    assert len(pd.read_parquet(folder / "odd" / "fills.parquet")) == 9


def test_the_command_of_the_page_makes_a_folder_beside_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "costs.md"
    text = page.read_text()
    words = text.partition("```bash\n")[2].partition("\n")[0].split()
    (folder / "mine.yaml").write_text(text.partition("```yaml\n")[2].partition("```")[0])
    monkeypatch.chdir(folder)
    pd.DataFrame([one_order()]).to_csv("fills.csv", index=False)
    for name in ("fills-tca", "fills-tca-2"):
        with pytest.raises(SystemExit) as ended:
            main(words[1:])
        assert not ended.value.code
        assert f"analysis: {name}" in capsys.readouterr().out
        assert (folder / name / "report.html").exists()


def test_what_cannot_be_analysed_is_refused(folder: Path) -> None:
    with pytest.raises(OrderError, match="none of the 1 orders"):
        analysed(folder, "unknown", [one_order(instrument="ZZZ")])
    with pytest.raises(OrderError, match="outside the session"):
        analysed(folder, "night", [one_order(time="2024-03-05 23:00", start="", end="")])
    with pytest.raises(ConfigError, match="almgren_chriss"):
        analysed(folder, "told", [one_order()], "baselines=[almgren_chriss]")


def test_the_policy_of_a_run_trades_the_orders_as_in_its_backtest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"network.hidden": 8, "train.iterations": 1, "train.episodes_per_iteration": 20, "backtest.top": 1}
    source = Layer("test", {"market.source": str(folder / "bars.csv"), "baselines": ["twap"], **small})
    config = RunConfig.load(None, source, parse_assignments(SETTINGS))
    run = RunDirectory.create(folder / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest.backtest_policies(run, config)
    bench = workbench(run, config)
    orders = bench.align(load_orders(run, bench, "test"))
    twap = backtest.make_baselines(bench)["twap"]
    requested = backtest.play(bench, backtest.baseline_playable(twap), orders).details["requested"]
    fills_of(bench, orders, requested).to_csv(folder / "test.csv", index=False)
    words = [str(folder / "test.csv"), "--bars", str(folder / "bars.csv"), "--run", str(run.path)]
    with pytest.raises(SystemExit) as ended:
        main(["tca", *words, "--out", str(folder / "beside"), "--json"])
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    name = read_json(run.backtest / "selection.json")["chosen"][0]
    assert [row["policy"] for row in told["policies"]] == ["fills", name, "twap"]
    assert not [note for note in told["notes"] if note.startswith("WARNING")], "the run's own test days"
    for policy, same in ((name, name), ("fills", "twap"), ("twap", "twap")):
        own = pd.read_parquet(folder / "beside" / "orders" / f"{policy}.parquet").set_index("order_id")
        known = pd.read_parquet(run.backtest / "orders" / f"{same}.parquet").set_index("order_id").loc[own.index]
        for column in ("cost", "pa", "pa_net", "filled", "price_net"):
            np.testing.assert_allclose(own[column], known[column], rtol=1e-9, atol=1e-6, err_msg=f"{policy} {column}")
    with pytest.raises(ConfigError, match=r"execution\.ticks_per_step"):
        launch_tca(
            *map(Path, words[:1] + words[2:3]), None, ["execution.ticks_per_step=4"], run=run.path, out=folder / "x"
        )
