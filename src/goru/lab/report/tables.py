"""Tables of results: as rows of text for terminal, Markdown and page, as numbers for CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from goru.lab import paper
from goru.lab.display import duration
from goru.lab.report.claims import Verdict
from goru.lab.report.records import Group, spread


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


_BRIEF = ("model", "units", "test loss", "of baseline", "accuracy", "solved at step", "ms a step")

_SCORES = {
    "test_accuracy": "accuracy",
    "test_sequence_accuracy": "whole sequences",
}


def results(group: Group) -> Table:
    """One row a model: sizes, final scores, when it was solved, speed."""
    scores = [key for key in _SCORES if any(r[0].score(key) is not None for r in group.models.values())]
    solved_below = paper.SOLVED * group.baseline
    rows = []
    for model, records in group.models.items():
        done = [record for record in records if record.finished] or records
        losses = spread([record.score("test_loss") or 0.0 for record in done])
        firsts = [record.first_step_below(solved_below) for record in done]
        reached = [step for step in firsts if step is not None]
        finished = sum(record.finished for record in records)
        result = done[0].result or {}
        rows.append(
            (
                paper.title(model),
                str(done[0].config.layer.hidden_size),
                f"{result['parameters']:,}" if result else "",
                f"{result['hidden_to_hidden_parameters']:,}" if result else "",
                f"{finished}" if finished == len(records) else f"{finished} of {len(records)}",
                f"{max(record.step for record in done)}",
                str(losses),
                f"{losses.mean / group.baseline:.1%}",
                *(f"{spread([r.score(key) or 0.0 for r in done]).mean:.1%}" for key in scores),
                f"{round(spread([float(s) for s in reached]).mean)}"
                if len(reached) == len(done)
                else "never"
                if not reached
                else f"{len(reached)} of {len(done)} seeds",
                f"{spread([r.seconds / max(r.step, 1) for r in done]).mean * 1000:.0f}",
                duration(sum(record.seconds for record in records)),
            )
        )
    headings = (
        "model",
        "units",
        "parameters",
        "hidden to hidden",
        "seeds",
        "steps",
        "test loss",
        "of baseline",
        *(_SCORES[key] for key in scores),
        "solved at step",
        "ms a step",
        "time",
    )
    title = f"{group.title}; baseline {group.baseline:.4f}"
    return Table(group.name, title, group.variant, headings, tuple(rows), _BRIEF)


def claims(verdicts: list[Verdict]) -> Table:
    """Every claim and its verdict."""
    rows = tuple((v.claim.name, v.claim.text, v.variant or "-", v.status, v.note) for v in verdicts)
    return Table("claims", "The paper's claims", "", ("claim", "text", "runs", "verdict", "note"), rows)


def markdown(table: Table) -> str:
    """The table in Markdown."""
    lines = [f"### {table.title}", "", "| " + " | ".join(table.headings) + " |"]
    lines.append("|" + "|".join("---" if k == 0 else "--:" for k in range(len(table.headings))) + "|")
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


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
    scores = ("test_loss", *_SCORES)
    heading = ("experiment", "variant", "model", "seed", "finished", "step", "baseline")
    writer.writerow((*heading, *scores, "total_seconds", "steps_per_s"))
    for group in groups:
        for model, records in group.models.items():
            for r in records:
                start = (
                    group.experiment,
                    group.variant,
                    model,
                    r.config.seed,
                    r.finished,
                    r.step,
                    r.baseline,
                )
                speed = r.step / r.seconds if r.seconds else ""
                writer.writerow((*start, *(r.score(key) for key in scores), r.seconds, speed))
    return text.getvalue()
