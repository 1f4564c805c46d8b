"""The state of a market explorer: one session of many, and pictures and findings of it and of all."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.errors import DataError
from rlwb.evaluation import plots, style
from rlwb.market import Sessions
from rlwb.market.findings import counted
from rlwb.market.quality import KINDS, Quality, sessions_quality

#: What can be shown beside the calendar.
PICTURES = ("Session", "U of the instrument", "U of all", "Findings by day", "Zero volume", "Worst findings")


class MarketView:
    """Sessions, one of which is chosen, with pictures of it and of the market, and what a check found.

    Parameters
    ----------
    sessions
        The market; one or more.
    quality
        What a check of the bars found; by default what loading them noticed.

    Attributes
    ----------
    instrument, day, picture
        What is chosen, the day as ``YYYY-MM-DD``, the picture one of `PICTURES`. At first it is the session of the
        earliest fault that names one, else the last of the first instrument.

    Raises
    ------
    DataError
        When there are no sessions.
    """

    def __init__(self, sessions: Sessions, quality: Quality | None = None) -> None:
        if not len(sessions):
            raise DataError("there are no sessions to look at; load some bars.")
        self.sessions = sessions
        self.quality = quality or sessions_quality(sessions)
        self.picture = PICTURES[0]
        self.instrument, self.day = str(sessions.instruments[0]), ""
        self.choose_instrument(self.instrument)
        for instrument, day in self._faulty():
            if sessions.rows([instrument], [day])[0] >= 0:
                self.instrument, self.day = instrument, day
                break

    def _faulty(self) -> list[tuple[str, str]]:
        listed = self.quality.found.listed
        faults = [one for kind in KINDS if KINDS[kind].severity == "fault" for one in listed.get(kind, ())]
        named = {(one.date, one.instrument) for one in faults if one.instrument and one.date}
        return [(instrument, day) for day, instrument in sorted(named)]

    def instruments(self) -> list[str]:
        """Return the instruments that have sessions, sorted."""
        return [str(one) for one in self.sessions.index.names]

    def days(self) -> list[str]:
        """Return the days of the chosen instrument's sessions, in order."""
        return self.sessions.dates[self.sessions.instruments == self.instrument].astype(str).tolist()

    def choose_instrument(self, instrument: str) -> None:
        """Show an instrument: on the same day, else on its next, or its last."""
        self.instrument = instrument
        days = self.days()
        if not days:
            raise DataError(f"instrument {instrument} has no session here; choose one of {self.instruments()[:5]}.")
        self.day = next((one for one in days if self.day and one >= self.day), days[-1])

    def choose_day(self, day: str) -> None:
        """Show another session of the instrument."""
        self.sessions.row(self.instrument, day)
        self.day = day

    def choose_picture(self, picture: str) -> None:
        """Show another of `PICTURES`."""
        if picture not in PICTURES:
            raise DataError(f"there is no picture {picture!r}; choose one of {', '.join(PICTURES)}.")
        self.picture = picture

    def choose_place(self, x: float, y: float) -> None:
        """Show the session at a place of the calendar, its columns days and its rows instruments, or the nearest."""
        names, days = self.quality.instruments, self.quality.days
        self.instrument = names[int(np.clip(round(y), 0, len(names) - 1))]
        wanted = days[int(np.clip(round(x), 0, len(days) - 1))]
        own = np.array(self.days(), dtype="datetime64[D]")
        if len(own):
            self.day = str(own[np.abs(own - wanted).argmin()])
        else:
            self.choose_instrument(self.instruments()[0])

    def place(self) -> tuple[float, float]:
        """Return where the chosen session lies in the calendar; NaN where the check did not see it."""
        names, (days,) = self.quality.instruments, np.nonzero(self.quality.days == np.datetime64(self.day))
        known = self.instrument in names and len(days)
        return (float(days[0]), float(names.index(self.instrument))) if known else (np.nan, np.nan)

    def calendar(self) -> Figure:
        """Draw all sessions: instruments by days, by the share of ticks that have a price, no taller than a screen."""
        return plots.coverage_calendar(self.quality, tallest=3.2)

    def figure(self) -> Figure:
        """Draw the chosen picture."""
        sessions = self.sessions
        if self.picture == "Session":
            return plots.session_bars(sessions, sessions.row(self.instrument, self.day))
        if self.picture == "Findings by day":
            dated = any(one.date for found in self.quality.found.listed.values() for one in found)
            note = "No finding names a day."
            return plots.finding_days(self.quality) if dated else style.note_figure(self.picture, note)
        if self.picture == "Zero volume":
            return plots.zero_volumes(self.quality)
        if self.picture == "Worst findings":
            windows = [one for found in self.quality.windows.values() for one in found]
            note = "No finding of the check has bars around it to show."
            return plots.worst_findings(windows) if windows else style.note_figure(self.picture, note)
        own = sessions.instruments == self.instrument
        return plots.intraday_profiles(sessions.select(own) if self.picture == "U of the instrument" else sessions)

    def findings(self) -> pd.DataFrame:
        """Return what was found, a row a kind: how often, how often here, what it means and what to do.

        *Here* counts the listed findings of the chosen session; a check lists up to a thousand of each kind.
        """
        found, rows = self.quality.found, {}
        for kind, count in found.ordered().items():
            about = KINDS[kind]
            listed = found.listed.get(kind, ())
            here = sum(one.instrument == self.instrument and one.date == self.day for one in listed)
            rows[kind] = (about.severity, counted(count, about.unit), here or "", about.text, about.advice)
        columns = ["severity", "found", "here", "what it is", "what to do"]
        return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("kind")
