"""Tables of results and the columns that experiments choose from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from goru.lab.durations import duration
from goru.lab.paper.models import model, title
from goru.lab.paper.outcomes import Group, Record, Spread, number, percent, spread
from goru.lab.paper.rules import AT_BASELINE, SOLVED, Level


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text and how it compares."""

    text: str
    tone: str = ""
    """better, worse, close; agrees, differs; open."""


def row(*values: str | Cell) -> tuple[Cell, ...]:
    return tuple(value if isinstance(value, Cell) else Cell(value) for value in values)


@dataclass(frozen=True)
class Table:
    """A table ready to be shown."""

    name: str
    title: str
    variant: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    brief: tuple[str, ...] = ()
    """The columns to show if not all fit; empty: all of them."""
    note: str = ""
    """How to read it."""
    words: tuple[str, ...] = ()
    """The columns of words, aligned to the left; the others are numbers."""
    short_title: str = ""
    """Its title beside a figure that says the rest; empty: the title."""

    @property
    def shortened(self) -> Table | None:
        """The table without the columns shown on demand; None if it has no such columns."""
        kept = [k for k, heading in enumerate(self.headings) if heading in (self.brief or self.headings)]
        if len(kept) == len(self.headings):
            return None
        headings, *rows = (tuple(line[k] for k in kept) for line in (self.headings, *self.rows))
        return replace(self, name=f"{self.name}-brief", headings=headings, rows=tuple(rows), brief=(), note="")

    @property
    def texts(self) -> list[tuple[str, ...]]:
        return [tuple(cell.text for cell in cells) for cells in self.rows]


def full_size(group: Group) -> bool:
    return not group.kind


def on_files(group: Group) -> bool:
    """Whether a group was run on a data set, not on generated data."""
    return group.data_set is not None


@dataclass(frozen=True)
class Column:
    """A column of a table of results: one cell per model."""

    heading: str
    cell: Callable[[Group, str], str | Cell]
    when: Callable[[Group], bool] = lambda _: True
    """The groups whose table has it."""
    brief: bool = False
    """Whether to show it if not all columns fit: in a terminal, and on the page until the reader asks for all."""
    note: str | Callable[[Group], str] = ""
    """How to read it, shown below a table that has it."""
    words: bool = False
    """Whether its cells are words, aligned to the left."""


References = Mapping[str, Mapping[str, str]]
"""Rows for reference levels that need no learning: by name, then by column."""

_CLOCK = "Iterations/s and time (a mean over seeds) are wall-clock, including evaluations, on a shared machine."
_BENCH = (
    "ms/iteration is processor time, measured separately with goru bench on the layers as they are now. Older runs of "
    "GRU and LSTM used torch's layers, which are slower, so their iterations/s are lower than ms/iteration suggests."
)


def results(group: Group) -> Table:
    """The table of a group: a row for each model, then the reference levels."""
    one = group.experiment
    columns = [column for column in one.columns if column.when(group)]
    rows = [row(title(name), *(column.cell(group, name) for column in columns)) for name in group.models]
    if any(record.about for record in group.records):
        levels = one.references(group)
        rows += [row(name, *(cells.get(c.heading, "") for c in columns)) for name, cells in levels.items()]
    short = "Final results"
    if group.data_title:
        heading = f"{one.title}: {group.data_title}{group.suffix}"
        short += f": {group.data_title}" if one.parts else ""  # elsewhere the figure names the data
    elif one.parts and not one.curves:  # different tasks, without a common size and baseline
        heading = f"{one.title}{group.suffix}"
    else:
        heading, short = (f"{title}; baseline {group.baseline:.4g}" for title in (group.title, short))
    notes = [column.note if isinstance(column.note, str) else column.note(group) for column in columns]
    return Table(
        group.name,
        heading,
        group.variant,
        ("model", *(column.heading for column in columns)),
        tuple(rows),
        ("model", *(column.heading for column in columns if column.brief)),
        " ".join(dict.fromkeys(filter(None, notes))),
        tuple(column.heading for column in columns if column.words),
        short,
    )


# Cells


def score(name: str, scale: float = 1.0, digits: int = 3, unit: str = "") -> Callable[[Group, str], str]:
    """A final score: its mean over the runs, with the standard deviation if there are several."""

    def cell(group: Group, name_of_model: str) -> str:
        found = group.scores(name_of_model, name)
        return f"{found.text(digits, scale)}{unit}" if found else ""

    return cell


def in_paper(values: Mapping[str, str]) -> Callable[[Group, str], str]:
    """The paper's number, from the row that a model is compared with."""
    return lambda _, name: values.get(model(name).row, "")


def difference(
    ours: float | None, theirs: float, *, close: float, digits: int, higher_is_better: bool, whole: bool = True
) -> Cell:
    """Ours minus the paper's as a number and a word; differences up to `close` are close.

    If parts are still missing (not `whole`), there is no word yet.

    >>> difference(1.72, 1.60, close=0.05, digits=2, higher_is_better=False)
    Cell(text='+0.12 worse', tone='worse')
    """
    if ours is None:
        return Cell("", "open")
    gap = ours - theirs
    if not whole:
        return Cell(f"{gap:+.{digits}f} so far", "open")
    word = "close" if abs(gap) <= close else "better" if (gap > 0) == higher_is_better else "worse"
    return Cell(f"{gap:+.{digits}f} {word}", word)


def agreement(holds: bool) -> Cell:
    return Cell("agrees", "agrees") if holds else Cell("differs", "differs")


def progress(records: Iterable[Record]) -> str:
    """How far runs are, in iterations: the finished ones, or else each of the others.

    A run that stopped early by its own rule is finished.
    """
    records = list(records)
    finished = _range(record.step for record in records if record.finished)
    return finished or "; ".join(f"{record.step:,} of {record.last_step:,}, {record.state}" for record in records)


def count(records: Sequence[Record]) -> str:
    """How many of them are finished."""
    finished = sum(record.finished for record in records)
    return f"{finished}" if finished == len(records) else f"{finished} of {len(records)}"


def _rate(records: Sequence[Record]) -> str:
    """Iterations per second, including evaluations."""
    steps, seconds = sum(record.step for record in records), sum(record.seconds for record in records)
    return f"{steps / seconds:.1f}" if steps and seconds else ""


def _step_time(group: Group, name: str) -> str:
    """Milliseconds of a training step on the reference machine, averaged over parts; unknown for other sizes."""
    costs = [0.0 if group.kind else group.experiment.step_seconds(record.config) for record in group.runs(name)]
    return f"{1000 * fmean(costs):.0f}" if any(costs) else ""


def _from_results(count: str) -> Callable[[Group, str], str]:
    """A count that finished runs report, or its range if they differ."""
    return lambda group, name: _range(record.result[count] for record in group.runs(name) if record.result)


def _range(counts: Iterable[int]) -> str:
    """The number that all have, or the lowest and the highest; empty if there is none."""
    found = sorted({*counts})
    return " to ".join(f"{number:,}" for number in (found[:1] + found[1:][-1:]))


_STEP_TIME = Column("ms/iteration", _step_time, full_size, note=_BENCH)


def _time(group: Group, name: str) -> str:
    """What a seed took, on average; for an experiment in parts, all of its parts."""
    records = group.shown(name)
    return duration(sum(record.seconds for record in records) / len({record.config.seed for record in records}))


_TIME = Column("time", _time, note=_CLOCK)
_SIZES = (
    Column(
        "units",
        lambda group, name: f"{group.runs(name)[0].config.layer.hidden_size:,}",
        note=lambda group: group.experiment.matched,
    ),
    Column("parameters", _from_results("parameters")),
    Column("hidden to hidden", _from_results("hidden_to_hidden_parameters")),
)


# Columns of an experiment with the paper's numbers


def _runs(group: Group, name: str) -> str:
    """How many runs are finished; for an experiment in parts, how many parts."""
    one = group.experiment
    if not one.parts or group.kind:
        return count(group.runs(name))
    seeds = group.complete_seeds(name)
    more = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    return f"{group.parts_done(name)} of {one.part_count} {one.parts}{more}"


def _steps(group: Group, name: str) -> str:
    complete = len(group.runs(name)) == 1 or group.complete_seeds(name)
    return progress(group.shown(name)) if complete else ""


def _best_step(group: Group, name: str) -> str:
    steps = [record.result.get("best_step", record.step) for record in group.shown(name) if record.result]
    return f"{fmean(steps):,.0f}" if steps else ""


RUN_COLUMNS = (
    Column("runs", _runs),
    Column("iterations", _steps),
    Column("best iteration", _best_step, note="Best iteration: the one that was tested, by its validation loss."),
    Column("iterations/s", lambda group, name: _rate(group.shown(name)), note=_CLOCK),
    _TIME,
    _STEP_TIME,
    *_SIZES,
)
"""The last columns of every table of numbers."""


# Columns of an experiment that is measured against its baseline


def _loss(group: Group, name: str) -> Cell:
    found = group.scores(name, "test_loss")
    return Cell(str(found) if found else "", "" if group.finished(name) else "open")


def _share(group: Group, name: str) -> Cell:
    found, baseline = group.scores(name, "test_loss"), group.baseline
    deviation = found.deviation / baseline if found and found.count > 1 else None
    share = percent(found.mean / baseline, deviation) if found else ""
    return Cell(share) if group.finished(name) else Cell(f"{share} so far", "open")


def _has(name: str) -> Callable[[Group], bool]:
    return lambda group: any(record.score(name) is not None for record in group.records)


def _solved_at(group: Group, name: str) -> str:
    """The iteration at which runs solved the task, if they still did at their end."""
    records, below = group.shown(name), SOLVED * group.baseline
    ends = [(record.score("test_loss"), record.first_step_below(below)) for record in records]
    reached = [float(step) for loss, step in ends if loss is not None and loss < below and step is not None]
    if len(reached) == len(records):
        found = spread(reached)
        return f"{round(found.mean):,}" + (f" ± {round(found.deviation):,}" if found.count > 1 else "")
    if reached:
        return f"{len(reached)} of {len(records)} seeds"
    return "never" if all(record.finished for record in records) else "not yet"


def _relapses(group: Group, name: str) -> str:
    """How often each run that was below the bar rose above it again."""
    bar = SOLVED * group.baseline
    counts = [f"{run.rises_above(bar)}" for run in group.shown(name) if run.first_step_below(bar) is not None]
    return ", ".join(counts)


def _said(levels: Mapping[str, Level]) -> Callable[[Group, str], str]:
    return in_paper({paper_row: level.text for paper_row, level in levels.items()})


def against_baseline(levels: Mapping[str, Level] = {}) -> tuple[Column, ...]:
    """The columns of an experiment that is measured against its baseline, with what the paper's figure shows.

    `levels` are by row of the paper; an experiment beyond the paper has none.
    """

    def agrees(group: Group, name: str) -> str | Cell:
        """Whether a model does what the paper's figure shows."""
        level = levels.get(model(name).row)
        if level is None:
            return ""
        involved = (name, *level.rivals)
        if not all(group.finished(one) for one in involved):
            return Cell("not yet decided", "open")
        # A missing loss counts as high.
        losses = [
            fmean(math.inf if (loss := record.score("test_loss")) is None else loss for record in group.finished(one))
            for one in involved
        ]
        return agreement(level.holds(losses[0], losses[1:], group.baseline))

    beside = [
        Column("the paper", _said(levels), full_size, brief=True, words=True),
        Column("ours", agrees, full_size, brief=True, words=True),
    ]
    whole = "test_sequence_accuracy"
    return (
        Column("test loss", _loss),
        Column("of baseline", _share, brief=True),
        *(beside if levels else ()),
        Column("accuracy", score("test_accuracy", 100, 1, "%"), _has("test_accuracy"), brief=True),
        Column("whole sequences", score(whole, 100, 1, "%"), _has(whole)),
        Column(
            "solved at iteration",
            _solved_at,
            brief=True,
            note=f"Solved: below {SOLVED:.0%} of the baseline; at the baseline: above {AT_BASELINE:.0%} of it.",
        ),
        Column(
            "relapses",
            _relapses,
            note=f"Relapses: how often the loss rose above {SOLVED:.0%} of the baseline again, for each seed that was "
            "below it once.",
        ),
        Column("seeds", lambda group, name: count(group.runs(name))),
        Column("iterations", lambda group, name: progress(group.shown(name))),
        Column("iterations/s", lambda group, name: _rate(group.shown(name)), note=_CLOCK),
        _STEP_TIME,
        _TIME,
        *_SIZES,
    )


# The one number of an experiment


@dataclass(frozen=True)
class Measure:
    """The number by which an experiment ranks the models."""

    title: str
    score: str
    unit: str = ""
    digits: int = 1
    scale: float = 1.0
    higher_is_better: bool = False
    of_baseline: bool = False
    """Whether it is a percentage of the baseline."""
    mean: Callable[[Group, str], float | None] | None = None
    """How to average the runs of a model, if not by a plain mean; already scaled."""
    paper: Callable[[Group, str], str] = lambda _, __: ""
    """The paper's number."""

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title

    @property
    def sign(self) -> str:
        """The sign after a number in a sentence."""
        return self.unit[:1]

    def scale_of(self, group: Group) -> float:
        return 100 / group.baseline if self.of_baseline else self.scale

    def value(self, group: Group, name: str) -> float | None:
        if self.mean is not None:
            return self.mean(group, name)
        found = group.scores(name, self.score)
        return self.scale_of(group) * found.mean if found else None

    def rounded(self, group: Group, name: str) -> float | None:
        """The number as it is shown: two that round to the same are a tie."""
        value = self.value(group, name)
        return None if value is None else round(value, self.digits)

    def text(self, group: Group, name: str) -> str:
        """The number without its deviation; empty if there is none. A loss of many baselines is only called large."""
        value = self.value(group, name)
        if self.of_baseline and value is not None and 1000 < value < math.inf:
            return ">1000"
        return "" if value is None else number(value, self.digits)

    def _spread(self, group: Group, name: str) -> Spread | None:
        """The number with its deviation over the seeds that have finished."""
        seeds = group.seed_means(name, self.score)
        return spread([self.scale_of(group) * value for value in seeds]) if seeds else None

    def apart(self, group: Group, one: str, other: str) -> bool:
        """Whether the numbers of two models differ as they are rounded, and by more than the spread over the seeds of
        either."""
        a, b = self._spread(group, one), self._spread(group, other)
        if a is None or b is None or self.rounded(group, one) == self.rounded(group, other):
            return False
        return abs(a.mean - b.mean) > max(a.deviation, b.deviation)

    def deviation(self, group: Group, name: str) -> str:
        """The standard deviation over seeds; empty for one seed, and where the number is only called large or small."""
        found = self._spread(group, name)
        if found is None or found.count < 2 or self.text(group, name).startswith((">", "<")):
            return ""
        return number(found.deviation, self.digits)

    def ranked(self, group: Group) -> list[str]:
        """The models with a final number, the best first; for an experiment in parts, those with all parts."""
        whole = [name for name in group.models if (group.finished if group.kind else group.complete_seeds)(name)]
        values = {name: value for name in whole if (value := self.value(group, name)) is not None}
        return sorted(values, key=values.__getitem__, reverse=self.higher_is_better)


def loss_share(levels: Mapping[str, Level] = {}) -> Measure:
    """The final test loss as a percentage of the baseline, with the paper's level."""
    return Measure("test loss", "test_loss", "% of the baseline", of_baseline=True, paper=_said(levels))
