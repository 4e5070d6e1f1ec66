"""Tables of results: as rows of text for terminal, Markdown and page, as numbers for CSV."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from goru.lab import paper, published
from goru.lab.display import duration
from goru.lab.report.claims import Verdict
from goru.lab.report.records import Group, Record, spread


class Cell(str):
    """What stands in a table, with how it compares: better, worse, close; agrees, differs; open."""

    tone: str

    def __new__(cls, text: str, tone: str) -> Cell:
        cell = super().__new__(cls, text)
        cell.tone = tone
        return cell


@dataclass(frozen=True)
class Table:
    """A table ready to be shown."""

    name: str
    title: str
    variant: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    brief: tuple[str, ...] = ()
    """The columns for a terminal, where not all fit."""
    note: str = ""
    """How to read it."""


_BRIEF = ("model", "test loss", "of baseline", "accuracy", "solved at step", "steps", "iterations/s")

_SCORES = {
    "test_accuracy": "accuracy",
    "test_sequence_accuracy": "whole sequences",
}


def difference(
    ours: float | None, theirs: float, *, close: float, digits: int, higher_is_better: bool, whole: bool = True
) -> Cell:
    """Ours minus the paper's, in figures and in a word; `close` when they are no further apart than that.

    Where parts are still missing (not `whole`) there is no word yet.

    >>> difference(1.72, 1.60, close=0.05, digits=2, higher_is_better=False)
    '+0.12 worse'
    """
    if ours is None:
        return Cell("", "open")
    gap = ours - theirs
    if not whole:
        return Cell(f"{gap:+.{digits}f} so far", "open")
    word = "close" if abs(gap) <= close else "better" if (gap > 0) == higher_is_better else "worse"
    return Cell(f"{gap:+.{digits}f} {word}", word)


def progress(records: list[Record]) -> str:
    """How far runs are in iterations: the longest finished one, or each that is at work.

    A run that ended early by its own rule is finished, however few its iterations.
    """
    if all(record.finished for record in records):
        return f"{max(record.step for record in records)}"
    return "; ".join(f"{record.step} of {record.last_step}, {record.state}" for record in records)


def count(records: list[Record]) -> str:
    finished = sum(record.finished for record in records)
    return f"{finished}" if finished == len(records) else f"{finished} of {len(records)}"


def rate(records: list[Record]) -> str:
    """Iterations a second, evaluations included."""
    steps, seconds = sum(record.step for record in records), sum(record.seconds for record in records)
    return f"{steps / seconds:.1f}" if steps and seconds else ""


def results(group: Group) -> Table:
    """One row a model: final scores, what the paper says, when it was solved, speed, sizes."""
    scores = [key for key in _SCORES if any(r.score(key) is not None for r in group.records)]
    solved_below = paper.SOLVED * group.baseline
    with_paper = group.experiment in published.LEVELS and not group.kind
    rows = []
    for model, records in group.models.items():
        done = group.shown(model)
        losses = spread([loss for record in done if (loss := record.score("test_loss")) is not None])
        result = done[0].result or {}
        rows.append(
            (
                paper.title(model),
                str(losses),
                f"{losses.mean / group.baseline:.1%}",
                *(_beside_the_paper(group, model) if with_paper else ()),
                *(_mean(done, key) for key in scores),
                _solved_at(done, solved_below),
                count(records),
                progress(done),
                rate(done),
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
        "time",
        "units",
        "parameters",
        "hidden to hidden",
    )
    title = f"{group.title}; baseline {group.baseline:.4f}"
    note = f"Solved: below {paper.SOLVED:.0%} of the baseline; at the baseline: above {paper.AT_BASELINE:.0%} of it."
    note += f" {paper.EXPERIMENTS[group.experiment].matched}"
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
    rivals = {"lowest loss": [*group.models], "behind GORU and GRU": ["goru", "gru"]}.get(said, [])
    if not said:
        return "", Cell("", "")
    if not all(group.finished(name) for name in (model, *rivals)):
        return said, Cell("not yet decided", "open")
    loss = {name: fmean(_loss(r) for r in group.finished(name)) for name in (model, *rivals)}
    others = [loss[name] for name in rivals if published.ROWS.get(name) != published.ROWS[model]]
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


def claims(verdicts: list[Verdict]) -> Table:
    """Every claim and its verdict."""
    rows = tuple((v.claim.name, v.claim.text, v.runs or "-", v.status, v.note) for v in verdicts)
    return Table("claims", "The paper's claims", "", ("claim", "text", "runs", "verdict", "note"), rows)


def markdown(table: Table) -> str:
    """The table in Markdown, with its title and note."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n{markdown_rows(table.headings, table.rows, table.name == 'claims')}{note}"


def markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], words: bool = False) -> str:
    """A table of numbers, or of words, which stand to the left."""
    lines = ["| " + " | ".join(map(plain, headings)) + " |"]
    lines.append("|" + "|".join("---" if k == 0 or words else "--:" for k in range(len(headings))) + "|")
    lines += ["| " + " | ".join(map(plain, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text that neither ends a cell nor becomes markup."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def as_csv(table: Table) -> str:
    """The table as CSV, as it is shown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows(table.rows)
    return text.getvalue()


def runs_csv(groups: list[Group]) -> str:
    """One line a run, with unrounded numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = ("test_loss", *_SCORES, "test_bpc")
    heading = ("experiment", "variant", "model", "seed", "finished", "step", "baseline")
    writer.writerow((*heading, *scores, "total_seconds", "steps_per_s"))
    for group in groups:
        for model, records in group.models.items():
            for r in records:
                start = (
                    group.experiment,
                    r.config.variant,
                    model,
                    r.config.seed,
                    r.finished,
                    r.step,
                    r.baseline,
                )
                speed = r.step / r.seconds if r.seconds else ""
                writer.writerow((*start, *(r.score(key) for key in scores), r.seconds, speed))
    return text.getvalue()
