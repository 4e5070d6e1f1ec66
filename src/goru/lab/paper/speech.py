"""Speech: predict the log-magnitude spectrum of the next 16 ms."""

from __future__ import annotations

import math
from dataclasses import replace

from goru.lab.paper.columns import RUN_COLUMNS, Cell, Column, Measure, agreement, in_paper, on_files, score
from goru.lab.paper.definition import Claim, Experiment, Paper, Smaller
from goru.lab.paper.models import EQUAL_MODELS, EURNNS, MAIN_MODELS, MATCHED_UNITS, RIVALS, model
from goru.lab.paper.outcomes import Group
from goru.lab.paper.rules import Facts, Statement, best, better
from goru.lab.tasks.speech import Speech
from goru.lab.training.config import OptimizerConfig, RunConfig

PAPER = {
    "LSTM": ("98k", 58.8, 57.5),
    "GRU": ("72k", 58.9, 57.3),
    "EURNN": ("41k", 51.8, 51.9),
    "GORU": ("59k", 45.4, 47.6),
}
"""Parameters, mean squared error on the validation and on the test set of TIMIT."""

DECIBELS = 20 / math.log(10)
"""Of one unit of the natural logarithm of a magnitude."""


def goru_is_best(f: Facts) -> list[Statement]:
    errors = {m: f.loss(m) for m in ("goru", *RIVALS)}
    evidence = f.listed(errors.__getitem__, *errors)
    eurnn = min((errors[m] for m in EURNNS), key=lambda value: value.mean)
    return [
        *best("lowest test error", errors["goru"], [errors[m] for m in RIVALS], evidence),
        Statement(
            "an EURNN is ahead of GRU and LSTM",
            all(better(eurnn, errors[m]) for m in ("gru", "lstm")),
            evidence,
        ),
    ]


# Errors as shares of GORU's, here and in the paper: the corpus is another, or the paper does not say on which scale.


def _share(group: Group, name: str) -> float | None:
    ours, goru = group.final_mean(name, "test_loss"), group.final_mean("goru", "test_loss")
    return None if ours is None or goru is None else ours / goru


def _paper_share(name: str) -> float | None:
    row = PAPER.get(model(name).row)
    return row[2] / PAPER["GORU"][2] if row else None


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _agreement(group: Group, name: str) -> str | Cell:
    ours, theirs = _share(group, name), _paper_share(name)
    if model(name).row == "GORU" or ours is None or theirs is None:
        return ""
    return agreement((ours > 1) == (theirs > 1))


def _why_shares(group: Group) -> str:
    if group.data_set == "timit":
        why = "The paper's corpus, but the paper does not give the scale of its errors: they are compared"
    else:
        why = "Not the paper's corpus: errors are compared"
    return f"{why} as shares of GORU's. Agrees: on the same side of GORU's error as in the paper."


EXPERIMENT = Experiment(
    name="speech",
    title="Next frames of a speech spectrum",
    label="Speech",
    place=7,
    summary="Predict the log-magnitude spectrum of the next 16 ms.",
    base=RunConfig(
        experiment="speech",
        steps=0,
        epochs=100,
        batch=32,
        eval_every=0,
        patience=10,
        optimizer=OptimizerConfig(rule="adam", lr=0.001),
        task=Speech(),
    ),
    models={**EQUAL_MODELS, "goru-memory": replace(EQUAL_MODELS["goru-memory"], memory=3)},
    on_request={
        "raw": {"task.normalize": False},
        "timit": {"task.data": "timit"},
        "memory10": {"layer.memory": 10},
        "memory100": {"layer.memory": 100},
    },
    generated=Smaller({"task.data": "generated"}),
    quick=Smaller({"task.utterances": 160, "epochs": 40, "patience": 0}, models=MAIN_MODELS),
    paper=Paper(
        shown_in="Table 4",
        says="Mean squared error on TIMIT's test set: GORU 47.6, EURNN 51.9, GRU 57.3, LSTM 57.5.",
        differs={"task.data": "timit"},
        differs_title="on an open corpus instead of TIMIT",
        differs_note="Speech is not the paper's corpus, so only the order of the models can be compared.",
    ),
    claims=(Claim("C11", "GORU has the lowest error on speech, EURNN second, at equal hidden size.", goru_is_best),),
    matched=MATCHED_UNITS,
    decisions=(
        "The open corpus replaces TIMIT (variant `timit` reads a user's own copy), so errors are "
        "comparable between models, not with the paper's.",
        "A frame is ln(max(|STFT|, 1e-4)) of samples in [-1, 1): Hann window of 256, hop 128, 129 bins. "
        "The network sees it minus each bin's mean, divided by one overall deviation (training set).",
        "The error is the mean square over frames and bins of the natural log-magnitude itself, without padding. In "
        "decibels, 20 log10, it is 75.4 times as large: by size the paper's unit.",
        "The paper does not say that spectra were normalized: `raw` is the variant in which the network sees and "
        "predicts the log-magnitudes themselves.",
        "GORU's memory is 3 steps, by validation error (seed 0): 0.726, with 2, 5 and 10 steps 0.730, 0.727 and 0.730; "
        "in the FFT mesh, with 3, 5, 10 and 100 steps, 0.730, 0.732, 0.739 and 0.790. Without a memory: 0.729.",
        "At most 100 epochs, stopped after 10 without a lower validation error: in runs of 40 epochs those of "
        "GRU and EURNN were still falling (EURNN 0.831, 0.820, 0.811 after 30, 35, 40).",
    ),
    columns=(
        Column("valid MSE", score("valid_loss"), brief=True),
        Column("test MSE", score("test_loss"), brief=True),
        Column("test MSE, dB²", score("test_loss", DECIBELS**2, 1)),
        Column("paper: parameters", in_paper({row: values[0] for row, values in PAPER.items()}), on_files),
        Column(
            "paper: valid, test MSE on TIMIT",
            in_paper({row: f"{valid}, {test}" for row, (_, valid, test) in PAPER.items()}),
            on_files,
        ),
        Column("of GORU's", lambda group, name: _percent(_share(group, name)), on_files, brief=True),
        Column("paper: of GORU's", lambda _, name: _percent(_paper_share(name)), on_files, brief=True),
        Column("ours", _agreement, on_files, brief=True, words=True, note=_why_shares),
        *RUN_COLUMNS,
    ),
    references=lambda group: {
        "the frame before": {"test MSE": f"{group.reference('previous_frame_loss'):.3f}"},
        "the mean frame": {"test MSE": f"{group.baseline:.3f}"},
    },
    measure=Measure(
        "mean squared error",
        "test_loss",
        digits=3,
        paper=in_paper({row: str(test) for row, (_, _, test) in PAPER.items()}),
    ),
    time_steps=lambda _: 222.9,
)
"""Time steps: of a training batch of the open corpus, a mean over an epoch."""
