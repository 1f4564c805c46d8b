"""How the result is judged."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.fields import Count, Positive

Ceiling = Literal["hindsight", "hindsight_uncapped"]
Baseline = Literal["twap", "vwap", "pov", "almgren_chriss", "bertsimas_lo", Ceiling]

#: All that may stand beside a learner.
BASELINES: tuple[str, ...] = get_args(Baseline)

#: Baselines that are no policies: they know the day's prices.
CEILINGS: tuple[str, ...] = get_args(Ceiling)


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
