"""Which orders are executed, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from rlwb.execution import ExecutionRules, OrderSettings, SplitSettings
from rlwb.execution.presets import PRESETS
from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.fields import Count


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
