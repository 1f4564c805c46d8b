"""One picture of every figure function on usual data, and on long, many, thin and odd ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import (
    PolicyResult,
    comparison,
    decision_plots,
    plots,
    seed_plots,
    stability_plots,
    stress_plots,
    training_plots,
)
from rlwb.evaluation.costs import TOTAL
from rlwb.evaluation.playback import Playback
from rlwb.evaluation.playback_plots import OrderFigure
from rlwb.execution import (
    TWAP,
    AmountActionInterpreter,
    Direction,
    Engine,
    KnownStateInterpreter,
    Order,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.market import Calendar, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market.findings import KINDS, Finding, Report
from rlwb.market.quality import Quality, Window
from rlwb.study import search_plots
from rlwb.study.space import Dimension
from tests.evaluation.tables import attainable, baseline, ceiling, checkpoint, order_table, summarise

RNG = np.random.default_rng(0)
LONG = "an_instrument_whose_name_is_far_too_long_for_any_figure"
#: A session with a lunch break, half an hour a segment; one with a night session over midnight.
LUNCH = Calendar(segments=(("10:00", "10:30"), ("13:00", "13:30")))
NIGHT = Calendar(segments=(("00:00", "02:30"), ("09:00", "11:30"), ("13:30", "15:00"), ("21:00", "24:00")))
SETTINGS = {"level": 0.95, "seed": 0, "resamples": 200}


def results(many: int = 5, orders: int = 300, days: int = 48, names: Sequence[str] = tuple("ABCDEFGH")):
    """Return results of two checkpoints, the last, and so many baselines, the last of which have long names."""
    noise = RNG.normal(0.0, 60.0, orders)
    about = {"days": days, "instruments": names}
    shown = ["twap", "vwap", "pov", "almgren_chriss", "forecast"]
    shown += [f"{LONG}-urgency={n}" for n in range(many - len(shown))]
    return [
        checkpoint(noise + 17.0, 40, 20.0, **about),
        checkpoint(noise + 15.0, 60, 21.5, **about),
        PolicyResult(
            "last", "last", order_table(noise + 14.0, **about), 60, 18.0, np.tile([1.0, 0.3, 0.0], (orders, 1))
        ),
        *(baseline(0.2 * noise + number, name, **about) for number, name in enumerate(shown[:many])),
        attainable(noise + 15.1, **about),
        ceiling(noise + 90.0, **about),
    ]


def sessions(calendar: Calendar, seed: int = 0, instrument: str = "A") -> Sessions:
    """Return two random days on a calendar."""
    rng, shape = np.random.default_rng(seed), (2, calendar.num_ticks)
    close = 100 * np.exp(rng.normal(0, 1e-3, shape).cumsum(axis=1))
    fields = dict.fromkeys(("open", "close"), close) | {"high": close * 1.001, "low": close * 0.999}
    fields["volume"] = rng.integers(100, 10_000, shape).astype(np.float64)
    dates = np.array(["2024-01-02", "2024-01-03"], dtype="datetime64[D]")
    ticks = np.full(2, calendar.num_ticks, dtype=np.int32)
    return Sessions(calendar, np.array([instrument] * 2), dates, ticks, fields)


def ticks(calendar: Calendar, first: int = 0, shift: int = 0) -> pd.DataFrame:
    """Return what an order did at each tick of a session from `first` on."""
    price = sessions(calendar).fields["close"][0][first:]
    filled = np.where((np.arange(len(price)) + shift) % 10 == 0, 1.0, 0.0)
    times = [calendar.time_of(tick) for tick in range(first, calendar.num_ticks)]
    return pd.DataFrame({"time": times, "price": price, "filled": filled, "left": filled.sum() - filled.cumsum()})


def over_midnight() -> pd.DataFrame:
    """Return an order whose ticks begin at 21:00 and end at 02:30 of the next day."""
    start = dt.datetime(2024, 1, 2, 21)
    times = [(start + dt.timedelta(minutes=minute)).time() for minute in range(330)]
    filled = np.where(np.arange(330) % 30 == 0, 1.0, 0.0)
    price = 100 + RNG.normal(0, 0.1, 330).cumsum()
    return pd.DataFrame({"time": times, "price": price, "filled": filled, "left": filled.sum() - filled.cumsum()})


def costs(titles: Sequence[str]) -> pd.DataFrame:
    parts = {name: 3.0 * (-1) ** n * (n + 1) for n, name in enumerate(plots.PARTS)}
    rows = [
        {"policy": title, "title": title, "component": name, "cost_bp": value}
        for title in titles
        for name, value in {**parts, TOTAL: sum(parts.values())}.items()
    ]
    return pd.DataFrame(rows)


def frontier_rows(titles: Sequence[tuple[str, str, str]]) -> pd.DataFrame:
    table = pd.DataFrame(titles, columns=["policy", "title", "kind"])
    for number, name in enumerate(("arrival_mean", "arrival_std")):
        middle = np.linspace(1.0, 17.0, len(table)) + 60.0 * number
        table = table.assign(**{name: middle, f"{name}_lo": middle - 4.0, f"{name}_hi": middle + 4.0})
    return table


def log(iterations: int) -> pd.DataFrame:
    at = np.arange(1, iterations + 1)
    return pd.DataFrame({"iteration": at, "pa": 18 * (1 - np.exp(-at / 15)), "reward": at / 100})


def windows(count: int) -> pd.DataFrame:
    middle = np.linspace(-2.0, 20.0, count)
    return pd.DataFrame(
        {
            "window": [f"{n:03d}" for n in range(count)],
            "test_first": [f"2024-{1 + n % 12:02d}-02" for n in range(count)],
            "days": 20,
            "pa_mean": middle,
            "pa_lo": middle - 5,
            "pa_hi": middle + 5,
        }
    )


def parts(days: int) -> dict[str, pd.DataFrame]:
    dates = pd.bdate_range("2024-01-02", periods=3 * days).repeat(4)
    table = pd.DataFrame({"date": dates, "amount": RNG.lognormal(8, 1, len(dates))})
    return {name: table.iloc[n * 4 * days : (n + 1) * 4 * days] for n, name in enumerate(("train", "valid", "test"))}


def quality(names: Sequence[str], days: int) -> Quality:
    shape = (len(names), days)
    found = Report(limit=1_000)
    for kind in list(KINDS)[5:9]:
        for day in range(0, days, 3):
            found.add(kind, instrument=names[0], date=f"2024-01-{1 + day % 28:02d}")
    dates = np.datetime64("2024-01-01") + np.arange(days)
    share = RNG.uniform(0.8, 1.0, shape)
    return Quality("bars", LUNCH, 100, 100, found, tuple(names), dates, share, 1 - share)


def findings(count: int, instrument: str = "A") -> list[Window]:
    day = np.datetime64("2024-01-02T00:00", "us")
    minutes = np.concatenate([np.arange(680, 690), np.arange(780, 790), np.arange(1440 + 570, 1440 + 580)])
    stamps = day + minutes.astype("timedelta64[m]")
    close = 100 + RNG.normal(0, 0.1, 30).cumsum()
    one = Finding("jump", instrument=instrument, date="2024-01-02", stamp="2024-01-02 13:05:00")
    return [Window(one, stamps, close, 15, close[15])] * count


def seeds(groups: Sequence[str], trainings: int = 10) -> tuple[dict[str, list[float]], pd.DataFrame]:
    values = {name: (17 + RNG.normal(0, 0.3, trainings)).tolist() for name in groups}
    rows = {
        name: {"title": name, "kind": "checkpoint", "mean": 17.3, "mean_lo": 13.8, "mean_hi": 20.8, "iqm": 17.3}
        for name in groups
    }
    return values, pd.DataFrame.from_dict(rows, orient="index")


def curves(settings: Sequence[str], trainings: int = 5, iterations: int = 12) -> dict[str, list[pd.Series]]:
    at = np.arange(5, 5 * iterations + 5, 5)
    return {
        name: [pd.Series(15 * (1 - np.exp(-at / 20)) + RNG.normal(0, 1, len(at)), at) for _ in range(trainings)]
        for name in settings
    }


def groups(each: int, name: str = "group") -> pd.DataFrame:
    rows = [
        {"by": by, "group": f"{name} {n}", "judged": 10.0 + n, "judged_lo": 5.0, "judged_hi": 20.0 + n}
        for by in ("side", "month", "instrument", "size")
        for n in range(each)
    ]
    p = np.linspace(0.001, 0.9, len(rows))
    return pd.DataFrame(rows).assign(p=p, p_adjusted=np.minimum(1.0, p * 3))


def stress(titles: Sequence[str]) -> pd.DataFrame:
    rows = [
        {
            "condition": f"{family} {level:g}",
            "family": family,
            "level": level,
            "policy": title,
            "metric": metric,
            "estimate": 17.0 - level - number,
        }
        for family in stress_plots.CURVES
        for level in (1.0, 2.0, 5.0, 10.0)
        for number, title in enumerate(titles)
        for metric in ("pa_net", "net_over_twap")
    ]
    return pd.DataFrame(rows)


def stress_of(draw: str, titles: Sequence[str]) -> Figure:
    table, names = stress(titles), {title: title for title in titles}
    if draw == "map":
        return stress_plots.stress_map(table, names, dict(zip(table["condition"], table["family"], strict=True)))
    return stress_plots.stress_curves(table, names, "none")


def decisions(policies: Sequence[str], count: int = 1500) -> tuple[pd.DataFrame, pd.Series]:
    forecast, left = RNG.normal(0, 1, count), 1 + np.arange(count) % 7
    tables = [
        pd.DataFrame(
            {"policy": one, "steps_left": left, "forecast": forecast, "share": 1 / (1 + np.exp(-forecast * (n + 1)))}
        )
        for n, one in enumerate(policies)
    ]
    return pd.concat(tables), pd.Series(dict.fromkeys(range(1, 8), 0.3))


def certificates(methods: Sequence[str]) -> pd.DataFrame:
    at = np.arange(5, 65, 5)
    value = {one: 5 - 5 / at - number for number, one in enumerate(methods)}
    tables = {one: pd.DataFrame({"iteration": at, "value": values, "error": 0.2}) for one, values in value.items()}
    return pd.concat(tables, names=["method"]).reset_index("method")


def search(draw: str, names: Sequence[str], trials: int = 40) -> Figure:
    values, whole = RNG.normal(15, 2, trials), np.arange(trials) % 4 > 0
    unit = "validation PA, bp"
    if draw == "history":
        return search_plots.history(np.arange(trials), values, whole, unit)
    if draw == "front":
        return search_plots.front(values, values * 4 + 20, whole & (values > 15), unit)
    kinds = [
        ([10 ** -(1 + n % 4) for n in range(trials)], Dimension("rate", "float", low=1e-5, high=1.0, log=True)),
        ([n % 9 for n in range(trials)], Dimension("steps", "int", low=0, high=8)),
        ([("signals", "recurrent", LONG)[n % 3] for n in range(trials)], Dimension("network", "choice")),
    ]
    return search_plots.slices({name: kinds[n % 3] for n, name in enumerate(names)}, values, whole, unit)


USUAL = results()
MANY = results(many=30, names=[LONG, *(f"{LONG}_{n}" for n in range(60))])
ONE_DAY = results(orders=5, days=1)
MARKETS = {
    f"signal {seed}": synthetic_sessions(SyntheticSettings(instruments=2, days=8, seed=seed, signal=float(seed)))
    for seed in (0, 1)
}
METHODS = {"TWAP": USUAL[3], "ppo": USUAL[0], "dqn": USUAL[1]}
TITLES = ["best 10 checkpoints", "with fallback", "TWAP", "forecast rule"]
POLICIES = [*TITLES, *(f"{LONG} {n}" for n in range(26))]
FRONT = [("checkpoints", "10 best checkpoints", "checkpoint"), ("twap", "TWAP", "baseline")]


def order_figure(session: str = "cn", *, policies: Sequence[str] = ("twap", "hindsight"), told: bool = True) -> Figure:
    """Return the order figure of the second day of a market, by two rules."""
    market = synthetic_sessions(SyntheticSettings(instruments=1, days=3, session=session))
    simulator = OrderExecution(Engine(market, 6))
    order = Order(str(market.instruments[1]), pd.Timestamp(market.dates[1]), Direction.SELL, 1234.5)
    rule = (TWAP(simulator.engine), KnownStateInterpreter(), AmountActionInterpreter())
    book = Playback(simulator, simulator.align([order]), dict.fromkeys(policies, rule), PAPenaltyReward())
    return OrderFigure([book.play(book.typical("twap"), one) for one in policies], 1, told=told).figure


#: Every figure function with usual data.
DRAWN: dict[str, Callable[[], Figure]] = {
    "pa_distribution": lambda: plots.pa_distribution(USUAL, **SETTINGS),
    "pa_by_month": lambda: plots.pa_by_month(USUAL, **SETTINGS),
    "pa_by_window": lambda: plots.pa_by_window(windows(6)),
    "pa_by_instrument": lambda: plots.pa_by_instrument(USUAL, **SETTINGS),
    "inventory_paths": lambda: plots.inventory_paths(USUAL),
    "answer_times": lambda: plots.answer_times(RNG.lognormal(-6, 0.5, 2000)),
    "cumulative_pa": lambda: plots.cumulative_pa(USUAL),
    "cost_parts": lambda: plots.cost_parts(costs(["chosen checkpoints", "TWAP", "VWAP"])),
    "frontier": lambda: plots.frontier(frontier_rows([*FRONT, ("hindsight", "hindsight (ceiling)", "ceiling")])),
    "method_intervals": lambda: plots.method_intervals(comparison(METHODS, resamples=200)),
    "learning_curves": lambda: plots.learning_curves(log(60), log(60).iloc[4::5], chosen=[40, 50]),
    "training_progress": lambda: training_plots.training_progress(
        log(60).assign(loss=0.1, entropy=1.0, transitions=100, seconds=0.5), log(60).iloc[4::5]
    ),
    "validation_against_test": lambda: plots.validation_against_test(
        summarise(USUAL, resamples=200), expected_shrinkage=0.5
    ),
    "certificate_curves": lambda: plots.certificate_curves(certificates(["ppo", "dqn", "opd"]), optimum=5.0),
    "order_parts": lambda: plots.order_parts(parts(40)),
    "order_path": lambda: plots.order_path({"policy": ticks(LUNCH), "TWAP": ticks(LUNCH, 0, 5)}, benchmark=100.0),
    "OrderFigure": order_figure,
    "price_paths": lambda: plots.price_paths(np.cumsum(RNG.normal(0, 1, (4, 60)), 1), RNG.uniform(0, 0.1, (4, 60))),
    "session_bars": lambda: plots.session_bars(sessions(Calendar.preset("cn")), 0),
    "return_tails": lambda: plots.return_tails(MARKETS),
    "volatility_clustering": lambda: plots.volatility_clustering(MARKETS),
    "mean_reversion": lambda: plots.mean_reversion(MARKETS),
    "intraday_profiles": lambda: plots.intraday_profiles(MARKETS["signal 1"]),
    "volume_and_volatility": lambda: plots.volume_and_volatility(MARKETS["signal 1"]),
    "coverage_calendar": lambda: plots.coverage_calendar(quality(list("ABCDEFGH"), 60)),
    "zero_volumes": lambda: plots.zero_volumes(quality(list("ABCDEFGH"), 60)),
    "finding_days": lambda: plots.finding_days(quality(list("ABCDEFGH"), 60)),
    "worst_findings": lambda: plots.worst_findings(findings(4)),
    "seed_points": lambda: seed_plots.seed_points(*seeds(["10 best checkpoints", "last"]), level=0.95),
    "learning_curves_of_seeds": lambda: seed_plots.learning_curves_of_seeds(curves(["signals", "recurrent"])),
    "stability_groups": lambda: stability_plots.stability_groups(groups(4), level=0.95),
    "stress_map": lambda: stress_of("map", TITLES),
    "stress_curves": lambda: stress_of("curves", TITLES),
    "decision_curves": lambda: decision_plots.decision_curves(*decisions(["ppo", "forecast", "twap"])),
    "history": lambda: search("history", []),
    "slices": lambda: search("slices", ["algorithm.rate", "steps", "network"]),
    "front": lambda: search("front", []),
}

#: The same with much, long, thin and odd data: 30 policies, long names, one day, one order, short and night sessions.
ODD: dict[str, Callable[[], Figure]] = {
    "pa_distribution of 30 policies": lambda: plots.pa_distribution(MANY, **SETTINGS),
    "pa_distribution of one order": lambda: plots.pa_distribution([checkpoint([3.0])], **SETTINGS),
    "pa_by_month of 30 months": lambda: plots.pa_by_month([checkpoint(np.ones(900), days=900)], **SETTINGS),
    "pa_by_window of 30": lambda: plots.pa_by_window(windows(30)),
    "pa_by_instrument of 60": lambda: plots.pa_by_instrument(MANY, **SETTINGS),
    "inventory_paths of 30 policies": lambda: plots.inventory_paths(MANY),
    "cumulative_pa of 30 policies": lambda: plots.cumulative_pa(MANY),
    "cumulative_pa of one day": lambda: plots.cumulative_pa(ONE_DAY),
    "cost_parts of 30 policies": lambda: plots.cost_parts(costs(POLICIES)),
    "frontier of 30 policies": lambda: plots.frontier(frontier_rows([(one, one, "baseline") for one in POLICIES])),
    "method_intervals of 30": lambda: plots.method_intervals(
        comparison({one.policy: one for one in MANY[2:-1]}, resamples=100)
    ),
    "learning_curves of one iteration": lambda: plots.learning_curves(log(1), log(1)),
    "order_path over midnight": lambda: plots.order_path({"$policy$": over_midnight()}, title=f"$A$-{LONG}"),
    "order_path of four segments": lambda: plots.order_path({LONG: ticks(NIGHT), "b": ticks(NIGHT, 0, 3)}),
    "session_bars of four segments": lambda: plots.session_bars(sessions(NIGHT, instrument=LONG), 0),
    "session_bars of half hours": lambda: plots.session_bars(sessions(LUNCH, instrument="$A$"), 1),
    "OrderFigure of long names": lambda: order_figure("us", policies=[LONG, "twap", f"{LONG}-2"], told=False),
    "order_parts of one day": lambda: plots.order_parts(parts(1)),
    "coverage_calendar of long names": lambda: plots.coverage_calendar(quality([LONG] * 12, 400)),
    "coverage_calendar of 1,000": lambda: plots.coverage_calendar(quality([LONG] * 1_000, 3)),
    "worst_findings of one": lambda: plots.worst_findings(findings(1, LONG)),
    "seed_points of long names": lambda: seed_plots.seed_points(*seeds([LONG, f"{LONG}2"], 1), level=0.95),
    "learning_curves_of_seeds of 30": lambda: seed_plots.learning_curves_of_seeds(curves(POLICIES, 1, 1)),
    "stability_groups of long names": lambda: stability_plots.stability_groups(groups(20, LONG), level=0.95),
    "stress_map of 12 policies": lambda: stress_of("map", POLICIES[:12]),
    "stress_curves of 12 policies": lambda: stress_of("curves", POLICIES[:12]),
    "decision_curves of 12": lambda: decision_plots.decision_curves(*decisions(POLICIES[:12], 700)),
    "slices of 7": lambda: search("slices", [f"algorithm.{LONG}_{n}" for n in range(7)], 5),
}
