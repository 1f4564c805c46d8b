"""The form of a configuration, as its fields are filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlwb.experiment.config import RunConfig
from rlwb.widgets import ConfigurationForm
from tests.widgets.conftest import Cell, alive


def opened(form: ConfigurationForm, section: str) -> Any:
    """Open a section, and return its page."""
    sections, stack, *_ = form.widget.children[0].children  # type: ignore[attr-defined]
    sections.value = next(one for one in sections.options if one.startswith(f"{section}:"))
    return stack.children[stack.selected_index]


def rows(page: Any) -> dict[str, tuple[Any, Any]]:
    """Return name of a field to its input and what is said of it."""
    return {
        row.children[0].children[0].description: (row.children[0].children[0], row.children[1]) for row in page.children
    }


def press(form: ConfigurationForm, name: str) -> str:
    _, _, buttons, answer, _ = form.widget.children[0].children  # type: ignore[attr-defined]
    next(one for one in buttons.children if one.description == name).click()
    return str(answer.value)


def test_fields_are_filled_in_and_the_file_is_written(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    form = ConfigurationForm(path=path)
    page = opened(form, "train")
    text, error = rows(page)["train.iterations"]
    text.value = "0"
    assert "greater than or equal to 1" in error.value
    assert "train.iterations is not settled yet" in press(form, "Save")
    text.value = "20"
    assert error.value == ""
    assert "iterations: 20" in form.widget.children[0].children[-1].value  # type: ignore[attr-defined]
    assert str(path) in press(form, "Save")
    assert RunConfig.load(path).train.iterations == 20
    text.value = "30"
    press(form, "Load")
    assert rows(page)["train.iterations"][0].value == "20"
    form.close()


def test_a_part_that_is_chosen_brings_its_settings_and_the_focus_stays() -> None:
    form = ConfigurationForm()
    page = opened(form, "algorithm")
    choice = rows(page)["algorithm"][0]
    choice.value = "ppo"
    assert rows(page)["algorithm"][0] is choice
    assert "algorithm.gae_lambda" in rows(page)
    choice.value = "nonsense"
    assert "there is no algorithm" in rows(page)["algorithm"][1].value
    assert "algorithm.gae_lambda" in rows(page), "what was there before stays"
    form.close()


def test_what_follows_from_another_field_is_shown() -> None:
    form = ConfigurationForm()
    rules = opened(form, "execution")
    assert rows(rules)["execution.rules.lot_size"][0].value == "0.0"
    rows(rules)["execution.preset"][0].value = "cn"
    assert rows(rules)["execution.rules.lot_size"][0].value == "100.0"
    assert form.state.tree() == {"execution": {"preset": "cn"}}, "what is shown is not what was written"
    form.close()


def test_a_cell_that_is_run_again_leaves_nothing_of_the_form_before(cell: Cell) -> None:
    def show() -> None:
        form = ConfigurationForm()
        opened(form, "algorithm")
        opened(form, "train")
        form._repr_mimebundle_()

    cell.run(show)
    before = alive()
    for _ in range(3):
        cell.run(show)
    assert alive() == before


def test_headless_it_is_the_text_of_the_file(cell: Cell) -> None:
    cell.attended = False
    form = ConfigurationForm()
    form.state.set("seed", "7")
    assert form._repr_mimebundle_() == {"text/plain": "seed: 7\n", "text/markdown": "```yaml\nseed: 7\n```"}
