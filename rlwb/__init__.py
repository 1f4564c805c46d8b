"""rlwb: the workbench for trade execution with reinforcement learning."""

__version__ = "0.1.0"
