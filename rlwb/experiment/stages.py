"""The four stages of a run, in order."""

from __future__ import annotations

from rlwb.experiment.stage import Stage

_MARKET = ("market", "features", "execution", "seed")

ORDERS = Stage(
    name="orders",
    notebook="01_orders.ipynb",
    depends=("market", "orders", "seed", "execution.rules.lot_size", "execution.rules.price_field"),
    inputs=(),
    outputs=("orders",),
    sources=("market.source", "orders.source"),
)

TRAIN = Stage(
    name="train",
    notebook="02_training.ipynb",
    depends=(*_MARKET, "policy", "train"),
    inputs=("orders/train.parquet", "orders/valid.parquet"),
    outputs=("checkpoints", "metrics"),
    after=(ORDERS,),
    extends=("train.iterations", "train.patience", "train.keep", "train.checkpoint_every"),
    indifferent=("train.env", "train.concurrency", "train.device"),
    sources=("market.source", "features.columns"),
)

BACKTEST = Stage(
    name="backtest",
    notebook="03_backtest.ipynb",
    depends=(*_MARKET, "backtest"),
    inputs=(
        "orders/train.parquet",
        "orders/valid.parquet",
        "orders/test.parquet",
        "checkpoints/*.pt",
        "checkpoints/teacher/*.pt",
        "metrics/validation.csv",
        "metrics/teacher/validation.csv",
    ),
    outputs=("backtest",),
    after=(ORDERS, TRAIN),
    sources=("market.source", "features.columns"),
)

STABILITY = Stage(
    name="stability",
    notebook="04_stability.ipynb",
    depends=("backtest", "seed"),
    inputs=("backtest/**/*", "metrics/*.csv"),
    outputs=("figures",),
    after=(BACKTEST,),
)

STAGES = (ORDERS, TRAIN, BACKTEST, STABILITY)
