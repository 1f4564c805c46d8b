"""The headline table: what the chosen checkpoints reach together, beside the last one and the baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.evaluation.bootstrap import Interval, average_day_interval, paired_difference, too_few_days
from rlwb.evaluation.results import Kind, PolicyResult, check_same_orders, of_kind
from rlwb.evaluation.statistics import ZERO_BP, count_missing, gain_loss_ratio, mean, standard_deviation, win_rate
from rlwb.evaluation.summary import weighted_by_value

_COLUMNS = (
    "policy",
    "n",
    "PA mean ± std, bp",
    "{level} interval, bp",
    "over TWAP, bp",
    "net PA, bp",
    "net over TWAP, bp",
    "value-weighted, bp",
    "win rate",
    "gain/loss",
    "ffr",
)
_ABSENT = "-"
_OVER_TWAP, _NET = "over TWAP, bp", ("net PA, bp", "net over TWAP, bp")


@dataclass(frozen=True, eq=False)
class Headline:
    """The headline table with what a reader must know to read it.

    Attributes
    ----------
    frame
        One row a group, the checkpoints first, then single policies. Columns: `policy`, `kind`, `n` (policies in
        the group), `validation_pa`, `pa_mean`, `pa_std_checkpoints` (standard deviation over the n checkpoints'
        mean PAs; NaN for a single policy), `pa_lo`, `pa_hi`, `over_twap`, `over_twap_lo`, `over_twap_hi` (mean and
        interval of the PA less that of the policy ``twap`` on the same order; NaN without one),
        `pa_net_mean`, `pa_net_std_checkpoints`, `pa_net_lo`, `pa_net_hi`, `net_over_twap`, `net_over_twap_lo`,
        `net_over_twap_hi` (the same after costs), `pa_value_weighted`, `win_rate`, `glr`, `ffr` (means over the
        group), `orders`, `days`, `pa_missing`.
    notes
        Sentences to print below the table.
    level
        Nominal coverage of the intervals.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...]
    level: float

    def to_markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        header, rows = self._cells()
        lines = ["| " + " | ".join(header) + " |", "|" + "|".join([" --- "] + [" ---: "] * (len(header) - 1)) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def to_text(self) -> str:
        """Return the table and its notes in aligned columns for a terminal."""
        header, rows = self._cells()
        widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

        def line(row: Sequence[str]) -> str:
            cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            return "  ".join(cells).rstrip()

        rule = "-" * len(line(header))
        return "\n".join([line(header), rule, *map(line, rows), rule, *self.notes]) + "\n"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        header = [column.format(level=f"{100 * self.level:g} %") for column in _COLUMNS]
        rows = [self._row(row) for _, row in self.frame.iterrows()]
        hidden = {_OVER_TWAP} if not _twap_is_off(self.frame) else set()  # it would repeat the PA
        hidden |= set(_NET) if not _net_is_off(self.frame) else set()
        shown = [i for i, column in enumerate(_COLUMNS) if column not in hidden]
        header, *rows = ([row[i] for i in shown] for row in [header, *rows])
        return header, rows

    @staticmethod
    def _row(row: pd.Series) -> list[str]:
        pa, net = _number(row["pa_mean"]), _number(row["pa_net_mean"])
        if row["kind"] == "checkpoint":
            pa += f" ± {_number(row['pa_std_checkpoints'])}"
            net += f" ± {_number(row['pa_net_std_checkpoints'])}"
        return [
            row["policy"],
            str(row["n"]),
            pa,
            _ABSENT if math.isnan(row["pa_lo"]) else f"[{_number(row['pa_lo'])}, {_number(row['pa_hi'])}]",
            _interval(row["over_twap"], row["over_twap_lo"], row["over_twap_hi"]),
            net
            if math.isnan(row["pa_net_lo"])
            else f"{net} [{_number(row['pa_net_lo'])}, {_number(row['pa_net_hi'])}]",
            _interval(row["net_over_twap"], row["net_over_twap_lo"], row["net_over_twap_hi"]),
            _number(row["pa_value_weighted"]),
            _percent(row["win_rate"]),
            _number(row["glr"]),
            _percent(row["ffr"]),
        ]


def headline(
    results: Sequence[PolicyResult],
    *,
    requested: int = 10,
    candidates: int | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Headline:
    """Build the headline table.

    Parameters
    ----------
    results
        At least one of kind ``"checkpoint"``; all on the same orders.
    requested
        How many checkpoints were asked for; the notes say so when there are fewer.
    candidates
        How many the chosen ones were chosen from; None when that is not known.
    """
    checkpoints = of_kind(results, "checkpoint")
    if not checkpoints:
        raise DataError("The headline needs the backtest of at least one checkpoint; none was given.")
    check_same_orders(results)
    title = f"best checkpoints by validation (n = {len(checkpoints)})"
    groups = [(title, checkpoints)]
    kinds: tuple[Kind, ...] = ("last", "baseline", "unattainable", "ceiling")
    groups += [(r.display_name, [r]) for kind in kinds for r in of_kind(results, kind)]
    twap = next((result for result in results if result.policy == "twap"), None)
    rows = [_group_row(name, members, twap, level, resamples, seed) for name, members in groups]
    frame = pd.DataFrame(rows)
    notes = _notes(frame, checkpoints, requested, candidates, level, resamples)
    return Headline(frame, (*notes, *_mirrored(results), *_unattainable(results), *_ceilings(results)), level)


def _group_row(
    name: str, members: Sequence[PolicyResult], twap: PolicyResult | None, level: float, resamples: int, seed: int
) -> dict[str, object]:
    def interval_of(pas: Sequence[np.ndarray]) -> Interval:
        rng, dates = np.random.default_rng(seed), [m.dates for m in members]
        return average_day_interval(pas, dates, rng, level=level, resamples=resamples)

    def over_twap(policies: Sequence[PolicyResult], base: PolicyResult | None) -> Interval:
        absent = [np.full(len(m.orders), np.nan) for m in policies]
        return interval_of(absent if base is None else [paired_difference(m, base) for m in policies])

    nets = [m.after_costs() for m in members]
    interval, net = interval_of([m.pa for m in members]), interval_of([m.pa for m in nets])
    over, net_over = over_twap(members, twap), over_twap(nets, None if twap is None else twap.after_costs())
    return {
        "policy": name,
        "kind": members[0].kind,
        "n": len(members),
        "validation_pa": _mean_of(m.validation_pa for m in members),
        "pa_mean": interval.estimate,
        "pa_std_checkpoints": standard_deviation(np.array([mean(m.pa) for m in members])),
        "pa_lo": interval.lo,
        "pa_hi": interval.hi,
        "over_twap": over.estimate,
        "over_twap_lo": over.lo,
        "over_twap_hi": over.hi,
        "pa_net_mean": net.estimate,
        "pa_net_std_checkpoints": standard_deviation(np.array([mean(m.pa) for m in nets])),
        "pa_net_lo": net.lo,
        "pa_net_hi": net.hi,
        "net_over_twap": net_over.estimate,
        "net_over_twap_lo": net_over.lo,
        "net_over_twap_hi": net_over.hi,
        "pa_value_weighted": _mean_of(weighted_by_value(m) for m in members),
        "win_rate": _mean_of(win_rate(m.pa) for m in members),
        "glr": _mean_of(gain_loss_ratio(m.pa) for m in members),
        "ffr": _mean_of(mean(m.orders["ffr"].to_numpy()) for m in members),
        "orders": len(members[0].orders),
        "days": len(np.unique(members[0].dates)),
        "pa_missing": sum(count_missing(m.pa) for m in members),
    }


def _notes(
    frame: pd.DataFrame,
    checkpoints: Sequence[PolicyResult],
    requested: int,
    candidates: int | None,
    level: float,
    resamples: int,
) -> list[str]:
    n, group, dates = len(checkpoints), frame.iloc[0], checkpoints[0].dates
    span = f" from {dates.min()} to {dates.max()}" if len(dates) else ""
    basis = (
        f"{group['orders']:,} test orders on {group['days']} days{span}; PA against each order's own TWAP; every order "
        "counts the same, except under value-weighted (by value traded at TWAP)."
    )
    spread = (
        f"± is the standard deviation over the {n} checkpoints; intervals" if n > 1 else "Intervals"
    ) + f" ({100 * level:g} %) are of the mean PA, by {resamples:,} bootstrap resamples of whole days."
    notes = [basis, spread]
    if n < requested:
        notes.append(f"{requested} checkpoints were asked for; there are only n = {n} to use.")
    costs = _net_is_off(frame)
    if costs:
        notes.append(
            "PA is before costs, net PA after all of them: spread, impact, commission and tax. Checkpoints are chosen "
            "by net PA; value-weighted, win rate and gain/loss are before costs."
        )
    if not math.isnan(group["validation_pa"]):
        net = "net " if costs else ""
        fall = group["validation_pa"] - group["pa_net_mean" if costs else "pa_mean"]
        side = "above" if fall >= 0 else "below"
        chosen = candidates is None or candidates > n
        cause = ": in part because the best were chosen by it, in part because other days are other days"
        notes.append(
            f"The chosen checkpoints' {net}validation PA was {group['validation_pa']:.2f} bp, {abs(fall):.2f} bp "
            f"{side} their {net}test PA{cause if fall >= 0 and chosen else ''}."
        )
    if _twap_is_off(frame):
        notes.append(
            "TWAP's own PA is not 0 here: a cap, lots, price limits or halts shape its fills. Judge a policy by what "
            "it has over TWAP, order by order, not by its PA."
        )
    if few := too_few_days(group["days"], level):
        notes.append(few)
    missing = frame.loc[frame["pa_missing"] > 0, ["policy", "pa_missing"]]
    if len(missing):
        listed = ", ".join(f"{row.policy}: {row.pa_missing}" for row in missing.itertuples())
        notes.append(f"PAs that are missing and left out, not read as 0: {listed}.")
    return notes


def _mirrored(results: Sequence[PolicyResult]) -> list[str]:
    """Explain means of exactly 0 over orders that are not 0 one by one."""
    blind = [r for r in results if abs(mean(r.pa)) <= ZERO_BP and standard_deviation(r.pa) > 1e-3]
    if not blind:
        return []
    count = sum(r.kind == "checkpoint" for r in blind)
    ours = f", {count} of the chosen checkpoints among them," if count else ""
    note = (
        "A mean PA of exactly 0 over orders that gain and lose is what a schedule gets that looks neither at prices "
        f"nor at the direction{ours} where a session has a buy and a sell of one window: their PAs mirror each other."
    )
    return [note]


def _unattainable(results: Sequence[PolicyResult]) -> list[str]:
    """Say which rows no one could have traded."""
    names = [result.policy for result in of_kind(results, "unattainable")]
    if not names:
        return []
    note = (
        f"Not attainable by trading: {', '.join(names)}. What knows prices that lie ahead of its decisions shows what "
        "there is to gain, not what a policy can."
    )
    return [note]


def _ceilings(results: Sequence[PolicyResult]) -> list[str]:
    """Say what the ceilings are, and which one bounds the policies."""
    names = [result.policy for result in of_kind(results, "ceiling")]
    if not names:
        return []
    notes = []
    if "hindsight" in names:
        notes.append(
            "The ceiling knows every price of the day before it trades: under these rules and steps no policy passes "
            "it on any order. Its PA is that of the part that it fills."
        )
    if "hindsight_uncapped" in names:
        notes.append(
            "The ceiling without cap is that of the same rules without the volume cap. It does not bound policies "
            "under the cap, which may fill less at better prices."
        )
    return notes


def _twap_is_off(frame: pd.DataFrame) -> bool:
    """Tell whether TWAP is there and has a price advantage of its own, so that 0 is not the mark to beat.

    A ceiling tells nothing of it: it may have a PA on orders of which TWAP fills nothing.
    """
    policies = frame[frame["kind"] != "ceiling"]
    return bool(((policies["pa_mean"] - policies["over_twap"]).abs() > ZERO_BP).any())


def _net_is_off(frame: pd.DataFrame) -> bool:
    """Tell whether costs make any net PA differ from the PA."""
    return bool(((frame["pa_net_mean"] - frame["pa_mean"]).abs() > ZERO_BP).any())


def _interval(value: float, lo: float, hi: float) -> str:
    return _number(value) if math.isnan(lo) else f"{_number(value)} [{_number(lo)}, {_number(hi)}]"


def _mean_of(values: object) -> float:
    return mean(np.fromiter(values, dtype=np.float64))  # type: ignore[call-overload]


def _number(value: float) -> str:
    return _ABSENT if math.isnan(value) else f"{value + 0.0:.2f}".replace("-0.00", "0.00")


def _percent(value: float) -> str:
    return _ABSENT if math.isnan(value) else f"{value:.1%}".replace("%", " %")
