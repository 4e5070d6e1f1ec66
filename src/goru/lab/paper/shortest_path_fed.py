"""Shortest path, second reading: while it answers, the network reads the node before instead of `ans`."""

from __future__ import annotations

import dataclasses

from goru.lab.paper import shortest_path
from goru.lab.paper.models import EQUAL_MODELS
from goru.lab.tasks.shortest_path import ShortestPath

_FIRST = shortest_path.EXPERIMENT

EXPERIMENT = dataclasses.replace(
    _FIRST,
    name="shortest_path_fed",
    title="Shortest path, second reading: the path is fed back",
    label="Path fed back",
    place=16,
    paper=None,
    measure=None,  # the first reading is in the tables over all experiments
    curves=False,
    folded="Results",
    summary="The shortest-path task with the true node before as input while the network answers.",
    models=EQUAL_MODELS,
    base=dataclasses.replace(_FIRST.base, experiment="shortest_path_fed", task=ShortestPath(feed="path")),
    decisions=(
        "The paper does not say what the network reads while it answers. This reading feeds the node before, as a "
        "decoder is trained, in training and in the test; the first reading feeds `ans` at every step.",
        *shortest_path.EVERY_READING,
        "GORU's memory is 10 steps, as in the first reading.",
    ),
)
