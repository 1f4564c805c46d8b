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
    own,
    pieces,
    synthetic_sessions,
)
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.features import raw_column
from rlwb.market.own import describe, fingerprint, import_features

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
    monkeypatch.setattr(pieces, "_PIECES", dict(BUILT_IN))
    monkeypatch.setattr(own, "_ADDED", {})


def write(path: Path, name: str = "own_range", scale: float = 1.0) -> str:
    path.write_text(RANGE.format(name=name, scale=scale))
    return str(path)


MARKET = synthetic_sessions(SyntheticSettings(instruments=2, days=4, tick_minutes=30))
LOG_RANGE = np.log(MARKET.fields["high"] / MARKET.fields["low"])


def test_a_file_adds_a_feature_that_a_setting_names(tmp_path: Path) -> None:
    settings = FeatureSettings(("close", "own_range"), imports=(write(tmp_path / "mine.py"),))
    features = MarketFeatures.build(MARKET, settings, fit_rows=np.ones(len(MARKET), dtype=bool))
    expected = (LOG_RANGE - LOG_RANGE.mean()) / LOG_RANGE.std()
    np.testing.assert_allclose(features.today[..., 1], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="no feature 'own_rang'; did you mean own_range"):
        FeatureSettings(("own_rang",), imports=settings.imports)


def test_without_the_import_the_name_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match="no feature 'own_range'"):
        FeatureSettings(("own_range",))


def test_a_file_runs_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    write(path)
    with path.open("a") as file:
        file.write(f"\nwith open({str(tmp_path / 'log')!r}, 'a') as log:\n    log.write('x')\n")
    for _ in range(3):
        assert import_features([str(path)]) == ("own_range",)
    assert (tmp_path / "log").read_text() == "x"
    before = fingerprint(str(path))
    write(path, scale=2.0)
    import_features([str(path)])
    np.testing.assert_allclose(raw_column(MARKET, "own_range"), 2 * LOG_RANGE)
    assert fingerprint(str(path)) != before


def test_two_configurations_may_use_one_name(tmp_path: Path) -> None:
    one = FeatureSettings(("own_range",), imports=(write(tmp_path / "one.py"),))
    other = FeatureSettings(("own_range",), imports=(write(tmp_path / "other.py", scale=-1.0),))
    rows = np.ones(len(MARKET), dtype=bool)
    first, second = (MarketFeatures.build(MARKET, settings, fit_rows=rows) for settings in (one, other))
    np.testing.assert_allclose(first.normaliser.mean, -second.normaliser.mean)
    with pytest.raises(ConfigError, match=r"one\.py and .*other\.py both add a feature own_range; rename"):
        import_features([*one.imports, *other.imports])


def test_a_module_adds_features_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    write(tmp_path / "own_package" / "ranges.py", "module_range")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_features(["own_package.ranges"]) == ("module_range",)
    monkeypatch.setattr(pieces, "_PIECES", dict(BUILT_IN))
    FeatureSettings(("module_range",), imports=("own_package.ranges",))
    assert "module_range" in feature_names()
    del sys.modules["own_package.ranges"]


def test_a_source_is_known_by_its_content_not_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    here, there = (write(tmp_path / folder / "mine.py") for folder in "ab")
    assert describe([here]) == describe([there])
    assert describe([here])[0]["name"] == "mine.py"
    assert describe(["json.decoder"])[0]["name"] == "json.decoder"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\n", r"mine\.py adds no feature; put @feature"),
        ("import nonesuch\n", r"mine\.py, line 1: ModuleNotFoundError: No module named 'nonesuch'; correct it"),
        ("a = 1\nb = a / 0\n", r"mine\.py, line 2: ZeroDivisionError: division by zero; correct it"),
        ("def f(:\n", r"mine\.py, line 1: SyntaxError: "),
        (
            OWN.format("mine", "np.roll(block['close'], -1, axis=1)"),
            r"mine\.py, line 3: feature mine sees the future",
        ),
        (OWN.format("close", "block['open']"), r"mine\.py, line 3: the feature close is built in; give yours another"),
    ],
)
def test_what_goes_wrong_names_file_and_line(tmp_path: Path, code: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    for _ in range(2):  # a file that failed is tried again
        with pytest.raises(ConfigError, match=message):
            import_features([str(path)])
    assert feature_names() == tuple(BUILT_IN)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.py", r"the features of none\.py cannot be read \(No such file or directory\)"),
        ("no.such.module", r"there is no module no\.such\.module to import features from"),
        ("json", r"json adds no feature"),
        ("", r"there is no module"),
    ],
)
def test_what_is_not_there_is_refused(source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FeatureSettings(imports=(source,))


def test_the_five_lines_of_the_manual_run(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    code = next(part.partition("```")[0] for part in manual.split("```python\n")[1:] if "@feature" in part)
    (tmp_path / "my_features.py").write_text(code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 7  # five, and two imports
    asked = "import sys; from rlwb.market.own import import_features; print(*import_features([sys.argv[1]]))"
    command = [sys.executable, "-c", asked, str(tmp_path / "my_features.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ), timeout=60)
    assert done.stdout.split() == ["range_so_far"]
