"""The page of a check."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from rlwb.evaluation.quality import quality_page
from rlwb.market.quality import check_bars
from tests.market.test_quality import CLOCK, calm


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    bars = calm("<b>&", "上")
    bars.loc[60, ["open", "high", "low", "close"]] = 10.6
    bars.loc[100, "close"] = 0.0
    bars.to_csv(folder / "bars.csv", index=False)
    return quality_page(check_bars(folder / "bars.csv", calendar=CLOCK))


def test_it_has_its_pictures_in_itself(page: str) -> None:
    pictures = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(pictures) == 2, "maps of colours"
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)
    assert len(re.findall('src="data:image/svg', page)) == 4, "two, each for a wide page and a narrow one"
    assert len(set(re.findall(r' alt="([^"]+)"', page))) == 4, "each says what it shows"
    assert not re.search(r'(?:src|href)="(?!data:)', page), "nothing is fetched from elsewhere"


def test_it_names_every_finding_and_escapes_names(page: str) -> None:
    assert "Not sound: see the faults below." in page
    assert "<td>&lt;b&gt;&amp;</td><td>2024-01-03 11:00:00</td>" in page
    assert "<td>bars.csv</td><td>61</td>" in page
    assert "<b>&" not in page


def test_sound_bars_say_so(tmp_path: Path) -> None:
    calm("A").to_csv(tmp_path / "bars.csv", index=False)
    page = quality_page(check_bars(tmp_path / "bars.csv", calendar=CLOCK))
    assert "Sound: nothing but notes." in page
    assert "<p>Nothing.</p>" in page
