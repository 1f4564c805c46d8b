"""Features of one's own, from a file or a module that a configuration names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from rlwb.errors import ConfigError
from rlwb.market import pieces
from rlwb.market.block import Piece

_PREFIX = "rlwb_own_features_"
#: What each file (by its content) and module has added, so that it can be added again after another took the name.
_ADDED: dict[str, dict[str, Piece]] = {}


def is_file(source: str) -> bool:
    """Tell whether `source` names a file, and not a module."""
    return source.endswith(".py")


def import_features(sources: Sequence[str]) -> tuple[str, ...]:
    """Run the Python files and import the modules that add features by `rlwb.market.feature`; return their names.

    A file is run once a process as long as its content stays. What it added takes its place again at each call, so two
    configurations whose files use the same name do not meet.

    Parameters
    ----------
    sources
        Paths of files that end in ``.py``, and dotted names of modules.

    Raises
    ------
    ConfigError
        When a file or module is not there, fails, or adds no feature, and when two of them add the same; one sentence.
    """
    origin: dict[str, str] = {}
    for source in sources:
        key = fingerprint(source) if is_file(source) else source
        if key not in _ADDED:
            _ADDED[key] = _added_by(source, key)
        for name, piece in _ADDED[key].items():
            if name in origin:
                raise ConfigError(f"{origin[name]} and {source} both add a feature {name}; rename one of the two.")
            origin[name] = source
            pieces.register(piece)
    return tuple(origin)


def fingerprint(source: str) -> str:
    """Return the hash of the content of a file, or of a module's own file.

    Raises
    ------
    ConfigError
        When there is no such file or module.
    """
    path = Path(source if is_file(source) else _module_file(source))
    try:
        return hashlib.blake2b(path.read_bytes(), digest_size=12).hexdigest()
    except OSError as error:
        raise ConfigError(f"the features of {source} cannot be read ({error.strerror}); check the path.") from None


def describe(sources: Sequence[str]) -> list[dict[str, str]]:
    """Return name (of a file, without its folder) and hash of each source, as values that JSON can hold."""
    return [
        {"name": Path(source).name if is_file(source) else source, "hash": fingerprint(source)} for source in sources
    ]


def _added_by(source: str, key: str) -> dict[str, Piece]:
    """Run a file or import a module; return the features that it adds."""
    before = pieces.registered()
    if is_file(source):
        _guard(source, lambda: _run_file(Path(source), f"{_PREFIX}{key}"))
    else:
        _module_file(source)
        _guard(source, lambda: importlib.import_module(source))
    after = pieces.registered()
    own = (source, f"{_PREFIX}{key}")
    added = {
        name: piece
        for name, piece in after.items()
        if piece is not before.get(name) or getattr(piece.function, "__module__", None) in own
    }
    if not added:
        raise ConfigError(f"{source} adds no feature; put @feature(name, needs=[...]) above a function in it.")
    return added


def _run_file(path: Path, name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def _module_file(name: str) -> str:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"there is no module {name} to import features from; install it, or name a file that ends in .py."
        )
    return spec.origin


def _guard(source: str, load: Callable[[], object]) -> None:
    """Turn whatever goes wrong in a user's code into one sentence that names its line."""
    try:
        load()
    except Exception as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
        line = error.lineno if isinstance(error, SyntaxError) else places[-1].lineno if places else None
        where = f"{source}, line {line}" if line else source
        if isinstance(error, ConfigError):
            raise ConfigError(f"{where}: {error}") from error
        words = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
        raise ConfigError(f"{where}: {type(error).__name__}: {words}; correct it.") from error
