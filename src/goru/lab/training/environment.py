"""The hardware and software of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from goru.kernels.backends import torch_level
from goru.lab.errors import LabError, RunEndedError
from goru.lab.training.checkpoints import Position
from goru.lab.training.run_directory import RunDirectory, read_json
from goru.layers.recurrent import RecurrentLayer

OTHER_KERNELS = "GORU_OTHER_KERNELS"
"""If set, runs may continue with another backend or instruction set."""
PACKAGES = ("goru", "torch", "numpy", "safetensors")


def describe(
    run: RunDirectory, network: nn.Module, engine: str, position: Position, processes: int = 1
) -> dict[str, Any]:
    """The content of environment.json: this attempt, with its software and kernels, and the earlier ones.

    The kernels are noted in `position` too.
    """
    earlier, note = _earlier_attempts(run.path)
    run.notes += note
    versions = {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}
    used = kernels(network)
    if position.step:
        saved = {name: value for name in used if (value := getattr(position, name))}
        run.notes += _change_of_kernels(run.path, earlier, used, saved)
    position.backend, position.isa = used["backend"], used["isa"]
    here = {"versions": versions, "engine": engine, "host": socket.gethostname(), "processes": processes}
    this = {**used, **here, "start_time": time.time(), "from_step": position.step}
    if run.notes:
        this["notes"] = run.notes
    return {
        **here,
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": run.config.threads,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "attempts": [*earlier, this],
    }


def kernels(network: nn.Module) -> dict[str, str]:
    """The backend and instruction set of the recurrent layers: the last bits of a result depend on them."""
    device = next(network.parameters()).device
    try:
        used = {module.implementation() for module in network.modules() if isinstance(module, RecurrentLayer)}
    except (ValueError, RuntimeError) as error:
        raise LabError(f"{str(error).rstrip('.')}.") from None
    used = sorted(used) or [("torch", torch_level(device))]
    return {name: ", ".join(values) for name, values in zip(("backend", "isa"), zip(*used, strict=True), strict=True)}


def check_kernels(network: nn.Module, directory: Path | None = None) -> None:
    """Raise LabError if the kernels cannot run, or may not continue the run in `directory`."""
    used = kernels(network)
    if directory is not None:
        _change_of_kernels(directory, _earlier_attempts(directory)[0], used)


def _change_of_kernels(
    directory: Path, earlier: list[Any], used: dict[str, str], saved: dict[str, str] | None = None
) -> list[str]:
    """A note if the last attempt used another backend or instruction set; LabError unless that is allowed.

    Where the attempts do not tell, the kernels in the checkpoint (`saved`) count.
    """
    last = earlier[-1] if earlier and isinstance(earlier[-1], dict) else {}
    known = used | (saved or {}) | {name: str(last[name]) for name in used if name in last}  # older versions: neither
    before = {name: known[name] for name in used}
    if before == used:
        return []
    there, here = (f"{one['backend']} ({one['isa']})" for one in (before, used))
    if not os.environ.get(OTHER_KERNELS):
        raise RunEndedError(
            f"{directory} was computed with {there}, this process would continue with {here} and change its last bits; "
            f"set GORU_BACKEND and GORU_ISA as they were, or add --other-kernels to continue anyway."
        )
    return [f"computed with {there} before, with {here} from here on"]


def _earlier_attempts(directory: Path) -> tuple[list[Any], list[str]]:
    """The attempts that environment.json lists, and a note if the file is damaged: the run continues without it."""
    try:
        found = read_json(directory / "environment.json")
        if found is None:
            return [], []
        if not isinstance(found, dict) or not isinstance(found.get("attempts"), list):
            raise LabError("it does not list attempts")
    except LabError as error:
        reason = str(error).rstrip(".")
        return [], [f"environment.json could not be used ({reason}); earlier attempts are not listed"]
    return found["attempts"], []


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
