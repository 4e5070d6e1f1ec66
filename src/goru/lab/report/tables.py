"""Tables of results: as rows of text for terminal, Markdown and page, as numbers for CSV."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from goru.lab import paper
from goru.lab.report.claims import Verdict
from goru.lab.report.records import Group, Record

CLOCK = (
    "Iterations/s and time are by the clock, evaluations and whatever else the machine did included; "
    "ms a step is the processor's time, measured apart by goru bench."
)


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


def progress(records: Sequence[Record]) -> str:
    """How far runs are in iterations: the finished ones, or each that is at work.

    A run that ended early by its own rule is finished, however few its iterations.
    """
    finished = sorted({record.step for record in records if record.finished})
    if finished:
        return f"{finished[0]}" if len(finished) == 1 else f"{finished[0]} to {finished[-1]}"
    return "; ".join(f"{record.step} of {record.last_step}, {record.state}" for record in records)


def count(records: list[Record]) -> str:
    finished = sum(record.finished for record in records)
    return f"{finished}" if finished == len(records) else f"{finished} of {len(records)}"


def rate(records: list[Record]) -> str:
    """Iterations a second, evaluations included."""
    steps, seconds = sum(record.step for record in records), sum(record.seconds for record in records)
    return f"{steps / seconds:.1f}" if steps and seconds else ""


def measured_step(group: Group, records: list[Record]) -> str:
    """Milliseconds of a training step on the reference machine, of parts the mean; not known of other sizes."""
    one = paper.EXPERIMENTS[group.experiment]
    milliseconds = 0.0 if group.kind else 1000 * fmean(one.step_cost(record.config) for record in records)
    return f"{milliseconds:.0f}" if milliseconds else ""


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
    return html.escape(" ".join(text.split()), quote=False).replace("\\", "\\\\").replace("|", "\\|")


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
    scores = ("test_loss", "test_accuracy", "test_sequence_accuracy", "test_bpc")
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
