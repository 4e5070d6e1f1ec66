"""Runs as the report sees them: read run directories, and copy them to a record.

Reading checks every file and groups the runs by experiment, variant and model. A record is a folder of runs like any
other, small enough to be committed. It has no checkpoints and no locks. It has some of the training losses and all
evaluations, so that every table, figure and verdict stays the same. It describes the machines without the names of
hosts and folders. A README and an overview figure, made from the record, are next to the runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goru.lab import durable, paper
from goru.lab.errors import LabError, UnreadableError, printable
from goru.lab.paper.outcomes import Group, Record
from goru.lab.report import figures, markdown
from goru.lab.training import checks, manifest
from goru.lab.training import run_directory as runs
from goru.lab.training.config import as_on

TRAINING_LINES = 40
"""Lines with a training loss that a recorded run has."""
_ENVIRONMENT = ("versions", "processor", "cores", "threads", "engine", "cpu_capability")
"""What is recorded of the machine of a run."""
_ATTEMPT = ("start_time", "from_step", "versions", "backend", "isa")
"""What is recorded of each of its attempts."""


def load(folder: Path) -> tuple[list[Group], list[str]]:
    """The groups in a folder of runs, in the paper's order, and sentences about runs that cannot be read."""
    found, problems = [], []
    for path in runs.find(folder):
        try:
            record = read(path)
        except LabError as error:
            problems.append(str(error))
            continue
        if record is None:
            continue
        c = record.config
        one = paper.experiment(c.experiment)
        if path != c.directory(folder):
            problems.append(f"{path} is skipped: its configuration belongs in {c.directory(folder)}.")
        elif other := one.other_settings(c):
            problems.append(f"{path} is skipped: its settings differ from {c.variant} ({other}).")
        else:
            found.append(record)
    groups: dict[tuple[str, str], Group] = {}
    for record in sorted(found, key=_order):
        one = paper.experiment(record.config.experiment)
        variant = one.group_of(record.config.variant)
        group = groups.setdefault((one.name, variant), Group(one, variant))
        group.models.setdefault(record.config.model, []).append(record)
    return list(groups.values()), [printable(problem) for problem in problems]


def full_size(folder: Path) -> list[Group]:
    """The groups of a record at full size; LabError if a run cannot be read."""
    groups, problems = load(folder)
    for problem in problems:
        raise LabError(problem)
    return [group for group in groups if not group.kind]


def _order(record: Record) -> tuple[Any, ...]:
    """The paper's order; its own setting first, the small version and generated data last; models as it lists them."""
    one, model = paper.experiment(record.config.experiment), record.config.model
    variant, known = one.group_of(record.config.variant), [*one.models, model]
    kind, _ = paper.split_variant(variant)
    return [*paper.EXPERIMENTS].index(one.name), variant != "paper", bool(kind), variant, known.index(model), model


def read(path: Path) -> Record | None:
    """The run in a directory; None if it has not begun, LabError if its files are malformed."""
    result, failure = runs.read_json(path / "result.json"), runs.read_json(path / "failure.json")
    since = "run" if result is None else manifest.verify(path)
    config = runs.read_config(path)
    metrics = runs.read_metrics(path)
    if config is None or not metrics:
        return None
    checks.check_metrics(path / "metrics.jsonl", metrics)
    if result is not None:
        checks.check_result(path / "result.json", result)
    figure = runs.read_json(path / "figure.json")
    if figure is not None:
        checks.check_figure(path / "figure.json", figure)
    environment = runs.read_json(path / "environment.json")
    if result is not None:
        state = "finished"
    elif runs.is_alive(path):
        state = "running"
    else:
        state = "stopped" if failure is None else "failed"
    message = failure.get("message", "") if isinstance(failure, dict) and state == "failed" else ""
    known = environment if isinstance(environment, dict) else {}
    return Record(path, config, metrics, result, figure, known, state, str(message), since)


@dataclass(frozen=True)
class Recorded:
    """What was written to a record."""

    written: int
    kept: int
    """Finished runs of the record that were not replaced by unfinished ones."""
    problems: list[str]
    finished: int
    """How many full-size runs are finished; those are always written."""
    unfinished: list[str]
    """The unfinished full-size runs, with their states."""
    left_out: Mapping[str, int]
    """Runs that are not at full size: how many of each kind."""


def write(source: Path, out: Path, readme: Path | None = None) -> Recorded:
    """Copy the runs in `source` to the record `out`, except small versions, generated data and custom settings, and
    update what is made from it.

    Runs of the record that are not in `source` stay. With `readme`, its results section is updated too.
    """
    groups, problems = load(source)
    chosen = [(group, record) for group in groups if not group.kind for record in group.records]
    if not chosen:
        why = f" ({problems[0]})" if problems else ""
        raise LabError(f"there are no full-size runs to record in {source}{why}; start some: goru reproduce")
    written = kept = 0
    try:
        durable.make_folder(out)
        if source.resolve() != out.resolve():
            for _, record in chosen:
                if _is_better(record.config.directory(out), record):
                    kept += 1
                else:
                    _write_run(record, source, out)
                    written += 1
        for group in load(out)[0]:
            drawn = figures.with_spectrum(group)
            for record in group.records:
                hidden = record is not drawn and figures.has_spectrum(record)
                if hidden or (record.finished and record.checked_since == "never"):
                    _seal(record, out, without_spectrum=hidden)
        recorded = full_size(out)
        for name, content in markdown.beside_runs(recorded).items():
            durable.replace(out / name, content)
        if readme is not None:
            durable.replace(readme, markdown.in_readme(readme, recorded, out).encode())
    except OSError as error:
        raise LabError(f"cannot write the record ({error.filename or out}): {error.strerror or error}.") from None
    unfinished = [f"{r.path.relative_to(source)} ({r.state})" for _, r in chosen if not r.finished]
    left_out = Counter(group.kind for group in groups if group.kind for _ in group.records)
    return Recorded(written, kept, problems, len(chosen) - len(unfinished), unfinished, left_out)


def _is_better(directory: Path, record: Record) -> bool:
    """Whether a configuration is finished in the record but not here."""
    if record.finished or not (directory / "result.json").exists():
        return False
    try:
        there = read(directory)
    except UnreadableError:  # it may be finished: an unfinished run must not replace it
        raise
    except LabError:  # damaged: replaced
        return False
    return there is not None and there.finished and as_on(there.config, record.config) == record.config


def _seal(record: Record, out: Path, without_spectrum: bool) -> None:
    """Write the checksums of a recorded run, marked as made later unless the run made some itself. A spectrum is large:
    one that is not drawn is removed."""
    durable.make_folder(record.path, out)  # it exists: not through a link
    contents = manifest.contents(record.path)
    if without_spectrum:
        gates = {name: value for name, value in (record.figure or {}).items() if not name.startswith("spectrum_")}
        contents.pop("figure.json", None)
        if gates:
            contents["figure.json"] = _figure(gates).encode()
            durable.replace(record.path / "figure.json", contents["figure.json"])
        else:
            (record.path / "figure.json").unlink(missing_ok=True)
    if record.finished:
        since: manifest.Since = "run" if record.checked_since == "run" else "record"
        durable.replace(record.path / manifest.NAME, manifest.encode(contents, since))


def _write_run(record: Record, source: Path, out: Path) -> None:
    directory = record.config.directory(out)
    durable.make_folder(directory, out)
    message = record.message.replace(f"{source}/", "").replace(f"{source.resolve()}/", "")
    files = {
        "config.json": record.config.to_json(),
        "environment.json": _json(_without_names(record.environment)),
        "metrics.jsonl": "".join(json.dumps(line) + "\n" for line in thin(record.metrics)),
        "figure.json": _figure(record.figure) if record.figure else None,
        "failure.json": _json({"message": message}) if record.state == "failed" else None,
        manifest.NAME: None,
        "result.json": _json(record.result) if record.result else None,  # last: with it a run is finished
    }
    if record.result:
        checked = {name: content.encode() for name, content in files.items() if content and name in manifest.FILES}
        since: manifest.Since = "run" if record.checked_since == "run" else "record"
        files[manifest.NAME] = manifest.encode(checked, since).decode()
    for name, content in files.items():
        if content is None:
            (directory / name).unlink(missing_ok=True)
        else:
            durable.replace(directory / name, content.encode())


def thin(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first line, the last, every evaluation, and evenly chosen lines between; numbers with six figures."""
    training = [k for k, line in enumerate(lines) if "loss" in line]
    apart = max(1, -(-len(training) // TRAINING_LINES))
    chosen = set(training[apart - 1 :: apart]) | {0, len(lines) - 1}
    chosen |= {k for k, line in enumerate(lines) if "loss" not in line}
    return [{name: _short(value) for name, value in lines[k].items()} for k in sorted(chosen)]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _figure(figure: dict[str, Any]) -> str:
    short = {name: [_short(v) for v in value] if isinstance(value, list) else value for name, value in figure.items()}
    return json.dumps(short, separators=(",", ":")) + "\n"


def _without_names(environment: dict[str, Any]) -> dict[str, Any]:
    attempts = environment.get("attempts")
    starts = [
        {name: attempt[name] for name in _ATTEMPT if name in attempt}
        for attempt in (attempts if isinstance(attempts, list) else [])
        if isinstance(attempt, dict)
    ]
    return {name: environment[name] for name in _ENVIRONMENT if name in environment} | {"attempts": starts}


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
