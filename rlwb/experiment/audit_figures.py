"""Checks that a run's figures agree from the bars to the tables, and that a gain is not a drift or a saved fee."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlwb.execution import OrderExecution, audit
from rlwb.experiment.audit_case import Case, Check, day_interval_of, first_failure
from rlwb.experiment.backtest import play
from rlwb.reading import read_json, read_table

#: Orders that are replayed and computed again, in a sample and in full.
_ORDERS = (400, 20_000)
#: Relative and absolute difference that rounding makes.
_ROUNDING = 1e-6


def figure_checks(case: Case) -> Iterator[Check]:
    """Yield the checks of prices, fills, price advantages, validation, choice, tables and figures, each computed again.

    What is computed here goes by its definition, in plain loops over the bars, and not by the code that is checked.
    """
    yield _window_prices(case)
    yield _advantage(case)
    yield _fills(case)
    yield _replay(case)
    if case.run.origin is None:
        yield _validation(case)
        yield _selection(case)
    yield _tables(case)
    if case.is_full:
        yield _plots(case)
    yield _drift(case)
    yield _fees(case)


def _window_prices(case: Case) -> Check:
    """Require that the TWAP, VWAP and arrival of every order are those of its window's bars."""
    name, sessions = "window prices", case.bench.sessions
    prices, volumes = raw_prices(case), sessions.fields["volume"]
    starts = sessions.calendar.tick_start
    table = case.best.orders.reset_index(drop=True)
    rows = sessions.rows(table["instrument"], table["date"].to_numpy())
    seconds = {end: (table[end] - table["date"]).dt.total_seconds().to_numpy() for end in ("start", "end")}
    faults = []
    for order in range(min(len(table), _ORDERS[case.is_full])):
        inside = (starts >= seconds["start"][order]) & (starts < seconds["end"][order])
        price, volume = prices[rows[order], inside], volumes[rows[order], inside]
        valid = np.isfinite(price) & (price > 0)
        traded = valid & np.isfinite(volume) & (volume > 0)
        if not valid.any():
            continue
        wanted = {"twap": float(price[valid].mean())}
        if traded.any():
            wanted["vwap"] = float((price[traded] * volume[traded]).sum() / volume[traded].sum())
        for column, value in wanted.items():
            if column in table and not _near(table[column][order], value):
                told = f"{table[column][order]:.6g}, by the bars of its window {value:.6g}"
                faults.append(f"the {column} of {table['order_id'][order]} is {told}")
    return first_failure(name, faults, "TWAP and VWAP of the orders are those of their windows' bars")


def _advantage(case: Case) -> Check:
    """Require that each PA is the fill's price against the benchmark, above 0 where it is better for the order."""
    rules, faults = case.bench.config.execution.rules, []
    for one in case.results:
        table = one.orders
        if one.kind == "ceiling" or not {"price", "benchmark", "pa", "ffr"} <= set(table):
            continue
        whole = np.abs(table["ffr"] - 1) < 1e-9
        table = (table if not rules.values_unfilled else table[whole]).dropna(subset=["price", "benchmark", "pa"])
        for figure, price in (("pa", "price"), ("pa_net", "price_net")):
            if figure not in table or price not in table:
                continue
            better = np.where(table["direction"] == "BUY", -1.0, 1.0) * (table[price] / table["benchmark"] - 1) * 1e4
            apart = np.flatnonzero(np.abs(better - table[figure]) > 1e-5)
            if len(apart):
                row = table.iloc[int(apart[0])]
                told = f"{row[figure]:.4f} bp, by price and benchmark {better.iloc[int(apart[0])]:.4f} bp"
                faults.append(f"the {figure} of {one.policy} on {row['order_id']} is {told}")
        named = {name: name for name in ("twap", "vwap", "arrival")}.get(rules.benchmark)
        if named in table and not np.allclose(table[named], table["benchmark"], rtol=1e-9, equal_nan=True):
            faults.append(f"{one.policy} is judged by another price than its {rules.benchmark}")
    return first_failure("price advantage", faults, "every PA is that of price and benchmark, better is above 0")


def _fills(case: Case) -> Check:
    """Require that every fill lies in its step and its window, at the bar's price, within position and volume cap."""
    name, bench = "fills", case.bench
    if type(bench.simulator) is not OrderExecution:
        return Check(name, None, f"the simulator {bench.config.simulator.name} makes fills of its own")
    orders = case.test[: _ORDERS[case.is_full] // 4]
    policy, sees, acts = case.playable(case.best.policy, bench)
    ticks, steps, _ = audit(bench.simulator, orders, policy, state_interpreter=sees, action_interpreter=acts)
    raw, session = raw_prices(case), dict(zip(orders.table["order_id"], orders.session, strict=True))
    filled = ticks[ticks["filled"] > 0].reset_index(drop=True)
    row = filled["order_id"].map(session).to_numpy(dtype=np.int64)
    faults = [
        f"{filled['order_id'][at]} is filled at {filled['price'][at]:.6g}, the bar's price is "
        f"{raw[row[at], filled['tick'][at]]:.6g}"
        for at in np.flatnonzero(~_near(filled["price"].to_numpy(), raw[row, filled["tick"].to_numpy()]))
    ]
    totals = filled.assign(value=filled["filled"] * filled["price"]).groupby("order_id")[["filled", "value"]].sum()
    stored = case.best.orders.set_index("order_id").loc[totals.index]
    for column, found in (("filled", totals["filled"]), ("price", totals["value"] / totals["filled"])):
        if column in stored:
            apart = np.flatnonzero(~_near(stored[column].to_numpy(), found.to_numpy()))
            faults += [
                f"{column} of {totals.index[at]} is {stored[column].iloc[at]:.6g}, by its fills {found.iloc[at]:.6g}"
                for at in apart[:1]
            ]
    spans = dict(zip(orders.table["order_id"], zip(orders.start, orders.latest_end, strict=True), strict=True))
    outside = [
        order for order, tick in zip(filled["order_id"], filled["tick"], strict=True) if not _in(spans[order], tick)
    ]
    faults += [f"{order} is filled outside its window" for order in outside[:1]]
    fell = steps.assign(late=steps["end_tick"] <= steps["start_tick"])
    faults += [f"{order} decides after its step" for order in fell.loc[fell["late"], "order_id"][:1]]
    return first_failure(name, faults, f"{len(filled)} fills lie in their windows, at the prices of their bars")


def _in(span: Sequence[int], tick: int) -> bool:
    return bool(span[0] <= tick < span[1])


def _replay(case: Case) -> Check:
    """Require that the best checkpoint, run again on the test orders, gives the stored results."""
    table = case.best.orders.reset_index(drop=True)
    count = min(len(table), _ORDERS[case.is_full])
    orders = case.test[np.arange(count)]
    found = play(case.bench, case.playable(case.best.policy, case.bench), orders).metrics
    faults = [
        f"the {name} of {table['order_id'][at]} is {table[name][at]:.6g}, run again {found[name][at]:.6g}"
        for name in ("pa", "pa_net", "price", "filled")
        if name in found and name in table
        for at in np.flatnonzero(~_near(table[name].to_numpy()[:count], found[name]))[:1]
    ]
    return first_failure("test run again", faults, f"{case.best.policy} run on {count} test orders again: the same")


def _validation(case: Case) -> Check:
    """Require that the best checkpoint scores on the validation orders as the training logged."""
    name, part = "validation run again", case.orders("valid")
    if len(part) > _ORDERS[1] and not case.is_full:
        return Check(name, None, "left to rlwb audit RUN, because there are many validation orders")
    log = read_table(case.run.metrics / "validation.csv", "iteration", is_numeric=True).set_index("iteration")
    if case.best.iteration not in log.index:
        return Check(name, None, f"iteration {case.best.iteration} has no row in metrics/validation.csv")
    orders = case.bench.align(part)
    again = play(case.bench, case.playable(case.best.policy, case.bench), orders)
    found, logged = case.bench.validation_figures(orders, again), log.loc[case.best.iteration]
    faults = [
        f"{column} of iteration {case.best.iteration} is {logged[column]:.6g}, run again {found[column]:.6g}"
        for column in ("pa", "pa_net", "ffr", "reward", case.bench.config.judged_by)
        if column in found and column in logged and not _near(logged[column], found[column])
    ]
    return first_failure(name, faults, f"iteration {case.best.iteration} scores on the validation orders as logged")


def _selection(case: Case) -> Check:
    """Require that the chosen checkpoints are the best by the validation that was logged."""
    figure = case.bench.config.judged_by
    chosen = [int(one.rpartition("-")[2]) for one in read_json(case.run.backtest / "selection.json")["chosen"]]
    log = read_table(case.run.metrics / "validation.csv", "iteration", is_numeric=True).set_index("iteration")[figure]
    there = {int(path.stem) for path in case.run.checkpoints.glob("[!.]*.pt") if path.stem.isdecimal()}
    left = log[[one for one in log.index if one in there and one not in chosen]].dropna()
    worst = log.reindex(chosen).min()
    better = left[left > worst + _ROUNDING]
    faults = [f"checkpoint {at} validates at {value:.4f}, a chosen one at {worst:.4f}" for at, value in better.items()]
    judged = {int(one.iteration or 0): one.validation_pa for one in case.results if one.kind == "checkpoint"}
    faults += [
        f"checkpoint {at} is shown with a validation of {value:.4f}, logged {log.get(at, np.nan):.4f}"
        for at, value in judged.items()
        if not _near(value, log.get(at, np.nan))
    ]
    if sorted(judged) != sorted(chosen):
        faults.append(f"checkpoints {sorted(judged)} are judged, {sorted(chosen)} were chosen")
    return first_failure("selection", faults, "the chosen checkpoints are the best by the logged validation")


def _tables(case: Case) -> Check:
    """Require that summary and headline hold the means of the tables of orders."""
    summary = read_table(case.run.backtest / "summary.csv", "policy").set_index("policy")
    headline = read_table(case.run.backtest / "headline.csv", "policy").set_index("policy")
    by_name, faults = {one.policy: one for one in case.results}, []
    for column, figure in (("pa_mean", "pa"), ("pa_net", "pa_net")):
        means = {
            name: float(np.nanmean(one.orders[figure]))
            for name, one in by_name.items()
            if figure in one.orders and one.orders[figure].notna().any()
        }
        chosen = [means[name] for name, one in by_name.items() if one.kind == "checkpoint" and name in means]
        for file, table in (("summary.csv", summary), ("headline.csv", headline)):
            wanted = means | ({"checkpoints": float(np.mean(chosen))} if chosen else {})
            for name in table.index.intersection(list(wanted)) if column in table else ():
                if not _near(table[column][name], wanted[name]):
                    told = f"{table[column][name]:.6g}, the mean of its orders {wanted[name]:.6g}"
                    faults.append(f"{column} of {name} in {file} is {told}")
    return first_failure("tables", faults, "summary and headline hold the means of the tables of orders")


def _plots(case: Case) -> Check:
    """Require that the figure of validation against test shows the numbers of the tables of orders."""
    from rlwb.evaluation import plots, read_validation
    from rlwb.experiment.backtest import read_summary

    summary = read_summary(case.run)
    figure = plots.validation_against_test(summary)
    shown = {(round(x, 6), round(y, 6)) for axis in figure.axes for line in axis.lines for x, y in line.get_xydata()}
    faults = [
        f"{one.policy} is not where its validation and test PA are, at {wanted}"
        for one in case.results
        if one.kind == "checkpoint" and np.isfinite(one.validation_pa)
        if (wanted := (round(one.validation_pa, 6), round(float(np.nanmean(one.orders["pa"])), 6))) not in shown
    ]
    if case.run.origin is None:
        log = read_validation(case.run.metrics / "validation.csv", case.bench.config.judged_by)
        train = read_table(case.run.metrics / "train.csv", "iteration", is_numeric=True)
        drawn = plots.learning_curves(train, log, judged_by=case.bench.config.judged_by)
        curve = {round(float(y), 6) for axis in drawn.axes for line in axis.lines for y in np.asarray(line.get_ydata())}
        last = round(float(log[case.bench.config.judged_by].iloc[-1]), 6)
        if np.isfinite(last) and last not in curve:
            faults.append(f"the learning curve does not end at the last validation, {last}")
    return first_failure("figures", faults, "figures are drawn from the numbers of the tables")


def _drift(case: Case) -> Check:
    """Require that a gain is not that of a schedule, which looks at no price and earns a drift of the test days.

    Each order's schedule is the mean one of its side on the other days; what it would have earned is taken away from
    what the order did.
    """
    name, best = "gain beyond a schedule", case.best
    left = best.inventory
    engine, orders, table = case.bench.engine, case.test, best.orders.reset_index(drop=True)
    if left is None or "pa" not in table:
        return Check(name, None, f"{best.policy} has no inventories")
    window = orders.start.astype(np.int64) * 10_000 + orders.end
    common = np.bincount(np.unique(window, return_inverse=True)[1]).argmax()
    same = np.flatnonzero(window == np.unique(window)[common])
    days = table["date"].to_numpy()
    start, end = int(orders.start[same[0]]), int(orders.end[same[0]])
    step = engine.cell[start:end] - engine.cell[start]
    price = raw_prices(case)[orders.session[same]][:, start:end]
    price = np.where(np.isfinite(price) & (price > 0), price, np.nan)
    by_step = np.stack([_row_means(price[:, step == one]) for one in range(step[-1] + 1)], axis=1)
    share = np.clip(-np.diff(np.nan_to_num(np.asarray(left, dtype=np.float64)[same]), axis=1), 0, 1)[
        :, : by_step.shape[1]
    ]
    blind = np.full(len(same), np.nan)
    for side in (-1, 1):
        for day in np.unique(days[same]):
            own = (orders.side[same] == side) & (days[same] == day)
            others = (orders.side[same] == side) & (days[same] != day)
            if own.any() and others.any():
                mean = share[others].mean(axis=0)
                mean = mean / mean.sum() if mean.sum() > 0 else mean
                paid = (np.nan_to_num(by_step[own]) * mean).sum(axis=1)
                blind[own] = side * (1 - paid / table["benchmark"].to_numpy()[same][own]) * 1e4
    gain = table["pa"].to_numpy()[same]
    every, timing, schedule = (day_interval_of(values, days[same]) for values in (gain, gain - blind, blind))
    if every is None or timing is None or schedule is None:
        return Check(name, None, "too few days or windows of one length to tell")
    told = f"{every.mean:.2f} bp of PA, of which {schedule.mean:.2f} bp are those of its mean schedule"
    faults = [f"{told}: what it decides by adds nothing"] if every.lo > 0 and schedule.lo > 0 and timing.lo <= 0 else []
    return first_failure(name, faults, told)


def _row_means(values: np.ndarray) -> np.ndarray:
    """Return the means of rows over what is present, NaN where nothing is."""
    present = np.isfinite(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)


def _fees(case: Case) -> Check:
    """Require that a gain over TWAP after costs is not only a commission or tax that was not paid."""
    from rlwb.evaluation.results import twap_of

    name = "gain beyond saved fees"
    twap = twap_of(case.results)
    charged = ["cost_commission", "cost_tax"]
    if not case.bench.config.execution.rules.have_costs:
        return Check(name, True, "there are no fees to save")
    needed = {"pa_net", "benchmark", "amount", *charged}
    if twap is None or not needed <= set(case.best.orders) or not needed <= set(twap.orders):
        return Check(name, None, "there is no TWAP, or no table of costs, to compare with")
    ours, even = (one.orders.set_index("order_id") for one in (case.best, twap))
    even = even.loc[ours.index]
    fees = [(one[charged].sum(axis=1) / (one["amount"] * one["benchmark"]) * 1e4).to_numpy() for one in (ours, even)]
    gain = (ours["pa_net"] - even["pa_net"]).to_numpy()
    saved = fees[1] - fees[0]
    every, rest = (day_interval_of(values, ours["date"].to_numpy()) for values in (gain, gain - saved))
    if every is None or rest is None:
        return Check(name, None, "too few days to tell")
    told = f"{every.mean:.2f} bp over TWAP after costs, of which {np.nanmean(saved):.2f} bp are fees that were not paid"
    return first_failure(name, [told] if every.lo > 0 and rest.lo <= 0 else [], told)


def raw_prices(case: Case) -> np.ndarray:
    """Return the price of each tick by the rules' price field, as the bars have it, float64 of shape (S, T)."""
    fields, field = case.bench.sessions.fields, case.bench.config.execution.rules.price_field
    return (fields["bid"] + fields["ask"]) / 2 if field == "quotes" else fields[field]


def _near(one: object, two: object) -> np.ndarray:
    return np.isclose(np.asarray(one, float), np.asarray(two, float), rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True)
