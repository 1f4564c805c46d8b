import math

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.evaluation import PolicyResult, comparison, headline
from rlwb.evaluation.tables import Table
from tests.evaluation.tables import baseline, ceiling, checkpoint, order_table, unattainable


def example():
    last = PolicyResult("last", "last", order_table([2.0, 2.0, 0.0, 0.0], days=2), 9, 1.0)
    return [
        checkpoint([1.0, 2.0, 3.0, -2.0], 3, 5.0, days=2),
        checkpoint([3.0, 4.0, 5.0, 0.0], 6, 4.0, days=2),
        baseline([0.0] * 4, days=2),
        last,
    ]


def test_hand_computed_table():
    frame = headline(example()).frame.set_index("policy")
    assert list(frame.index) == ["checkpoints", "last", "twap"]
    assert list(frame["title"]) == ["best checkpoints by validation (n = 2)", "last checkpoint", "TWAP"]
    best = frame.iloc[0]
    assert best["n"] == 2
    assert best["pa_mean"] == pytest.approx((1.0 + 3.0) / 2)
    assert best["pa_std_checkpoints"] == pytest.approx(math.sqrt(2.0))
    assert best["validation_pa"] == pytest.approx(4.5)
    assert best["win_rate"] == pytest.approx(0.75)
    assert (best["orders"], best["days"]) == (4, 2)
    assert math.isnan(frame.loc["twap", "pa_std_checkpoints"])


def test_a_table_of_one_run_says_that_it_is_one_seed():
    assert any("one seed" in note for note in headline(example()).notes)


def test_text_and_markdown_say_what_a_reader_must_know():
    table = headline(example())
    for text in (table.to_text(), table.to_markdown()):
        assert "2.00 ± 1.41" in text
        assert "10 checkpoints were asked for; there are only n = 2 to use." in text
        assert "standard deviation over the 2 checkpoints" in text
        assert "95 % interval" in text
        assert "4 test orders on 2 days from 2023-05-04 to 2023-05-05" in text
        assert "2.50 bp above their test PA" in text
    markdown = table.to_markdown().splitlines()
    assert {line.count("|") for line in markdown[:5]} == {9}
    rows = table.to_text().splitlines()[2:5]
    assert [row.split()[-2:] for row in rows] == [["100.0", "%"]] * 3


def test_f03_nine_of_ten_say_nine():
    results = [checkpoint([1.0, 2.0], i, days=2) for i in range(1, 10)]
    table = headline(results, requested=10)
    assert table.frame["n"].iloc[0] == 9
    assert "10 checkpoints were asked for; there are only n = 9 to use." in table.to_text()
    assert "Only" not in headline(results, requested=9).to_text()


def test_missing_pas_are_counted_and_one_day_is_explained():
    table = headline([checkpoint([1.0, np.nan]), baseline([np.nan, np.nan], "vwap")])
    assert "best checkpoints by validation (n = 1): 1, VWAP: 2" in table.to_text()
    assert "One day of orders gives no interval" in table.to_text()
    assert table.to_text().splitlines()[3].split() == ["VWAP", "1", "-", "-", "-", "-", "-", "100.0", "%"]


def test_rounding_noise_prints_as_zero():
    text = headline([checkpoint([-1e-13, -1e-13], days=2)]).to_text()
    assert "-0.00" not in text


def test_no_checkpoint_and_other_orders_are_refused():
    with pytest.raises(DataError, match="at least one checkpoint"):
        headline([baseline([1.0])])
    with pytest.raises(DataError, match="same orders"):
        headline([checkpoint([1.0]), baseline([1.0, 2.0])])


def test_where_rules_cut_twap_its_own_pa_is_the_mark_to_beat():
    # TWAP made 3 and 1, the checkpoint 2 and 2: each beats 0, and the checkpoint has nothing over TWAP.
    table = headline([checkpoint([2.0, 2.0], days=2), baseline([3.0, 1.0], days=2)], level=0.5)
    row = table.frame.iloc[0]
    assert row["pa_mean"] == 2.0
    assert row["over_twap"] == pytest.approx(0.0)
    assert row["over_twap_lo"] < 0 < row["over_twap_hi"]
    assert "over TWAP, bp" in table.to_text()
    assert "TWAP's own PA is not 0 here" in table.to_text()


def test_over_twap_is_not_shown_where_it_would_repeat_the_pa():
    table = headline([checkpoint([2.0, 2.0], days=2), baseline([0.0, 0.0], days=2)])
    assert table.frame["over_twap"].tolist() == [2.0, 0.0]
    assert "over TWAP" not in table.to_text()
    assert headline([checkpoint([2.0, 2.0], days=2)]).frame["over_twap"].isna().all()


def test_flattery_by_choice_is_not_claimed_where_nothing_was_chosen():
    results = [checkpoint([1.0, 2.0], i, validation_pa=3.0, days=2) for i in range(1, 4)]
    assert "selection bias" in headline(results, candidates=40).to_text()
    assert "selection bias" not in headline(results, candidates=3).to_text()
    assert "1.50 bp above their test PA." in headline(results, candidates=3).to_text()


def test_a_mean_of_exactly_zero_is_explained():
    results = [checkpoint([5.0, -5.0], 1, days=2), checkpoint([5.0, 1.0], 2, days=2), baseline([0.0, 0.0], days=2)]
    text = headline(results).to_text()
    assert "1 of the chosen checkpoints among them" in text
    assert "because their PAs cancel" in text
    assert "PAs cancel" not in headline([results[1], results[2]]).to_text()


def test_what_sees_the_future_is_the_last_row_and_called_unattainable():
    oracle = unattainable([40.0, 60.0], days=2)
    table = headline([oracle, checkpoint([2.0, 4.0], days=2), baseline([0.0, 0.0], days=2)])
    assert table.frame["title"].tolist()[1:] == ["TWAP", "teacher (sees the future)"]
    assert table.frame["kind"].iloc[-1] == "unattainable"
    assert table.frame["pa_mean"].tolist() == [3.0, 0.0, 50.0]
    for text in (table.to_text(), table.to_markdown()):
        assert "Not attainable by trading: teacher." in text
    assert "attainable" not in headline(example()).to_text()


def test_a_ceiling_is_the_last_row_and_told_from_policies():
    bounds = [ceiling([40.0, 60.0], days=2), ceiling([50.0, 60.0], "hindsight_uncapped", days=2)]
    table = headline([*bounds, checkpoint([2.0, 4.0], days=2), baseline([0.0, 0.0], days=2)])
    names = ["TWAP", "hindsight (ceiling)", "hindsight without cap (ceiling)"]
    assert table.frame["title"].tolist()[1:] == names
    assert table.frame["pa_mean"].tolist() == [3.0, 0.0, 50.0, 55.0]
    assert table.frame["over_twap"].tolist() == [3.0, 0.0, 50.0, 55.0]
    text = table.to_text()
    assert "no policy passes it on any order" in text
    assert "It does not bound policies" in text
    assert "does not bound" not in headline([bounds[0], checkpoint([2.0, 4.0], days=2)]).to_text()
    assert "ceiling" not in headline(example()).to_text()


def test_a_ceiling_says_nothing_of_twaps_own_advantage():
    # It has a PA on the order of which TWAP filled nothing, so its mean and its mean over TWAP are of different orders.
    results = [checkpoint([2.0, np.nan], days=2), baseline([0.0, np.nan], days=2), ceiling([40.0, 60.0], days=2)]
    table = headline(results)
    assert table.frame["over_twap"].tolist() == [2.0, 0.0, 40.0]
    assert "over TWAP" not in table.to_text()
    assert "TWAP's own PA is not 0" not in table.to_text()


def test_with_costs_a_net_column_and_what_it_has_over_twap_stand_beside_the_pa():
    # After costs the checkpoint has 1 and -1, TWAP -2 and -2: net 0, and 2 over TWAP. Validation 2 was net as well.
    ours = checkpoint([3.0, 1.0], days=2, pa_net=[1.0, -1.0])
    table = headline([ours, baseline([0.0, 0.0], days=2, pa_net=[-2.0, -2.0])], level=0.5)
    row = table.frame.iloc[0]
    assert (row["pa_mean"], row["pa_net"], row["net_over_twap"]) == (2.0, 0.0, 2.0)
    assert row["pa_net_lo"] < 0.0 < row["pa_net_hi"]
    head = table.to_text().splitlines()[0]
    assert "net PA, bp  " in head
    assert "net over TWAP, bp" in head
    assert "  over TWAP, bp" not in head
    assert "net validation PA was 2.00 bp, 2.00 bp above their net test PA" in table.to_text()
    assert "by net PA" in table.to_text()


def test_without_costs_nothing_is_said_of_them():
    ours, even = checkpoint([3.0, 1.0], days=2, pa_net=[3.0, 1.0]), baseline([0.0, 0.0], days=2, pa_net=[0.0, 0.0])
    plain = headline([checkpoint([3.0, 1.0], days=2), baseline([0.0, 0.0], days=2)])
    assert headline([ours, even]).to_markdown() == plain.to_markdown()
    assert "net" not in plain.to_text()


def test_j01_fills_in_untraded_bars_stand_in_the_table_where_there_are_any():
    quiet = headline([checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2)])
    assert "in untraded bars" not in quiet.header
    mixed = checkpoint([1.0, 2.0, 3.0], days=2, untraded=[0.75, 0.0, math.nan])
    table = headline([mixed, baseline([0.0, 0.0, 0.0], days=2)])
    place = table.header.index("in untraded bars")
    assert [row[place] for row in table.rows] == ["37.5 %", "0.0 %"]  # the order that filled nothing has no share
    assert any("volume_limit" in note for note in table.notes)
    assert table.frame["untraded"].tolist() == [0.375, 0.0]
    other = comparison({"one": mixed, "two": baseline([0.0, 0.0, 0.0], days=2)})
    assert "in untraded bars" in other.header


def test_j13_chosen_checkpoints_with_the_same_figures_are_counted():
    same = [checkpoint([1.0, 2.0], i, days=2) for i in (1, 2, 3)]
    other = checkpoint([1.0, np.nextafter(2.0, 3.0)], 4, days=2)
    table = headline([*same, other, baseline([0.0, 0.0], days=2)])
    assert table.rows[0][1] == "4 (2 differ)"
    assert table.rows[1][1] == "1"
    assert table.frame["distinct"].tolist() == [2, 1]
    assert any("4 chosen checkpoints only 2 differ in" in note for note in table.notes)
    assert any("3 chosen checkpoints only 1 differs in" in note for note in headline(same).notes)
    two = headline([same[0], other])
    assert two.rows[0][1] == "2"
    assert not any("figures on the test" in note for note in two.notes)


def test_j13_the_sequence_of_the_orders_and_what_is_missing_make_no_difference():
    one = checkpoint([1.0, math.nan, 3.0], 1, days=3)
    shuffled = checkpoint([1.0, math.nan, 3.0], 2, days=3)
    shuffled = PolicyResult(shuffled.policy, "checkpoint", shuffled.orders.iloc[[2, 0, 1]], 2, 2.0)
    less = checkpoint([1.0, math.nan, 3.0], 3, days=3, ffr=[1.0, 0.5, 1.0])
    assert headline([one, shuffled, less]).frame["distinct"].tolist() == [2]


def test_k10_names_are_text_in_markdown_and_in_a_terminal() -> None:
    metrics = pd.DataFrame()
    names = ("$a$ and $b$", "a|b", "<b>x</b>", "*x* _y_ `z`", "a\\b", "a\nb")
    table = Table(("policy", "PA"), tuple((name, "[1.00, -2.00]") for name in names), ("a_b of $x$",), metrics, 0.95)
    lines = table.to_markdown().splitlines()
    assert lines[2:8] == [
        r"| \$a\$ and \$b\$ | [1.00, -2.00] |",
        r"| a\|b | [1.00, -2.00] |",
        r"| \<b\>x\</b\> | [1.00, -2.00] |",
        r"| \*x\* \_y\_ \`z\` | [1.00, -2.00] |",
        r"| a\\b | [1.00, -2.00] |",
        "| a b | [1.00, -2.00] |",
    ]
    assert lines[9] == r"- a\_b of \$x\$"
    assert "a b          [1.00, -2.00]" in table.to_text().splitlines()
