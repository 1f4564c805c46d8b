"""A form for all parameters of a run, made from their schema, which writes the file that ``rlwb run`` takes."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.form import ConfigurationState, Field
from rlwb.widgets.panel import Panel, in_turn

if TYPE_CHECKING:
    from ipywidgets import Widget

#: What ends the first words of a meaning.
_CLAUSE = r"[.:;](\s|$)"
_NONE = ("none", "null")
"""The absence of a value, as a choice names it and as a file writes it."""


class ConfigurationForm(Panel):
    """A form of all parameters of a run: what each takes and means, beside it what is wrong, below it the file so far.

    A part that is chosen by name brings its settings. *Save* writes what differs from the defaults, *Load* reads such a
    file. Elsewhere than in a notebook's front end it is the text of that file.

    Parameters
    ----------
    config
        The configuration to begin with; None for the defaults.
    path
        The file that *Save* writes and *Load* reads, which the form can change.
    """

    def __init__(self, config: RunConfig | None = None, path: str | os.PathLike[str] = "mine.yaml") -> None:
        super().__init__()
        self.state, self.path = ConfigurationState(), Path(path)
        if config is not None:
            self.state.take(config)
        self._pages: dict[str, Any] = {}
        self._inputs: dict[str, tuple[Any, Any]] = {}
        self._is_showing = False

    def static(self) -> dict[str, Any]:
        text = self.state.text() or "# all parameters are at their defaults\n"
        return {"text/plain": text, "text/markdown": f"```yaml\n{text}```"}

    def build(self) -> Widget:
        from ipywidgets import HTML, Button, Dropdown, HBox, Layout, Stack, Text, VBox

        sections = self.state.sections()
        self._pages = {name: VBox() for name in sections}
        titles = [f"{name}: {re.split(_CLAUSE, meaning)[0]}" for name, meaning in sections.items()]
        section = Dropdown(options=["choose one", *titles], description="Section", layout=Layout(width="60em"))
        self._stack = Stack(list(self._pages.values()), selected_index=None)
        section.observe(lambda change: self._open(change["new"] - 1), "index")
        self._file = Text(str(self.path), description="File", layout=Layout(width="50%"), continuous_update=False)
        save = Button(description="Save", icon="save", tooltip="Write what differs from the defaults")
        load = Button(description="Load", icon="folder-open", tooltip="Read this file in the place of what is here")
        save.on_click(lambda _: self._do(self.state.save, "Written; start it with: rlwb run"))
        load.on_click(lambda _: self._do(self.state.load, "Read from"))
        self._answer, self._text = HTML(), HTML()
        self._show_text()
        return VBox([section, self._stack, HBox([self._file, load, save]), self._answer, self._text])

    def close(self) -> None:
        """Close the form; what was filled in stays in `state`."""
        self._pages, self._inputs = {}, {}
        super().close()

    @in_turn
    def _open(self, number: int) -> None:
        """Show a section; its rows are made when it is first opened: all at once would be hundreds of widgets."""
        self._stack.selected_index = number if number >= 0 else None
        if number >= 0:
            name = list(self._pages)[number]
            if not self._pages[name].children:
                self._fill(name)

    def _fill(self, section: str, *, keeps: int = 0) -> None:
        """Make the rows of a section; the first ones are kept, of which one may have the keyboard's focus."""
        from rlwb.widgets.panel import close_tree

        page = self._pages[section]
        old, fields = page.children, self.state.fields(section)
        page.children = [*old[:keeps], *map(self._row, fields[keeps:])]
        for row in old[keeps:]:
            close_tree(row)
        there = {field.name for field in fields}
        for name in [one for one in self._inputs if one.partition(".")[0] == section and one not in there]:
            del self._inputs[name]

    def _row(self, field: Field) -> Widget:
        from ipywidgets import HTML, Combobox, Dropdown, HBox, Layout, Text, VBox

        look: dict[str, Any] = {
            "description": field.name,
            "style": {"description_width": "15em"},
            "layout": Layout(width="32em"),
            "description_allow_html": False,
        }
        if field.is_part:
            one: Any = Combobox(value=field.text, options=field.options, ensure_option=False, **look)
            one.continuous_update = False
        elif field.options and not field.error:
            options = [_NONE if option == "null" else (option, option) for option in field.options]
            one = Dropdown(value=field.text, options=options, **look)
        else:
            one = Text(value=field.text, placeholder=field.default, continuous_update=False, **look)
        error = HTML(layout=Layout(margin="0 0 0 15.5em"))
        facts = [field.takes, f"default {field.default}" if field.default else "", field.unit]
        said = f"{escape('; '.join(filter(None, facts)))}<br><small>{escape(field.meaning)}</small>"
        about = HTML(f"<div style='line-height: 1.35; margin-left: 1em'>{said}</div>", layout=Layout(flex="1 1 20em"))
        one.observe(lambda change: self._take(field.name, change["new"]), "value")
        self._inputs[field.name] = one, error
        self._show_error(field.name, field.error)
        return VBox([HBox([one, about], layout=Layout(flex_flow="row wrap")), error])

    @in_turn
    def _take(self, name: str, text: str) -> None:
        """Take what was written into a field, and show what follows from it."""
        if self._is_showing:
            return
        parts = {section: (getattr(self.state.config, section), self.state.chosen(section)) for section in self._pages}
        self.state.set(name, str(text))
        for field, (_, error) in self._inputs.items():
            self._say(error, self.state.errors.get(field, ""))
        for section, page in self._pages.items():
            now, before = (getattr(self.state.config, section), self.state.chosen(section)), parts[section]
            if page.children and now != before:
                self._fill(section, keeps=1) if now[1] != before[1] else self._show_values(section)
        self._show_text()

    def _show_values(self, section: str) -> None:
        """Show the values of a section's fields, some of which follow from others."""
        self._is_showing = True
        try:
            for field in self.state.fields(section):
                one, _ = self._inputs[field.name]
                if one.value != field.text:
                    one.value = field.text
        finally:
            self._is_showing = False

    def _show_error(self, name: str, text: str) -> None:
        self._say(self._inputs[name][1], text)

    def _say(self, where: Any, text: str) -> None:
        said = f"<div role='alert' style='color: var(--jp-error-color1, #b3261e)'>{escape(text)}</div>" if text else ""
        if where.value != said:
            where.value = said

    def _show_text(self) -> None:
        text = self.static()["text/plain"]
        self._text.value = f"<pre style='line-height: 1.35'>{escape(text)}</pre>"

    @in_turn
    def _do(self, work: Any, how: str) -> None:
        path = Path(self._file.value.strip() or self.path).expanduser()
        try:
            work(path)
        except RlwbError as error:
            self._say(self._answer, str(error))
            return
        for section, page in self._pages.items():
            if page.children:
                self._fill(section)
        self._show_text()
        self._answer.value = f"<div role='status'>{how} {escape(str(path.absolute()))}</div>"
