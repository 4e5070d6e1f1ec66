"""A grid of runs in a pool of processes on this machine (`ray.py`: on a cluster).

An engine gets jobs and changes their states; what a run does and stores does not depend on the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from goru.lab.engines import worker
from goru.lab.engines.process import POLL_SECONDS, STOP_SECONDS, Worker
from goru.lab.errors import LabError, RunBusyError, RunInterruptedError
from goru.lab.training.config import RunConfig, as_on
from goru.lab.training.run_directory import check_same, finished, read_config

RETRIES = 3
"""How often to restart a run whose process or machine died, from its last checkpoint."""


@dataclass
class Job:
    """One run of a grid and its state."""

    config: RunConfig
    directory: Path
    state: str = "waiting"
    """waiting, running, finished, skipped (was finished before), stopped, busy or failed."""
    message: str = ""
    deaths: int = 0
    """How often its process was killed (counted by the local engine; Ray counts by itself)."""

    @property
    def name(self) -> str:
        return str(self.config.directory(Path()))

    def fail(self, message: str) -> None:
        self.state, self.message = "failed", message

    def end(self, code: int, message: str) -> None:
        """Record how its process ended."""
        states = {0: "finished", RunBusyError.exit_code: "busy", RunInterruptedError.exit_code: "stopped"}
        self.state = states.get(code, "failed")
        if code < 0:
            self.message = f"its process was killed by signal {-code}; run the same command again to continue."
        elif code:
            self.message = message


def plan(configs: Sequence[RunConfig], runs: Path, record: Path | None = None) -> list[Job]:
    """The jobs of a grid. Runs that are finished here or in a record are skipped; one that is damaged or has different
    settings is a failure."""
    jobs = []
    for config in configs:
        job = Job(config, config.directory(runs))
        places = [job.directory, *([] if record is None else [config.directory(record)])]
        try:
            for place in filter(finished, places):
                if (there := read_config(place)) is not None:
                    check_same(place, as_on(there, config), config)
                job.state = "skipped"
        except LabError as error:
            job.fail(str(error))
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
    retries: int = RETRIES,
) -> None:
    """Run the waiting jobs, `processes` at a time; a failure does not affect the others."""
    waiting = [job for job in jobs if job.state == "waiting"]
    running: list[tuple[Job, Worker]] = []
    try:
        while (waiting or running) and not stop():
            while waiting and len(running) < processes:
                job = waiting.pop(0)
                config = job.config.to_json()
                running.append((job, Worker(worker.__file__, config, str(runs), "local", checkpoint_seconds, None)))
                job.state = "running"
            time.sleep(POLL_SECONDS)
            for one in list(running):
                job, process = one
                if (ended := process.ended()) is None:
                    continue
                running.remove(one)
                job.end(*ended)
                if ended[0] < 0 and job.deaths < retries:
                    job.deaths += 1
                    job.state = "waiting"
                    waiting.insert(0, job)
            refresh()
    finally:
        for _, process in running:
            process.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for job, process in running:
            job.end(*process.end_by(deadline))
        refresh()
