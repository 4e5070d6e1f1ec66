"""The report: figures, tables, verdicts and a page, made from run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goru.lab import durable
from goru.lab.errors import LabError
from goru.lab.paper.columns import Table
from goru.lab.report import claims, costs, markdown, overview, page, record, sections

__all__ = ["Written", "record", "write"]


@dataclass(frozen=True)
class Written:
    """The contents of a report."""

    page: Path
    tables: list[Table]
    verdicts: list[claims.Verdict]
    learned: list[str]
    """One sentence per small run on what it learned."""
    problems: list[str]
    """Runs that were skipped, and why."""
    notices: list[str]
    """Remarks on the runs."""


def write(runs: Path, out: Path) -> Written:
    """Write the report on a folder of runs: index.html, report.md, tables as CSV, figures as PNG and SVG."""
    groups, problems = record.load(runs)
    if not groups:
        why = f" ({problems[0]})" if problems else ""
        raise LabError(f"there are no runs to report on in {runs}{why}; start some: goru reproduce --quick")
    verdicts = claims.judge_all(groups)
    made = sections.make(groups, verdicts)
    cost = costs.table(groups)
    about_experiments = [table for section in made for table in section.tables]
    everything = [*about_experiments, markdown.claims_table(verdicts), *([cost] if cost else [])]
    notices = overview.unverified(groups)
    html, text = (form(made, verdicts, cost, problems, notices) for form in (page.render, markdown.report))
    try:
        durable.make_folder(out)
        for figure in (figure for section in made for variant in section.variants for figure in variant.figures):
            figure.save(out)
        for table in everything:
            durable.replace(out / f"{table.name}.csv", markdown.as_csv(table).encode())
            durable.replace(out / f"{table.name}.md", markdown.with_title(table).encode())
        durable.replace(out / "runs.csv", markdown.runs_csv(groups).encode())
        durable.replace(out / "report.md", text.encode())
        durable.replace(out / "index.html", html.encode())
    except OSError as error:
        raise LabError(f"cannot write the report to {out}: {error.strerror or error}.") from None
    learned = [sentence for section in made for sentence in section.learned]
    return Written(out / "index.html", about_experiments, verdicts, learned, problems, notices)
