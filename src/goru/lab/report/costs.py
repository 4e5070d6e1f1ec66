"""The cost of the whole reproduction on the reference machine, and an estimate for the authors' code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from goru.lab import paper
from goru.lab.paper.columns import Table, row
from goru.lab.paper.outcomes import Group, Record
from goru.lab.training.config import RunConfig

HOW_COUNTED = """\
The reference machine has two cores (AMD EPYC, AVX-512). Our cost is the processor time of an iteration with one thread,
as measured by `goru bench`, times the iterations of a run; for a missing run, the maximum number of iterations (some
would stop earlier). For an experiment in parts only the first part was measured; the others are scaled by the length of
their sequences. The last column is the wall-clock time of the runs, including evaluations, on cores shared with other
work. The cost of the authors' code is extrapolated from a few measured iterations (listed in lab/report/costs.py) on
another machine with two cores (Intel, AVX-512): milliseconds per time step = a + b x batch x units x mesh layers, with
a and b fitted by least squares for each cell. For GORU the fit matches the three measured shapes within one percent;
for EURNN there are only two shapes, so nothing validates it. It covers only the layer: head, optimizer and evaluations
are free. The authors' GRU and LSTM are TensorFlow's own and were not timed, so the comparison excludes them.
"""
"""Shown on the page."""

CORES = 2
"""Cores of the reference machine: ours trains this many models at a time, the authors' code one on all of them."""
AUTHORS_STEP_MS = {
    "goru": {
        (220, 128, 128, 7): 723.0,
        (50, 32, 512, 9): 192.0,
        (100, 32, 128, 7): 188.0,
    },
    "eurnn": {(220, 128, 512, 2): 1263.0, (220, 128, 512, 9): 5423.0},
}
"""A training step of the authors' TensorFlow cells on two cores in milliseconds, forward and backward of the layer
alone, by time steps, batch, units and mesh layers: GORU with the FFT mesh, EURNN with capacity 2 and the FFT mesh."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one run."""

    finished: bool
    work: float
    """From its measured steps."""
    left: float
    """Of this, not done yet."""
    clock: float
    """Wall-clock time so far."""
    authors: float | None
    """With the authors' code."""


@cache
def authors_law(cell: str) -> tuple[float, float]:
    """a and b of the law for a cell: milliseconds of a time step, and of one more row, unit and mesh layer."""
    known = AUTHORS_STEP_MS[cell]
    size = [batch * units * layers for _, batch, units, layers in known]
    slope, start = np.polyfit(size, [ms / shape[0] for shape, ms in known.items()], 1)
    return float(start), float(slope)


def authors_step_seconds(config: RunConfig) -> float | None:
    """A training step of the authors' code, extrapolated; None if it has no such cell or the length is unknown."""
    layer, time_steps = config.layer, paper.experiment(config.experiment).time_steps
    if layer.cell not in AUTHORS_STEP_MS or time_steps is None:
        return None
    mesh_layers = math.ceil(math.log2(layer.hidden_size)) if layer.mesh == "fft" else layer.capacity or 2
    start, slope = authors_law(layer.cell)
    milliseconds = start + slope * config.batch * layer.hidden_size * mesh_layers
    return time_steps(config.task) * milliseconds / 1000


def _cost(config: RunConfig, record: Record | None) -> Cost:
    one = paper.experiment(config.experiment)
    all_steps = record.last_step if record else one.steps_of(config)
    steps = record.step if record and record.finished else all_steps
    done = record.step if record else 0
    clock = record.seconds * config.threads if record else 0.0
    step = one.step_seconds(config) or (clock / done if done else 0.0)  # not measured: use its own time
    theirs = authors_step_seconds(config)
    authors = None if theirs is None else steps * theirs
    return Cost(record is not None and record.finished, steps * step, (steps - done) * step, clock, authors)


def _planned() -> dict[Path, RunConfig]:
    """The runs of the paper's experiments with the first seed, by their places in a folder of runs."""
    return {config.directory(Path()): config for config in paper.grid()}


def _found(groups: Sequence[Group]) -> dict[Path, Record]:
    """The full-size runs."""
    return {r.config.directory(Path()): r for group in groups if not group.kind for r in group.records}


def missing(groups: Sequence[Group]) -> int:
    """The planned runs that were not begun."""
    return len(_planned().keys() - _found(groups).keys())


def table(groups: Sequence[Group]) -> Table | None:
    """One row per experiment, over every full-size run found and every missing one of the first seed; None if there
    are no full-size runs."""
    found = _found(groups)
    if not found:
        return None
    costs: dict[str, list[Cost]] = {}
    for place, config in (_planned() | {place: record.config for place, record in found.items()}).items():
        costs.setdefault(config.experiment, []).append(_cost(config, found.get(place)))

    def line(name: str, some: list[Cost]) -> dict[str, str]:
        work, left = sum(c.work for c in some), sum(c.left for c in some)
        comparable = [c for c in some if c.authors is not None]
        ours = sum(c.work for c in comparable) / CORES
        theirs = sum(c.authors or 0.0 for c in comparable)
        return {
            "experiment": name,
            "runs finished": f"{sum(c.finished for c in some)} of {len(some)}",
            "core hours": _hours(work),
            "still missing": _hours(left) if left else "",
            f"hours on {CORES} cores": _hours(work / CORES),
            "GORU and EURNN alone": _hours(ours),
            "authors' code (extrapolated)": _hours(theirs),
            "times cheaper than the authors' code (extrapolated)": f"{theirs / ours:.1f}" if ours else "",
            "core hours, wall clock": _hours(sum(c.clock for c in some)),
        }

    lines = [line(paper.EXPERIMENTS[name].title, some) for name, some in costs.items()]
    lines.append(line("all", [cost for some in costs.values() for cost in some]))
    headings = tuple(lines[0])
    brief = tuple(headings[k] for k in (0, 1, 2, 4, 7))
    rows = tuple(row(*cells.values()) for cells in lines)
    return Table("cost", "What the reproduction costs", "", headings, rows, brief)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f}" if hours >= 0.095 else f"{hours:.2f}"
