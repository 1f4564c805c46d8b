"""JupyterLab for tests: a server of its own on a folder, and notebooks in it that a browser opens and runs."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from tests.notebooks.small import NOTEBOOKS, ROOT

SETTINGS = {
    # All cells are in the page, whether they are in view or not.
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}
READY = """async () => {
  const widget = window.jupyterapp.shell.currentWidget;
  await window.jupyterapp.restored; await widget.revealed; await widget.context.ready;
  await widget.sessionContext.ready; await widget.sessionContext.session.kernel.info;
}"""
IDLE = """() => {
  const kernel = window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel;
  return kernel && kernel.status === 'idle' && kernel.connectionStatus === 'connected';
}"""
OUTPUTS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code').map(cell => cell.model.outputs.toJSON())"""


@dataclass
class Lab:
    """A running server of JupyterLab."""

    folder: Path
    address: str
    token: str

    def open(self, page: Any, name: str, **values: Any) -> None:
        """Open a copy of a notebook in a page, its parameters set to values as papermill sets them."""
        book = parameterize_notebook(load_notebook_node(str(NOTEBOOKS / name)), values)
        nbformat.write(book, self.folder / name)
        # In a workspace of its own, where no notebook that was open before is open again.
        place = f"{self.address}/lab/workspaces/{Path(name).stem}/tree/{name}"
        page.goto(f"{place}?token={self.token}", wait_until="domcontentloaded")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel")
        page.evaluate(READY)
        page.wait_for_function(IDLE)

    def run_all(self, page: Any) -> list[list[dict[str, Any]]]:
        """Run all cells of the open notebook; return the outputs of each code cell."""
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_function(IDLE)
        found: list[list[dict[str, Any]]] = page.evaluate(OUTPUTS)
        return found


@contextmanager
def jupyterlab(folder: Path) -> Iterator[Lab]:
    """Start JupyterLab on a folder, with settings and workspaces of its own, and end it with its kernels."""
    home, token = folder / ".jupyter", secrets.token_hex(8)
    (home / "labconfig").mkdir(parents=True)
    (home / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(SETTINGS))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"JUPYTER_CONFIG_DIR": home, "JUPYTERLAB_SETTINGS_DIR": home / "s", "JUPYTERLAB_WORKSPACES_DIR": home / "w"}
    environment = {**os.environ, **{name: str(path) for name, path in own.items()}, "PYTHONPATH": str(ROOT)}
    environment.pop("MPLBACKEND", None)  # the notebooks choose
    words = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}"]
    words += [f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"]
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *words], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/api?token={token}", server, folder / "lab.log")
        yield Lab(folder, address, token)
    finally:
        server.terminate()
        server.wait(60)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(1200):
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(address).close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise TimeoutError(log.read_text())
