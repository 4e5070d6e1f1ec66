"""A run's directory: written atomically, locked with flock, resumable after a kill at any moment.

Importing this module does not import torch, so inspecting runs is fast.

    config.json              the complete configuration; re-running from it gives the same run
    environment.json         versions, processor, threads, engine, host, and when the run was started
    metrics.jsonl            one JSON object per line; truncated to the checkpoint when a run resumes
    checkpoint.safetensors   parameters, optimizer, random state; the position is in its header
    checkpoint.previous...   the one before, used if the last one is damaged (and renamed checkpoint.damaged...)
    figure.json              what figures need beyond the scores (some tasks)
    manifest.json            checksums of these files, result.json included
    result.json              written last: a run with a result is finished
    failure.json             why the last attempt failed, until the next one starts

Every field that depends on the clock has `time`, `seconds` or `per_s` in its name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goru.lab import durable, locks
from goru.lab.errors import LabError, RunBusyError, RunEndedError, RunInterruptedError, UsageError
from goru.lab.training import checks, manifest
from goru.lab.training.config import RunConfig, as_json, as_on, differences, from_json
from goru.lab.untrusted import parse_json, read_bytes, read_json

if TYPE_CHECKING:
    from torch import Tensor

    from goru.lab.training.checkpoints import Checkpoint

CHECKPOINT_SECONDS = 30.0
"""Seconds between checkpoints."""
CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"
DAMAGED = "checkpoint.damaged.safetensors"
CONFIG_LIMIT = 2**20
LOCK_ATTEMPTS, LOCK_PAUSE = 25, 0.02
"""How often to try to get a lock, and the seconds in between: `is_alive` holds it for an instant."""


class RunDirectory:
    """The directory of one run, held by this process alone; made by `hold`."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self._metrics = -1
        self.metrics_bytes = 0
        self._written = hashlib.sha256()  # of these bytes
        self.checkpoint_step: int | None = None
        self.notes: list[str] = []
        """Notes on this attempt, for environment.json."""

    # Reading what an earlier attempt left

    def load_checkpoint(self, *, change: bool = True) -> Checkpoint | None:
        """Tensors and position of the last checkpoint; None if there is none yet.

        If the last one is unusable, the one before is used, and the last one renamed unless `change` is False.
        """
        from goru.lab.training import checkpoints

        damage: list[str] = []
        for name in (CHECKPOINT, PREVIOUS):
            if not (self.path / name).exists():
                continue
            try:
                tensors, position = checkpoints.read(self.path / name, self.config.digest())
                self._check_metrics(position)
            except checkpoints.UnusableError as error:
                damage.append(str(error))
                continue
            if damage and change:
                with self._writing():
                    os.replace(self.path / CHECKPOINT, self.path / DAMAGED)  # so it never becomes the previous one
                self.notes.append(f"{CHECKPOINT} {damage[0]}; continued from the one before it")
            self.checkpoint_step = position["step"]
            return tensors, position
        if damage:
            raise self.unusable_checkpoint(damage[0])
        return None

    def _check_metrics(self, position: dict[str, Any]) -> None:
        """Raise UnusableError if metrics.jsonl no longer begins with the lines that a checkpoint relies on."""
        from goru.lab.training.checkpoints import UnusableError

        size = position["metrics_bytes"]
        content = read_bytes(self.path / "metrics.jsonl") or b""
        if len(content) < size:
            raise UnusableError(f"relies on {size} bytes of metrics.jsonl, which has {len(content)}")
        content = content[:size]
        expected = position.get("metrics_sha256", "")  # older versions did not record it
        if not content.endswith(b"\n") or expected not in ("", hashlib.sha256(content).hexdigest()):
            raise UnusableError(f"relies on the first {size} bytes of metrics.jsonl, which have changed")

    def unusable_checkpoint(self, why: str) -> RunEndedError:
        """The error for a checkpoint that cannot be used; `why` completes the sentence."""
        found = [self.path / name for name in (CHECKPOINT, PREVIOUS) if (self.path / name).exists()]
        delete = "delete it" if len(found) == 1 else f"delete it and {PREVIOUS}"
        return RunEndedError(f"{found[0]} {why}; {delete} to start this run from the beginning.")

    # Writing

    def cut_metrics(self, size: int) -> None:
        """Drop what was logged after the checkpoint, then open for appending."""
        path = self.path / "metrics.jsonl"
        with self._writing():
            self._metrics = durable.open_for_writing(path, os.O_APPEND)
            os.ftruncate(self._metrics, size)
            self._written = hashlib.sha256(os.pread(self._metrics, size, 0))
        self.metrics_bytes = size

    def append(self, record: dict[str, Any]) -> None:
        """One more line of metrics.jsonl."""
        line = (json.dumps(record) + "\n").encode()
        with self._writing():
            durable.write_all(self._metrics, line)
        self.metrics_bytes += len(line)
        self._written.update(line)

    def save_checkpoint(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        """Write a checkpoint that relies on the metrics so far; the last one becomes the previous one.

        A failure at any point leaves a good one.
        """
        from goru.lab.training import checkpoints

        position = position | {"metrics_bytes": self.metrics_bytes, "metrics_sha256": self._written.hexdigest()}
        content = checkpoints.encode(tensors, position, self.config.digest())
        with self._writing():
            os.fsync(self._metrics)  # the checkpoint relies on these bytes
            durable.replace(self.path / CHECKPOINT, content, previous=self.path / PREVIOUS)
        self.checkpoint_step = position["step"]

    def write_json(self, name: str, value: dict[str, Any]) -> None:
        with self._writing():
            durable.replace(self.path / name, as_json(value).encode())

    def write_result(self, result: dict[str, Any]) -> None:
        """Finish the run: write the checksums of its files, then the result."""
        content = as_json(result).encode()
        with self._writing():
            os.fsync(self._metrics)
            found = manifest.contents(self.path) | {"result.json": content}
            durable.replace(self.path / manifest.NAME, manifest.encode(found))
            durable.replace(self.path / "result.json", content)

    def note_failure(self, message: str) -> None:
        """Write the reason for `goru status`; on a full disk this is skipped."""
        with contextlib.suppress(OSError):
            record = {"message": message, "failed_time": time.time()}
            durable.replace(self.path / "failure.json", (json.dumps(record) + "\n").encode())

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn a failed write into a LabError."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise LabError(f"cannot write to {self.path}: {error.strerror or error}.") from error
            kept = "no checkpoint yet" if self.checkpoint_step is None else f"step {self.checkpoint_step}"
            raise LabError(
                f"no space left for {self.path} (last good checkpoint: {kept}); "
                f"free some and run the same command again."
            ) from error


@contextlib.contextmanager
def hold(config: RunConfig, runs: Path) -> Iterator[RunDirectory]:
    """Create or reopen the directory of a configuration and hold its lock."""
    run = RunDirectory(config.directory(runs), config)
    with run._writing():
        durable.make_folder(run.path, runs)
        lock = durable.open_for_writing(run.path / "lock")
    try:
        _acquire(lock, run.path)
        _settle(run)
        try:
            yield run
        except LabError as error:
            if not isinstance(error, (RunBusyError, RunInterruptedError)):
                run.note_failure(str(error))
            raise
    finally:
        if run._metrics >= 0:
            os.close(run._metrics)
        os.close(lock)  # closing releases it; so does the kernel when the process dies


def _acquire(lock: int, path: Path) -> None:
    for _ in range(LOCK_ATTEMPTS):  # counted, not timed: a clock may stop
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(LOCK_PAUSE)
    raise RunBusyError(f"another process is working on {path}.")


def check_same(path: Path, there: RunConfig, here: RunConfig) -> None:
    """Raise LabError if a run directory holds a different configuration."""
    if there != here:
        changed = differences(there, here)
        raise LabError(f"{path} holds another configuration ({changed}); choose another --variant or --runs.")


def check_free(config: RunConfig, runs: Path) -> None:
    """Raise LabError if the directory of a configuration holds work of another one."""
    path = config.directory(runs)
    if has_begun(path) and (there := read_config(path)) is not None:
        check_same(path, there, config)


def check_siblings(config: RunConfig, runs: Path) -> None:
    """Raise UsageError if other models or seeds of the same variant have different settings."""
    for file in sorted((runs / config.experiment / config.variant).glob("*/seed*/config.json")):
        other = read_config(file.parent)
        if other is None or (other.model, other.seed) == (config.model, config.seed):
            continue
        layer = config.layer if other.model == config.model else other.layer
        like = dataclasses.replace(as_on(config, other), model=other.model, seed=other.seed, layer=layer)
        if different := differences(other, like):
            raise UsageError(f"{file.parent} has other settings ({different}): choose another --variant.")


def has_begun(path: Path) -> bool:
    """Whether a run directory holds work: a checkpoint or a result."""
    return any((path / name).exists() for name in (CHECKPOINT, PREVIOUS, "result.json"))


def _settle(run: RunDirectory) -> None:
    """Make sure that the directory belongs to this configuration, and remove the temporary files of earlier attempts.

    A directory without checkpoint and result may be reused for another configuration.
    """
    existing = read_config(run.path)
    if existing is not None and has_begun(run.path):
        check_same(run.path, existing, run.config)
    with run._writing():
        durable.clear_abandoned(run.path)
        (run.path / "failure.json").unlink(missing_ok=True)
    if existing != run.config:
        run.write_json("config.json", json.loads(run.config.to_json()))


# Reading from outside, without the lock


def finished(path: Path) -> dict[str, Any] | None:
    """The result of a finished run, None for any other; LabError if it is malformed or a file has changed."""
    result = read_json(path / "result.json")
    if result is not None:
        manifest.verify(path)
        checks.check_result(path / "result.json", result)
    return result


def read_config(path: Path) -> RunConfig | None:
    """The configuration of a run directory; None if it has none yet."""
    file = path / "config.json"
    content = read_bytes(file, CONFIG_LIMIT)
    return None if content is None else from_json(content, str(file))


def read_metrics(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The logged lines of a run, or of its first bytes, without a last line that is still being written."""
    file = path / "metrics.jsonl"
    content = (read_bytes(file) or b"")[:size]
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return [parse_json(line, f"{file}, line {number},") for number, line in enumerate(lines, 1)]


def is_alive(path: Path) -> bool:
    """Whether a process is working on the run."""
    return locks.held(str(path / "lock"))


def find(runs: Path) -> list[Path]:
    """Every run directory under `runs`, in order."""
    found = (file.parent for file in runs.glob("*/*/*/seed*/config.json"))
    return sorted(found, key=lambda path: (path.parent, len(path.name), path.name))  # seed 2 before seed 10
