"""Tables of the experiments on data, our numbers beside the paper's where both are of the same data.

The parts of an experiment (folds, tasks) are one group here: a row is the mean over them. Generated data
stand alone, under their own name.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from goru.lab import paper, published
from goru.lab.display import duration
from goru.lab.report.records import Group, Record, Spread, spread
from goru.lab.report.tables import Table
from goru.lab.tasks.babi import TASK_TITLES, Babi

Cell = Callable[[str, list[Record]], str]
"""From a model and its runs to what a table says of them."""


def has_comparison(group: Group) -> bool:
    return group.experiment in _COLUMNS


def tables(group: Group) -> list[Table]:
    """The table of a group, and for the stories one more by task."""
    main = _results(group)
    return [main, _by_task(group)] if group.experiment == "babi" else [main]


def data_title(group: Group) -> str:
    """What the data of a group are, by their true name."""
    title = _first(group).config.task.data_title
    return title.partition(",")[0] if paper.EXPERIMENTS[group.experiment].in_parts else title


def on_files(group: Group) -> bool:
    """Whether a group was run on the data sets, not on generated data."""
    return _first(group).config.task.data_set is not None


def _first(group: Group) -> Record:
    return next(iter(group.models.values()))[0]


def _results(group: Group) -> Table:
    columns: dict[str, Cell] = dict(_SIZES)
    columns |= _COLUMNS[group.experiment]
    if on_files(group):
        columns |= _PAPER[group.experiment]
    columns |= _COSTS
    rows = [
        (paper.title(model), *(cell(model, records) for cell in columns.values()))
        for model, records in group.models.items()
    ]
    rows += [
        (name, *(values.get(heading, "") for heading in columns)) for name, values in _reference_levels(group).items()
    ]
    title = f"{paper.EXPERIMENTS[group.experiment].title}: {data_title(group)} ({group.variant})"
    return Table(group.name, title, group.variant, ("model", *columns), tuple(rows))


def _done(records: list[Record]) -> list[Record]:
    return [record for record in records if record.finished] or records


def scores(records: list[Record], name: str) -> Spread | None:
    """A score over the finished runs (or those at work, where none is finished)."""
    values = [value for record in _done(records) if (value := record.score(name)) is not None]
    return spread(values) if values else None


def _shown(name: str, scale: float = 1.0, digits: int = 3) -> Cell:
    def cell(_: str, records: list[Record]) -> str:
        found = scores(records, name)
        if found is None:
            return ""
        deviation = f" ± {scale * found.deviation:.{digits}f}" if found.count > 1 else ""
        return f"{scale * found.mean:.{digits}f}{deviation}"

    return cell


def _result(name: str) -> Cell:
    def cell(_: str, records: list[Record]) -> str:
        counts = sorted({record.result[name] for record in records if record.result})
        if not counts:
            return ""
        return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"

    return cell


def _runs(_: str, records: list[Record]) -> str:
    finished = sum(record.finished for record in records)
    return f"{finished}" if finished == len(records) else f"{finished} of {len(records)}"


def _milliseconds(_: str, records: list[Record]) -> str:
    return f"{1000 * fmean(record.seconds / max(record.step, 1) for record in records):.0f}"


def _paper(values: dict[str, str]) -> Cell:
    return lambda model, _: values.get(published.ROWS.get(model, ""), "")


_SIZES: dict[str, Cell] = {
    "units": lambda _, records: str(records[0].config.layer.hidden_size),
    "parameters": _result("parameters"),
    "hidden to hidden": _result("hidden_to_hidden_parameters"),
    "runs": _runs,
}
_COSTS: dict[str, Cell] = {
    "best step": lambda _, records: (
        f"{fmean(record.result['best_step'] for record in records if record.result):.0f}"
        if any(record.result for record in records)
        else ""
    ),
    "ms a step": _milliseconds,
    "time": lambda _, records: duration(sum(record.seconds for record in records)),
}
_COLUMNS: dict[str, dict[str, Cell]] = {
    "shortest_path": {
        "accuracy %": _shown("test_accuracy", 100, 1),
        "whole sequences %": _shown("test_sequence_accuracy", 100, 1),
    },
    "babi": {"accuracy %": lambda _, records: _mean_of_tasks(records)},
    "penn_treebank": {"valid bpc": _shown("valid_bpc"), "test bpc": _shown("test_bpc")},
    "speech": {"valid MSE": _shown("valid_loss"), "test MSE": _shown("test_loss")},
}
_PAPER: dict[str, dict[str, Cell]] = {
    "shortest_path": {
        "paper %": _paper({row: f"{mean} ± {dev}" for row, (mean, dev) in published.SHORTEST_PATH.items()})
    },
    "babi": {
        "paper %, same tasks": lambda model, records: _paper_mean(model, records),
        "paper's mean as printed %": _paper({row: str(mean) for row, mean in published.BABI_MEANS.items()}),
    },
    "penn_treebank": {"paper bpc": _paper({row: str(bpc) for row, bpc in published.PENN_TREEBANK.items()})},
    "speech": {
        "paper: parameters": _paper({row: values[0] for row, values in published.SPEECH.items()}),
        "paper: valid, test MSE on TIMIT": _paper(
            {row: f"{valid}, {test}" for row, (_, valid, test) in published.SPEECH.items()}
        ),
    },
}


def _reference_levels(group: Group) -> dict[str, dict[str, str]]:
    """Rows for what needs no learning, as the runs have computed it."""
    known = [r.result["about"] for records in group.models.values() for r in records if r.result]
    if not known:
        return {}

    def mean(name: str) -> float:
        return fmean(about[name] for about in known)

    if group.experiment == "shortest_path":
        return {
            title: {
                "accuracy %": f"{100 * mean(f'{level}_accuracy'):.1f}",
                "whole sequences %": f"{100 * mean(f'{level}_sequence_accuracy'):.1f}",
            }
            for level, title in (
                ("any_node", "guess: any node between"),
                ("neighbour", "guess: a neighbour between"),
            )
        }
    if group.experiment == "penn_treebank":
        return {"character frequencies": {"test bpc": f"{mean('unigram_bpc'):.3f}"}}
    if group.experiment == "speech":
        return {
            "the frame before": {"test MSE": f"{mean('previous_frame_loss'):.3f}"},
            "the mean frame": {"test MSE": f"{group.baseline:.3f}"},
        }
    return {"the commonest answer": {"accuracy %": f"{100 * mean('majority_accuracy'):.1f}"}}


def task_accuracies(records: list[Record]) -> dict[int, list[float]]:
    """Finished test accuracies of the stories by task, in percent."""
    found: dict[int, list[float]] = {}
    for record in records:
        accuracy = record.score("test_accuracy") if record.finished else None
        if accuracy is not None and isinstance(record.config.task, Babi):
            found.setdefault(record.config.task.number, []).append(100 * accuracy)
    return dict(sorted(found.items()))


def _mean_of_tasks(records: list[Record]) -> str:
    by_task = task_accuracies(records)
    if not by_task:
        return ""
    return f"{fmean(fmean(values) for values in by_task.values()):.1f} ({len(by_task)} tasks)"


def _paper_mean(model: str, records: list[Record]) -> str:
    row, tasks = published.ROWS.get(model), list(task_accuracies(records))
    return f"{published.babi_mean(row, tasks):.1f}" if row and tasks else ""


def _by_task(group: Group) -> Table:
    """One row a task: our models, the commonest answer, and the paper's columns."""
    ours = {model: task_accuracies(records) for model, records in group.models.items()}
    tasks = sorted({task for by_task in ours.values() for task in by_task})
    majority: dict[int, float] = {}
    for records in group.models.values():
        for record in records:
            if record.result and isinstance(record.config.task, Babi):
                majority[record.config.task.number] = 100 * record.result["about"]["majority_accuracy"]
    theirs = published.BABI_COLUMNS if on_files(group) else ()

    def line(name: str, chosen: list[int]) -> tuple[str, ...]:
        cells = [name]
        for by_task in ours.values():
            known = [fmean(by_task[task]) for task in chosen if task in by_task]
            cells.append(f"{fmean(known):.1f}" if len(known) == len(chosen) else "")
        cells.append(f"{fmean(majority[task] for task in chosen):.1f}")
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
    title = f"{paper.EXPERIMENTS[group.experiment].title}: {data_title(group)}, by task ({group.variant})"
    return Table(f"{group.name}-tasks", title, group.variant, headings, tuple(rows))
