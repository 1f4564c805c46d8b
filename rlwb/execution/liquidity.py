"""An example of a simulator of one's own: fills depend on a random state of liquidity."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine
from rlwb.execution.simulator import OrderExecution
from rlwb.execution.state import ExecutionState
from rlwb.seeds import uniform_of


class RandomLiquidity(OrderExecution):
    """The engine in a market that is dry in some steps: then only a part of the request is traded.

    Parameters
    ----------
    engine
        Executes what the liquidity lets through.
    dry
        Probability that a step is dry, in [0, 1].
    part
        Part of the request that a dry step lets through, in [0, 1].

    Notes
    -----
    Steps are dry independently of each other, drawn from the episode's seed. An order's last step is never dry, so that
    every order completes as under the engine's own rules.
    """

    def __init__(self, engine: Engine, dry: float = 0.3, part: float = 0.5) -> None:
        super().__init__(engine)
        if not (0 <= dry <= 1 and 0 <= part <= 1):
            raise ConfigError(f"dry is {dry} and part {part}; both must lie in [0, 1].")
        self.dry, self.part = dry, part

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        is_dry = (uniform_of(state.seeds, state.now.step) < self.dry) & ~state.known.is_last_step
        return super().step(state, np.where(is_dry, self.part * action, action))
