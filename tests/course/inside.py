"""A notebook executed in this process, which has imported most of what it needs; no kernel is started."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from rlwb.course.books import source_of


class Shell(InteractiveShell):
    """A shell that shows what its cells end with to a list."""

    def __init__(self) -> None:
        super().__init__(history_load_length=0)
        self.history_manager.enabled = False
        self.shown: list[dict[str, Any]] = []
        self.display_pub = CapturingDisplayPublisher()
        hook = self.displayhook
        hook.write_output_prompt = hook.finish_displayhook = hook.log_output = lambda *_: None  # type: ignore[method-assign]
        hook.write_format_data = lambda data, _=None: self.shown.append(data)  # type: ignore[method-assign]


@contextmanager
def only_shell() -> Iterator[Shell]:
    """Make a shell of this process the one that code finds, and give the place back."""
    before = InteractiveShell._instance
    InteractiveShell.clear_instance()
    shell = Shell.instance()
    try:
        yield shell
    finally:
        Shell.clear_instance()
        InteractiveShell._instance = before


def run_inside(book: Any, values: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Run the code cells of a notebook with values for its parameters; return what was printed and what was shown."""
    printed = io.StringIO()
    with only_shell() as shell, redirect_stdout(printed), redirect_stderr(io.StringIO()):
        shell.display_formatter.active_types = ["text/plain", "text/html", "image/png"]
        for cell in book["cells"]:
            if cell["cell_type"] != "code":
                continue
            source = re.sub(r"^%matplotlib.*$", "", source_of(cell), flags=re.MULTILINE)
            if "parameters" in cell["metadata"].get("tags", ()):
                source = "\n".join([source, *(f"{name} = {value!r}" for name, value in values.items())])
            done = shell.run_cell(source)
            if done.error_before_exec or done.error_in_exec:
                raise AssertionError(f"cell {cell['id']}: {done.error_in_exec or done.error_before_exec!r}")
        shown = [*shell.shown, *(output["data"] for output in shell.display_pub.outputs)]
    return printed.getvalue(), shown
