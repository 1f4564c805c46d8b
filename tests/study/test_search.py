"""Searches of a small learner and of rules, their workers in this process unless they are to be killed."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rlwb.errors import ConfigError, RlwbError
from rlwb.evaluation.overfitting import mean_of_largest
from rlwb.experiment.config import parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.market import Calendar
from rlwb.study.search import Search, launch_search, work
from rlwb.study.search_report import over_seeds, write_report
from rlwb.study.space import Dimension, Space
from rlwb.study.store import SearchSettings, Store, maximise
from rlwb.study.trial import Pruned, train_trial
from tests.market.helpers import random_bars

ROOT = Path(__file__).resolve().parents[2]
INLINE = {"name": "tests.study.inline:Inline"}
RATE = {"value": 0.001, "search": {"low": 1e-4, "high": 1e-1, "log": True}}
SMALL: dict[str, Any] = {
    "market": {"name": "synthetic", "instruments": 3, "days": 30},
    "network": {"name": "recurrent", "hidden": {"value": 4, "search": [2, 4]}},
    "algorithm": {"name": "ppo", "learning_rate": RATE, "repeat": 1, "batch_size": 100},
    "train": {"iterations": 3, "episodes_per_iteration": 40},
}


def config_file(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(dump_yaml({**SMALL, **changes}))
    return path


def searched(
    folder: Path, *changes: str, rules: tuple[str, ...] = (), config: dict[str, Any] | None = None, **given: Any
) -> Search:
    """Return a search with one worker, seen through."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"trials": 4, "sampler": "tpe", "pruner": "none", "confirm": 0, "fresh_seeds": 0, **given}
    test = settings.pop("test", False)
    file = config_file(folder, **(config or {}))
    launch_search(
        file,
        changes,
        folder / "search",
        rules=rules,
        given=settings,
        launcher=INLINE,
        test=test,
        echo=lambda line: None,
    )
    return Search.open(folder / "search")


def values_of(search: Search) -> pd.DataFrame:
    """Return what trials found, without what a clock says."""
    return pd.read_csv(search.folder / "search.csv", float_precision="round_trip").drop(columns="seconds")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Search:
    folder = tmp_path_factory.mktemp("done")
    return searched(folder, rules=("pov", "almgren_chriss"), confirm=2, fresh_seeds=2, test=True)


def test_each_trial_is_a_run_without_test_orders_judged_by_its_best_validation(done: Search) -> None:
    frame = values_of(done).query("study == 'learner'")
    assert list(frame["trial"]) == [0, 1, 2, 3]
    assert list(frame["state"]) == ["complete"] * 4
    for row in frame.itertuples():
        run = RunDirectory.open(done.trial_path(row.trial))
        assert {path.name for path in run.orders.iterdir()} == {"train.parquet", "valid.parquet", "data.json"}
        assert not run.backtest.exists()
        assert set(run.status["stages"]) == {"orders", "train"}
        log = pd.read_csv(run.metrics / "validation.csv", float_precision="round_trip").set_index("iteration")["pa"]
        assert (row.pa, row.iteration, row.iterations) == (log.max(), log.idxmax(), 3)
        terms = done.terms("learner", row.trial)
        assert terms is not None
        assert np.nanmean(terms) == pytest.approx(row.pa, abs=1e-9)
        assert run.config == done.config_of("learner", row.trial).model_copy(update={"train": run.config.train}), (
            "a trial's run is what its settings make; it keeps fewer checkpoints"
        )


def test_the_first_trial_has_the_configuration_s_own_values(done: Search) -> None:
    assert done.store.trials("learner")[0].params == {"network.hidden": 4, "algorithm.learning_rate": 0.001}
    assert done.store.trials("almgren_chriss")[0].params == {"baselines[3].urgency": 3.0}


def test_orders_are_made_once_a_seed_and_shared(done: Search) -> None:
    shared = done.folder / "orders" / "seed-0" / "orders"
    inodes = {(done.trial_path(number) / "orders" / "train.parquet").stat().st_ino for number in range(4)}
    assert inodes == {(shared / "train.parquet").stat().st_ino}
    assert sorted(path.name for path in (done.folder / "orders").glob("seed-*")) == ["seed-0", "seed-1", "seed-2"]


def test_rules_have_as_many_trials_and_stand_in_the_same_table(done: Search) -> None:
    counts = values_of(done).groupby("study").size()
    assert counts.to_dict() == {"learner": 4, "pov": 4, "almgren_chriss": 4}
    text = (done.folder / "search.md").read_text()
    for name in ("learner", "pov", "almgren_chriss"):
        assert f"| {name} | 4 |" in text
        assert f"{name}: 4 trials looked at (4 complete)" in text


def test_a_rule_of_a_trial_trades_as_in_a_run(done: Search, tmp_path: Path) -> None:
    """The value of a rule is that of the same baseline on the validation orders, played by the library."""
    from rlwb.execution import AmountActionInterpreter, KnownStateInterpreter
    from rlwb.experiment.backtest import play
    from rlwb.experiment.orders import load_orders, workbench

    row = values_of(done).query("study == 'almgren_chriss'").iloc[-1]
    orders = done.orders(0)
    bench = workbench(orders, done.config_of("almgren_chriss", int(row["trial"])))
    baseline = bench.make("baseline", bench.config.baselines[3])
    assert baseline.urgency == row["baselines[3].urgency"]
    baseline.fit(bench.align(load_orders(orders, bench, "train")))
    valid = bench.align(load_orders(orders, bench, "valid"))
    pa = play(bench, (baseline, KnownStateInterpreter(), AmountActionInterpreter()), valid).metrics["pa"]
    assert row["pa"] == pytest.approx(np.nanmean(pa), abs=1e-9)
    assert row["std"] > 0


def test_the_best_are_done_again_on_seeds_that_the_search_has_not_seen(done: Search) -> None:
    known = json.loads((done.folder / "search.json").read_text())
    for name in done.studies:
        best = [one.number for one in done.best(name, 2)]
        best += [0] if done.space.own(name) and 0 not in best else []  # the configuration's own values
        fresh = [done.fresh_figures(one) for one in done.fresh() if one.study == name]
        assert [(one["trial"], one["seed"]) for one in fresh if one] == [(n, s) for n in best for s in (1, 2)]
        means = {n: np.mean([one["figures"]["pa"] for one in fresh if one and one["trial"] == n]) for n in best}
        assert known["winners"][name] == max(means, key=lambda number: means[number])
    winner = known["winners"]["learner"]
    for seed in (1, 2):
        run = RunDirectory.open(done.folder / "fresh" / f"learner-{winner:06d}-seed-{seed}")
        assert run.config.seed == seed
        assert not (run.orders / "test.parquet").exists()


def test_the_test_orders_are_judged_once(done: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    known = json.loads(done.test_path.read_text())
    assert [(row["study"], row["seed"]) for row in known["rows"]] == [
        (name, seed) for name in done.studies for seed in (1, 2)
    ]
    assert "on the test orders of the fresh seeds, once" in (done.folder / "search.md").read_text()
    before = done.test_path.read_bytes()
    again = launch_search(None, [], done.folder, launcher=INLINE, resume=True, test=True, echo=lambda line: None)
    assert done.test_path.read_bytes() == before
    assert "test: PA, bp" in again.header
    with pytest.raises(ConfigError, match="already"):
        launch_search(None, [], done.folder, given={"trials": 9}, launcher=INLINE, resume=True)


def test_the_interval_over_seeds_is_student_s() -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    mean, sem = np.mean(values), stats.sem(values)
    lo, hi = stats.t.interval(0.95, 3, mean, sem)
    assert over_seeds(values) == pytest.approx((mean, lo, hi))
    assert over_seeds(values).below(10.0) == pytest.approx((10 - mean, 10 - hi, 10 - lo))
    assert over_seeds([-0.001, -0.001, -0.002]).told() == "0.00 [0.00, 0.00]"
    alone = over_seeds([3.0])
    assert alone.mean == 3
    assert math.isnan(alone.lo)


def test_luck_is_that_of_the_best_of_as_many_as_were_looked_at(done: Search) -> None:
    from rlwb.study.search_report import luck

    error, alike, explained = luck(done, "learner")
    assert error > 0
    assert 0 <= alike <= 1
    assert explained == pytest.approx(error * math.sqrt(1 - alike) * mean_of_largest(4, 1))


def test_the_best_is_held_against_twap_with_all_trials_counted(done: Search) -> None:
    from rlwb.evaluation.overfitting import superiority
    from rlwb.experiment.orders import load_orders, workbench
    from rlwb.seeds import generator
    from rlwb.study.search_report import superiority_of

    orders = done.orders(done.config.seed)
    dates = load_orders(orders, workbench(orders), "valid").set_index("order_id")["date"]
    p, tried = superiority_of(done, "learner")
    assert tried == len(done.counted("learner")) == 4
    # TWAP's PA is 0 on every order here.
    terms = np.stack([done.terms("learner", number) for number in range(4)], axis=1)
    best = int(np.argmax([one.values[0] for one in done.store.trials("learner")]))
    expected = superiority(terms, dates.to_numpy(), generator(done.config.seed), resamples=1000)
    assert p == expected[best] == 1.0  # so short a training trades buys and sells alike, which gains nothing
    assert f"learner {p:.3f} (4 trials)" in (done.folder / "search.md").read_text()


def test_the_page_has_the_history_and_a_plot_of_each_setting(done: Search) -> None:
    page = (done.folder / "search.html").read_text()
    assert page.count("<figure>") == 2 * len(done.studies)
    assert "learner: the best of 4" in page


def test_nothing_depends_on_the_test_part(tmp_path: Path) -> None:
    """Prices of the test days that are four times as high change no figure of a search."""
    days = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-01-02", "2024-01-26")]
    calendar = Calendar.preset("cn", tick_minutes=30, label="end")
    bars = random_bars(calendar, ["000001", "000002"], days)
    found = []
    for name in ("as they are", "poisoned"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "poisoned":
            test = pd.read_parquet(found[0].folder / "orders" / "seed-0" / "orders" / "test.parquet")
            late = pd.to_datetime(bars["datetime"]) >= test["date"].min()
            assert 0 < late.sum() < len(bars)
            bars.loc[late, ["open", "high", "low", "close"]] *= 4
        bars.to_csv(folder / "bars.csv", index=False)
        market = {"source": "bars.csv", "calendar": {"preset": "cn", "tick_minutes": 30, "label": "end"}}
        found.append(searched(folder, rules=("almgren_chriss",), config={"market": market}, trials=2))
    first, second = map(values_of, found)
    assert len(first) == 4
    pd.testing.assert_frame_equal(first, second, check_exact=True)


def test_a_search_that_is_taken_up_is_the_one_that_was_never_stopped(done: Search, tmp_path: Path) -> None:
    part = searched(tmp_path, rules=("pov", "almgren_chriss"), trials=2)
    assert (values_of(part)["study"] == "learner").sum() == 2
    launch_search(None, [], part.folder, given={"trials": 4}, launcher=INLINE, resume=True, echo=lambda line: None)
    pd.testing.assert_frame_equal(values_of(done), values_of(part), check_exact=True)
    assert (part.folder / "trials" / "000000").is_dir()


#: A worker that is killed in its second iteration.
WORKER = """
import os, signal, sys
from pathlib import Path
from rlwb.study import search, trial
def killed(self, trainer, vessel):
    if trainer.current_iter == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(self, trainer, vessel)
original, trial.Watch.on_iter_end = trial.Watch.on_iter_end, killed
search.work(Path(sys.argv[1]))
"""


def test_a_killed_worker_costs_no_result(done: Search, tmp_path: Path) -> None:
    """Its trial is marked as dead, goes on where it stopped, and ends as if nothing had happened."""
    settings = SearchSettings(trials=1, confirm=0, fresh_seeds=0)
    search = Search(tmp_path / "search", settings, Space.read(done.space.layers[:2]))
    search.folder.mkdir()
    search.save()
    search.orders(0)
    search.begin()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.run([sys.executable, "-c", WORKER, str(search.folder)], env=environment, cwd=ROOT, check=False)
    assert process.returncode == -signal.SIGKILL
    launch_search(None, [], search.folder, launcher=INLINE, resume=True, echo=lambda line: None)
    frame = values_of(search)
    assert list(frame["state"]) == ["dead", "complete"]
    assert frame["again_of"].iloc[1] == 0
    before = values_of(done).query("study == 'learner'").iloc[0]
    for name in ("pa", "std", "iteration", "iterations", "network.hidden", "algorithm.learning_rate"):
        assert frame[name].iloc[1] == before[name], name
    assert len(RunDirectory.open(search.trial_path(1)).manifest["resumed"]) == 1, "it was taken up"
    assert not search.trial_path(0).exists()
    assert "1 trial looked at (1 dead, 1 complete)" in (search.folder / "search.md").read_text()


def test_a_pruned_training_is_interrupted_and_can_be_seen_to_its_end(done: Search, tmp_path: Path) -> None:
    config, orders = done.config_of("learner", 0), done.orders(0)
    with pytest.raises(Pruned) as caught:
        train_trial(tmp_path / "trial", config, orders, lambda iteration, value: iteration == 2)
    run = RunDirectory.open(tmp_path / "trial")
    assert run.state == "interrupted"
    assert caught.value.found is not None
    assert list(caught.value.found.history) == [1, 2]
    told: list[int] = []
    found = train_trial(run.path, config, orders, lambda iteration, value: bool(told.append(iteration)))
    assert told == [1, 2, 3], "what was validated before is told again"
    assert run.state == "finished"
    assert found.figures["pa"] == values_of(done).query("study == 'learner'")["pa"].iloc[0]
    again = train_trial(run.path, config, orders)
    assert (again.figures, again.history) == (found.figures, found.history), "of a training that is done already"


@pytest.mark.parametrize("pruner", ["median", "hyperband", "none"])
def test_poor_trials_are_pruned_and_count(pruner: str) -> None:
    settings = SearchSettings.model_validate({"trials": 20, "sampler": "random", "pruner": pruner})
    store = Store(settings, {"one": [Dimension("x", "float", (), 0.0, 1.0)]}, 0, iterations=9)
    store.begin("one")
    pruned, whole = [], []
    while (trial := store.take("one")) is not None:
        for iteration in range(1, 10):
            trial.report(trial.params["x"] * iteration, iteration)
            if trial.should_prune():
                store.finish("one", trial, None, pruned=True)
                pruned.append(trial.params["x"])
                break
        else:
            store.finish("one", trial, [trial.params["x"] * 9])
            whole.append(trial.params["x"])
    assert len(pruned) + len(whole) == 20
    assert bool(pruned) == (pruner != "none")
    if pruned:
        assert max(whole) > max(pruned)
        assert np.mean(whole) > np.mean(pruned)


def test_settings_that_fail_are_told_and_the_search_goes_on(tmp_path: Path) -> None:
    """A cap below the rate is refused when the rule is made; other values of the same search are not."""
    pov = {"name": "pov", "rate": {"value": 0.1, "search": [0.05, 0.1]}, "cap": {"value": 0.2, "search": [0.07, 0.2]}}
    search = searched(tmp_path, config={**plain(), "baselines": ["twap", pov]}, sampler="grid")
    frame = values_of(search)
    assert list(frame["state"]) == ["complete", "complete", "failed", "complete"]
    failed = frame[frame["state"] == "failed"].iloc[0]
    assert (failed["baselines[1].rate"], failed["baselines[1].cap"]) == (0.1, 0.07)
    assert "cap" in failed["error"]
    assert "4 trials looked at (3 complete, 1 failed)" in (search.folder / "search.md").read_text()


def plain() -> dict[str, Any]:
    """Return the small configuration without a space for the learner."""
    return {
        "network": {"name": "mlp", "hidden": 8},
        "algorithm": {"name": "ppo", "repeat": 1, "batch_size": 100},
    }


def test_a_search_whose_first_trials_all_fail_ends_with_the_reason(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text(
        "from rlwb.errors import DataError\nfrom rlwb.execution import Baseline\n\n\n"
        "class Torn(Baseline):\n    def __init__(self, engine, by: int = 1):\n        super().__init__(engine)\n\n"
        "    def act(self, known, noise=None):\n        raise DataError('the tape is torn; mend it.')\n"
    )
    torn = {"name": "mine.py:Torn", "by": {"value": 1, "search": list(range(1, 20))}}
    with pytest.raises(RlwbError, match=r"all 5 trials of Torn .*the tape is torn"):
        searched(tmp_path, config={**plain(), "baselines": ["twap", torn]}, trials=12)


def test_two_objectives_give_a_front(tmp_path: Path) -> None:
    search = searched(tmp_path, config=plain(), rules=("almgren_chriss",), objectives=("pa", "std"), trials=12)
    best = search.best("almgren_chriss", 99)
    frame = values_of(search)
    for one in best:
        pa, std = one.values
        passed = frame[(frame["pa"] >= pa) & (frame["std"] <= std)]
        assert {(row.pa, row.std) for row in passed.itertuples()} == {(pa, std)}
    assert "that no other passes" in (search.folder / "search.md").read_text()
    with pytest.raises(ConfigError, match="--pruner median"):
        searched(tmp_path / "other", objectives=("pa", "std"), pruner="median")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"trials": 0}, "--trials is 0"),
        ({"sampler": "tpee"}, "did you mean 'tpe'"),
        ({"objectives": ("std",)}, "--objectives std"),
        ({"confirm": 2, "fresh_seeds": 0}, "--confirm and --fresh-seeds"),
        ({"test": True}, "--test"),
    ],
)
def test_what_cannot_be_asked_for_is_named_before_any_work(tmp_path: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        searched(tmp_path, **given)
    assert not (tmp_path / "search").exists()


def test_an_end_of_a_space_that_the_network_refuses_is_told_before_any_work(tmp_path: Path) -> None:
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        if not line.startswith("warning"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch_search(
            config_file(tmp_path),
            ("network.hidden={value: 4, search: [4, 0]}",),
            tmp_path / "search",
            launcher=INLINE,
            echo=tell,
        )
    assert re.match(r"warning: the search of network\.hidden cannot take 0: .*width", told[0])


def test_a_configuration_without_a_space_and_one_over_windows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        searched(tmp_path, config=plain())
    with pytest.raises(ConfigError, match=r"split\.rolling"):
        searched(tmp_path, "split.rolling={train_days: 5, valid_days: 5, test_days: 5}")


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path, done: Search) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="choose another"):
        searched(tmp_path)
    with pytest.raises(ConfigError, match="--resume"):
        launch_search(config_file(tmp_path), [], done.folder, launcher=INLINE)
    with pytest.raises(ConfigError, match="no search"):
        launch_search(None, [], tmp_path / "search", launcher=INLINE, resume=True)
    with pytest.raises(ConfigError, match="begun with"):
        launch_search(None, [], done.folder, given={"sampler": "gp"}, launcher=INLINE, resume=True)


def bowl(chosen: dict[str, Any]) -> float:
    return -((np.log10(chosen["algorithm.learning_rate"]) + 3) ** 2)


@pytest.mark.parametrize("sampler", ["grid", "random", "tpe", "gp"])
def test_one_worker_repeats_a_search_exactly(sampler: str) -> None:
    space = Space.read([parse_assignments(["algorithm.learning_rate={search: {low: 1e-5, high: 1e-1, log: true}}"])])
    settings = SearchSettings.model_validate({"trials": 14, "sampler": sampler})
    first = space.grid("learner", 14) if sampler == "grid" else []
    values = [maximise(bowl, space.of("learner"), settings, seed, first) for seed in (0, 0, 1)]
    assert len(values[0]) == 14
    assert values[0] == values[1]
    assert (values[0] == values[2]) == (sampler == "grid")


def test_what_a_kill_left_of_a_line_does_not_spoil_the_journal(tmp_path: Path) -> None:
    dimensions = {"one": [Dimension("x", "float", (), 0.0, 1.0)]}
    store = Store(SearchSettings(trials=3), dimensions, 0, tmp_path)
    store.begin("one")
    with store.worker() as worker:
        assert store.take("one", worker) is not None
    journal = tmp_path / "studies.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 5, "worker')
    other = Store(SearchSettings(trials=3), dimensions, 0, tmp_path)
    assert other.mend_all() == [("one", 0)]
    assert journal.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_dead_trials_are_given_out_once_more_and_do_not_count(tmp_path: Path) -> None:
    dimensions = {"one": [Dimension("x", "float", (), 0.0, 1.0)]}
    store = Store(SearchSettings(trials=3, sampler="random"), dimensions, 0, tmp_path)
    store.begin("one")
    taken = []
    for _ in range(2):  # both the trial and its second try die
        with store.worker() as worker:
            trial = store.take("one", worker)
            assert trial is not None
            taken.append(trial)
    assert taken[1].params == taken[0].params
    with store.worker() as worker:
        done = 0
        while (trial := store.take("one", worker)) is not None:
            assert trial.params != taken[0].params
            store.finish("one", trial, [1.0])
            done += 1
    assert done == 3
    assert store.is_done("one")


def test_a_cell_of_a_grid_that_was_given_up_is_named(tmp_path: Path) -> None:
    changes = ("algorithm.learning_rate=0.001", "network.hidden={value: 4, search: [2, 4]}")
    space = Space.read([Layer("test", SMALL), parse_assignments(changes)])
    search = Search(tmp_path, SearchSettings(trials=2, sampler="grid", confirm=0, fresh_seeds=0), space)
    search.begin()
    for _ in range(3):  # both cells, then the first once more
        with search.store.worker() as worker:
            assert search.store.take("learner", worker) is not None
    search.store.mend_all()
    assert [(one.number, one.params) for one in search.given_up("learner")] == [(2, {"network.hidden": 2})]
    assert any("trial 2 of learner" in note for note in write_report(search).notes)


def test_settings_whose_trial_was_stopped_are_given_out_until_they_are_done(tmp_path: Path) -> None:
    """A stop is the user's doing; a long trial, or a cell of a grid, may be stopped every evening."""
    dimensions = {"one": [Dimension("x", "choice", (("a", "a"), ("b", "b")))]}
    store = Store(SearchSettings(trials=2, sampler="grid"), dimensions, 0, tmp_path)
    store.begin("one", [{"x": "a"}, {"x": "b"}])
    for _ in range(5):
        with store.worker() as worker:
            trial = store.take("one", worker)
            assert trial is not None
            store.note_stop(trial)
    with store.worker() as worker:
        done = []
        while (trial := store.take("one", worker)) is not None:
            done.append(trial.params["x"])
            store.finish("one", trial, [1.0])
    assert sorted(done) == ["a", "b"]


def test_a_stopped_worker_notes_that_it_was_stopped(
    done: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SearchSettings(trials=1, confirm=0, fresh_seeds=0)
    search = Search(tmp_path / "search", settings, Space.read(done.space.layers[:2]))
    search.folder.mkdir()
    search.save()
    search.begin()

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr("rlwb.study.search._found", stopped)
            with pytest.raises(KeyboardInterrupt):
                work(search.folder)
    launch_search(None, [], search.folder, launcher=INLINE, resume=True, echo=lambda line: None)
    frame = values_of(search)
    assert list(frame["state"]) == ["dead", "dead", "dead", "complete"]
    assert frame["algorithm.learning_rate"].nunique() == 1, "its settings were done at last"


def test_one_fresh_seed_is_called_one_seed(tmp_path: Path) -> None:
    plain = {"network": {"name": "recurrent", "hidden": 4}, "algorithm": "ppo"}
    search = searched(tmp_path, rules=("pov",), config=plain, trials=2, confirm=1, fresh_seeds=1)
    told = (search.folder / "search.md").read_text()
    assert "one seed (1)" in told
    assert "Student" not in told, "of one seed there is no interval"


def test_a_living_worker_keeps_its_trial(tmp_path: Path) -> None:
    dimensions = {"one": [Dimension("x", "float", (), 0.0, 1.0)]}
    settings = SearchSettings(trials=2, storage="sqlite")
    store, other = (Store(settings, dimensions, 0, tmp_path) for _ in range(2))
    store.begin("one")
    other.begin("one")
    with store.worker() as first, other.worker() as second:
        mine, theirs = store.take("one", first), other.take("one", second)
        assert mine is not None
        assert theirs is not None
        assert {mine.number, theirs.number} == {0, 1}
        assert store.take("one", first) is None, "no more than were asked for"
        assert other.mend_all() == []


def test_a_worker_has_nothing_to_do_in_a_search_that_is_done(done: Search) -> None:
    before = (done.folder / "studies.log").read_bytes()
    work(done.folder)
    assert (done.folder / "studies.log").read_bytes() == before
