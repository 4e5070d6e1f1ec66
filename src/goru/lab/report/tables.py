"""Tables as text: Markdown for reading, CSV for programs."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence

from goru.lab.paper.columns import Table, row
from goru.lab.paper.outcomes import Group
from goru.lab.report.claims import Verdict


def claims(verdicts: list[Verdict]) -> Table:
    """Every claim and its verdict."""
    rows = tuple(row(v.claim.name, v.claim.text, v.runs or "-", v.status, v.note) for v in verdicts)
    headings = ("claim", "text", "runs", "verdict", "note")
    return Table("claims", "The paper's claims", "", headings, rows, words=headings)


def markdown(table: Table) -> str:
    """The table in Markdown, with its title and note."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n{markdown_rows(table.headings, table.texts, table.words)}{note}"


def markdown_rows(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
    """A table of numbers; the first column and those in `words` are aligned to the left."""
    lines = ["| " + " | ".join(map(plain, headings)) + " |"]
    lines.append("|" + "|".join("---" if k == 0 or head in words else "--:" for k, head in enumerate(headings)) + "|")
    lines += ["| " + " | ".join(map(plain, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text escaped for a table cell."""
    return html.escape(" ".join(text.split()), quote=False).replace("\\", "\\\\").replace("|", "\\|")


def as_csv(table: Table) -> str:
    """The table as CSV, as it is shown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows(table.texts)
    return text.getvalue()


def runs_csv(groups: list[Group]) -> str:
    """One line per run, with unrounded numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = ("test_loss", "test_accuracy", "test_sequence_accuracy", "test_bpc")
    heading = ("experiment", "variant", "model", "seed", "finished", "step", "baseline")
    writer.writerow((*heading, *scores, "total_seconds", "steps_per_s"))
    for group in groups:
        for model, records in group.models.items():
            for r in records:
                start = (r.config.experiment, r.config.variant, model, r.config.seed, r.finished, r.step, r.baseline)
                speed = r.step / r.seconds if r.seconds else ""
                writer.writerow((*start, *(r.score(key) for key in scores), r.seconds, speed))
    return text.getvalue()
