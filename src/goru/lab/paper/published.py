"""What the paper says, by experiment and model: levels for the synthetic tasks, numbers for those on data.

A model of ours is compared with the row of the paper that it stands for: both EURNNs with its one EURNN.
"""

from __future__ import annotations

ROWS = {
    "goru": "GORU",
    "goru-june2017": "GORU",
    "gru": "GRU",
    "lstm": "LSTM",
    "eurnn-real": "EURNN",
    "eurnn-complex": "EURNN",
    "goru-no-reset": "GORU without reset gate",
    "goru-no-update": "GORU without update gate",
}
"""From our models to the paper's rows."""

LEVELS = {
    "copying": {"GORU": "solved", "EURNN": "solved", "GRU": "at the baseline", "LSTM": "at the baseline"},
    "denoise": {"GORU": "solved", "GRU": "solved", "LSTM": "behind GORU and GRU", "EURNN": "at the baseline"},
    "parenthesis": {"GORU": "lowest loss"},
}
"""The synthetic tasks are figures without numbers; this is what their captions and the text say."""

SHORTEST_PATH = {"EURNN": (66.3, 3.2), "LSTM": (60.9, 4.7), "GRU": (74.1, 4.8), "GORU": (75.0, 5.3)}
"""Accuracy in percent and its deviation."""

PENN_TREEBANK = {
    "LSTM": 1.596,
    "GRU": 1.601,
    "EURNN": 1.715,
    "GORU": 1.623,
    "GORU without reset gate": 1.722,
    "GORU without update gate": 1.754,
}
"""Bits per character on the test set."""

SPEECH = {
    "LSTM": ("98k", 58.8, 57.5),
    "GRU": ("72k", 58.9, 57.3),
    "EURNN": ("41k", 51.8, 51.9),
    "GORU": ("59k", 45.4, 47.6),
}
"""Parameters, mean squared error on the validation and on the test set of TIMIT."""

BABI_COLUMNS = ("GORU", "GRU", "LSTM", "EURNN", "baseline")
BABI = (
    (45.8, 49.1, 49.3, 47.2, 50),
    (39.5, 38.5, 32.3, 24.3, 20),
    (33.5, 32.2, 20.6, 22.5, 20),
    (62.7, 64.6, 67.5, 56.1, 61),
    (87.0, 78.0, 52.3, 56.2, 70),
    (53.6, 50.5, 49.3, 50.5, 48),
    (77.7, 79.5, 76.9, 71.9, 49),
    (75.0, 75.5, 76.8, 56.5, 45),
    (62.9, 63.9, 63.5, 60.6, 64),
    (45.4, 44.8, 46.0, 42.6, 44),
    (69.3, 71.2, 71.1, 72.1, 72),
    (69.9, 71.6, 71.9, 72.7, 74),
    (92.7, 94.2, 93.8, 92.4, 94),
    (37.9, 39.2, 34.4, 20.0, 27),
    (55.2, 57.4, 20.9, 25.0, 21),
    (44.0, 45.9, 45.9, 43.3, 23),
    (59.6, 50.5, 51.6, 51.2, 51),
    (90.5, 89.9, 91.8, 89.7, 52),
    (8.9, 9.6, 8.2, 9.0, 8),
    (97.7, 97.7, 96.5, 93.3, 91),
)
"""Test accuracy in percent of the tasks 1 to 20."""
BABI_MEANS = {"GORU": 60.4, "GRU": 58.2, "LSTM": 56.0, "EURNN": 52.9, "baseline": 49.2}
"""The last line as printed; the mean of GRU's column is really 60.2."""


def babi(row: str, task: int) -> float:
    """The paper's accuracy of a task for one of its columns."""
    return BABI[task - 1][BABI_COLUMNS.index(row)]


def babi_mean(row: str, tasks: list[int]) -> float:
    """The mean of a column over some tasks, recomputed.

    >>> round(babi_mean("GRU", list(range(1, 21))), 1)
    60.2
    """
    return sum(babi(row, task) for task in tasks) / len(tasks)


GORU_STEP_MS = {
    (220, 128, 128, 7): 723.0,
    (50, 32, 512, 9): 192.0,
    (100, 32, 128, 7): 188.0,
}
"""A training step of the authors' TensorFlow GORU (FFT mesh) on two cores in milliseconds, forward and backward of
the layer alone, by time steps, batch, units and mesh layers."""
EURNN_STEP_MS = {(220, 128, 512, 2): 1263.0, (220, 128, 512, 9): 5423.0}
"""The same of their EURNN, with capacity 2 and with the FFT mesh."""
