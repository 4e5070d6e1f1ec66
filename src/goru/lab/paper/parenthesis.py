"""Parenthesis: count the open brackets of ten kinds, through noise."""

from __future__ import annotations

from goru.lab.paper.columns import against_baseline, loss_share
from goru.lab.paper.definition import Claim, Experiment, Paper, Smaller
from goru.lab.paper.models import MAIN_MODELS, MATCHED_PARAMETERS, RIVALS, SYNTHETIC_MODELS, WITH_EPSILON
from goru.lab.paper.outcomes import spread
from goru.lab.paper.rules import Facts, Level, MissingError, Statement, best, better
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.training.config import OptimizerConfig, RunConfig

GATE_MARGIN = 0.05
"""The gate peaks on noise when its mean share there is higher by at least this."""

LEVELS = {"GORU": Level("lowest loss", lambda loss, others, _: all(loss < other for other in others), RIVALS)}
"""The paper shows a figure without numbers; this is what its caption and the text say."""


def goru_is_best(f: Facts) -> list[Statement]:
    losses = f.listed(f.loss, "goru", *RIVALS)
    return [
        *best("lowest final loss", f.loss("goru"), [f.loss(m) for m in RIVALS], losses),
        Statement(
            "GORU learns fastest",
            all(better(f.speed("goru"), f.speed(m)) for m in RIVALS),
            f"mean test loss over training: {f.listed(f.speed, 'goru', *RIVALS)}",
        ),
    ]


def gates_peak_on_noise(f: Facts) -> list[Statement]:
    statements = []
    for model in ("goru", "gru"):
        figures = [run.figure for run in f.runs(model) if run.figure and run.figure.get("gate_share_noise") is not None]
        if not figures:
            raise MissingError(f"no gates of {f.title(model)}")
        f.seeds[f.name(model)] = len(figures)
        noise = spread([figure["gate_share_noise"] for figure in figures])
        brackets = spread([figure["gate_share_brackets"] for figure in figures])
        statements.append(
            Statement(
                f"the update gate of {f.title(model)} peaks on noise, by at least {GATE_MARGIN}",
                noise.mean - brackets.mean >= GATE_MARGIN,
                f"share of units above {figures[0]['gate_threshold']}: {noise} on noise, {brackets} on brackets",
            )
        )
    return statements


EXPERIMENT = Experiment(
    name="parenthesis",
    title="Parenthesis task",
    label="Parenthesis",
    place=3,
    summary="Count the open brackets of ten kinds, through noise.",
    base=RunConfig(
        experiment="parenthesis", steps=5_000, batch=128, optimizer=OptimizerConfig(lr=0.001), task=Parenthesis()
    ),
    models={**SYNTHETIC_MODELS, **WITH_EPSILON},
    # By the study `memories`; a chrono start spreads its units over all times up to the length.
    memory=lambda task, layer: max(1, task.length // 3) if layer.cell == "goru" else task.length,
    on_request={"adam-rule": {"optimizer.rule": "adam"}},
    quick=Smaller(
        {"task.test_size": 256, "batch": 32, "eval_every": 50, "task.length": 60, "steps": 800, "optimizer.lr": 0.008},
        models=MAIN_MODELS,
    ),
    paper=Paper(
        shown_in="Figures 6 and 7",
        says="GORU is best in learning speed and in final loss; the update gate peaks on noise.",
    ),
    claims=(
        Claim("C5", "GORU is best on parenthesis in speed and final loss.", goru_is_best),
        Claim("C6", "The update gate peaks on noise input, in GORU and GRU alike.", gates_peak_on_noise),
    ),
    matched=MATCHED_PARAMETERS,
    decisions=(
        "20 bracket and 10 noise symbols, uniformly at random; counts stay between 0 and 10.",
        "Loss: mean cross-entropy over steps and kinds; baseline: entropy of the pooled labels.",
        "The gate figure shows the update gate, as the text says (the caption prints r).",
        "The paper gives no number of iterations: ours is 5,000, without early stopping.",
        "In the small version the learning rate is 0.008: of that, a half, a quarter and an eighth of it, the one with "
        "the lowest geometric mean of the final losses of GORU with memory, both EURNNs and GRU.",
    ),
    columns=against_baseline(LEVELS),
    measure=loss_share(LEVELS),
    log_loss=True,
    in_overview=True,
    time_steps=lambda task: task.length,
)
