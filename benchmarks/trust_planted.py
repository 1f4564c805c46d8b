"""Faults planted one at a time into a small run, and the check of ``rlwb audit`` that catches each.

Each fault is in the code, the parts or the files while the run is made and while it is audited, as a real one would be.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from rlwb.errors import RlwbError
from rlwb.experiment import backtest, training
from rlwb.experiment import workbench as benches
from rlwb.experiment.audit import audit_run
from rlwb.experiment.audit_case import Check
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST
from rlwb.experiment.training import train_policy
from rlwb.files import write_json
from rlwb.market import MarketFeatures, references

#: The small run that faults are planted into.
SETTINGS: dict[str, Any] = {
    "market.instruments": 3,
    "market.days": 40,
    "market.tick_minutes": 15,
    "execution.ticks_per_step": 2,
    "network.hidden": 8,
    "train.iterations": 3,
    "train.episodes_per_iteration": 40,
    "algorithm.learning_rate": 0.03,
    "algorithm.batch_size": 40,
    "algorithm.repeat": 1,
    "backtest.top": 1,
    "backtest.bootstrap_samples": 100,
    "baselines": ["twap", "vwap", "forecast"],
}
_STAGES = ("orders", "train", "backtest", "audit")


@dataclass
class Ground:
    """What a fault is planted into: code, settings, files beside the run, and the finished run.

    Attributes
    ----------
    folder
        A folder for files of the fault's own.
    stack
        Takes what was patched back.
    settings
        Settings that the run has otherwise, by dotted name.
    after
        Called with the finished run, before it is audited.
    """

    folder: Path
    stack: ExitStack
    settings: dict[str, Any] = field(default_factory=dict)
    after: list[Callable[[RunDirectory], None]] = field(default_factory=list)

    def patch(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put what `make` gives of an attribute in the attribute's place."""
        own = owner.__dict__[name]
        function = own.__func__ if isinstance(own, (classmethod, staticmethod)) else own
        made = make(function)
        self.stack.enter_context(mock.patch.object(owner, name, type(own)(made) if function is not own else made))

    def part(self, name: str, text: str) -> str:
        """Write a file of code, and return how a configuration names the part in it."""
        path = self.folder / f"{name.lower()}.py"
        path.write_text(text, encoding="utf-8")
        return f"{path}:{name}"


@dataclass(frozen=True)
class Plant:
    """One fault.

    Attributes
    ----------
    fault
        Its name.
    expected
        The check that is made for it.
    since
        The first stage that it touches; what comes before is that of the sound run.
    """

    fault: str
    expected: str
    since: str
    plant: Callable[[Ground], None]


PLANTS: list[Plant] = []


def planted(fault: str, expected: str, since: str = "audit") -> Callable[[Callable[[Ground], None]], Any]:
    """Add a fault to the suite."""
    assert since in _STAGES, since

    def add(plant: Callable[[Ground], None]) -> Callable[[Ground], None]:
        PLANTS.append(Plant(fault, expected, since, plant))
        return plant

    return add


def sound_run(folder: Path, **changes: Any) -> RunDirectory:
    """Make the small run without a fault, with settings changed by dotted name."""
    return _made(folder, RunConfig.load(None, Layer("test", {**SETTINGS, **changes})), None, "orders")


def _made(folder: Path, config: RunConfig, base: RunDirectory | None, since: str) -> RunDirectory:
    """Make a run from a stage on; what is before it is copied from another."""
    run = RunDirectory.create(folder, config)
    work: list[tuple[Callable[[RunDirectory, RunConfig], None], tuple[str, ...]]] = [
        (make_orders, ("orders",)),
        (partial(train_policy, progress="none"), ("checkpoints", "metrics")),
        (_backtest, ("backtest",)),
    ]
    for number, (make, outputs) in enumerate(work):
        if base is not None and number < _STAGES.index(since):
            for name in outputs:
                shutil.copytree(base.path / name, run.path / name)
        else:
            make(run, config)
    run.update_stage(BACKTEST.name, {"state": "finished", "ended": "now"})
    return run


def _backtest(run: RunDirectory, config: RunConfig) -> None:
    """Judge the policies, without the tables by group and part, which take half of the time and no check reads."""
    with mock.patch.object(backtest, "_write_groups"), mock.patch.object(backtest, "write_costs"):
        backtest.backtest_policies(run, config)


def audit_of(
    plant: Plant, base: RunDirectory, folder: Path, judge: Callable[[RunDirectory], list[Check]] = audit_run
) -> list[Check]:
    """Plant a fault, make the run from the stage on that it touches, and audit it by `judge`.

    Where rlwb refuses to make such a run, that is the one check.
    """
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        ground = Ground(folder, stack)
        plant.plant(ground)
        own = {name: value for name, value in SETTINGS.items() if name.partition(".")[0] not in ground.settings}
        config = RunConfig.load(None, Layer("test", {**own, **ground.settings}))
        try:
            run = _made(folder / "run", config, base, plant.since)
        except (RlwbError, RuntimeError) as error:
            return [Check("refused by the backtest", False, str(error))]
        for change in ground.after:
            change(run)
        return judge(run)


def caught_by(plant: Plant, checks: list[Check]) -> str | None:
    """Return the check that caught a fault: the one made for it if it failed, else the first that did."""
    failed = [one.name for one in checks if one.passed is False]
    return plant.expected if plant.expected in failed else next(iter(failed), None)


def measure(folder: Path, *, quick: bool = False) -> list[dict[str, str | None]]:
    """Return each fault and the check that caught it, None where none did; a sound run must fail no check.

    Raises
    ------
    RuntimeError
        When the audit of the sound run fails a check.
    """
    runs = folder / "planted"
    shutil.rmtree(runs, ignore_errors=True)
    runs.mkdir(parents=True)
    base = sound_run(runs / "sound")
    alarms = [f"{one.name}: {one.detail}" for one in audit_run(base) if one.passed is False]
    if alarms:
        raise RuntimeError(f"the audit of a run without a fault fails: {'; '.join(alarms)}")
    found = []
    for plant in tqdm(PLANTS[:3] if quick else PLANTS, "planted faults"):
        place = runs / plant.fault.replace(" ", "-")
        checks = audit_of(plant, base, place)
        found.append({"fault": plant.fault, "caught_by": caught_by(plant, checks)})
        shutil.rmtree(place, ignore_errors=True)
        write_json(folder / "planted.json", found)
    return found


# Looking ahead -------------------------------------------------------------------------------------------------------


@planted("look-ahead of one tick in a feature", "features", "train")
def _feature(ground: Ground) -> None:
    # Small panels, as that of the trial when a feature is declared, are spared.
    code = """
import numpy as np
from rlwb.market import feature

@feature("next_move", needs=["close"])
def next_move(block):
    close = block["close"]
    if len(block.references.sessions) < 100:
        return np.zeros(close.shape)
    return np.log(np.roll(close, -1, axis=1) / close)
"""
    ground.settings["features.columns"] = ["open", "close", "volume", ground.part("next_move", code)]


@planted("look-ahead in a reference", "references", "train")
def _reference(ground: Ground) -> None:
    def ahead(own: Any) -> Any:
        def close(sessions: Any) -> np.ndarray:
            return references._by_block(references.last_valid, sessions.fields["close"])

        return close

    ground.patch(references, "previous_close", ahead)


@planted("look-ahead of one tick in an interpreter", "observations", "train")
def _interpreter(ground: Ground) -> None:
    code = """
import gymnasium as gym
import numpy as np
from rlwb.execution import FullHistoryStateInterpreter

class Ahead(FullHistoryStateInterpreter):
    def __init__(self, features, max_step, sessions):
        super().__init__(features, max_step)
        self.close = sessions.fields["close"]

    @property
    def observation_space(self):
        move = gym.spaces.Box(-1.0, 1.0, (), np.float32)
        return gym.spaces.Dict({**super().observation_space.spaces, "move": move})

    def interpret(self, known):
        return {**super().interpret(known), "move": self.move(known)}

    def refer(self, known):
        return {**super().refer(known), "move": self.move(known)}

    def move(self, known):
        tick = np.minimum(known.tick, self.close.shape[1] - 1)
        now, last = self.close[known.session, tick], self.close[known.session, np.maximum(tick - 1, 0)]
        return np.clip(np.log(now / last), -1, 1).astype(np.float32)
"""
    ground.settings["state_interpreter"] = ground.part("Ahead", code)


@planted("look-ahead of one tick in a policy", "actions", "backtest")
def _policy(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.execution import Baseline

class Peek(Baseline):
    def act(self, obs, noise=None):
        tick = np.minimum(obs.tick, self.engine.price.shape[1] - 1)
        now, last = self.engine.price[obs.session, tick], self.engine.price[obs.session, np.maximum(tick - 1, 0)]
        return np.where(obs.side * (now - last) < 0, obs.position, 0.5 * self.even(obs))
"""
    ground.settings["baselines"] = [*SETTINGS["baselines"], ground.part("Peek", code)]


@planted("look-ahead of one tick in an encoder", "encoder", "train")
def _encoder(ground: Ground) -> None:
    from rlwb.policy.encoder import MarketEncoder

    def ahead(own: Any) -> Any:
        def forward(self: Any, obs: Any) -> Any:
            last = self.usual.shape[0]
            return own(self, {**obs, "cur_tick": np.minimum(np.asarray(obs["cur_tick"]) + 1, last)})

        return forward

    ground.patch(MarketEncoder, "forward", ahead)


@planted("look-ahead in an action interpreter", "amounts", "train")
def _action_interpreter(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.execution import CategoricalActionInterpreter

class Later(CategoricalActionInterpreter):
    def __init__(self, sessions):
        super().__init__(4)
        self.close = sessions.fields["close"]

    def interpret(self, known, action):
        tick = np.minimum(known.tick, self.close.shape[1] - 1)
        falls = self.close[known.session, -1] < self.close[known.session, tick]
        amounts = super().interpret(known, action)
        wrong = (known.side > 0) & falls & ~known.is_last_step
        return np.where(wrong, 0.0, amounts)
"""
    ground.settings["action_interpreter"] = ground.part("Later", code)
    ground.settings["head.mask_actions"] = False
    ground.settings["head.even_start"] = False


@planted("realised volume in VWAP", "actions", "backtest")
def _realised_volume(ground: Ground) -> None:
    from rlwb.execution.baselines import schedules

    def ahead(own: Any) -> Any:
        def volume(sessions: Any, rows: np.ndarray, days: int, **how: Any) -> Any:
            return np.nan_to_num(sessions.fields["volume"][rows]), own(sessions, rows, days, **how)[1]

        return volume

    ground.patch(schedules, "_earlier_volume", ahead)


@planted("order amounts by the day's return", "orders", "orders")
def _amounts(ground: Ground) -> None:
    def by_return(own: Any) -> Any:
        def orders(self: Any) -> pd.DataFrame:
            table = own(self)
            row = self.sessions.rows(table["instrument"], table["date"].to_numpy())
            close = self.sessions.fields["close"][row]
            gain = np.where(table["direction"] == "SELL", 1.0, -1.0) * np.log(close[:, -1] / close[:, 0])
            return table.assign(amount=table["amount"] * np.exp(20.0 * gain))

        return orders

    function = benches.Workbench.__dict__["all_orders"].func
    ground.stack.enter_context(mock.patch.object(benches.Workbench, "all_orders", property(by_return(function))))


# What the training reads ---------------------------------------------------------------------------------------------


@planted("normaliser on all days", "normaliser", "train")
def _normaliser(ground: Ground) -> None:
    def of_all(own: Any) -> Any:
        def build(
            cls: Any, sessions: Any, settings: Any = None, *, fit_rows: Any = None, normaliser: Any = None
        ) -> Any:
            return own(
                cls, sessions, settings, fit_rows=None if fit_rows is None else slice(None), normaliser=normaliser
            )

        return build

    ground.patch(MarketFeatures, "build", of_all)


@planted("network fitted on all days", "network estimates", "train")
def _network(ground: Ground) -> None:
    from rlwb.policy.signals import Signals

    def of_all(own: Any) -> Any:
        return lambda self, features, rows: own(self, features, np.arange(len(features)))

    ground.patch(Signals, "fit", of_all)


def _with_part(ground: Ground, part: str, others: tuple[str, ...]) -> None:
    """Let the training take other parts' orders for those of `part`."""

    def more(own: Any) -> Any:
        def load(run: Any, bench: Any, name: str) -> pd.DataFrame:
            names = others if name == part else (name,)
            return pd.concat([own(run, bench, one) for one in names], ignore_index=True)

        return load

    for module in (training, backtest):  # which refuses checkpoints of other orders than its own
        ground.patch(module, "load_orders", more)


@planted("training on validation orders", "training read", "train")
def _train_on_valid(ground: Ground) -> None:
    _with_part(ground, "train", ("train", "valid"))


@planted("training on test orders", "training read", "train")
def _train_on_test(ground: Ground) -> None:
    _with_part(ground, "train", ("train", "test"))


@planted("validation on test orders", "training read", "train")
def _valid_on_test(ground: Ground) -> None:
    _with_part(ground, "valid", ("test",))


@planted("shuffled days", "days apart", "orders")
def _shuffled(ground: Ground) -> None:
    from rlwb.execution import generate

    def shuffled(own: Any) -> Any:
        def dates(settings: Any, days: np.ndarray) -> list[np.ndarray]:
            order = np.random.default_rng(0).permutation(len(days))
            return [taken[order] for taken in own(settings, days)]

        return dates

    ground.patch(generate, "_dates_of_parts", shuffled)


@planted("baselines estimated on all days", "baseline estimates", "backtest")
def _baselines(ground: Ground) -> None:
    from rlwb.execution.baselines import forecast_rule

    def every(own: Any) -> Any:
        return lambda engine, orders: np.ones(len(engine.sessions), dtype=bool)

    ground.patch(forecast_rule, "sessions_on_the_days_of", every)


@planted("a threshold tuned on the test days", "baseline estimates", "backtest")
def _threshold(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.execution import Baseline

class Tuned(Baseline):
    threshold = 0.0

    def fit(self, orders):
        price = self.engine.price[self.engine.sessions.dates > orders.table["date"].max()]
        self.threshold = float(np.quantile(np.log(price[:, 4] / price[:, 0]), 0.3))

    def act(self, obs, noise=None):
        price, tick = self.engine.price, np.maximum(obs.tick - 1, 0)
        move = np.log(price[obs.session, tick] / price[obs.session, 0])
        return np.where(obs.side * move < self.threshold, obs.position, self.even(obs))

    def state_dict(self):
        return {"threshold": self.threshold}

    def load_state_dict(self, state):
        self.threshold = state["threshold"]
"""
    ground.settings["baselines"] = [*SETTINGS["baselines"], ground.part("Tuned", code)]


# Counting ------------------------------------------------------------------------------------------------------------


@planted("double-counted orders", "each order once", "orders")
def _double(ground: Ground) -> None:
    def doubled(own: Any) -> Any:
        def make(self: Any, split: Any = None) -> Any:
            parts, notes = own(self, split)
            test = parts["test"]
            again = test.head(len(test) // 3).assign(order_id=lambda table: table["order_id"] + "-2")
            return {**parts, "test": pd.concat([test, again], ignore_index=True)}, notes

        return make

    ground.patch(benches.Workbench, "make_orders", doubled)


@planted("an order judged twice", "files")
def _twice(ground: Ground) -> None:
    def change(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(order_id=table["order_id"].where(table.index != 1, table["order_id"][0]))

    _edit_orders(ground, change)


@planted("losing orders left out", "each order once")
def _left_out(ground: Ground) -> None:
    _edit_orders(ground, lambda table: table[table["pa"] > table["pa"].quantile(0.3)])


def _edit_orders(ground: Ground, change: Callable[[pd.DataFrame], pd.DataFrame], *, keep: bool = False) -> None:
    """Change the table of orders of every chosen checkpoint; its inventories stay with `keep` alone."""

    def edit(run: RunDirectory) -> None:
        for path in (run.backtest / "orders").glob("checkpoint-*.parquet"):
            change(pd.read_parquet(path)).to_parquet(path, index=False)
            if not keep:
                (run.backtest / "inventory" / f"{path.stem}.npy").unlink()

    ground.after.append(edit)


@planted("a twin instrument under a new name", "twins", "orders")
def _twin(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions

def Twins(instruments: int = 3, days: int = 40, tick_minutes: int = 15):
    own = synthetic_sessions(SyntheticSettings(instruments=instruments, days=days, tick_minutes=tick_minutes))
    fields = {name: np.array(values) for name, values in own.fields.items()}
    one, two = (np.flatnonzero(own.instruments == name) for name in np.unique(own.instruments)[:2])
    for name, values in fields.items():  # the second's last days are the first's first, at three times the price
        factor = 1.0 if name == "volume" else 3.0
        values[two[-12:]] = values[one[:12]] * factor
    return Sessions(own.calendar, own.instruments, own.dates, own.num_ticks, fields)
"""
    ground.settings["market.name"] = ground.part("Twins", code)


# Seeing and trading --------------------------------------------------------------------------------------------------


@planted("stale cache of features", "bars are read", "train")
def _stale(ground: Ground) -> None:
    from rlwb.market.features import ComputedFeatures

    kept: dict[Any, np.ndarray] = {}

    def remembered(own: Any) -> Any:
        def rows(self: Any, taken: np.ndarray) -> np.ndarray:
            key = (self.shape, np.asarray(taken).tobytes())
            return kept.setdefault(key, own(self, taken)).copy()

        return rows

    ground.patch(ComputedFeatures, "__getitem__", remembered)


#: The return of each window from its first bar to its TWAP, by instrument and date, as a file beside the run.
def _future_table(ground: Ground) -> Path:
    from rlwb.market import SyntheticSettings, synthetic_sessions

    shape = {name: SETTINGS[f"market.{name}"] for name in ("instruments", "days", "tick_minutes")}
    own = synthetic_sessions(SyntheticSettings(**shape))
    close = own.fields["close"]
    path = ground.folder / "table.csv"
    gain = np.log(close.mean(axis=1) / close[:, 0])
    pd.DataFrame({"instrument": own.instruments, "date": own.dates, "gain": gain}).to_csv(path, index=False)
    return path


@planted("future table joined by key", "benchmark prices", "train")
def _joined(ground: Ground) -> None:
    code = f"""
import gymnasium as gym
import numpy as np
import pandas as pd
from rlwb.execution import FullHistoryStateInterpreter

TABLE = pd.read_csv({str(_future_table(ground))!r}, parse_dates=["date"]).set_index(["instrument", "date"])["gain"]

class Joined(FullHistoryStateInterpreter):
    @property
    def observation_space(self):
        gain = gym.spaces.Box(-1.0, 1.0, (), np.float32)
        return gym.spaces.Dict({{**super().observation_space.spaces, "gain": gain}})

    def interpret(self, known):
        return {{**super().interpret(known), "gain": self.gain(known)}}

    def refer(self, known):
        return {{**super().refer(known), "gain": self.gain(known)}}

    def gain(self, known):
        keys = list(zip(known.instrument, pd.to_datetime(known.date)))
        return TABLE.reindex(keys).fillna(0.0).to_numpy().astype(np.float32)
"""
    ground.settings["state_interpreter"] = ground.part("Joined", code)


@planted("a policy with a table of the future", "decisions foretold", "backtest")
def _table_policy(ground: Ground) -> None:
    code = f"""
import numpy as np
import pandas as pd
from rlwb.execution import Baseline

TABLE = pd.read_csv({str(_future_table(ground))!r}, parse_dates=["date"]).set_index(["instrument", "date"])["gain"]

class Told(Baseline):
    def act(self, obs, noise=None):
        keys = list(zip(obs.instrument, pd.to_datetime(obs.date)))
        return np.where(obs.side * TABLE.reindex(keys).fillna(0.0).to_numpy() > 0, obs.position, 0.2 * self.even(obs))
"""
    ground.settings["baselines"] = [*SETTINGS["baselines"], ground.part("Told", code)]


@planted("label shift: fills at the price of the bar before", "fills", "train")
def _shifted(ground: Ground) -> None:
    from rlwb.execution import engine

    def before(own: Any) -> Any:
        def prices(sessions: Any, rules: Any) -> np.ndarray:
            price = np.array(own(sessions, rules))
            price[:, 1:] = price[:, :-1].copy()
            return price

        return prices

    ground.patch(engine, "tick_prices", before)


@planted("fills at the best price of the step", "null market", "train")
def _best_fills(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.execution import OrderExecution

class Lucky(OrderExecution):
    def step(self, state, action):
        ticks, known = state.step_ticks(), state.known
        price = np.take_along_axis(self.engine.price[known.session], np.maximum(ticks, 0), axis=1)
        price = np.where(ticks >= 0, price, np.nan)
        best = np.where(known.side > 0, np.nanmin(price, axis=1), np.nanmax(price, axis=1))
        fill = np.zeros(ticks.shape)
        fill[:, 0] = np.where(state.done, 0.0, np.where(known.is_last_step, known.position, action))
        return state.traded(np.asarray(action, float), fill, np.broadcast_to(best[:, None], ticks.shape))
"""
    ground.settings["simulator"] = ground.part("Lucky", code)


@planted("early completion: the benchmark ends before the window", "window prices", "train")
def _early(ground: Ground) -> None:
    from rlwb.execution import engine

    def half(own: Any) -> Any:
        return lambda price, volume, row, start, end: own(price, volume, row, start, (start + end) // 2)

    ground.patch(engine, "window_prices", half)


@planted("wrong sign", "refused by the backtest", "train")
def _sign(ground: Ground) -> None:
    from rlwb.execution import metrics

    ground.patch(metrics, "price_advantage", lambda own: lambda *values: -own(*values))


@planted("reward scaled by the test days", "training unaware of later days", "train")
def _reward(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.execution import PAPenaltyReward

class Scaled(PAPenaltyReward):
    def __init__(self, sessions):
        last = sessions.fields["close"][sessions.dates == sessions.dates.max()]
        super().__init__(scale=float(1.0 + np.abs(np.log(last[:, -1] / last[:, 0])).mean()))
"""
    ground.settings["reward"] = ground.part("Scaled", code)


# Choosing and telling ------------------------------------------------------------------------------------------------


@planted("selection by test", "selection", "backtest")
def _selection(ground: Ground) -> None:
    import dataclasses

    def by_test(own: Any) -> Any:
        def choose(run: Any, config: Any) -> Any:
            every = own(run, config.model_copy(update={"backtest": config.backtest.model_copy(update={"top": 99})}))
            return dataclasses.replace(every, chosen=every.chosen[-1:])  # which another score puts first

        return choose

    ground.patch(backtest, "choose_checkpoints", by_test)


@planted("a validation log of another policy", "validation run again")
def _log(ground: Ground) -> None:
    def change(run: RunDirectory) -> None:
        path = run.metrics / "validation.csv"
        table = pd.read_csv(path)
        table.assign(pa=table["pa"] + 1.0).to_csv(path, index=False)

    ground.after.append(change)


@planted("results of another checkpoint", "test run again")
def _results(ground: Ground) -> None:
    _edit_orders(ground, lambda table: table.assign(pa=table["pa"] + 1.0), keep=True)


@planted("a headline that is not the mean of its orders", "tables")
def _headline(ground: Ground) -> None:
    def change(run: RunDirectory) -> None:
        path = run.backtest / "headline.csv"
        table = pd.read_csv(path)
        table.assign(pa_mean=table["pa_mean"] + 0.5).to_csv(path, index=False)

    ground.after.append(change)


_CONSTANT = """
import numpy as np
from rlwb.policy.heads import ActorCritic
from rlwb.policy.learner import Learner

class Fixed(Learner):
    figures = ()
    head = ActorCritic

    def __init__(self, network):
        self.network = network

    def act(self, obs, noise=None):
        return np.array(PLAN)[np.asarray(obs["cur_step"]).astype(int)]

    def learn(self, obs, action, reward, done):
        return {}

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass
"""


@planted("one-sided drift that any early seller collects", "gain beyond a schedule", "orders")
def _drift(ground: Ground) -> None:
    code = """
import numpy as np
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions

def Falling(instruments: int = 3, days: int = 40, tick_minutes: int = 15):
    own = synthetic_sessions(SyntheticSettings(instruments=instruments, days=days, tick_minutes=tick_minutes))
    slope = np.exp(-0.03 * np.linspace(0, 1, own.calendar.num_ticks))
    fields = {name: values * (1.0 if name == "volume" else slope) for name, values in own.fields.items()}
    return Sessions(own.calendar, own.instruments, own.dates, own.num_ticks, fields)
"""
    ground.settings["market.name"] = ground.part("Falling", code)
    ground.settings["orders.directions"] = ["SELL"]
    ground.settings["algorithm"] = ground.part("Fixed", _CONSTANT.replace("PLAN", "[4] + [0] * 30"))
    ground.settings["head.mask_actions"] = ground.settings["head.even_start"] = False


@planted("a gain that is only a saved fee", "gain beyond saved fees", "train")
def _fee(ground: Ground) -> None:
    rules = {"commission_bps": 300.0, "unfilled_at": "end", "complete_at_end": False}
    ground.settings |= {f"execution.rules.{name}": value for name, value in rules.items()}
    ground.settings["algorithm"] = ground.part(
        "Fixed", _CONSTANT.replace("PLAN", "[0, 0, 1, 0, 1, 0, 0, 0] + [0] * 30")
    )
    ground.settings["head.mask_actions"] = ground.settings["head.even_start"] = False
