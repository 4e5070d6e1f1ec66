"""Time of a training step, and the model's share of it."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goru.lab import durable
from goru.lab.training.config import RunConfig, as_json
from goru.lab.training.environment import processor
from goru.lab.training.state import Training

WARM_UP = 2


def time_step(config: RunConfig, steps: int, threads: int) -> dict[str, Any]:
    """Median seconds of making a batch and of learning from it (forward, loss, backward, optimizer).

    `cpu_seconds` is the processor time of a step, which does not depend on other processes on the machine; the shares
    are shares of it.
    """
    training = Training(dataclasses.replace(config, threads=threads))
    clocks = []  # steps, moments of a step, kinds of time
    for step in range(WARM_UP + steps):
        moments = [_clocks()]
        batch = training.problem.batch(step)
        moments.append(_clocks())
        training.learn(batch)
        clocks.append([*moments, _clocks()])
    parts = np.diff(np.array(clocks[WARM_UP:]), axis=1)  # steps, data and model, kinds of time
    data_seconds, model_seconds = np.median(parts[:, :, 0], axis=0).tolist()
    data_cpu, model_cpu = parts[:, :, 1].mean(axis=0).tolist()
    step_seconds, cpu_seconds = data_seconds + model_seconds, data_cpu + model_cpu
    per_epoch = training.problem.steps_per_epoch
    return {
        "experiment": config.experiment,
        "model": config.model,
        "hidden_size": config.layer.hidden_size,
        "threads": threads,
        "batch": config.batch,
        "data_seconds": data_seconds,
        "model_seconds": model_seconds,
        "step_seconds": step_seconds,
        "cpu_seconds": cpu_seconds,
        "steps_per_epoch": per_epoch,
        "epoch_seconds": step_seconds * per_epoch if per_epoch else None,
        "epoch_cpu_seconds": cpu_seconds * per_epoch if per_epoch else None,
        "data_share": data_cpu / cpu_seconds,
        "model_share": model_cpu / cpu_seconds,
    }


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the timings as JSON, with the processor and the version of torch."""
    content = {"processor": processor(), "torch": torch.__version__, "timings": rows}
    durable.replace(path, as_json(content).encode())
