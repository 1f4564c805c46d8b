"""The ledger of looks at test days: which configurations were judged on them, and what that costs an interval.

A configuration that is judged on test days is a look at them. Looks are noted in the file ``looks.jsonl`` beside the
runs, one a line, by all commands that judge: a run, an evaluation, a comparison, a sweep, the test of a search. A look
is known by the days' bars and by the settings: the same settings again, resumed, repeated or elsewhere, show nothing
new and are the same look; another seed is another look.

The k-th look has the error rate ``(1 - level) 6 / (pi^2 k^2)``. These sum to ``1 - level`` over any number of looks, so
the intervals of all of them hold together with the probability `level` at least, if looks are planned before the first
one is seen. Where the result of a look decides on the next, nothing but days that nobody looked at is a test.

References
----------
J. Tian and A. Ramdas, "Online Control of the Familywise Error Rate", Statistical Methods in Medical Research 30 (2021),
section 2 (alpha-spending).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel
from scipy.special import stdtrit

from rlwb.experiment.config import RunConfig
from rlwb.experiment.run import RunDirectory, broken_seal, now
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, hash_path, settings_of
from rlwb.files import as_json, locked, write_json, write_text
from rlwb.reading import read_json, reading
from rlwb.values import fitting

if TYPE_CHECKING:
    from rlwb.market import Sessions

LEDGER = "looks.jsonl"
"""Name of the ledger, in the folder of the runs."""

LOOK = "look.json"
"""Name of the file, in a run, that tells which look at its test days the run is."""

LOCKED = "locked"
"""Name of the folder, in a run, of the evaluation on its locked dates."""

#: Settings that tell neither one policy from another nor one figure: what is left of a test part is its days.
_ASIDE = ("rlwb", "split.test", "split.locked", "backtest.bootstrap_samples", "backtest.confidence")
#: Files that tell a comparison, a sweep or a search, whose runs are in it, and folders of runs in such ones.
_FOLDERS, _INNER = ("comparison.yaml", "sweep.yaml", "search.yaml"), ("windows", "fresh")


class Entry(BaseModel):
    """Names and types of a line of the ledger.

    Attributes
    ----------
    at, by, run
        When, by which command, and of which run, from the ledger's folder.
    config, settings
        Hashes of all settings, and of those without the seed.
    days
        Hash of the bars of each test day.
    first, last
        First and last of these days.
    """

    at: str
    by: str
    run: str
    config: str
    settings: str
    days: list[str]
    first: str
    last: str


class Look(BaseModel):
    """Names and types of ``look.json`` in a run's directory.

    Attributes
    ----------
    look
        The number of this look among those at these days, or at some of them, from 1.
    configurations
        How many configurations these looks were of, seeds aside.
    config, days
        As in `Entry`.
    is_noted
        Whether the ledger could be written.
    """

    look: int
    configurations: int
    config: str
    days: list[str]
    is_noted: bool = True


def level_after(look: int, level: float) -> float:
    """Return the level of the k-th look's interval by which the intervals of all looks hold together at `level`."""
    return 1 - (1 - level) * 6 / (math.pi * look) ** 2


def widened(estimate: float, lo: float, hi: float, days: int, *, look: int, level: float) -> tuple[float, float]:
    """Return the ends of an interval of this level over `days` days as that of the k-th look.

    Each end is moved away from the estimate by the ratio of Student's quantiles, which resamples are too few for.
    """
    if days < 2:
        return math.nan, math.nan
    tails = np.array([1 - level_after(look, level), 1 - level]) / 2
    wide, own = stdtrit(days - 1, 1 - tails)
    return estimate - (estimate - lo) * wide / own, estimate + (hi - estimate) * wide / own


def ledger_of(run: RunDirectory) -> Path:
    """Return the ledger of a run: beside it, or beside the comparison, sweep, search or run over windows it is in."""
    place = run.path.parent
    while _is_whole(place) or (place.name in _INNER and _is_whole(place.parent)):
        place = place.parent
    return place / LEDGER


def _is_whole(place: Path) -> bool:
    """Tell whether a folder is that of a run, a comparison, a sweep or a search."""
    return (place / "status.json").is_file() or any(not broken_seal(place / name) for name in _FOLDERS)


def day_hashes(sessions: Sessions, dates: Iterable[Any]) -> dict[str, str]:
    """Return date to hash of the closing prices of all instruments on that day, in time order."""
    close, found = sessions.fields["close"], {}
    for date in np.unique(np.array([*dates], dtype="datetime64[D]")):
        state = hashlib.blake2b(str(date).encode(), digest_size=6)
        for row in np.flatnonzero(sessions.dates == date):
            state.update(f"\n{sessions.instruments[row]} ".encode())
            state.update(np.ascontiguousarray(close[row]).tobytes())
        found[str(date)] = state.hexdigest()
    return found


def hash_of(*values: Any) -> str:
    """Return the hash of plain values."""
    return hashlib.blake2b(as_json(values).encode(), digest_size=16).hexdigest()


def settings_hashes(run: RunDirectory, config: RunConfig) -> tuple[str, str]:
    """Return the hash of all settings and policies that are judged, and that without the seed."""
    chosen = {name: one for stage in (ORDERS, TRAIN, BACKTEST) for name, one in settings_of(stage, config).items()}
    chosen = {name: one for name, one in chosen.items() if name not in _ASIDE}
    own = run.path / "policies"
    chosen["policies"] = hash_path(own) if own.is_dir() else None
    return hash_of(chosen), hash_of({name: one for name, one in chosen.items() if name != "seed"})


def read_look(run: RunDirectory) -> dict[str, Any] | None:
    """Return ``look.json`` of a run; None where there is none, as in a run of an earlier version."""
    path = run.path / LOOK
    found: dict[str, Any] | None = read_json(path, Look) if path.exists() else None
    return found


def keep_look(run: RunDirectory, again: RunDirectory) -> None:
    """Give a repetition of a run the run's own look at the test days: it shows nothing new."""
    if (run.path / LOOK).is_file():
        shutil.copyfile(run.path / LOOK, again.path / LOOK)


def take_look(
    run: RunDirectory, config: RunConfig, sessions: Sessions, dates: Iterable[Any], *, is_noted: bool = True
) -> dict[str, Any] | None:
    """Note that a run's policies are judged on test days, and return its ``look.json``.

    Without `is_noted` nothing is written, and what the run has is returned, None if it has none.
    """
    known = read_look(run)
    if not is_noted:
        return known
    days, (whole, seedless) = day_hashes(sessions, dates), settings_hashes(run, config)
    if known is not None and (known["config"], known["days"]) == (whole, [*days.values()]):
        return known
    by = (
        "run"
        if run.origin is None
        else "unlock"
        if run.path.name == LOCKED and _is_whole(run.path.parent)
        else "evaluate"
    )
    look = note(ledger_of(run), run.path, days, by=by, config=whole, settings=seedless)
    write_json(run.path / LOOK, look)
    return look


def note(ledger: Path, run: Path, days: dict[str, str], *, by: str, config: str, settings: str) -> dict[str, Any]:
    """Note a look in a ledger, unless it is there, and return the `Look`; processes that do so at once take turns.

    A ledger that cannot be written is left as it is.
    """
    dates, hashes = [*days], [*days.values()]
    place = os.path.relpath(run, ledger.parent)
    own = {"at": now(), "by": by, "run": place, "config": config, "settings": settings, "days": hashes}
    own |= {"first": dates[0], "last": dates[-1]}
    is_noted = True
    try:
        with locked(ledger.with_name(f".{LEDGER}.lock"), wait=True):
            entries = read_ledger(ledger)
            if not any(_is_same(one, own) for one in entries):
                entries = [*entries, own]
                write_text(ledger, "".join(f"{json.dumps(one)}\n" for one in entries))
    except OSError:  # no right to write there, no space, or no locks
        is_noted, entries = False, [*read_ledger(ledger), own]
    seen = [one for one in entries if not set(one["days"]).isdisjoint(hashes)]
    number = next(place for place, one in enumerate(seen, start=1) if _is_same(one, own))
    return {
        "look": number,
        "configurations": len({one["settings"] for one in seen[:number]}),
        "config": config,
        "days": hashes,
        "is_noted": is_noted,
    }


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["config"] == other["config"] and one["days"] == other["days"])


def read_ledger(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a ledger, none where there is no file."""
    if not path.exists():
        return []
    entries = []
    with reading(path, "a ledger of looks at test days"):
        for line in path.read_text(encoding="utf-8").splitlines():
            entries.append(json.loads(line))
            fitting(Entry, entries[-1])
    return entries


def looks(run: RunDirectory) -> int | None:
    """Return the number of a run's look at its test days; None in a run that has noted none."""
    found = read_look(run)
    return None if found is None else int(found["look"])


def told_look(look: Mapping[str, Any]) -> str:
    """Say which look at the test days it is."""
    number, many = look["look"], look["configurations"]
    if number == 1:
        which = f"This is the first look at these test days that {LEDGER} beside the runs knows of."
    else:
        by = "one configuration" if many == 1 else f"{many} configurations"
        seeds = " with several seeds" if many < number else ""
        which = (
            f"This is look {number} at these test days, or at some of them, by {by}{seeds} ({LEDGER} beside the runs)."
        )
    lost = f" It could not be noted in {LEDGER}, so later looks will not count it."
    return which if look["is_noted"] else which + lost


def told_looks(runs: Iterable[RunDirectory], *, level: float) -> list[str]:
    """Say which looks at their test days several runs are, and the level that each interval would need for all to hold.

    Runs of earlier versions, which noted none, are left out; there is no line where none did.
    """
    known = sorted((look for run in runs if (look := read_look(run)) is not None), key=lambda one: int(one["look"]))
    if len(known) < 2 or known[0]["look"] == known[-1]["look"]:
        return [told_look(one) for one in known[:1]]
    first, last = known[0]["look"], known[-1]["look"]
    together = f"for all to hold together at {100 * level:g} % that of the last look would be one of"
    told = (
        f"The runs are looks {first} to {last} at these test days, or at some of them ({LEDGER} beside the runs). Each "
        f"interval is for itself; {together} {100 * level_after(last, level):.4g} %."
    )
    return [told]


def told_cost(look: Mapping[str, Any], ends: Sequence[float], days: int, *, level: float, what: str) -> str:
    """Say what is left of an interval when looks are counted; nothing where there is no interval.

    Parameters
    ----------
    ends
        Estimate, lower and upper end in basis points; NaN where there is no interval.
    what
        What they are of, for example ``PA over TWAP``.
    """
    number, (estimate, lo, hi) = look["look"], ends
    if math.isnan(lo) or math.isnan(hi):
        return ""
    low, high = widened(estimate, lo, hi, days, look=number, level=level)
    verdict = "above 0" if low > 0 else "below 0" if high < 0 else "around 0"
    return (
        f" With all looks counted, before and after, the interval of the chosen checkpoints' {what} is "
        f"[{low:z.2f}, {high:z.2f}] bp, {verdict} ({100 * level_after(number, level):.4g} % is this look's part)."
    )


def told_of_metrics(look: Mapping[str, Any] | None, metrics: pd.DataFrame, *, is_net: bool, level: float) -> list[str]:
    """Say which look it is, and what that leaves of the chosen checkpoints' interval, from a table of metrics."""
    if look is None:
        return []
    own = metrics[metrics["kind"] == "checkpoint"]
    over, alone = ("net_over_twap", "pa_net") if is_net else ("over_twap", "pa")
    rows = own.set_index("metric")
    name = over if not math.isnan(rows["estimate"][over]) else alone
    ends = rows.loc[name, ["estimate", "lo", "hi"]].astype(float).tolist()
    what = {over: "PA over TWAP", alone: "PA"}[name] + (" after costs" if is_net else "")
    return [told_look(look) + told_cost(look, ends, int(own["days"].iloc[0]), level=level, what=what)]
