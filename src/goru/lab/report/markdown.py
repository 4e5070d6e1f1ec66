"""Everything in Markdown and CSV: tables, report.md, the results in the README and the README of a record."""

from __future__ import annotations

import csv
import html
import io
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from goru.lab import paper
from goru.lab.errors import LabError
from goru.lab.paper.columns import Table, count, row
from goru.lab.paper.findings import capitalized
from goru.lab.paper.outcomes import Group
from goru.lab.report import claims, costs, figures, overview
from goru.lab.report.claims import Verdict
from goru.lab.report.page import MARKS
from goru.lab.report.sections import Section, machine

BEGIN, END = "<!-- results: made by `make results`, do not edit -->", "<!-- end of results -->"

_CLAIMS = "The paper's claims"


def claims_table(verdicts: list[Verdict]) -> Table:
    """Every claim and its verdict."""
    rows = tuple(row(v.claim.name, v.claim.text, v.runs or "-", v.status, v.note) for v in verdicts)
    headings = ("claim", "text", "runs", "verdict", "note")
    return Table("claims", "The paper's claims", "", headings, rows, words=headings)


def with_title(table: Table) -> str:
    """A table with its title and note."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"### {table.title}\n\n{rows_of(table.headings, table.texts, table.words)}{note}"


def rows_of(headings: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[str] = ()) -> str:
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
    return _csv([table.headings, *table.texts])


def runs_csv(groups: list[Group]) -> str:
    """One line per run, with unrounded numbers."""
    scores = ("test_loss", "test_accuracy", "test_sequence_accuracy", "test_bpc")
    heading = ("experiment", "variant", "model", "seed", "finished", "step", "baseline")
    lines: list[Sequence[object]] = [(*heading, *scores, "total_seconds", "steps_per_s")]
    for r in (record for group in groups for record in group.records):
        start = (r.config.experiment, r.config.variant, r.config.model, r.config.seed, r.finished, r.step, r.baseline)
        speed = r.step / r.seconds if r.seconds else ""
        lines.append((*start, *(r.score(key) for key in scores), r.seconds, speed))
    return _csv(lines)


def _csv(lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def report(
    made: list[Section], verdicts: list[Verdict], cost: Table | None, problems: list[str], notices: list[str]
) -> str:
    """The content of report.md."""
    groups = [variant.group for section in made for variant in section.variants]
    found = overview.findings(groups, verdicts)
    parts = ["# GORU: what reproduces, and what we found\n", *(f"- {overview.plain(one)}\n" for one in found)]
    if not all(group.kind for group in groups):
        parts += [f"**{question}** {answer}\n" for question, answer in overview.answers(groups)]
        parts += [with_title(claims_table(verdicts))]
    parts += [f"- {sentence}\n" for section in made for sentence in section.learned]
    for section in made:
        parts.append(f"## {section.experiment.title}\n\n{section.experiment.summary}\n")
        if section.side_by_side:
            parts.append(with_title(section.side_by_side))
        parts += [f"- {gap}\n" for gap in section.gaps]
        for variant in section.variants:
            parts += [with_title(table) for table in variant.tables]
            gaps = [gap for gap in (variant.not_run, *variant.gaps) if gap]
            if gaps:
                parts.append("\n".join(f"- {plain(gap)}" for gap in gaps) + "\n")
            for figure in variant.figures:
                parts += [f"![{figure.title}]({figure.name}.png)\n", *([f"{figure.text}\n"] if figure.text else [])]
        for verdict in section.verdicts:
            head = f"**{verdict.claim.name}: {verdict.status}** ({verdict.runs}). {verdict.claim.text} ({verdict.note})"
            lines = [f"- {'yes' if s.holds else 'no'}: {s.text} ({s.evidence})" for s in verdict.statements]
            parts.append("\n".join([head, "", *lines]) + "\n")
    if cost:
        parts.append(f"{with_title(cost)}\n{costs.HOW_COUNTED}")
    parts += [f"{notice}\n" for notice in notices]
    parts += [f"Skipped: {plain(problem)}\n" for problem in problems]
    return "\n".join(parts)


def beside_runs(groups: list[Group]) -> dict[str, bytes]:
    """The files next to the runs of a record, by name."""
    drawn = _drawn(groups)
    overviews = [figures.overview(drawn, dark) for dark in (False, True)] if drawn else []
    return {"README.md": _readme(groups).encode()} | {f"{one.name}.svg": one.svg.encode() for one in overviews}


def in_readme(readme: Path, groups: list[Group], record: Path) -> str:
    """The text of a README with its results section updated from the groups of a record."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LabError(f"{readme} should have the lines {BEGIN} and {END} around its results.")
    folder = os.path.relpath(record, readme.parent).replace(os.sep, "/")
    return f"{before}{BEGIN}\n\n{section(groups, folder)}\n{END}{after}"


def section(groups: list[Group], folder: str) -> str:
    """Picture, ranking and the number of reproduced claims; `folder` is the relative path of the record."""
    judged = claims.by_claim(claims.judge_all(groups))
    reproduced = sum(one.main.status == claims.REPRODUCED for one in judged)
    link = f"{folder}/README.md#{_CLAIMS.lower().replace(' ', '-').replace(chr(39), '')}"
    counted = f"[{reproduced} of {len(judged)} claims]({link}) of the paper reproduced."
    return "\n".join(
        [*_picture(groups, folder), _slim(groups), counted + overview.plain(overview.other_starts(judged)) + "\n"]
    )


def numbers(groups: list[Group]) -> str:
    """The numbers and verdicts of a record, without its picture."""
    return f"{_headline(groups)}\n{_verdicts(groups)}"


def _drawn(groups: list[Group]) -> list[Group]:
    return [group for group in groups if group.experiment.in_overview and group.variant == "paper"]


def _picture(groups: list[Group], folder: str) -> list[str]:
    if not _drawn(groups):
        return []
    said = "Test loss of every model on the synthetic tasks, against iterations"
    return [
        "<picture>",
        f'  <source media="(prefers-color-scheme: dark)" srcset="{folder}/overview-dark.svg">',
        f'  <img alt="{said}" src="{folder}/overview.svg">',
        "</picture>\n",
    ]


def _slim(groups: list[Group]) -> str:
    """One row per experiment in the paper's setting, one column per model, the best in bold."""
    found = overview.ranking(groups)
    if found is None:
        return ""
    rows = []
    for group in found.groups:
        measure, first = found.measure(group), found.first(group)
        cells = [_number(group, model.name) for model in found.models]
        bold = [f"**{text}**" if m in first else text for m, text in zip(found.models, cells, strict=True)]
        rows.append((f"{found.label(group)}: {measure.heading} {'↑' if measure.higher_is_better else '↓'}", *bold))
    table = rows_of(("experiment", *(model.title for model in found.models)), rows)
    return f"{table}\nBest in bold; ↓ lower is better, ↑ higher; {found.note}.\n"


def _headline(groups: list[Group]) -> str:
    """One row per experiment and setting, one column per model; below each row the paper's numbers."""
    groups = [group for group in groups if group.experiment.measure]
    models = [model.name for model in overview.columns(groups)]
    rows = []
    for group in groups:
        assert group.experiment.measure is not None
        rows.append((_title(group), group.experiment.measure.heading, *(_number(group, model) for model in models)))
        theirs = [_in_paper(group, model) for model in models]
        if any(theirs):
            rows.append(("", "the paper", *theirs))
    signs = overview.ranking(groups)
    differing = [group.experiment.paper for group in groups if not group.as_in_the_paper]
    notes = dict.fromkeys(f" {found.differs_note}" for found in differing if found and found.differs_note)
    note = f"{capitalized(signs.note)}. " if signs and signs.note else ""
    table = rows_of(("experiment", "measure", *map(paper.title, models)), rows)
    return "\n".join([f"{note}{_done(groups)}{''.join(notes)}\n", table, *_in_words(groups)])


def _done(groups: list[Group]) -> str:
    """How many runs of the first seed are finished, and how many others."""
    finished = {record.config.directory(Path()) for group in groups for record in group.records if record.finished}
    first = {config.directory(Path()) for config in paper.grid()}
    more = len(finished - first)
    done = f"{len(finished & first)} of the {len(first)} runs of the first seed are finished"
    return done + (f", plus {more} more." if more else ".")


def _in_words(groups: list[Group]) -> list[str]:
    """The models without a column."""
    sentences = [
        f"{_title(group)}, {paper.title(model)}: {_number(group, model)}"
        + (f" (paper: {said})." if (said := _in_paper(group, model)) else ".")
        for group in groups
        for model in group.models
        if paper.model(model).ablation
    ]
    return [" ".join(sentences) + "\n"] if sentences else []


def _title(group: Group) -> str:
    title = group.experiment.title + (f" ({group.data_title})" if group.data_title else "")
    return title if group.variant == "paper" else f"{title}, {group.variant}"


def _number(group: Group, model: str) -> str:
    """A model's number, with its standard deviation if it has several seeds."""
    text, deviation = overview.number(group, model), overview.deviation(group, model)
    return f"{text} ± {deviation}" if deviation else text


def _in_paper(group: Group, model: str) -> str:
    measure = group.experiment.measure
    return measure.paper(group, model) if measure and model in group.models else ""


def _verdicts(groups: list[Group]) -> str:
    rows = []
    for one in claims.by_claim(claims.judge_all(groups)):
        others = [f"{v.runs}: {v.status}" for v in one.others]
        notes = "; ".join([one.main.note, *others])
        rows.append((one.claim.name, one.claim.text, f"{MARKS[one.main.status]} {one.main.status}", notes))
    headings = ("", "the paper's claim", "verdict", "seeds, other settings")
    return rows_of(headings, rows, headings)


def _readme(groups: list[Group]) -> str:
    records = [record for group in groups for record in group.records]
    times = [r.result["finished_time"] for r in records if r.result and "finished_time" in r.result]
    last = f"{datetime.fromtimestamp(max(times), UTC):%Y-%m-%d}" if times else "none yet"
    rows = [
        (
            group.experiment.name,
            group.variant,
            paper.title(model),
            _seeds(group, model),
            count(some),
            "; ".join(r.progress for r in some if not r.finished),
        )
        for group in groups
        for model, some in group.models.items()
    ]
    headings = ("experiment", "setting", "model", "seeds", "runs finished", "not finished")
    parts = [
        "# The record of the reproduction\n",
        "A folder of runs without checkpoints and with thinned curves. `goru report --runs results` draws every figure"
        " and table from it; `make results RUNS=folder` adds newer runs and rewrites this file.\n",
        f"Last finished run: {last}.",
        *(f"- {plain(text)}" for text in sorted({machine(record) for record in records})),
        *(f"- {sentence}" for sentence in overview.unverified(groups)),
        "",
        "## Results\n",
        *_picture(groups, "."),
        _headline(groups),
        f"## {_CLAIMS}\n",
        _verdicts(groups),
        "## What is in it\n",
        rows_of(headings, rows, headings),
    ]
    return "\n".join(parts)


def _seeds(group: Group, model: str) -> str:
    """Which seeds there are; of an experiment in parts, of how many parts each."""
    one = group.experiment
    seeds = sorted({record.config.seed for record in group.models[model]})
    if not one.parts:
        return ", ".join(map(str, seeds))
    counts = {seed: sum(r.config.seed == seed for r in group.models[model]) for seed in seeds}
    return ", ".join(f"{seed} ({count} of {one.part_count} {one.parts})" for seed, count in counts.items())
