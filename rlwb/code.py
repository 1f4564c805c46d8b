"""Code that a configuration names: where it lies, the hash of its content, and how it is loaded."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
import types
from pathlib import Path
from typing import Any, NamedTuple

from rlwb.errors import ConfigError, RlwbError
from rlwb.signatures import module_file
from rlwb.values import suggestion


class Code(NamedTuple):
    """The place of a part's code: a module or a file, and a name in it.

    Attributes
    ----------
    place
        A module's dotted name, or the path of a ``.py`` file.
    attribute
        The name of the class or function in it.
    is_foreign
        Whether it is neither rlwb's own nor an installed entry point's, so that a configuration alone asks to run it.
    """

    place: str
    attribute: str
    is_foreign: bool

    @property
    def is_file(self) -> bool:
        """Whether the place is a file."""
        return self.place.endswith(".py")

    @property
    def file(self) -> Path | None:
        """The source file, None when there is none."""
        return Path(self.place) if self.is_file else module_file(self.place)

    def describe(self) -> dict[str, str]:
        """Return name and hash of the code, as manifests record it; a file without its folder."""
        name = Path(self.place).name if self.is_file else self.place
        return {"name": f"{name}:{self.attribute}", "hash": self.fingerprint()}

    def fingerprint(self) -> str:
        """Return the hash of the source file's content; raise `ConfigError` when there is no such file or module."""
        if self.file is None:
            raise ConfigError(
                f"there is no module {self.place}; install it, or name a file: my_file.py:{self.attribute}."
            )
        try:
            return hashlib.blake2b(self.file.read_bytes(), digest_size=12).hexdigest()
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be read ({error.strerror}); check the path.") from None

    def load(self) -> Any:
        """Return the class or function; this runs its code, a file's once a process as long as its content stays.

        Raise `ConfigError` when there is no such module, file or attribute, or running it fails, with the line.
        """
        module = _run_file(self) if self.is_file else _import(self)
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            public = [name for name in vars(module) if not name.startswith("_")]
            raise ConfigError(f"{self.place} has no {self.attribute}; {suggestion(self.attribute, public)}") from None


def _run_file(code: Code) -> types.ModuleType:
    name = f"rlwb_part_{code.fingerprint()}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, code.place)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[name]
            if isinstance(error, Exception):
                raise _refusal(code, error) from error
            raise
        import cloudpickle

        cloudpickle.register_pickle_by_value(module)  # a worker process has no file of this module's name
    return sys.modules[name]


def _import(code: Code) -> types.ModuleType:
    if module_file(code.place) is None and code.place not in sys.modules:
        code.fingerprint()
    try:
        return importlib.import_module(code.place)
    except Exception as error:
        raise _refusal(code, error) from error


def _refusal(code: Code, error: Exception) -> ConfigError:
    """Return whatever went wrong in a user's code as one sentence that names its line."""
    file = str(code.file)
    places = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = error.lineno if isinstance(error, SyntaxError) else places[-1].lineno if places else None
    where = f"{file}, line {line}" if line else file
    if isinstance(error, RlwbError):
        return ConfigError(f"{where}: {error}")
    words = error.msg if isinstance(error, SyntaxError) else str(error).strip().partition("\n")[0]
    return ConfigError(f"{where}: {type(error).__name__}: {words}; correct it.")
