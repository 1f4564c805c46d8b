"""The specification of a bundle, ``bundle.json``: all that a policy needs beside its weights, in plain values."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlwb.errors import BundleError
from rlwb.files import write_text
from rlwb.values import reason

FORMAT = 1
"""Version of the form of bundles; it changes with every change that an older rlwb cannot read."""

SPEC = "bundle.json"
WEIGHTS = "weights.safetensors"
CASES = "cases.safetensors"
CARD = "card.md"

_HEAD = re.compile(rb'\{\n  "checksum": "([0-9a-f]{64})",\n')
_PLACE = re.compile(r"(?!\.)[^/\\\0]+(/(?!\.)[^/\\\0]+)*")


class _Values(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Origin(_Values):
    """The training that a policy is of.

    Attributes
    ----------
    name
        Name of the run's directory, or of the file of weights that came from elsewhere.
    id
        Hash of all settings that the weights depend on; None for weights from elsewhere, as the iteration.
    iteration
        Iteration of the checkpoint.
    validation
        The checkpoint's value of the figure that checkpoints are chosen by; None where it was not validated.
    figure
        That figure: ``pa``, ``pa_net`` or ``objective``.
    """

    name: str
    id: str | None
    iteration: int | None
    validation: float | None
    figure: str


class NormaliserValues(_Values):
    """The statistics of `rlwb.market.Normaliser`."""

    columns: list[str]
    mean: list[float]
    scale: list[float]


class Bars(_Values):
    """The bars of the training, by which a blank panel of the same kind is made.

    Attributes
    ----------
    fields
        Their fields, such as ``close`` and ``volume``.
    halted, factor
        Whether they said which bars were halted, and by what factor prices are adjusted.
    """

    fields: list[str]
    halted: bool
    factor: bool


class Window(_Values):
    """A window of training orders, session-local ``HH:MM``, and how many had it."""

    start: str
    end: str
    orders: int


class Seen(_Values):
    """The orders that the policy was trained on.

    Attributes
    ----------
    first, last
        First and last date, ``YYYY-MM-DD``.
    days, instruments, orders
        How many.
    buys, sells
        Orders of each side.
    amount, participation
        Quantiles by level, such as ``"0.5"``, of the amount, and of the amount as a share of the volume of the
        order's window; of the latter without orders whose window has no volume.
    steps
        Least and greatest number of decisions of an order.
    windows
        The most frequent windows, at most 20.
    """

    first: str
    last: str
    days: int
    instruments: int
    orders: int
    buys: int
    sells: int
    amount: dict[str, float]
    participation: dict[str, float]
    steps: tuple[int, int]
    windows: list[Window]


class OwnPart(_Values):
    """A part of a user's own that the policy is made of.

    Attributes
    ----------
    place
        Where it stands in the configuration.
    name
        ``file.py:Name`` or ``package.module:Name``.
    hash
        Hash of the content of its source file.
    """

    place: str
    name: str
    hash: str


class CaseOrder(_Values):
    """An order of the backtest whose decisions are recorded, and what stands in its columns."""

    order_id: str
    columns: dict[str, str | float | None]


class CaseSession(_Values):
    """A session whose bars are recorded for the orders."""

    instrument: str
    date: str
    ticks: int
    factor: float | None


class Cases(_Values):
    """What ``cases.safetensors`` holds.

    Attributes
    ----------
    observations
        Number of recorded observations.
    orders
        The orders whose decisions are recorded, from raw bars to amounts.
    sessions
        The sessions of the recorded bars, by the rows of the arrays ``bars/…``.
    tolerance
        Greatest difference of an action that is none; 0 where actions are choices.
    note
        What the decisions are if they are not those of the backtest.
    """

    observations: int
    orders: list[CaseOrder]
    sessions: list[CaseSession]
    tolerance: float
    note: str | None = None


class BundleSpec(_Values):
    """The content of ``bundle.json``; `json_schema` gives its JSON schema.

    Attributes
    ----------
    format
        Version of the form, `FORMAT`.
    rlwb, packages
        Versions that the bundle was written with.
    origin
        The training.
    config
        What the policy is built from: the places of a run's configuration that it depends on. Code of one's own is
        named as ``code/<hash>/file.py:Name``.
    record
        The `rlwb.record.TrainingRecord`.
    normaliser, calendar, bars
        Statistics of the features, trading hours, and the kind of bars.
    seen
        The training orders.
    statistics
        What `rlwb.serving.drift.training_statistics` says of the features of the training sessions.
    observation, action
        The spaces, as text, by the names of their parts.
    own_parts
        Parts of a user's own, which run only if the opener says so.
    weights
        What `rlwb.learner.Learner.weights` gave, with ``{"$tensor": "float32 (64, 5)"}`` in place of tensors, which are
        in ``weights.safetensors`` by the names on the way to them, joined by dots.
    conversion
        How weights that came from elsewhere were brought into this form; None for those of a run of rlwb.
    cases
        The recorded cases.
    precision
        Numbers that the weights are computed with.
    agreement
        How a bundle of less precision agrees with the original; None for the original.
    onnx
        The ONNX files, ``policy.onnx`` and where there is one ``head.onnx`` (`rlwb.serving.onnx`).
    onnx_reason
        Why there are none; None where there are.
    files
        SHA-256 of each other file, by its path in the bundle.
    """

    format: int
    rlwb: str
    packages: dict[str, str]
    origin: Origin
    config: dict[str, Any]
    record: dict[str, Any]
    normaliser: NormaliserValues
    calendar: dict[str, Any]
    bars: Bars
    seen: Seen
    statistics: dict[str, Any]
    observation: dict[str, str]
    action: dict[str, str]
    own_parts: list[OwnPart]
    weights: Any
    conversion: str | None = None
    cases: Cases
    precision: Literal["float32", "int8", "float16"] = "float32"
    agreement: dict[str, Any] | None = None
    onnx: list[str] = []
    onnx_reason: str | None = None
    files: dict[Annotated[str, Field(pattern=r"^[^\\]+$")], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON schema of ``bundle.json``, its checksum included."""
        schema = cls.model_json_schema()
        checksum = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of what follows its line."}
        schema["properties"] = {"checksum": checksum, **schema["properties"]}
        return schema


def sha256(content: bytes) -> str:
    """Return the SHA-256 of bytes, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def write_spec(folder: Path, spec: BundleSpec) -> None:
    """Write ``bundle.json`` into a folder: JSON whose first member is the SHA-256 of all that follows its line."""
    body = json.dumps(spec.model_dump(mode="json"), indent=2, allow_nan=False).removeprefix("{\n") + "\n"
    write_text(folder / SPEC, f'{{\n  "checksum": "{sha256(body.encode())}",\n{body}')


def read_spec(path: Path) -> BundleSpec:
    """Return the specification of the bundle in `path`.

    Raises
    ------
    BundleError
        When there is none, its checksum differs, it is of another format, or a value of it is not what it must be.
    """
    file = path / SPEC
    try:
        content = file.read_bytes()
    except OSError as error:
        told = "is missing" if isinstance(error, (FileNotFoundError, NotADirectoryError)) else error.strerror
        raise BundleError(f"{path} is no bundle ({SPEC} {told}); make one with rlwb export RUN --out BUNDLE.") from None
    head = _HEAD.match(content)
    if head is None or sha256(content[head.end() :]) != head[1].decode():
        raise BundleError(f"{file} is not as it was written (its checksum differs); export the bundle again.")
    try:
        values = json.loads(content)
        del values["checksum"]
        if (found := values.get("format")) != FORMAT:
            raise BundleError(
                f"{path} is of format {found!r}, written by rlwb {values.get('rlwb')}; this version reads {FORMAT}: "
                "export it again with this one, or open it with that one."
            )
        spec = BundleSpec.model_validate_json(json.dumps(values))
    except ValidationError as error:
        places = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise BundleError(f"{file}: {places}: {reason(error.errors())}; export the bundle again.") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise BundleError(f"{file} cannot be read ({error}); export the bundle again.") from None
    return spec


def check_files(path: Path, spec: BundleSpec) -> None:
    """Require that a bundle has the files of its specification, byte for byte, and no others.

    Raises
    ------
    BundleError
        Naming the file.
    """
    there = {one.relative_to(path).as_posix() for one in path.rglob("*") if not one.is_dir() or one.is_symlink()}
    for name in sorted({*spec.files, *there} - {SPEC}):
        if name not in spec.files:
            raise BundleError(f"{path / name} is no file of the bundle; remove it.")
        if not _PLACE.fullmatch(name) or name not in there:
            raise BundleError(f"{path / name} is missing; export the bundle again.")
        try:
            found = sha256((path / name).read_bytes())
        except OSError as error:
            raise BundleError(f"{path / name} cannot be read ({error.strerror}); check its rights.") from None
        if found != spec.files[name]:
            raise BundleError(f"{path / name} is not as it was written (its SHA-256 differs); export the bundle again.")
