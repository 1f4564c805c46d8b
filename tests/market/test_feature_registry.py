"""Features of one's own from files and modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.market import (
    FeatureSettings,
    MarketFeatures,
    SyntheticSettings,
    feature_names,
    feature_registry,
    synthetic_sessions,
)
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.feature_registry import find_feature
from tests.market.helpers import raw_column

RANGE = """
import numpy as np
from rlwb.market import feature

@feature("{name}", needs=["high", "low"])
def own_range(block):
    return {scale} * np.log(block["high"] / block["low"])
"""


OWN = "import numpy as np\nfrom rlwb.market import feature\n@feature('{}', needs=['close'])\ndef f(block): return {}\n"


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test adds to itself."""
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(BUILT_IN))
    monkeypatch.setattr(feature_registry, "_LOADED", {})


def write(path: Path, name: str = "own_range", scale: float = 1.0) -> str:
    path.write_text(RANGE.format(name=name, scale=scale))
    return f"{path}:own_range"


MARKET = synthetic_sessions(SyntheticSettings(instruments=2, days=4, tick_minutes=30))
ROWS = np.ones(len(MARKET), dtype=bool)
LOG_RANGE = np.log(MARKET.fields["high"] / MARKET.fields["low"])


def test_a_setting_names_a_feature_in_a_file(tmp_path: Path) -> None:
    settings = FeatureSettings(("close", write(tmp_path / "mine.py")))
    features = MarketFeatures.build(MARKET, settings, fit_rows=ROWS)
    expected = (LOG_RANGE - LOG_RANGE.mean()) / LOG_RANGE.std()
    np.testing.assert_allclose(features.today[..., 1], expected, rtol=1e-5, atol=1e-6)
    assert features.columns == ("close", "own_range")
    with pytest.raises(ConfigError, match=r"has no own_rang; did you mean own_range"):
        find_feature(f"{tmp_path}/mine.py:own_rang")


def test_a_plain_function_is_a_feature_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(block):\n    return 2 * block['close']\n")
    np.testing.assert_array_equal(raw_column(MARKET, f"{tmp_path}/mine.py:twice"), 2 * MARKET.fields["close"])
    assert find_feature(f"{tmp_path}/mine.py:twice").name == "twice"


def test_without_the_path_the_name_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match="no feature 'own_range'"):
        FeatureSettings(("own_range",))


def test_settings_run_no_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'log')!r}, 'w')\n")
    FeatureSettings((f"{tmp_path}/mine.py:own_range",))
    assert not (tmp_path / "log").exists()


def test_a_file_runs_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    name = write(path)
    with path.open("a") as file:
        file.write(f"\nwith open({str(tmp_path / 'log')!r}, 'a') as log:\n    log.write('x')\n")
    for _ in range(3):
        assert find_feature(name).name == "own_range"
    assert (tmp_path / "log").read_text() == "x"
    write(path, scale=2.0)
    np.testing.assert_allclose(raw_column(MARKET, name), 2 * LOG_RANGE)


def test_two_configurations_may_use_one_name(tmp_path: Path) -> None:
    one, other = (write(tmp_path / "one.py"), write(tmp_path / "other.py", scale=-1.0))
    first, second = (MarketFeatures.build(MARKET, FeatureSettings((name,)), fit_rows=ROWS) for name in (one, other))
    np.testing.assert_allclose(first.normaliser.mean, -second.normaliser.mean)
    with pytest.raises(ConfigError, match="two of the feature columns are called own_range"):
        MarketFeatures.build(MARKET, FeatureSettings((one, other)), fit_rows=ROWS)


def test_a_module_has_features_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    write(tmp_path / "own_package" / "ranges.py")
    monkeypatch.syspath_prepend(tmp_path)
    np.testing.assert_allclose(raw_column(MARKET, "own_package.ranges:own_range"), LOG_RANGE)
    del sys.modules["own_package.ranges"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("own_range = 1\n", r"mine\.py:own_range is no function"),
        ("import nonesuch\n", r"mine\.py, line 1: ModuleNotFoundError: No module named 'nonesuch'; correct it"),
        ("a = 1\nb = a / 0\n", r"mine\.py, line 2: ZeroDivisionError: division by zero; correct it"),
        ("def f(:\n", r"mine\.py, line 1: SyntaxError: "),
        (
            OWN.format("mine", "np.roll(block['close'], -1, axis=1)"),
            r"mine\.py, line 3: feature mine sees the future",
        ),
        (OWN.format("close", "block['open']"), r"mine\.py, line 3: the feature close is built in; give yours another"),
        ("def own_range(block):\n    return block['close'][:, ::-1]\n", r"feature own_range sees the future"),
    ],
)
def test_what_goes_wrong_names_file_and_line(tmp_path: Path, code: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    for _ in range(2):  # a file that failed is tried again
        with pytest.raises(ConfigError, match=message):
            find_feature(f"{path}:own_range")
    assert feature_names() == tuple(BUILT_IN)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:f", r"none\.py cannot be read \(No such file or directory\)"),
        ("no.such.module:f", r"there is no module no\.such\.module"),
        ("json:nonesuch", r"json has no nonesuch"),
        ("", r"there is no feature ''"),
    ],
)
def test_what_is_not_there_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_feature(name)


def test_the_lines_of_the_manual_run(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    code = next(part.partition("```")[0] for part in manual.split("```python\n")[1:] if "def range_so_far" in part)
    (tmp_path / "my_features.py").write_text(code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 5  # four, and an import
    asked = "import sys; from rlwb.market.feature_registry import find_feature; print(find_feature(sys.argv[1]).name)"
    command = [sys.executable, "-c", asked, f"{tmp_path}/my_features.py:range_so_far"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ), timeout=60)
    assert done.stdout.split() == ["range_so_far"]
