"""Every parameter of every notebook with a value that it cannot have, and lists that come as text."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlwb.errors import ConfigError
from tests.notebooks.small import NOTEBOOKS


def setup_of(notebook: str) -> tuple[str, str]:
    """Return a notebook's cell of parameters and the cells up to the one that checks them."""
    cells = [cell for cell in nbformat.read(NOTEBOOKS / notebook, as_version=4).cells if cell.cell_type == "code"]
    sources = [cell.source.replace("%matplotlib inline\n", "") for cell in cells]
    assert cells[0].metadata.tags == ["parameters"]
    return sources[0], "\n".join(sources[1 : 3 if notebook == "05_data.ipynb" else 2])


def begin(notebook: str, **values: Any) -> dict[str, Any]:
    """Execute a notebook as far as its parameters are checked; return its variables."""
    parameters, setup = setup_of(notebook)
    space: dict[str, Any] = {}
    exec(parameters, space)
    assert values.keys() <= space.keys()
    space.update(values)
    exec(setup, space)
    if "workplace" in space:
        space["workplace"].cleanup()
    return space


ALL = [
    (path.name, node.targets[0].id)
    for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    for node in ast.parse(setup_of(path.name)[0]).body
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
]


@pytest.mark.parametrize(("notebook", "name"), ALL)
def test_k14_another_type_is_refused_by_name(
    notebook: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        begin(notebook, **{name: {"wrong": 1}})
    assert name in str(caught.value) or "wrong" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*")), "before any work"


@pytest.mark.parametrize(
    ("notebook", "values", "words"),
    [
        ("00_quickstart.ipynb", {"iterations": "two"}, "iterations is 'two'; a whole number is needed"),
        ("00_quickstart.ipynb", {"iterations": 0}, "iterations is 0; it should be greater"),
        ("00_quickstart.ipynb", {"seed": None}, "seed is None"),
        ("05_data.ipynb", {"days": "thirty"}, "days is 'thirty'"),
        ("05_data.ipynb", {"calendar": {"tick_minuts": 1}}, "tick_minuts; did you mean tick_minutes"),
        ("05_data.ipynb", {"calendar": "us"}, "calendar is 'us'; names with values are needed"),
        ("10_synthetic_market.ipynb", {"tick_minutes": "five"}, "tick_minutes is 'five'"),
        (
            "11_certificate.ipynb",
            {"methods": "ppo, sac"},
            r"methods is \['ppo', 'sac'\]; it must be 'ppo', 'path",
        ),
        ("11_certificate.ipynb", {"methods": []}, "methods is"),
        ("11_certificate.ipynb", {"points": 802}, "points is"),
        ("12_comparison.ipynb", {"methods": "ppo, sac"}, "no method 'sac'"),
        ("13_learners.ipynb", {"measured": 5}, "measured is 5"),
        ("06_search.ipynb", {"sampler": "tpee"}, "--sampler is 'tpee'.*did you mean 'tpe'"),
        ("06_search.ipynb", {"rules": ["povv"]}, "povv"),
        ("06_search.ipynb", {"space": {}, "rules": []}, "nothing to search"),
        ("12_comparison.ipynb", {"settings": "train"}, "settings is 'train'; names with values are needed"),
        ("02_training.ipynb", {"settings": 5}, "settings is 5"),
        ("02_training.ipynb", {"run_dir": 5}, "run_dir is 5; the path of a directory is needed"),
    ],
)
def test_k14_what_people_pass(notebook: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        begin(notebook, **values)


@pytest.mark.parametrize("text", ["[ppo, dqn]", "ppo, dqn", '["ppo", "dqn"]'])
def test_k14_lists_and_mappings_come_as_text(text: str, tmp_path: Path) -> None:
    assert begin("11_certificate.ipynb", methods=text)["own"].methods == ["ppo", "dqn"]
    assert list(begin("12_comparison.ipynb", methods=text)["chosen"]) == ["ppo", "dqn"]
    clock = begin("05_data.ipynb", calendar="{preset: cn, tick_minutes: 5}")["clock"]
    assert (clock.timezone, clock.tick_minutes) == ("Asia/Shanghai", 5)
    values = {"baselines": "[twap, {name: almgren_chriss, urgency: 3}]", "settings": "{train.iterations: 3}"}
    begin("01_orders.ipynb", run_dir=str(tmp_path / "run"))
    config = begin("03_backtest.ipynb", run_dir=str(tmp_path / "run"), **values)["stage"].config
    assert [one.name for one in config.baselines] == ["twap", "almgren_chriss"]
    assert config.train.iterations == 3
