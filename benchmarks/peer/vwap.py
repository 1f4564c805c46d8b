"""The volume curves of two published peers, trained through their slippage to the VWAP; imports nothing of rlwb."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "torch")

#: As in the peers' examples, but for the epochs, which a small set needs fewer of.
_BATCH, _PATIENCE = 128, 5


def curves(folder: Path, epochs: int, seed: int) -> dict[str, float]:
    """Train both on ``vwap.npz`` of the folder, write their curves to ``curves.npz`` and return their seconds."""
    import keras
    from dvwap import StaticVWAP, quadratic_vwap_loss
    from dynamic_vwap import DynamicVWAP

    with np.load(folder / "vwap.npz") as file:
        data = {name: file[name].astype(np.float32) for name in file.files}
    ahead = data["y_train"].shape[1]
    lookback = data["x_train"].shape[1] - ahead + 1
    makers = {
        "StaticVWAP": lambda: StaticVWAP(lookback=lookback, n_ahead=ahead),
        "DynamicVWAP": lambda: DynamicVWAP(lookback=lookback, n_ahead=ahead, hidden_size=32, hidden_rnn_layer=1),
    }
    found, seconds = {}, {}
    for name, make in makers.items():
        keras.utils.set_random_seed(seed)
        seen = {part: data[f"x_{part}"][:, : lookback if name == "StaticVWAP" else None] for part in _PARTS}
        start = time.perf_counter()
        model: Any = make()
        model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=quadratic_vwap_loss)
        stop = keras.callbacks.EarlyStopping(patience=_PATIENCE, restore_best_weights=True)
        model.fit(
            seen["train"],
            data["y_train"],
            validation_data=(seen["valid"], data["y_valid"]),
            batch_size=_BATCH,
            epochs=epochs,
            callbacks=[stop],
            verbose=2,
        )
        found[name] = model.predict(seen["test"], batch_size=_BATCH, verbose=0)[..., 0]
        seconds[name] = time.perf_counter() - start
    np.savez(folder / "curves.npz", **found)
    return seconds


_PARTS = ("train", "valid", "test")
JOBS = {"curves": curves}
