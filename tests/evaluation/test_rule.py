"""The best simple rule, the learner beside it, and the share of what is attainable."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rlwb.evaluation import comparison, headline, metric_table
from rlwb.evaluation.metrics import Beside, metric_values, wide
from rlwb.evaluation.results import best_rule
from rlwb.evaluation.seeds import Trainings, seed_table
from rlwb.evaluation.tables import rule_verdict
from tests.evaluation.tables import attainable, baseline, ceiling, checkpoint

DAYS = 8


def rows(pa, **others):
    """Make results of as many orders as `pa`, over 8 days: two checkpoints that gain `pa` and 2 more, and others."""
    own = [checkpoint(pa, 1, days=DAYS), checkpoint(np.asarray(pa) + 2.0, 2, days=DAYS)]
    return [*own, *(baseline(values, name, days=DAYS) for name, values in others.items())]


def of(table, policy, metric):
    return table.frame.set_index("policy").loc[policy, metric]


def test_the_rule_is_the_best_by_validation_where_all_have_one_else_the_best_on_these_orders():
    twap, forecast = baseline([0.0, 0.0]), baseline([1.0, 2.0], "forecast")
    assert best_rule([checkpoint([9.0, 9.0]), twap, forecast]) is forecast
    judged = [replace(twap, validation_pa=0.0), replace(forecast, validation_pa=-1.0)]
    assert best_rule(judged).policy == "twap"
    assert best_rule([judged[0], forecast]) is forecast, "one of them was not validated"
    assert best_rule([checkpoint([9.0, 9.0]), ceiling([90.0, 90.0]), attainable([9.0, 9.0])]) is None
    dear = baseline([1.0, 2.0], "forecast", pa_net=[-1.0, -2.0])
    assert best_rule([baseline([0.0, 0.0], pa_net=[-0.5, -0.5]), dear]).policy == "twap", "after costs"


def test_a_part_that_stands_twice_is_told_apart_by_the_settings_that_are_not_its_defaults():
    titles = {
        "forecast-control=none-abstain=false": "forecast rule",
        "forecast-control=none-abstain=true": "forecast rule with abstain=true",
        "forecast-control=stale-blocks=4": "forecast rule with control=stale, blocks=4",
        "filter_optimum-knows_volatility=false": "filter optimum",
        "filter_optimum-knows_volatility=true": "filter optimum with known volatility",
        "almgren_chriss-risk_aversion=null": "Almgren-Chriss",
        "almgren_chriss-urgency=3.0": "Almgren-Chriss",
        "almgren_chriss-urgency=-1.0e-06": "Almgren-Chriss with urgency=-1.0e-06",
        "mpc-forecast=ar": "mpc",
        "Own-x=1": "Own with x=1",
        "checkpoint-0012": "checkpoint-0012",
    }
    assert {name: baseline([0.0], name).title for name in titles} == titles


def test_a_control_is_no_rule_to_beat_however_much_it_gains():
    pa = np.arange(16.0)
    results = rows(pa, twap=np.zeros(16), forecast=pa - 3.0)
    spoilt = replace(baseline(pa + 9.0, "forecast-control=stale", days=DAYS), kind="control")
    table = headline([*results, spoilt])
    assert table.rule == headline(results).rule
    assert "forecast rule with control=stale (control)" in [row[0] for row in table.rows]
    assert any(note.startswith("Controls") and "control=stale" in note for note in table.notes)
    assert best_rule([checkpoint(pa), spoilt]) is None


def test_differences_are_paired_and_those_of_checkpoints_their_mean():
    pa = np.arange(16.0)
    results = rows(pa, twap=np.zeros(16), forecast=pa - 3.0)
    table = headline(results)
    assert table.rule.rule == "forecast"
    assert of(table, "checkpoints", "over_rule") == pytest.approx((3.0 + 5.0) / 2)
    assert of(table, "checkpoints", "over_rule_lo") == pytest.approx(4.0), "the same on every order"
    assert of(table, "twap", "over_rule") == pytest.approx(-(7.5 - 3.0))
    assert of(table, "forecast", "over_rule") == 0.0


def test_the_first_note_says_whether_the_learner_beats_the_rule():
    noise = np.random.default_rng(0).normal(size=400)
    above = headline(rows(noise + 5.0, twap=np.zeros(400), forecast=noise + 1.0))
    assert above.rule.beats is True
    assert above.notes[0] == above.rule.sentence
    assert "beats the best simple rule, forecast rule: 5.00 bp of PA an order more" in above.notes[0]
    below = headline(rows(noise, twap=np.zeros(400), forecast=noise + 3.0))
    assert below.rule.beats is False
    assert "does worse than the best simple rule, forecast rule: 2.00 bp of PA an order less" in below.notes[0]
    other = np.random.default_rng(1).normal(size=400)
    near = headline(rows(30 * noise, twap=np.zeros(400), forecast=30 * other))
    assert near.frame["over_rule_lo"].iloc[0] < 0 < near.frame["over_rule_hi"].iloc[0]
    assert near.rule.beats is False
    assert "is not shown to beat the best simple rule" in near.notes[0]


def test_under_an_objective_the_rule_is_chosen_and_the_learner_compared_by_it():
    pa = np.arange(16.0)
    bold = baseline(pa + 9.0, "forecast", days=DAYS, objective=pa - 5.0)
    calm = baseline(pa, "twap", days=DAYS, objective=pa)
    own = checkpoint(pa + 3.0, days=DAYS, objective=pa - 2.0)
    assert best_rule([own, bold, calm]) is calm
    table = headline([own, bold, calm])
    assert of(table, "checkpoints", "over_rule") == pytest.approx(-2.0), "by the PA it would be 3"
    assert "does worse than the best simple rule, TWAP: 2.00 bp of the objective less" in table.notes[0]
    bound = headline([own, calm, ceiling(pa + 20.0, days=DAYS)])
    assert math.isnan(of(bound, "hindsight", "over_rule")), "which has no objective"


def test_after_costs_the_learner_is_compared_by_its_net_pa():
    pa = np.arange(16.0)
    own, rule = checkpoint(pa, days=DAYS, pa_net=pa - 3.0), baseline(pa, days=DAYS, pa_net=pa - 1.0)
    assert of(headline([own, rule]), "checkpoints", "over_rule") == pytest.approx(-2.0)
    assert "2.00 bp of net PA an order less" in headline([own, rule]).notes[0]


def test_how_the_rule_was_chosen_is_said():
    pa = np.arange(16.0)
    results = rows(pa, twap=np.zeros(16), forecast=pa)
    assert "best of 2 on these orders themselves, which flatters it" in headline(results).notes[0]
    validated = [replace(one, validation_pa=1.0) if one.kind == "baseline" else one for one in results]
    assert "best of 2 by validation" in headline(validated).notes[0]
    assert "best of" not in headline(rows(pa, twap=np.zeros(16))).notes[0]


def test_few_days_and_no_rule_say_nothing_that_is_not_known():
    few = [checkpoint([4.0, 6.0], days=2), baseline([0.0, 0.0], days=2)]
    table = headline(few)
    assert table.rule.beats is None
    assert "by so few days" in table.notes[0]
    rule = baseline(np.ones(16))
    told = rule_verdict(rule, (1.0, math.nan, math.nan), 0.95, [rule], "trainings or days").sentence
    assert "cannot, by so few trainings or days, be told from the best simple rule, TWAP" in told
    alone = headline([checkpoint([4.0, 6.0], days=2)])
    assert alone.rule is None
    assert not any("simple rule" in note for note in alone.notes)


def test_the_share_of_the_attainable_is_a_ratio_of_means_over_the_orders_that_both_have():
    own, most = checkpoint([2.0, 4.0, np.nan]), attainable([4.0, 6.0, 90.0])
    assert metric_values(own, attainable=most)["attained"] == pytest.approx(6.0 / 10.0)
    assert math.isnan(metric_values(own)["attained"])
    assert math.isnan(metric_values(own, attainable=attainable([-4.0, 1.0, 0.0]))["attained"]), "nothing to be had"
    rounding = attainable([-1e-13, 4e-13, 0.0])
    assert math.isnan(metric_values(own, attainable=rounding)["attained"]), "a gain of rounding has no shares"


def test_the_share_stands_in_the_table_with_its_interval_and_for_the_first_attainable():
    pa = np.linspace(1.0, 3.0, 32)
    results = [*rows(pa, twap=np.zeros(32)), attainable(2 * pa, days=DAYS), attainable(9 * pa, "other", days=DAYS)]
    table = headline(results)
    column = table.header.index("of the attainable")
    shown = {row[0]: row[column] for row in table.rows}
    assert shown["filter optimum (attainable)"] == "100.0 % [100.0, 100.0]"
    assert shown["TWAP"] == "0.0 % [0.0, 0.0]"
    assert of(table, "checkpoints", "attained") == pytest.approx((0.5 + (pa + 2).mean() / (2 * pa.mean())) / 2)
    assert any("share of that of the filter optimum" in note for note in table.notes)
    assert "of the attainable" not in headline(rows(pa, twap=np.zeros(32))).header


def test_the_note_on_the_share_says_where_the_attainable_is_not_told_from_nothing():
    pa = np.random.default_rng(0).normal(size=64)
    noisy = 10 * np.random.default_rng(1).normal(size=64)
    doubtful = headline([*rows(pa), attainable(noisy - noisy.mean() + 0.1, days=DAYS)])
    assert [note for note in doubtful.notes if note.startswith("Of the attainable") and "say little" in note]
    sure = headline([*rows(pa), attainable(pa + 9.0, days=DAYS)])
    assert [note for note in sure.notes if note.startswith("Of the attainable") and "say little" not in note]
    nothing = headline([*rows(pa), attainable(np.zeros(64), days=DAYS)])
    assert "of the attainable" not in nothing.header
    assert not [note for note in nothing.notes if note.startswith("Of the attainable")], "a column that is not there"


def test_the_comparison_has_both_and_names_them():
    pa = np.linspace(1.0, 3.0, 32)
    beside = {
        "twap": baseline(np.zeros(32), days=DAYS),
        "forecast": baseline(pa - 1.0, "forecast", days=DAYS),
        "filter_optimum": attainable(2 * pa, days=DAYS),
        "ppo": checkpoint(pa, days=DAYS),
    }
    table = comparison(beside)
    last = dict(zip(table.header, table.rows[-1], strict=True))
    assert last["over the best rule, bp"] == "1.00 [1.00, 1.00]"
    assert last["of the attainable"] == "50.0 % [50.0, 50.0]"
    assert any("less forecast rule, order by order" in note for note in table.notes)
    without = comparison({name: one for name, one in beside.items() if name in ("twap", "ppo")})
    assert not {"over the best rule, bp", "of the attainable"} & set(without.header), "TWAP has its own column"


def test_tables_of_fewer_metrics_can_be_read():
    """Runs of before have no row of these metrics."""
    table = metric_table({"twap": [baseline([0.0, 1.0])]})
    old = table[~table["metric"].isin(["over_rule", "attained"])]
    assert wide(old)["attained"].isna().all()


def test_seeds_are_compared_with_the_rule_and_the_attainable_of_their_own_run():
    pa = np.linspace(1.0, 3.0, 32)
    beside = Beside(None, baseline(pa - 1.0, "forecast", days=DAYS), attainable(2 * pa, days=DAYS))
    members = [[checkpoint(pa + skill, days=DAYS)] for skill in (0.0, 1.0, 5.0)]
    table = seed_table({"mine": Trainings("mine", "checkpoint", members, [beside] * 3)}, resamples=200)
    found = table.set_index("metric")["mean"]
    assert found["over_rule"] == pytest.approx((1.0 + 2.0 + 6.0) / 3)
    assert found["attained"] == pytest.approx(np.mean([0.5, 3.0 / 4.0, 7.0 / 4.0]))
