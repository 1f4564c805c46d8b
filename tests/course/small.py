"""Smaller numbers for the parameters of the course's notebooks; the cells are those that are shipped."""

from __future__ import annotations

from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "01_orders": {"days": 10, "instruments": 3},
    "02_reinforcement_learning": {"iterations": 2, "trading_iterations": 2, "trading_days": 20},
    "03_simulator": {},
    "04_interpreters": {},
    "05_rewards": {},
    "06_ppo": {},
    "07_dqn": {},
    "08_distillation": {},
    "09_impact": {},
    "10_realism": {},
    "11_evaluation": {},
    "12_your_own": {},
}
