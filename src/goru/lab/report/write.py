"""Puts the report together: files in a folder, and one page that holds everything."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from goru.lab import paper
from goru.lab.config import flat
from goru.lab.display import duration
from goru.lab.errors import LabError
from goru.lab.report import claims, comparisons, figures, tables
from goru.lab.report.figures import Figure
from goru.lab.report.records import Group, Record, load
from goru.lab.report.tables import Table


@dataclass(frozen=True)
class Written:
    """What a report consists of."""

    page: Path
    tables: list[Table]
    verdicts: list[claims.Verdict]


def write(runs: Path, out: Path) -> Written:
    """Write the report on a folder of runs: index.html, report.md, tables as CSV, figures as PNG and SVG."""
    groups, problems = load(runs)
    if not groups:
        told = f" ({problems[0]})" if problems else ""
        raise LabError(f"there are no runs to report on in {runs}{told}; start some: goru reproduce --quick")
    verdicts = claims.judge_all(groups)
    sections = [_section(group, verdicts) for group in groups]
    all_tables = [table for section in sections for table in section["tables"]] + [tables.claims(verdicts)]
    try:
        out.mkdir(parents=True, exist_ok=True)
        for section in sections:
            for figure in section["figures"]:
                figure.save(out)
        for table in all_tables:
            (out / f"{table.name}.csv").write_text(tables.as_csv(table))
        (out / "runs.csv").write_text(tables.runs_csv(groups))
        (out / "report.md").write_text(_markdown(sections, all_tables[-1], problems))
        page = out / "index.html"
        page.write_text(_page(sections, verdicts, problems))
    except OSError as error:
        raise LabError(f"cannot write the report to {out}: {error.strerror or error}.") from None
    return Written(page, all_tables[:-1], verdicts)


def _section(group: Group, verdicts: list[claims.Verdict]) -> dict[str, Any]:
    drawn: list[Figure | None] = [figures.gates(group), figures.spectra(group)]
    if group.experiment != "babi":  # the curves of different tasks have nothing in common
        drawn = [figures.losses(group), figures.losses(group, along="seconds"), *drawn]
    one = paper.EXPERIMENTS[group.experiment]
    records = [record for some in group.models.values() for record in some]
    return {
        "group": group,
        "experiment": one,
        "data": comparisons.data_title(group),
        "tables": comparisons.tables(group) if comparisons.has_comparison(group) else [tables.results(group)],
        "figures": [figure for figure in drawn if figure is not None],
        "verdicts": [v for v in verdicts if v.claim.experiment == group.experiment and v.variant == group.variant],
        "settings": _settings(records[0]),
        "decisions": paper.decisions(group.experiment),
        "machines": sorted({_machine(record) for record in records}),
        "time": duration(sum(record.seconds for record in records)),
        "unfinished": [record for record in records if not record.finished],
    }


def _settings(record: Record) -> dict[str, Any]:
    """The settings that all models of a group share."""
    apart = ("experiment", "variant", "model", "seed")
    return {
        path: value
        for path, value in flat(record.config).items()
        if path not in apart and not path.startswith("layer.")
    }


def _machine(record: Record) -> str:
    e = record.environment
    versions = e.get("versions", {})
    return (
        f"{e.get('processor', 'unknown processor')}, {e.get('cores', '?')} cores, "
        f"{e.get('threads', '?')} thread a run, "
        f"torch {versions.get('torch', '?')}, goru {versions.get('goru', '?')}"
    )


def _markdown(sections: list[dict[str, Any]], claims_table: Table, problems: list[str]) -> str:
    parts = ["# The GORU paper, reproduced\n", tables.markdown(claims_table)]
    for section in sections:
        parts += [tables.markdown(table) for table in section["tables"]]
        parts += [f"![{figure.title}]({figure.name}.png)\n" for figure in section["figures"]]
        for verdict in section["verdicts"]:
            parts.append(f"**{verdict.claim.name}: {verdict.status}.** {verdict.claim.text} ({verdict.note})\n")
            lines = [f"- {'yes' if s.holds else 'no'}: {s.text} ({s.evidence})" for s in verdict.statements]
            parts.append("\n".join(lines) + "\n")
    parts += [f"Left out: {problem}\n" for problem in problems]
    return "\n".join(parts)


def _page(sections: list[dict[str, Any]], verdicts: list[claims.Verdict], problems: list[str]) -> str:
    source = resources.files("goru.lab.report").joinpath("page.html.j2").read_text()
    template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
    return template.render(sections=sections, verdicts=verdicts, problems=problems, rules=claims.__doc__)
