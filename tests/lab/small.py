"""Runs small enough for tests, and how two runs are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goru.lab import paper
from goru.lab.training.config import RunConfig, override
from goru.lab.training.run_directory import read_json, read_metrics

SMALL: dict[str, dict[str, Any]] = {
    "copying": {"task.delay": 8, "task.recall": 3, "task.test_size": 16},
    "denoise": {"task.delay": 8, "task.recall": 3, "task.test_size": 16},
    "parenthesis": {"task.length": 12, "task.test_size": 16},
    "shortest_path": {"task.data": "generated", "task.graphs": 38},
    "babi": {"task.data": "generated", "task.questions": 60},
    "penn_treebank": {"task.data": "generated", "task.characters": 3000, "task.length": 8},
    "speech": {"task.data": "generated", "task.utterances": 12},
}


def small(
    experiment: str, model: str, changes: Mapping[str, Any] | None = None, *, steps: int = 40, seed: int = 0
) -> RunConfig:
    """A run of an experiment that takes a fraction of a second; `changes` are fields of the configuration."""
    config = paper.experiment(experiment).config(model, seed=seed)
    common = {"steps": steps, "batch": 4, "log_every": 5, "eval_every": 10, "layer.hidden_size": 8}
    return override(config, common | SMALL[experiment] | {"variant": "small"} | dict(changes or {}))


def without_clock(value: Any) -> Any:
    """What is left of a JSON value without the fields that depend on the clock, known by their names."""
    if isinstance(value, list):
        return [without_clock(item) for item in value]
    if isinstance(value, dict):
        return {
            key: without_clock(item)
            for key, item in value.items()
            if not any(word in key for word in ("time", "seconds", "per_s"))
        }
    return value


def outcome(directory: Path) -> dict[str, Any]:
    """Everything that a configuration determines in a run directory; the parameters by their checksum."""
    result = read_json(directory / "result.json")
    assert result is not None, f"{directory} has no result"
    return without_clock(
        {
            "config": json.loads((directory / "config.json").read_text()),
            "metrics": read_metrics(directory),
            "figure": read_json(directory / "figure.json"),
            "result": result,
        }
    )


def goru(*arguments: str, python: Sequence[str] = (), **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; `python` are options of the interpreter."""
    return subprocess.run(
        [sys.executable, *python, "-m", "goru.lab", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"COLUMNS": "200"},
        **options,
    )


def save(config: RunConfig, path: Path) -> str:
    """The configuration as a file for `goru run --config`."""
    path.write_text(config.to_json())
    return str(path)
