"""A checkpoint knows what it was trained for (J03, K22, K31)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    KnownStateInterpreter,
    OrderExecution,
    RandomLiquidity,
    SparseReward,
    generate_orders,
)
from rlwb.market import Calendar, FeatureSettings, MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.policy import DQN, MLP, PPO, ActorCritic, Convolution, QNetwork, Recurrent, make_network
from rlwb.trainer import (
    Checkpoint,
    Trainer,
    TrainingRecord,
    TrainingVessel,
    backtest,
    check_record,
    load_checkpoint,
    recorded_in,
    restore_policy,
    save_checkpoint,
)
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import assert_same_weights, small_vessel

COLUMNS = ("close", "volume")


def vessel_of(
    *,
    columns: tuple[str, ...] = COLUMNS,
    previous_day: bool = False,
    fit_rows: int = 4,
    minutes: int = 30,
    session: Any = "cn",
    segments: Any = None,
    ticks_per_step: int = 2,
    market_seed: int = 0,
    order_seed: int = 0,
    rules: dict[str, Any] | None = None,
    values: Any = 4,
    simulator: Callable[..., OrderExecution] = OrderExecution,
    reward: Any = None,
    learner: Callable[..., Any] | None = None,
    run: str | None = None,
) -> TrainingVessel:
    """A market of three names and six days of 8 half-hour bars: 4 steps of 2."""
    settings = SyntheticSettings(instruments=3, days=6, tick_minutes=minutes, session=session, seed=market_seed)
    sessions = synthetic_sessions(settings)
    if segments is not None:
        calendar = Calendar(segments, tick_minutes=minutes, timezone=sessions.calendar.timezone)
        sessions = Sessions(calendar, sessions.instruments, sessions.dates, sessions.num_ticks, sessions.fields)
    market = simulator(Engine(sessions, ticks_per_step, ExecutionRules(**(rules or {}))))
    chosen = FeatureSettings(columns=columns, previous_day=previous_day)
    features = MarketFeatures.build(sessions, chosen, fit_rows=np.arange(fit_rows))
    acts = CategoricalActionInterpreter(values)
    count = acts.action_space.n
    net = make_network(lambda: ActorCritic(Recurrent(len(columns), 4), count), seed=0)
    orders = market.align(generate_orders(sessions, seed=order_seed))
    return TrainingVessel(
        simulator=market,
        state_interpreter=FullHistoryStateInterpreter(features, market.engine.max_step),
        action_interpreter=acts,
        policy=PPO(net) if learner is None else learner(len(columns), count),
        reward=reward or small_vessel().reward,
        train_initial_states=orders,
        episode_per_iter=10,
        run=run,
    )


def dqn(channels: int, actions: int) -> DQN:
    return DQN(make_network(lambda: QNetwork(Recurrent(channels, 4), actions), seed=0))


def convolution(channels: int, actions: int) -> PPO:
    return PPO(make_network(lambda: ActorCritic(Convolution(channels, 4), actions), seed=0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    Trainer(max_iters=1, callbacks=[Checkpoint(folder)]).fit(vessel_of(run="mine"))
    return folder / "0001.pt"


LATER = (("10:30", "12:30"), ("14:00", "16:00"))
#: What is changed, what is named, and whether the policy may still act there.
OTHERS = [
    pytest.param({"columns": ("close", "open")}, "features", False, id="j03-another-feature"),
    pytest.param({"columns": ("volume", "close")}, "features", False, id="j03-features-in-another-order"),
    pytest.param({"columns": ("close", "volume", "open")}, "features", False, id="j03-one-feature-more"),
    pytest.param({"previous_day": True}, "previous_day", False, id="j03-yesterday"),
    pytest.param({"fit_rows": 6}, "normaliser", False, id="j03-another-normaliser"),
    pytest.param({"values": 5}, "action.space", False, id="j03-one-action-more"),
    pytest.param({"values": (0, 0.1, 0.2, 0.3, 1.0)}, "action.shares", False, id="j03-other-shares"),
    pytest.param({"ticks_per_step": 4}, "ticks_per_step", False, id="k22-longer-steps"),
    pytest.param({"minutes": 15}, "bar_seconds", False, id="k22-shorter-bars"),
    pytest.param({"minutes": 15, "ticks_per_step": 4}, "bar_seconds", False, id="k22-shorter-bars-as-many-steps"),
    pytest.param({"session": "us"}, "ticks 8 there, 13 here", False, id="k22-more-ticks"),
    pytest.param(
        {"segments": (("10:30", "12:30"), ("14:00", "16:00"))}, "calendar.segments", False, id="k22-other-hours"
    ),
    pytest.param({"rules": {"volume_limit": 0.1}}, "rules.volume_limit", True, id="k22-a-cap"),
    pytest.param({"rules": {"price_field": "open"}}, "rules.price_field", True, id="k22-another-price"),
    pytest.param({"simulator": RandomLiquidity}, "simulator", True, id="j03-another-market"),
    pytest.param({"reward": SparseReward()}, "reward", True, id="j03-another-reward"),
    pytest.param({"market_seed": 1}, "data", False, id="k31-other-bars"),
    pytest.param({"order_seed": 1}, "orders", True, id="k31-other-orders"),
    pytest.param({"run": "yours"}, "run 'mine' there, 'yours' here", True, id="k31-another-run"),
]


@pytest.mark.parametrize(("change", "named", "may_act"), OTHERS)
def test_j03_k22_k31_a_checkpoint_goes_on_as_what_it_was_trained_for_alone(
    saved: Path, change: dict[str, Any], named: str, may_act: bool
) -> None:
    vessel = vessel_of(**{"run": "mine", **change})
    before = vessel.policy.state_dict()["updates"]
    with pytest.raises(CheckpointError, match=rf"0001\.pt was trained for something else: .*{named}"):
        Trainer(max_iters=2).fit(vessel, saved)
    assert vessel.policy.state_dict()["updates"] == before, "nothing was loaded"

    # The policy itself, restored: it acts on other orders and rules, on nothing else.
    policy = vessel_of().policy
    restore_policy(policy, saved)
    parts = (vessel.simulator, vessel.state_interpreter, vessel.train_initial_states, vessel.action_interpreter)
    for kind in ("native", "dummy"):
        if may_act:
            assert backtest(*parts, policy, finite_env_type=kind).count == len(vessel.train_initial_states)
        else:
            with pytest.raises((CheckpointError, ConfigError)):
                backtest(*parts, policy, finite_env_type=kind)


@pytest.mark.parametrize(
    ("learner", "named"), [(dqn, "algorithm 'PPO' there, 'DQN' here"), (convolution, "network 'Recurrent' there")]
)
def test_j03_another_learner_is_refused_by_name(saved: Path, learner: Callable[..., Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        Trainer(max_iters=2).fit(vessel_of(run="mine", learner=learner), saved)


def test_j03_what_agrees_goes_on(saved: Path, tmp_path: Path) -> None:
    resumed, whole = vessel_of(run="mine"), vessel_of(run="mine")
    Trainer(max_iters=2).fit(resumed, saved)
    Trainer(max_iters=2).fit(whole)
    assert_same_weights(resumed.policy, whole.policy)


def test_k33_another_number_of_threads_is_refused(saved: Path) -> None:
    torch.set_num_threads(2)
    with pytest.raises(CheckpointError, match="threads 1 there, 2 here"):
        Trainer(max_iters=2).fit(vessel_of(run="mine"), saved)


def test_j03_a_policy_acts_on_other_bars_with_its_own_statistics(saved: Path) -> None:
    """The usual test: later bars, normalised as in training."""
    trained, other = vessel_of(), vessel_of(market_seed=1)
    statistics = trained.state_interpreter.features.normaliser
    features = MarketFeatures.build(
        other.simulator.engine.sessions, FeatureSettings(columns=COLUMNS), normaliser=statistics
    )
    sees = FullHistoryStateInterpreter(features, other.simulator.engine.max_step)
    restore_policy(trained.policy, saved)
    assert backtest(other.simulator, sees, other.train_initial_states, other.action_interpreter, trained.policy).count
    with pytest.raises(CheckpointError, match="normaliser"):
        backtest(*(getattr(other, name) for name in PARTS), trained.policy)


PARTS = ("simulator", "state_interpreter", "train_initial_states", "action_interpreter")


@pytest.mark.parametrize("body", [Recurrent, Convolution])
@pytest.mark.parametrize("kind", ["native", "dummy"])
def test_j03_a_network_for_two_features_is_not_shown_three(body: Any, kind: str) -> None:
    """An untrained policy has no record; its network has a width."""
    vessel = vessel_of(columns=("close", "volume", "open"))
    policy = PPO(make_network(lambda: ActorCritic(body(2, 4), 5), seed=0))
    with pytest.raises(ConfigError, match="reads 2 features a tick, the observations hold 3"):
        backtest(*(getattr(vessel, name) for name in PARTS), policy, finite_env_type=kind)
    with pytest.raises(ConfigError, match="reads 2 features a tick, the observations hold 3"):
        vessel_of(columns=("close", "volume", "open"), learner=lambda _channels, _actions: policy)


def test_j03_policies_without_a_record_act(saved: Path) -> None:
    class Own:
        def act(self, obs: Any, noise: Any = None) -> np.ndarray:
            return np.zeros(len(obs["target"]), dtype=np.int64)

    class Even:
        def act(self, obs: Any, noise: Any = None) -> np.ndarray:
            return obs.amount / 4

    vessel = vessel_of()
    parts = [getattr(vessel, name) for name in PARTS]
    assert backtest(*parts, Own()).count == backtest(*parts, PPO(vessel.policy.network)).count
    assert backtest(*parts, PPO(make_network(lambda: ActorCritic(MLP(4), 5), seed=0))).count
    market, orders = vessel.simulator, vessel.train_initial_states
    assert backtest(market, KnownStateInterpreter(), orders, AmountActionInterpreter(), Even()).count


def test_a_subject_of_ones_own_is_recorded_as_far_as_it_says(tmp_path: Path) -> None:
    Trainer(max_iters=1, callbacks=[Checkpoint(tmp_path)], finite_env_type="dummy").fit(corridor_vessel())
    record = recorded_in(load_checkpoint(tmp_path / "latest"))
    assert record.features is record.ticks is record.data is record.orders is None
    assert record.observation["interpreter"]
    Trainer(max_iters=2, finite_env_type="dummy").fit(corridor_vessel(), tmp_path / "latest")


def test_a_record_goes_through_a_file_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    record = vessel_of().record()
    save_checkpoint(tmp_path / "a.pt", {"record": record.as_dict()})
    assert recorded_in(load_checkpoint(tmp_path / "a.pt")) == record
    assert None not in [getattr(record, name) for name in record.as_dict() if name != "run"]
    for damaged in (None, [1], {"color": "red"}):
        with pytest.raises(CheckpointError, match="damaged"):
            recorded_in({"record": damaged})
    assert recorded_in({}) == TrainingRecord()


def test_all_that_differs_is_named_up_to_four() -> None:
    one = TrainingRecord(ticks=8, steps=4, rules={"halts": True, "lot_size": 0.0}, features=("close",), data="a")
    two = TrainingRecord(ticks=9, steps=4, rules={"halts": False, "lot_size": 1.0}, features=None, data="b")
    check_record(one, one, "it")
    check_record(one, two, "it", names=("steps", "features"))
    with pytest.raises(CheckpointError) as refused:
        check_record(one, two, "it", do="stop.")
    assert str(refused.value) == (
        "it was trained for something else: ticks 8 there, 9 here; rules.halts True there, False here; "
        "rules.lot_size 0.0 there, 1.0 here; data 'a' there, 'b' here: stop."
    )


def test_equal_orders_have_equal_hashes_and_others_have_not() -> None:
    orders = vessel_of().train_initial_states
    assert orders.fingerprint == vessel_of().train_initial_states.fingerprint
    others = [orders[1:], orders[::-1], vessel_of(order_seed=1).train_initial_states, orders[[0, *range(len(orders))]]]
    assert len({orders.fingerprint, *(other.fingerprint for other in others)}) == 5
