"""The time of a training step: `step_times.json`, measured with `goru bench` on the reference machine.

To update it in a checkout, on an idle machine: goru bench --out src/goru/lab/paper/step_times.json
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class StepTime:
    """One row of the measurement."""

    cpu_seconds: float
    """Processor seconds of a training step with one thread."""
    steps_per_epoch: int
    """Steps of one pass over the training set; 0 if data are generated without end."""


@cache
def step_times() -> dict[tuple[str, str], StepTime]:
    """By experiment and model."""
    text = resources.files("goru.lab.paper").joinpath("step_times.json").read_text(encoding="utf-8")
    return {
        (row["experiment"], row["model"]): StepTime(row["cpu_seconds"], row["steps_per_epoch"] or 0)
        for row in json.loads(text)["timings"]
    }
