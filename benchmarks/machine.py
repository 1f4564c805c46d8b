"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """Return processor, number of cores and operating system."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def load() -> float:
    """Return the machine's load over the last minute: the processes that wanted to run."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
