"""The study by which GORU's start with `memory` was chosen. Beyond the paper.

The rule was written before the runs: of the starts in `goru.lab.cells.STUDIED`, the one with the lowest score. The
score is the geometric mean, over the three tasks, of the final held-out loss as a share of the baseline, averaged over
the seeds; shares below 1 % count as 1 %, so that no task dominates once it is solved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from statistics import fmean, stdev
from typing import Any

from goru.lab.cells import STUDIED, LayerConfig
from goru.lab.paper.columns import Cell, Column, count
from goru.lab.paper.definition import Drawing, Experiment, Smaller, split_variant
from goru.lab.paper.models import title
from goru.lab.paper.outcomes import Group
from goru.lab.tasks.copying import Copying
from goru.lab.tasks.denoise import Denoise
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.training.config import OptimizerConfig, RunConfig

STEPS = 100
"""T of the three tasks, and the memory."""
FLOOR = 0.01
"""Shares of the baseline below this count as this."""

TASKS: dict[str, dict[str, Any]] = {
    "copying": {"task": Copying(delay=STEPS, test_size=512)},
    "denoise": {"task": Denoise(delay=STEPS, test_size=512), "optimizer.lr": 0.01},
    "parenthesis": {"task": Parenthesis(length=STEPS, test_size=512)},
}


def shares(group: Group, name: str, part: str) -> list[float]:
    """The final held-out losses of a model's runs on a task, over the baseline; a run that failed counts as 1."""
    records = [record for record in group.runs(name) if split_variant(record.config.variant)[1] == part]
    found = [(record, record.score("test_loss")) for record in records if record.finished or record.state == "failed"]
    return [1.0 if loss is None or record.state == "failed" else loss / record.baseline for record, loss in found]


def score_of(group: Group, name: str) -> float | None:
    """The score by which starts are ranked: lower is better. None while a task is missing."""
    tasks = [shares(group, name, part) for part in TASKS]
    return math.exp(fmean(math.log(max(FLOOR, fmean(found))) for found in tasks)) if all(tasks) else None


def scores_of(group: Group) -> dict[str, float]:
    """The scores of the models that have one."""
    return {name: score for name in group.models if (score := score_of(group, name)) is not None}


def share_column(part: str, is_best: Callable[[Group, str], bool] = lambda group, name: False) -> Column:
    """The final losses on a task, the best one marked."""

    def cell(group: Group, name: str) -> Cell:
        found = [100 * share for share in shares(group, name, part)]
        deviation = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
        return Cell(f"{fmean(found):.1f}{deviation}" if found else "", "better" if is_best(group, name) else "")

    note = "Final loss as a percentage of the baseline; lower is better."
    return Column(f"{part} %", cell, brief=True, note=note)


RUNS = Column("runs", lambda group, name: count(group.runs(name)))


def study_columns(candidates: Collection[str]) -> tuple[Column, ...]:
    """The final losses and the score, the lowest of the candidates marked."""

    def score(group: Group, name: str) -> Cell:
        found = scores_of(group)
        if name not in found:
            return Cell("", "open")
        is_best = name in candidates and found[name] == min(found[one] for one in found if one in candidates)
        return Cell(f"{100 * found[name]:.1f}", "better" if is_best else "")

    return (
        *(share_column(part) for part in TASKS),
        Column("score", score, brief=True),
        RUNS,
    )


def lowest_score(group: Group) -> str:
    """The chosen start, its score in both meshes, and that of GORU as published."""
    scores = scores_of(group)
    candidates = [name for name in scores if name in STUDIED]
    if not candidates:
        return ""
    chosen = min(candidates, key=scores.__getitem__)
    layers = {name: group.runs(name)[0].config.layer for name in scores}
    twins = [name for name, layer in layers.items() if layer.init == chosen and layer.mesh == "tunable"]
    tunable = f" ({100 * scores[twins[0]]:.1f} in the tunable mesh)" if twins else ""
    beside = f"; GORU as published has {100 * scores['goru']:.1f}" if "goru" in scores else ""
    starts = f"of the {len(candidates)} starts in the FFT mesh" if len(candidates) > 1 else "in the FFT mesh"
    return f"{starts}, {chosen} has the lowest score, {100 * scores[chosen]:.1f}{tunable}{beside}."


def draw(canvas: Any, group: Group) -> None:
    """Share of the baseline by start and task, the best score on top."""
    scores = scores_of(group)
    names = sorted(scores, key=lambda name: scores[name])
    axes = canvas.subplots()
    axes.grid(False)
    values = [[fmean(shares(group, name, part)) for part in TASKS] + [scores[name]] for name in names]
    if not values:
        return
    logs = [[math.log10(max(FLOOR, value)) for value in row] for row in values]
    image = axes.imshow(logs, aspect="auto", cmap="viridis_r", vmin=math.log10(FLOOR), vmax=0.0)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            dark = logs[y][x] > -1.2
            axes.text(x, y, f"{100 * value:.1f}", ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(len(TASKS) + 1), [*TASKS, "score"])
    axes.set_yticks(range(len(names)), [title(name) for name in names])
    bar = canvas.colorbar(image, ax=axes, pad=0.02)
    bar.set_ticks([-2, -1, 0], labels=["1 %", "10 %", "100 %"])


def separates(group: Group) -> str:
    """The task on which the candidates differ most."""
    names = scores_of(group)
    found = {part: [max(FLOOR, fmean(shares(group, name, part))) for name in names] for part in TASKS}
    if len(names) < 2:
        return ""
    most = max(found, key=lambda part: max(found[part]) / min(found[part]))
    low, high = min(found[most]), max(found[most])
    least = f"{'at most ' * (low <= FLOOR)}{100 * low:.0f}"
    spans = f"from {least} to {100 * high:.0f} % of the baseline"
    return f"The lowest score is on top. They differ most on {most}: {spans}."


EXPERIMENT = Experiment(
    name="starts",
    title="Study: how a GORU should start",
    label="Starts",
    place=13,
    summary="Ten starts of a GORU with memory, on short versions of the three synthetic tasks.",
    base=RunConfig(
        experiment="starts", steps=800, batch=32, optimizer=OptimizerConfig(lr=0.001), task=TASKS["copying"]["task"]
    ),
    models={
        "goru": LayerConfig(cell="goru", hidden_size=128),
        **{name: LayerConfig(cell="goru", hidden_size=128, init=name, memory=STEPS) for name in STUDIED},
        "quarters-tunable": LayerConfig(
            cell="goru", hidden_size=128, mesh="tunable", capacity=2, init="quarters", memory=STEPS
        ),
    },
    variants=TASKS,
    parts="problems",
    quick=Smaller({"steps": 40, "batch": 8, "eval_every": 20, "layer.hidden_size": 16}, variants=tuple(TASKS)),
    matched="Sizes: the same for every start.",
    decisions=(
        "The rule, written before the runs: the start with the lowest score is the one that `memory=` uses.",
        "The score is the geometric mean over the three tasks of the final held-out loss as a share of the baseline, "
        "averaged over three seeds; shares below 1 % count as 1 %, a run that failed counts as 100 %.",
        "T = 100, so no test set of the paper's experiments (T = 200) was looked at.",
        "Names: the share of units that rotate with open gates (open: all; quarters: three quarters; halves).",
        "wide, same: other weights; spread: times up to the memory; fixed: b_h stays 0; plain: b_h counts at every "
        "step; ln32: gate biases ln(32 T), b_h plain; tunable: quarters in a tunable mesh of capacity 2.",
    ),
    columns=study_columns(STUDIED),
    drawings=(Drawing("map", "Final loss by start and task, % of the baseline", draw, (7.2, 5.4), separates),),
    measure=None,
    finding=lowest_score,
    curves=False,
    folded="Results",
    time_steps=lambda task: float(getattr(task, "length", STEPS)),
)
