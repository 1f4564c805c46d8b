"""The page in a browser, against a small server of JSON: what it shows, that text stays text, and faults."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from rlwb.market import Calendar
from rlwb.serving.monitor import Monitor
from rlwb.serving.page import page
from tests.browser.tools import chromium, needs_browser, new_page, picture
from tests.serving.desk import Desk
from tests.serving.test_monitor import DAY, STATISTICS, Came, Made

HOSTILE = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


def an_order(name: str, steps: int = 4, **changes: Any) -> dict[str, Any]:
    """An order of 1,000 over 16 ticks from tick 8, in steps of 4, 200 each, the second by the schedule."""
    made = [
        {"step": at, "tick": 8 + 4 * at, "position": 1000.0 - 200 * at, "amount": 200.0, "source": "policy"}
        for at in range(steps)
    ]
    if steps > 1:
        made[1]["source"] = "schedule"
    fixed = {"instrument": "AAA", "date": "2024-01-03", "direction": "BUY", "amount": 1000.0, "start": 8, "end": 24}
    told = {"status": "open", "filled": 600.0, "average_price": 10.0, "position": 400.0, "pa_bp": None}
    return {"order_id": name, **fixed, **told, "steps": made, **changes}


def watched(days: int = 40) -> Monitor:
    """A monitor after some days, with an alarm of drift and one of each refusal."""
    monitor = Monitor(STATISTICS, bundle={"name": "a-bundle", "precision": "float32", "backend": "onnx"})
    rng = np.random.default_rng(0)
    for day in range(days):
        for tick in range(2):
            monitor.observe(["A"], DAY + day, np.array([tick]), np.array([[3.0]]))
        for _ in range(5):
            monitor.registered()
            monitor.finished(DAY + day, rng.normal(8.0, 20.0), {"policy": (0.9, 9.0), "schedule": (0.1, 1.0)})
    for _ in range(200):
        seconds = rng.lognormal(-7.5, 0.4)
        monitor.decided(seconds / 4, [Made(int(rng.integers(5)))])
        monitor.requested("/v1/decisions", 200, seconds)
    monitor.registered(3)
    monitor.arrived(Came(500, 1, 2, ((0, "off_grid"),)))
    monitor.refused("unknown_order", 4)
    monitor.should_fall_back("A", late=True, order_id=HOSTILE)
    return monitor


class Fake:
    """A server of the page, and of JSON that a test sets."""

    def __init__(self, token: str | None = None, port: int = 0) -> None:
        self.answers: dict[str, Any] = {
            "/info": {"calendar": Calendar.preset("cn", tick_minutes=5).as_dict(), "ticks_per_step": 4},
            "/v1/summary": watched().overview(),
            "/v1/orders": {"orders": [an_order("first"), an_order(HOSTILE, 1)], "total": 30, "next": 24},
        }
        self.asked: list[str] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                fake.asked.append(self.path)
                if path == "/":
                    body, headers, status = *page(), 200
                elif token is not None and self.headers.get("authorization") != f"Bearer {token}":
                    body, headers, status = b"{}", {}, 401
                else:
                    answer = fake.answers.get(path)
                    if path == "/v1/summary" and answer is not None:
                        answer["request"]["counts"][8] += 10  # requests go on
                    body, headers = json.dumps(answer).encode(), {"content-type": "application/json"}
                    status = 200 if answer is not None else 503
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *words: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    yield server
    server.close()


def opened(browser: Any, url: str, **options: Any) -> tuple[Any, list[str]]:
    """Return the page when it has figures, and all that its console complained of."""
    tab, complaints = new_page(browser, **options)
    tab.set_default_timeout(15_000)
    tab.goto(url)
    return tab, complaints


def test_the_page_is_one_file_without_handlers_or_hosts() -> None:
    text = page()[0].decode()
    assert not re.search(r"""\son\w+\s*=\s*["']""", text)
    assert not re.search(r"(src|href)\s*=\s*[\"'](?!data:)", text)
    assert set(re.findall(r"https?://[\w./]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "innerHTML" not in text
    assert len(text) < 32_000


def test_its_policy_allows_no_inline_code_but_its_own() -> None:
    policy = page()[1]["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert len(re.findall(r"(?:script|style)-src 'sha256-[\w+/=]{44}'", policy)) == 2


@needs_browser
def test_it_shows_orders_results_latency_drift_and_alerts(browser: Any, fake: Fake) -> None:
    tab, complaints = opened(browser, fake.url)
    tab.wait_for_selector("#content:not([hidden])")
    assert re.fullmatch(r"live, \d\d:\d\d:\d\d", tab.text_content("#state"))
    assert tab.text_content("#bundle") == "a-bundle · float32 · onnx"
    assert tab.text_content("#many") == "2 of 30"
    first = tab.locator(".order").first
    assert "buy 1,000 AAA, 2024-01-03; 40\u00a0% left" in first.text_content()
    assert first.locator("text").all_text_contents() == ["10:10", "11:30"]
    assert first.locator("circle.point").count() == 3
    assert first.locator("circle.schedule").count() == 1
    assert first.locator("title").all_text_contents()[1] == "10:30: 800 left, 200 to trade, by the schedule"
    # From 100 % at the start, step by step to 40 %; TWAP goes to nothing.
    twap, path = (re.findall(r"[\d.]+", first.locator(f"path.{name}").get_attribute("d")) for name in ("twap", "path"))
    assert (twap[1], twap[3]) == ("6.0", "60.0")
    assert [float(y) for y in path[1::2]] == pytest.approx([60 - 54 * left for left in (1, 0.8, 0.6, 0.4)], abs=0.06)
    assert path[0] == twap[0]
    assert float(path[-2]) < float(twap[2])
    view = fake.answers["/v1/summary"]
    assert f"mean {view['pa']['mean']:.2f} bp".rstrip("0") in tab.text_content("#pa-note")
    assert tab.locator("#pa polygon.band").count() == 1
    assert tab.locator("#pa circle").count() == 39
    assert "drifted" in tab.text_content("#alarms")
    assert tab.locator("#evidence rect.over").count() == 1
    assert tab.locator("#drift tbody tr").count() == 1
    assert tab.locator("#actions rect").count() == 5
    assert tab.locator("#alerts tbody tr").count() >= 2
    assert "unknown order 4" in tab.text_content("#tiles")
    tab.wait_for_selector("#latency path.path", state="attached")
    assert complaints == []
    tab.context.close()


@needs_browser
def test_what_comes_from_outside_stays_text(browser: Any, fake: Fake) -> None:
    fake.answers["/v1/summary"]["bundle"]["name"] = HOSTILE
    fake.answers["/v1/summary"]["drift"]["features"][0]["feature"] = HOSTILE
    fake.answers["/v1/orders"]["orders"][1]["instrument"] = HOSTILE
    tab, _ = opened(browser, fake.url)
    tab.wait_for_selector("#content:not([hidden])")
    assert tab.locator(".order strong").nth(1).text_content() == HOSTILE
    assert HOSTILE in tab.text_content("#alerts")
    assert HOSTILE in tab.text_content("#drift")
    assert tab.locator("img").count() == 0
    assert tab.locator("script").count() == 1
    tab.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {textContent: \"document.title='run'\"}))"
    )
    assert tab.title() == "rlwb service"
    tab.context.close()


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_screen_in_both_themes(browser: Any, fake: Fake, scheme: str) -> None:
    tab, complaints = opened(browser, fake.url, viewport={"width": 400, "height": 800}, color_scheme=scheme)
    tab.wait_for_selector("#content:not([hidden])")
    assert tab.evaluate("document.documentElement.scrollWidth") == 400
    color = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert color == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 25, 31)"}[scheme]
    assert complaints == []
    tab.context.close()


@needs_browser
def test_an_empty_service_has_a_page_too(browser: Any, fake: Fake) -> None:
    fake.answers["/v1/summary"] = Monitor().overview()
    fake.answers["/v1/orders"] = {"orders": [an_order("new", 0, position=1000.0)], "total": 1, "next": None}
    tab, complaints = opened(browser, fake.url)
    tab.wait_for_selector("#content:not([hidden])")
    assert "this policy reads no bars" in tab.text_content("#drift-note")
    assert "100\u00a0% left" in tab.text_content(".order")
    assert complaints == []
    tab.context.close()


@needs_browser
def test_it_says_when_the_service_is_away_and_comes_back(browser: Any) -> None:
    from playwright.sync_api import expect

    server = Fake()
    tab, _ = opened(browser, server.url)
    tab.wait_for_selector("#content:not([hidden])")
    server.answers["/v1/summary"] = None
    expect(tab.locator("#state")).to_contain_text("answered 503")
    port = server.server.server_port
    server.close()
    expect(tab.locator("#state")).to_contain_text("the service is away; as of")
    again = Fake(port=port)
    expect(tab.locator("#state")).to_contain_text("live")
    tab.context.close()
    again.close()


@needs_browser
def test_a_token_is_asked_for_kept_in_the_tab_and_sent(browser: Any) -> None:
    server = Fake(token="sesame")
    tab, _ = opened(browser, server.url)
    tab.wait_for_selector("#door:not([hidden])")
    tab.fill("#token", "wrong")
    tab.click("#door button")
    tab.wait_for_timeout(100)
    assert tab.is_visible("#door")
    tab.fill("#token", "sesame")
    tab.click("#door button")
    tab.wait_for_selector("#content:not([hidden])")
    assert not tab.is_visible("#door")
    assert tab.evaluate("sessionStorage.length + ',' + localStorage.length + ',' + document.cookie.length") == "1,0,0"
    assert not any("sesame" in path for path in server.asked)
    tab.reload()
    tab.wait_for_selector("#content:not([hidden])")
    tab.context.close()
    server.close()


@needs_browser
def test_the_service_itself_serves_it_with_its_orders(browser: Any, bundle_path: Path) -> None:
    from rlwb.serving import app as application
    from rlwb.serving.bundle import open_bundle
    from rlwb.serving.policy import BundlePolicy
    from rlwb.serving.process import listen
    from rlwb.serving.service import Service

    policy = BundlePolicy(open_bundle(bundle_path))
    monitor = Monitor()
    application.watch(monitor, policy, "main", "torch")
    service = Service(policy, name="main", monitor=monitor)
    desk = Desk(policy.bundle.calendar)
    service.register([desk.order(HOSTILE)])
    service.bars(desk.bars("AAA", 0, 4))
    front = application.Front(application.Api(service, bundles={}), application.Security("sesame"))
    listener = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(front, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        tab, _ = opened(browser, f"http://127.0.0.1:{listener.getsockname()[1]}/")
        tab.wait_for_selector("#door:not([hidden])")
        tab.fill("#token", "sesame")
        tab.click("#door button")
        tab.wait_for_selector("#content:not([hidden])")
        assert tab.text_content(".order strong") == HOSTILE
        assert tab.locator("#drift tbody tr").count() == len(policy.market.features.columns)
        picture(tab, "service-itself", full_page=True)
        tab.context.close()
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()
