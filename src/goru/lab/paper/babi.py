"""bAbI: read a story, answer a question about it with one word; twenty tasks."""

from __future__ import annotations

from statistics import fmean

from goru.lab.paper.columns import RUN_COLUMNS, Cell, Column, Measure, Table, difference, in_paper, on_files, row
from goru.lab.paper.definition import Claim, Experiment, Paper, Smaller
from goru.lab.paper.models import EQUAL_MODELS, MAIN_MODELS, MATCHED_UNITS, RIVALS, model, title
from goru.lab.paper.outcomes import Group, spread
from goru.lab.paper.rules import Facts, Statement, best
from goru.lab.tasks.babi import Babi
from goru.lab.training.config import OptimizerConfig, RunConfig

TASK_TITLES = (
    "single supporting fact",
    "two supporting facts",
    "three supporting facts",
    "two argument relations",
    "three argument relations",
    "yes/no questions",
    "counting",
    "lists and sets",
    "simple negation",
    "indefinite knowledge",
    "basic coreference",
    "conjunction",
    "compound coreference",
    "time reasoning",
    "basic deduction",
    "basic induction",
    "positional reasoning",
    "size reasoning",
    "path finding",
    "agents' motivations",
)
TASKS = {f"task{k:02}": {"task.number": k} for k in range(1, len(TASK_TITLES) + 1)}
TIME_STEPS = (
    *(46.3, 130.1, 434.5, 24.0, 185.2, 58.7, 83.8, 82.8, 50.9, 56.1),
    *(51.5, 59.7, 58.5, 76.9, 51.0, 47.0, 33.8, 70.9, 52.0, 44.2),
)
"""Time steps of a training batch of each task (story, question, one step of the third network), padding included;
means over an epoch."""

PAPER_COLUMNS = ("GORU", "GRU", "LSTM", "EURNN", "baseline")
PAPER = (
    (45.8, 49.1, 49.3, 47.2, 50),
    (39.5, 38.5, 32.3, 24.3, 20),
    (33.5, 32.2, 20.6, 22.5, 20),
    (62.7, 64.6, 67.5, 56.1, 61),
    (87.0, 78.0, 52.3, 56.2, 70),
    (53.6, 50.5, 49.3, 50.5, 48),
    (77.7, 79.5, 76.9, 71.9, 49),
    (75.0, 75.5, 76.8, 56.5, 45),
    (62.9, 63.9, 63.5, 60.6, 64),
    (45.4, 44.8, 46.0, 42.6, 44),
    (69.3, 71.2, 71.1, 72.1, 72),
    (69.9, 71.6, 71.9, 72.7, 74),
    (92.7, 94.2, 93.8, 92.4, 94),
    (37.9, 39.2, 34.4, 20.0, 27),
    (55.2, 57.4, 20.9, 25.0, 21),
    (44.0, 45.9, 45.9, 43.3, 23),
    (59.6, 50.5, 51.6, 51.2, 51),
    (90.5, 89.9, 91.8, 89.7, 52),
    (8.9, 9.6, 8.2, 9.0, 8),
    (97.7, 97.7, 96.5, 93.3, 91),
)
"""Test accuracy in percent of the tasks 1 to 20."""
PAPER_MEANS = {"GORU": 60.4, "GRU": 58.2, "LSTM": 56.0, "EURNN": 52.9, "baseline": 49.2}
"""The last line as printed; the mean of GRU's column is actually 60.2."""

EVERY_READING = (
    "The `en` files with 1000 training questions per task; the last 100 are for validation, fewer where that would cut "
    "a story. The best epoch is tested. Words and full stops are symbols, an answer is one class.",
    "The paper gives no sizes here: 128 units in all three places, word vectors of 50, batch 32, for every model.",
)
"""What this experiment and those derived from it decide alike."""
LAST_OUTPUTS = (
    "The last outputs of the RNNs over statements and question are joined into a single input of the third RNN, as the "
    "paper says.",
    "At most 100 epochs of RMSProp with learning rate 0.001, stopped after 20 without a lower validation loss.",
)
"""What it shares with the second reading alone."""

MEAN_CLOSE = 1.0
"""Points within which two means over tasks count as close."""
TASK_CLOSE = 3.0
"""The same for a task: two standard deviations of an accuracy over 1000 test questions."""


def paper_mean(column: str, tasks: list[int]) -> float:
    """The mean of a column of the paper over some tasks, recomputed.

    >>> round(paper_mean("GRU", list(range(1, 21))), 1)
    60.2
    """
    place = PAPER_COLUMNS.index(column)
    return sum(PAPER[task - 1][place] for task in tasks) / len(tasks)


def _in_the_paper() -> str:
    """The means of the paper's columns, and what it prints instead."""
    tasks = list(range(1, len(TASK_TITLES) + 1))
    means = {name: f"{paper_mean(name, tasks):.1f}" for name in PAPER_COLUMNS if name != "baseline"}
    others = [f"{PAPER_MEANS[name]} for {name}" for name in means if means[name] != f"{PAPER_MEANS[name]:.1f}"]
    listed = ", ".join(f"{name} {mean}" for name, mean in means.items())
    return f"the paper's columns average {listed}; it prints {' and '.join(others)}"


def goru_is_best(f: Facts) -> list[Statement]:
    means = {m: f.whole(m, "test_accuracy") for m in ("goru", *RIVALS)}
    evidence = f"{f.listed(means.__getitem__, *means)}; {_in_the_paper()}"
    return best("highest mean over the tasks", means["goru"], [means[m] for m in RIVALS], evidence, higher=True)


def _accuracies(group: Group, name: str) -> dict[int, list[float]]:
    """Finished test accuracies by task, in percent."""
    found: dict[int, list[float]] = {}
    for record in group.shown(name):
        accuracy, task = record.score("test_accuracy") if record.finished else None, record.config.task
        if accuracy is not None and isinstance(task, Babi):
            found.setdefault(task.number, []).append(100 * accuracy)
    return dict(sorted(found.items()))


def _mean(group: Group, name: str) -> float | None:
    by_task = _accuracies(group, name)
    return fmean(map(fmean, by_task.values())) if by_task else None


def _mean_of_tasks(group: Group, name: str) -> str:
    mean, tasks = _mean(group, name), len(_accuracies(group, name))
    if mean is None:
        return ""
    over_seeds = [100 * one for one in group.seed_means(name, "test_accuracy", tasks)]
    deviation = f" ± {spread(over_seeds).deviation:.1f}" if len(over_seeds) > 1 else ""
    return f"{mean:.1f}{deviation} ({tasks} tasks)"


def _paper_mean(group: Group, name: str) -> str:
    """The paper's mean over the tasks that are finished here."""
    column, tasks = model(name).row, list(_accuracies(group, name))
    return f"{paper_mean(column, tasks):.1f}" if column and tasks else ""


def _difference(group: Group, name: str) -> str | Cell:
    """Our mean over the finished tasks minus the paper's over the same."""
    column, tasks, ours = model(name).row, list(_accuracies(group, name)), _mean(group, name)
    if not column or ours is None:
        return ""
    whole = bool(group.complete_seeds(name))
    return difference(ours, paper_mean(column, tasks), close=MEAN_CLOSE, digits=1, higher_is_better=True, whole=whole)


def by_task(group: Group) -> Table:
    """One row per task: our models, the most common answer, and the paper's columns."""
    ours = {name: _accuracies(group, name) for name in group.models}
    tasks = sorted({task for accuracies in ours.values() for task in accuracies})
    majority: dict[int, float] = {}
    for record in group.records:
        share, task = record.about.get("majority_accuracy"), record.config.task
        if isinstance(share, (int, float)) and isinstance(task, Babi):
            majority[task.number] = 100 * share
    theirs = PAPER_COLUMNS if on_files(group) else ()

    def beside(name: str, accuracy: float, chosen: list[int]) -> Cell:
        column = model(name).row
        if not theirs or not column or len(chosen) > 1:
            return Cell(f"{accuracy:.1f}")
        gap = accuracy - paper_mean(column, chosen)
        if abs(gap) <= TASK_CLOSE:
            return Cell(f"{accuracy:.1f}", "close")
        return Cell(f"{accuracy:.1f} ▲", "better") if gap > 0 else Cell(f"{accuracy:.1f} ▼", "worse")

    def line(name: str, chosen: list[int]) -> tuple[Cell, ...]:
        cells: list[str | Cell] = [name]
        for model_name, accuracies in ours.items():
            known = [fmean(accuracies[task]) for task in chosen if task in accuracies]
            cells.append(beside(model_name, fmean(known), chosen) if len(known) == len(chosen) else "")
        guesses = [majority[task] for task in chosen if task in majority]
        cells.append(f"{fmean(guesses):.1f}" if len(guesses) == len(chosen) else "")
        cells += [f"{paper_mean(column, chosen):.1f}" for column in theirs]
        return row(*cells)

    rows = [line(f"{task} {TASK_TITLES[task - 1]}", [task]) for task in tasks]
    if tasks:
        rows.append(line("mean of these tasks", tasks))
    if theirs:
        empty = ("",) * (len(ours) + 1)
        rows.append(row("mean as the paper prints it", *empty, *(f"{PAPER_MEANS[column]}" for column in theirs)))
    headings = ("task, accuracy %", *map(title, ours), "most common answer", *(f"paper: {column}" for column in theirs))
    heading = f"{group.experiment.title}: {group.data_title}, by task{group.suffix}"
    note = f"▲ ▼ more than {TASK_CLOSE:g} points above, below the paper's number." if theirs else ""
    return Table(f"{group.name}-tasks", heading, group.variant, headings, tuple(rows), note=note)


EXPERIMENT = Experiment(
    name="babi",
    title="Episodic question answering",
    label="Question answering",
    place=5,
    summary="Read a story, answer a question about it with one word.",
    base=RunConfig(
        experiment="babi",
        steps=0,
        epochs=100,
        batch=32,
        eval_every=0,
        patience=20,
        optimizer=OptimizerConfig(lr=0.001),
        task=Babi(),
    ),
    models=EQUAL_MODELS,
    variants=TASKS,
    parts="tasks",
    generated=Smaller({"task.data": "generated"}, variants=("task01", "task05", "task06", "task17")),
    quick=Smaller({"epochs": 30, "patience": 0}, variants=("task01", "task05"), models=MAIN_MODELS),
    paper=Paper(
        shown_in="Table 2",
        says="Mean accuracy: GORU 60.4, GRU 58.2 (its column averages 60.2), LSTM 56.0, EURNN 52.9.",
    ),
    claims=(Claim("C8", "GORU has the best mean over the 20 bAbI tasks.", goru_is_best),),
    matched=MATCHED_UNITS,
    decisions=(
        *EVERY_READING,
        *LAST_OUTPUTS,
        "RMSProp against Adam, both at 0.001, by validation over GORU and GRU on tasks 1, 5 and 15, seed 0: mean "
        "loss 0.973 against 1.003, mean accuracy 57.8 % against 56.5 %. Each was better in three of the six.",
        "GORU's memory is 10 steps, by validation over tasks 1, 5 and 15, seed 0: mean loss 0.985, with 30 or 100 "
        "steps 1.004.",
        "Stories are whole. With their supporting facts alone GORU has every validation question of tasks 1, 2 and 3 "
        "right (seed 0). The paper's has 45.8, 39.5 and 33.5 %, so it must have read more.",
    ),
    columns=(
        Column("accuracy %", _mean_of_tasks, brief=True),
        Column("paper %, same tasks", _paper_mean, on_files, brief=True),
        Column(
            "difference",
            _difference,
            on_files,
            brief=True,
            note=f"Close: within {MEAN_CLOSE:g} point of the paper's mean over the same tasks.",
        ),
        Column(
            "paper's mean as printed %",
            in_paper({column: str(mean) for column, mean in PAPER_MEANS.items()}),
            on_files,
        ),
        *RUN_COLUMNS,
    ),
    references=lambda group: {
        "the most common answer": {"accuracy %": f"{100 * group.reference('majority_accuracy'):.1f}"}
    },
    more_tables=(by_task,),
    measure=Measure(
        "mean accuracy", "test_accuracy", unit="%", scale=100, mean=_mean, higher_is_better=True, paper=_paper_mean
    ),
    curves=False,
    time_steps=lambda task: TIME_STEPS[task.number - 1],
)
