"""Read run directories and group the runs by experiment, variant and model."""

from __future__ import annotations

from pathlib import Path

from goru.lab import paper
from goru.lab.errors import LabError, printable
from goru.lab.paper.outcomes import Group, Record
from goru.lab.training import checks, manifest
from goru.lab.training import run_directory as runs


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
        if record is None:
            continue
        c = record.config
        one = paper.experiment(c.experiment)
        if path != c.directory(folder):
            problems.append(f"{path} is skipped: its configuration belongs in {c.directory(folder)}.")
        elif other := one.other_settings(c):
            problems.append(f"{path} is skipped: its settings differ from {c.variant} ({other}).")
        else:
            variant = one.group_of(c.variant)
            group = groups.setdefault((one.name, variant), Group(one, variant))
            group.models.setdefault(c.model, []).append(record)
    ordered = [_in_order(groups[key]) for key in sorted(groups, key=_order)]
    return ordered, [printable(problem) for problem in problems]


def unverified(groups: list[Group]) -> list[str]:
    """Sentences about the finished runs whose files had no checksums when they ended."""
    finished = [record for group in groups for record in group.records if record.finished]
    never, late = (sum(record.checked_since == since for record in finished) for since in ("never", "record"))
    sentences = {
        " and have none": never,
        "; theirs were made when the runs were recorded": late,
    }
    return [
        f"{count} of {len(finished)} runs predate checksums{why}. They count as unverified."
        for why, count in sentences.items()
        if count
    ]


def _order(key: tuple[str, str]) -> tuple[int, bool, bool, str]:
    """The paper's order; its own setting first, the small version and generated data last."""
    name, variant = key
    return list(paper.EXPERIMENTS).index(name), variant != "paper", bool(paper.split_variant(variant)[0]), variant


def _in_order(group: Group) -> Group:
    """The group with its models in the experiment's order."""
    known = list(group.experiment.models)
    names = sorted(group.models, key=lambda m: (known.index(m) if m in known else len(known), m))
    return Group(group.experiment, group.variant, {name: group.models[name] for name in names})


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
