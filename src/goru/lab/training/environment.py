"""The machine and the software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import time
from pathlib import Path
from typing import Any

import torch

from goru.lab.errors import LabError
from goru.lab.training.run_directory import RunDirectory, read_json

PACKAGES = ("goru", "torch", "numpy", "safetensors")


def describe(run: RunDirectory, engine: str, step: int, processes: int = 1) -> dict[str, Any]:
    """The content of environment.json: this attempt, and when the earlier ones began."""
    earlier = _earlier_attempts(run)
    this = {
        "start_time": time.time(),
        "from_step": step,
        "host": socket.gethostname(),
        "engine": engine,
        "processes": processes,
    }
    if run.notes:
        this["notes"] = run.notes
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": run.config.threads,
        "engine": engine,
        "host": socket.gethostname(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "processes": processes,
        "attempts": [*earlier, this],
    }


def _earlier_attempts(run: RunDirectory) -> list[Any]:
    """The attempts that environment.json lists; a damaged file is no reason not to continue."""
    try:
        found = read_json(run.path / "environment.json")
        if found is None:
            return []
        if not isinstance(found, dict) or not isinstance(found.get("attempts"), list):
            raise LabError("it does not list attempts")
    except LabError as error:
        reason = str(error).rstrip(".")
        run.notes.append(f"environment.json could not be used ({reason}); earlier attempts are not listed")
        return []
    return found["attempts"]


def processor() -> str:
    """The processor's name, as the system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
