"""Permuted sequential MNIST: digits pixel by pixel, in a fixed random order. Beyond the paper."""

from __future__ import annotations

from goru.lab.paper.columns import RUN_COLUMNS, Column, Measure, score
from goru.lab.paper.definition import Experiment, Smaller
from goru.lab.paper.models import EQUAL_MODELS, MAIN_MODELS, MATCHED_UNITS, WITH_LONG_MEMORY
from goru.lab.tasks.digits import Digits
from goru.lab.training.config import OptimizerConfig, RunConfig

EXPERIMENT = Experiment(
    name="psmnist",
    title="Permuted sequential MNIST",
    label="Digits",
    place=12,
    folded="Curves, results",
    summary="Read the 784 pixels of a digit in a fixed random order, then say which digit it is.",
    base=RunConfig(
        experiment="psmnist",
        steps=0,
        epochs=30,
        batch=50,
        eval_every=0,
        patience=8,
        optimizer=OptimizerConfig(lr=0.001),
        task=Digits(),
    ),
    models={
        name: WITH_LONG_MEMORY if name == "goru-memory" else layer
        for name, layer in EQUAL_MODELS.items()
        if name != "goru-june2017"
    },
    memory=lambda task, _: task.side**2,
    on_request={"row-by-row": {"task.permuted": False}, "mnist": {"task.data": "mnist"}},
    generated=Smaller({"task.data": "generated"}),
    quick=Smaller({"task.side": 7, "epochs": 20, "patience": 0, "optimizer.lr": 0.002}, models=MAIN_MODELS),
    matched=MATCHED_UNITS,
    decisions=(
        "10,000 digits of MNIST; of each class the last tenth is for testing, the tenth before for validation. "
        "Accuracies are not comparable with those on all 70,000 digits (variant `mnist`).",
        "Pixels are numbers from 0 to 1, one at a step; the head reads the last state. The order of the pixels is the "
        "same for every run.",
        "RMSProp with learning rate 0.001 and batches of 50 for every model; at most 30 epochs, stopped after 8 "
        "without a lower validation loss; the best epoch is tested.",
        "The memory of GORU is the number of pixels.",
    ),
    columns=(
        Column("valid accuracy %", score("valid_accuracy", 100, 1), brief=True),
        Column("test accuracy %", score("test_accuracy", 100, 1), brief=True),
        Column("test loss", score("test_loss")),
        *RUN_COLUMNS,
    ),
    references=lambda group: {
        "the most common digit": {"test accuracy %": f"{100 * group.reference('majority_accuracy'):.1f}"}
    },
    measure=Measure("accuracy", "test_accuracy", unit="%", scale=100, higher_is_better=True),
    time_steps=lambda task: task.side**2,
)
