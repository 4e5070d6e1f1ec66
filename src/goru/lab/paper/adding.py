"""Adding: two numbers of a long sequence are marked; output their sum at the end. Beyond the paper."""

from __future__ import annotations

import dataclasses

from goru.lab.paper.definition import Experiment, Smaller
from goru.lab.paper.models import MAIN_MODELS, MATCHED_UNITS, SYNTHETIC_MODELS
from goru.lab.tasks.adding import Adding
from goru.lab.training.config import OptimizerConfig, RunConfig

EXPERIMENT = Experiment(
    name="adding",
    title="Adding problem",
    label="Adding",
    place=11,
    summary="Two numbers of a long sequence are marked: output their sum at the end.",
    base=RunConfig(experiment="adding", steps=5_000, batch=50, optimizer=OptimizerConfig(lr=0.001), task=Adding()),
    models={name: dataclasses.replace(layer, hidden_size=128) for name, layer in SYNTHETIC_MODELS.items()},
    memory=lambda task: task.length,
    variants={"paper": {}, "T1000": {"task.length": 1000}},
    quick=Smaller(
        {"task.test_size": 256, "batch": 32, "eval_every": 50, "task.length": 60, "steps": 800, "optimizer.lr": 0.002},
        models=MAIN_MODELS,
    ),
    matched=MATCHED_UNITS,
    decisions=(
        "One mark is in the first half of the sequence, one in the second, each at a random step.",
        "Loss: mean squared error of the sum; baseline 1/6, its variance. Accuracy: sums right within 0.04.",
    ),
    log_loss=True,
    time_steps=lambda task: task.length,
)
