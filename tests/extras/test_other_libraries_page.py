"""What the page of other libraries shows runs as it stands there, on fewer steps."""

from __future__ import annotations

from pathlib import Path

from tests.test_docs import blocks, run_script


def test_m03_the_scripts_of_the_page_run(tmp_path: Path) -> None:
    named, learnt, _judged = blocks("docs/other-libraries.md", "python")
    run_script(f"{named}\nassert obs in env.observation_space", tmp_path)
    few = learnt.replace("learn(60_000)", "learn(2_048)")
    assert few != learnt
    run_script(few, tmp_path)
    assert (tmp_path / "masked.zip").is_file()
