"""bAbI, second reading: the third network reads the story step by step, with the question beside each step."""

from __future__ import annotations

import dataclasses

from goru.lab.paper import babi
from goru.lab.tasks.babi import Babi

_FIRST = babi.EXPERIMENT

EXPERIMENT = dataclasses.replace(
    _FIRST,
    name="babi_sequence",
    title="Question answering, second reading: the third network reads the story",
    label="Story joined step by step",
    place=17,
    paper=None,
    measure=None,  # the first reading is in the tables over all experiments
    folded="Results of this reading",
    summary="The question tasks with the last output over the question beside every output over the story.",
    base=dataclasses.replace(_FIRST.base, experiment="babi_sequence", task=Babi(joined="sequence")),
    decisions=(
        "The paper joins the outputs of two networks for a third one and does not say which outputs. In this reading "
        "they are those over the whole story, each beside the last output over the question.",
        "The paper's baseline column is that of a public example which joins the two like this. Its dropout of 0.3 "
        "made no difference in single tries on task 5 and is left out.",
        *_FIRST.decisions[:-1],
    ),
    time_steps=lambda task: 2 * babi.TIME_STEPS[task.number - 1],
)
