"""``rlwb paper-trade``: a bundle trades test days on paper and ends where the backtest ended, over HTTP as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.cli import main
from rlwb.errors import ConfigError, OrderError, ServingError
from rlwb.execution import write_orders
from rlwb.experiment import backtest
from rlwb.experiment.config import baseline_labels
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.market import Sessions
from rlwb.serving import paper_run
from rlwb.serving.bundle import open_bundle
from rlwb.serving.client import HTTPClient
from rlwb.serving.feeds import SessionsFeed, line_of
from rlwb.serving.paper import PanelBench
from rlwb.serving.paper_run import PaperResult, launch_paper, span_of
from rlwb.serving.process import make_front
from rlwb.serving.thread import serve_in_thread
from tests.serving.test_feeds import sender


def quiet(line: str) -> None:
    """Say nothing."""


@pytest.fixture(scope="module")
def test_days(finished_run: RunDirectory) -> list[str]:
    orders = load_orders(finished_run, workbench(finished_run), "test")
    return sorted(set(orders["date"].dt.strftime("%Y-%m-%d")))


def play(bundle_path: Path, run: RunDirectory, out: Path, **how: Any) -> PaperResult:
    return launch_paper(bundle_path, run=run.path, out=out, speed=0, echo=quiet, **how)


def compared(result: PaperResult) -> float:
    assert result.backtest is not None
    assert len(result.backtest) == len(result.results[0].orders) > 0
    assert result.backtest["pa"].notna().all()
    return float((result.backtest["pa"] - result.backtest["pa_backtest"]).abs().max())


@pytest.fixture(scope="module")
def whole(bundle_path: Path, finished_run: RunDirectory, test_days: list[str], tmp_path_factory: Any) -> PaperResult:
    out = tmp_path_factory.mktemp("paper") / "whole"
    return play(bundle_path, finished_run, out, dates=(test_days[0], test_days[-1]))


def test_every_test_order_ends_as_in_the_backtest(whole: PaperResult, finished_run: RunDirectory) -> None:
    assert compared(whole) == 0
    own = whole.results[0].orders
    there = pd.read_parquet(finished_run.backtest / "orders" / f"{whole.results[0].policy}.parquet")
    figures = ["pa", "ffr", "price", "filled", "twap", "arrival", "reward", "cost"]
    pd.testing.assert_frame_equal(own[["order_id", *figures]], there[["order_id", *figures]], check_exact=True)
    assert [one.policy for one in whole.results[1:]] == baseline_labels(finished_run.config.baselines)


def test_the_folder_holds_the_tables_of_a_backtest_and_the_audit(whole: PaperResult) -> None:
    names = {path.relative_to(whole.folder).as_posix() for path in whole.folder.rglob("*") if path.is_file()}
    policy = whole.results[0].policy
    assert {
        "paper.json",
        "decisions.parquet",
        "audit/ticks.parquet",
        "audit/steps.parquet",
        "beside_backtest.parquet",
        "headline.md",
        "summary.csv",
        "costs.csv",
        "orders/twap.parquet",
        f"orders/{policy}.parquet",
        f"inventory/{policy}.npy",
    } <= names
    ticks = pd.read_parquet(whole.folder / "audit" / "ticks.parquet")
    own = whole.results[0].orders.set_index("order_id")
    filled = ticks.groupby("order_id")["filled"].sum()
    np.testing.assert_allclose(filled[own.index], own["filled"], rtol=1e-9)
    assert set(whole.decisions["source"]) == {"policy"}


def test_over_http_the_orders_of_a_whole_day_end_as_in_the_backtest(
    bundle_path: Path, finished_run: RunDirectory, test_days: list[str], tmp_path: Path
) -> None:
    with serve_in_thread(lambda: make_front(bundle_path)) as running:
        result = play(bundle_path, finished_run, tmp_path / "http", dates=(test_days[0], test_days[0]), url=running.url)
    assert compared(result) <= 1e-9
    assert set(result.decisions["source"]) == {"policy"}


def test_with_onnx_they_do_to_its_precision(
    bundle_path: Path, finished_run: RunDirectory, test_days: list[str], tmp_path: Path
) -> None:
    with serve_in_thread(lambda: make_front(bundle_path, backend="onnx")) as running:
        result = play(bundle_path, finished_run, tmp_path / "onnx", dates=(test_days[0], test_days[0]), url=running.url)
    assert compared(result) <= 1e-6


def test_what_was_stopped_goes_on_after_the_days_that_are_done(
    bundle_path: Path,
    finished_run: RunDirectory,
    test_days: list[str],
    whole: PaperResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    days, said = (test_days[0], test_days[-1]), list[str]()
    real = paper_run.paced

    def stopped(arrivals: Any, *rest: Any) -> Iterator[Any]:
        for arrival in real(arrivals, *rest):
            if f"{arrival.time:%Y-%m-%d}" == test_days[1]:
                raise KeyboardInterrupt
            yield arrival

    with monkeypatch.context() as patched:
        patched.setattr(paper_run, "paced", stopped)
        with pytest.raises(KeyboardInterrupt):
            launch_paper(bundle_path, run=finished_run.path, out=tmp_path / "p", speed=0, dates=days, echo=said.append)
    assert "--resume" in said[-1]
    assert f"1 of {len(test_days)} days" in said[-1]
    with pytest.raises(ConfigError, match="--resume"):
        play(bundle_path, finished_run, tmp_path / "p", dates=days)
    with pytest.raises(ConfigError, match="orders"):
        play(bundle_path, finished_run, tmp_path / "p", resume=True)
    result = play(bundle_path, finished_run, tmp_path / "p", dates=days, resume=True)
    pd.testing.assert_frame_equal(result.results[0].orders, whole.results[0].orders)
    with pytest.raises(ConfigError, match="--resume"):
        play(bundle_path, finished_run, tmp_path / "q", dates=days, resume=True)


@pytest.mark.parametrize("form", ["panel", "csv"])
def test_bars_of_a_file_and_orders_of_a_table_need_no_run(
    form: str, bundle_path: Path, finished_run: RunDirectory, test_days: list[str], whole: PaperResult, tmp_path: Path
) -> None:
    bench = workbench(finished_run)
    orders = load_orders(finished_run, bench, "test")
    first = orders[orders["date"] == test_days[0]]
    write_orders(tmp_path / "orders.parquet", first)
    if form == "panel":
        bench.sessions.save(tmp_path / "bars")
    else:
        pd.concat([one.bars for one in SessionsFeed(bench.sessions)]).to_csv(tmp_path / "bars", index=False)
        (tmp_path / "bars").rename(tmp_path / "bars.csv")
    made = launch_paper(
        bundle_path,
        next(tmp_path.glob("bars*")),
        order_file=tmp_path / "orders.parquet",
        speed=0,
        out=tmp_path / "p",
        echo=quiet,
    )
    own = made.results[0].orders.set_index("order_id")["pa"]
    there = whole.results[0].orders.set_index("order_id")["pa"]
    assert own.to_dict() == there[own.index].to_dict()
    assert made.backtest is None
    assert [one.policy for one in made.results[1:]] == [*paper_run.BESIDE]


VENDOR = """
from rlwb.market import Sessions
from rlwb.serving.feeds import Arrival, Feed, SessionsFeed

class Vendor(Feed):
    def __init__(self):
        self.source = SessionsFeed(Sessions.open({bars!r}), {days!r})

    def __iter__(self):
        yield from self.source

    def history(self, date):
        return self.source.history(date)
"""


@pytest.fixture
def live(finished_run: RunDirectory, test_days: list[str], tmp_path: Path) -> Path:
    """A folder with the bars of the market, a feed of one's own that plays two test days, and their orders."""
    bench = workbench(finished_run)
    bench.sessions.save(tmp_path / "bars")
    orders = load_orders(finished_run, bench, "test")
    write_orders(tmp_path / "orders.parquet", orders[orders["date"].isin(pd.to_datetime(test_days[:2]))])
    (tmp_path / "vendor.py").write_text(VENDOR.format(bars=str(tmp_path / "bars"), days=test_days[:2]))
    return tmp_path


def same_as_backtest(made: PaperResult, whole: PaperResult) -> None:
    figures = ["pa", "ffr", "filled", "price"]
    own, there = (one.results[0].orders.set_index("order_id")[figures] for one in (made, whole))
    assert len(own) > 0
    pd.testing.assert_frame_equal(own, there.loc[own.index], check_exact=True)
    assert set(made.decisions["source"]) == {"policy"}


def test_a_feed_of_ones_own_that_knows_no_future_ends_as_the_backtest(
    bundle_path: Path, live: Path, whole: PaperResult
) -> None:
    feed, orders = f"{live / 'vendor.py'}:Vendor", live / "orders.parquet"
    made = launch_paper(bundle_path, feed, order_file=orders, out=live / "p", echo=quiet)
    same_as_backtest(made, whole)
    assert sorted(path.name for path in (live / "p" / "bars").iterdir()) == sorted(set(own_days(made)))


def own_days(made: PaperResult) -> list[str]:
    return made.results[0].orders["date"].dt.strftime("%Y-%m-%d").tolist()


def test_bars_over_a_socket_end_as_the_backtest(
    bundle_path: Path, live: Path, whole: PaperResult, test_days: list[str]
) -> None:
    played = SessionsFeed(Sessions.open(live / "bars"), test_days[:2])
    lines = b"".join(map(line_of, played)) + b'{"end": true}\n'
    orders = live / "orders.parquet"
    with sender(lines) as at:
        made = launch_paper(bundle_path, at, history=live / "bars", order_file=orders, out=live / "p", echo=quiet)
    same_as_backtest(made, whole)


def test_a_live_feed_needs_orders_and_a_feed_must_be_one(bundle_path: Path, live: Path) -> None:
    with pytest.raises(ConfigError, match="--orders"):
        launch_paper(bundle_path, f"{live / 'vendor.py'}:Vendor", out=live / "p", echo=quiet)
    with pytest.raises(ConfigError, match="Feed"):
        launch_paper(bundle_path, f"{live / 'vendor.py'}:Sessions", out=live / "p", echo=quiet)


def test_generated_orders_are_those_of_the_last_day(
    bundle_path: Path, finished_run: RunDirectory, tmp_path: Path
) -> None:
    sessions = workbench(finished_run).sessions
    sessions.save(tmp_path / "bars")
    made = launch_paper(bundle_path, tmp_path / "bars", speed=0, out=tmp_path / "p", echo=quiet)
    assert set(made.results[0].orders["date"]) == {pd.Timestamp(sessions.dates.max())}


def test_days_of_the_training_are_no_test(
    bundle_path: Path, finished_run: RunDirectory, test_days: list[str], tmp_path: Path
) -> None:
    bench = workbench(finished_run)
    orders = load_orders(finished_run, bench, "train")
    write_orders(tmp_path / "orders.parquet", orders[orders["date"] == orders["date"].max()])
    made = play(bundle_path, finished_run, tmp_path / "p", order_file=tmp_path / "orders.parquet")
    assert any("trained" in note for note in made.notes)
    assert "trained" in (made.folder / "headline.txt").read_text()


def test_what_cannot_be_played_is_named(bundle_path: Path, finished_run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "p"
    with pytest.raises(ConfigError, match="--bars"):
        launch_paper(bundle_path, out=out, echo=quiet)
    with pytest.raises(OrderError, match="2031-01-01"):
        play(bundle_path, finished_run, out, dates=("2031-01-01", "2031-01-02"))
    with pytest.raises(ConfigError, match="network"):
        play(bundle_path, finished_run, out, changes=["network.hidden=3"])
    with pytest.raises(ConfigError, match="simulator"):
        play(bundle_path, finished_run, out, changes=["simulator=random_liquidity"])
    with pytest.raises(ConfigError, match="tflite"):
        play(bundle_path, finished_run, out, backend="tflite")
    assert not out.exists()


def test_a_service_that_is_not_there_is_named(bundle_path: Path, finished_run: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ServingError, match=r"127\.0\.0\.1:9") as caught:
        HTTPClient("http://127.0.0.1:9", attempts=0).describe()
    assert caught.value.reason == "unreachable"
    with pytest.raises(ConfigError, match="address"):
        HTTPClient("127.0.0.1:9")


@pytest.mark.parametrize(
    ("text", "span"),
    [(None, None), ("2024-01-02", ("2024-01-02",) * 2), ("2024-01-02:2024-01-05", ("2024-01-02", "2024-01-05"))],
)
def test_a_span_of_dates(text: str | None, span: tuple[str, str] | None) -> None:
    assert span_of(text) == span


def page_blocks() -> list[str]:
    text = (Path(__file__).resolve().parents[2] / "docs" / "serving" / "paper.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


VENDOR_API = """
from rlwb.market import Sessions
from rlwb.serving.feeds import SessionsFeed

NAMES = {{"instrument": "symbol", "datetime": "begin"}}
NAMES |= {{name: name[0] for name in ("open", "high", "low", "close", "volume")}}

def minutes():
    for time, bars in SessionsFeed(Sessions.open({bars!r}), {days!r}):
        yield {{"end": str(time), "bars": bars.rename(columns=NAMES).astype({{"begin": str}}).to_dict("records")}}
"""


def test_the_vendor_of_the_page_is_a_feed(
    bundle_path: Path, live: Path, whole: PaperResult, test_days: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (live / "vendor_api.py").write_text(VENDOR_API.format(bars=str(live / "bars"), days=test_days[:2]))
    (live / "vendor.py").write_text(page_blocks()[0])
    monkeypatch.syspath_prepend(live)
    how: dict[str, Any] = {"order_file": live / "orders.parquet", "out": live / "p", "echo": quiet}
    made = launch_paper(bundle_path, f"{live / 'vendor.py'}:Vendor", **how)
    assert made.results[0].orders["ffr"].tolist() == [1.0] * len(made.results[0].orders)


def test_the_client_of_the_page_gets_a_decision(
    bundle_path: Path, live: Path, test_days: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    instrument = str(Sessions.open(live / "bars").instruments[0])
    monkeypatch.chdir(live)
    with serve_in_thread(lambda: make_front(bundle_path)) as running:
        code = page_blocks()[1].replace("http://127.0.0.1:8000", running.url)
        exec(code, {"DATE": test_days[0], "INSTRUMENT": instrument})
    assert re.fullmatch(r"trade [\d.]+ in the first step, by the policy\n", capsys.readouterr().out)


@pytest.fixture(scope="module")
def holes(finished_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A panel of the run's market in which bars are missing: single ones, the first and last of a day, a whole day."""
    panel, rng = workbench(finished_run).sessions, np.random.default_rng(5)
    missing = rng.random(panel.fields["close"].shape) < 0.2
    missing[::3, :3] = missing[1::3, -2:] = True
    missing[4] = True
    fields = {name: np.where(missing, np.nan, values) for name, values in panel.fields.items()}
    fields["volume"][~missing & (rng.random(missing.shape) < 0.1)] = 0.0
    spoilt = Sessions(panel.calendar, panel.instruments, panel.dates, panel.num_ticks, fields)
    return spoilt.save(tmp_path_factory.mktemp("holes") / "bars")


@pytest.mark.parametrize("way", ["local", "http", "live"])
def test_where_bars_are_missing_it_decides_as_a_backtest_does(
    bundle_path: Path, holes: Path, tmp_path: Path, way: str
) -> None:
    bundle, panel = open_bundle(bundle_path), Sessions.open(holes)
    bench = PanelBench(bundle.config, panel)
    days = np.unique(panel.dates)[-2:]
    table = bench.all_orders[bench.all_orders["date"].isin(days)]
    write_orders(tmp_path / "orders.parquet", table)
    orders = bench.align(table)
    sees = bench.state_interpreter(bench.features(normaliser=bundle.normaliser))
    there = backtest.judged(bench, "there", "checkpoint", (bundle.learner, sees, bench.action_interpreter), orders)
    with ExitStack() as stack:
        bars: str | Path = holes
        how: dict[str, Any] = {}
        if way == "http":
            how["url"] = stack.enter_context(serve_in_thread(lambda: make_front(bundle_path))).url
        if way == "live":
            lines = b"".join(map(line_of, SessionsFeed(panel, days))) + b'{"end": true}\n'
            bars, how["history"] = stack.enter_context(sender(lines)), holes
        made = launch_paper(
            bundle_path, bars, order_file=tmp_path / "orders.parquet", speed=0, out=tmp_path / "p", echo=quiet, **how
        )
    assert set(made.decisions["source"]) == {"policy"}
    own = made.results[0].orders.set_index("order_id")["pa"]
    wanted = there.orders.set_index("order_id")["pa"]
    assert np.isfinite(wanted).any()
    np.testing.assert_allclose(own[wanted.index], wanted, rtol=0, atol=1e-9)


def test_the_command_does_it(
    bundle_path: Path, finished_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--run", str(finished_run.path), "--speed", "0", "--out", str(tmp_path / "p")]
    with pytest.raises(SystemExit) as caught:
        main(["paper-trade", str(bundle_path), *words])
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "TWAP" in said
    assert "whose PA differ by 0 bp at most" in said
    with pytest.raises(SystemExit) as caught:
        main(["paper", str(bundle_path), *words])  # as it was called before
    assert caught.value.code == 2
    assert "--resume" in capsys.readouterr().err
