"""Denoise: pick ten symbols out of noise and say them in order."""

from __future__ import annotations

from goru.lab.paper.columns import against_baseline, loss_share
from goru.lab.paper.definition import Claim, Experiment, Paper, Smaller
from goru.lab.paper.findings import DOES_IT_FORGET, compared, first_steps, how_it_ends, solves
from goru.lab.paper.models import EURNNS, MAIN_MODELS, MATCHED_PARAMETERS, SYNTHETIC_MODELS, WITH_EPSILON
from goru.lab.paper.outcomes import Group
from goru.lab.paper.rules import SOLVES, STAYS_AT_BASELINE, Facts, Level, Statement, better
from goru.lab.tasks.denoise import Denoise
from goru.lab.training.config import OptimizerConfig, RunConfig

BEHIND = Level("behind GORU and GRU", lambda loss, others, _: all(loss > other for other in others), ("goru", "gru"))
LEVELS = {"GORU": SOLVES, "GRU": SOLVES, "LSTM": BEHIND, "EURNN": STAYS_AT_BASELINE}
"""The paper shows a figure without numbers; this is what its caption and the text say."""


def eurnn_fails(f: Facts) -> list[Statement]:
    stay = [m for m in EURNNS if f.at_baseline(m)]
    return [
        Statement("an EURNN stays at the baseline", bool(stay), f.shares(*EURNNS)),
        Statement("both do", len(stay) == len(EURNNS), f.shares(*EURNNS)),
    ]


def ahead_of_lstm(f: Facts) -> list[Statement]:
    gated = ("goru", "gru")
    return [
        Statement("GORU and GRU solve it", all(f.solved(m) for m in gated), f.steadiness(*gated)),
        Statement(
            "both end with a lower loss than LSTM",
            all(better(f.loss(m), f.loss("lstm")) for m in gated),
            f.listed(f.loss, *gated, "lstm"),
        ),
        Statement(
            "both learn faster than LSTM",
            all(better(f.speed(m), f.speed("lstm")) for m in gated),
            f"mean test loss over training: {f.listed(f.speed, *gated, 'lstm')}",
        ),
    ]


def does_it_forget(group: Group) -> str:
    """Beside GRU, which has to be among the runs."""
    known = compared(group, "goru", "goru-memory", "gru", *EURNNS)
    if not known or not how_it_ends(group, "gru"):
        return ""
    starts = {name: first_steps(group, name) for name in ("goru", "goru-memory") if solves(group, name)}
    steps = {name: step for name, step in starts.items() if step is not None}
    if not steps:
        return f"No. Denoise: {known}."
    theirs = first_steps(group, "gru") if solves(group, "gru") else None
    quickest = min(steps, key=lambda name: steps[name].mean)
    others = [step for name, step in {**steps, "gru": theirs}.items() if name != quickest and step is not None]
    if theirs is not None and better(theirs, steps[quickest]):
        answer = "Yes, but it takes longer to learn"
    elif quickest == "goru-memory" and "goru" in steps and all(better(steps[quickest], other) for other in others):
        answer = "Yes, and soonest if it starts with memory"
    else:
        answer = "Yes" if "goru" in steps else "Yes, if it starts with memory"
    return f"{answer}. Denoise: {known}."


EXPERIMENT = Experiment(
    name="denoise",
    title="Denoise task",
    label="Denoise",
    place=2,
    summary="Pick ten symbols out of noise and output them in order.",
    base=RunConfig(experiment="denoise", steps=10_000, batch=128, optimizer=OptimizerConfig(lr=0.01), task=Denoise()),
    models={**SYNTHETIC_MODELS, **WITH_EPSILON},
    memory=lambda task, _: task.delay,
    variants={"paper": {}, "lr0.001": {"optimizer.lr": 0.001}},
    on_request={"recall-loss-on": {"task.loss_on": "recall"}},
    quick=Smaller(
        {"task.test_size": 256, "batch": 32, "eval_every": 50, "task.delay": 60, "task.recall": 5, "steps": 1400},
        models=MAIN_MODELS,
    ),
    paper=Paper(shown_in="Figure 5", says="GORU and GRU solve it, both ahead of LSTM; EURNN stays at the baseline."),
    claims=(
        Claim("C3", "EURNN stays at the baseline on denoise.", eurnn_fails, about="eurnn-real"),
        Claim("C4", "GORU and GRU solve denoise, ahead of LSTM in speed and final loss.", ahead_of_lstm),
    ),
    matched=MATCHED_PARAMETERS,
    decisions=(
        "The ten places are distinct (the authors' code draws them with replacement and loses symbols) "
        "and the marker has its own one-hot vector (theirs is all zero).",
        "The paper's learning rate is 0.01, the code's 0.001: we run both.",
        "Loss and accuracy as in copying; `recall-loss-on` restricts the loss to the last ten steps.",
        "The paper gives no number of iterations: ours is 10,000, without early stopping.",
    ),
    columns=against_baseline(LEVELS),
    measure=loss_share(LEVELS),
    answers={DOES_IT_FORGET: does_it_forget},
    in_overview=True,
    time_steps=lambda task: task.length,
)
