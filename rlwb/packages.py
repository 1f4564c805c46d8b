"""Packages that only some installations have."""

from __future__ import annotations

from importlib.util import find_spec

from rlwb.errors import ConfigError


def require_packages(what: str, extra: str, *names: str) -> None:
    """Raise `ConfigError` naming the first of these packages that is not installed, and the extra that has it."""
    for name in names:
        if find_spec(name) is None:
            raise ConfigError(f"{what} needs the package {name}; pip install 'rlwb[{extra}]'.")
