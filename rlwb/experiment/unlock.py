"""``rlwb unlock``: a run's chosen checkpoints judged on its locked dates, once.

The evaluation is the folder ``locked`` of the run. What it found is written to ``locked.json`` under a checksum; from
then on that is shown, and nothing is judged again.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rlwb.errors import ConfigError, FileError
from rlwb.experiment.evaluate import begin_evaluation, evaluated
from rlwb.experiment.ledger import LOCKED, read_look
from rlwb.experiment.orders import locked_span
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.pipeline import see_through
from rlwb.experiment.run import RunDirectory, now
from rlwb.files import as_json, locked, write_json
from rlwb.reading import read_json, read_text

See = Callable[..., None]


class Record(BaseModel):
    """Names and types of ``locked.json``.

    Attributes
    ----------
    at
        When the dates were opened.
    first, last
        The first and the last of them.
    chosen
        The checkpoints that were judged.
    headline
        The table that they gave, with its notes.
    look
        The number of this look at these dates.
    seal
        Checksum of all that.
    """

    at: str
    first: str
    last: str
    chosen: list[str]
    headline: str
    look: int | None
    seal: str


def read_unlocked(run: RunDirectory) -> dict[str, Any] | None:
    """Return ``locked.json`` of a run; None where its locked dates were not opened.

    Raises
    ------
    FileError
        When it is not as it was written.
    """
    path = run.path / f"{LOCKED}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = read_json(path, Record)
    if found["seal"] != _seal(found):
        raise FileError(f"{path} is not as it was written when the dates were opened; restore it.")
    return found


def _seal(record: dict[str, Any]) -> str:
    values = {name: value for name, value in record.items() if name != "seal"}
    return hashlib.blake2b(as_json(dict(sorted(values.items()))).encode(), digest_size=16).hexdigest()


def unlock(
    path: Path, *, trust_code: bool = False, echo: Callable[[str], None] = print, see: See = see_through
) -> dict[str, Any]:
    """Do what ``rlwb unlock`` asks for; return the record of the locked dates, which is made at the first time alone.

    What stopped in its middle goes on. Afterwards the run's training and choice are as they were, and so is the record,
    even if the run is trained further.

    Parameters
    ----------
    trust_code
        Run the code that the run names, wherever it is from.
    see
        Does the stages of an evaluation of a configuration, as `rlwb.experiment.pipeline.see_through` does.

    Raises
    ------
    ConfigError
        For a run without locked dates, or without a finished backtest.
    """
    run = RunDirectory.open(path)
    with locked(run.path / f".{LOCKED}.lock", wait=True):
        record = read_unlocked(run)
        if record is not None:
            echo(record["headline"].rstrip())
            echo(f"The dates from {record['first']} to {record['last']} were opened on {record['at']}, and open once.")
            return record
        span = locked_span(run)
        if span is None:
            raise ConfigError(
                f"{run.path} has no locked dates; begin a run with --set split.locked=0.1, which keeps the last tenth "
                "of the dates from it."
            )
        inner = RunDirectory(run.path / LOCKED)
        require_trust(run.config, given=trust_code)
        if not inner.is_run():
            config = evaluated(run)
            split = dataclasses.replace(config.split, test=span, locked=None)
            begin_evaluation(run, config.model_copy(update={"split": split}), inner.path)
        echo(f"unlock: {inner.path}")
        see(inner, inner.config, echo=echo)
        look = read_look(inner)
        record = {
            "at": now(),
            "first": span[0],
            "last": span[1],
            "chosen": read_json(inner.backtest / "selection.json")["chosen"],
            "headline": read_text(inner.backtest / "headline.txt"),
            "look": None if look is None else look["look"],
        }
        record["seal"] = _seal(record)
        write_json(run.path / f"{LOCKED}.json", record)
        return record
