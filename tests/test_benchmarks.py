"""What of the benchmarks can be tested without the peer and without a clock."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import table
from benchmarks.figures import FIGURES, Figure, make_row
from benchmarks.market import write_market
from benchmarks.measure import Timer, peak_memory
from benchmarks.network import load_peer_weights, peer_network
from benchmarks.parts import Parts
from benchmarks.roofline import gru_flops
from benchmarks.run import jobs
from benchmarks.schedule import Schedule

PEER = Path(__file__).resolve().parents[1] / "benchmarks" / "peer"


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
        assert np.array_equal(market["order_amount"], parts.orders.table["amount"])
        first = parts.orders.table.iloc[0]
        assert (str(market["order_instrument"][0]), market["order_date"][0]) == (
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
    net = peer_network(5, schedule, parts.features)
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


def test_rows_without_the_peer_have_no_ratio_and_the_shares_of_the_roofline_go_to_the_update():
    figure = next(figure for figure in FIGURES if figure.name == "PPO update, 48 ticks")
    row = make_row(figure, [{("rlwb", "train", 48): {"update": 5.0}, ("own", "roofline", 48): {"roofline": 0.4}}])
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
    spread = {"ratio": 12.34, "ratio_min": 9.99, "ratio_max": 1234.5}
    rows = [{"figure": "speed", "unit": "steps/s", "rlwb": 1234567.0, "peer": 0.1234, **spread, **context}]
    text = table.markdown(json.loads(json.dumps(rows)))
    assert "| speed | steps/s | 1,230,000 | 0.123 | 12.3× (9.99–1,230) | a peer |  |" in text
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
    for path in PEER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("rlwb")
                assert not (node.module or "").startswith("benchmarks") or node.module in allowed
            elif isinstance(node, ast.Import):
                assert not any(alias.name.startswith(("rlwb", "benchmarks")) for alias in node.names)
