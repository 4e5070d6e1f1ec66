"""The results of the runs of an experiment so far, for tables, figures and rules."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from goru.lab.training.config import RunConfig, flat
from goru.lab.training.manifest import Since

if TYPE_CHECKING:
    from goru.lab.paper.definition import Experiment


@dataclass(frozen=True)
class Curve:
    """A loss along training."""

    steps: list[int]
    losses: list[float]
    seconds: list[float]


@dataclass(frozen=True)
class Record:
    """One run: its configuration and what it has logged so far."""

    path: Path
    config: RunConfig
    metrics: list[dict[str, Any]]
    result: dict[str, Any] | None
    figure: dict[str, Any] | None
    environment: dict[str, Any]
    state: str = "finished"
    """finished, running, stopped or failed."""
    message: str = ""
    """Why it failed."""
    checked_since: Since = "run"
    """Since when the files of a finished run have had checksums."""

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def baseline(self) -> float:
        return self.metrics[0]["baseline"]

    @property
    def step(self) -> int:
        return self.metrics[-1]["step"]

    @property
    def last_step(self) -> int:
        return self.metrics[0]["last_step"]

    @property
    def seconds(self) -> float:
        return self.result["total_seconds"] if self.result else self.metrics[-1]["seconds"]

    @property
    def progress(self) -> str:
        """How far an unfinished run is; empty for a finished one."""
        return "" if self.finished else f"{self.step:,} of {self.last_step:,} iterations, {self.state}"

    @property
    def about(self) -> dict[str, Any]:
        """What a finished run reports about its data: sizes, reference levels."""
        about = (self.result or {}).get("about")
        return about if isinstance(about, dict) else {}

    @cached_property
    def test(self) -> Curve:
        """The held-out loss along training: on the test set, or on the validation set if that is evaluated."""
        loss = "test_loss" if "test_loss" in self.metrics[0] else "valid_loss"
        lines = [line for line in self.metrics if loss in line]
        return Curve(*([line[key] for line in lines] for key in ("step", loss, "seconds")))

    def score(self, name: str) -> float | None:
        """A final score; for an unfinished run the latest one."""
        if self.result is not None:
            return self.result["final"].get(name)
        return next((line[name] for line in reversed(self.metrics) if name in line), None)

    def first_step_below(self, loss: float) -> int | None:
        """The first evaluation with a test loss below `loss`."""
        return next((s for s, value in zip(self.test.steps, self.test.losses, strict=True) if value < loss), None)

    def rises_above(self, loss: float) -> int:
        """How often the test loss was at or above `loss` in the evaluation after one below it."""
        below = [value < loss for value in self.test.losses]
        return sum(before and not after for before, after in itertools.pairwise(below))

    @property
    def mean_test_loss(self) -> float:
        """Test loss averaged over training, the measure of learning speed: lower is faster."""
        return fmean(self.test.losses[1:] or self.test.losses)


def number(value: float, digits: int) -> str:
    """A number with so many decimals; a nonzero number never prints as zero.

    >>> number(0.07218, 4), number(2e-6, 4), number(0.0, 4), number(100.0, 1)
    ('0.0722', '<0.0001', '0', '100.0')
    """
    if value == 0:
        return "0"
    text = f"{value:.{digits}f}"
    return f"<{10**-digits:.{digits}f}" if text.strip("-0.") == "" and value > 0 else text


def with_deviation(mean: str, deviation: str) -> str:
    """A mean beside its deviation; where both are below what is printed, the mean says it.

    >>> with_deviation("16.2", "1.1"), with_deviation("2.3", "<0.1"), with_deviation("<0.1", "<0.1")
    ('16.2 ± 1.1', '2.3 ± <0.1', '<0.1')
    """
    return mean if mean == deviation and mean.startswith("<") else f"{mean} ± {deviation}"


def percent(share: float, deviation: float | None = None) -> str:
    """A share in percent, with its deviation if there is one.

    >>> percent(0.764), percent(0.0187), percent(0.00002), percent(1.0), percent(170000.0)
    ('76%', '1.9%', '<0.1%', '100%', '>1000%')
    >>> percent(0.764, 0.211), percent(0.0187, 0.0002), percent(0.00002, 0.00001), percent(170000.0, 5.0)
    ('76 ± 21%', '1.9 ± <0.1%', '<0.1%', '>1000%')
    """
    if 10 < share < math.inf:
        return ">1000%"
    digits = 0 if share >= 0.0995 else 1
    mean = number(100 * share, digits)
    return f"{mean if deviation is None else with_deviation(mean, number(100 * deviation, digits))}%"


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard deviation (0 for one seed)."""

    mean: float
    deviation: float
    count: int

    def __str__(self) -> str:
        digits = 1 if abs(self.mean) >= 10 else 3 if abs(self.mean) >= 1 else 4
        return self.text(digits)

    def text(self, digits: int, scale: float = 1.0) -> str:
        """The mean with so many decimals, and the deviation if there are several seeds."""
        mean = number(scale * self.mean, digits)
        return with_deviation(mean, number(scale * self.deviation, digits)) if self.count > 1 else mean


def spread(values: list[float]) -> Spread:
    """
    >>> str(spread([1.0, 2.0])), str(spread([0.5]))
    ('1.500 ± 0.707', '0.5000')
    """
    deviation = 0.0 if len(values) < 2 else stdev(values) if all(map(math.isfinite, values)) else math.nan
    return Spread(fmean(values), deviation, len(values))


@dataclass(frozen=True)
class Group:
    """All runs of one experiment in one variant; of an experiment in parts, the runs of all parts."""

    experiment: Experiment
    variant: str
    models: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.experiment.name}-{self.variant}"

    @property
    def first(self) -> Record:
        return next(iter(self.models.values()))[0]

    @property
    def title(self) -> str:
        """The experiment, its size and the variant."""
        size = self.first.config.task.describe()
        name = self.experiment.title
        return f"{name}, {size}{self.suffix}" if size else f"{name}{self.suffix}"

    @property
    def suffix(self) -> str:
        """The setting in parentheses; empty for the paper's."""
        return f" ({self.setting})" if self.variant != "paper" and self.setting else ""

    @property
    def setting(self) -> str:
        """The variant; of custom settings, what was changed in words, if the title does not say it."""
        return self.experiment.words_for(self.first.config) if self.kind == "own" else self.variant

    @property
    def data_title(self) -> str:
        """The name of the data; empty if the experiment's title says it."""
        return self.first.config.task.data_title

    @property
    def data_set(self) -> str | None:
        """The data set that was read from files; None: the data were generated."""
        return self.first.config.task.data_set

    @property
    def baseline(self) -> float:
        return self.first.baseline

    @property
    def records(self) -> list[Record]:
        return [record for records in self.models.values() for record in records]

    @property
    def kind(self) -> str:
        """quick, generated, own (custom settings), or empty: full size."""
        return self.experiment.kind_of(self.variant)

    def runs(self, model: str) -> list[Record]:
        return self.models.get(model, [])

    def finished(self, model: str) -> list[Record]:
        return [record for record in self.runs(model) if record.finished]

    def shown(self, model: str) -> list[Record]:
        """The runs behind a model's numbers: the finished ones, or the unfinished ones if none is finished.

        For an experiment in parts: the runs of the seeds that have finished all parts, if there are any.
        """
        finished, complete = self.finished(model), self.complete_seeds(model)
        return [r for r in finished if r.config.seed in complete] or finished or list(self.runs(model))

    def complete_seeds(self, model: str) -> set[int]:
        """The seeds of a model that have finished all parts of the experiment, or its one run."""
        done = self._by_seed(model).items()
        return {seed for seed, parts in done if len(parts) == self.experiment.part_count}

    def incomplete_seeds(self, model: str) -> dict[int, int]:
        """The seeds that are left out of a model's numbers because parts are missing, and how many they have."""
        complete, done = self.complete_seeds(model), self._by_seed(model)
        return {seed: len(parts) for seed, parts in done.items() if complete and seed not in complete}

    def parts_done(self, model: str, score: str = "") -> int:
        """The most parts (with a score) that any seed has finished."""
        return max(map(len, self._by_seed(model, score).values()), default=0)

    def seed_means(self, model: str, score: str, parts: int = 0) -> list[float]:
        """For each seed that has finished all parts (or as many as `parts`), the mean of a score over them."""
        wanted, found = parts or self.experiment.part_count, sorted(self._by_seed(model, score).items())
        return [fmean(values.values()) for _, values in found if len(values) == wanted]

    def _by_seed(self, model: str, score: str = "") -> dict[int, dict[str, float]]:
        """The finished parts of each seed with a score, or all of them."""
        by_seed: dict[int, dict[str, float]] = {}
        for record in self.finished(model):
            value = record.score(score) if score else 0.0
            if value is not None:
                by_seed.setdefault(record.config.seed, {})[record.config.variant] = value
        return by_seed

    def part_means(self, model: str, score: str) -> list[float]:
        """For each part, the mean of a score over the runs whose numbers are shown."""
        by_part: dict[str, list[float]] = {}
        for record in self.shown(model):
            if (value := record.score(score)) is not None:
                by_part.setdefault(record.config.variant, []).append(value)
        return [fmean(values) for values in by_part.values()]

    def scores(self, model: str, name: str) -> Spread | None:
        """A score over the runs whose numbers are shown; for an experiment in parts, over the parts."""
        parts = self.part_means(model, name)
        if len(parts) > 1:
            return spread(parts)
        values = [value for record in self.shown(model) if (value := record.score(name)) is not None]
        return spread(values) if values else None

    def final_mean(self, model: str, name: str) -> float | None:
        """The mean of a score over the finished runs that are shown; None if none is finished."""
        found = self.scores(model, name) if self.finished(model) else None
        return found.mean if found else None

    def reference(self, name: str) -> float:
        """The mean of a reference level that the runs report, over the parts if there are several; nan if none does."""
        by_part: dict[str, list[float]] = {}
        for record in self.records:
            if isinstance(value := record.about.get(name), (int, float)):
                by_part.setdefault(record.config.variant, []).append(value)
        return fmean(map(fmean, by_part.values())) if by_part else math.nan

    @property
    def as_in_the_paper(self) -> bool:
        """Whether all runs have the paper's settings where the variants differ from them (`Paper.differs`)."""
        wanted = self.experiment.paper.differs if self.experiment.paper else {}
        return all(flat(record.config).get(path) == value for record in self.records for path, value in wanted.items())
