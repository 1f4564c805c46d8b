"""Sweeps whose members are acted: what a run leaves is made up, so that only the sweep itself is at work."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.evaluation import COLUMNS, SUMMARY_COLUMNS, PolicyResult
from rlwb.evaluation.overfitting import superiority
from rlwb.experiment.backtest import read_results, write_results
from rlwb.experiment.own_code import TRUST_ENV
from rlwb.experiment.run import RunDirectory
from rlwb.files import locked
from rlwb.seeds import generator
from rlwb.study import sweep as room
from rlwb.study.collect import Collected
from rlwb.study.launch import Handle, Job, Launcher
from rlwb.study.sweep import launch_sweep

SMALL = ["market.instruments=2", "market.days=30", "train.iterations=3", "backtest.bootstrap_samples=200"]
ORDERS = 40


def orders(pa: np.ndarray, amount: float = 1.0) -> pd.DataFrame:
    count = len(pa)
    return pd.DataFrame(
        {
            "order_id": [f"o{number}" for number in range(count)],
            "instrument": "A",
            "date": pd.Timestamp("2024-03-04") + pd.to_timedelta(np.arange(count) % 10, unit="D"),
            "amount": amount,
            "valued": 1.0,
            "benchmark": 10.0,
            "pa": pa,
            "pa_net": pa,
            "ffr": 1.0,
            "untraded": 0.0,
        }
    )


def finish(
    run: RunDirectory,
    *,
    amount: float = 1.0,
    more: Callable[[np.ndarray, int], Sequence[PolicyResult]] = lambda luck, seed: (),
) -> None:
    """Leave what a whole run leaves, its PA by its penalty and seed; `more` results by the luck of the days."""
    config = run.config
    skill = config.reward.settings["penalty"] / 10 + config.seed
    luck = np.random.default_rng(0).normal(0, 5, ORDERS)  # of the days, the same for all
    results = [
        PolicyResult("checkpoint-0003", "checkpoint", orders(luck + skill, amount), 3, skill),
        PolicyResult("last", "last", orders(luck + skill - 1, amount), 3),
        PolicyResult("twap", "baseline", orders(np.zeros(ORDERS), amount)),
        PolicyResult("hindsight", "ceiling", orders(np.full(ORDERS, 90.0), amount)),
        *more(luck, config.seed),
    ]
    write_results(run.backtest, results)
    rows = [(one.policy, one.kind, one.iteration, one.validation_pa) for one in results]
    table = pd.DataFrame(rows, columns=["policy", "kind", "iteration", "validation_pa"])
    table.reindex(columns=list(SUMMARY_COLUMNS)).to_csv(run.backtest / "summary.csv", index=False)
    own = results[0].pa.mean()
    head = {"n": 1, "validation_pa": skill, "pa_mean": own, "pa_lo": own - 1, "pa_hi": own + 1}
    pd.DataFrame([head]).to_csv(run.backtest / "headline.csv", index=False)
    run.metrics.mkdir(exist_ok=True)
    pd.DataFrame({"iteration": [1, 2, 3], "pa": [0.0, skill / 2, skill]}).to_csv(
        run.metrics / "validation.csv", index=False
    )
    run.report.write_text("a report")
    run.update_status(state="finished")


@dataclass
class Acted(Launcher):
    """Runs that are done at once, or fail with the next exit code of their list, or stop the sweep."""

    codes: dict[str, list[int]] = field(default_factory=dict)
    stop_at: str = ""
    do: Callable[[RunDirectory], None] = finish
    workers: int = 2
    interval: float = 0.0
    started: list[str] = field(default_factory=list)
    words: list[tuple[str, ...]] = field(default_factory=list)

    def start(self, job: Job) -> Handle:
        if job.name == self.stop_at:
            raise KeyboardInterrupt
        self.started.append(job.name)
        self.words.append(job.words)
        job.log.parent.mkdir(exist_ok=True)
        job.log.write_text(f"{job.name} says <hello>\n")
        run = RunDirectory.open(job.words[-1])
        code = self.codes.get(job.name, [0]).pop(0) if self.codes.get(job.name) else 0
        if code == 0:
            self.do(run)
        else:
            failure = {"stage": "train", "error": "the market burnt down"}
            run.update_status(state="failed", failure=failure)
        return _Done(code)

    def close(self) -> None:
        pass


@dataclass
class _Done:
    code: int

    def poll(self) -> int | None:
        return self.code

    def stop(self) -> None:
        pass


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Acted]:
    def made(**how: Any) -> Acted:
        launcher = Acted(**how)
        monkeypatch.setattr(room, "make_launcher", lambda *_, **__: launcher)
        return launcher

    return made


def go(folder: Path, *, echo: Callable[[str], None] = lambda line: None, **words: Any) -> Collected:
    return launch_sweep(None, words.pop("changes", [] if words.get("resume") else SMALL), folder, echo=echo, **words)


def test_members_are_runs_of_their_own_and_are_collected(tmp_path: Path, act: Callable[..., Acted]) -> None:
    launcher = act()
    found = go(tmp_path / "s", seeds="8")
    names = [f"seed-{seed}" for seed in range(8)]
    assert launcher.started == names
    assert launcher.words[0] == ("run", "--resume", "--trust-code", "--run-dir", str(tmp_path / "s" / "seed-0"))
    assert [RunDirectory(tmp_path / "s" / name).config.seed for name in names] == list(range(8))
    assert {RunDirectory(tmp_path / "s" / name).config.orders.settings["seed"] for name in names} == {0}
    members = pd.read_csv(tmp_path / "s" / "sweep.csv")
    luck = np.random.default_rng(0).normal(0, 5, ORDERS).mean()
    assert members["member"].tolist() == names
    assert members["pa_mean"].tolist() == pytest.approx([2 + seed + luck for seed in range(8)])  # penalty 20 gives 2
    assert members["pa_last"].tolist() == pytest.approx([1 + seed + luck for seed in range(8)])
    assert (members["state"] == "finished").all()
    seeds = pd.read_csv(tmp_path / "s" / "seeds.csv", keep_default_na=False, na_values=[""])
    row = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "pa")].iloc[0]
    assert (row["seeds"], row["days"]) == (8, 10)
    assert (row["mean"], row["iqm"]) == pytest.approx((5.5 + luck, 5.5 + luck))
    assert row["std_seeds"] == pytest.approx(np.std(range(8), ddof=1))
    assert row["mean_lo"] < row["mean_seeds_lo"] < row["mean"]
    twap = seeds[(seeds["policy"] == "twap") & (seeds["metric"] == "pa")].iloc[0]
    assert (twap["seeds"], twap["mean"]) == (1, 0.0)
    over = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "over_rule")].iloc[0]
    same = seeds[(seeds["policy"] == "checkpoints") & (seeds["metric"] == "pa")].iloc[0]
    assert over["mean"] == pytest.approx(same["mean"]), "the only rule is TWAP, whose PA is 0"
    assert found.failed == ()
    text = (tmp_path / "s" / "sweep.md").read_text()
    assert "8 trainings" in text
    assert "the same test orders" in text
    page = (tmp_path / "s" / "sweep.html").read_text()
    assert page.count("<figure>") == 2
    assert '<a href="seed-7/report.html">seed-7</a>' in page


def test_trainings_stand_beside_the_best_rule_of_their_own_run_and_beside_what_is_attainable(
    tmp_path: Path, act: Callable[..., Acted]
) -> None:
    def more(luck: np.ndarray, seed: int) -> list[PolicyResult]:
        """A rule that is below TWAP in the first runs and above in the others, and an optimum of 0 on average."""
        rule = PolicyResult("forecast", "baseline", orders(np.full(ORDERS, seed - 3.5)))
        return [rule, PolicyResult("filter_optimum", "attainable", orders(luck - luck.mean() + 1e-3))]

    act(do=partial(finish, more=more))
    found = go(tmp_path / "s", seeds="8")
    assert found.table is not None
    own = found.seeds[(found.seeds["policy"] == "checkpoints") & (found.seeds["metric"] == "over_rule")].iloc[0]
    luck = np.random.default_rng(0).normal(0, 5, ORDERS).mean()
    over = [2 + seed + luck - max(seed - 3.5, 0.0) for seed in range(8)]
    assert own["mean"] == pytest.approx(np.mean(over))
    first = found.table.notes[0]
    assert "that of each run (TWAP or forecast rule)" in first
    assert f"{np.mean(over):.2f} bp" in first
    (told,) = [note for note in found.table.notes if note.startswith("Of the attainable")]
    assert "say little" in told, "the optimum is not told from nothing"


def test_one_seed_is_called_one_seed(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    said: list[str] = []
    found = go(tmp_path / "s", seeds="1", echo=said.append)
    assert any(line.startswith("1 member, ") for line in said)
    assert found.table is not None
    assert "one seed" in found.text
    (row,) = found.seeds[(found.seeds["policy"] == "checkpoints") & (found.seeds["metric"] == "pa")].to_dict("records")
    assert np.isnan([row["mean_lo"], row["mean_hi"], row["std_seeds"]]).all()
    assert np.isfinite([row["mean_days_lo"], row["mean_days_hi"]]).all()
    cells = dict(zip(found.table.header[:4], found.table.rows[0][:4], strict=True))
    assert cells["seeds"] == "1"
    assert cells["95 % interval, bp"] == "-"


def test_settings_are_compared_and_the_choice_is_by_validation(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    found = go(tmp_path / "s", seeds="0,1,2,3,4,5,6", grid=["reward.penalty=10,20"])
    assert found.members["member"].iloc[[0, 7]].tolist() == ["penalty-10-seed-0", "penalty-20-seed-0"]
    assert found.members["reward.penalty"].tolist() == [10] * 7 + [20] * 7
    better = found.improvement.set_index(["of", "over"])["probability"]
    # Of 49 pairs of 1 + s and 2 + t, x > y holds where s > t + 1: 15 times, and s = t + 1 ties 6 times.
    assert better["penalty-10/checkpoints", "penalty-20/checkpoints"] == pytest.approx((15 + 6 / 2) / 49)
    assert better["penalty-20/checkpoints", "penalty-10/checkpoints"] == pytest.approx(1 - 18 / 49)
    assert ("penalty-10/checkpoints", "/twap") in better.index
    assert not [name for name in better.index if "hindsight" in name[1] or "last" in name[0]]
    assert "it is reward.penalty = 20 (5.00 bp)" in found.text
    # All fourteen trade alike but for a constant, and the best of them lies above the chosen ones' mean.
    luck = np.random.default_rng(0).normal(0, 5, ORDERS)
    skills = [skill for number in range(7) for skill in (1 + number, 2 + number)]
    dates = read_results(RunDirectory(found.folder / "penalty-10-seed-0"))[0].dates
    days = pd.Series(luck, dates).groupby(level=0).mean()
    excess = days.to_numpy()[:, None] + np.array([*skills, 5.0])
    p = superiority(excess, days.index.to_numpy(), generator(0), resamples=200)[-1]
    assert "none of the 14 trainings better than TWAP" in found.text
    assert f"with a probability of {p:.3f} " in found.text


def test_a_failed_member_is_tried_again_and_then_reported_everywhere(
    tmp_path: Path, act: Callable[..., Acted], capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = act(codes={"seed-1": [-9, 1], "seed-2": [-9, 0]})
    words = [word for change in SMALL for word in ("--set", change)]
    with pytest.raises(SystemExit) as ended:
        cli.main(["sweep", "--seeds", "3", *words, "--run-dir", str(tmp_path / "s")])
    assert ended.value.code == 1
    assert launcher.started.count("seed-1") == launcher.started.count("seed-2") == 2
    out = capsys.readouterr().out
    assert "seed-1: failed (killed by SIGKILL, then exit code 1)" in out
    assert "seed-2: killed by SIGKILL, then done" in out
    assert "Failed, and so in no figure: seed-1." in out
    members = pd.read_csv(tmp_path / "s" / "sweep.csv").set_index("member")
    assert members.loc["seed-1", ["state", "attempts"]].tolist() == ["failed", 2]
    assert members.loc["seed-1", "failure"] == "train: the market burnt down"
    assert np.isnan(members.loc["seed-1", "pa_mean"])
    assert "Failed, and so in no figure: seed-1." in (tmp_path / "s" / "sweep.md").read_text()
    page = (tmp_path / "s" / "sweep.html").read_text()
    assert "1 failed" in page
    assert "seed-1 says &lt;hello&gt;" in page
    # Only what failed is done by a resume, which then is whole.
    launcher = act()
    with pytest.raises(SystemExit) as ended:
        cli.main(["sweep", "--resume", "--run-dir", str(tmp_path / "s"), "--json"])
    assert ended.value.code == 0
    assert launcher.started == ["seed-1"]
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] == []
    assert {row["exits"] for row in told["members"]} == {"kept", "done"}


def test_a_sweep_of_which_nothing_is_done_says_so(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act(codes={"seed-0": [1, 1, 1]})
    found = go(tmp_path / "s", seeds="1", attempts=3)
    assert (found.table, found.failed) == (None, ("seed-0",))
    assert "seed-0" in found.text
    assert found.members["attempts"].tolist() == [3]
    assert "seed-0" in (tmp_path / "s" / "sweep.html").read_text()


def test_a_killed_sweep_goes_on_as_it_was_begun(tmp_path: Path, act: Callable[..., Acted]) -> None:
    said: list[str] = []
    act(stop_at="penalty-20-seed-0")
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "s", seeds="0,3", grid=["reward.penalty=10,20"], echo=said.append)
    resume = re.search(r"rlwb sweep --resume --run-dir \S+", said[-1])
    assert resume is not None
    launcher = act()
    found = go(tmp_path / "s", resume=True, echo=said.append)
    assert launcher.started == ["penalty-20-seed-0", "penalty-20-seed-3"]
    assert any("2 are done already" in line for line in said)
    assert found.members["member"].tolist() == [
        f"penalty-{penalty}-seed-{seed}" for penalty in (10, 20) for seed in (0, 3)
    ]
    act(stop_at="none")
    assert go(tmp_path / "s", resume=True).members["exits"].tolist() == ["kept"] * 4


def test_seeds_are_added_to_a_sweep_but_none_is_left_out(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="2")
    launcher = act()
    assert len(go(tmp_path / "s", resume=True, seeds="4").members) == 4
    assert launcher.started == ["seed-2", "seed-3"]
    with pytest.raises(ConfigError, match="seed-2, seed-3"):
        go(tmp_path / "s", resume=True, seeds="2")


@pytest.mark.parametrize("place", ["seed-1", "seed-1/windows/1"])
def test_policies_that_somebody_has_put_into_a_member_are_not_run_unasked(
    tmp_path: Path, act: Callable[..., Acted], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    act()
    go(tmp_path / "s", seeds="2")
    run = RunDirectory(tmp_path / "s" / place)
    (run.path / "policies").mkdir(parents=True)
    (run.path / "status.json").touch()
    (run.path / "policies" / "trap.py").write_text("def rule(obs): ...\n")
    (run.path / "policies" / "policies.json").write_text('{"trap": "policies/trap.py:rule"}')
    monkeypatch.delenv(TRUST_ENV, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(ConfigError, match=r"the policy trap.*--trust-code"):
        go(tmp_path / "s", resume=True)


def test_other_settings_do_not_move_what_is_done(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="2")
    run = RunDirectory(tmp_path / "s" / "seed-0")
    from rlwb.experiment.stages import TRAIN, settings_of

    run.update_stage("train", {"state": "finished", "settings": settings_of(TRAIN, run.config)})
    with pytest.raises(ConfigError, match=r"reward\.penalty"):
        go(tmp_path / "s", resume=True, seeds="2", changes=[*SMALL, "reward.penalty=3"])
    with pytest.raises(ConfigError, match="--resume"):
        go(tmp_path / "s", seeds="2")


def test_corrected_words_without_seeds_leave_the_seeds_as_they_were(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act(codes={"seed-0": [1, 1], "seed-4": [1, 1]})
    go(tmp_path / "s", seeds="0,4")
    act()
    found = go(tmp_path / "s", resume=True, changes=[*SMALL, "reward.penalty=30"])
    assert found.members["seed"].tolist() == [0, 4]
    with pytest.raises(ConfigError, match="--seeds"):
        go(tmp_path / "new", seeds="")


def test_a_failed_member_may_be_corrected(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act(codes={"seed-0": [1], "seed-1": [1]})
    go(tmp_path / "s", seeds="2", attempts=1)
    act()
    go(tmp_path / "s", resume=True, seeds="2", changes=[*SMALL, "reward.penalty=30"])
    assert RunDirectory(tmp_path / "s" / "seed-1").config.reward.settings["penalty"] == 30


@pytest.mark.parametrize(
    "words",
    [
        {"grid": ["reward.penality=1,2"]},
        {"grid": ["train.iterations=3,none"]},
        {"grid": ["network=mlp,mlpp"]},
        {"seeds": "many"},
        {"changes": ["market.source=/nowhere"]},
        {"changes": [*SMALL, "backtest.top=50"]},
    ],
)
def test_a_mistyped_sweep_leaves_nothing(tmp_path: Path, act: Callable[..., Acted], words: dict[str, Any]) -> None:
    act()
    with pytest.raises(ConfigError):
        go(tmp_path / "s", **words)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("launcher", ["proceses", "{name: processes, worker: 3}", "[1]", "{workers: 3}"])
def test_a_mistyped_launcher_leaves_nothing(tmp_path: Path, launcher: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["sweep", "--seeds", "1", "--launcher", launcher, "--run-dir", str(tmp_path / "s")])
    assert ended.value.code == 2
    assert not (tmp_path / "s").exists()


def test_a_memory_that_was_changed_is_refused(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="1")
    memory = tmp_path / "s" / "sweep.yaml"
    memory.write_text(memory.read_text().replace("penalty: 20", "penalty: 21"))
    with pytest.raises(ConfigError, match=r"sweep\.yaml"):
        go(tmp_path / "s", resume=True)


def test_resuming_nothing_or_nowhere_is_refused(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    with pytest.raises(ConfigError, match="no sweep"):
        go(tmp_path, resume=True)
    with pytest.raises(ConfigError, match="--run-dir"):
        launch_sweep(None, [], None, resume=True)
    (tmp_path / "other.txt").touch()
    with pytest.raises(ConfigError, match="something"):
        go(tmp_path, seeds="1")


def test_two_processes_do_not_work_on_one_sweep(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="1")
    with locked(tmp_path / "s" / ".lock"), pytest.raises(ConfigError, match="another process"):
        go(tmp_path / "s", resume=True)


def test_members_whose_orders_differ_are_told(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act(do=lambda run: finish(run, amount=1.0 + run.config.seed))
    found = go(tmp_path / "s", seeds="2")
    assert "did not all trade the same test orders" in found.text


def test_code_of_ones_own_is_kept_and_asked_for(
    tmp_path: Path, act: Callable[..., Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from rlwb.execution.rewards import PAPenaltyReward\nclass Mine(PAPenaltyReward):\n"
        "    def __init__(self, penalty: float = 20.0):\n        super().__init__(penalty)\n"
    )
    act()
    go(tmp_path / "s", seeds="1", changes=[*SMALL, f"reward={file}:Mine"])
    file.unlink()
    (kept,) = (tmp_path / "s" / "code").glob("*/mine.py")
    assert "Mine" in kept.read_text()
    act()
    assert go(tmp_path / "s", resume=True, seeds="2").failed == ()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="--trust-code"):
        go(tmp_path / "s", resume=True)
    assert go(tmp_path / "s", resume=True, trust_code=True).failed == ()


def test_where_someone_watches_a_bar_shows_how_far_members_are(
    tmp_path: Path, act: Callable[..., Acted], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(room, "progress_mode", lambda: "bar")
    act(codes={"seed-1": [1, 1]})
    said: list[str] = []
    go(tmp_path / "s", seeds="3", echo=said.append)
    assert "3/3" in capsys.readouterr().err
    assert [line.partition(":")[0] for line in said[2:]] == ["seed-0", "seed-1", "seed-2"]
    act()
    monkeypatch.setattr(room, "progress_mode", lambda: "none")
    go(tmp_path / "t", seeds="1")
    assert capsys.readouterr().err == ""


def test_where_a_member_is_is_read_from_its_run(
    tmp_path: Path, act: Callable[..., Acted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LINE_SECONDS", 0.0)
    looks = iter([None, None, None, 0])

    class Slow(_Done):
        def poll(self) -> int | None:
            return next(looks)

    def trains(run: RunDirectory) -> None:
        finish(run)
        run.checkpoints.mkdir()
        (run.checkpoints / "0002.pt").touch()
        run.update_stage("train", {"state": "running"})

    launcher = act(do=trains)
    monkeypatch.setattr(launcher, "start", lambda job: (Acted.start(launcher, job), Slow(0))[1])
    said: list[str] = []
    go(tmp_path / "s", seeds="1", echo=said.append)
    assert "running: seed-0 (iteration 2 of 3)" in said


def test_columns_are_those_of_the_data_dictionary(tmp_path: Path, act: Callable[..., Acted]) -> None:
    act()
    go(tmp_path / "s", seeds="2", grid=["reward.penalty=10,20"])
    for name in ("sweep", "seeds", "improvement", "profiles"):
        columns = set(pd.read_csv(tmp_path / "s" / f"{name}.csv").columns)
        assert columns - COLUMNS.keys() == ({"reward.penalty"} if name in ("sweep", "seeds") else set())
