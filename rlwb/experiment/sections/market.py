"""Where bars come from."""

from __future__ import annotations

import datetime as dt
from typing import Literal

from pydantic import Field, model_validator

from rlwb.errors import ConfigError
from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.calendar import CalendarConfig
from rlwb.experiment.sections.fields import Positive, Share
from rlwb.market import SyntheticSettings
from rlwb.market.readers.lookup import BUILT_IN, TABLE, find_reader


class MarketConfig(Section):
    """Where bars come from and how they are read.

    Parameters
    ----------
    source
        ``synthetic`` for the embedded market, or the path of bars: a data set (``rlwb data import``), a saved panel, a
        Parquet or CSV file, a folder with one file an instrument, or what another reader reads. In a configuration
        file, a relative path starts at that file.
    kind
        What reads the source: ``table`` for Parquet and CSV, ``qlib``, ``binance``, ``lean``, ``lobster``,
        ``qlib_pickle``, or the reader of an installed package. None goes by the names of the files.
    options
        Options of that reader, for example ``{freq: 1min, prices: raw}`` of ``qlib``. A pickle is read only with
        ``{trust_pickle: true}``.
    synthetic
        The embedded market; only with ``source: synthetic``.
    calendar
        The session's clock; only with bars of your own, the embedded market has its own. A data set and a saved panel
        bring theirs, which is used unless this one is changed from its default.
    columns
        The data's own column names to ours, for example ``{symbol: instrument, time: datetime}``.
    instruments
        Names of the instruments to use, quoted where they look like numbers; empty means all.
    start, end
        First and last date to use.
    strict
        Refuse data that would have to be repaired or dropped, instead of reporting it.
    min_coverage
        A session with a smaller share of its bars than this is dropped; larger is stricter.
    volume_multiplier
        What one unit of the volume column is in shares, for example 100 where it counts lots.
    prices
        What prices are in bars with a column factor: as ``traded``, or ``adjusted`` by it and to be brought back.
    instrument_pattern
        Regular expression whose group 1 is the instrument in a file's name, for folders of several files an
        instrument, for example ``(.+)-[0-9]{8}``.
    datetime_format
        strptime format of times that are not ISO 8601, for example ``%d/%m/%Y %H:%M``.
    source_timezone
        Zone of stamps that carry none, for example ``UTC``; none means the calendar's.
    """

    source: str = "synthetic"
    kind: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    synthetic: SyntheticSettings = SyntheticSettings(days=240)
    calendar: CalendarConfig = CalendarConfig()
    columns: dict[str, str] = Field(default_factory=dict)
    instruments: tuple[str, ...] = ()
    start: dt.date | None = None
    end: dt.date | None = None
    strict: bool = False
    min_coverage: Share = 0.5
    volume_multiplier: Positive = 1.0
    prices: Literal["traded", "adjusted"] = "traded"
    instrument_pattern: str | None = None
    datetime_format: str | None = None
    source_timezone: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> MarketConfig:
        if self.start and self.end and self.start > self.end:
            raise ValueError(f"start {self.start} is after end {self.end}; exchange them.")
        if self.source == "synthetic":
            unused = [name for name in type(self).model_fields if name not in ("source", "synthetic")]
        else:
            unused = ["synthetic"]
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                raise ValueError(f"{name} has no effect with source {self.source!r}; drop it or change the source.")
        self._check_reader()
        return self

    def _check_reader(self) -> None:
        """Refuse a kind or options of no reader, and what the reader would not look at."""
        if self.kind is None:
            return
        try:
            if self.kind in BUILT_IN or ":" not in self.kind:  # the code of others is not run for a configuration
                find_reader(self.kind).check_options(self.options)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        unused = [name for name in ("columns", "instrument_pattern", "datetime_format") if getattr(self, name)]
        if self.kind != TABLE and unused:
            raise ValueError(f"{unused[0]} has no effect with kind {self.kind!r}; drop it or change the kind.")
