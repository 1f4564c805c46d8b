"""A cell of a notebook, run again and again, as widgets see it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from ipywidgets.widgets import widget as registry
from matplotlib import pyplot as plt
from matplotlib.figure import Figure


class Cell:
    """Runs of one cell: `run` tells panels that a new one begins; `attended` as by a person's front end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.execution, self.attended, self.place = 0, True, "a"
        monkeypatch.setattr("rlwb.widgets.panel._asked", self._asked)
        monkeypatch.setattr("rlwb.widgets.panel.is_attended", lambda: self.attended)

    def run(self, cell: Callable[[], None]) -> None:
        self.execution += 1
        cell()

    def _asked(self) -> dict[str, Any]:
        return {
            "header": {"msg_type": "execute_request", "msg_id": str(self.execution)},
            "metadata": {"cellId": self.place},
        }


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    return Cell(monkeypatch)


def alive() -> dict[str, int]:
    """Count what a cell that is run again must not leave: widgets, their observers, figures, and those of pyplot."""
    gc.collect()
    widgets = list(registry._instances.values())
    watchers = sum(len(found) for one in widgets for by in one._trait_notifiers.values() for found in by.values())
    figures = sum(issubclass(type(one), Figure) for one in gc.get_objects())  # some objects warn when they are asked
    return {"widgets": len(widgets), "watchers": watchers, "figures": figures, "pyplot": len(plt.get_fignums())}
