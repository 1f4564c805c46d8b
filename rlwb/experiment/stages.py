"""The four stages of a run, in order."""

from __future__ import annotations

from rlwb.experiment.stage import Stage

_PROBLEM = ("market", "features", "execution", "simulator", "state_interpreter", "action_interpreter", "reward", "seed")
_POLICY = ("network", "head", "algorithm")

ORDERS = Stage(
    name="orders",
    notebook="01_orders.ipynb",
    depends=("market", "orders", "split", "seed", "execution.rules.lot_size", "execution.rules.price_field"),
    inputs=(),
    outputs=("orders",),
)

TRAIN = Stage(
    name="train",
    notebook="02_training.ipynb",
    depends=(*_PROBLEM, *_POLICY, "train"),
    inputs=("orders/train.parquet", "orders/valid.parquet"),
    outputs=("checkpoints", "metrics"),
    after=(ORDERS,),
    extends=("train.iterations", "train.patience", "train.keep", "train.checkpoint_every"),
    indifferent=("train.env", "train.concurrency", "train.device"),
)

BACKTEST = Stage(
    name="backtest",
    notebook="03_backtest.ipynb",
    depends=(*_PROBLEM, *_POLICY, "baselines", "backtest"),
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
