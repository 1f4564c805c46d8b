"""The conditions of the stress matrix: what each changes, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.execution import Engine, ExecutionRules, Order, align_orders
from rlwb.experiment.conditions import BASE, Condition, carried_feed, changed_sessions, conditions, day_traits
from rlwb.market import Sessions
from tests.execution.markets import order, sessions_of
from tests.test_docs import ROOT

EVERY = {one.name: one for one in conditions()}
PRICES = [[10.0, 11.0, 12.0, 13.0], [20.0, 22.0, 21.0, 24.0]]
SESSIONS = sessions_of(PRICES, [[100.0, 200.0, 300.0, 400.0]] * 2)
ROWS = np.array([1])


def bars(condition: Condition, sessions: Sessions = SESSIONS, rows: np.ndarray = ROWS) -> Sessions:
    """Return the market of a condition, or the feed where it changes that alone."""
    edit = condition.bars or condition.feed
    assert edit is not None
    changed = changed_sessions(sessions, rows, edit, condition.name, 0)
    return changed if condition.bars else carried_feed(changed, sessions, rows)


def closes(name: str, field: str = "close") -> list[float]:
    changed = bars(EVERY[name])
    assert changed.fields[field][0].tolist() == SESSIONS.fields[field][0].tolist()  # a day that no test order is on
    return changed.fields[field][1].tolist()


def test_there_are_more_than_forty_of_their_own_name_and_the_base_is_first() -> None:
    names = [one.name for one in conditions()]
    assert len(names) == len(set(names)) == len(EVERY) > 40
    assert names[0] == BASE
    changes = ("rules", "bars", "feed", "resized", "window", "keep", "told", "input_scale")
    for one in conditions()[1:]:
        assert any(getattr(one, change) is not None for change in changes), one.name


def test_the_page_defines_every_condition() -> None:
    page = (ROOT / "docs" / "stress.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    mark = {True: " (hindsight)", False: ""}
    told = [f"| `{one.name}` | {one.family} | {one.meaning}{mark[one.hindsight]} |" for one in conditions()]
    assert [row for row in rows if row.split("`")[1] in EVERY] == told


def test_a_late_feed_shows_the_bars_before_and_first_the_last_close() -> None:
    assert closes("latency-1") == [13.0, 20.0, 22.0, 21.0]
    assert closes("latency-2") == [13.0, 13.0, 20.0, 22.0]
    assert closes("latency-1", "volume") == [0.0, 100.0, 200.0, 300.0]


def test_a_feed_that_ends_repeats_its_last_price_with_no_volume() -> None:
    assert closes("feed-stops") == [20.0, 22.0, 22.0, 22.0]
    assert closes("feed-stops", "volume") == [100.0, 200.0, 0.0, 0.0]
    assert closes("feed-silent") == [13.0] * 4
    assert closes("feed-no-volume") == PRICES[1]


def test_returns_are_scaled_about_the_first_price_and_volumes_stay() -> None:
    assert closes("volatility-x2") == pytest.approx([20.0, 22.0**2 / 20.0, 21.0**2 / 20.0, 24.0**2 / 20.0])
    assert closes("volatility-x0.5") == pytest.approx([20.0 * (one / 20.0) ** 0.5 for one in PRICES[1]])
    assert closes("volatility-x2", "volume") == [100.0, 200.0, 300.0, 400.0]


def test_a_jump_and_a_drift_move_the_prices_after_them() -> None:
    moved = np.array(closes("jump-100bp")) / PRICES[1] - 1.0
    size = moved[-1]
    assert abs(size) == pytest.approx(0.01)
    assert moved[0] == pytest.approx(0.0)
    assert all(min(abs(one), abs(one - size)) < 1e-12 for one in moved)
    drift = np.array(closes("drift+50bp")) / PRICES[1] - 1.0
    assert drift == pytest.approx([0.00125, 0.0025, 0.00375, 0.005])


def test_shares_of_bars_are_missing_at_random_the_same_each_time() -> None:
    many = sessions_of([[10.0] * 50] * 40)
    rows = np.arange(1, 40)
    for name, share in {"missing-5": 0.05, "missing-50": 0.5}.items():
        changed = bars(EVERY[name], many, rows)
        gone = np.isnan(changed.fields["close"])
        assert gone[rows].mean() == pytest.approx(share, abs=0.03)
        assert not gone[0].any()
        assert (np.isnan(changed.fields["volume"]) == gone).all()
        assert bars(EVERY[name], many, rows).fingerprint == changed.fingerprint
    halted = np.isnan(bars(EVERY["halt"], many, rows).fields["close"])
    assert halted[rows].sum(axis=1).tolist() == [6] * 39  # an eighth of 50, in a row
    assert (np.diff(halted[rows].astype(int), axis=1) == 1).sum(axis=1).max() <= 1


def test_noise_is_of_the_feed_and_as_large_as_it_says() -> None:
    many = sessions_of([[10.0] * 200] * 20)
    rows = np.arange(20)
    noise = np.log(bars(EVERY["noise-5bp"], many, rows).fields["close"] / 10.0)
    assert noise.std() == pytest.approx(5e-4, rel=0.05)
    high, low = (bars(EVERY["noise-5bp"], many, rows).fields[name] for name in ("high", "low"))
    assert (high >= low).all()


def test_rules_get_costs_on_top_of_their_own() -> None:
    own = ExecutionRules(commission_bps=2.0, half_spread_bps=1.0, volume_limit=0.08)

    def changed(name: str, rules: ExecutionRules = own) -> ExecutionRules:
        change = EVERY[name].rules
        assert change is not None
        return change(rules)

    assert changed("commission-3bp").commission_bps == 5.0
    assert changed("spread-10bp").half_spread_bps == 6.0
    assert [changed(name).volume_limit for name in ("cap-20", "cap-5")] == [0.08, 0.05]
    impact = changed("impact-30bp", ExecutionRules())
    assert (impact.volume_limit, impact.temporary_impact_bps) == (1.0, 30.0)
    size = changed("size-x10", ExecutionRules())
    assert (size.volume_limit, size.temporary_impact_bps, EVERY["size-x10"].resized) == (0.2, 100.0, 10.0)


def test_windows_move_by_steps_and_orders_without_room_go() -> None:
    sessions = sessions_of([[10.0] * 8])
    engine = Engine(sessions, 2)
    orders = align_orders([order(1.0), order(2.0, start="09:31", end="09:35"), order(3.0, end="09:32")], sessions)

    def windows(name: str) -> list[tuple[float, int, int, int]]:
        change = EVERY[name].window
        assert change is not None
        found = change(engine, orders)
        return [*zip(found.amount, found.start, found.end, found.latest_end, strict=True)]

    assert windows("start-later") == [(1.0, 2, 8, 8), (2.0, 2, 5, 5)]
    assert windows("end-sooner") == [(1.0, 0, 6, 6), (2.0, 1, 4, 4)]
    # Of 4, 3 and 1 steps; the second order's first step is the half of a cell.
    assert windows("second-half") == [(1.0, 4, 8, 8), (2.0, 2, 5, 5), (3.0, 0, 2, 2)]
    assert windows("first-half") == [(1.0, 0, 4, 4), (2.0, 1, 4, 4), (3.0, 0, 2, 2)]


def test_days_are_told_apart_by_what_they_were() -> None:
    line, saw = [10.0, 11.0, 12.0, 13.0], [10.0, 11.0, 10.0, 11.0]
    sessions = sessions_of([line, saw, [10.0] * 4], [[1.0] * 4, [2.0] * 4, [3.0] * 4])
    engine = Engine(sessions, 1)
    orders = align_orders([order(1.0, day=day) for day in (1, 2, 3)], sessions)
    found = day_traits(engine, orders)
    assert found["trend"][:2] == pytest.approx([1.0, 1 / 3])
    assert found["volume"] == pytest.approx([0.5, 1.0, 1.5])
    moves = np.diff(np.log(line))
    assert found["volatility"][0] == pytest.approx(np.sqrt((moves**2).sum()))
    assert np.isnan(found["trend"][2])
    assert np.isnan(found["volatility"][2])
    for name, wanted in {"busy": [False, False, True], "slack": [True, False, False], "sells": [False] * 3}.items():
        keep = EVERY[name].keep
        assert keep is not None
        assert keep(engine, orders).tolist() == wanted


def test_estimates_are_scaled_wherever_they_stand() -> None:
    told = {
        "ac": {"temporary": [1.0, 2.0], "names": ["a"], "volume": (3.0,)},
        "rule": {"volatility": {"A": 4.0}, "n": 5},
    }
    wrong = EVERY["impact-misjudged-x2"].told
    assert wrong is not None
    assert wrong(told)["ac"] == {"temporary": [2.0, 4.0], "names": ["a"], "volume": [3.0]}
    wrong = EVERY["volatility-misjudged-x0.5"].told
    assert wrong is not None
    assert wrong(told)["rule"] == {"volatility": {"A": 2.0}, "n": 5}


def test_orders_keep_their_latest_end_where_they_have_one() -> None:
    sessions = sessions_of([[10.0] * 8])
    one = Order("AAA", "2024-01-01", "BUY", 1.0, None, "09:34", latest_end="09:38")  # type: ignore[arg-type]
    change = EVERY["end-sooner"].window
    assert change is not None
    found = change(Engine(sessions, 2), align_orders([one], sessions))
    assert (found.end.tolist(), found.latest_end.tolist()) == ([2], [8])
