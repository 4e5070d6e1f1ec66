"""Tables of the synthetic tasks: losses beside the baseline, and what the paper's figures show beside what ours do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from goru.lab import paper
from goru.lab.engines.display import duration
from goru.lab.paper import published
from goru.lab.report import rules
from goru.lab.report.records import Group, Record, spread
from goru.lab.report.tables import CLOCK, Cell, Table, count, measured_step, progress, rate

_BRIEF = ("model", "test loss", "of baseline", "accuracy", "solved at step", "steps", "iterations/s")

_SCORES = {
    "test_accuracy": "accuracy",
    "test_sequence_accuracy": "whole sequences",
}


def results(group: Group) -> Table:
    """One row a model: final scores, what the paper says, when it was solved, speed, sizes."""
    scores = [key for key in _SCORES if any(r.score(key) is not None for r in group.records)]
    solved_below = paper.SOLVED * group.baseline
    with_paper = group.experiment in published.LEVELS and not group.kind
    rows = []
    for model, records in group.models.items():
        done = group.shown(model)
        losses = spread([loss for record in done if (loss := record.score("test_loss")) is not None])
        share = f"{losses.mean / group.baseline:.1%}"
        result = done[0].result or {}
        rows.append(
            (
                paper.title(model),
                str(losses) if result else Cell(str(losses), "open"),
                share if result else Cell(f"{share} so far", "open"),
                *(_beside_the_paper(group, model) if with_paper else ()),
                *(_mean(done, key) for key in scores),
                _solved_at(done, solved_below),
                count(records),
                progress(done),
                rate(done),
                measured_step(group, done),
                duration(sum(record.seconds for record in records)),
                str(done[0].config.layer.hidden_size),
                f"{result['parameters']:,}" if result else "",
                f"{result['hidden_to_hidden_parameters']:,}" if result else "",
            )
        )
    headings = (
        "model",
        "test loss",
        "of baseline",
        *(("the paper", "and here") if with_paper else ()),
        *(_SCORES[key] for key in scores),
        "solved at step",
        "seeds",
        "steps",
        "iterations/s",
        "ms a step",
        "time",
        "units",
        "parameters",
        "hidden to hidden",
    )
    title = f"{group.title}; baseline {group.baseline:.4f}"
    note = f"Solved: below {paper.SOLVED:.0%} of the baseline; at the baseline: above {paper.AT_BASELINE:.0%} of it."
    note += f" {paper.EXPERIMENTS[group.experiment].matched} {CLOCK}"
    return Table(group.name, title, group.variant, headings, tuple(rows), _BRIEF, note)


def _mean(records: list[Record], score: str) -> str:
    values = [value for record in records if (value := record.score(score)) is not None]
    found = spread(values) if values else None
    return "" if found is None else f"{found.mean:.1%}" + (f" ± {found.deviation:.1%}" if found.count > 1 else "")


def _solved_at(records: Sequence[Record], below: float) -> str:
    """The step at which runs were solved that still were at their end; one that goes on may yet be."""
    ends = [(record.score("test_loss"), record.first_step_below(below)) for record in records]
    reached = [float(step) for loss, step in ends if loss is not None and loss < below and step is not None]
    if len(reached) == len(records):
        found = spread(reached)
        return f"{round(found.mean)}" + (f" ± {round(found.deviation)}" if found.count > 1 else "")
    if reached:
        return f"{len(reached)} of {len(records)} seeds"
    return "never" if all(record.finished for record in records) else "not yet"


def _loss(record: Record) -> float:
    """The final test loss; one that is missing is no low one."""
    loss = record.score("test_loss")
    return math.inf if loss is None else loss


def _beside_the_paper(group: Group, model: str) -> tuple[str, Cell]:
    """What the paper says of a model on a synthetic task, and whether ours does that."""
    levels = published.LEVELS[group.experiment]
    said = levels.get(published.ROWS.get(model, ""), "")
    rivals = {"lowest loss": rules.OTHERS, "behind GORU and GRU": ("goru", "gru")}.get(said, ())
    if not said:
        return "", Cell("", "")
    if not all(group.finished(name) for name in (model, *rivals)):
        return said, Cell("not yet decided", "open")
    loss = {name: fmean(_loss(r) for r in group.finished(name)) for name in (model, *rivals)}
    others = [loss[name] for name in rivals]
    share = loss[model] / group.baseline
    holds = {
        "solved": share < paper.SOLVED,
        "at the baseline": share > paper.AT_BASELINE,
        "lowest loss": all(loss[model] < other for other in others),
        "behind GORU and GRU": all(loss[model] > other for other in others),
    }[said]
    return said, Cell("agrees", "agrees") if holds else Cell("differs", "differs")


def side_by_side(groups: list[Group]) -> Table | None:
    """The variants of a synthetic task beside each other: a model a row, its final loss over the baseline."""
    if len(groups) < 2:
        return None
    models = list(dict.fromkeys(model for group in groups for model in group.models))

    def cell(group: Group, model: str) -> str:
        if model not in group.models:
            return ""
        records = group.shown(model)
        losses = [loss for record in records if (loss := record.score("test_loss")) is not None]
        text = f"{fmean(losses) / group.baseline:.1%}" if losses else ""
        return text if records[0].finished else Cell(f"{text} ({records[0].step} of {records[0].last_step})", "open")

    rows = tuple((paper.title(model), *(cell(group, model) for group in groups)) for model in models)
    experiment = groups[0].experiment
    title = f"{paper.EXPERIMENTS[experiment].title}: settings side by side, final test loss over the baseline"
    return Table(f"{experiment}-variants", title, "", ("model", *(group.variant for group in groups)), rows)
