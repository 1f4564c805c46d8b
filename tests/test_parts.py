"""Parts by name."""

import subprocess
import sys
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.parts import BUILT_IN, Part, complete, describe, find, load, make
from rlwb.signatures import REQUIRED

OWN = '''
from dataclasses import dataclass
from typing import Literal

from rlwb.execution.rewards import PAPenaltyReward

print("ran")
LIMIT = 3


@dataclass(frozen=True)
class Base:
    """Settings.

    Parameters
    ----------
    rate
        Step of the optimiser,
        on two lines.
    """

    rate: float = 1e-3


@dataclass(frozen=True)
class MySettings(Base):
    """More.

    Parameters
    ----------
    mode, other
        Two at once.
    """

    mode: Literal["a", "b"] = "a"
    other: int | None = None

    def __post_init__(self):
        if self.rate <= 0:
            raise ValueError(f"rate is {self.rate}")


class Learner:
    def __init__(self, network, settings: MySettings, *, seed: int = 0, repeats: int = LIMIT):
        self.__dict__ |= {"network": network, "settings": settings, "seed": seed, "repeats": repeats}


class Sub(PAPenaltyReward):
    pass


class Open:
    def __init__(self, width: int, **more):
        self.width, self.more = width, more


def build(width: int = 2) -> Open:
    """Build one.

    Parameters
    ----------
    width
        How wide.
    """
    return Open(width)
'''


@pytest.fixture
def own(tmp_path: Any) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_every_built_in_is_where_the_table_says() -> None:
    for kind, parts in BUILT_IN.items():
        for name in parts:
            assert callable(load(kind, name)), (kind, name)


def test_reading_settings_runs_no_code_and_imports_no_torch(own: str) -> None:
    code = (
        "import sys\nfrom rlwb.parts import Part, complete, describe\n"
        f"print(complete('algorithm', Part(name={own + ':Learner'!r}, rate=2)))\n"
        "describe('algorithm', 'ppo'); complete('network', Part(name='mlp', hidden=8))\n"
        "assert not {'torch', 'numba', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "rate=2.0" in done.stdout
    assert "ran" not in done.stdout


def test_settings_are_parameters_and_the_fields_of_the_settings_dataclass(own: str) -> None:
    found = {one.name: one for one in describe("algorithm", f"{own}:Learner")}
    assert {name: one.default for name, one in found.items()} == {
        "rate": 1e-3,
        "mode": "a",
        "other": None,
        "repeats": 3,
    }
    assert found["rate"].meaning == "Step of the optimiser, on two lines."
    assert found["other"].meaning == found["mode"].meaning == "Two at once."
    assert found["other"].annotation == "int | None"


def test_a_base_in_another_module_is_followed(own: str) -> None:
    assert [one.name for one in describe("reward", f"{own}:Sub")] == ["penalty", "scale", "weight", "inventory"]


def test_make_passes_settings_and_what_the_part_takes_of_the_run(own: str) -> None:
    made = make("algorithm", Part(name=f"{own}:Learner", rate=2, repeats=5), network="net", seed=7, features="unused")
    assert (made.network, made.seed, made.repeats, made.settings.rate, made.settings.mode) == ("net", 7, 5, 2.0, "a")
    assert make("network", f"{own}:build").width == 2
    assert make("network", Part(name=f"{own}:Open", width=1, extra=[1])).more == {"extra": [1]}


@pytest.mark.parametrize(
    ("kind", "part", "named"),
    [
        ("reward", {"name": "pa_penlty"}, ["reward", "pa_penlty", "pa_penalty", "file.py:Name"]),
        ("reward", {"name": "pa_penalty", "penlty": 3}, ["pa_penalty", "penlty", "penalty"]),
        ("reward", {"name": "pa_penalty", "penalty": "high"}, ["penalty", "pa_penalty", "'high'", "number"]),
        ("reward", {"name": "sparse", "penalty": 3}, ["sparse", "penalty"]),
        ("network", {"name": "mlp", "seed": 3}, ["mlp", "seed", "run"]),
        ("rewards", {"name": "sparse"}, ["rewards", "reward"]),
        ("algorithm", {"name": "OWN:Learner", "mode": "c"}, ["mode", "'c'", "'a' or 'b'"]),
        ("network", {"name": "OWN:Open"}, ["width", "int"]),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(
    own: str, kind: str, part: dict[str, Any], named: list[str]
) -> None:
    part["name"] = part["name"].replace("OWN", own)
    with pytest.raises(ConfigError) as error:
        complete(kind, Part(**part))
    for text in named:
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("gone.py:Net", ["gone.py"]),
        ("no_such_package.module:Net", ["no_such_package.module"]),
        ("OWN:Lerner", ["own.py", "Lerner", "Learner"]),
        ("OWN:Learner", ["Learner", "network"]),
        ("OWN:LIMIT", ["LIMIT", "3"]),
    ],
)
def test_what_cannot_be_made_is_refused(own: str, name: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        make("network", name.replace("OWN", own))
    for text in named:
        assert text in str(error.value)


def test_what_a_part_refuses_is_one_sentence(own: str) -> None:
    with pytest.raises(ConfigError, match=r"Learner.*rate is -1"):
        make("algorithm", Part(name=f"{own}:Learner", rate=-1), network=None)


def test_code_that_fails_names_its_line(tmp_path: Any) -> None:
    path = tmp_path / "bad.py"
    path.write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError, match=r"bad\.py, line 2: ZeroDivisionError"):
        load("reward", f"{path}:Reward")
    path.write_text("x = 1\ny ==\n")
    with pytest.raises(ConfigError, match=r"bad\.py, line 2: SyntaxError"):
        load("reward", f"{path}:Reward")


def test_a_file_is_run_anew_when_it_changes(tmp_path: Any) -> None:
    path = tmp_path / "own.py"
    path.write_text("def one(): return 1\n")
    first = make("reward", f"{path}:one")
    before = find("reward", f"{path}:one").describe()
    path.write_text("def one(): return 2\n")
    assert (first, make("reward", f"{path}:one")) == (1, 2)
    after = find("reward", f"{path}:one").describe()
    assert before["name"] == after["name"] == "own.py:one"
    assert before["hash"] != after["hash"]


def test_own_code_is_foreign_and_ours_is_not(own: str) -> None:
    assert find("reward", f"{own}:Sub").is_foreign
    assert find("reward", "rlwb.reward:Reward").is_foreign
    assert not find("reward", "pa_penalty").is_foreign


def test_parts_of_files_travel_to_workers(own: str) -> None:
    import cloudpickle

    made = make("network", Part(name=f"{own}:Open", width=4))
    code = "import cloudpickle, sys; print(cloudpickle.loads(sys.stdin.buffer.read()).width)"
    done = subprocess.run([sys.executable, "-c", code], input=cloudpickle.dumps(made), capture_output=True, check=True)
    assert done.stdout.strip() == b"4"


def test_an_entry_point_is_a_name(tmp_path: Any, monkeypatch: Any) -> None:
    package = tmp_path / "offer.py"
    package.write_text("class Calm:\n    def __init__(self, width: int = 3): self.width = width\n")
    info = tmp_path / "offer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: offer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlwb.network]\ncalm = offer:Calm\n")
    monkeypatch.syspath_prepend(tmp_path)
    from rlwb import parts

    parts._entry_points.cache_clear()
    try:
        assert "calm" in parts.names("network")
        assert [(one.name, one.default) for one in describe("network", "calm")] == [("width", 3)]
        assert make("network", Part(name="calm", width=9)).width == 9
        assert not find("network", "calm").is_foreign
    finally:
        parts._entry_points.cache_clear()


def test_required_says_so() -> None:
    assert repr(REQUIRED) == "required"
