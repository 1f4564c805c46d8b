"""Smaller numbers for the parameters of the course's notebooks; the cells are those that are shipped."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "01_orders": {"days": 10, "instruments": 3},
    "02_reinforcement_learning": {"iterations": 2, "trading_iterations": 2, "trading_days": 20},
    "03_simulator": {"days": 3, "instruments": 2},
    "04_interpreters": {"days": 20, "instruments": 2, "iterations": 1},
    "05_rewards": {"days": 20, "instruments": 2, "iterations": 1},
    "06_ppo": {"days": 20, "instruments": 2, "iterations": 2, "episodes": 50},
    "07_dqn": {"tries": 2000, "iterations": 4, "episodes": 100},
    "08_distillation": {"updates": 20, "repetitions": 2, "iterations": 3, "episodes": 50},
    "09_impact": {"iterations": 3, "episodes": 100},
    "10_realism": {"instruments": 6, "days": 60, "iterations": 4, "episodes": 100},
    "11_evaluation": {"repetitions": 400, "policies": 20},
    "12_your_own": {"days": 60, "iterations": 2, "episodes": 50},
}
