"""Features of one's own from files and modules."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.market import FeatureSettings, MarketFeatures, SyntheticSettings, feature_names, pieces, synthetic_sessions
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.features import raw_column

RANGE = """
import numpy as np
from rlwb.market import feature

@feature("{name}", needs=["high", "low"])
def own_range(block):
    return {scale} * np.log(block["high"] / block["low"])
"""
OWN = "import numpy as np\nfrom rlwb.market import feature\n@feature('{}', needs=['close'])\ndef f(block): return {}\n"
MARKET = synthetic_sessions(SyntheticSettings(instruments=2, days=4, tick_minutes=30))
LOG_RANGE = np.log(MARKET.fields["high"] / MARKET.fields["low"])
ROWS = np.ones(len(MARKET), dtype=bool)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a test adds to itself."""
    monkeypatch.setattr(pieces, "_PIECES", dict(BUILT_IN))


def write(path: Path, name: str = "own_range", scale: float = 1.0) -> str:
    path.write_text(RANGE.format(name=name, scale=scale))
    return f"{path}:own_range"


def test_a_file_has_a_feature_that_a_column_names(tmp_path: Path) -> None:
    settings = FeatureSettings(("close", write(tmp_path / "mine.py")))
    assert "own_range" not in feature_names(), "settings run no code"
    features = MarketFeatures.build(MARKET, settings, fit_rows=ROWS)
    assert features.columns == ("close", "own_range")
    expected = (LOG_RANGE - LOG_RANGE.mean()) / LOG_RANGE.std()
    np.testing.assert_allclose(features.today[..., 1], expected, rtol=1e-5, atol=1e-6)
    assert MarketFeatures.build(MARKET, settings, normaliser=features.normaliser).columns == features.columns


def test_a_changed_file_is_another_feature(tmp_path: Path) -> None:
    name = write(tmp_path / "mine.py")
    np.testing.assert_allclose(raw_column(MARKET, name), LOG_RANGE)
    write(tmp_path / "mine.py", scale=2.0)
    np.testing.assert_allclose(raw_column(MARKET, name), 2 * LOG_RANGE)


def test_two_configurations_may_use_one_name_but_not_one_of_them_twice(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one.py"), write(tmp_path / "other.py", scale=-1.0)
    first, second = (MarketFeatures.build(MARKET, FeatureSettings((name,)), fit_rows=ROWS) for name in (one, other))
    np.testing.assert_allclose(first.normaliser.mean, -second.normaliser.mean)
    with pytest.raises(ConfigError, match="own_range"):
        MarketFeatures.build(MARKET, FeatureSettings((one, other)), fit_rows=ROWS)


def test_a_module_has_features_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    write(tmp_path / "own_package" / "ranges.py", "module_range")
    monkeypatch.syspath_prepend(tmp_path)
    settings = FeatureSettings(("own_package.ranges:own_range",))
    assert MarketFeatures.build(MARKET, settings, fit_rows=ROWS).columns == ("module_range",)
    del sys.modules["own_package.ranges"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("f = 1\n", r"mine\.py:f is no feature; put @feature"),
        ("x = 1\n", r"mine\.py has no f"),
        (OWN.format("mine", "np.roll(block['close'], -1, axis=1)"), r"mine\.py, line 3: feature mine sees the future"),
        (OWN.format("close", "block['open']"), r"mine\.py, line 3: the feature close is built in"),
    ],
)
def test_what_goes_wrong_names_file_and_line(tmp_path: Path, code: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(code)
    for _ in range(2):  # a file that failed is tried again
        with pytest.raises(ConfigError, match=message):
            MarketFeatures.build(MARKET, FeatureSettings((f"{path}:f",)), fit_rows=ROWS)
    assert feature_names() == tuple(BUILT_IN)


def test_the_five_lines_of_the_manual_run(tmp_path: Path) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "features.md").read_text()
    code = next(part.partition("```")[0] for part in manual.split("```python\n")[1:] if "@feature" in part)
    (tmp_path / "my_features.py").write_text(code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 7  # five, and two imports
    settings = FeatureSettings((f"{tmp_path}/my_features.py:range_so_far",))
    assert MarketFeatures.build(MARKET, settings, fit_rows=ROWS).columns == ("range_so_far",)
