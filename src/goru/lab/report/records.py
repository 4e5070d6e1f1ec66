"""Runs as the report sees them: read from their directories, grouped by experiment, variant and model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from goru.lab import paper, runs
from goru.lab.config import RunConfig
from goru.lab.errors import LabError


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

    @cached_property
    def test(self) -> Curve:
        """The held-out loss along training: the test set's, or the validation set's where that is watched."""
        watched = "test_loss" if "test_loss" in self.metrics[0] else "valid_loss"
        lines = [line for line in self.metrics if watched in line]
        return Curve(
            [line["step"] for line in lines],
            [line[watched] for line in lines],
            [line["seconds"] for line in lines],
        )

    def score(self, name: str) -> float | None:
        """A final score; for a run that is not finished the latest one."""
        if self.result is not None:
            return self.result["final"].get(name)
        for line in reversed(self.metrics):
            if name in line:
                return line[name]
        return None

    def first_step_below(self, loss: float) -> int | None:
        """The first evaluation with a test loss below `loss`."""
        return next((s for s, value in zip(self.test.steps, self.test.losses, strict=True) if value < loss), None)

    @property
    def mean_test_loss(self) -> float:
        """Test loss averaged over training, the measure of learning speed: lower is faster."""
        return fmean(self.test.losses[1:] or self.test.losses)


@dataclass(frozen=True)
class Group:
    """All runs of one experiment in one variant."""

    experiment: str
    variant: str
    models: dict[str, list[Record]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.experiment}-{self.variant}"

    @property
    def title(self) -> str:
        """The experiment, its size and the variant."""
        size = next(iter(self.models.values()))[0].config.task.describe()
        name = paper.EXPERIMENTS[self.experiment].title
        return f"{name}, {size} ({self.variant})" if size else f"{name} ({self.variant})"

    @property
    def baseline(self) -> float:
        return next(iter(self.models.values()))[0].baseline

    def finished(self, model: str) -> list[Record]:
        return [record for record in self.models.get(model, []) if record.finished]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and its standard deviation (0 for one seed)."""

    mean: float
    deviation: float
    count: int

    def __str__(self) -> str:
        digits = 4 if abs(self.mean) < 10 else 1
        text = f"{self.mean:.{digits}f}"
        return f"{text} ± {self.deviation:.{digits}f}" if self.count > 1 else text


def spread(values: list[float]) -> Spread:
    """
    >>> str(spread([1.0, 2.0])), str(spread([0.5]))
    ('1.5000 ± 0.7071', '0.5000')
    """
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def load(folder: Path) -> tuple[list[Group], list[str]]:
    """The groups in a folder of runs, in the paper's order, and sentences about runs that cannot be read."""
    groups: dict[tuple[str, str], Group] = {}
    problems = []
    for path in runs.find(folder):
        try:
            record = _read(path)
        except LabError as error:
            problems.append(str(error))
            continue
        if record is not None:
            c = record.config
            name = _group_variant(c)
            group = groups.setdefault((c.experiment, name), Group(c.experiment, name))
            group.models.setdefault(c.model, []).append(record)
    ordered = [groups[key] for key in sorted(groups, key=_order)]
    for group in ordered:
        known = list(paper.EXPERIMENTS[group.experiment].models)
        names = sorted(group.models, key=lambda m: (known.index(m) if m in known else len(known), m))
        models = {name: group.models[name] for name in names}
        group.models.clear()
        group.models.update(models)
    return ordered, problems


def _group_variant(config: RunConfig) -> str:
    """The variant under which a run is shown: the parts of one result (folds, tasks) come together."""
    one = paper.EXPERIMENTS[config.experiment]
    kind, setting = paper.split_variant(config.variant)
    return (kind or "paper") if one.in_parts and setting in one.variants else config.variant


def _order(key: tuple[str, str]) -> tuple[float, int, str]:
    experiment, variant = key
    position = list(paper.EXPERIMENTS).index(experiment) if experiment in paper.EXPERIMENTS else math.inf
    return position, variant != "paper", variant


def _read(path: Path) -> Record | None:
    config = runs.read_config(path)
    metrics = runs.read_metrics(path)
    if config is None or not metrics or config.experiment not in paper.EXPERIMENTS:
        return None
    if "baseline" not in metrics[0]:
        raise LabError(f"{path / 'metrics.jsonl'} does not begin with the first evaluation.")
    return Record(
        path,
        config,
        metrics,
        runs.read_json(path / "result.json"),
        runs.read_json(path / "figure.json"),
        runs.read_json(path / "environment.json") or {},
    )
