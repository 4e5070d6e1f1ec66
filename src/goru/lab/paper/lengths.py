"""Copying over silences of different lengths: how many iterations each model needs. Beyond the paper."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from goru.lab.paper.columns import Column, count
from goru.lab.paper.definition import Drawing, Experiment, Smaller
from goru.lab.paper.findings import joined
from goru.lab.paper.models import LONG_MODELS, MATCHED_PARAMETERS, model, title
from goru.lab.paper.outcomes import Group, Record
from goru.lab.paper.rules import SOLVED
from goru.lab.tasks.copying import Copying
from goru.lab.training.config import OptimizerConfig, RunConfig

LENGTHS = (50, 100, 200, 500, 1000, 2000)


def _runs(group: Group, name: str, length: int) -> list[Record]:
    return [record for record in group.runs(name) if getattr(record.config.task, "delay", 0) == length]


def _steps(records: list[Record]) -> list[int]:
    """When those runs that solved the task were first below 10 % of the baseline."""
    steps = (record.first_step_below(SOLVED * record.baseline) for record in records)
    return [step for step in steps if step is not None]


def _cell(length: int) -> Column:
    def cell(group: Group, name: str) -> str:
        records = _runs(group, name, length)
        if not records:
            return ""
        if steps := _steps(records):
            some = f" in {len(steps)} of {len(records)}" if len(steps) < len(records) else ""
            return f"{round(fmean(steps)):,}{some}"
        if not all(record.finished for record in records):
            return "not yet"
        share = fmean(record.test.losses[-1] / record.baseline for record in records)
        return f"no ({share:.0%})"

    return Column(f"T = {length:,}", cell, brief=True)


def _outcomes(group: Group, name: str) -> tuple[dict[int, float], list[int]]:
    """The mean iterations to solve each length, and the lengths that some run did not solve."""
    solved, missed = {}, []
    for length in LENGTHS:
        finished = [record for record in _runs(group, name, length) if record.finished]
        if steps := _steps(finished):
            solved[length] = fmean(steps)
        if len(steps) < len(finished):
            missed.append(length)
    return solved, missed


ROW = 1.22
"""How far apart the rows of crosses are: the ratio of their heights."""


def draw(canvas: Any, group: Group) -> None:
    """Iterations to solve against T; a length that a model did not solve is a cross, in the model's row at the top."""
    axes = canvas.subplots()
    top = max(record.config.steps for record in group.records)
    found = {name: _outcomes(group, name) for name in group.models}
    lowest, rows = top, 0
    for name, (solved, missed) in found.items():
        look = model(name)
        dashes = {"dashes": look.dashes} if look.dashes else {}
        if solved:
            lowest = min(lowest, *solved.values())
            axes.plot([*solved], [*solved.values()], "o-", markersize=4, color=look.color, label=look.title, **dashes)
        if missed:
            rows += 1
            label = None if solved else look.title
            # A start of its own has the color of its model: another cross tells them apart.
            axes.plot(
                missed, [top * ROW**rows] * len(missed), "+" if look.dashes else "x", color=look.color, label=label
            )
    if rows:
        axes.axhline(top, color=axes.yaxis.label.get_color(), linewidth=0.8, linestyle=":")
        side = {"ha": "left", "va": "top", "color": axes.yaxis.label.get_color()}
        axes.text(LENGTHS[0], top / 1.08, f"crosses: not solved within {top:,} iterations", **side)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(LENGTHS[0] / 1.15, LENGTHS[-1] * 1.15)
    axes.set_ylim(0.8 * lowest, top * ROW ** (rows + 1))
    axes.set_xticks(LENGTHS, [f"{length:,}" for length in LENGTHS])
    ticks = [one * 10**power for power in range(6) for one in (1, 3, 5) if 0.8 * lowest <= one * 10**power <= top]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("T, steps of silence")
    axes.set_ylabel("iterations to 10 % of the baseline")
    if any(solved or missed for solved, missed in found.values()):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def growth(group: Group) -> str:
    """How the iterations of the model with the most lengths solved grow with T."""
    found = {name: _outcomes(group, name)[0] for name in group.models}
    name = max(found, key=lambda one: len(found[one]))
    if len(found[name]) < 2:
        return ""
    (short, few), *_, (long, many) = found[name].items()
    times = f"{long / short:.0f} times the silence takes {many / few:.1f} times the iterations"
    return f"{title(name)}: {few:,.0f} iterations at T = {short:,}, {many:,.0f} at T = {long:,}; {times}."


def longest(group: Group) -> str:
    """The longest silence that each model has solved, the longest first."""
    solved = {
        name: max((length for length in LENGTHS if _steps(_runs(group, name, length))), default=0)
        for name in group.models
        if group.finished(name)
    }
    ranked = sorted(filter(solved.__getitem__, solved), key=solved.__getitem__, reverse=True)
    if not solved:
        return ""
    if not ranked:
        return "no model solved any of the lengths."
    return f"longest silence solved: {joined([f'{title(name)} {solved[name]:,} steps' for name in ranked])}."


EXPERIMENT = Experiment(
    name="lengths",
    title="Copying over different lengths",
    label="Lengths",
    place=10,
    summary="How many iterations does each model need to remember ten symbols over T steps?",
    base=RunConfig(
        experiment="lengths",
        steps=3_000,
        batch=32,
        eval_every=50,
        stop_below=SOLVED,
        optimizer=OptimizerConfig(lr=0.001),
        task=Copying(test_size=256),
    ),
    models=LONG_MODELS,
    memory=lambda task, _: task.delay,
    variants={f"T{length}": {"task.delay": length} for length in LENGTHS},
    parts="lengths",
    quick=Smaller({"task.test_size": 64, "task.delay": 20, "steps": 200}, variants=("T50",)),
    matched=MATCHED_PARAMETERS,
    decisions=(
        "Batches of 32, at most 3,000 iterations; a run ends at the first evaluation below 10 % of the baseline, "
        "so whether it stays there is not measured here.",
        "The memory of GORU and of the chrono starts is T.",
        "GORU with memory has the FFT mesh, its default beyond 500 steps, at every length; docs/mathematics.md has "
        "runs in the tunable mesh.",
    ),
    columns=(*(_cell(length) for length in LENGTHS), Column("runs", lambda group, name: count(group.runs(name)))),
    drawings=(Drawing("iterations", "Iterations to solve the copying task, against T", draw, caption=growth),),
    measure=None,
    finding=longest,
    folded="Figure, results",
    curves=False,
    time_steps=lambda task: task.length,
)
