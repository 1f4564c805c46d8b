"""How often the drift test is wrong when nothing changed, and how soon it sees a change: ``make bench-drift``.

Beside it stands what is often used, the population stability index (PSI) over deciles of the training's bars, with an
alarm at 0.2. Rows are ``{market, training, instruments, change, features, repetitions, drift, psi}``: the last two give
by the number of days in how many of the repetitions there was an alarm. The index is taken over all bars of these days
at once, the drift test is looked at on each of them.

Real bars have no "nothing changed". Their days are put into another sequence, in blocks of five, so that what is left
of a drift in them lies on both sides.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.files import write_json
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Normaliser, Sessions, SyntheticSettings
from rlwb.market import synthetic_sessions as synthetic
from rlwb.serving.drift import DriftTest, training_statistics

_OUT = RESULTS.with_name("drift.json")
DAYS, YEAR, BLOCK, THRESHOLD = (1, 5, 20), 250, 5, 0.2
#: Name, kind (added or multiplied), size in standard deviations of a bar, and whether of all features or the last one.
CHANGES = (
    ("none", "shift", 0.0, "all"),
    *((f"shift {size}", "shift", size, which) for which in ("all", "one") for size in (0.25, 0.5, 1.0)),
    *((f"scale {size}", "scale", size, which) for which in ("all", "one") for size in (1.25, 2.0)),
)
#: Real sets: their folder under --data and the configuration that reads them.
REAL = {"us_5min": "us_equity_5min_2025", "cn_15min": "cn_equity_15min_2025"}


@dataclass(frozen=True)
class Law:
    """How the features of a made market move; each is a sum of parts with these variances.

    Attributes
    ----------
    repeat
        Correlation of a day's part, common to all instruments, with that of the next day.
    repeat_own
        The same for the part of an instrument and a day.
    day, own, instrument, tick
        Variances of the day's part, an instrument's on that day, an instrument's for good, a bar's.
    volatility
        Variance of the logarithm of the deviation of a day's bars, half of it common to all instruments.
    tail
        Degrees of freedom of the first two (Student's t, scaled); None for normal ones.
    """

    repeat: float = 0.0
    repeat_own: float = 0.0
    day: float = 0.2
    own: float = 0.4
    instrument: float = 0.05
    tick: float = 0.35
    volatility: float = 0.0
    tail: float | None = None


LAWS = {
    "independent days": Law(),
    "correlated days": Law(repeat=0.8, repeat_own=0.5, volatility=0.2),
    "heavy tails": Law(repeat=0.5, repeat_own=0.2, tail=3.0, volatility=0.2),
}
_CASE = ("market", "training", "instruments", "change", "features")
MARKETS = (*LAWS, "synthetic", *REAL)
_FEATURES, _TICKS, _BURN = 8, 8, 60

#: Values of shape (days, instruments, ticks, features), NaN where there is no session or no bar.
Panel = np.ndarray


def made(law: Law, days: int, instruments: int, rng: np.random.Generator) -> Panel:
    """Return features that keep to a law; half of the variance of each is common to all features."""

    def path(repeat: float, count: int) -> np.ndarray:
        shape = (days + _BURN, count, _FEATURES)
        shocks = np.sqrt(0.5) * (_shocks(law, shape, rng) + _shocks(law, (*shape[:2], 1), rng))
        found = np.zeros(shape)
        for at in range(1, len(found)):
            found[at] = repeat * found[at - 1] + np.sqrt(1 - repeat**2) * shocks[at]
        return found[_BURN:]

    level = np.sqrt(law.day) * path(law.repeat, 1) + np.sqrt(law.own) * path(law.repeat_own, instruments)
    level += np.sqrt(law.instrument) * rng.normal(size=(1, instruments, _FEATURES))
    ticks = rng.normal(size=(days, instruments, _TICKS, _FEATURES))
    loud = np.sqrt(law.volatility / 2) * (path(law.repeat, 1) + path(law.repeat_own, instruments))
    return level[:, :, None, :] + np.sqrt(law.tick) * np.exp(loud)[:, :, None, :] * ticks


def _shocks(law: Law, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if law.tail is None:
        return rng.normal(size=shape)
    return rng.standard_t(law.tail, size=shape) * np.sqrt((law.tail - 2) / law.tail)


def panel_of(sessions: Sessions, training: int, order: np.ndarray) -> Panel:
    """Return the features of real sessions with the days in another order, normalised by the first `training` of it."""
    days, day = np.unique(sessions.dates, return_inverse=True)
    names, name = np.unique(sessions.instruments, return_inverse=True)
    place = np.empty(len(days), dtype=np.int64)
    place[order] = np.arange(len(order))
    features = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=place[day] < training)
    values = features.today.astype(np.float64)
    values[~sessions.in_session] = np.nan
    panel = np.full((len(days), len(names), *values.shape[1:]), np.nan)
    panel[place[day], name] = values
    return panel


@functools.cache
def _real(market: str, data: Path) -> Sessions:
    from rlwb.experiment.config import Layer, RunConfig
    from rlwb.experiment.workbench import Workbench

    configs = Path(__file__).parents[1] / "configs"
    source = {"market.source": str((data / REAL[market] / "bars.parquet").resolve())}
    return Workbench(RunConfig.load(configs / f"{market}.yaml", Layer("bars", source))).sessions


def drawn(market: str, seed: int, training: int, live: int, data: Path) -> Panel:
    """Return a market in which nothing changes after the training days."""
    rng = np.random.default_rng([MARKETS.index(market), seed])
    if market in LAWS:
        return made(LAWS[market], training + live, 50, rng)
    if market == "synthetic":
        sessions = synthetic(SyntheticSettings(instruments=50, days=training + live, seed=seed))
        return panel_of(sessions, training, np.arange(training + live))
    sessions = _real(market, data)
    days = len(np.unique(sessions.dates))
    blocks = np.array_split(np.arange(days), -(-days // BLOCK))
    order = np.concatenate([blocks[at] for at in rng.permutation(len(blocks))])
    return panel_of(sessions, min(training, days - live), order)[: training + live]


def statistics(panel: Panel) -> dict[str, Any]:
    """Return `training_statistics` of the days of a panel."""
    instruments, ticks, columns = panel.shape[1:]
    there = np.isfinite(panel).any(axis=(2, 3)).T  # sessions are sorted by instrument and day
    name, day = np.nonzero(there)
    values = panel[day, name]
    length = np.isfinite(values).all(axis=2).sum(axis=1)
    stop = f"{10 + ticks // 60:02d}:{ticks % 60:02d}"
    calendar = Calendar(segments=(("10:00", stop),), weekdays=tuple(range(7)))
    names = np.array([f"N{number:03d}" for number in range(instruments)])
    sessions = Sessions(calendar, names[name], np.datetime64("2024-01-01") + day, length, {})
    labels = tuple(f"f{number}" for number in range(columns))
    normaliser = Normaliser(labels, np.zeros(columns), np.ones(columns))
    features = MarketFeatures(labels, np.nan_to_num(values), np.full(len(name), -1), normaliser)
    return training_statistics(features, sessions, np.arange(len(name)))


def changed(panel: Panel, kind: str, size: float, which: str, deviation: np.ndarray) -> Panel:
    """Return a panel after a change, sizes of shifts in `deviation`s of each feature."""
    part = np.ones(panel.shape[3]) if which == "all" else np.eye(panel.shape[3])[-1]
    return panel + size * deviation * part if kind == "shift" else panel * np.where(part, size, 1.0)


def first_alarm(told: dict[str, Any], panel: Panel) -> int:
    """Return the number of days until the drift test's alarm; more than there are, if none comes."""
    test = DriftTest(told)
    for at, day in enumerate(panel):
        there = np.isfinite(day).all(axis=2)
        name, tick = np.nonzero(there)
        test.observe([f"N{number}" for number in name.tolist()], np.datetime64("2024-01-01") + at, tick, day[there])
        report = test.close_day()
        if report is not None and report.alarm:
            return at + 1
    return len(panel) + 1


class Index:
    """The largest population stability index of the features of bars, beside those of the training.

    Parameters
    ----------
    training
        Bars of the training, float64 of shape ``(n, C)``.
    """

    def __init__(self, training: np.ndarray) -> None:
        self._edges = np.quantile(training, np.linspace(0, 1, 11)[1:-1], axis=0).T
        self._shares = self._count(training)

    def __call__(self, live: np.ndarray) -> float:
        shares = self._count(live)
        return float(((shares - self._shares) * np.log(shares / self._shares)).sum(axis=1).max())

    def _count(self, bars: np.ndarray) -> np.ndarray:
        counts = [
            np.bincount(np.searchsorted(edges, column), minlength=10)
            for edges, column in zip(self._edges, bars.T, strict=True)
        ]
        return np.maximum(np.array(counts) / len(bars), 1e-4)


def _bars(panel: Panel) -> np.ndarray:
    return panel[np.isfinite(panel).all(axis=3)]


def repetition(task: tuple[str, int, int, Path]) -> list[dict[str, Any]]:
    """Return whether there was an alarm, for each test, change, number of instruments and of days."""
    market, training, seed, data = task
    panel = drawn(market, seed, training, max(DAYS), data)
    told = statistics(panel[:training])
    before, live = _bars(panel[:training]), panel[training:]
    index, deviation, found = Index(before), before.std(axis=0), []
    for name, kind, size, which in CHANGES:
        for instruments in (1, live.shape[1]):
            now = changed(live[:, :instruments], kind, size, which, deviation)
            about = {"market": market, "training": training, "instruments": instruments}
            about |= {"change": name, "features": which, "seed": seed}
            alarm = first_alarm(told, now)
            for days in DAYS:
                bars = _bars(now[:days])
                found.append({**about, "days": days, "test": "drift", "alarm": alarm <= days})
                if len(bars):
                    found.append({**about, "days": days, "test": "psi", "alarm": index(bars) > THRESHOLD})
    return found


def year(task: tuple[str, int, int, Path]) -> list[dict[str, Any]]:
    """Return whether there was an alarm within a year in which nothing changed."""
    market, training, seed, data = task
    panel = drawn(market, seed + 100_000, training, YEAR, data)
    told = statistics(panel[:training])
    about = {"market": market, "training": training, "change": "none", "features": "all", "seed": seed, "test": "drift"}
    return [
        {**about, "instruments": n, "days": YEAR, "alarm": first_alarm(told, panel[training:, :n]) <= YEAR}
        for n in (1, panel.shape[1])
    ]


def summary(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the number of alarms of each case."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    seeds: dict[tuple[Any, ...], set[int]] = {}
    for one in found:
        case = tuple(one[name] for name in _CASE)
        row = rows.setdefault(case, {**dict(zip(_CASE, case, strict=True)), "drift": {}, "psi": {}})
        seeds.setdefault(case, set()).add(one["seed"])
        row["repetitions"] = len(seeds[case])
        counts = row["drift" if one["test"] == "drift" else "psi"]
        counts[str(one["days"])] = counts.get(str(one["days"]), 0) + int(one["alarm"])
    changes = [(name, which) for name, _, _, which in CHANGES]

    def place(row: dict[str, Any]) -> tuple[int, ...]:
        change = changes.index((row["change"], row["features"]))
        return MARKETS.index(row["market"]), row["training"], row["instruments"], change

    return sorted(rows.values(), key=place)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rates in %, a row a case, with days in columns: the drift test and the index."""
    places = [*(("drift", days) for days in (*DAYS, YEAR)), *(("psi", days) for days in DAYS)]
    head = ["market", "training days", "instruments", "change", "of features", *(f"{t} {d} d" for t, d in places)]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for row in rows:
        alarms = [row[test].get(str(days)) for test, days in places]
        cells = ["" if number is None else f"{100 * number / row['repetitions']:.1f}" for number in alarms]
        lines.append(f"| {' | '.join([*(str(row[name]) for name in _CASE), *cells])} |")
    return "\n".join(lines)


def _run(task: tuple[str, tuple[str, int, int, Path]]) -> list[dict[str, Any]]:
    kind, rest = task
    return year(rest) if kind == "year" else repetition(rest)


def measured(tasks: Sequence[tuple[str, tuple[str, int, int, Path]]], jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Yield what each task found, `jobs` at a time."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for run in as_completed([pool.submit(_run, task) for task in tasks]):
            yield run.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two repetitions, to see that all runs")
    parser.add_argument("--markets", nargs="+", choices=MARKETS, default=list(MARKETS))
    parser.add_argument("--seeds", type=int, default=200, help="repetitions on made bars; a quarter on others")
    parser.add_argument("--jobs", type=int, default=2, help="repetitions at a time")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real bars")
    parser.add_argument("--out", type=Path, help="where the rows go; results/drift.json by default")
    args = parser.parse_args()
    out = args.out or (_OUT.with_name("drift-quick.json") if args.quick else _OUT)
    tasks = []
    for market in args.markets:
        if market in REAL and not (args.data / REAL[market]).is_dir():
            print(
                f"{market} is left out: its bars are not in {args.data / REAL[market]}; name their folder with --data."
            )
            continue
        seeds = 2 if args.quick else args.seeds if market in LAWS else -(-args.seeds // 4)
        for training in (40, 144) if market in LAWS else (144,):
            tasks += [("changes", (market, training, seed, args.data)) for seed in range(seeds)]
            if market not in REAL:  # which have not enough days
                tasks += [("year", (market, training, seed, args.data)) for seed in range(seeds)]
    found = [row for rows in tqdm(measured(tasks, args.jobs), total=len(tasks)) for row in rows]
    rows = summary(found)
    write_json(out, {**context(), "rows": rows})
    print(f"\n{markdown(rows)}")


if __name__ == "__main__":
    main()
