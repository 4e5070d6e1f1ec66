"""Copying: remember ten symbols over a silence of T steps."""

from __future__ import annotations

from dataclasses import replace

from goru.lab.paper.columns import against_baseline, loss_share
from goru.lab.paper.definition import Claim, Experiment, Paper, Smaller
from goru.lab.paper.findings import (
    DOES_IT_REMEMBER,
    WHAT_ORTHOGONALITY_BUYS,
    compared,
    how_it_ends,
    solves,
    who_solves,
)
from goru.lab.paper.models import (
    EURNNS,
    MAIN_MODELS,
    MATCHED_PARAMETERS,
    SYNTHETIC_MODELS,
    WITH_EPSILON,
    WITH_MEMORY,
    title,
)
from goru.lab.paper.outcomes import Group
from goru.lab.paper.rules import SOLVED, SOLVES, STAYS_AT_BASELINE, Facts, Statement
from goru.lab.tasks.copying import Copying
from goru.lab.training.config import OptimizerConfig, RunConfig

HUNDREDS = 1000
""""Within hundreds of iterations": fewer than this."""

LEVELS = {"GORU": SOLVES, "EURNN": SOLVES, "GRU": STAYS_AT_BASELINE, "LSTM": STAYS_AT_BASELINE}
"""The paper shows a figure without numbers; this is what its caption and the text say."""


def only_goru_solves(f: Facts) -> list[Statement]:
    return [
        Statement("GORU solves it", f.solved("goru"), f.steadiness("goru")),
        Statement("neither GRU nor LSTM does", not f.solved("gru") and not f.solved("lstm"), f.shares("gru", "lstm")),
        Statement(
            "GRU and LSTM stay at the baseline",
            f.at_baseline("gru") and f.at_baseline("lstm"),
            f.shares("gru", "lstm"),
        ),
    ]


def eurnn_is_quick(f: Facts) -> list[Statement]:
    threshold = SOLVED * f.group.baseline
    first = {m: [run.first_step_below(threshold) for run in f.runs(m)] for m in EURNNS}
    solving = [m for m in EURNNS if f.solved(m)]
    quick = [m for m in solving if all(step is not None and step < HUNDREDS for step in first[m])]
    steps = "; ".join(
        f"{f.title(m)}: {', '.join('never' if s is None else f'iteration {s:,}' for s in first[m])}" for m in EURNNS
    )
    return [
        Statement("an EURNN solves it", bool(solving), f.steadiness(*EURNNS)),
        Statement(f"in fewer than {HUNDREDS:,} iterations", bool(quick), f"first below 10 %: {steps}"),
    ]


def memory_matters(group: Group) -> str:
    """Where GORU with a memory of T ends, next to GORU as published and the other gated models."""
    ends = {m: end for m in ("goru", "gru", "lstm") if (end := how_it_ends(group, m))}
    ours = how_it_ends(group, "goru-memory")
    if not ours or not ends:
        return who_solves(group)
    others = [f"{'as published it' if m == 'goru' else title(m)} {end}" for m, end in ends.items()]
    if all(end.startswith("ends ") for end in ends.values()):  # say the verb and the baseline once
        others[1:] = [one.replace(" ends at ", " at ").removesuffix(" of the baseline") for one in others[1:]]
    steps = group.runs("goru-memory")[0].config.layer.memory
    return f"started with a memory of {steps} steps, GORU {ours}; {', '.join(others)}."


def does_it_remember(group: Group) -> str:
    """Beside EURNN, from either start."""
    known = compared(group, "goru-memory", *EURNNS, "goru")
    answers = {"goru": "Yes", "goru-memory": "Yes, if it starts with memory"}
    answer = next((answers[name] for name in answers if solves(group, name)), "No")
    return f"{answer}. Copying: {known}." if known else ""


def what_orthogonality_buys(group: Group) -> str:
    """Beside the same layer with a part replaced."""
    known = compared(group, "goru-memory", "goru-free", "goru-tanh")
    return f"Copying: {known}." if known else ""


EXPERIMENT = Experiment(
    name="copying",
    title="Copying memory task",
    label="Copying",
    place=1,
    summary="Remember ten symbols over a silence of T steps.",
    base=RunConfig(experiment="copying", steps=10_000, batch=128, optimizer=OptimizerConfig(lr=0.001), task=Copying()),
    models={
        **SYNTHETIC_MODELS,
        **WITH_EPSILON,
        "goru-free": replace(WITH_MEMORY, orthogonal=False),
        "goru-tanh": replace(WITH_MEMORY, modrelu=False),
    },
    memory=lambda task, _: task.delay,
    on_request={"random-placement": {"task.placement": "random"}},
    quick=Smaller(
        {"task.test_size": 256, "batch": 32, "eval_every": 50, "task.delay": 60, "steps": 1200, "optimizer.lr": 0.002},
        models=MAIN_MODELS,
    ),
    paper=Paper(
        shown_in="Figure 4",
        says="EURNN converges within hundreds of iterations; GORU solves it; GRU and LSTM stay at the baseline.",
    ),
    claims=(
        Claim(
            "C1",
            "GORU is the only gated unit that solves copying at T = 200; GRU and LSTM stay at the baseline.",
            only_goru_solves,
        ),
        Claim("C2", "EURNN solves copying within hundreds of iterations.", eurnn_is_quick, about="eurnn-real"),
    ),
    matched=MATCHED_PARAMETERS,
    decisions=(
        "The symbols are at the start, as in the authors' code; `random-placement` is "
        'the variant of the text ("each instance has a different location").',
        "Loss: cross-entropy over all T + 20 steps, baseline 10 ln 8 / (T + 20). "
        "Accuracy: the ten recalled symbols only, singly and as whole sequences.",
        "The paper gives no number of iterations: ours is 10,000, without early stopping.",
        "Beyond the paper: GORU with a free matrix for U (which starts as a rotation), or with tanh for modReLU. Both "
        "start with a memory of T steps, like `goru-memory`.",
    ),
    columns=against_baseline(LEVELS),
    measure=loss_share(LEVELS),
    finding=memory_matters,
    leads=True,
    answers={
        DOES_IT_REMEMBER: does_it_remember,
        WHAT_ORTHOGONALITY_BUYS: what_orthogonality_buys,
    },
    in_overview=True,
    time_steps=lambda task: task.length,
)
