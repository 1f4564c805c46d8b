"""Parameters that are written otherwise now."""

RENAMED: dict[str, str] = {
    "market.synthetic.*": "market.*",
    "market.kind": "market.reader, as market: {reader: qlib}",
    "market.options.*": "market.reader.*, as market: {reader: {name: qlib, *: …}}",
    **{
        f"market.{name}": f"market.reader.{name}, as market: {{reader: {{name: table, {name}: …}}}}"
        for name in ("columns", "instrument_pattern", "datetime_format")
    },
    "features.imports": "features.columns, as features: {columns: [close, my_features.py:my_feature]}",
    "orders.generate.*": "orders.*",
    "orders.split.*": "split.*",
    "execution.rules.odd_remainder": "execution.rules.odd_lot",
    "policy.network": "network, as network: mlp",
    "policy.hidden": "network.hidden",
    "policy.mask_actions": "head.mask_actions",
    "policy.even_start": "head.even_start",
    "train.algorithm": "algorithm, as algorithm: dqn",
    "train.dqn.epsilon_iterations": "algorithm.epsilon_updates",
    "train.dqn.*": "algorithm.*",
    "train.opd.*": "algorithm.*",
    "train.lr": "algorithm.learning_rate",
    "train.entropy": "algorithm.entropy_coef",
    "train.decay_iterations": "algorithm.decay_updates",
    "train.repeats": "algorithm.repeat",
    **{f"train.{name}": f"algorithm.{name}" for name in ("learning_rate", "gamma", "gae_lambda", "clip", "value_coef")},
    **{f"train.{name}": f"algorithm.{name}" for name in ("batch_size", "max_grad_norm")},
    "train.action_values": "action_interpreter.values",
    "train.reward": "reward, as reward: sparse",
    "train.penalty": "reward.penalty",
    "train.reward_scale": "reward.scale",
    "backtest.baselines": "baselines, as baselines: [twap, vwap]",
    "backtest.urgency": "a setting of its baseline, as baselines: [{name: almgren_chriss, urgency: 3}]",
}
"""Old name, or ``group.*``, to the form that takes its place; a ``*`` in it stands for the last part of the name."""
