"""The report: figures, tables, verdicts and a page, made from run directories."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from goru.lab import durable
from goru.lab.errors import LabError
from goru.lab.paper.columns import Table
from goru.lab.report import claims, costs, overview, page, record, sections, tables
from goru.lab.report.reading import load, unverified
from goru.lab.report.sections import Section

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
    groups, problems = load(runs)
    if not groups:
        why = f" ({problems[0]})" if problems else ""
        raise LabError(f"there are no runs to report on in {runs}{why}; start some: goru reproduce --quick")
    verdicts = claims.judge_all(groups)
    made = sections.make(groups, verdicts)
    cost = costs.table(groups)
    about_experiments = [table for section in made for table in section.tables]
    everything = [*about_experiments, tables.claims(verdicts), *([cost] if cost else [])]
    notices = unverified(groups)
    html = page.render(made, verdicts, cost, problems, notices)
    text = _markdown(made, overview.findings(groups, verdicts), tables.claims(verdicts), cost, problems, notices)
    try:
        durable.make_folder(out)
        for section in made:
            for variant in section.variants:
                for figure in variant.figures:
                    figure.save(out)
        for table in everything:
            durable.replace(out / f"{table.name}.csv", tables.as_csv(table).encode())
            durable.replace(out / f"{table.name}.md", tables.markdown(table).encode())
        durable.replace(out / "runs.csv", tables.runs_csv(groups).encode())
        durable.replace(out / "report.md", text.encode())
        durable.replace(out / "index.html", html.encode())
    except OSError as error:
        raise LabError(f"cannot write the report to {out}: {error.strerror or error}.") from None
    learned = [sentence for section in made for sentence in section.learned]
    return Written(out / "index.html", about_experiments, verdicts, learned, problems, notices)


def _markdown(
    made: list[Section],
    found: list[overview.Sentence],
    claimed: Table,
    cost: Table | None,
    problems: list[str],
    notices: list[str],
) -> str:
    judged = any(not variant.group.kind for section in made for variant in section.variants)
    parts = ["# GORU: what reproduces, and what we found\n", *(f"- {overview.plain(one)}\n" for one in found)]
    parts += [tables.markdown(claimed)] if judged else []
    parts += [f"- {sentence}\n" for section in made for sentence in section.learned]
    for section in made:
        parts.append(f"## {section.experiment.title}\n\n{section.experiment.summary}\n")
        if section.side_by_side:
            parts.append(tables.markdown(section.side_by_side))
        parts += [f"- {gap}\n" for gap in section.gaps]
        for variant in section.variants:
            parts += [tables.markdown(table) for table in variant.tables]
            gaps = [gap for gap in (variant.not_run, *variant.gaps) if gap]
            if gaps:
                parts.append("\n".join(f"- {tables.plain(gap)}" for gap in gaps) + "\n")
            for figure in variant.figures:
                parts += [f"![{figure.title}]({figure.name}.png)\n", *([f"{figure.text}\n"] if figure.text else [])]
        for verdict in section.verdicts:
            head = f"**{verdict.claim.name}: {verdict.status}** ({verdict.runs}). {verdict.claim.text} ({verdict.note})"
            lines = [f"- {'yes' if s.holds else 'no'}: {s.text} ({s.evidence})" for s in verdict.statements]
            parts.append("\n".join([head, "", *lines]) + "\n")
    if cost:
        parts.append(f"{tables.markdown(cost)}\n{costs.HOW_COUNTED}")
    parts += [f"{notice}\n" for notice in notices]
    parts += [f"Skipped: {tables.plain(problem)}\n" for problem in problems]
    return "\n".join(parts)
