"""Where a grid of runs is carried out: a pool of processes on this machine.

An engine gets jobs and changes their states; what a run does and stores is the run's own matter, so that
another engine gives the same files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from goru.lab import worker
from goru.lab.config import RunConfig
from goru.lab.errors import LabError, RunBusyError, RunInterruptedError
from goru.lab.runs import read_json

POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
"""How long a worker may take to write its checkpoint when it is asked to stop."""


@dataclass
class Job:
    """One run of a grid and how it stands."""

    config: RunConfig
    directory: Path
    state: str = "waiting"
    """waiting, running, finished, skipped (was finished before), stopped, busy or failed."""
    message: str = ""

    @property
    def name(self) -> str:
        c = self.config
        return f"{c.experiment}/{c.variant}/{c.model}/seed{c.seed}"


def plan(configs: Sequence[RunConfig], runs: Path) -> list[Job]:
    """The jobs of a grid; what has a result already is skipped."""
    jobs = []
    for config in configs:
        job = Job(config, config.directory(runs))
        try:
            if read_json(job.directory / "result.json") is not None:
                job.state = "skipped"
        except LabError as error:
            job.state, job.message = "failed", str(error)
        jobs.append(job)
    return jobs


def run_locally(
    jobs: Sequence[Job],
    runs: Path,
    *,
    processes: int,
    checkpoint_seconds: float,
    stop: Callable[[], bool],
    refresh: Callable[[], None],
) -> None:
    """Carry out the waiting jobs, `processes` at a time; one that fails does not touch the others."""
    waiting = [job for job in jobs if job.state == "waiting"]
    running: list[_Worker] = []
    try:
        while (waiting or running) and not stop():
            while waiting and len(running) < processes:
                running.append(_Worker(waiting.pop(0), runs, checkpoint_seconds))
            time.sleep(POLL_SECONDS)
            running = [one for one in running if not one.ended()]
            refresh()
    finally:
        for one in running:
            one.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for one in running:
            one.end_by(deadline)
        refresh()


class _Worker:
    """A process at work on a job."""

    def __init__(self, job: Job, runs: Path, checkpoint_seconds: float) -> None:
        self.job = job
        job.state = "running"
        self._errors: IO[Any] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-P", worker.__file__, str(os.getpid()), str(runs), "local"]
        self.process = subprocess.Popen(
            [*command, str(checkpoint_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then asks each worker to stop
        )
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(job.config.to_json())
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; its exit code tells

    def ended(self) -> bool:
        code = self.process.poll()
        if code is None:
            return False
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        self._errors.close()
        states = {0: "finished", RunBusyError.exit_code: "busy", RunInterruptedError.exit_code: "stopped"}
        self.job.state = states.get(code, "failed")
        if code < 0:
            self.job.message = f"its process was ended by signal {-code}; the same command again goes on."
        elif code:
            self.job.message = said[-1] if said else f"the process ended with exit code {code}."
        return True

    def end_by(self, deadline: float) -> None:
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.ended()
