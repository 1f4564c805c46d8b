"""The environment of the large extras is the pinned one, and nothing in it contradicts the project."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest
from packaging.version import Version

from tests.test_project import _pins

pytest.importorskip("ray", reason="the large extras are not installed; make test installs them")


def test_every_pin_of_the_extras_is_installed() -> None:
    found = {name: Version(version(name)) for name in _pins("pins-extras")}
    assert found == _pins("pins-extras")


def test_the_installed_packages_agree() -> None:
    check = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)
    # The setuptools of a new environment is older than torch asks for; nothing here builds extensions.
    faults = [line for line in check.stdout.splitlines() if "setuptools" not in line and "No broken" not in line]
    assert not faults, check.stdout
