"""Figures hold what they say, thin and odd data reach the file without a warning, and notes stand where nothing is."""

import datetime as dt
import io
import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from rlwb.errors import DataError
from rlwb.evaluation import PolicyResult, comparison, plots, style
from rlwb.market import Calendar, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market import stylised as facts
from tests.evaluation.tables import baseline, ceiling, checkpoint, order_table, summarise, unattainable


def lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


NAMES = ["贵州茅台", "Ölüm", "リンゴ", "$BRK.B", "हिन्दी", "a very long name " * 3]
NORMAL = np.random.default_rng(0).normal(0, 10, 60)

ODD = ["$a_b$ and $c^d$", "$\\frac{1}$", "a_1^2", "<b>&amp;", "a|b\\c", "a\nb\tc", "_hidden", "{x} %s", "🦆", "x" * 500]
CASES = {
    "k10: text is text": [
        checkpoint(NORMAL, instruments=ODD, days=3),
        *(baseline(NORMAL + number, name, days=3) for number, name in enumerate(ODD)),
    ],
    "one order": [checkpoint([3.0])],
    "all equal": [checkpoint([2.0] * 30, 1, days=10), checkpoint([2.0] * 30, 2, days=10)],
    "one PA of 10,000": [checkpoint(np.append(NORMAL[1:], 1e4), days=10), baseline(NORMAL, days=10)],
    "non-Latin names": [checkpoint(NORMAL, instruments=NAMES, days=3), baseline(NORMAL, "基准", days=3)],
    "nothing to draw": [checkpoint([np.nan] * 5), baseline([np.nan] * 5)],
}


@pytest.mark.parametrize("case", CASES)
def test_f07_every_figure_is_written_without_a_warning(case, tmp_path):
    results = CASES[case]
    metrics = pd.DataFrame({"iteration": [r.iteration for r in results], "pa": [r.validation_pa for r in results]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = [
            plots.learning_curves(metrics, metrics),
            plots.validation_against_test(summarise(results, resamples=100)),
            plots.pa_distribution(results),
            plots.pa_by_month(results),
            plots.pa_by_instrument(results),
            plots.inventory_paths(results),
            plots.cumulative_pa(results),
        ]
        for number, figure in enumerate(figures):
            for path in plots.save_figure(figure, tmp_path / str(number)):
                assert path.stat().st_size > 2_000


def test_times_of_answers_are_drawn_by_their_quantiles():
    figure = plots.answer_times(np.array([0.001] * 98 + [0.004, 0.1]))
    assert "100 requests; half within 1 ms" in texts_of(figure)
    assert "No request was answered" in texts_of(plots.answer_times(np.array([np.nan])))


def texts_of(figure):
    return " ".join(text.get_text() for text in figure.findobj(Text))


def tick_labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def marks(axes):
    """Return the single points drawn, in order."""
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.get_lines()
        if len(line.get_xdata()) == 1
    ]


def test_distribution_has_a_row_a_policy_with_its_quantiles():
    axes = plots.pa_distribution([checkpoint(np.arange(101.0)), baseline([0.0, 2.0])]).axes[0]
    assert tick_labels(axes.yaxis) == ["checkpoint-0001", "TWAP"]
    box = axes.patches[0]
    assert (box.get_x(), box.get_width()) == (25.0, 50.0)
    assert marks(axes) == [(50.0, 0.0), (1.0, 1.0)]
    assert "single orders from 0 to 100 bp" in axes.get_xlabel()


def test_f07_one_pa_of_10000_does_not_hide_the_rest():
    pa = np.concatenate([np.linspace(-20, 20, 99), [10_000.0]])
    axes = plots.pa_distribution([checkpoint(pa), baseline(np.linspace(-20, 20, 100))]).axes[0]
    assert axes.get_xlim()[1] < 100
    assert "mean 100 bp →" in [text.get_text() for text in axes.texts]
    assert "to 10,000 bp" in axes.get_xlabel()


def test_months_are_means_over_checkpoints():
    first = checkpoint([1.0] * 28 + [5.0] * 10, 1, days=38)
    second = checkpoint([3.0] * 28 + [7.0] * 10, 2, days=38)
    axes = plots.pa_by_month([first, second]).axes[0]
    assert tick_labels(axes.xaxis) == ["2023-05\n28 d", "2023-06\n10 d"]
    assert [y for _, y in marks(axes)] == pytest.approx([2.0, 6.0])


def test_a_month_of_a_few_days_has_a_mean_and_no_interval():
    first = np.datetime64("2023-05-04")
    pa = np.arange(33.0)  # 28 days of May, 5 of June
    axes = plots.pa_by_month([checkpoint(pa, days=33, date=first + np.arange(33))]).axes[0]
    assert tick_labels(axes.xaxis) == ["2023-05\n28 d", "2023-06\n5 d"]
    assert [y for _, y in marks(axes)] == pytest.approx([13.5, 30.0])
    may, june = (bars.get_segments()[0] for bars in axes.collections)
    assert may[0, 1] < 13.5 < may[1, 1]
    assert june.size == 0
    assert "from 6 days on" in axes.figure.subtitle


def test_many_months_keep_their_labels_apart():
    axes = plots.pa_by_month([checkpoint(np.ones(900), days=900)]).axes[0]
    assert len(marks(axes)) == 30
    assert len(tick_labels(axes.xaxis)) <= 11


def test_instruments_are_sorted_best_first():
    result = checkpoint([1.0, 5.0, -3.0] * 4, instruments=["A", "B", "C"], days=4)
    axes = plots.pa_by_instrument([result]).axes[0]
    assert tick_labels(axes.yaxis) == ["B", "A", "C"]
    assert [x for x, _ in marks(axes)] == [5.0, 1.0, -3.0]


def test_of_many_instruments_the_extremes_are_shown():
    names = [f"I{i:03d}" for i in range(100)]
    figure = plots.pa_by_instrument([checkpoint(np.arange(100.0), instruments=names, days=7)])
    labels = tick_labels(figure.axes[0].yaxis)
    assert len(labels) == 40
    assert (labels[0], labels[19], labels[20], labels[-1]) == ("I099", "I080", "I019", "I000")
    assert "the 20 best and 20 worst of 100" in figure.subtitle


@pytest.mark.parametrize("draw", [plots.pa_distribution, plots.pa_by_month, plots.pa_by_instrument])
def test_f07_a_note_stands_where_nothing_can_be_drawn(draw):
    for results in ([], [checkpoint([])], [checkpoint([np.nan])]):
        assert "has an order with a PA" in draw(results).axes[0].texts[-1].get_text()


def test_inventory_is_the_mean_over_all_orders_of_all_checkpoints():
    table = order_table([1.0, 2.0])
    first = PolicyResult("checkpoint-0001", "checkpoint", table, 1, 1.0, np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.4]]))
    second = PolicyResult("checkpoint-0002", "checkpoint", table, 2, 1.0, np.array([[1.0, 0.1], [1.0, 0.3]]))
    axes = plots.inventory_paths([first, second, baseline([0.0, 0.0])]).axes[0]
    # the shorter inventory keeps its last value
    assert lines(axes)["chosen checkpoints (n = 2)"].get_ydata().tolist() == pytest.approx([1.0, 0.4, 0.2])
    assert lines(axes)["TWAP"].get_ydata().tolist() == [1.0, 0.5, 0.0]
    assert len(axes.collections) == 2


def test_cumulative_pa_sums_equally_weighted_days():
    first = checkpoint([1.0, 2.0, 3.0, 6.0], 1, days=3)  # day 0 holds 1 and 6
    second = checkpoint([3.0, np.nan, 1.0, 4.0], 2, days=3)
    axes = plots.cumulative_pa([first, second, baseline([0.5] * 4, days=3)]).axes[0]
    drawn = lines(axes)
    assert drawn["chosen checkpoints (n = 2)"].get_ydata().tolist() == [3.5, 5.5, 8.5]
    assert drawn["their mean"].get_ydata().tolist() == [3.5, 5.5, 7.5]
    assert drawn["TWAP"].get_ydata().tolist() == [0.5, 1.0, 1.5]
    other = next(line for line in axes.get_lines() if len(line.get_xdata()) == 2 and line.get_ydata()[0] == 3.5)
    assert other.get_ydata().tolist() == [3.5, 4.5]  # the day without a PA is left out


def test_f07_thin_data_draw_a_point_or_a_note():
    one = lines(plots.cumulative_pa([checkpoint([3.0])]).axes[0])
    assert one["chosen checkpoints (n = 1)"].get_marker() == "o"
    assert "No policy" in plots.cumulative_pa([]).axes[0].texts[-1].get_text()
    assert "No policy" in plots.cumulative_pa([checkpoint([np.nan])]).axes[0].texts[-1].get_text()
    bare = PolicyResult("last", "last", order_table([1.0]))
    assert "No result carries" in plots.inventory_paths([bare]).axes[0].texts[-1].get_text()


def test_what_sees_the_future_is_named_so_and_presses_no_line_together():
    results = [checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2), unattainable([90.0, 80.0], days=2)]
    axes = plots.pa_distribution(results).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "teacher (sees the future)"
    assert "teacher" not in " ".join(lines(plots.cumulative_pa(results).axes[0]))
    assert max(np.max(line.get_ydata()) for line in plots.cumulative_pa(results).axes[0].get_lines()) == 3.0


def test_a_ceiling_is_no_policy_and_in_no_comparing_figure():
    results = [checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2), ceiling([90.0, 80.0], days=2)]
    assert [label.get_text() for label in plots.pa_distribution(results).axes[0].get_yticklabels()] == [
        "checkpoint-0001",
        "TWAP",
    ]
    for figure in (plots.cumulative_pa(results), plots.inventory_paths(results)):
        assert "ceiling" not in " ".join(lines(figure.axes[0]))
    assert max(np.max(line.get_ydata()) for line in plots.cumulative_pa(results).axes[0].get_lines()) == 3.0


def made(**methods):
    return comparison(methods, resamples=100, level=0.5)  # two days give no more


def test_every_method_has_its_row_mean_and_interval():
    table = made(TWAP=baseline([0.0, 0.0], days=2), ours=checkpoint([1.0, 3.0], days=2))
    axes = plots.method_intervals(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["TWAP", "ours"]
    drawn = {(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.get_lines() if line.get_marker() == "o"}
    assert drawn == {(0.0, 0), (2.0, 1)}
    assert axes.yaxis_inverted(), "rows are read from the top"
    spans = [line.get_xdata() for line in axes.get_lines() if line.get_linewidth() == 2]
    assert [1.0, 3.0] in [list(span) for span in spans]
    assert axes.get_xlabel() == "mean PA, bp"


def test_where_twap_is_off_the_difference_is_drawn():
    table = made(TWAP=baseline([1.0, 1.0], days=2), ours=checkpoint([1.0, 3.0], days=2))
    axes = plots.method_intervals(table).axes[0]
    assert axes.get_xlabel() == "mean PA less that of TWAP on the same order, bp"
    drawn = {line.get_xdata()[0] for line in axes.get_lines() if line.get_marker() == "o"}
    assert drawn == {0.0, 1.0}


def test_ceilings_and_methods_without_a_pa_are_not_drawn():
    bound = ceiling([100.0, 100.0], days=2)
    table = made(ours=checkpoint([1.0, 3.0], days=2), none=checkpoint([np.nan, np.nan], days=2), bound=bound)
    axes = plots.method_intervals(table).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours"]
    nothing = plots.method_intervals(made(none=checkpoint([np.nan])))
    assert "No method has a PA" in nothing.axes[0].texts[-1].get_text()


EMPTY = pd.DataFrame(columns=["iteration", "pa"])


def metrics(pa, **columns):
    return pd.DataFrame({"iteration": np.arange(1, len(pa) + 1), "pa": pa}).assign(**columns)


def test_learning_curves_show_training_validation_and_the_chosen():
    train, validation = metrics(np.arange(40.0), reward=0.1), metrics([1.0, np.nan, 3.0], reward=0.2)
    figure = plots.learning_curves(train, validation, chosen=[2, 3])
    pa, reward = figure.axes
    assert (pa.get_ylabel(), reward.get_ylabel()) == ("mean PA, bp", "mean reward an episode (no unit)")
    assert lines(pa)["validation"].get_ydata().tolist() == pytest.approx([1.0, np.nan, 3.0], nan_ok=True)
    assert lines(pa)["chosen (n = 1)"].get_xdata().tolist() == [3]
    assert lines(pa)["training, mean of 2 iterations"].get_ydata()[:3].tolist() == [0.0, 0.5, 1.5]


def test_f07_learning_curves_of_one_iteration_and_of_none():
    one = plots.learning_curves(metrics([1.0]), EMPTY)
    assert lines(one.axes[0])["training"].get_marker() == "o"
    none = plots.learning_curves(EMPTY, metrics([np.nan]))
    assert "Neither training nor validation" in none.axes[0].texts[-1].get_text()
    with pytest.raises(DataError, match="lack the column 'iteration'"):
        plots.learning_curves(metrics([1.0]).drop(columns="iteration"), EMPTY)


def test_validation_against_test_shows_the_points_and_the_fall():
    results = [checkpoint([1.0, 3.0], 1, 5.0, days=2), checkpoint([2.0, 4.0], 2, 6.0, days=2), baseline([0.0, 0.0])]
    axes = plots.validation_against_test(summarise(results), expected_shrinkage=0.5).axes[0]
    points = lines(axes)["chosen checkpoints (n = 2)"]
    assert points.get_xdata().tolist() == [5.0, 6.0]
    assert points.get_ydata().tolist() == [2.0, 3.0]
    assert lines(axes)["their mean"].get_xdata() == [5.5]
    assert "expected if all were equally good (\N{MINUS SIGN}0.50 bp)" in lines(axes)
    assert axes.figure.title == "Mean validation PA 5.50 bp, mean test PA 2.50 bp (\N{MINUS SIGN}3.00 bp)"


def test_f07_validation_against_test_of_one_and_of_none():
    one = plots.validation_against_test(summarise([checkpoint([1.0])]))
    assert "chosen checkpoints (n = 1)" in lines(one.axes[0])
    none = plots.validation_against_test(summarise([baseline([1.0])]))
    assert "No checkpoint has both" in none.axes[0].texts[-1].get_text()


CURVES = pd.DataFrame(
    {"method": ["ppo", "ppo", "dqn"], "iteration": [5, 10, 5], "value": [1.0, 4.5, -1.0], "error": [0.0, 0.0, 0.25]}
)


def test_curves_lie_between_the_lines_of_the_optimum_and_of_twap() -> None:
    (axis,) = plots.certificate_curves(CURVES, optimum=5.0, twap=-0.5).axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines}
    assert drawn["optimum (5.00 bp)"][1] == [5.0, 5.0]
    assert drawn["TWAP (−0.50 bp)"][1] == [-0.5, -0.5]
    assert drawn["ppo (4.50 bp)"] == ([5, 10], [1.0, 4.5])
    assert drawn["dqn (−1.00 bp)"] == ([5], [-1.0])
    (band,) = axis.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (-1.5, -0.5), "two errors; none where values are exact"


def test_what_rounds_to_nothing_has_no_sign() -> None:
    (axis,) = plots.certificate_curves(CURVES, optimum=-1e-13, twap=-0.0).axes
    assert [line.get_label() for line in axis.lines[:2]] == ["optimum (0.00 bp)", "TWAP (0.00 bp)"]


def test_without_curves_it_is_said() -> None:
    (axis,) = plots.certificate_curves(pd.DataFrame(), optimum=5.0).axes
    assert axis.texts[-1].get_text() == "No method was trained."
    with pytest.raises(DataError, match="lack the column 'error'; they have"):
        plots.certificate_curves(CURVES.drop(columns="error"), optimum=5.0)


def test_dots_of_a_path_are_its_fills() -> None:
    price = np.array([[100.0, 101.0, 102.0], [100.0, 99.0, 98.0]])
    filled = np.array([[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]])
    (axis,) = plots.price_paths(price, filled).axes
    np.testing.assert_array_equal([line.get_ydata() for line in axis.lines], price)
    first, second = axis.collections
    np.testing.assert_array_equal(first.get_offsets(), [[0, 100], [1, 101]])
    np.testing.assert_array_equal(second.get_offsets(), [[2, 98]])
    assert first.get_sizes()[0] == 3 * first.get_sizes()[1]
    with pytest.raises(DataError, match=r"shape \(2, 3\) and fills \(2, 2\)"):
        plots.price_paths(price, filled[:, 1:])


def ticks(fills: list[float]) -> pd.DataFrame:
    filled = np.array(fills)
    return pd.DataFrame(
        {
            "time": [dt.time(9, 30 + i) for i in range(len(fills))],
            "price": [10.0, 11.0, np.nan][: len(fills)],
            "filled": filled,
            "left": 4.0 - filled.cumsum(),
        }
    )


def test_an_order_beside_another_policy() -> None:
    upper, lower = plots.order_path({"mine": ticks([1, 3, 0]), "even": ticks([2, 2, 0])}, benchmark=10.5).axes
    labels = [text.get_text() for text in upper.figure.legends[0].get_texts()]
    assert labels == ["TWAP 10.5", "mine: average 10.75", "even: average 10.5"]
    np.testing.assert_allclose(lower.lines[0].get_ydata(), [1, 0.75, 0, 0])


def test_an_order_that_was_never_filled() -> None:
    upper, _ = plots.order_path({"mine": ticks([0, 0, 0])}).axes
    assert "mine" in upper.figure.legends[0].get_texts()[0].get_text()
    plots.order_path({})


def test_parts_of_orders() -> None:
    days = pd.to_datetime(["2024-01-02", "2024-01-02", "2024-01-03"])
    table = pd.DataFrame({"date": days, "amount": [10.0, 100.0, 1000.0]})
    upper, lower = plots.order_parts({"training": table, "empty": table.iloc[:0]}).axes
    assert [bar.get_height() for bar in upper.patches] == [2, 1]
    assert upper.figure.legends[0].get_texts()[0].get_text() == "training: 3 orders, 2 d"
    assert lower.get_xscale() == "log"
    plots.order_parts({})


@pytest.fixture(scope="module")
def market() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=3, days=15))


def test_every_figure_of_a_market_is_drawn(market: Sessions) -> None:
    markets = {"a": market, "b": market}
    (tails,) = plots.return_tails(markets).axes
    assert [line.get_label().partition(":")[0] for line in tails.lines] == ["a", "b", "normal law"]
    (clusters,) = plots.volatility_clustering(markets, lags=5).axes
    np.testing.assert_allclose(clusters.lines[0].get_ydata(), facts.volatility_autocorrelation(market, 5))
    (profiles,) = plots.intraday_profiles(market).axes
    drawn = np.asarray(profiles.lines[1].get_ydata())
    np.testing.assert_allclose(drawn[np.isfinite(drawn)], facts.volume_profile(market))
    (reversion,) = plots.mean_reversion(markets, longest=6).axes
    assert reversion.lines[0].get_ydata()[0] == pytest.approx(1.0)
    assert reversion.lines[0].get_ydata()[-1] == pytest.approx(facts.variance_ratio(market, 6))


def test_busy_bars_move_more(market: Sessions) -> None:
    (axis,) = plots.volume_and_volatility(market, bins=4).axes
    heights = [bar.get_height() for bar in axis.patches]
    assert len(heights) == 4
    assert heights[0] < heights[-1]


def test_a_session_has_times_below_it(market: Sessions) -> None:
    upper, lower = plots.session_bars(market, 2).axes
    assert lower.get_xticklabels()[0].get_text() == "09:30"
    assert upper.lines[0].get_ydata()[3] == market.fields["close"][2, 3]


def test_a_market_without_prices_draws_all_the_same() -> None:
    empty = np.full((1, 240), np.nan)
    fields = dict.fromkeys(("open", "high", "low", "close", "volume"), empty)
    dates = np.array(["2024-01-02"], dtype="datetime64[D]")
    sessions = Sessions(Calendar.preset("cn"), np.array(["A"]), dates, np.array([240], dtype=np.int32), fields)
    plots.session_bars(sessions, 0)
    plots.mean_reversion({"empty": sessions}, longest=3)


def test_k10_no_text_of_a_figure_is_a_formula() -> None:
    results = CASES["k10: text is text"]
    figure = plots.cumulative_pa(results)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "$a_b$ and $c^d$" in legend
    assert "\N{NO-BREAK SPACE}_hidden" in legend
    assert not any(text.get_parse_math() for text in figure.findobj(Text))
    figure.savefig(io.BytesIO())  # as a notebook does, outside of the style
    rows = plots.pa_by_instrument(results)
    assert {"$\\frac{1}$", "a|b\\c", "a<A>b<9>c", "<b>&amp;"} <= set(tick_labels(rows.axes[0].yaxis))
    rows.savefig(io.BytesIO())


def test_k10_a_title_is_text() -> None:
    assert style.canvas("$A$-20240102-B and 🦆")[0].title == "$A$-20240102-B and <1F986>"
