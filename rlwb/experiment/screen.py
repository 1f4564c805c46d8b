"""``rlwb features screen``: before training, whether the features of a market say anything of its prices ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtr

from rlwb.errors import ConfigError, DataError
from rlwb.evaluation.screen import FIRST, DayMoments, block_edges, clustered_t, holm
from rlwb.execution import Engine, OrderBatch
from rlwb.execution.rules import valid_prices
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.own_code import trust
from rlwb.experiment.pipeline import check_config
from rlwb.experiment.workbench import Workbench
from rlwb.market import Normaliser, Sessions
from rlwb.market.catalogue import BUILT_IN, Feature, changes
from rlwb.market.feature_registry import find_feature
from rlwb.market.features import ComputedFeatures, raw_blocks
from rlwb.market.references import References, blocks

#: The name of all features together.
TOGETHER = "all together"
HORIZONS = ("next step", "rest of the order")
#: Most samples (decisions); beyond, every second, third, … window of a day is taken.
MOST_SAMPLES = 200_000
#: Returns that a volatility is taken of at least.
_RETURNS = 10
#: The share of false alarms.
LEVEL = 0.05


@dataclass(frozen=True)
class Finding:
    """The out-of-sample forecast by one feature, or by all together, over one horizon, and its test.

    Attributes
    ----------
    feature, horizon
        Its name, and one of `HORIZONS`.
    r2
        Share of the variance that the forecast explains, beyond the mean of the earlier days; below 0 it is worse.
    t
        Statistic of Clark and West, with days as clusters; NaN where the forecast never moved.
    p, p_adjusted
        Chance of as large a t without any signal, alone and as one of all tests (`rlwb.evaluation.screen.holm`).
    gain_bp
        Mean over decisions of the price's move, counted as a loss where the forecast is below the mean of the earlier
        days, basis points: what a seller gains who waits where prices shall rise, and a buyer who waits where they
        shall fall, and both save who do not wait elsewhere.
    """

    feature: str
    horizon: str
    r2: float
    t: float
    p: float
    p_adjusted: float
    gain_bp: float

    @property
    def holds(self) -> bool:
        """True if chance explains it in less than `LEVEL` of all screens."""
        return bool(self.p_adjusted <= LEVEL)


@dataclass(frozen=True)
class Screen:
    """The findings on a market's training days.

    Attributes
    ----------
    findings
        By feature and horizon, all together first, then the features by their larger t.
    days, decisions
        Training days that were forecast, and decisions on them.
    left_out
        Feature to the reason why it was not tried.
    notes
        What else was left out, in words.
    """

    findings: tuple[Finding, ...]
    days: int
    decisions: int
    left_out: dict[str, str]
    notes: tuple[str, ...]

    @property
    def found(self) -> bool:
        """True if any finding holds."""
        return any(one.holds for one in self.findings)

    @property
    def verdict(self) -> str:
        """The answer in words."""
        tests = sum(bool(np.isfinite(one.p)) for one in self.findings)
        holding = [one for one in self.findings if one.holds]
        if not holding:
            return (
                f"Nothing to learn was found: none of {tests} tests holds at {LEVEL:.0%} after Holm's correction. This "
                "does not prove that there is nothing; a weaker effect than these days can show, or one that is not "
                "linear, would be missed."
            )
        best = max(holding, key=lambda one: one.t)
        return (
            f"There is something to learn: {len(holding)} of {tests} tests hold at {LEVEL:.0%} after Holm's "
            f"correction; the clearest is {best.feature}, {best.horizon} (R² {best.r2:.2%}, t {best.t:.1f})."
        )

    def to_markdown(self) -> str:
        """Return the verdict, the table and its notes."""
        head = ["feature", *(f"{name}: {what}" for name in HORIZONS for what in ("R²", "t", "p", "move, bp"))]
        lines = [f"| {' | '.join(head)} |", "|" + "|".join([" --- "] + [" ---: "] * (len(head) - 1)) + "|"]
        for name in dict.fromkeys(one.feature for one in self.findings):
            cells = [name]
            for one in (one for one in self.findings if one.feature == name):
                mark = " *" if one.holds else ""
                p = f"{one.p_adjusted:.2g}{mark}"
                cells += [f"{one.r2:z.2%}", f"{one.t:z.1f}", p, f"{one.gain_bp:z.2f}"]
            lines.append(f"| {' | '.join('-' if cell == 'nan' else cell for cell in cells)} |")
        reasons = {
            reason: [name for name in self.left_out if self.left_out[name] == reason]
            for reason in self.left_out.values()
        }
        left = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        counted = (
            f"{self.decisions:,} decisions on {self.days} training days, each forecast by earlier training days; no "
            "validation or test day is read."
        )
        meant = (
            "R² is out of sample, t has days as clusters, p is corrected for all tests of the table (Holm; * holds at "
            f"{LEVEL:.0%}), move is the mean move of the price in the direction that was forecast."
        )
        notes = (counted, meant, *self.notes, *([f"Left out: {left}."] if left else []))
        return "\n".join([self.verdict, "", *lines, "", *(f"- {note}" for note in notes)])

    def as_dict(self) -> dict[str, Any]:
        """Return all as values that JSON can hold; what could not be computed is None."""
        rows = [{**vars(one), "holds": one.holds} for one in self.findings]
        plain = [{k: None if v != v else v for k, v in row.items()} for row in rows]  # NaN differs from itself
        return {
            "found": self.found,
            "verdict": self.verdict,
            "days": self.days,
            "decisions": self.decisions,
            "findings": plain,
            "left_out": self.left_out,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class _Decisions:
    """Decisions of the training windows, sorted by date."""

    row: np.ndarray  # of the session in the panel, int64 of shape (N,)
    tick: np.ndarray  # at which it is made
    moves: np.ndarray  # log of the price of each horizon over that of the decision's step, float64 of shape (N, 2)
    volatility: np.ndarray  # of a tick's log return, as known at the decision

    def __len__(self) -> int:
        return len(self.row)

    def take(self, kept: np.ndarray) -> _Decisions:
        return _Decisions(*(values[kept] for values in vars(self).values()))


def launch_screen(config_file: Path | None, changes: Sequence[str], *, cache_dir: Path | None = None) -> Screen:
    """Do what ``rlwb features screen`` asks for."""
    config = RunConfig.load(config_file, parse_assignments(changes))
    trust(config)
    check_config(config)
    return screen(Workbench(config, cache_dir=cache_dir))


def screen(bench: Workbench) -> Screen:
    """Forecast what waiting brings by every feature, on the training days of a configuration.

    Decisions are those of the training orders: one at the beginning of each step but the last. What waiting brings is
    the log of the mean price of the next step, or of all later steps, over the mean price of the step, which a seller
    gains and a buyer loses; over the volatility of a tick, the root mean square of the returns of the session before
    and today's so far. Each feature gives three numbers of what observations hold of it: its last value, its mean over
    the last step, and its mean over today.

    Raises
    ------
    DataError
        When there are too few training days.
    """
    split = bench.splits()[0]
    notes = [] if bench.config.split.rolling is None else ["The training days are those of the first rolling window."]
    orders = bench.align(bench.make_orders(split)[0]["train"])
    decisions, told = _decisions(bench.engine, orders)
    days, day = np.unique(bench.sessions.dates[decisions.row], return_inverse=True)
    first = int(block_edges(len(days))[FIRST])
    fit_rows = np.flatnonzero(np.isin(bench.sessions.dates, days[:first]))
    values, names, left_out = _values(bench, decisions, fit_rows)
    tested = day >= first
    findings = []
    for at, horizon in enumerate(HORIZONS):
        moments = DayMoments(values, decisions.moves[:, at] / decisions.volatility, day, len(days))
        groups = {TOGETHER: range(values.shape[1])}
        groups |= {name: range(3 * place, 3 * place + 3) for place, name in enumerate(names)}
        moves = decisions.moves[:, at]
        findings += [_judge(moments, name, horizon, columns, moves, tested) for name, columns in groups.items()]
    adjusted = holm(np.array([one.p for one in findings]))
    findings = [replace(one, p_adjusted=float(p)) for one, p in zip(findings, adjusted, strict=True)]
    return Screen(
        tuple(_sorted(findings)),
        len(days) - first,
        int(tested.sum()),
        left_out,
        (*notes, *told),
    )


def _judge(
    moments: DayMoments, name: str, horizon: str, columns: Sequence[int], moves: np.ndarray, tested: np.ndarray
) -> Finding:
    forecast, mean = (made[tested] for made in moments.forecast(columns))
    target, day = moments.target[tested], moments.day[tested]
    t, days = clustered_t((target - mean) * (forecast - mean), day)
    r2 = 1 - float(np.sum((target - forecast) ** 2)) / float(np.sum((target - mean) ** 2))
    p = float(stdtr(days - 1, -t)) if np.isfinite(t) else float("nan")
    gain = float(np.mean(np.sign(forecast - mean) * moves[tested])) * 1e4
    return Finding(name, horizon, r2, t, p, float("nan"), gain)


def _sorted(findings: Sequence[Finding]) -> list[Finding]:
    best: dict[str, float] = {}
    for one in findings:
        best[one.feature] = max(best.get(one.feature, -np.inf), one.t if np.isfinite(one.t) else -np.inf)
    return sorted(findings, key=lambda one: (one.feature != TOGETHER, -best[one.feature], one.feature))


def _decisions(engine: Engine, orders: OrderBatch) -> tuple[_Decisions, list[str]]:
    """Return the decisions of the windows of orders, and what was left out."""
    windows = np.unique(np.stack([orders.session, orders.start, orders.end], axis=1).astype(np.int64), axis=0)
    windows = windows[np.argsort(engine.sessions.dates[windows[:, 0]], kind="stable")]
    steps = int((engine.cell[windows[:, 2] - 1] - engine.cell[windows[:, 1]]).sum())  # but for the last of each
    if not steps:
        raise DataError("the training orders have one step each, so that there is nothing to wait for; use more steps.")
    every = -(-steps // MOST_SAMPLES)
    notes = [] if every < 2 else [f"Of {len(windows):,} windows every {every}th is taken."]
    windows = windows[::every]
    found = []
    for part in blocks(np.arange(len(windows)), engine.sessions.calendar.num_ticks):
        found += _of_windows(engine, windows[part])
    whole = _Decisions(*(np.concatenate(values) for values in zip(*(vars(one).values() for one in found), strict=True)))
    whole = whole.take(np.argsort(engine.sessions.dates[whole.row], kind="stable"))
    fine = np.isfinite(whole.moves).all(axis=1) & (whole.volatility > 0)
    if not fine.all():
        notes.append(
            f"{int((~fine).sum()):,} of {len(fine):,} decisions are left out: a step has no price, or fewer than "
            f"{_RETURNS} earlier returns tell the volatility."
        )
    return whole.take(fine), notes


def _of_windows(engine: Engine, windows: np.ndarray) -> list[_Decisions]:
    """Return the decisions of some windows, those of the same ticks together."""
    session, found = windows[:, 0], []
    price = valid_prices(engine.price[session])
    there = np.isfinite(price)
    sums = _before(np.where(there, price, 0.0))
    counts = _before(there)
    volatility = _volatility(engine.sessions, engine.price, session)
    for start, end in np.unique(windows[:, 1:], axis=0).tolist():
        mine = np.flatnonzero((windows[:, 1] == start) & (windows[:, 2] == end))
        cell = engine.cell[start:end]
        begins = start + np.flatnonzero(np.append(True, cell[1:] != cell[:-1]))
        ends = np.append(begins[1:], end)

        def mean(since: Any, until: Any, mine: np.ndarray = mine) -> np.ndarray:
            with np.errstate(invalid="ignore", divide="ignore"):
                number = counts[mine[:, None], until] - counts[mine[:, None], since]
                return (sums[mine[:, None], until] - sums[mine[:, None], since]) / number

        now, later = mean(begins[:-1], ends[:-1]), np.full_like(begins[1:], end)
        moves = np.log(np.stack([mean(begins[1:], ends[1:]), mean(begins[1:], later)], axis=2) / now[:, :, None])
        count = len(begins) - 1
        found.append(
            _Decisions(
                np.repeat(session[mine], count),
                np.tile(begins[:-1], len(mine)),
                moves.reshape(-1, len(HORIZONS)),
                volatility[mine[:, None], begins[:-1]].ravel(),
            )
        )
    return found


def _before(values: np.ndarray) -> np.ndarray:
    """Return the sums of the columns before each one, and of all, of shape ``(n, T + 1)``."""
    return np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))


def _volatility(sessions: Sessions, price: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the root mean square return of a tick that is known before each one, ``(n, T + 1)``; NaN without."""
    before = sessions.previous[rows]
    squares, numbers = np.zeros((len(rows), price.shape[1] + 1)), np.zeros((len(rows), price.shape[1] + 1))
    for at, is_today in ((rows, True), (np.maximum(before, 0), False)):
        with np.errstate(invalid="ignore"):
            change, moved = changes(valid_prices(price[at]))
        square, number = _before(change**2), _before(moved)
        known = True if is_today else (before >= 0)[:, None]
        squares += np.where(known, square if is_today else square[:, -1:], 0.0)
        numbers += np.where(known, number if is_today else number[:, -1:], 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(numbers >= _RETURNS, np.sqrt(squares / numbers), np.nan)


def _values(
    bench: Workbench, decisions: _Decisions, fit_rows: np.ndarray
) -> tuple[np.ndarray, list[str], dict[str, str]]:
    """Return what each decision knows of each feature, three columns each, their names, and what was left out."""
    settings, sessions = bench.config.features, bench.sessions
    own = [find_feature(name) for name in settings.columns if name not in BUILT_IN]
    references, step = References(sessions), bench.engine.ticks_per_step
    columns, names, left_out = [], [], {}
    for one in (*BUILT_IN.values(), *own):
        if not set(one.needs) <= set(sessions.fields):
            left_out[one.name] = "the bars lack fields that they need"
            continue
        column = _column(references, one, settings.clip, decisions, fit_rows, step)
        if column is None:
            left_out[one.name] = "no value on the first days"
            continue
        columns.append(column)
        names.append(one.name)
    if not names:
        raise ConfigError("no feature can be made of these bars; see docs/features.md.")
    return np.concatenate(columns, axis=1), names, left_out


def _column(
    references: References, feature: Feature, clip: float, decisions: _Decisions, fit_rows: np.ndarray, step: int
) -> np.ndarray | None:
    """Return a feature's last value, mean over the last step and mean over today at decisions, of shape ``(N, 3)``.

    None where it has no value on the days that its normaliser is fitted on.
    """
    ticks = references.sessions.calendar.num_ticks
    source = partial(raw_blocks, references, feature, fit_rows)
    if not any(np.isfinite(values).any() for values in source()):
        return None
    normaliser = Normaliser.fit((feature.name,), [source])
    computed = ComputedFeatures(references, (feature,), normaliser, clip)
    rows, place = np.unique(decisions.row, return_inverse=True)
    found = np.zeros((len(decisions), 3))
    for part in blocks(np.arange(len(rows)), ticks):
        values = computed[rows[part]][:, :, 0].astype(np.float64)
        mine = np.flatnonzero((place >= part[0]) & (place <= part[-1]) & (decisions.tick > 0))
        at, tick = place[mine] - part[0], decisions.tick[mine]
        sums, since = _before(values), np.maximum(tick - step, 0)
        found[mine, 0] = values[at, tick - 1]
        found[mine, 1] = (sums[at, tick] - sums[at, since]) / (tick - since)
        found[mine, 2] = sums[at, tick] / tick
    return found
