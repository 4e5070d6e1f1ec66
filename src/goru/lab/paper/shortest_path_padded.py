"""Shortest path, third reading: all answers have the same length, and the padding counts."""

from __future__ import annotations

import dataclasses

from goru.lab.paper import shortest_path, shortest_path_fed
from goru.lab.tasks.shortest_path import ShortestPath

_SECOND = shortest_path_fed.EXPERIMENT

EXPERIMENT = dataclasses.replace(
    _SECOND,
    name="shortest_path_padded",
    title="Shortest path, third reading: answers of equal length",
    label="Answers padded",
    place=17,
    summary="The shortest-path task with every answer filled up with end symbols to five outputs, which count too.",
    base=dataclasses.replace(_SECOND.base, experiment="shortest_path_padded", task=ShortestPath(padded=True)),
    decisions=(
        "Batches need answers of one length: in this reading the end symbol is repeated up to five outputs, and every "
        "output counts in loss and accuracy.",
        "A guess without reading the graph then has 75.0 % right, as the paper's GORU (in the first reading 70.2 %).",
        "An `ans` token goes in for each node, as in the first reading.",
        *shortest_path.EVERY_READING,
        "GORU's memory is 10 steps, as in the first reading.",
    ),
)
