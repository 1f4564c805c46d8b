"""A configuration to start from for bars of one's own, with the reasons for each setting."""

from __future__ import annotations

import os
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from rlwb.errors import DataError
from rlwb.execution.generate import OrderSettings
from rlwb.experiment.config import RunConfig
from rlwb.experiment.workbench import Workbench
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.market import Calendar, Sessions, read_bars
from rlwb.market.dataset.state import is_dataset
from rlwb.market.findings import counted
from rlwb.market.recognise import Clock, recognise_clock
from rlwb.market.source import Reading, open_source
from rlwb.market.store import is_panel

#: Decisions of an order that a step length is chosen for, about a half hour of a day each.
_STEPS = 12
#: Instruments that are listed by name; of more all are used.
_LISTED = 30
_FEWEST_DATES = 3


def suggest(source: str | os.PathLike[str], **reading: Unpack[Reading]) -> str:
    """Return a configuration for a run on bars, as YAML with comments that say why.

    The clock is recognised from the stamps, unless the source brings one. The rest follows from the sessions that it
    gives and from the orders that the run will draw, which are made once, so that ``rlwb run`` starts.

    Parameters
    ----------
    source
        A data set, a saved panel, or a file or folder of bars.
    reading
        How it is read (`rlwb.market.source.Reading`).

    Raises
    ------
    DataError
        Where the bars cannot be read, show no session, or are too few.
    """
    path = Path(source).resolve()
    market: dict[str, Any] = {"source": str(path)}
    clock = None
    if not (is_dataset(path) or is_panel(path)):
        opened = open_source(path, **reading)
        bars = read_bars(path, **reading)
        try:
            clock = recognise_clock(bars, opened.reader.label)
        except DataError as error:
            raise DataError(f"{source}: {error}") from None
        options = {**(reading.get("options") or {})}
        options |= {
            name: reading[name] for name in ("columns", "instrument_pattern", "datetime_format") if reading.get(name)
        }
        if options or reading.get("kind"):
            market["reader"] = {"name": opened.kind, **options}
        market["calendar"] = clock.calendar
        zone = reading.get("source_timezone") or clock.source_timezone
        market |= {"source_timezone": zone} if zone else {}
        market |= {"round_seconds": clock.round_seconds} if clock.round_seconds else {}
    sessions = _bench({"market": market}).sessions
    traded = _traded(sessions)
    names = sessions.index.names.tolist()
    if len(traded) < len(names) or len(names) <= _LISTED:
        market["instruments"] = traded
    ticks = _ticks_per_step(sessions.calendar)
    quotes = {} if np.isfinite(sessions.fields["close"]).any() else {"rules": {"price_field": "quotes"}}
    window = {"start_time": sessions.calendar.segments[0][0], "end_time": sessions.calendar.segments[-1][1]}
    values = {
        "market": market,
        "orders": {"name": "generated", **window},
        "execution": {"ticks_per_step": ticks, **quotes},
    }
    bench = _bench(values)
    dates = np.unique(bench.all_orders["date"].to_numpy().astype("datetime64[D]")).astype(str)
    if len(dates) < _FEWEST_DATES:
        raise DataError(
            f"{source} gives orders on {counted(len(dates), 'dates')}; a run needs {_FEWEST_DATES}, for training, "
            "validation and test, after a first day that sizes them. Bring more days."
        )
    values["split"] = _split(dates.tolist())
    rules = bench.config.execution.rules.describe()
    return _text(values, bench.sessions, clock, rules, len(dates), sorted(set(names) - set(traded)))


def _bench(values: dict[str, Any]) -> Workbench:
    with tempfile.TemporaryDirectory(prefix="rlwb-") as folder:
        file = Path(folder) / "suggested.yaml"
        file.write_text(dump_yaml(values), encoding="utf-8")
        return Workbench(RunConfig.load(file))


def _traded(sessions: Sessions) -> list[str]:
    """Return the instruments that have volume, without which no order is sized."""
    volume = np.nansum(sessions.fields["volume"], axis=1)
    return np.unique(sessions.instruments[volume > 0]).tolist()


def _ticks_per_step(calendar: Calendar) -> int:
    """Return the ticks of a step that cut each segment evenly, where some do, into about `_STEPS` steps in all."""
    lengths = np.bincount(calendar.segment)

    def distance(ticks: int) -> tuple[int, int]:
        steps = int((-(-lengths // ticks)).sum())
        return abs(steps - _STEPS) + 3 * int((lengths % ticks).any()), -ticks

    return min(range(1, int(lengths.max()) + 1), key=distance)


def _split(dates: list[str]) -> dict[str, list[str]]:
    """Return the first and last dates of three parts, some 60, 20 and 20 % of the dates in the order of time."""
    last = max(1, round(0.2 * len(dates)))
    cuts = [0, len(dates) - 2 * last, len(dates) - last, len(dates)]
    return {name: [dates[cuts[at]], dates[cuts[at + 1] - 1]] for at, name in enumerate(("train", "valid", "test"))}


def _text(
    values: dict[str, Any], sessions: Sessions, clock: Clock | None, rules: str, dates: int, silent: list[str]
) -> str:
    """Return the configuration as YAML, with a comment above what was chosen."""
    market, recipe, calendar = values["market"], OrderSettings(), sessions.calendar
    steps = int(calendar.cells(values["execution"]["ticks_per_step"])[-1]) + 1
    fitness = "" if sessions.report.fitness is None else sessions.report.fitness.as_text()
    names = len(sessions.index.names)
    reasons = "" if clock is None else "\n".join(clock.reasons)
    left_out = f" Left out: {', '.join(silent[:5])}{' and more' if len(silent) > 5 else ''}." if silent else ""
    why = {
        "market.source": f"{counted(len(sessions), 'sessions')} of {counted(names, 'instruments')}.\n{fitness}",
        "market.reader": "As it was read for this suggestion.",
        "market.calendar": reasons,
        "market.instruments": f"Those that have volume, without which no order is sized.{left_out}",
        "orders": "One buy and one sell a session, from open to close. Sizes are the default recipe, a median of "
        f"{np.exp(recipe.log_mean):.1%} of the mean volume of a bar (log_mean, log_std). Where volume is in lots, say "
        "so: market.volume_multiplier: 100.",
        "execution": f"{steps} decisions in a session of {calendar.num_ticks} bars. Costs and market rules are left at "
        f"their default ({rules}). preset: us (cn, crypto) brings those of a market, rules: {{volume_limit: 0.1}} a "
        "cap.",
        "split": f"{dates} dates with orders, in time: some 60 % to train, 20 % to choose a policy, 20 % to judge it.",
    }
    lines = [
        "# A configuration to start from, made by rlwb data suggest; what it leaves out has its default (rlwb config).",
        "#   rlwb run THIS_FILE --set train.iterations=2      a quick try",
        "#   rlwb run THIS_FILE                               the whole",
    ]
    for section, inner in values.items():
        lines += ["", *_comment(why.get(section, ""))]
        if section != "market":
            lines.append(f"{section}: {dump_yaml(inner, flow=True).strip()}")
            continue
        lines.append("market:")
        for name, value in market.items():
            lines += _comment(why.get(f"market.{name}", ""), "  ")
            lines.append(f"  {name}: {dump_yaml(value, flow=True).strip()}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "") -> list[str]:
    return [f"{indent}# {line}" for part in text.splitlines() for line in textwrap.wrap(part, 116 - len(indent))]
