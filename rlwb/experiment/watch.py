"""A page of runs for a browser on this machine, which follows their files while they train."""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.control import standing
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.run import RunDirectory, last_iteration, short_path
from rlwb.files import strict_json
from rlwb.webpage import webpage

_PAGE = Path(__file__).with_name("static") / "watch.html"
#: Folders below a path in which runs are looked for: those of a run's windows, or of a sweep's members.
_DEPTHS = ("*/status.json", "*/*/status.json")
#: Series of figures to the table that holds them.
_TABLES = {
    "train": "metrics/train.csv",
    "val": "metrics/validation.csv",
    "teacher/train": "metrics/teacher/train.csv",
    "teacher/val": "metrics/teacher/validation.csv",
}
_MOST_RUNS = 200
#: What reading a run's files may raise where one of them is not as the run wrote it.
_DAMAGE = (RlwbError, OSError, ValueError, LookupError, TypeError, AttributeError, csv.Error)


class Board:
    """The runs below some paths, as the page asks for them; their files are read, and nothing is written.

    Parameters
    ----------
    paths
        Directories of runs, or folders that hold some.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if not path.is_dir():
                raise ConfigError(f"there is no folder {path}; name a run, or a folder of runs.")
        self.paths = [path.resolve() for path in paths]
        self._tables: dict[Path, tuple[int, dict[str, list[list[float | None]]]]] = {}

    def runs(self) -> dict[str, RunDirectory]:
        """Return name to run, those whose directory changed last first."""
        places = {path: path for path in self.paths if (path / "status.json").is_file()}
        for parent in self.paths:
            for pattern in _DEPTHS:
                places |= {found.parent: parent for found in parent.glob(pattern) if found.parent.name != "origin"}
        latest = sorted(places, key=lambda place: -place.stat().st_ctime)[:_MOST_RUNS]
        named: dict[str, RunDirectory] = {}
        for place in latest:
            parent = places[place]
            name = place.name if place == parent else place.relative_to(parent).as_posix()
            named[name if name not in named else str(place)] = RunDirectory(place)
        return named

    def overview(self) -> dict[str, Any]:
        """Return what the page shows of every run."""
        rows, figures = [], dict[str, None]()
        for name, run in self.runs().items():
            with suppress(*_DAMAGE):  # half begun, or damaged: the others are shown
                rows.append({"name": name, **self._row(run)})
                for series, table in _TABLES.items():
                    figures |= {f"{series}/{figure}": None for figure in self._table(run.path / table)}
        return {"runs": rows, "figures": list(figures), "at": time.time()}

    def curve(self, figure: str) -> dict[str, list[list[float | None]]]:
        """Return name of a run to its iterations and values of a figure, such as ``val/pa``; a missing one is None."""
        series, name = next((one, figure[len(one) + 1 :]) for one in _TABLES if figure.startswith(f"{one}/"))
        table = _TABLES[series]
        found = {}
        for run_name, run in self.runs().items():
            with suppress(*_DAMAGE):
                points = self._table(run.path / table).get(name)
                if points:
                    found[run_name] = points
        return found

    def details(self, name: str) -> dict[str, Any]:
        """Return of one run its settings, its headline as cells, and the names of its pictures."""
        run = self.runs()[name]
        tree = run.config.as_dict()
        headline = run.backtest / "headline.json"
        told = json.loads(headline.read_text(encoding="utf-8")) if headline.is_file() else {}
        return {
            "settings": {key: value_at(tree, key) for key in leaves(tree)},
            "headline": {key: told.get(key, []) for key in ("header", "rows")},
            "pictures": sorted(path.stem for path in run.figures.glob("*.png")),
            "report": run.report.is_file(),
            "path": short_path(run.path),
        }

    def picture(self, name: str, stem: str) -> bytes:
        """Return a figure of a run, a PNG file."""
        path = next(path for path in self.runs()[name].figures.glob("*.png") if path.stem == stem)
        return path.read_bytes()

    def report(self, name: str) -> bytes:
        """Return the report of a run."""
        return self.runs()[name].report.read_bytes()

    def _row(self, run: RunDirectory) -> dict[str, Any]:
        config, status = run.config, run.status
        judged = self._table(run.metrics / "validation.csv").get(config.judged_by, [])
        values = [value for _, value in judged if value is not None]
        seconds = [value for _, value in self._table(run.metrics / "train.csv").get("seconds", []) if value is not None]
        stages = status["stages"]
        return {
            "state": standing(run),
            "stage": next((name for name, one in stages.items() if one.get("state") == "running"), None),
            "error": (status.get("failure") or {}).get("error") if run.state == "failed" else None,
            "iteration": last_iteration(run.checkpoints),
            "iterations": config.train.iterations,
            "algorithm": config.algorithm.name,
            "network": config.network.name,
            "seed": config.seed,
            "judged_by": config.judged_by,
            "last": values[-1] if values else None,
            "best": max(values) if values else None,
            "seconds": sum(seconds[-10:]) / len(seconds[-10:]) if seconds else None,
            "test": headline_pa(run),
            "started": min((one["started"] for one in stages.values() if one.get("started")), default=None),
        }

    def _table(self, path: Path) -> dict[str, list[list[float | None]]]:
        """Return figure to iterations and values of a table, read once as long as it stays."""
        if not path.is_file():
            return {}
        stamp = path.stat().st_mtime_ns
        if path not in self._tables or self._tables[path][0] != stamp:
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            names = [name for name in (rows[0] if rows else ()) if name != "iteration"]
            table = {name: [[int(row["iteration"]), _number(row[name])] for row in rows] for name in names}
            self._tables[path] = stamp, table
        return self._tables[path][1]


def _number(cell: str) -> float | None:
    value = float(cell or "nan")
    return value if math.isfinite(value) else None


def headline_pa(run: RunDirectory) -> dict[str, float | None] | None:
    """Return `mean`, `lo`, `hi` of the test PA of the chosen checkpoints, or of what stands first, in basis points."""
    path = run.backtest / "headline.csv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file), None)
    return {name: _number(first.get(f"pa_{name}") or "") for name in ("mean", "lo", "hi")} if first else None


class _Handler(BaseHTTPRequestHandler):
    """Answers the page's questions from a board; reads alone."""

    server: _Server

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        host = (self.headers.get("Host") or "").partition(":")[0]  # of the port 80 browsers say none
        if host not in ("127.0.0.1", "localhost"):  # a foreign page that calls this machine by a name of its own
            self._answer(403, b"", {"content-type": "text/plain"})
            return
        try:
            self._answer(200, *self._content(address.path, asked))
        except (KeyError, StopIteration, FileNotFoundError):
            self._answer(404, b"there is no such thing", {"content-type": "text/plain"})
        except _DAMAGE as error:
            self._answer(500, str(error).encode(), {"content-type": "text/plain; charset=utf-8"})

    def _content(self, path: str, asked: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        board, json_headers = self.server.board, {"content-type": "application/json"}
        if path == "/":
            return webpage(_PAGE, "data: 'self'")
        if path == "/runs":
            return strict_json(board.overview()).encode(), json_headers
        if path == "/curve":
            return strict_json(board.curve(asked["figure"])).encode(), json_headers
        if path == "/run":
            return strict_json(board.details(asked["name"])).encode(), json_headers
        if path == "/picture":
            return board.picture(asked["name"], asked["of"]), {"content-type": "image/png"}
        if path == "/report":
            return board.report(asked["name"]), {"content-type": "text/html; charset=utf-8"}
        raise KeyError(path)

    def _answer(self, code: int, content: bytes, headers: dict[str, str]) -> None:
        with suppress(ConnectionError):  # the page was closed
            self.send_response(code)
            for name, value in {"cache-control": "no-cache", "x-content-type-options": "nosniff", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing for a request."""


class _Server(ThreadingHTTPServer):
    """Serves a board on this machine alone."""

    daemon_threads = True

    def __init__(self, board: Board, port: int) -> None:
        self.board = board
        super().__init__(("127.0.0.1", port), _Handler)


def serve_board(paths: Sequence[Path], port: int) -> _Server:
    """Return a server of the page on this machine alone; ``serve_forever`` runs it.

    Parameters
    ----------
    paths
        Directories of runs, or folders that hold some.
    port
        Where it listens; 0 takes a free one.

    Raises
    ------
    ConfigError
        Where a path is no folder, or the port is taken.
    """
    board = Board(paths)
    try:
        return _Server(board, port)
    except (OSError, OverflowError) as error:
        told = getattr(error, "strerror", None) or "ports are numbers up to 65535"
        raise ConfigError(f"port {port} cannot be had ({told}); name another with --port.") from None
