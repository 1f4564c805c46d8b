"""The project's own promises: files in step, rooms in order, instant help, clean notebooks."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted((ROOT / "rlwb").rglob("*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: What a room may import besides itself; nothing imports upwards.
BASE = {
    "rlwb",
    *(f"rlwb.{name}" for name in ("errors", "files", "batch", "packages", "progress", "record", "regression", "seeds")),
}
PRIMITIVES = {"rlwb.simulator", "rlwb.interpreter", "rlwb.reward", "rlwb.learner", "rlwb.objective"}
PARTS = {"rlwb.parts", "rlwb.code", "rlwb.signatures", "rlwb.values"}
EXPERIMENT = BASE | PRIMITIVES | PARTS | {"rlwb.limits", "rlwb.reading", "rlwb.env", "rlwb.market", "rlwb.execution"}
EXPERIMENT |= {"rlwb.policy", "rlwb.trainer", "rlwb.evaluation", "rlwb.webpage"}
ALLOWED: dict[str, set[str]] = {
    "rlwb": {"rlwb.interop"},  # inside a function
    "rlwb.errors": set(),
    "rlwb.files": {"rlwb.errors"},
    "rlwb.batch": {"rlwb.errors"},
    "rlwb.packages": {"rlwb.errors"},
    "rlwb.progress": {"rlwb.files"},
    "rlwb.record": {"rlwb.errors"},
    "rlwb.regression": set(),
    "rlwb.seeds": {"rlwb.errors"},
    **dict.fromkeys(PRIMITIVES, BASE),
    "rlwb.values": BASE,
    "rlwb.limits": set(),
    "rlwb.webpage": set(),
    "rlwb.reading": BASE | {"rlwb.values"},
    "rlwb.signatures": BASE | {"rlwb.values"},
    "rlwb.code": BASE | {"rlwb.values", "rlwb.signatures"},
    "rlwb.parts": BASE | PARTS - {"rlwb.parts"},
    "rlwb.env": BASE | PRIMITIVES,
    "rlwb.market": BASE | PARTS,
    "rlwb.execution": BASE | PRIMITIVES | PARTS | {"rlwb.market"},
    "rlwb.policy": BASE | PRIMITIVES | {"rlwb.market"},
    "rlwb.trainer": BASE | PRIMITIVES | {"rlwb.env"},
    "rlwb.conformance": BASE | PRIMITIVES | {"rlwb.env", "rlwb.market", "rlwb.execution", "rlwb.trainer"},
    "rlwb.evaluation": BASE
    | {"rlwb.learner", "rlwb.reward", "rlwb.parts", "rlwb.reading", "rlwb.execution", "rlwb.market", "rlwb.policy"},
    "rlwb.certificate": EXPERIMENT | {"rlwb.experiment"},
    "rlwb.tracking": BASE | PARTS | {"rlwb.reading", "rlwb.learner", "rlwb.env", "rlwb.trainer"},
    "rlwb.experiment": EXPERIMENT | {"rlwb.tracking", "rlwb.conformance"},
    "rlwb.study": EXPERIMENT | {"rlwb.tracking", "rlwb.experiment"},
    "rlwb.course": EXPERIMENT | {"rlwb.experiment"},
    "rlwb.cli_course": {"rlwb.course"},
    "rlwb.interop": EXPERIMENT | {"rlwb.experiment"},
    "rlwb.widgets": EXPERIMENT | {"rlwb.experiment"},
    "rlwb.cli_runs": BASE | {"rlwb.output", "rlwb.evaluation", "rlwb.experiment", "rlwb.study"},
    "rlwb.cli_study": BASE | {"rlwb.output", "rlwb.parts", "rlwb.evaluation", "rlwb.experiment", "rlwb.study"},
    "rlwb.cli_features": {"rlwb.experiment"},
    "rlwb.cli_costs": BASE
    | {"rlwb.market", "rlwb.execution", "rlwb.evaluation", "rlwb.experiment", "rlwb.output", "rlwb.cli_data"},
    "rlwb.cli_data": BASE | {"rlwb.parts", "rlwb.market", "rlwb.evaluation", "rlwb.experiment"},
    "rlwb.serving": EXPERIMENT | {"rlwb.experiment"},
    "rlwb.cli_serving": BASE | {"rlwb.limits", "rlwb.market", "rlwb.execution", "rlwb.experiment", "rlwb.serving"},
    "rlwb.output": {"rlwb.files", "rlwb.progress"},
    "rlwb.cli": BASE
    | {"rlwb.limits", "rlwb.evaluation", "rlwb.experiment", "rlwb.output"}
    | {"rlwb.cli_data", "rlwb.cli_features", "rlwb.cli_costs", "rlwb.cli_course"}
    | {"rlwb.cli_runs", "rlwb.cli_serving", "rlwb.cli_study"},
}


def _pins(name: str = "pins") -> dict[str, Version]:
    lines = [line for line in (ROOT / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), "pins are 'name==version', nothing else"
    pairs = [line.split("==") for line in lines]
    assert len({canonicalize_name(name) for name, _ in pairs}) == len(pairs), "a package is pinned once"
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.mark.parametrize("pins", ["pins", "pins-extras"])
def test_the_lock_holds_every_pin_with_its_hashes(pins: str) -> None:
    entries = re.sub(r" \\\n", " ", (ROOT / f"{pins}.lock").read_text()).splitlines()
    locked = {}
    for entry in entries:
        if not entry.startswith("#"):
            pin, *hashes = entry.split()
            assert hashes, pin
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin
            name, version = pin.split("==")
            locked[canonicalize_name(name)] = Version(version)
    assert locked == {name: version for name, version in _pins(pins).items() if name != "torch"}, "run make lock"


def test_no_package_is_pinned_twice() -> None:
    assert not _pins().keys() & _pins("pins-extras").keys()


@pytest.mark.parametrize("extra", ["mlflow", "ray", "sb3", "slurm", "stats", "trees", "wandb"])
def test_the_pins_of_large_extras_satisfy_the_project(extra: str) -> None:
    pins = _pins("pins-extras")
    for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def _installed_requirements() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for name in ("dev", "export", "search", "serve") for line in project["optional-dependencies"][name]]
    lines = project["dependencies"] + extras + PROJECT["build-system"]["requires"]
    return [Requirement(line) for line in lines]


def test_pins_satisfy_the_project() -> None:
    pins = _pins()
    for requirement in _installed_requirements():
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_lower_bounds_are_versions_that_were_run() -> None:
    pins = _pins()
    for requirement in _installed_requirements():
        low = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
        assert low, f"{requirement} has no lower bound"
        assert low[0] <= pins[canonicalize_name(requirement.name)]


def test_every_pin_is_needed_and_nothing_is_missing() -> None:
    """The pins are closed: what a pinned package asks for is pinned, in a version it takes."""
    from importlib.metadata import PackageNotFoundError, requires

    pins = _pins()
    todo = [(canonicalize_name(r.name), frozenset(r.extras)) for r in _installed_requirements()]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            lines = requires(name) or []
        except PackageNotFoundError:
            pytest.fail(f"{name} is pinned but not installed; install pins.txt")
        for requirement in map(Requirement, lines):
            if requirement.marker and not any(requirement.marker.evaluate({"extra": e}) for e in extras | {""}):
                continue
            child = canonicalize_name(requirement.name)
            if child == "pip":
                continue
            assert child in pins, f"{name} asks for {requirement}, which is not pinned"
            assert requirement.specifier.contains(pins[child], prereleases=True), f"{name} asks for {requirement}"
            todo.append((child, frozenset(requirement.extras)))
    assert set(pins) == {name for name, _ in seen}


def test_conda_users_get_the_pins() -> None:
    import yaml

    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == PROJECT["project"]["name"]
    python = next(line for line in environment["dependencies"] if str(line).startswith("python="))
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.12"
    assert python == "python=3.11"
    pip = next(line["pip"] for line in environment["dependencies"] if isinstance(line, dict))
    assert pip == ["-r pins.txt", "-e ."]


def test_heavy_optional_parts_stay_out_of_the_base() -> None:
    pins = _pins()
    for name in ("ray", "mlflow", "wandb", "arch", "rliable", "submitit", "stable-baselines3"):
        assert name not in pins, f"{name} belongs to an extra"


def test_no_registry_address_stands_in_the_project() -> None:
    pins = ("pins.txt", "pins.lock", "pins-extras.txt", "pins-extras.lock")
    for name in (*pins, "pyproject.toml", "environment.yml", "Makefile", ".ci/run"):
        assert not re.search(r"https?://|index-url|find-links|trusted-host", (ROOT / name).read_text()), name


def test_version_is_said_once() -> None:
    import rlwb

    assert PROJECT["project"]["dynamic"] == ["version"]
    assert rlwb.__version__ in (ROOT / "CHANGELOG.md").read_text()


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])


def _imports(path: Path) -> set[str]:
    """Return the rlwb rooms that the file imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            rooms = {f"rlwb.{alias.name}" for alias in node.names} & set(ALLOWED) if node.module == "rlwb" else set()
            found |= rooms or {node.module or ""}
    return {_room(name) for name in found if name == "rlwb" or name.startswith("rlwb.")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_run_downwards(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    room = "rlwb" if parts == ("rlwb", "__init__") else _room(".".join(parts))
    assert room in ALLOWED, f"{room} has no place in the table of rooms"
    upwards = _imports(path) - ALLOWED[room] - {room}
    assert not upwards, f"{path.relative_to(ROOT)} imports {sorted(upwards)}"


def test_the_table_of_rooms_has_no_circle() -> None:
    state: dict[str, int] = {}

    def visit(room: str) -> None:
        assert state.get(room) != 1, f"{room} stands on itself"
        if room not in state:
            state[room] = 1
            for below in ALLOWED[room] - {"rlwb"}:
                visit(below)
            state[room] = 2

    for room in ALLOWED:
        visit(room)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count too; those for types alone do not run and are left out."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
    graph = {name: _modules(path, names) - {name} for name, path in names.items()}
    graph = {name: {other for other in below if not name.startswith(f"{other}.")} for name, below in graph.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def _modules(path: Path, names: dict[str, Path]) -> set[str]:
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in names else node.module for name in whole}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        todo += ast.iter_child_nodes(node)
    return found & names.keys()


HEAVY = ("torch", "pandas", "tianshou", "matplotlib", "pyarrow", "scipy", "numba", "gymnasium", "papermill", "pydantic")


@pytest.mark.parametrize("code", ["import rlwb", "from rlwb.cli import main; main(['--help'])", "import rlwb.cli"])
def test_import_and_help_are_instant(code: str) -> None:
    probe = (
        f"import sys\ntry:\n    {code}\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("HEAVY []\n"), result.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_notebooks_are_sources(path: Path) -> None:
    """No outputs, no counts, no machine's paths; one cell of parameters; stable cell ids."""
    notebook = json.loads(path.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code), "strip the outputs"
    assert not re.search(r"(/home/|/root/|/Users/|/tmp/|[A-Z]:\\\\)", path.read_text()), "a machine's path"
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1, "one cell is tagged 'parameters'"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert "widgets" not in notebook["metadata"]
