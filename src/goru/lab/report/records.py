"""Runs as the report sees them: read from their directories, grouped by experiment, variant and model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from goru.lab import paper
from goru.lab.errors import LabError, printable
from goru.lab.training import manifest
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig


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
        """How far a run is that has not finished; empty for one that has."""
        return "" if self.finished else f"{self.step} of {self.last_step} iterations, {self.state}"

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

    @property
    def records(self) -> list[Record]:
        return [record for records in self.models.values() for record in records]

    @property
    def kind(self) -> str:
        """quick, generated, own (settings that the laboratory has no name for), or empty: one of its full settings."""
        kind, setting = paper.split_variant(self.variant)
        one = paper.EXPERIMENTS[self.experiment]
        return kind if setting == "paper" or setting in one.variants | one.options else "own"

    def finished(self, model: str) -> list[Record]:
        return [record for record in self.models.get(model, []) if record.finished]

    def shown(self, model: str) -> list[Record]:
        """The runs whose numbers are shown."""
        return settled(self.models[model])


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
    deviation = 0.0 if len(values) < 2 else stdev(values) if all(map(math.isfinite, values)) else math.nan
    return Spread(fmean(values), deviation, len(values))


def settled(records: Sequence[Record]) -> list[Record]:
    """The runs that a model's numbers rest on: the finished ones, or those at work where none is finished.

    Of an experiment in parts (folds, tasks): those of the seeds that have finished them all, where there is one.
    """
    finished = [record for record in records if record.finished]
    complete = complete_seeds(records)
    return [record for record in finished if record.config.seed in complete] or finished or list(records)


def complete_seeds(records: Sequence[Record]) -> set[int]:
    """The seeds of a model that have finished all parts of their experiment, or its one run."""
    one = paper.EXPERIMENTS[records[0].config.experiment]
    done: dict[int, set[str]] = {}
    for record in records:
        if record.finished:
            done.setdefault(record.config.seed, set()).add(record.config.variant)
    return {seed for seed, parts in done.items() if len(parts) == (len(one.variants) if one.in_parts else 1)}


def parts_done(records: Sequence[Record]) -> int:
    """How many parts of an experiment the seed has finished that has most."""
    done = [record.config.seed for record in records if record.finished]
    return max((done.count(seed) for seed in done), default=0)


def seed_means(records: Sequence[Record], score: str, parts: int) -> list[float]:
    """Of an experiment in parts (folds, tasks): for each seed that has finished them all, the mean of a score."""
    by_seed: dict[int, dict[str, float]] = {}
    for record in records:
        value = record.score(score) if record.finished else None
        if value is not None:
            by_seed.setdefault(record.config.seed, {})[record.config.variant] = value
    return [fmean(values.values()) for _, values in sorted(by_seed.items()) if len(values) == parts]


def load(folder: Path) -> tuple[list[Group], list[str]]:
    """The groups in a folder of runs, in the paper's order, and sentences about runs that cannot be read."""
    groups: dict[tuple[str, str], Group] = {}
    problems = []
    for path in runs.find(folder):
        try:
            record = read(path)
        except LabError as error:
            problems.append(str(error))
            continue
        if record is not None:
            c = record.config
            if path != c.directory(folder):
                problems.append(f"{path} is left out: by its configuration it should be {c.directory(folder)}.")
                continue
            if told := paper.EXPERIMENTS[c.experiment].other_settings(c):
                problems.append(f"{path} is left out: it has other settings than {c.variant} ({told}).")
                continue
            name = group_variant(c)
            group = groups.setdefault((c.experiment, name), Group(c.experiment, name))
            group.models.setdefault(c.model, []).append(record)
    ordered = [groups[key] for key in sorted(groups, key=_order)]
    for group in ordered:
        known = list(paper.EXPERIMENTS[group.experiment].models)
        names = sorted(group.models, key=lambda m: (known.index(m) if m in known else len(known), m))
        models = {name: group.models[name] for name in names}
        group.models.clear()
        group.models.update(models)
    return ordered, [printable(problem) for problem in problems]


def group_variant(config: RunConfig) -> str:
    """The variant under which a run is shown: the parts of one result (folds, tasks) come together."""
    one = paper.EXPERIMENTS[config.experiment]
    kind, setting = paper.split_variant(config.variant)
    return (kind or "paper") if one.in_parts and setting in one.variants else config.variant


def _order(key: tuple[str, str]) -> tuple[int, bool, bool, str]:
    """As in the paper; its own setting first, the small version and generated data last."""
    experiment, variant = key
    return list(paper.EXPERIMENTS).index(experiment), variant != "paper", bool(paper.split_variant(variant)[0]), variant


def read(path: Path) -> Record | None:
    """The run in a directory; None when it has not begun, LabError when its files are of another form."""
    config = runs.read_config(path)
    metrics = runs.read_metrics(path)
    if config is None or not metrics:
        return None
    _check_metrics(path / "metrics.jsonl", metrics)
    result, failure = runs.read_json(path / "result.json"), runs.read_json(path / "failure.json")
    if result is not None:
        manifest.verify(path)
        _check_result(path / "result.json", result)
    figure = runs.read_json(path / "figure.json")
    if figure is not None:
        _check_figure(path / "figure.json", figure)
    environment = runs.read_json(path / "environment.json")
    if result is not None:
        state = "finished"
    elif runs.is_alive(path):
        state = "running"
    else:
        state = "stopped" if failure is None else "failed"
    message = failure.get("message", "") if isinstance(failure, dict) and state == "failed" else ""
    known = environment if isinstance(environment, dict) else {}
    return Record(path, config, metrics, result, figure, known, state, str(message))


# A report reads what others wrote: a file of another form is one sentence, not a traceback in the middle of a table.


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_metrics(file: Path, lines: list[Any]) -> None:
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or not all(map(_is_number, line.values())) or not {"step", "seconds"} <= {*line}:
            raise LabError(f"{file}, line {number}, should be an object of numbers with step and seconds.")
    if not {"baseline", "last_step"} <= {*lines[0]} or not {"test_loss", "valid_loss"} & {*lines[0]}:
        raise LabError(f"{file} does not begin with the first evaluation.")


def _check_result(file: Path, result: Any) -> None:
    numbers = ("step", "total_seconds", "parameters", "hidden_to_hidden_parameters")
    if not isinstance(result, dict) or not all(_is_number(result.get(name)) for name in numbers):
        raise LabError(f"{file} should be an object with the numbers {', '.join(numbers)}.")
    final = result.get("final")
    if not isinstance(final, dict) or not final or not all(map(_is_number, final.values())):
        raise LabError(f"{file} should have the final scores as an object of numbers.")
    if "test_loss" not in final:
        raise LabError(f"{file} should have test_loss among the final scores.")
    if not all(_is_number(result.get(name, 0)) for name in ("best_step", "finished_time")):
        raise LabError(f"{file} should have numbers as best_step and finished_time.")


def _check_figure(file: Path, figure: Any) -> None:
    if not isinstance(figure, dict):
        raise LabError(f"{file} should be an object.")
    if "gate_share" in figure or "gate_share_noise" in figure:
        shares, noise = figure.get("gate_share"), figure.get("noise")
        rows = shares if isinstance(shares, list) and isinstance(noise, list) and len(shares) == len(noise) else []
        means = [figure.get(name) for name in ("gate_threshold", "gate_share_brackets")]
        on_noise = figure.get("gate_share_noise")  # None for a sequence without noise
        if not rows or not all(map(_is_number, [*rows, *means, 0 if on_noise is None else on_noise])):
            raise LabError(f"{file} should have gate_share and noise of one length, and their means.")
    if "spectrum_truth" in figure:
        frames = [figure["spectrum_truth"], figure.get("spectrum_prediction")]
        scales = (figure.get(name) for name in ("spectrum_seconds_a_frame", "spectrum_highest_hertz"))
        try:
            shapes = {np.asarray(values, dtype=float).shape for values in frames}
        except (TypeError, ValueError):
            shapes = set()
        if len(shapes) != 1 or len(shapes.pop()) != 2 or not all(map(_is_number, scales)):
            raise LabError(f"{file} should have two spectra of one shape, and their scales.")
