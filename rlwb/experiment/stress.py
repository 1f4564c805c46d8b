"""``rlwb stress``: all policies of a run under many conditions, and whether the best of them stays the best.

Every condition (`rlwb.experiment.conditions`) is played by itself and kept in a file of its own, so that a matrix that
was stopped goes on where it was; tables and figures are made of these files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, ConfigError, DataError, OrderError
from rlwb.execution import Baseline, Engine, ExecutionRules, KnownStateInterpreter, OrderBatch
from rlwb.execution.interpreters import AmountActionInterpreter
from rlwb.execution.state import Known
from rlwb.experiment.backtest import (
    Hindsight,
    Playable,
    baseline_playable,
    choose_checkpoints,
    interval_of,
    make_baselines,
    play,
    selection_of,
)
from rlwb.experiment.conditions import BASE, Condition, carried_feed, changed_sessions, conditions
from rlwb.experiment.config import RunConfig
from rlwb.experiment.notebook import progress_mode
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.policies import open_kept
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, hash_path, inputs_of, settings_of
from rlwb.experiment.workbench import Workbench
from rlwb.files import as_json, atomic_path, write_json, write_text
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.market import MarketFeatures, Normaliser, Sessions
from rlwb.market.novelty import Novelty
from rlwb.progress import Mode, Progress
from rlwb.reading import read_json, read_table

if TYPE_CHECKING:
    from rlwb.simulator import Simulator

FOLDER = "stress"
#: The policy that follows the chosen checkpoint, and the even schedule where its inputs are unlike those of training.
FALLBACK = "fallback"
#: Share of the decisions on validation orders that the fallback leaves to the schedule.
ALARMS = 0.01
_KEPT = ("policy", "kind", "order_id", "date", "pa_net", "ffr", "by_schedule")


class FedEngine(Engine):
    """An engine in one market whose policies see the bars of another feed of it.

    Parameters
    ----------
    sessions, ticks_per_step, rules
        See `Engine`: orders are filled and judged by these.
    feed
        What states and policies look bars up in, on the same sessions and clock.
    """

    def __init__(self, sessions: Sessions, ticks_per_step: int, rules: ExecutionRules, feed: Sessions) -> None:
        super().__init__(sessions, ticks_per_step, rules)
        self.sessions = feed


class Fallback:
    """A trained policy that leaves a decision to the even schedule where its inputs are unlike those of its training.

    Parameters
    ----------
    policy, sees, acts
        The policy with its interpreters.
    features
        What `sees` looks up.
    novelty
        Tells how unlike inputs are.
    threshold
        Novelty above which the schedule decides.
    engine
        Tells the even schedule.
    """

    def __init__(
        self,
        policy: Any,
        sees: StateInterpreter[Any],
        acts: ActionInterpreter[Any],
        features: MarketFeatures,
        novelty: Novelty,
        threshold: float,
        engine: Engine,
    ) -> None:
        self._policy, self._sees, self._acts = policy, sees, acts
        self._features, self._novelty, self.threshold, self._engine = features, novelty, threshold, engine
        #: Decisions so far, and those that the schedule made.
        self.decisions, self.by_schedule = 0, 0

    def act(self, known: Known, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        own = self._acts.interpret(known, self._policy.act(self._sees.refer(known), noise))
        is_new = self._novelty.score(self._features, known.session, known.tick) > self.threshold
        self.decisions += len(is_new)
        self.by_schedule += int(is_new.sum())
        return np.where(is_new, known.position * self._engine.even_share(known, known), own)


@dataclass(frozen=True, eq=False)
class World:
    """A condition made: the market, what policies see of it, and the orders.

    Attributes
    ----------
    market
        The parts of the run on the condition's sessions, under its rules.
    seen
        The same on the sessions of the feed; `market` itself where policies see the market as it is.
    simulator
        Fills by the market, and shows the feed.
    orders
        The test orders that can be executed there.
    """

    market: Workbench
    seen: Workbench
    simulator: Simulator[Any]
    orders: OrderBatch


class Stress:
    """The stress matrix of a finished run.

    Parameters
    ----------
    run
        A run, or an evaluation, with a backtest.

    Raises
    ------
    CheckpointError
        When it has no backtest.
    """

    def __init__(self, run: RunDirectory, config: RunConfig | None = None) -> None:
        self.run, self.config = run, config or run.config
        if not (run.backtest / "baselines.json").exists():
            raise CheckpointError(f"{run.path.name} has no backtest yet; run it to its end first.")
        self.folder = run.path / FOLDER
        self.bench = workbench(run, self.config)
        self._told = read_json(run.backtest / "baselines.json")

    @cached_property
    def table(self) -> pd.DataFrame:
        """The test orders."""
        return load_orders(self.run, self.bench, "test")

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of the sessions on the test days, which conditions change."""
        return np.flatnonzero(np.isin(self.bench.sessions.dates, self.table["date"].to_numpy().astype("M8[D]")))

    @cached_property
    def base_orders(self) -> OrderBatch:
        return self.bench.align(self.table, self.bench.objective.middle)

    @cached_property
    def _checkpoints(self) -> dict[str, tuple[str, Path, dict[str, Any]]]:
        """Name to kind, path and content of the checkpoints that are judged."""
        from rlwb.trainer import find_resumable, load_checkpoint

        origin = self.run.origin
        chosen = choose_checkpoints(self.run, self.config) if origin is None else selection_of(self.run, origin)
        found = {one.policy: ("checkpoint", one.path) for one in chosen.chosen}
        last, _ = find_resumable(self.run.checkpoints)
        assert last is not None, "a checkpoint was chosen above"
        found["last"] = ("last", last)
        return {name: (kind, path, load_checkpoint(path)) for name, (kind, path) in found.items()}

    @cached_property
    def novelty(self) -> tuple[Novelty, float] | None:
        """The measure of unlike inputs, and the threshold; None where the run does not have its training sessions.

        The threshold is the novelty that `ALARMS` of the decisions on validation orders exceed.
        """
        bench, path, state = self.bench, *next(iter(self._checkpoints.values()))[1:]
        _, features = bench.restore(state, path)
        rows = {}
        for part in ("train", "valid"):
            orders = load_orders(self.run, bench, part)
            found = bench.sessions.rows(orders["instrument"], orders["date"].to_numpy())
            if (found < 0).any():  # an evaluation on other bars
                return None
            rows[part] = np.unique(found)
        novelty = Novelty(features, bench.sessions, rows["train"])
        starts = np.flatnonzero(np.diff(bench.engine.cell, prepend=-1))[1:]
        sessions, ticks = (one.ravel() for one in np.meshgrid(rows["valid"], starts, indexing="ij"))
        return novelty, float(np.quantile(novelty.score(features, sessions, ticks), 1 - ALARMS))

    def world(self, condition: Condition) -> World:
        """Return a condition made; a `ConfigError`, `DataError` or `OrderError` says why it cannot be."""
        bench, seed = self.bench, self.config.seed
        rules = bench.engine.rules if condition.rules is None else condition.rules(bench.engine.rules)
        sessions = feed = bench.sessions
        if condition.bars is not None:
            sessions = feed = changed_sessions(sessions, self.rows, condition.bars, condition.name, seed)
        if condition.feed is not None:
            feed = changed_sessions(sessions, self.rows, condition.feed, condition.name, seed)
            feed = carried_feed(feed, sessions, self.rows)
        market = bench.elsewhere(sessions, rules)
        seen, simulator = market, market.simulator
        if feed is not sessions:
            seen = bench.elsewhere(feed, rules)
            engine = FedEngine(sessions, self.config.execution.ticks_per_step, rules, feed)
            simulator = market.make("simulator", self.config.simulator, engine=engine)
        table = self.table
        if condition.resized is not None:
            table = table.assign(
                **{name: table[name] * condition.resized for name in ("amount", "notional") if name in table}
            )
        orders = market.align(table, market.objective.middle, on_refused="drop")
        if condition.window is not None:
            orders = condition.window(market.engine, orders)
        if not len(orders):
            raise OrderError("no test order is left under it")
        return World(market, seen, simulator, orders)

    def play(self, condition: Condition) -> pd.DataFrame:
        """Return what each policy's orders came to under a condition, one row a policy and order.

        Columns are `policy`, `kind`, `order_id`, `date`, `pa_net`, `ffr`, and `by_schedule`, the share of a policy's
        decisions that the schedule made, NaN but of the fallback. A baseline or ceiling that refuses the condition has
        no rows.
        """
        world = self.world(condition)
        parts = [self._judged(world, *one) for one in self._policies(world, condition)]
        told = self._told if condition.told is None else condition.told(self._told)
        for name, part in zip(self._told_names, self.config.baselines, strict=True):
            try:
                one = world.seen.make("baseline", part)
                if isinstance(one, Hindsight):
                    one = world.market.make("baseline", part)
                    parts.append(_kept(name, "ceiling", world.orders, one.table(world.orders)))
                    continue
                if isinstance(one, Baseline):
                    one.load_state_dict(told[name])
                    one.check(world.orders)
                kind = "unattainable" if getattr(one, "sees_future", False) else getattr(one, "result_kind", "baseline")
                parts.append(self._judged(world, name, kind, baseline_playable(one)))
            except (ConfigError, OrderError):
                continue
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def _told_names(self) -> list[str]:
        return [*make_baselines(self.bench)]

    def _policies(self, world: World, condition: Condition) -> Iterator[tuple[str, str, Playable]]:
        """Yield name, kind and policy of all but the baselines."""
        first = None
        for name, (kind, path, state) in self._checkpoints.items():
            learner, features = world.seen.restore(state, path)
            features = _misscaled(world.seen, learner, features, condition.input_scale)
            playable = learner, world.seen.state_interpreter(features), world.market.action_interpreter
            first = first or (*playable, features)
            yield name, kind, playable
        assert first is not None
        if self.novelty is not None:
            falls_back = Fallback(*first, *self.novelty, world.market.engine)
            yield FALLBACK, FALLBACK, (falls_back, KnownStateInterpreter(), AmountActionInterpreter())
        for one in open_kept(self.run):
            yield one.name, "policy", one.playable(first[1], world.market.action_interpreter)

    def _judged(self, world: World, name: str, kind: str, playable: Playable) -> pd.DataFrame:
        episodes = play(world.market, playable, world.orders, world.simulator)
        frame = _kept(name, kind, world.orders, episodes.metrics)
        actor = playable[0]
        return frame.assign(by_schedule=actor.by_schedule / actor.decisions) if isinstance(actor, Fallback) else frame

    @cached_property
    def key(self) -> str:
        """Hash of all that the matrix depends on."""
        told = [settings_of(BACKTEST, self.config), inputs_of(BACKTEST, self.run), self._told]
        told += [[one.name, one.meaning] for one in conditions()]
        return hashlib.blake2b(as_json(told).encode(), digest_size=16).hexdigest()

    def run_all(
        self, wanted: Sequence[Condition] | None = None, *, progress: Callable[[str], None] | None = None
    ) -> dict[str, str]:
        """Play all conditions that are not played yet; return the reasons of those that cannot be, by name."""
        key, path = {"key": self.key}, self.folder / "key.json"
        if not path.exists() or read_json(path) != key:  # of another backtest
            for old in (self.folder / "orders").glob("*.parquet"):
                old.unlink()
        write_json(path, key)
        left_out = {}
        todo = [one for one in (conditions() if wanted is None else wanted) if one.plays or one.name == BASE]
        targets = {one.name: self.folder / "orders" / f"{one.name}.parquet" for one in todo}
        done = sum(path.exists() for path in targets.values())
        mode: Mode = "none" if progress is None else progress_mode()
        with Progress("condition", len(todo), title="stress", mode=mode, done=done, echo=progress or print) as shown:
            for one in todo:
                if targets[one.name].exists():
                    continue
                try:
                    frame = self.play(one)
                    with atomic_path(targets[one.name]) as new:
                        frame.to_parquet(new, index=False)
                    shown.step({one.name: "played"})
                except (ConfigError, DataError, OrderError) as error:
                    left_out[one.name] = str(error).partition("\n")[0]
                    shown.step({one.name: "left out"})
        return left_out

    def results(self, wanted: Sequence[Condition] | None = None) -> dict[str, pd.DataFrame]:
        """Return what was played, by condition; those that choose among the base's orders are made of the base."""
        found: dict[str, pd.DataFrame] = {}
        for one in conditions() if wanted is None else wanted:
            path = self.folder / "orders" / f"{one.name}.parquet"
            if path.exists():
                found[one.name] = read_table(path, ("policy", "order_id"), numbers=_KEPT[4:], texts=_KEPT[:3])
            elif one.keep is not None and BASE in found:
                ids = self.base_orders.table["order_id"].to_numpy()
                base = found[BASE]
                some = base[base["order_id"].isin(ids[one.keep(self.bench.engine, self.base_orders)])]
                if len(some):
                    found[one.name] = some.reset_index(drop=True)
        return found

    def judge(self, wanted: Sequence[Condition] | None = None, left_out: Mapping[str, str] | None = None) -> None:
        """Write ``conditions.csv``, ``verdicts.csv``, ``summary.json``, ``stress.md`` and the figures."""
        from rlwb.evaluation.pictures import save_picture
        from rlwb.evaluation.stress import stress_table, stress_verdicts

        every = conditions() if wanted is None else wanted
        results = self.results(every)
        places = {one.name: (one.family, one.level) for one in every}
        found = stress_table(results, places, **interval_of(self.config))
        verdicts = stress_verdicts(found.table, found.winner)
        for name, frame in {"conditions": found.table, "verdicts": verdicts}.items():
            with atomic_path(self.folder / f"{name}.csv") as target:
                frame.to_csv(target, index=False)
        schedule = {name: frame["by_schedule"].max() for name, frame in results.items() if self.novelty is not None}
        unplayed = {one.name: "no order or no play of it is there" for one in every if one.name not in results}
        about = {
            "backtest": hash_path(self.run.backtest / "summary.csv"),
            "winner": found.winner,
            "stays_everywhere": found.everywhere,
            "block_days": found.block,
            "by_schedule": {name: value for name, value in schedule.items() if np.isfinite(value)},
            "threshold": None if self.novelty is None else self.novelty[1],
            "meanings": {one.name: one.meaning for one in every if one.name in results},
            "by_hindsight": [one.name for one in every if one.hindsight and one.name in results],
            "left_out": {**unplayed, **(left_out or {})},
        }
        write_json(self.folder / "summary.json", about)
        for name, figure in stress_figures(self.run).items():
            save_picture(figure, self.folder / name)
        write_text(self.folder / "stress.md", _as_markdown(self.run))


def families_of(asked: Any) -> list[str]:
    """Return the families of conditions that are asked for; None and "all" ask for all, as no name does.

    Raises
    ------
    ConfigError
        Naming a family that is not there.
    """
    families = list(dict.fromkeys(one.family for one in conditions()))
    if asked is None or asked == "all":
        return []
    if isinstance(asked, str):  # as papermill passes a list
        asked = [one.strip() for one in asked.strip("[] ").split(",")]
    if not isinstance(asked, (list, tuple)) or not all(isinstance(one, str) for one in asked):
        raise ConfigError(f"conditions is {asked!r}; give a list of families of conditions, or all.")
    if unknown := [one for one in asked if one not in families]:
        raise ConfigError(f"there is no family of conditions {unknown[0]!r}; there are {', '.join(families)}.")
    return list(asked)


def launch_stress(
    path: Path,
    only: Sequence[str] = (),
    *,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
    progress: Callable[[str], None] | None = None,
) -> RunDirectory:
    """Do what ``rlwb stress`` asks for: play the conditions, or the families `only` and the base, and judge them.

    What was played before is judged again with it.
    """
    run = RunDirectory.open(path)
    config = run.config
    if config.split.rolling is not None:
        raise ConfigError(f"{path} is a rolling run, whose checkpoints are in its windows; give one of windows/.")
    require_trust(config, given=trust_code)
    only = families_of(only or None)
    wanted = [one for one in conditions() if not only or one.family in ("base", *only)]
    with run.lock():
        matrix = Stress(run, config)
        left_out = matrix.run_all(wanted, progress=progress)
        before = read_stress(run)
        known = set() if before is None else set(before["condition"])
        known |= {one.name for one in wanted} | {path.stem for path in (matrix.folder / "orders").glob("*.parquet")}
        matrix.judge([one for one in conditions() if one.name in known], left_out)
    for sentence in stress_sentences(run):
        echo(sentence)
    echo(f"tables and figures: {matrix.folder}")
    return run


STRESS_CAPTIONS = {
    "stress_map": "Net PA over TWAP of every policy under every condition. Blue gains, red loses; be wary of a policy "
    "that is blue without changes and red in many rows, and of one that only its own costs separate from others.",
    "stress_curves": "Net PA of every policy against the level of what changes. Be wary of a lead that a small change "
    "turns, and of a gain that small costs use up.",
}
"""What stands under the figures of the stress matrix, by name."""


def stress_pictures(run: RunDirectory) -> dict[str, Path]:
    """Return the files of the figures by name."""
    return {name: run.path / FOLDER / f"{name}.png" for name in STRESS_CAPTIONS}


def read_stress(run: RunDirectory) -> pd.DataFrame | None:
    """Return ``stress/conditions.csv`` of a run, one row a condition, policy and metric.

    None where there is none, or it is of another backtest than the run has now.
    """
    path, summary = run.path / FOLDER / "conditions.csv", run.backtest / "summary.csv"
    if not path.exists() or not summary.exists():
        return None
    if read_json(path.with_name("summary.json")).get("backtest") != hash_path(summary):
        return None
    numbers = ["level", "estimate", "lo", "hi", "p", "p_adjusted", "orders", "days"]
    key = ("condition", "policy", "metric")
    return read_table(path, key, numbers=numbers, texts=["condition", "family", "policy", "kind", "metric"])


def stress_tables(run: RunDirectory) -> dict[str, pd.DataFrame]:
    """Return ``stress/conditions.csv`` and ``stress/verdicts.csv``, by name; empty where there are none."""
    table = read_stress(run)
    return {} if table is None else {"conditions": table, "verdicts": _verdicts(run)}


def _verdicts(run: RunDirectory) -> pd.DataFrame:
    path = run.path / FOLDER / "verdicts.csv"
    return read_table(path, "condition", numbers=["stays"], texts=["condition", "family", "best", "verdict"])


def _titles(table: pd.DataFrame) -> dict[str, str]:
    """Return what people read in place of the policies' names, without those that see the future."""
    from rlwb.evaluation.results import PolicyResult

    titles = {}
    for name, kind in table.drop_duplicates("policy")[["policy", "kind"]].itertuples(index=False):
        if kind in ("ceiling", "unattainable"):
            continue
        if kind in ("checkpoint", FALLBACK):
            titles[name] = "chosen checkpoints" if kind == "checkpoint" else "best with fallback"
        else:
            titles[name] = PolicyResult(name, kind, _NO_ORDERS).title
    return titles


_NO_ORDERS = pd.DataFrame(columns=["order_id", "instrument", "date", "pa", "ffr"])


def stress_figures(run: RunDirectory) -> dict[str, Any]:
    """Return the figures of the stress matrix of a run by name; empty where there is none."""
    from rlwb.evaluation import stress_plots

    table = read_stress(run)
    if table is None:
        return {}
    titles, families = _titles(table), dict(table[["condition", "family"]].drop_duplicates().itertuples(index=False))
    return {
        "stress_map": stress_plots.stress_map(table, titles, families),
        "stress_curves": stress_plots.stress_curves(table, titles, BASE),
    }


def stress_view(run: RunDirectory) -> pd.DataFrame:
    """Return the stress matrix as people read it, one row a condition; empty where there is none.

    Columns are the chosen checkpoints' net PA with its interval, CVaR, fulfilment rate, gain over TWAP with its p-value
    corrected for the number of conditions, the net PA of the best checkpoint with the fallback, which policy is the
    best, the probability that the winner of the base is, and what became of that winner.
    """
    table = read_stress(run)
    if table is None:
        return pd.DataFrame()
    verdicts, titles = _verdicts(run).set_index("condition"), _titles(table)
    own = table[table["kind"] == "checkpoint"].pivot(index="condition", columns="metric")
    order = [name for name in table["condition"].drop_duplicates() if name in own.index]
    estimate = own["estimate"]
    shown = {
        "net PA": estimate["pa_net"],
        "low": own["lo"]["pa_net"],
        "high": own["hi"]["pa_net"],
        "CVaR 95 %": estimate["cvar"],
        "ffr": estimate["ffr"],
        "over TWAP": estimate["net_over_twap"],
        "adjusted p": own["p_adjusted"]["net_over_twap"],
    }
    falls = table[(table["policy"] == FALLBACK) & (table["metric"] == "pa_net")].set_index("condition")["estimate"]
    view = pd.DataFrame(shown).reindex(order)
    view["with fallback"] = falls.reindex(order)
    view["best"] = verdicts["best"].map(titles).reindex(order)
    view["winner stays"] = verdicts["stays"].reindex(order)
    view["verdict"] = verdicts["verdict"].reindex(order)
    return view.rename_axis(index="condition", columns=None)


def stress_sentences(run: RunDirectory) -> list[str]:
    """Say in plain sentences what the stress matrix shows; nothing where there is none."""
    table = read_stress(run)
    if table is None:
        return []
    about, verdicts, titles = read_json(run.path / FOLDER / "summary.json"), _verdicts(run), _titles(table)
    if about["winner"] is None:
        return ["No policy of the run could be traded under the base, so none is put to the test."]
    others = verdicts[verdicts["condition"] != BASE]
    counts = others["verdict"].value_counts().reindex(["stays", "leads", "behind", "beaten"], fill_value=0)
    stays, beats = counts["stays"] + counts["leads"], counts["behind"] + counts["beaten"]
    text = (
        "Without any change the policy with the highest mean net PA that could be traded is: "
        f"{titles[about['winner']]}. Of {len(others)} other conditions it is still first in {stays}, in "
        f"{counts['stays']} of them clear of every other; another is first in {beats}, and clearly better in "
        f"{counts['beaten']} (adjusted p of at most 0.05)."
    )
    found = [text]
    beaten = others[others["verdict"] == "beaten"]
    if len(beaten):
        under = (f"{row.condition} (first: {titles[row.best]})" for row in beaten.itertuples())
        found.append(f"Clearly beaten under {', '.join(under)}.")
    least = verdicts.loc[verdicts["stays"].idxmin()]
    found.append(
        f"On resampled days it is first under all at once with a probability of {about['stays_everywhere']:.2f};"
        f" the lowest for a single condition is {least['stays']:.2f}, under {least['condition']}."
    )
    mean = table[table["metric"] == "pa_net"].pivot(index="condition", columns="policy", values="estimate")
    first = read_json(run.backtest / "selection.json")["chosen"][0]
    if FALLBACK in mean:
        gain = (mean[FALLBACK] - _of_first(run, first)).dropna()
        best, worst = gain.idxmax(), gain.idxmin()
        share = about["by_schedule"]
        told = {name: f"{gain[name]:+.2f} bp, {100 * share.get(name, np.nan):.0f} %" for name in (BASE, best, worst)}
        found.append(
            "A fallback to the even schedule where inputs are unlike those of training changes the net PA of the best "
            "checkpoint by validation, with this share of the decisions made by the schedule: without any change "
            f"{told[BASE]}; at best, under {best}, {told[best]}; at worst, under {worst}, {told[worst]}."
        )
    if about["by_hindsight"]:
        found.append(
            f"Conditional on hindsight, which nobody has when a day begins: {', '.join(about['by_hindsight'])}."
        )
    if about["left_out"]:
        found.append("Left out: " + "; ".join(f"{name} ({why})" for name, why in about["left_out"].items()) + ".")
    return found


def _of_first(run: RunDirectory, policy: str) -> pd.Series:
    """Return the mean net PA of one checkpoint by condition."""
    found = {}
    for path in sorted((run.path / FOLDER / "orders").glob("*.parquet")):
        frame = read_table(path, numbers=["pa_net"], texts=["policy"])
        found[path.stem] = frame.loc[frame["policy"] == policy, "pa_net"].mean()
    return pd.Series(found)


def _as_markdown(run: RunDirectory) -> str:
    view = stress_view(run)
    header = ["condition", *view]
    lines = ["# Stress", "", *stress_sentences(run), "", f"| {' | '.join(header)} |", f"|{' --- |' * len(header)}"]
    for name, row in view.iterrows():
        lines.append(f"| {name} | {' | '.join(_cell(*one) for one in row.items())} |")
    meanings = read_json(run.path / FOLDER / "summary.json")["meanings"]
    return "\n".join([*lines, "", *(f"- {name}: {meaning}" for name, meaning in meanings.items())]) + "\n"


def _cell(title: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if pd.isna(value) else f"{value:z.4f}" if title == "adjusted p" else f"{value:z.2f}"


def _misscaled(bench: Workbench, learner: Learner, features: MarketFeatures, factor: float | None) -> MarketFeatures:
    """Return features whose scale is off by a factor, for a learner that is let see them."""
    if factor is None:
        return features
    own = features.normaliser
    learner.trained_for = None  # its record names the normaliser of its training
    return bench.features(normaliser=Normaliser(own.columns, own.mean, own.scale * factor))


def _kept(name: str, kind: str, orders: OrderBatch, figures: Mapping[str, Any] | pd.DataFrame) -> pd.DataFrame:
    table = orders.table
    columns = {"policy": name, "kind": kind, "order_id": table["order_id"].to_numpy(), "date": table["date"].to_numpy()}
    numbers = {column: np.asarray(figures[column], dtype=np.float64) for column in ("pa_net", "ffr")}
    return pd.DataFrame({**columns, **numbers, "by_schedule": np.nan})
