"""What of the benchmarks can be tested without the peer and without a clock."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import supply, table
from benchmarks.figures import FIGURES, PEER, Figure, make_row
from benchmarks.measure import Timer, peak_memory
from benchmarks.parts import Parts, load_peer_weights, peer_network, write_market
from benchmarks.quality import schedules
from benchmarks.quality_rows import Side, make_rows, our_time, peer_time, target_of
from benchmarks.roofline import _counted_steps, gru_flops
from benchmarks.run import jobs
from benchmarks.schedule import Schedule
from rlwb.policy.gru import scan

PEER_SIDE = Path(__file__).resolve().parents[1] / "benchmarks" / "peer"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("market")
    write_market(Schedule.of(48, instruments=2, days=4), folder)
    return Parts(folder)


def test_schedule_survives_writing_and_has_eight_decisions(tmp_path):
    schedule = Schedule.of(240, episodes=7)
    schedule.write(tmp_path)
    assert Schedule.read(tmp_path) == schedule
    assert schedule.max_step == Schedule.of(48).max_step == 8
    with pytest.raises(SystemExit, match="48 or 240"):
        Schedule.of(100)


def test_the_files_hold_the_market_that_rlwb_runs_on(parts):
    with np.load(parts.folder / "market.npz") as market:
        assert np.array_equal(market["close"], parts.sessions.fields["close"])
        assert np.array_equal(market["train_amount"], parts.orders.table["amount"])
        first = parts.orders.table.iloc[0]
        assert (str(market["train_instrument"][0]), market["train_date"][0]) == (
            first["instrument"],
            first["date"].to_datetime64().astype("datetime64[D]"),
        )


class _Peer(nn.Module):
    """The peer's network in its own arrangement: a padded day a row, actor and critic apart, unused branch and all."""

    def __init__(self, channels: int, width: int, output: int, actions: int) -> None:
        super().__init__()
        extractor = {
            "raw_rnn": nn.GRU(width, width, batch_first=True),
            "prev_rnn": nn.GRU(width, width, batch_first=True),
            "pri_rnn": nn.GRU(width, width, batch_first=True),
            "raw_fc": nn.Sequential(nn.Linear(channels, width), nn.ReLU()),
            "pri_fc": nn.Sequential(nn.Linear(2, width), nn.ReLU()),
            "dire_fc": nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()),
            "fc": nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, output), nn.ReLU()),
        }
        heads = {"layer_out": nn.Sequential(nn.Linear(output, actions))}
        self.actor = nn.ModuleDict({"extractor": nn.ModuleDict(extractor), **heads})
        self.critic = nn.ModuleDict({"value_out": nn.Linear(output, 1)})

    def forward(self, obs):
        net = self.actor["extractor"]
        day = torch.as_tensor(obs["data_processed"])
        row = torch.arange(len(day))
        padded = torch.cat([torch.zeros(len(day), 1, day.shape[2]), day], dim=1)
        market = net["raw_rnn"](net["raw_fc"](padded))[0][row, torch.as_tensor(obs["cur_tick"]).long()]
        path = torch.as_tensor(obs["position_history"])
        share = path / torch.as_tensor(obs["target"])[:, None]
        clock = torch.arange(path.shape[1]) / torch.as_tensor(obs["num_step"])[:, None].float()
        private = net["pri_rnn"](net["pri_fc"](torch.stack([share, clock], dim=2)))[0]
        private = private[row, torch.as_tensor(obs["cur_step"]).long()]
        buy = torch.as_tensor(obs["acquiring"]).float()
        out = net["fc"](torch.cat([market, private, net["dire_fc"](torch.stack([buy, 1 - buy], dim=1))], dim=1))
        return self.actor["layer_out"](out), self.critic["value_out"](out)[:, 0]


def test_the_peers_network_gives_the_same_answers_on_the_causal_path(parts):
    schedule = parts.schedule
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        peer = _Peer(5, schedule.hidden, schedule.output, schedule.choices + 1)
    net = peer_network(5, schedule)
    load_peer_weights(net, peer.state_dict())
    obs = dict(parts.gather(parts.policy(), parts.orders).obs)
    with torch.no_grad():
        by_reference = net(obs)
        session = obs.pop("session")
        obs["data_processed"] = parts.features.block(session, obs["cur_tick"])
        wanted = peer(obs)
    for got, want in zip(by_reference, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


def test_counting_the_products_of_a_gru_agrees_with_torch():
    gru, inputs = nn.GRU(5, 8, batch_first=True), torch.zeros(3, 11, 5)
    with FlopCounterMode(display=False) as counter:
        gru(inputs)
    assert counter.get_total_flops() == gru_flops(3 * 11, 5, 8) == 2 * 33 * 24 * 13


def test_ratios_are_taken_within_a_round_and_above_one_is_rlwbs_favour():
    more = Figure("speed", "steps/s", "train", "update", 48)
    less = Figure("time", "s", "train", "iteration", 48, less=True)
    rounds = [
        {
            ("rlwb", "train", 48): {"update": 100.0, "iteration": 1.0},
            ("peer", "train", 48): {"update": 10.0, "iteration": 8.0},
        },
        {
            ("rlwb", "train", 48): {"update": 60.0, "iteration": 2.0},
            ("peer", "train", 48): {"update": 2.0, "iteration": 8.0},
        },
    ]
    row = make_row(more, rounds)
    assert (row["rlwb"], row["peer"]) == (80.0, 6.0)
    assert (row["ratio"], row["ratio_min"], row["ratio_max"]) == (20.0, 10.0, 30.0)
    assert make_row(less, rounds)["ratio"] == 6.0


def test_a_goal_is_met_by_the_ratio_or_by_rlwbs_own_figure():
    rounds = [{("rlwb", "train", 48): {"x": 30.0}, ("peer", "train", 48): {"x": 2.0}}]
    by_ratio = Figure("speed", "steps/s", "train", "x", 48, goal=15)
    assert make_row(by_ratio, rounds)["met"] is True
    assert make_row(dataclasses.replace(by_ratio, goal=15.1), rounds)["met"] is False
    own = Figure("job", "s", "train", "x", 48, other=None, less=True, goal=29, goal_of="rlwb")
    assert make_row(own, rounds)["met"] is False
    assert table.goal(make_row(own, rounds)) == "≤ 29 s, missed"
    assert make_row(dataclasses.replace(own, goal=30), rounds)["met"] is True
    assert make_row(by_ratio, [{("rlwb", "train", 48): {"x": 30.0}}])["met"] is None, "no ratio without the peer"
    assert table.goal(make_row(Figure("speed", "steps/s", "train", "x", 48), rounds)) == ""


def test_work_at_the_peers_rate_is_shown_as_its_seconds():
    figure = Figure("job", "s", "judge", "seconds", 48, other=("peer", "backtest", "rate"), less=True, work=100.0)
    row = make_row(figure, [{("rlwb", "judge", 48): {"seconds": 2.0}, ("peer", "backtest", 48): {"rate": 5.0}}])
    assert (row["peer"], row["ratio"]) == (20.0, 10.0)


def _curve(*points: tuple[float, float]) -> list[dict[str, float]]:
    return [{"iteration": i + 1, "seconds": seconds, "pa": pa} for i, (seconds, pa) in enumerate(points)]


def test_time_to_quality_is_the_first_time_at_95_percent_of_the_best():
    curve = _curve((1.0, -2.0), (2.0, 9.6), (3.0, 9.4), (4.0, 10.0))
    assert target_of(curve) == 9.5
    assert our_time(curve, 9.5).seconds == 2.0
    assert our_time(curve, 10.5).kind == "at least"
    with pytest.raises(SystemExit, match="nothing was learnt"):
        target_of(_curve((1.0, -1.0), (2.0, 0.0)))


def test_the_peers_time_says_how_it_was_found():
    ours = _curve((1.0, 0.0), (2.0, 5.0), (3.0, 9.5))
    slow = _curve((100.0, 0.0), (220.0, 1.0))
    measured = peer_time(Side(ours, _curve((100.0, 0.0), (200.0, 9.6)), None), 9.5)
    assert (measured.seconds, measured.kind) == (200.0, "measured")
    extrapolated = peer_time(Side(ours, slow, None), 9.5)
    assert (extrapolated.seconds, extrapolated.kind) == (110.0 * 3, "extrapolated")
    no_more = peer_time(Side(_curve((1.0, 9.9)), slow, None), 9.5)
    assert (no_more.seconds, no_more.kind) == (220.0, "at least")
    never = peer_time(Side(_curve((1.0, 0.0), (2.0, 0.1), (3.0, 0.2)), slow, None), 9.5)
    assert (never.seconds, never.kind) == (110.0 * 3, "at least")
    assert peer_time(Side(ours, [], None), 9.5).kind == "not measured"


def test_the_rows_of_time_to_quality_hold_both_schedules():
    ours, slow = _curve((1.0, 0.0), (2.0, 9.6), (4.0, 10.0)), _curve((100.0, 0.0))
    sides = {"published": Side(ours, slow, None), "rlwb": Side(ours, [], None)}
    each, published, own = make_rows([ours, ours], sides, 9.5)
    assert (each["rlwb"], each["peer"], each["ratio"]) == (2.0, 200.0, 100.0)
    assert published["against"] == f"{PEER}, extrapolated"
    assert (own["peer"], own["ratio"]) == (None, None)


def test_both_schedules_of_quality_run_on_one_market():
    plans = schedules(quick=False, threads=1)
    assert plans["published"].episodes == 10_000
    assert plans["rlwb"].episodes == 1_000
    same = ("ticks", "instruments", "days", "split", "choices", "penalty", "volume_limit", "seed", "hidden")
    assert all(getattr(plans["published"], name) == getattr(plans["rlwb"], name) for name in same)


def test_rows_without_the_peer_have_no_ratio_and_the_shares_of_the_roofline_go_to_the_update():
    figure = next(figure for figure in FIGURES if figure.name == "PPO update, 48 ticks")
    row = make_row(figure, [{("rlwb", "train", 48): {"update": 5.0}, ("rlwb", "roofline", 48): {"roofline": 0.4}}])
    assert (row["rlwb"], row["peer"], row["ratio"], row["roofline_share"]) == (5.0, None, None, 0.4)
    assert make_row(figure, [{}]) is None


@pytest.mark.parametrize("ticks", [48, 240])
def test_every_figure_is_measured_by_a_job_of_the_round(ticks):
    run = set(jobs(ticks, peer=True))
    for figure in (figure for figure in FIGURES if figure.ticks == ticks):
        assert ("rlwb", figure.job) in run
        assert figure.other is None or (figure.other[0], figure.other[1] or figure.job) in run
    assert not any(side == "peer" for side, _ in jobs(ticks, peer=False))


def test_the_table_comes_from_the_rows_alone(tmp_path):
    context = {"rounds": 3, "machine": "a machine", "date": "2030-01-02", "against": "a peer", "roofline_share": None}
    context |= {"goal": 10.0, "goal_of": "ratio", "goal_is_most": False, "met": True}
    spread = {"ratio": 12.34, "ratio_min": 9.99, "ratio_max": 1234.5}
    rows = [{"figure": "speed", "unit": "steps/s", "rlwb": 1234567.0, "peer": 0.1234, **spread, **context}]
    text = table.markdown(json.loads(json.dumps(rows)))
    assert "| speed | steps/s | 1,230,000 | 0.123 | 12.3× (9.99–1,230) | a peer | ≥ 10×, met |  |" in text
    assert text.endswith("Medians of 3 rounds; a machine; 2030-01-02.")
    once = table.insert("before\n<!-- speed -->old<!-- /speed -->\nafter", text)
    assert table.insert(once, text) == once
    assert "old" not in once
    with pytest.raises(SystemExit, match="lacks the marks"):
        table.insert("nothing", text)


def test_a_timer_adds_up_calls_and_memory_is_known():
    timer = Timer()
    double = timer.wrap(lambda value: 2 * value)
    assert [double(1), double(2)] == [2, 4]
    assert timer.calls == 2
    assert timer.seconds >= 0
    assert peak_memory() > 10


def test_the_peers_side_imports_nothing_of_rlwb_and_only_plain_modules_of_the_benchmarks():
    allowed = {"benchmarks.measure", "benchmarks.schedule", "benchmarks.peer.data"}
    for path in PEER_SIDE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("rlwb")
                assert not (node.module or "").startswith("benchmarks") or node.module in allowed
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith(("rlwb", "benchmarks")) for alias in node.names)


def test_the_products_inside_the_compiled_steps_are_counted() -> None:
    gru = torch.nn.GRU(3, 4, batch_first=True)
    with _counted_steps() as noted:
        scan(gru, torch.randn(5, 6, 3)).sum().backward()
    assert noted == [gru_flops(5 * 6, 0, 4)] * 2


def test_an_audit_that_knows_no_package_is_no_success_of_its_own() -> None:
    sound, unknown = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}
    assert supply.verdict([sound, sound]) == (0, "no known vulnerabilities in 2 packages")
    assert supply.verdict([unknown])[0] == 0
    assert "not audited" in supply.verdict([unknown])[1]
    code, said = supply.verdict([sound, unknown])
    assert code == 1
    assert said.endswith(": b")
    code, said = supply.verdict([sound, bad, unknown])
    assert code == 1
    assert "c 2: CVE-1, c 2: CVE-2" in said
