"""Market encoders whose states come all at once, by one pass over the whole session."""

from __future__ import annotations

import numpy as np
import torch

from rlwb.policy.gru import ALIGN
from rlwb.policy.kept import Kept
from rlwb.policy.market_encoder import MarketEncoder, as_tensor

_SESSIONS_PER_PASS = 512


class WholePassEncoder(MarketEncoder):
    """A `MarketEncoder` that cannot go from decision to decision: `_pass_over` serves every decision of a session."""

    def _recall(self, session: np.ndarray, tick: torch.Tensor) -> torch.Tensor:
        kept = self._kept
        if kept is None or not kept.serves(session, self.features):
            self._kept = None
            distinct = np.unique(session)
            # In multiples of a few rows, so that a session's bits do not depend on its company.
            filled = np.concatenate([distinct, np.repeat(distinct[-1:], -len(distinct) % ALIGN)])
            cuts = range(0, len(filled), _SESSIONS_PER_PASS)
            parts = [self._pass_over(filled[low : low + _SESSIONS_PER_PASS]) for low in cuts]
            states = torch.cat(parts, dim=1)[:, : len(distinct)]
            kept = Kept(self, distinct, self.features, states, np.ones(states.shape[:2], dtype=bool))
            self._kept = kept
        return kept.states[tick, as_tensor(np.searchsorted(kept.sessions, session), tick.device)]
