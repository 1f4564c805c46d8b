"""The page plays the policy as the backtest did: its script against rlwb, in Chromium and in Firefox."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.evaluation.page import script
from rlwb.execution import OrderBatch
from rlwb.experiment.backtest import checkpoint_policy, judged
from rlwb.experiment.config import RunConfig
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.player import PLAYER, packed, player_of
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.files import strict_json
from rlwb.policy.learner import fill_up
from tests.experiment.test_work import tiny

CHROMIUM, FIREFOX = shutil.which("chromium"), shutil.which("firefox")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the path")
needs_firefox = pytest.mark.skipif(FIREFOX is None, reason="there is no firefox on the path")

#: Settings whose parts and rules the script has: between them all of its branches.
PLAYED = {
    "caps, lots and lasting impact, on a dial": {
        "objective": {"name": "mean_variance", "aversion": [0.0, 0.005, 0.02]},
        "execution.rules.volume_limit": 0.02,
        "execution.rules.lot_size": 100.0,
        "execution.rules.odd_lot": "sell_at_end",
        "execution.rules.temporary_impact_bps": 30.0,
        "execution.rules.temporary_impact_shape": "square_root",
        "execution.rules.permanent_impact_bps": 20.0,
        "execution.rules.commission_bps": 2.0,
        "execution.rules.min_fee": 5.0,
    },
    "quotes, a decaying impact by a power, a vwap": {
        "algorithm.name": "ppo",
        "market.quotes": True,
        "execution.rules.price_field": "quotes",
        "execution.rules.volume_limit": 0.5,
        "execution.rules.transient_impact_bps": 40.0,
        "execution.rules.transient_half_life": 20.0,
        "execution.rules.benchmark": "vwap",
        "execution.rules.sell_tax_bps": 5.0,
    },
    "values of actions without bars, price limits, what stays open": {
        "algorithm": {"name": "dqn"},
        "network.name": "mlp",
        "head.even_start": False,
        "execution.rules.volume_limit": 0.01,
        "execution.rules.complete_at_end": False,
        "execution.rules.catch_up": False,
        "execution.rules.step_grid": "session",
        "execution.rules.price_limit": 0.02,
        "execution.rules.transient_impact_bps": 40.0,
        "execution.rules.transient_impact_shape": "linear",
        "execution.rules.transient_decay": "exponential",
        "execution.rules.transient_half_life": 20.0,
        "execution.rules.benchmark": "arrival",
        "execution.rules.half_spread_bps": 1.0,
    },
    "no mask, no start, closes count": {
        "head": {"mask_actions": False, "even_start": False},
        "action_interpreter.values": [0.5, 0.0, 1.0, 0.5],
        "execution.rules.volume_limit": 0.01,
        "execution.rules.price_field": "high",
        "execution.rules.benchmark": "close",
        "execution.rules.unfilled_at": "end",
        "orders.start_time": "10:07",
        "orders.end_time": "14:12",
    },
    "multiples of the even pace, caps and lots": {
        "algorithm.name": "ppo",
        "action_interpreter": {"name": "twap_relative", "max_ratio": 4.0},
        "head": {"mask_actions": False, "even_start": False},
        "execution.rules.volume_limit": 0.02,
        "execution.rules.commission_bps": 2.0,
    },
    "shares of what is left, on a dial": {
        "algorithm.name": "pathwise",
        "action_interpreter": {"name": "position_share"},
        "head": {"mask_actions": False, "even_start": False},
        "objective": {"name": "mean_variance", "aversion": [0.0, 0.005, 0.02]},
    },
}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def reported(judged: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A small run with its report."""
    path = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(judged.path, path, symlinks=True)
    write_report(RunDirectory.open(path))
    return RunDirectory.open(path)


def a_policy(config: RunConfig) -> tuple[Workbench, Any, OrderBatch]:
    """Return a policy of weights drawn at random, which differ more than those of a short training, and test orders."""
    bench = Workbench(config)
    parts, _ = bench.make_orders()
    features = bench.features(parts["train"])
    learner = bench.learner(features)
    bench.fit(learner, features, parts["train"])
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in learner.network.parameters():  # type: ignore[attr-defined]
            weight.copy_(0.5 * torch.randn(weight.shape, generator=drawn))
    playable = learner, bench.state_interpreter(features), bench.action_interpreter
    return bench, playable, bench.align(parts["test"], bench.objective.middle)


def decisions(bench: Workbench, playable: Any, orders: OrderBatch) -> tuple[list[list[tuple[Any, ...]]], np.ndarray]:
    """Return each order's decisions as rlwb makes them, action, scores and what is left after it, and the PAs."""
    learner, sees, acts = playable
    state, made = (
        bench.simulator.start(orders, np.zeros(len(orders), dtype=np.uint64)),
        [[] for _ in range(len(orders))],
    )
    while not state.done.all():
        rows, known = np.flatnonzero(~state.done), state.known
        with torch.no_grad():
            best, scores = (part[: len(rows)].numpy() for part in learner.greedy(fill_up(sees.refer(known[rows]))))
        request = np.zeros(len(orders))
        request[rows] = acts.interpret(known[rows], best)
        state = bench.simulator.step(state, request)
        for at, row in enumerate(rows.tolist()):
            chosen = best[at].item(), scores[at].astype(np.float64)
            made[row].append((*chosen, state.now.position[row], orders.amount[row]))
    return made, state.metrics()[bench.config.execution.rules.judged_by]


def agree(found: list[dict[str, Any]], expected: list[list[tuple[Any, ...]]], pa: np.ndarray) -> int:
    """Compare the page's decisions with rlwb's, and return how many there are."""
    assert len(found) == len(expected)
    for one, steps in zip(found, expected, strict=True):
        for step, (action, scores, left, amount) in zip(one["steps"], steps, strict=True):
            if isinstance(action, float):  # a number, and not one of a few
                assert step["action"] == pytest.approx(action, abs=1e-6)
                assert step["after"] == pytest.approx(left, abs=1e-6 * amount)
                continue
            assert step["action"] == action
            assert step["after"] == pytest.approx(left, rel=1e-9, abs=1e-6)
            if step["chances"] is None:
                assert step["scores"] == pytest.approx(scores.tolist(), abs=1e-6)
            else:
                chances = np.exp(scores - scores.max())
                assert step["chances"] == pytest.approx((chances / chances.sum()).tolist(), abs=1e-6)
    told = [np.nan if one["pa"] is None else one["pa"] for one in found]
    are_numbers = isinstance(expected[0][0][0], float)  # whose last digit moves the fills
    assert told == pytest.approx(pa.tolist(), abs=1e-4 if are_numbers else 1e-6, nan_ok=True)
    return sum(len(steps) for steps in expected)


@needs_chromium
@pytest.mark.parametrize("name", PLAYED)
def test_the_script_decides_and_fills_as_rlwb(chromium: Any, name: str) -> None:
    bench, playable, orders = a_policy(tiny(**{"market.days": 15, **PLAYED[name]}))
    result = judged_on(bench, playable, orders)
    data = player_of(bench, playable, orders, result)
    assert data["refused"] is None
    tab = chromium.new_page()
    tab.evaluate(f"{script('player.js')}; globalThis.Player = Player; 0")
    found, checked = tab.evaluate(
        "text => { const player = new Player(JSON.parse(text)); return [player.all(), player.check()]; }",
        strict_json(data),
    )
    tab.close()
    assert agree(found, *decisions(bench, playable, orders)) > len(orders)
    assert checked["orders"] == len(orders)
    assert checked["differ"] == 0


def judged_on(bench: Workbench, playable: Any, orders: OrderBatch) -> Any:
    return judged(bench, "checkpoint-0001", "checkpoint", playable, orders)


def expected_of(run: RunDirectory) -> tuple[list[list[tuple[Any, ...]]], np.ndarray]:
    bench, told = workbench(run), json.loads((run.backtest / PLAYER).read_text())
    orders = bench.align(load_orders(run, bench, "test"), bench.objective.middle)
    number = told["policy"].rpartition("-")[2]
    return decisions(bench, checkpoint_policy(bench, run.checkpoints / f"{number}.pt"), orders)


def opened(chromium: Any, run: RunDirectory, **options: Any) -> tuple[Any, list[str]]:
    """Return the report in a tab, and what its console complained of."""
    tab, complaints = chromium.new_context(**options).new_page(), []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(run.report.as_uri())
    return tab, complaints


@needs_chromium
def test_all_test_orders_of_a_run_are_decided_in_chromium_as_in_its_backtest(
    chromium: Any, reported: RunDirectory
) -> None:
    tab, complaints = opened(chromium, reported)
    found = tab.evaluate("rlwbPlayer.player.all()")
    assert agree(found, *expected_of(reported)) > 100
    tab.click("#play-check")
    tab.wait_for_function("document.querySelector('#play-checked').textContent.includes('as in the backtest')")
    orders = len(found)
    assert tab.text_content("#play-checked").startswith(f"{orders} of {orders} orders trade here as in the backtest")
    assert complaints == []
    tab.context.close()


@needs_firefox
def test_all_test_orders_of_a_run_are_decided_in_firefox_as_in_its_backtest(
    reported: RunDirectory, tmp_path: Path
) -> None:
    harness = """<!doctype html><title>harness</title><iframe src="report.html"></iframe><script>
    document.querySelector("iframe").addEventListener("load", (event) => {
      const { player } = event.target.contentWindow.rlwbPlayer;
      fetch("done", { method: "POST", body: JSON.stringify([navigator.userAgent, player.all()]) });
    });</script>"""
    pages = {"/": harness.encode(), "/report.html": reported.report.read_bytes()}
    answers: list[Any] = []
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body or b"")

        def do_POST(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    assert FIREFOX is not None
    command = [
        FIREFOX,
        "--headless",
        "--no-remote",
        "--profile",
        str(tmp_path),
        f"http://127.0.0.1:{server.server_port}/",
    ]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert done.wait(120), "the page in Firefox gave no answer"
    finally:
        browser.terminate()
        browser.wait(timeout=20)
        server.shutdown()
        server.server_close()
    ((agent, found),) = answers
    assert "Firefox" in agent
    assert agree(found, *expected_of(reported)) > 100


@needs_chromium
def test_a_reader_changes_an_order_with_the_keyboard(chromium: Any, reported: RunDirectory) -> None:
    tab, complaints = opened(chromium, reported)
    first = tab.text_content("#play-pa")
    assert tab.text_content("#play-recorded") == first
    tab.focus("#play-start")
    tab.keyboard.press("End")
    assert tab.text_content("#play-start-out") == "14:55"
    assert "Changed: start; the backtest has no such order" in tab.text_content("#play-told")
    assert tab.locator("#play-steps tbody tr").count() == 1
    assert tab.text_content("#play-over") == "0.00 bp", "one bar is the order's whole window"
    tab.focus("#play-amount")
    tab.keyboard.press("End")
    assert "100.00 × the order's" in tab.text_content("#play-amount-out")
    assert "100.00 × the order's" in tab.get_attribute("#play-amount", "aria-valuetext"), "not its logarithm"
    side = "sell" if tab.is_checked("#play-buy") else "buy"
    tab.focus("#play-buy" if side == "sell" else "#play-sell")
    tab.keyboard.press("ArrowRight")
    assert tab.is_checked(f"#play-{side}")
    assert "Changed: amount, start, side" in tab.text_content("#play-told")
    tab.focus("#play-again")
    tab.keyboard.press("Enter")
    assert tab.text_content("#play-pa") == first
    tab.focus("#play-order")
    tab.keyboard.press("Home")
    assert tab.text_content("#play-order-out").startswith("1 of ")
    assert complaints == []
    tab.context.close()


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_k20_the_number_and_its_interval_are_on_the_first_screen_of_a_telephone(
    chromium: Any, reported: RunDirectory, scheme: str
) -> None:
    tab, complaints = opened(chromium, reported, viewport={"width": 400, "height": 800}, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    for chosen in (".number", ".number + p strong", ".interval"):
        box = tab.locator(chosen).first.bounding_box()
        assert box["y"] + box["height"] < 800
        assert box["x"] + box["width"] <= 400
    assert tab.title().startswith(f"{reported.path.name}: ")
    assert tab.text_content(".number").removesuffix(" bp") in tab.title()
    assert complaints == []
    tab.context.close()


@needs_chromium
def test_details_are_open_on_paper_and_closed_again(chromium: Any, reported: RunDirectory) -> None:
    tab, _ = opened(chromium, reported)
    tab.evaluate(
        "window.seen = []; addEventListener('beforeprint', () => "
        "seen.push(document.querySelectorAll('details:not([open])').length))"
    )
    assert tab.locator("details").count() >= 2
    tab.pdf()
    assert tab.evaluate("seen") == [0]
    assert tab.locator("details[open]").count() == 0
    tab.context.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network.name": "recurrent"}, "no forward pass of Recurrent"),
        ({"simulator": {"name": "rlwb.execution.simulator:RandomLiquidity"}}, "simulator rlwb.execution.simulator"),
    ],
)  # fmt: skip
def test_what_the_page_cannot_play_is_said(changes: dict[str, Any], words: str) -> None:
    bench, playable, orders = a_policy(tiny(**changes))
    told = player_of(bench, playable, orders, judged_on(bench, playable, orders))
    assert told.keys() == {"refused", "policy"}
    assert words in told["refused"]


def test_of_many_bars_sessions_evenly_over_the_test_days_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, playable, orders = a_policy(tiny())
    result = judged_on(bench, playable, orders)
    whole = player_of(bench, playable, orders, result)
    bars = sum(len(one["data"]) * 3 // 4 for one in whole["market"].values())
    lasting = len(orders) * (80 + 4 * whole["recorded"]["left"]["shape"][1])
    each = (bars + lasting) / whole["market"]["price"]["shape"][0]
    monkeypatch.setattr("rlwb.experiment.player.MOST_BYTES", 4 * each)
    some = player_of(bench, playable, orders, result)
    assert some["market"]["price"]["shape"][0] == 4
    assert some["of"] == whole["of"] == len(orders)
    assert some["shown"] == len(some["orders"]["id"]) < some["of"]
    assert some["orders"]["id"][0] == whole["orders"]["id"][0]
    assert some["orders"]["id"][-1] == whole["orders"]["id"][-1]


def test_floats_are_packed_as_short_as_they_stay_exact() -> None:
    assert packed(np.array([0.5, np.nan]))["type"] == "f4"
    assert packed(np.array([0.1]))["type"] == "f8"
    assert packed(np.array([[1, 2]], dtype=np.int8)) == {"shape": [1, 2], "type": "i4", "data": "AQAAAAIAAAA="}


def test_text_in_the_page_ends_no_script(reported: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(reported.path, tmp_path / "run", symlinks=True)
    run = RunDirectory.open(tmp_path / "run")
    told = json.loads((run.backtest / PLAYER).read_text())
    told["orders"]["id"][0] = "</script><script>alert(1)</script>"
    del told["signals"]  # as of a network that reads no bars
    (run.backtest / PLAYER).write_text(json.dumps(told))
    page = write_report(run).read_text()
    assert page.count("</script>") == 3
    assert "alert(1)" in page
