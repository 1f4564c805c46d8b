"""The sections of a run's configuration."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, OrderSettings, SplitSettings
from rlwb.execution.presets import PRESETS
from rlwb.experiment.parameters import Section
from rlwb.market import Calendar, SyntheticSettings
from rlwb.market.readers.registry import TABLE, make_reader

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]
Ceiling = Literal["hindsight", "hindsight_uncapped"]
Baseline = Literal["twap", "vwap", "pov", "almgren_chriss", "bertsimas_lo", Ceiling]

#: All that may stand beside a learner.
BASELINES: tuple[str, ...] = get_args(Baseline)

#: Baselines that are no policies: they know the day's prices.
CEILINGS: tuple[str, ...] = get_args(Ceiling)

_UNUSED_BY_ALGORITHM = {
    "ppo": ("dqn", "opd"),
    "dqn": ("gae_lambda", "clip", "entropy", "value_coef", "opd"),
    "opd": ("dqn",),
}


def unused_settings(algorithm: str, reward: str) -> dict[str, str]:
    """Return the settings of `TrainConfig` without effect, each with the setting by which they have none."""
    by_reward = dict.fromkeys(("penalty", "reward_scale") if reward == "sparse" else (), "reward")
    return dict.fromkeys(_UNUSED_BY_ALGORITHM[algorithm], "algorithm") | by_reward


class CalendarConfig(Section):
    """The session's clock: a preset, and what differs from it.

    Parameters
    ----------
    preset
        ``cn``, ``us``, ``in`` or ``crypto``; none when `exchange` or `segments` states the session.
    exchange
        Code of an exchange, such as XNYS, XSHG or XLON, whose hours, zone, holidays and early closes are taken from the
        package exchange_calendars (pip install 'rlwb[calendars]'); in place of `preset`.
    segments
        Opening and closing time of each part of the session, for example ``[["09:30", "11:30"], ["13:00", "15:00"]]``.
    tick_minutes
        Length of a bar in minutes; 1/60 is a second. It must be that of the bars.
    label
        Whether a bar's stamp names its ``start`` or its ``end``. A wrong label shifts every decision by one bar.
    timezone
        Zone of the exchange (IANA name); bars that carry a zone need it.
    weekdays
        Days with trading, Monday is 0.
    early_closes
        Closing time by date of shortened days.
    closed
        Dates whose bars are rejected.
    infer_early_close_minutes
        A date on which nothing trades for the last this many minutes closed early; 0 turns that off.
    """

    preset: Literal["cn", "us", "in", "crypto"] | None = "us"
    exchange: str | None = None
    segments: tuple[tuple[str, str], ...] | None = None
    tick_minutes: Positive = 1.0
    label: Literal["start", "end"] = "start"
    timezone: str | None = None
    weekdays: tuple[int, ...] | None = None
    early_closes: dict[str, str] | None = None
    closed: tuple[str, ...] = ()
    infer_early_close_minutes: CountOrZero | None = None

    def build(self) -> Calendar:
        """Return the calendar of the market room."""
        given = {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}
        preset, exchange = given.pop("preset", None), given.pop("exchange", None)
        if preset is not None and exchange is not None:
            raise ConfigError(f"the calendar is given as preset {preset} and as exchange {exchange}; keep one of them.")
        if exchange is not None:
            return Calendar.exchange(exchange, **given)
        if preset is None and "segments" not in given:
            raise ConfigError("the calendar needs a preset, an exchange, or the segments of the session.")
        return Calendar.preset(preset, **given) if preset else Calendar(**given)

    @model_validator(mode="after")
    def _buildable(self) -> CalendarConfig:
        if self.exchange is not None and "preset" not in self.model_fields_set:
            object.__setattr__(self, "preset", None)  # an exchange takes the place of a preset that nobody asked for
        try:
            self.build()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


class MarketConfig(Section):
    """Where bars come from and how they are read.

    Parameters
    ----------
    source
        ``synthetic`` for the embedded market, or the path of bars: a data set (``rlwb data import``), a saved panel, a
        Parquet or CSV file, a folder with one file an instrument, or what another reader reads. In a configuration
        file, a relative path starts at that file.
    kind
        What reads the source: ``table`` for Parquet and CSV, ``qlib``, ``binance``, ``lean``, ``lobster``,
        ``qlib_pickle``, or the reader of an installed package. None goes by the names of the files.
    options
        Options of that reader, for example ``{freq: 1min, prices: raw}`` of ``qlib``. A pickle is read only with
        ``{trust_pickle: true}``.
    synthetic
        The embedded market; only with ``source: synthetic``.
    calendar
        The session's clock; only with bars of your own, the embedded market has its own. A data set and a saved panel
        bring theirs, which is used unless this one is changed from its default.
    columns
        The data's own column names to ours, for example ``{symbol: instrument, time: datetime}``.
    instruments
        Names of the instruments to use, quoted where they look like numbers; empty means all.
    start, end
        First and last date to use.
    strict
        Refuse data that would have to be repaired or dropped, instead of reporting it.
    min_coverage
        A session with a smaller share of its bars than this is dropped; larger is stricter.
    volume_multiplier
        What one unit of the volume column is in shares, for example 100 where it counts lots.
    prices
        What prices are in bars with a column factor: as ``traded``, or ``adjusted`` by it and to be brought back.
    instrument_pattern
        Regular expression whose group 1 is the instrument in a file's name, for folders of several files an
        instrument, for example ``(.+)-[0-9]{8}``.
    datetime_format
        strptime format of times that are not ISO 8601, for example ``%d/%m/%Y %H:%M``.
    """

    source: str = "synthetic"
    kind: str | None = None
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    synthetic: SyntheticSettings = SyntheticSettings(days=240)
    calendar: CalendarConfig = CalendarConfig()
    columns: dict[str, str] = Field(default_factory=dict)
    instruments: tuple[str, ...] = ()
    start: dt.date | None = None
    end: dt.date | None = None
    strict: bool = False
    min_coverage: Share = 0.5
    volume_multiplier: Positive = 1.0
    prices: Literal["traded", "adjusted"] = "traded"
    instrument_pattern: str | None = None
    datetime_format: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> MarketConfig:
        if self.start and self.end and self.start > self.end:
            raise ValueError(f"start {self.start} is after end {self.end}; exchange them.")
        unused = "synthetic" if self.source != "synthetic" else "calendar"
        if getattr(self, unused) != type(self).model_fields[unused].default:
            raise ValueError(f"{unused} has no effect with source {self.source!r}; drop it or change the source.")
        self._check_reader()
        return self

    def _check_reader(self) -> None:
        """Refuse a kind or options of no reader, and what the reader would not look at."""
        given = [name for name in ("kind", "options") if getattr(self, name)]
        if self.source == "synthetic" and given:
            raise ValueError(f"{given[0]} has no effect with source 'synthetic'; drop it or change the source.")
        if self.kind is None:
            return
        try:
            make_reader(self.kind, self.options)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        unused = [name for name in ("columns", "instrument_pattern", "datetime_format") if getattr(self, name)]
        if self.kind != TABLE and unused:
            raise ValueError(f"{unused[0]} has no effect with kind {self.kind!r}; drop it or change the kind.")


class OrdersConfig(Section):
    """Which orders are executed.

    Parameters
    ----------
    source
        ``generated``, or the path of an order table of your own (Parquet or CSV).
    generate
        The recipe of generated orders; only with ``source: generated``.
    split
        Which dates are for training, validation and test.
    """

    source: str = "generated"
    generate: OrderSettings = OrderSettings()
    split: SplitSettings = SplitSettings()

    @model_validator(mode="after")
    def _consistent(self) -> OrdersConfig:
        if self.source != "generated" and self.generate != OrderSettings():
            raise ValueError(f"generate has no effect with source {self.source!r}; drop it or change the source.")
        return self


class ExecutionConfig(Section):
    """How orders are executed, in training and backtest alike.

    Parameters
    ----------
    ticks_per_step
        Bars between two decisions; larger means fewer, coarser decisions.
    preset
        Rules of a market to start from, ``cn``, ``us`` or ``crypto``, whose sources and assumptions are in
        ``rlwb.execution.presets``; `rules` changes them. None starts from the simple rules.
    rules
        Market rules and costs.
    """

    ticks_per_step: Count = 6
    preset: Literal["cn", "us", "crypto"] | None = None
    rules: ExecutionRules = ExecutionRules()

    @classmethod
    def group_default(cls, name: str, values: Mapping[str, Any]) -> Any:
        """Return the rules of the preset as what `rules` changes."""
        preset = values.get("preset")
        return ExecutionRules.preset(preset) if preset in PRESETS else super().group_default(name, values)

    @model_validator(mode="after")
    def _preset_alone(self) -> ExecutionConfig:
        if self.preset is not None and "rules" not in self.model_fields_set:
            object.__setattr__(self, "rules", ExecutionRules.preset(self.preset))
        return self


class PolicyConfig(Section):
    """The network.

    Parameters
    ----------
    network
        ``recurrent`` reads today's bars by a GRU, ``convolution`` by causal convolutions, ``attention`` by a small
        transformer, and yesterday's with features.previous_day; ``mlp`` sees the order's own state alone.
    hidden
        Width of its layers; larger can hold more and learns slower.
    mask_actions
        Whether of actions that ask for the same amount, like all in an order's last step, one alone can be chosen.
    even_start
        Whether the untrained policy, and random actions, trade evenly on average instead of choosing evenly.
    """

    network: Literal["recurrent", "convolution", "attention", "mlp"] = "recurrent"
    hidden: Count = 64
    mask_actions: bool = False
    even_start: bool = False


class DQNConfig(Section):
    """What deep Q-learning has to itself; only with ``algorithm: dqn``.

    Parameters
    ----------
    n_step
        Rewards that are summed before the network's own guess stands for the rest.
    double
        Whether the network chooses the next action and its older copy values it, against overestimation.
    huber
        Errors beyond this, in deviations of the returns, count in proportion instead of squared; none squares all.
    target_every
        Gradient steps between two copies of the network for the targets; larger is steadier and slower.
    epsilon_start, epsilon_end
        Share of random actions while collecting, at first and at last.
    epsilon_iterations
        Iterations from the first to the last share.
    replay_size
        Most transitions kept; some 80 bytes each, in memory and in every checkpoint.
    """

    n_step: Count = 1
    double: bool = True
    huber: Positive | None = 1.0
    target_every: Count = 50
    epsilon_start: Share = 1.0
    epsilon_end: Share = 0.05
    epsilon_iterations: Count = 20
    replay_size: Count = 100_000


class OPDConfig(Section):
    """What oracle policy distillation has to itself; only with ``algorithm: opd``.

    Parameters
    ----------
    teacher_iterations
        Iterations that the teacher is trained for before the student begins, with the same settings as it.
    distillation
        Weight of the loss that draws the student to the teacher's actions. Larger imitates more; too large also copies
        what only the future tells.
    """

    teacher_iterations: Count = 40
    distillation: Positive = 0.01


class TrainConfig(Section):
    """How the policy is trained.

    Parameters
    ----------
    algorithm
        ``ppo`` learns from each collect and forgets it; ``dqn`` keeps what it has seen and learns the actions' values;
        ``opd`` is ppo that also imitates a teacher which sees the rest of the day.
    iterations
        Collects of episodes, each followed by an update, those before a resume included; a run that has trained for
        more refuses fewer.
    episodes_per_iteration
        Orders executed a collect; larger gives a steadier gradient and takes longer.
    batch_size
        Transitions a gradient step; larger is steadier, smaller takes more steps.
    repeats
        Passes over the collected transitions; larger learns more from each, and drifts further from the policy that
        collected them. With ``dqn``, draws of as many from the kept ones.
    learning_rate
        Step of the optimiser; larger learns faster until it does not learn at all.
    gamma
        Discount a step; below 1 the policy cares less for what comes later in the order.
    gae_lambda
        1 uses whole episodes (unbiased, noisy), 0 the critic's guess (biased, calm). Not with ``dqn``, like the next
        three.
    clip
        How far one update may move the probabilities of actions.
    entropy
        Weight of the entropy bonus; larger explores more.
    value_coef
        Weight of the critic's loss.
    dqn
        Only with ``dqn``.
    opd
        Only with ``opd``.
    max_grad_norm
        Gradients longer than this are cut.
    action_values
        The policy chooses among 0, 1/n, …, 1 of the amount; this is n.
    reward
        ``pa`` pays each step its price advantage in basis points less a penalty. ``sparse`` pays once, at the end, on
        the price after costs: -1 for one worse than TWAP, 1 for one a tenth better, which is rare in a day, 0 between.
    penalty
        Weight of the penalty on trading in lumps; larger draws the policy towards TWAP. Only with ``pa``.
    reward_scale
        Factor of the reward. Only with ``pa``.
    validate_every
        Iterations between validations; only validated iterations can be chosen for the backtest.
    checkpoint_every
        Iterations between checkpoints.
    keep
        Checkpoints kept: the best by validation and the newest; 0 keeps all.
    patience
        Validations without improvement until training stops; none trains to the end.
    env
        Environments to collect with: ``native`` steps all orders as arrays; ``dummy``, ``subproc`` and ``shmem`` step
        one simulator an order, in this process or in workers. All give the same numbers.
    concurrency
        Orders in progress at a time with ``dummy``, workers with ``subproc`` and ``shmem``; ``native`` takes all orders
        at once and has no use for it.
    device
        ``cpu``, ``cuda``, or ``auto``.
    """

    algorithm: Literal["ppo", "dqn", "opd"] = "ppo"
    iterations: Count = 40
    episodes_per_iteration: Count = 1000
    batch_size: Count = 500
    repeats: Count = 4
    learning_rate: Positive = 2e-3
    gamma: Share = 1.0
    gae_lambda: Share = 1.0
    clip: Positive = 0.2
    entropy: NotNegative = 0.01
    value_coef: NotNegative = 0.5
    dqn: DQNConfig = DQNConfig()
    opd: OPDConfig = OPDConfig()
    max_grad_norm: Positive = 1.0
    action_values: Count = 4
    reward: Literal["pa", "sparse"] = "pa"
    penalty: NotNegative = 20.0
    reward_scale: Positive = 1.0
    validate_every: Count = 1
    checkpoint_every: Count = 1
    keep: CountOrZero = 0
    patience: Count | None = None
    env: Literal["native", "dummy", "subproc", "shmem"] = "native"
    concurrency: Count = 4
    device: Literal["cpu", "cuda", "auto"] = "cpu"

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        for name, chooser in unused_settings(self.algorithm, self.reward).items():
            if getattr(self, name) != type(self).model_fields[name].default:
                chosen = getattr(self, chooser)
                raise ValueError(f"{name} has no effect with {chooser} {chosen!r}; drop it or change the {chooser}.")
        return self


class BacktestConfig(Section):
    """How the result is judged.

    Parameters
    ----------
    top
        Checkpoints chosen by validation PA.
    baselines
        What stands beside them: ``twap``, ``vwap``, ``pov``, ``almgren_chriss`` and ``bertsimas_lo`` trade without
        knowing the future; ``hindsight`` is the ceiling that no policy passes under the run's rules, and
        ``hindsight_uncapped`` the same as if they had no volume cap.
    urgency
        Only with ``almgren_chriss``: how far it hurries with the typical training order, as the window over the
        half-life of the trade; larger trades earlier. 3 leaves a fifth after half of the window.
    bootstrap_samples
        Draws of the bootstrap; larger steadies the last digit of the interval.
    confidence
        Coverage of the intervals.
    """

    top: Count = 10
    baselines: tuple[Baseline, ...] = ("twap", "vwap", "pov", "almgren_chriss", "hindsight")
    urgency: Positive = 3.0
    bootstrap_samples: Annotated[int, Field(ge=100)] = 2000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95

    @model_validator(mode="after")
    def _consistent(self) -> BacktestConfig:
        twice = next((name for name in self.baselines if self.baselines.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"baselines names {twice} twice; keep one.")
        if "almgren_chriss" not in self.baselines and self.urgency != type(self).model_fields["urgency"].default:
            raise ValueError("urgency has no effect without almgren_chriss among the baselines; drop it or add that.")
        return self
