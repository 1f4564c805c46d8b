"""The schema of a configuration, for people and for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.experiment.config import SLOTS, RunConfig, parse_assignments
from rlwb.experiment.explain import UNIT, explain, json_schema, schema_text
from rlwb.experiment.layers import Layer
from rlwb.experiment.yamlfile import parse_yaml, read_yaml
from rlwb.parts import BUILT_IN, REQUIRED, Part, complete, describe, names

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json_schema()
EDITOR = Draft7Validator(SCHEMA)
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

#: Numbers that have no unit: seeds, weights, shares of nothing in particular, rates of learning.
PURE = (
    *(
        "seed",
        "noise_seed",
        "signal",
        "cluster",
        "day_cluster",
        "scale",
        "learning_rate",
        "gamma",
        "gae_lambda",
        "clip",
    ),
    *(
        "value_coef",
        "entropy_coef",
        "max_grad_norm",
        "distillation",
        "huber",
        "risk_aversion",
        "rho",
        "ridge",
        "transient_exponent",
    ),
)


def faults(text: str) -> list[str]:
    return [error.message for error in EDITOR.iter_errors(parse_yaml(text, "test"))]


def test_the_schema_is_one_and_the_file_in_the_docs_is_current() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert (ROOT / "docs" / "config.schema.json").read_text(encoding="utf-8") == schema_text(), "make schema"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_configurations_validate_and_tell_editors_their_schema(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=../docs/config.schema.json\n")
    assert [error.message for error in EDITOR.iter_errors(read_yaml(path))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_configurations_of_the_pages_validate(page: Path) -> None:
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        assert faults(text) == [], text


def test_all_that_a_run_writes_validates_with_every_built_in_part() -> None:
    tree = RunConfig().as_dict()
    assert list(EDITOR.iter_errors(tree)) == []
    for place, kind in SLOTS.items():
        for name in BUILT_IN[kind]:
            needed = {one.name: _some(one.type) for one in describe(kind, name) if one.default is REQUIRED}
            part = complete(kind, Part(name=name, **needed)).model_dump(mode="json")
            value = [part] if isinstance(tree[place], list) else part
            assert [error.message for error in EDITOR.iter_errors({**tree, place: value})] == [], f"{kind} {name}"


def _some(kind: Any) -> Any:
    return "a" if kind is str else 0.5


WRONG = (
    "train: {itertions: 3}",
    "trainn: {iterations: 3}",
    "train: {iterations: many}",
    "train: {iterations: 0}",
    "execution: {rules: {volume_limits: 0.1}}",
    "algorithm: pppo",
    "algorithm: {name: dqn, gae_lambda: 0.9}",
    "algorithm: {learning_rat: 0.1}",
    "baselines: [twap, {name: pov, rates: 0.1}]",
    "market: {source: bars/, calendar: {presett: us}}",
    "train: {iterations: {value: 3, serch: [1, 2]}}",
    "train: {iterations: {value: three, search: [1, 2]}}",
)


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_name_or_type_fails_in_the_editor_and_in_the_run(text: str, tmp_path: Path) -> None:
    assert faults(text)
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(ConfigError):
        RunConfig.load(tmp_path / "wrong.yaml")


RIGHT = (
    "reward: mine.py:Arrival",
    "reward: {name: my.rewards:Arrival, anything: [1, {two: 3}]}",
    "algorithm: {value: ppo, search: [ppo, dqn]}",
    "algorithm: {learning_rate: {value: 0.0003, search: {low: 1e-5, high: 1e-2, log: true}}}",
    "network: {name: attention, hidden: {value: 64, search: [32, 64]}}",
    "baselines: [{name: pov, rate: {value: 0.1, search: {low: 0.01, high: 0.5}}}]",
    "train.iterations: 7",
    "train:",
    "execution: {rules: us}",
    "split: {train: ['2024-01-02', '2024-02-01'], valid: 0.2}",
)


@pytest.mark.parametrize("text", RIGHT)
def test_own_parts_search_spaces_and_short_forms_are_right(text: str) -> None:
    assert faults(text) == []


def fields(node: Any, place: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return place and schema of every field in a schema."""
    found = []
    for name, one in node.get("properties", {}).items() if isinstance(node, dict) else ():
        found += [(f"{place}.{name}".lstrip("."), one), *fields(one, f"{place}.{name}")]
    for one in node.get("anyOf", ()) if isinstance(node, dict) else ():
        if "search" not in one.get("properties", ()):
            found += fields(one, f"{place} {one.get('title', '')}".strip())
    return found


def all_fields() -> list[tuple[str, dict[str, Any]]]:
    inner = [(f"{kind}: {at}", one) for kind, part in SCHEMA["definitions"].items() for at, one in fields(part)]
    return [pair for pair in (*fields(SCHEMA), *inner) if "const" not in pair[1] and not pair[0].startswith("search")]


def test_every_field_says_what_it_means_and_every_number_in_which_unit() -> None:
    found = all_fields()
    assert len(found) > 200
    assert [at for at, one in found if not one.get("description")] == []
    lacking = [at for at, one in found if _is_number(one) and UNIT not in one and at.rpartition(".")[2] not in PURE]
    assert lacking == []


def _is_number(field: dict[str, Any]) -> bool:
    value = field["anyOf"][0] if "anyOf" in field else field
    kinds = [value, *value.get("anyOf", ()), value.get("items", {})]
    return any(one.get("type") in ("integer", "number") for one in kinds)


def test_explaining_a_field_tells_type_default_unit_and_meaning() -> None:
    assert explain(RunConfig(), "train.keep").splitlines() == [
        "train.keep: whole number from 0; default 0; checkpoints",
        "    Checkpoints kept: the best by validation and the newest; 0 keeps all.",
    ]
    config = RunConfig.load(None, parse_assignments(["train.keep=3", "market.half_life=20"]))
    assert "train.keep: whole number from 0; default 0; here 3; checkpoints" in explain(config, "train")
    assert "half_life: number; default 40.0; here 20.0; minutes of trading" in explain(config)


def test_explaining_a_place_tells_all_built_in_parts_with_their_settings() -> None:
    text = explain(RunConfig(), "algorithm")
    for name in names("algorithm"):
        assert f"algorithm {name}\n" in text
        for one in describe("algorithm", name):
            assert re.search(rf"^  {one.name}: ", text, re.MULTILINE)
    assert explain(RunConfig(), "algorithm.n_step").startswith(
        "algorithm.n_step of dqn: whole number; default 1; steps"
    )
    assert explain(RunConfig(), "pov").startswith(
        "baseline pov\n  rate: number or none; default none; share of the volume"
    )


def test_explaining_everything_names_every_parameter_of_the_run() -> None:
    text = explain(RunConfig())
    for name, section in RunConfig().as_dict().items():
        assert re.search(rf"^{name}: ", text, re.MULTILINE)
        for key in section if isinstance(section, dict) and name not in SLOTS else ():
            assert f"\n{name}.{key}: " in text


@pytest.mark.parametrize(
    ("name", "near"), [("algoritm", "algorithm"), ("train.keeep", "train.keep"), ("twapp", "twap")]
)
def test_a_name_that_is_not_there_is_refused_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(near)):
        explain(RunConfig(), name)


def test_what_there_is_to_explain_is_listed_once() -> None:
    with pytest.raises(ConfigError, match="choose among market, ") as refused:
        explain(RunConfig(), "zzzz")
    listed = str(refused.value).partition("choose among ")[2].rstrip(".").split(", ")
    assert len(listed) == len(set(listed))


def test_the_command_prints_fields_or_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("train: {iterations: 9}")
    with pytest.raises(SystemExit) as ended:
        cli.main(["config", str(tmp_path / "mine.yaml"), "train.iterations", "--explain"])
    assert ended.value.code == 0
    assert "default 40; here 9; iterations" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["config", "--schema"])
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_settings_of_a_layer_and_of_the_schema_are_one(tmp_path: Path) -> None:
    """What a file, ``--set`` and a notebook's parameters say comes to the same tree."""
    (tmp_path / "a.yaml").write_text("train: {keep: 3}\nreward: {penalty: 7}\n")
    layers = (
        parse_assignments(["train.keep=3", "reward.penalty=7"]),
        Layer("notebook", {"train": {"keep": 3}, "reward": {"penalty": 7}}),
    )
    trees = [RunConfig.load(tmp_path / "a.yaml"), *(RunConfig.load(None, layer) for layer in layers)]
    assert trees[0] == trees[1] == trees[2]
