"""The progress of a run, read from its directory, for the live display and `goru status`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from goru.lab import untrusted
from goru.lab.errors import LabError
from goru.lab.training import checks, manifest
from goru.lab.training.run_directory import is_alive, read_json

_TAIL = 4096
"""Bytes at the end of metrics.jsonl that hold the last training and test lines."""


@dataclass(frozen=True)
class Progress:
    """The state of a run; numbers that are not known yet are None."""

    state: str = "waiting"
    """waiting, running, stopped, failed or finished."""
    step: int = 0
    last_step: int | None = None
    loss: float | None = None
    test_loss: float | None = None
    """On the test set, or on the validation set while only that is scored."""
    test_accuracy: float | None = None
    baseline: float | None = None
    seconds: float | None = None
    steps_per_s: float | None = None
    message: str = ""
    verified: bool = True
    """False for a finished run of an older version, without checksums when it ended."""
    host: str = ""
    """The machine that works on it."""

    @property
    def seconds_left(self) -> float | None:
        if self.last_step is None or not self.steps_per_s:
            return None
        return (self.last_step - self.step) / self.steps_per_s


def read(path: Path) -> Progress:
    """The progress of a run directory; LabError if its files are malformed."""
    try:
        return _read(path)
    except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise LabError(f"{path} has malformed files ({reason}).") from None


def _read(path: Path) -> Progress:
    result = read_json(path / "result.json")
    if result is not None:
        since = manifest.verify(path)
        checks.check_result(path / "result.json", result)
        final = result["final"]
        return Progress(
            state="finished",
            step=result["step"],
            last_step=result["step"],
            test_loss=final.get("test_loss"),
            test_accuracy=final.get("test_accuracy"),
            baseline=result["baseline"],
            seconds=result["total_seconds"],
            steps_per_s=result.get("steps_per_s"),
            verified=since == "run",
        )
    known: dict = {}
    for line in _first_and_last_lines(path / "metrics.jsonl"):
        checks.check_line(str(path / "metrics.jsonl"), line)
        known |= line
    failure = read_json(path / "failure.json")
    said = {"message": (failure or {}).get("message", "")}
    if is_alive(path):
        state = "running"
        said["host"] = (read_json(path / "environment.json") or {}).get("host", "")
    else:
        state = "failed" if failure is not None else "stopped" if known else "waiting"
    for name, value in said.items():  # the numbers were checked line by line
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r:.80}")
    for score in ("loss", "accuracy"):  # without test scores, show those of the validation set
        if f"valid_{score}" in known:
            known.setdefault(f"test_{score}", known[f"valid_{score}"])
    fields = ("step", "last_step", "loss", "test_loss", "test_accuracy", "baseline", "seconds", "steps_per_s")
    return Progress(state=state, **said, **{name: known[name] for name in fields if name in known})


def _first_and_last_lines(path: Path) -> list[dict]:
    if not path.exists():
        return []
    with untrusted.opened(path) as file:
        first = file.readline(_TAIL)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(len(first), size - _TAIL))
        tail = file.read(_TAIL)
    whole = tail[: tail.rfind(b"\n") + 1].splitlines()
    if size - _TAIL > len(first):
        whole = whole[1:]  # its beginning is cut off
    if not first.endswith(b"\n"):
        return []
    return [untrusted.parse_json(line, str(path)) for line in (first, *whole)]
