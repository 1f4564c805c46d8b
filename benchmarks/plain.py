"""What is usually written to serve a policy: one Flask or FastAPI handler around the torch model. Nothing of rlwb.

The request holds the order, its path, and the day's bars as a list of objects; the handler makes a data frame of the
bars, the features of the whole day from it, runs the model over them without gradients, and returns the amount. The
model is that of the bundle, a GRU over the bars and one over the path, written with torch's own layers and loaded once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

PRICES = ["open", "high", "low", "close"]


class Model(nn.Module):
    """The network of the bundle, with torch's layers."""

    def __init__(self, channels: int, hidden: int, actions: int) -> None:
        super().__init__()
        self.market = nn.GRU(channels, hidden, batch_first=True)
        self.private = nn.GRU(2, hidden, batch_first=True)
        self.direction = nn.Sequential(nn.Embedding(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.join = nn.Sequential(nn.Linear(3 * hidden + 3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.actor = nn.Linear(hidden, actions)

    def forward(self, day: torch.Tensor, path: torch.Tensor, buy: torch.Tensor, scalars: torch.Tensor) -> torch.Tensor:
        """Return the logits of the actions, of shape (1, A)."""
        seen = self.market(day)[0][:, -1] if day.shape[1] else day.new_zeros(1, self.market.hidden_size)
        own = self.private(path)[0][:, -1]
        logits: torch.Tensor = self.actor(self.join(torch.cat([seen, own, self.direction(buy), scalars], dim=1)))
        return logits


class Handler:
    """The model and the statistics that its features need, loaded once."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.settings = json.loads((folder / "plain.json").read_text(encoding="utf-8"))
        self.mean, self.scale = np.array(self.settings["mean"]), np.array(self.settings["scale"])
        self.model = Model(len(self.mean), self.settings["hidden"], len(self.settings["shares"]))
        self.model.load_state_dict(torch.load(folder / "plain.pt", weights_only=True))
        self.model.eval()

    def amount(self, asked: dict[str, Any]) -> float:
        """Return how much of the order to trade now."""
        bars = pd.DataFrame(asked["bars"], columns=[*PRICES, "volume"])
        features = np.log(bars[PRICES] / asked["previous_close"])
        features["volume"] = np.log1p(bars["volume"] / asked["mean_volume"])
        values = ((features - self.mean) / self.scale).clip(-self.settings["clip"], self.settings["clip"])
        day = torch.from_numpy(values.ffill().fillna(0.0).to_numpy(dtype=np.float32))[None]
        target, steps, step = asked["amount"], asked["steps"], len(asked["path"]) - 1
        position = asked["path"][-1]
        own = torch.tensor([[left / target, at / steps] for at, left in enumerate(asked["path"])])[None]
        scalars = torch.tensor([[position / target, step / steps, 1.0 / max(steps - step, 1.0)]])
        with torch.no_grad():
            logits = self.model(day, own, torch.tensor([asked["direction"] == "BUY"]).long(), scalars)
        if step >= steps - 1:
            return float(position)
        share = self.settings["shares"][int(logits.argmax(dim=1))]
        return float(min(share * target, position))


def _handler() -> Handler:
    return Handler(Path(os.environ["PLAIN_MODEL"]))


def flask_app() -> Any:
    """Return the Flask application."""
    from flask import Flask, jsonify, request

    app, handler = Flask(__name__), _handler()

    @app.post("/decide")
    def decide() -> Any:
        return jsonify(amount=handler.amount(request.get_json()))

    return app


def fastapi_app() -> Any:
    """Return the FastAPI application."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    class Bar(BaseModel):
        open: float
        high: float
        low: float
        close: float
        volume: float

    class Order(BaseModel):
        direction: str
        amount: float
        path: list[float]
        steps: int
        previous_close: float
        mean_volume: float
        bars: list[Bar]

    class Answer(BaseModel):
        amount: float

    app, handler = FastAPI(), _handler()

    async def decide(order: Order) -> Answer:
        return Answer(amount=handler.amount(order.model_dump()))

    decide.__annotations__ = {"order": Order, "return": Answer}
    app.post("/decide")(decide)
    return app
