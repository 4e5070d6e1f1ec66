"""What the README says of the results, and the README of the record: made from the record, never by hand."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from goru.lab import paper
from goru.lab.errors import LabError
from goru.lab.paper.columns import count
from goru.lab.paper.outcomes import Group, spread
from goru.lab.report import claims, figures, tables
from goru.lab.report.page import MARKS
from goru.lab.report.reading import load, unverified
from goru.lab.report.sections import machine

BEGIN, END = "<!-- results: made by `make results`, do not edit -->", "<!-- end of results -->"

_PARTLY, _UNFINISHED, _FAILED = "†", "…", "failed"


@dataclass(frozen=True)
class _Number:
    """A model's number in the table of results, with what has to be explained about it."""

    text: str = ""
    partly: bool = False
    unfinished: bool = False
    failed: bool = False


def beside_runs(record: Path) -> dict[str, bytes]:
    """The files beside the runs of a record, by name."""
    groups = _groups(record)
    found = {"README.md": _readme(groups).encode()}
    drawn = _drawn(groups)
    if drawn:
        found["overview.svg"] = figures.overview(drawn).svg.encode()
    return found


def in_readme(readme: Path, record: Path) -> str:
    """The text of a README with its section of results renewed from a record."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LabError(f"{readme} should have the lines {BEGIN} and {END} around its results.")
    folder = os.path.relpath(record, readme.parent).replace(os.sep, "/")
    return f"{before}{BEGIN}\n\n{section(_groups(record), folder)}\n{END}{after}"


def section(groups: list[Group], folder: str) -> str:
    """Picture, numbers and verdicts in Markdown; `folder` is where the record is, seen from the text."""
    parts = []
    if _drawn(groups):
        parts.append(f"![Test loss of every model on the synthetic tasks, against iterations]({folder}/overview.svg)\n")
    parts += [_headline(groups), _verdicts(groups)]
    return "\n".join(parts)


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


def _headline(groups: list[Group]) -> str:
    """One row an experiment and setting, one column a model; the paper's number or words in brackets."""
    groups = [group for group in groups if group.experiment.measure]
    trained = [model for group in groups for model in group.models]
    models = [model for model in dict.fromkeys([*paper.MODELS, *trained]) if model in trained and not _apart(model)]
    numbers = [[_number(group, model) for model in models] for group in groups]
    shown = [number for row in numbers for number in row]
    notes = [f" {note}" for note in dict.fromkeys(map(_difference_note, groups)) if note]
    note = (
        "In brackets: the paper"
        + (f"; {_PARTLY} marks a mean over some of the parts" if any(one.partly for one in shown) else "")
        + (f"; {_UNFINISHED} is a run that has not ended" if any(one.unfinished for one in shown) else "")
        + (f"; {_FAILED} is a run that ended without a result" if any(one.failed for one in shown) else "")
        + f". {_done(groups)}{''.join(notes)}\n"
    )
    rows = [
        (_title(group), group.experiment.measure.title if group.experiment.measure else "", *(one.text for one in row))
        for group, row in zip(groups, numbers, strict=True)
    ]
    table = tables.markdown_rows(("experiment", "measure", *map(paper.title, models)), rows)
    return "\n".join([note, table, *_in_words(groups)])


def _apart(model: str) -> bool:
    return paper.model(model).ablation


def _done(groups: list[Group]) -> str:
    """How much of the first seed of everything is finished, and how many runs there are beyond it."""
    finished = {record.config.directory(Path()) for group in groups for record in group.records if record.finished}
    first = {config.directory(Path()) for config in paper.grid()}
    more = len(finished - first)
    done = f"{len(finished & first)} of the {len(first)} runs of one seed are finished"
    return done + (f", and {more} beyond them." if more else ".")


def _in_words(groups: list[Group]) -> list[str]:
    """The models without a column."""
    sentences = [
        f"{_title(group)}, {paper.title(model)}: {_number(group, model).text}."
        for group in groups
        for model in group.models
        if _apart(model)
    ]
    return [" ".join(sentences) + "\n"] if sentences else []


def _difference_note(group: Group) -> str:
    """What to know where a group was not run on what the paper had."""
    found = group.experiment.paper
    return found.differs_note if found and not group.as_in_the_paper else ""


def _title(group: Group) -> str:
    title = group.experiment.title + (f" ({group.data_title})" if group.data_title else "")
    return title if group.variant == "paper" else f"{title}, {group.variant}"


def _number(group: Group, model: str) -> _Number:
    if model not in group.models:
        return _Number()
    if not group.finished(model):
        if all(record.state == "failed" for record in group.models[model]):
            return _Number(_FAILED, failed=True)
        return _Number(_UNFINISHED, unfinished=True)
    measure = group.experiment.measure
    value = measure.value(group, model) if measure else None
    if measure is None or value is None:
        return _Number()
    scale, digits = measure.scale_of(group), measure.digits
    seeds = spread([scale * mean for mean in group.seed_means(model, measure.score)] or [value])
    deviation = f" ± {seeds.deviation:.{digits}f}, {seeds.count} seeds" if seeds.count > 1 else ""
    partly = not group.complete_seeds(model)
    theirs = measure.paper(group, model)
    text = f"{value:.{digits}f}{deviation}{_PARTLY if partly else ''}{f' ({theirs})' if theirs else ''}"
    return _Number(text, partly=partly)


def _verdicts(groups: list[Group]) -> str:
    rows = []
    for one in claims.by_claim(claims.judge_all(groups)):
        others = [f"{v.runs}: {v.status}" for v in one.others]
        notes = "; ".join([one.main.note, *others])
        rows.append((one.claim.name, one.claim.text, f"{MARKS[one.main.status]} {one.main.status}", notes))
    return tables.markdown_rows(("", "the paper's claim", "verdict", "seeds, other settings"), rows, words=True)


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
    parts = [
        "# The record of the reproduction\n",
        "A folder of runs without checkpoints and with thinned curves. `goru report --runs results` draws every figure"
        " and table from it; `make results RUNS=folder` adds newer runs and rewrites this file.\n",
        f"Last finished run: {last}.",
        *(f"- {tables.plain(text)}" for text in sorted({machine(record) for record in records})),
        *(f"- {sentence}" for sentence in unverified(groups)),
        "",
        "## Results\n",
        section(groups, "."),
        "## What is in it\n",
        tables.markdown_rows(("experiment", "setting", "model", "seeds", "runs finished", "not finished"), rows, True),
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
