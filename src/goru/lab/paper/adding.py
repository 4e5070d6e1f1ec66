"""Adding: two numbers of a long sequence are marked; output their sum at the end. Beyond the paper."""

from __future__ import annotations

import dataclasses

from goru.lab.paper.definition import Experiment, Smaller
from goru.lab.paper.findings import who_solves
from goru.lab.paper.models import LONG_MODELS, MATCHED_UNITS
from goru.lab.tasks.adding import Adding
from goru.lab.training.config import OptimizerConfig, RunConfig

EXPERIMENT = Experiment(
    name="adding",
    title="Adding problem",
    label="Adding",
    place=11,
    summary="Two numbers of a long sequence are marked: output their sum at the end.",
    base=RunConfig(
        experiment="adding",
        steps=5_000,
        batch=50,
        stop_below=0.01,
        optimizer=OptimizerConfig(lr=0.001),
        task=Adding(),
    ),
    models={name: dataclasses.replace(layer, hidden_size=128) for name, layer in LONG_MODELS.items()},
    memory=lambda task, _: task.length,
    variants={"paper": {}, "T1000": {"task.length": 1000}},
    quick=Smaller(
        {"task.test_size": 256, "batch": 32, "eval_every": 50, "task.length": 60, "steps": 800, "optimizer.lr": 0.002},
        models=("goru-memory", "eurnn-real", "gru", "lstm"),
    ),
    matched=MATCHED_UNITS,
    decisions=(
        "One mark is in the first half of the sequence, one in the second, each at a random step.",
        "Loss: mean squared error of the sum; baseline 1/6, its variance. Accuracy: sums right within 0.04.",
        "At most 5,000 iterations; a run ends at the first evaluation below 1 % of the baseline.",
        "GORU with memory has the FFT mesh, its default beyond 500 steps, at both lengths.",
    ),
    measure=None,  # where a run was stopped says little
    finding=who_solves,
    folded="Curves, results",
    log_loss=True,
    time_steps=lambda task: task.length,
)
