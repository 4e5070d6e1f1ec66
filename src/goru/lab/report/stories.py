"""The table of the stories (bAbI): accuracies by task and their means, beside the paper's."""

from __future__ import annotations

from statistics import fmean

from goru.lab import paper
from goru.lab.paper import published
from goru.lab.report.records import Group, Record, complete_seeds, seed_means, settled, spread
from goru.lab.report.tables import Cell, Table, difference
from goru.lab.tasks.babi import TASK_TITLES, Babi

MEAN_CLOSE = 1.0
"""Points within which two means over tasks count as close."""
TASK_CLOSE = 3.0
"""The same for a task: two standard deviations of an accuracy over 1000 test questions."""


def task_accuracies(records: list[Record]) -> dict[int, list[float]]:
    """Finished test accuracies of the stories by task, in percent."""
    found: dict[int, list[float]] = {}
    for record in settled(records):
        accuracy = record.score("test_accuracy") if record.finished else None
        if accuracy is not None and isinstance(record.config.task, Babi):
            found.setdefault(record.config.task.number, []).append(100 * accuracy)
    return dict(sorted(found.items()))


def mean_of_tasks(records: list[Record]) -> str:
    by_task = task_accuracies(records)
    if not by_task:
        return ""
    over_seeds = [100 * mean for mean in seed_means(records, "test_accuracy", len(by_task))]
    deviation = f" ± {spread(over_seeds).deviation:.1f}" if len(over_seeds) > 1 else ""
    return f"{fmean(fmean(values) for values in by_task.values()):.1f}{deviation} ({len(by_task)} tasks)"


def paper_mean(model: str, records: list[Record]) -> str:
    row, tasks = published.ROWS.get(model), list(task_accuracies(records))
    return f"{published.babi_mean(row, tasks):.1f}" if row and tasks else ""


def mean_difference(model: str, records: list[Record]) -> str:
    """Our mean over the finished tasks minus the paper's over the same."""
    row, by_task = published.ROWS.get(model), task_accuracies(records)
    if not row or not by_task:
        return ""
    ours, theirs = fmean(map(fmean, by_task.values())), published.babi_mean(row, list(by_task))
    whole = bool(complete_seeds(records))
    return difference(ours, theirs, close=MEAN_CLOSE, digits=1, higher_is_better=True, whole=whole)


def by_task(group: Group, data: str, on_files: bool) -> Table:
    """One row a task: our models, the commonest answer, and the paper's columns."""
    ours = {model: task_accuracies(records) for model, records in group.models.items()}
    tasks = sorted({task for by_task in ours.values() for task in by_task})
    majority: dict[int, float] = {}
    for record in group.records:
        about = (record.result or {}).get("about")
        share = about.get("majority_accuracy") if isinstance(about, dict) else None
        if isinstance(share, (int, float)) and isinstance(record.config.task, Babi):
            majority[record.config.task.number] = 100 * share
    theirs = published.BABI_COLUMNS if on_files else ()

    def beside(model: str, accuracy: float, chosen: list[int]) -> str:
        row = published.ROWS.get(model)
        if not theirs or not row or len(chosen) > 1:
            return f"{accuracy:.1f}"
        gap = accuracy - published.babi_mean(row, chosen)
        if abs(gap) <= TASK_CLOSE:
            return Cell(f"{accuracy:.1f}", "close")
        return Cell(f"{accuracy:.1f} ▲", "better") if gap > 0 else Cell(f"{accuracy:.1f} ▼", "worse")

    def line(name: str, chosen: list[int]) -> tuple[str, ...]:
        cells = [name]
        for model, by_task in ours.items():
            known = [fmean(by_task[task]) for task in chosen if task in by_task]
            cells.append(beside(model, fmean(known), chosen) if len(known) == len(chosen) else "")
        guesses = [majority[task] for task in chosen if task in majority]
        cells.append(f"{fmean(guesses):.1f}" if len(guesses) == len(chosen) else "")
        cells += [f"{published.babi_mean(row, chosen):.1f}" for row in theirs]
        return tuple(cells)

    rows = [line(f"{task} {TASK_TITLES[task - 1]}", [task]) for task in tasks]
    if tasks:
        rows.append(line("mean of these tasks", tasks))
    if theirs:
        empty = ("",) * (len(ours) + 1)
        printed = (f"{published.BABI_MEANS[row]}" for row in theirs)
        rows.append(("mean as the paper prints it", *empty, *printed))
    headings = (
        "task, accuracy %",
        *map(paper.title, ours),
        "commonest answer",
        *(f"paper: {row}" for row in theirs),
    )
    title = f"{paper.EXPERIMENTS[group.experiment].title}: {data}, by task ({group.variant})"
    note = f"▲ ▼ more than {TASK_CLOSE:g} points above, below the paper's number." if theirs else ""
    return Table(f"{group.name}-tasks", title, group.variant, headings, tuple(rows), note=note)
