"""The session's clock."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rlwb.errors import ConfigError
from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.fields import CountOrZero, Positive
from rlwb.market import Calendar


class CalendarConfig(Section):
    """The session's clock: a preset, and what differs from it.

    Parameters
    ----------
    preset
        ``cn``, ``us``, ``in`` or ``crypto``; none when `exchange` or `segments` states the session.
    exchange
        Code of an exchange, such as XNYS, XSHG or XLON, whose hours, zone, holidays and early closes are taken from the
        package exchange_calendars (pip install 'rlwb[calendars]'); in place of `preset`.
    segments
        Opening and closing time of each part of the session, for example ``[["09:30", "11:30"], ["13:00", "15:00"]]``.
    tick_minutes
        Length of a bar in minutes; 1/60 is a second. It must be that of the bars.
    label
        Whether a bar's stamp names its ``start`` or its ``end``. A wrong label shifts every decision by one bar.
    timezone
        Zone of the exchange (IANA name); bars that carry a zone need it.
    weekdays
        Days with trading, Monday is 0.
    early_closes
        Closing time by date of shortened days.
    closed
        Dates whose bars are rejected.
    infer_early_close_minutes
        A date on which nothing trades for the last this many minutes closed early; 0 turns that off.
    """

    preset: Literal["cn", "us", "in", "crypto"] | None = "us"
    exchange: str | None = None
    segments: tuple[tuple[str, str], ...] | None = None
    tick_minutes: Positive = 1.0
    label: Literal["start", "end"] = "start"
    timezone: str | None = None
    weekdays: tuple[int, ...] | None = None
    early_closes: dict[str, str] | None = None
    closed: tuple[str, ...] = ()
    infer_early_close_minutes: CountOrZero | None = None

    def build(self) -> Calendar:
        """Return the calendar of the market room."""
        given = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        preset, exchange = given.pop("preset", None), given.pop("exchange", None)
        if preset is not None and exchange is not None:
            raise ConfigError(
                f"the calendar is given as preset {preset} and as exchange {exchange}; keep one of them "
                "(market.calendar.preset=null drops the preset)."
            )
        if exchange is not None:
            return Calendar.exchange(exchange, **given)
        if preset is None and "segments" not in given:
            raise ConfigError("the calendar needs a preset, an exchange, or the segments of the session.")
        return Calendar.preset(preset, **given) if preset else Calendar(**given)

    @model_validator(mode="after")
    def _buildable(self) -> CalendarConfig:
        if self.exchange is not None and "preset" not in self.model_fields_set:
            object.__setattr__(self, "preset", None)  # an exchange takes the place of a preset that nobody asked for
        try:
            self.build()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self
