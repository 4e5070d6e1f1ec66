"""The results in the README, and the README of the record, generated from the record."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from goru.lab import paper
from goru.lab.errors import LabError
from goru.lab.paper.columns import count
from goru.lab.paper.findings import capitalized
from goru.lab.paper.outcomes import Group, number, spread
from goru.lab.report import claims, figures, overview, tables
from goru.lab.report.page import MARKS
from goru.lab.report.reading import load, unverified
from goru.lab.report.sections import machine

BEGIN, END = "<!-- results: made by `make results`, do not edit -->", "<!-- end of results -->"

_CLAIMS = "The paper's claims"


def beside_runs(record: Path) -> dict[str, bytes]:
    """The files next to the runs of a record, by name."""
    groups = _groups(record)
    found = {"README.md": _readme(groups).encode()}
    drawn = _drawn(groups)
    if drawn:
        for dark in (False, True):
            figure = figures.overview(drawn, dark)
            found[f"{figure.name}.svg"] = figure.svg.encode()
    return found


def in_readme(readme: Path, record: Path) -> str:
    """The text of a README with its results section updated from a record."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LabError(f"{readme} should have the lines {BEGIN} and {END} around its results.")
    folder = os.path.relpath(record, readme.parent).replace(os.sep, "/")
    return f"{before}{BEGIN}\n\n{section(_groups(record), folder)}\n{END}{after}"


def section(groups: list[Group], folder: str) -> str:
    """Picture, ranking and the number of reproduced claims in Markdown; `folder` is the relative path of the record."""
    judged = claims.by_claim(claims.judge_all(groups))
    reproduced = sum(one.main.status == claims.REPRODUCED for one in judged)
    link = f"{folder}/README.md#{_CLAIMS.lower().replace(' ', '-').replace(chr(39), '')}"
    counted = f"[{reproduced} of {len(judged)} claims]({link}) of the paper reproduced."
    return "\n".join(
        [*_picture(groups, folder), _slim(groups), counted + overview.plain(overview.other_starts(judged)) + "\n"]
    )


def numbers(record: Path) -> str:
    """The numbers and verdicts of a record in Markdown, without its picture."""
    groups = _groups(record)
    return f"{_headline(groups)}\n{_verdicts(groups)}"


def _groups(record: Path) -> list[Group]:
    groups, problems = load(record)
    for problem in problems:
        raise LabError(problem)
    return [group for group in groups if not group.kind]


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
        cells = [found.cell(group, model).text for model in found.models]
        bold = [f"**{text}**" if m in first else text for m, text in zip(found.models, cells, strict=True)]
        rows.append((f"{found.label(group)}: {measure.heading} {'↑' if measure.higher_is_better else '↓'}", *bold))
    table = tables.markdown_rows(("experiment", *(model.title for model in found.models)), rows)
    return f"{table}\nBest in bold; ↓ lower is better, ↑ higher; {found.note}.\n"


def _headline(groups: list[Group]) -> str:
    """One row per experiment and setting, one column per model; below each row the paper's numbers."""
    groups = [group for group in groups if group.experiment.measure]
    trained = [model for group in groups for model in group.models]
    models = [
        model
        for model in dict.fromkeys([*paper.MODELS, *trained])
        if model in trained and not paper.model(model).ablation
    ]
    rows = []
    for group in groups:
        assert group.experiment.measure is not None
        rows.append((_title(group), group.experiment.measure.heading, *(_number(group, model) for model in models)))
        theirs = [_in_paper(group, model) for model in models]
        if any(theirs):
            rows.append(("", "the paper", *theirs))
    signs = overview.ranking(groups)
    notes = [f" {note}" for note in dict.fromkeys(map(_difference_note, groups)) if note]
    note = f"{capitalized(signs.note)}. " if signs and signs.note else ""
    table = tables.markdown_rows(("experiment", "measure", *map(paper.title, models)), rows)
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
        f"{_title(group)}, {paper.title(model)}: {_number(group, model)} (paper: {_in_paper(group, model)})."
        for group in groups
        for model in group.models
        if paper.model(model).ablation
    ]
    return [" ".join(sentences) + "\n"] if sentences else []


def _difference_note(group: Group) -> str:
    """A remark if a group differs from the paper."""
    found = group.experiment.paper
    return found.differs_note if found and not group.as_in_the_paper else ""


def _title(group: Group) -> str:
    title = group.experiment.title + (f" ({group.data_title})" if group.data_title else "")
    return title if group.variant == "paper" else f"{title}, {group.variant}"


def _number(group: Group, model: str) -> str:
    """A model's number, with its standard deviation if it has several seeds."""
    text, measure = overview.number(group, model), group.experiment.measure
    seeds = group.seed_means(model, measure.score) if measure and model in group.models else []
    if measure is None or len(seeds) < 2:
        return text
    return f"{text} ± {number(measure.scale_of(group) * spread(seeds).deviation, measure.digits)}"


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
    return tables.markdown_rows(headings, rows, headings)


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
            "" if all(r.finished for r in some) else "; ".join(r.progress for r in some if not r.finished),
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
        *(f"- {tables.plain(text)}" for text in sorted({machine(record) for record in records})),
        *(f"- {sentence}" for sentence in unverified(groups)),
        "",
        "## Results\n",
        *_picture(groups, "."),
        _headline(groups),
        f"## {_CLAIMS}\n",
        _verdicts(groups),
        "## What is in it\n",
        tables.markdown_rows(headings, rows, headings),
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
