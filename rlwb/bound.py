"""What simulators, interpreters and rewards share: they may know the environment they work in."""

from __future__ import annotations

from typing import Any


class Bound:
    """A part of an environment.

    `env` is set by the `EnvWrapper` that uses the part (a weak reference) and is None elsewhere. It is left out
    when the part is pickled, so that parts that have been used can still be sent to worker processes.
    """

    env: Any = None

    def bind(self, env: Any) -> None:
        """Tell the part which environment uses it now."""
        self.env = env

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if isinstance(state, dict):
            return {name: value for name, value in state.items() if name != "env"}
        return state
