"""Time of a training step, and how much of it is the model's."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from goru.lab.config import RunConfig
from goru.lab.environment import processor
from goru.lab.train import Training

WARM_UP = 2


def time_step(config: RunConfig, steps: int, threads: int) -> dict[str, Any]:
    """Median seconds of making a batch and of learning from it (forward, loss, backward, optimiser).

    `cpu_seconds` is the processor's time for a step: what the step costs also when others share the machine.
    """
    training = Training(dataclasses.replace(config, threads=threads))
    data, model = [], []
    cpu = 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            cpu = time.process_time()
        start = time.perf_counter()
        batch = training.problem.batch(step)
        made = time.perf_counter()
        training.learn(batch)
        data.append(made - start)
        model.append(time.perf_counter() - made)
    cpu_seconds = (time.process_time() - cpu) / steps
    data_seconds, model_seconds = median(data[WARM_UP:]), median(model[WARM_UP:])
    step_seconds = data_seconds + model_seconds
    return {
        "experiment": config.experiment,
        "model": config.model,
        "threads": threads,
        "batch": config.batch,
        "data_seconds": data_seconds,
        "model_seconds": model_seconds,
        "step_seconds": step_seconds,
        "cpu_seconds": cpu_seconds,
        "steps_per_epoch": training.problem.steps_per_epoch,
        "epoch_seconds": step_seconds * training.problem.steps_per_epoch if training.problem.steps_per_epoch else None,
        "data_share": data_seconds / step_seconds,
        "model_share": model_seconds / step_seconds,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """The timings as JSON, with what they were measured on."""
    content = {"processor": processor(), "torch": torch.__version__, "timings": rows}
    path.write_text(json.dumps(content, indent=2) + "\n")
