"""Bundles: what is in them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlwb.serving.bundle import open_bundle
from rlwb.serving.cases import case_observations
from tests.serving.runs import small_bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


def test_a_bundle_answers_as_its_policy_did(made: Path) -> None:
    bundle = open_bundle(made)
    obs, actions = case_observations(bundle)
    assert np.array_equal(bundle.learner.act(obs), actions)
