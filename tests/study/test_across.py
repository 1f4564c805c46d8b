"""`rlwb compare RUN...`: runs beside one another, paired where that is right and nowhere else."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.evaluation import PolicyResult
from rlwb.experiment.backtest import write_headline, write_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory, write_sealed
from rlwb.study.across import Across, compare_runs, write_across
from tests.evaluation.tables import baseline, checkpoint

PA = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, -6.0, 5.0, 3.0, 5.0, -8.0])
DAYS = 6


def made(path: Path, pa: Sequence[float] = PA, *, amount: float = 10.0, price: float = 10.0, **values: Any) -> Path:
    """Make a run whose two chosen checkpoints have these PAs, one above and one below them by 1 bp."""
    given = {"backtest.bootstrap_samples": 200, **{name.replace("__", "."): one for name, one in values.items()}}
    config = RunConfig.load(None, Layer("test", given))
    run = RunDirectory.create(path, config)
    known = {"days": DAYS, "amount": amount, "twap": price, "arrival": price, "direction": "BUY", "reward": 0.0}
    moved = [checkpoint(np.add(pa, by), number, **known) for number, by in ((1, 1.0), (2, -1.0))]
    results: list[PolicyResult] = [*moved, baseline(np.zeros(len(pa)), **known)]
    costs = config.execution.rules.commission_bps
    results = [
        PolicyResult(
            *(one.policy, one.kind, one.orders.assign(pa_net=one.orders["pa"] - costs)),
            *(one.iteration, one.validation_pa, one.inventory),
        )
        for one in results
    ]
    write_results(run.backtest, results)
    write_headline(run.backtest, results, config)
    run.metrics.mkdir()
    log = pd.DataFrame({"iteration": [1, 2], "pa": [0.5, 1.5], "pa_net": [0.5, 1.5]})
    log.to_csv(run.metrics / "validation.csv", index=False)
    run.update_status(state="finished", stages={"backtest": {"state": "finished"}})
    return path


def rows(found: Across, part: int = 0) -> dict[str, dict[str, Any]]:
    return {row["title"]: row for row in found.parts[part].table.frame.to_dict("records")}


def test_runs_on_the_same_orders_are_paired_order_by_order(tmp_path: Path) -> None:
    paths = [made(tmp_path / "a"), made(tmp_path / "b", PA + 2, reward__penalty=10.0)]
    found = compare_runs(paths)
    (part,) = found.parts
    assert [one.title for one in part.settings] == ["a", "b"]
    assert rows(found)["a"]["pa_mean"] == pytest.approx(PA.mean())
    assert rows(found)["b"]["pa_mean"] == pytest.approx(PA.mean() + 2)
    assert rows(found).keys() == {"TWAP", "a", "b"}
    assert part.pairs is not None
    (pair,) = part.pairs.metrics.to_dict("records")
    assert (pair["policy"], pair["less"], pair["orders"]) == ("b", "a", len(PA))
    assert [pair["estimate"], pair["lo"], pair["hi"]] == pytest.approx([2.0, 2.0, 2.0]), "the days cancel"
    assert found.configuration is not None
    assert found.configuration.rows == (("reward.penalty", "20.0", "10.0"),)
    assert found.seeds is None


def test_missing_orders_are_missing_in_the_difference(tmp_path: Path) -> None:
    lacking = np.where(np.arange(len(PA)) == 3, np.nan, PA)
    found = compare_runs([made(tmp_path / "a", lacking), made(tmp_path / "b", PA + 1, network__hidden=8)])
    assert found.parts[0].pairs is not None
    (pair,) = found.parts[0].pairs.metrics.to_dict("records")
    assert (pair["estimate"], pair["orders"]) == (pytest.approx(1.0), len(PA) - 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pa": PA[:6]}, "other orders"),
        ({"amount": 11.0}, "other amounts"),
        ({"price": 10.5}, "another market"),
        ({"execution__rules__commission_bps": 1.0}, "commission_bps 0.0 there, 1.0 here"),
        ({"execution__rules__benchmark": "arrival"}, "another benchmark"),
        ({"simulator": {"name": "random_liquidity", "dry": 0.5}}, "another simulator"),
    ],
)
def test_what_was_not_traded_alike_is_named_and_not_paired(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    found = compare_runs([made(tmp_path / "a"), made(tmp_path / "b", **change)])
    first, second = found.parts
    assert [first.letter, second.letter] == ["A", "B"]
    assert first.pairs is second.pairs is None
    assert any(words in one for one in second.differs)
    assert any(words in note for note in second.table.notes)
    assert set(found.frame["part"]) == {"A", "B"}


def test_seeds_of_a_setting_stand_together(tmp_path: Path) -> None:
    paths = [made(tmp_path / f"mine-seed-{seed}", PA + seed, seed=seed) for seed in range(6)]
    other = made(tmp_path / "other", PA, network__hidden=8)
    found = compare_runs([*paths, other])
    (part,) = found.parts
    assert [one.title for one in part.settings] == ["mine", "other"]
    assert rows(found)["mine"]["pa_mean"] == pytest.approx(PA.mean() + 2.5)
    assert found.seeds is not None
    table = found.seeds.metrics
    own = table[table["metric"] == "pa"].iloc[0]
    assert (own["seeds"], own["mean"]) == (6, pytest.approx(PA.mean() + 2.5))
    assert own["std_seeds"] == pytest.approx(np.std(range(6), ddof=1))
    assert own["mean_lo"] < own["mean"] < own["mean_hi"]
    assert part.pairs is not None
    assert part.pairs.metrics["estimate"].tolist() == pytest.approx([-2.5])


def test_settings_without_names_are_called_by_their_folder_or_by_what_differs(tmp_path: Path) -> None:
    for seed in (0, 1):
        for folder, penalty in (("one", 10.0), ("two", 30.0)):
            made(tmp_path / folder / f"seed-{seed}", seed=seed, reward__penalty=penalty)
        for hidden in (8, 16):
            made(tmp_path / f"both/{hidden}{seed}", seed=seed, network__hidden=hidden)
    found = compare_runs([tmp_path / "one", tmp_path / "two"])
    assert [one.title for one in found.parts[0].settings] == ["one", "two"]
    found = compare_runs([tmp_path / "both"])
    assert sorted(one.title for one in found.parts[0].settings) == ["hidden = 16", "hidden = 8"]


def test_one_seed_is_not_two_however_often_it_is_repeated(tmp_path: Path) -> None:
    paths = [made(tmp_path / name) for name in ("first", "again")]
    found = compare_runs(paths)
    assert len(found.parts[0].settings) == 1
    assert found.seeds is None
    (reason,) = found.left_out.values()
    assert "the same settings and seed as first" in reason


def test_seeds_with_orders_of_their_own_are_not_paired(tmp_path: Path) -> None:
    found = compare_runs([made(tmp_path / f"seed-{seed}", seed=seed, amount=10.0 + seed) for seed in (0, 1)])
    assert len(found.parts) == 2
    assert found.seeds is not None
    assert any("did not all trade the same orders" in note for note in found.seeds.notes)


def test_folders_of_many_are_opened_and_what_has_no_result_is_named(tmp_path: Path) -> None:
    made(tmp_path / "sweep/seed-0")
    made(tmp_path / "sweep/seed-1", seed=1)
    half = RunDirectory.create(tmp_path / "sweep/seed-2", RunConfig())
    (tmp_path / "broken").mkdir()
    for name in ("manifest.json", "config.yaml"):
        (tmp_path / "broken" / name).write_text("{}")
    RunDirectory.create(tmp_path / "search/trials/000001", RunConfig())
    for kind in ("sweep", "search"):
        write_sealed(tmp_path / kind / f"{kind}.yaml", {})
    found = compare_runs([tmp_path / name for name in ("sweep", "broken", "search")])
    assert [run.label for one in found.parts[0].settings for run in one.runs] == ["seed-0", "seed-1"]
    assert found.parts[0].settings[0].title == "sweep"
    assert found.left_out.keys() == {str(half.path), str(tmp_path / "broken"), str(tmp_path / "search")}
    assert "damaged" in found.left_out[str(tmp_path / "broken")]
    with pytest.raises(ConfigError, match="search"):
        compare_runs([tmp_path / "search"])
    with pytest.raises(ConfigError, match="nowhere"):
        compare_runs([tmp_path / "nowhere"])


def test_pages_and_tables_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    paths = [made(tmp_path / "a"), made(tmp_path / "b", PA + 2, reward__penalty=10.0)]
    (paths[0] / "report.html").write_text("the page of a")
    found = compare_runs(paths)
    write_across(folder, found)
    page = (folder / "runs.html").read_text()
    assert page.count("<figure>") == 2, "intervals and learning curves"
    assert 'href="../a/report.html"' in page, "the folder of all of them can be moved"
    assert not re.search(r'(?:src|href)="(?!data:|\.\./)', page), "nothing is fetched from elsewhere"
    assert len(pd.read_csv(folder / "runs.csv")) == 3
    known = json.loads((folder / "runs.json").read_text())
    assert [one["run"] for one in known["runs"]] == ["a", "b"]
    assert known["pairs"][0]["estimate"] == pytest.approx(2.0)
    assert "| a | run |" in (folder / "runs.md").read_text()


def test_the_command_takes_runs_or_a_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "a")
    made(tmp_path / "b", PA + 2, reward__penalty=10.0)

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["compare", *words])
        return (int(stop.value.code or 0), *capsys.readouterr())

    code, out, _ = call("a", "b")
    assert code == 0
    assert out.splitlines()[-1].startswith("page: runs/")
    code, out, _ = call("a", "b", "--run-dir", "mine", "--json")
    assert (code, json.loads(out)["page"]) == (0, str(tmp_path / "mine/runs.html"))
    code, _, err = call("a", "b", "--run-dir", "mine")
    assert (code, "mine holds something already" in err) == (2, True)
    code, _, err = call("a", "b", "--set", "seed=1")
    assert (code, "--set" in err) == (2, True)
    code, out, _ = call("a", "--quiet")
    assert (code, "page:" in out) == (0, False)
    (tmp_path / "mine.yaml").write_text("nothing: 1\n")
    code, _, err = call("mine.yaml")
    assert (code, "nothing" in err) == (2, True), "a configuration is one of methods to train"
