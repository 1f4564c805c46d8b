"""The page that follows runs: what its server answers, and what a browser shows of it."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.control import ask
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.watch import serve_board
from tests.browser.tools import CHROMIUM, needs_browser
from tests.experiment.fakes import config
from tests.experiment.test_report import PIXEL


def begin(place: Path, best: float, **settings: object) -> RunDirectory:
    """Return a run after two iterations, the first of which was not validated."""
    run = RunDirectory.create(place, config(**settings))
    for folder in (run.metrics, run.checkpoints, run.figures, run.backtest):
        folder.mkdir()
    (run.metrics / "train.csv").write_text("iteration,pa,loss,seconds\n1,-2.5,,0.5\n2,1.5,0.25,1.5\n")
    (run.metrics / "validation.csv").write_text(f"iteration,pa\n2,{best}\n")
    (run.checkpoints / "0002.pt").write_text("x")
    (run.figures / "curves.png").write_bytes(PIXEL)
    run.update_stage("train", {"state": "running", "started": "2026-01-02T03:04:05+00:00"})
    run.update_status(state="running")
    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    begin(tmp_path / "sweep" / "seed-0", 3.0)
    begin(tmp_path / "sweep" / "seed-1", 4.0, seed=1)
    (tmp_path / "sweep" / "broken").mkdir()
    (tmp_path / "sweep" / "broken" / "status.json").write_text("{")
    return tmp_path / "sweep"


@pytest.fixture
def address(runs: Path) -> Iterator[str]:
    server = serve_board([runs], 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def get(address: str, **headers: str) -> tuple[bytes, Any]:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=30) as answer:
        return answer.read(), answer.headers


def told(address: str) -> Any:
    return json.loads(get(address)[0])


def refused(address: str, **headers: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(address, **headers)
    caught.value.close()
    return caught.value.code


def test_the_list_says_how_far_each_run_is(address: str) -> None:
    found = told(f"{address}/runs")
    rows = {run["name"]: run for run in found["runs"]}
    assert rows.keys() == {"seed-0", "seed-1"}, "a damaged one hides no other"
    own = rows["seed-1"]
    assert (own["iteration"], own["iterations"], own["seed"], own["last"], own["best"]) == (2, 3, 1, 4.0, 4.0)
    assert (own["state"], own["stage"], own["test"]) == ("interrupted", "train", None), "no process holds it"
    assert own["seconds"] == 1.0
    assert set(found["figures"]) == {"train/pa", "train/loss", "train/seconds", "val/pa"}


def test_a_run_that_is_asked_to_pause_is_shown_as_that(address: str, runs: Path) -> None:
    run = RunDirectory(runs / "seed-1")
    with run.lock():
        ask(run, "pause")
        assert "pausing" in [one["state"] for one in told(f"{address}/runs")["runs"]]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metrics/validation.csv", "iteration,pa\n1,2,3\n"),
        ("metrics/train.csv", 'iteration,pa\n1,"' + "x" * 200_000),
        ("backtest/headline.json", "[]"),
    ],
)
def test_a_damaged_table_hides_no_other_run(address: str, runs: Path, file: str, text: str) -> None:
    (runs / "seed-0" / file).write_text(text)
    assert "seed-1" in {run["name"] for run in told(f"{address}/runs")["runs"]}
    assert "seed-1" in told(f"{address}/curve?figure=val/pa")
    if file.endswith(".json"):
        assert refused(f"{address}/run?name=seed-0") == 500


def test_curves_follow_the_files_and_a_missing_value_stays_missing(address: str, runs: Path) -> None:
    assert told(f"{address}/curve?figure=train/loss")["seed-0"] == [[1, None], [2, 0.25]]
    assert told(f"{address}/curve?figure=val/pa") == {"seed-0": [[2, 3.0]], "seed-1": [[2, 4.0]]}
    (runs / "seed-0" / "metrics" / "validation.csv").write_text("iteration,pa\n2,3.0\n3,5.5\n")
    assert told(f"{address}/curve?figure=val/pa")["seed-0"] == [[2, 3.0], [3, 5.5]]
    (runs / "seed-0" / "metrics" / "teacher").mkdir()
    (runs / "seed-0" / "metrics" / "teacher" / "train.csv").write_text("iteration,pa\n1,9.0\n")
    assert told(f"{address}/curve?figure=teacher/train/pa") == {"seed-0": [[1, 9.0]]}
    assert told(f"{address}/curve?figure=val/such") == {}
    assert refused(f"{address}/curve?figure=none/such") == refused(f"{address}/curve?figure=teacher/pa") == 404


def test_a_run_is_shown_with_its_settings_pictures_and_report(address: str, runs: Path) -> None:
    (runs / "seed-0" / "backtest" / "headline.csv").write_text("policy,pa_mean,pa_lo,pa_hi\ncheckpoints,1.5,-1,4\n")
    assert {"mean": 1.5, "lo": -1.0, "hi": 4.0} in [run["test"] for run in told(f"{address}/runs")["runs"]]
    found = told(f"{address}/run?name=seed-0")
    assert found["settings"]["train.iterations"] == 3
    assert found["pictures"] == ["curves"]
    assert get(f"{address}/picture?name=seed-0&of=curves")[0] == PIXEL
    assert not found["report"]
    (runs / "seed-0" / "report.html").write_text("<p>report</p>")
    assert get(f"{address}/report?name=seed-0")[0] == b"<p>report</p>"


def test_nothing_but_what_belongs_to_the_runs_is_served(address: str) -> None:
    for path in (
        "/run?name=../secret",
        "/picture?name=seed-0&of=../../x",
        "/etc/passwd",
        "/report?name=seed-0",
        "/run",
    ):
        assert refused(f"{address}{path}") == 404, path
    for host in ("evil.example:80", "localhost.evil.example", "[::1]:80"):
        assert refused(f"{address}/runs", Host=host) == 403, host
    assert get(f"{address}/runs", Host="localhost")[0], "of the port 80 browsers say none"
    assert "script-src 'sha256-" in get(address)[1]["content-security-policy"]


def test_a_place_that_is_not_there_and_a_port_that_is_taken_are_named(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        serve_board([tmp_path / "nowhere"], 0)
    with pytest.raises(ConfigError, match="port"):
        serve_board([tmp_path], int(address.rpartition(":")[2]))
    with pytest.raises(ConfigError, match="port 99999"):
        serve_board([tmp_path], 99999)


@needs_browser
def test_a_browser_draws_a_line_a_run_and_text_stays_text(address: str, runs: Path) -> None:
    (runs / "seed-0").rename(runs / "<img src=x>")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=8000")
    words = [str(CHROMIUM), *flags, f"--user-data-dir={runs.parent / 'browser'}", "--dump-dom", address]
    page = subprocess.run(words, capture_output=True, text=True, timeout=120).stdout
    assert "&lt;img src=x&gt;" in page
    assert "<img src=" not in page.partition("<script>")[0]
    assert page.count('<path d="M') >= 4, "train/pa and train/loss of both"
    assert "2 runs, " in page
