"""What the README says of the results, and the README of the record: made from the record, never by hand."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from goru.lab import paper
from goru.lab.errors import LabError
from goru.lab.paper import published
from goru.lab.report import claims, comparisons, figures, stories, tables
from goru.lab.report.page import MARKS, judged
from goru.lab.report.records import Group, complete_seeds, load, seed_means, spread
from goru.lab.report.sections import machine

BEGIN, END = "<!-- results: made by `make results`, do not edit -->", "<!-- end of results -->"

_DRAWN = ("copying", "denoise", "parenthesis")
_MEASURES = {
    "copying": ("test loss, % of the baseline", "test_loss", 1),
    "denoise": ("test loss, % of the baseline", "test_loss", 1),
    "parenthesis": ("test loss, % of the baseline", "test_loss", 1),
    "shortest_path": ("accuracy %", "test_accuracy", 1),
    "babi": ("mean accuracy %", "test_accuracy", 1),
    "penn_treebank": ("bits per character", "test_bpc", 3),
    "speech": ("mean squared error", "test_loss", 3),
}
"""The measure of an experiment in words, as a score, and its decimals."""
_PARTLY = "†"
_FAILED = "failed"
_APART = ("goru-no-reset", "goru-no-update")
"""Models of one experiment alone: they have no column."""


def files(record: Path) -> dict[str, bytes]:
    """What stands beside the runs of a record."""
    groups = _groups(record)
    found = {"README.md": _readme(groups).encode()}
    drawn = [group for group in groups if group.experiment in _DRAWN and group.variant == "paper"]
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
    if any(group.experiment in _DRAWN and group.variant == "paper" for group in groups):
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


def _headline(groups: list[Group]) -> str:
    """One row an experiment and setting, one column a model; the paper's number or words in brackets."""
    known = [model for model in paper.MODEL_TITLES if model not in _APART]
    models = [model for model in known if any(model in group.models for group in groups)]
    rows = [
        (_title(group), _MEASURES[group.experiment][0], *(_number(group, model) for model in models))
        for group in groups
    ]
    note = (
        "In brackets: the paper"
        + (f"; {_PARTLY} marks a mean over some of the parts" if _PARTLY in str(rows) else "")
        + ("; … is a training that has not ended" if "…" in str(rows) else "")
        + ("; failed is one that ended without a result" if any(_FAILED in row for row in rows) else "")
        + f". {_done(groups)}{_about_speech(groups)}\n"
    )
    table = tables.markdown_rows(("experiment", "measure", *map(paper.title, models)), rows)
    return "\n".join([note, table, *_apart(groups)])


def _done(groups: list[Group]) -> str:
    """How much of the first seed of everything is finished, and how many runs there are beyond it."""
    finished = {record.config.directory(Path()) for group in groups for record in group.records if record.finished}
    first = {config.directory(Path()) for config in paper.grid()}
    more = len(finished - first)
    told = f"{len(finished & first)} of the {len(first)} runs of one seed are finished"
    return told + (f", and {more} beyond them." if more else ".")


def _apart(groups: list[Group]) -> list[str]:
    """The models without a column, in words."""
    told = [
        f"{_title(group)}, {paper.title(model)}: {_number(group, model)}."
        for group in groups
        for model in _APART
        if model in group.models
    ]
    return [" ".join(told) + "\n"] if told else []


def _about_speech(groups: list[Group]) -> str:
    speech = [record for group in groups if group.experiment == "speech" for record in group.records]
    if all(record.config.task.data_set == "timit" for record in speech):
        return ""
    return " Speech is another corpus than the paper's, so only the order of the models can be compared."


def _title(group: Group) -> str:
    data = comparisons.data_title(group)
    title = paper.EXPERIMENTS[group.experiment].title + (f" ({data})" if data else "")
    return title if group.variant == "paper" else f"{title}, {group.variant}"


def _number(group: Group, model: str) -> str:
    if model not in group.models:
        return ""
    if not group.finished(model):
        return _FAILED if all(record.state == "failed" for record in group.models[model]) else "…"
    one = paper.EXPERIMENTS[group.experiment]
    _, score, digits = _MEASURES[group.experiment]
    scale = 100 / group.baseline if group.experiment in _DRAWN else 100 if score == "test_accuracy" else 1
    row = published.ROWS.get(model, "")
    theirs = _published(group.experiment, row)
    if group.experiment == "babi":
        by_task = stories.task_accuracies(group.models[model])
        value = fmean(map(fmean, by_task.values())) if by_task else None
        theirs = f"{published.babi_mean(row, list(by_task)):.1f}" if by_task and row else ""  # of the same tasks
    else:
        found = comparisons.scores(group.models[model], score)
        value = scale * found.mean if found else None
    if value is None:
        return ""
    parts = len(one.variants) if one.in_parts else 1
    seeds = spread([scale * mean for mean in seed_means(group.models[model], score, parts)] or [value])
    deviation = f" ± {seeds.deviation:.{digits}f}, {seeds.count} seeds" if seeds.count > 1 else ""
    mark = "" if complete_seeds(group.models[model]) else _PARTLY
    return f"{value:.{digits}f}{deviation}{mark}{f' ({theirs})' if theirs else ''}"


def _published(experiment: str, row: str) -> str:
    if experiment in published.LEVELS:
        level = published.LEVELS[experiment].get(row, "")
        return f"paper: {level}" if level else ""  # beside a number of ours a bare word would look like our verdict
    values = {
        "shortest_path": {name: mean for name, (mean, _) in published.SHORTEST_PATH.items()},
        "babi": {},
        "penn_treebank": published.PENN_TREEBANK,
        "speech": {name: test for name, (_, _, test) in published.SPEECH.items()},
    }[experiment]
    return str(values.get(row, ""))


def _verdicts(groups: list[Group]) -> str:
    rows = []
    for one in judged(claims.judge_all(groups)):
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
            group.experiment,
            group.variant,
            paper.title(model),
            _seeds(group, model),
            tables.count(some),
            "" if all(r.finished for r in some) else "; ".join(r.progress for r in some if not r.finished),
        )
        for group in groups
        for model, some in group.models.items()
    ]
    parts = [
        "# The record of the reproduction\n",
        "A folder of runs without checkpoints and with thinned curves. `goru report --runs results` draws every figure"
        " and table from it; `make results RUNS=folder` puts newer runs in. This file is made by the same command.\n",
        f"Last finished run: {last}.",
        *(f"- {tables.plain(text)}" for text in sorted({machine(record) for record in records})),
        "",
        "## Results\n",
        section(groups, "."),
        "## What is in it\n",
        tables.markdown_rows(("experiment", "setting", "model", "seeds", "runs finished", "not finished"), rows, True),
    ]
    return "\n".join(parts)


def _seeds(group: Group, model: str) -> str:
    """Which seeds there are; of an experiment in parts, of how many parts each."""
    one = paper.EXPERIMENTS[group.experiment]
    seeds = sorted({record.config.seed for record in group.models[model]})
    if not one.in_parts:
        return ", ".join(map(str, seeds))
    counts = {seed: sum(r.config.seed == seed for r in group.models[model]) for seed in seeds}
    return ", ".join(f"{seed} ({count} of {len(one.variants)} {one.part_word})" for seed, count in counts.items())
