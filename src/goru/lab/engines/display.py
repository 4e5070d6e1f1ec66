"""The display of a grid: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from goru.lab.durations import duration
from goru.lab.engines import progress
from goru.lab.engines.local import Job
from goru.lab.engines.progress import Progress
from goru.lab.errors import LabError

LIVE_SECONDS = 0.5
PLAIN_SECONDS = 15.0
_COLORS = {
    "finished": "green",
    "skipped": "green",
    "running": "cyan",
    "failed": "red",
    "busy": "yellow",
    "stopped": "yellow",
}


def number(value: float | None, form: str = ".4f") -> str:
    return "" if value is None else format(value, form)


def runs_table(rows: Sequence[tuple[str, str, Progress]], width: int) -> Table:
    """A table of runs: name, state, progress; less important columns are dropped on a narrow terminal."""
    columns: dict[str, Callable[[str, Progress], RenderableType]] = {
        "state": lambda state, p: Text(state, style=_COLORS.get(state, "dim")),
        "": lambda state, p: ProgressBar(total=p.last_step or 1, completed=p.step, width=12),
        "step": lambda state, p: str(p.step) if p.last_step is None else f"{p.step}/{p.last_step}",
        "loss": lambda state, p: number(p.loss),
        "held out": lambda state, p: number(p.test_loss),
        "baseline": lambda state, p: number(p.baseline),
        "accuracy": lambda state, p: number(p.test_accuracy, ".1%"),
        "step/s": lambda state, p: number(p.steps_per_s, ".1f"),
        "time": lambda state, p: duration(p.seconds),
        "left": lambda state, p: duration(p.seconds_left) if state == "running" else "",
    }
    for wide, dropped in ((130, ("", "loss")), (105, ("accuracy", "time")), (90, ("baseline", "step/s"))):
        if width < wide:
            columns = {heading: cell for heading, cell in columns.items() if heading not in dropped}
    if any(p.host not in ("", socket.gethostname()) for _, _, p in rows):
        columns["host"] = lambda state, p: p.host
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    for heading in columns:
        left = heading in ("state", "", "host")
        table.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for name, state, p in rows:
        table.add_row(name, *(cell(state, p) for cell in columns.values()))
    return table


def _progress(job: Job) -> Progress:
    """The progress of a job; nothing if its files are malformed, which its own process or the report says."""
    try:
        return progress.read(job.directory)
    except LabError:
        return Progress()


class Display:
    """Shows jobs while they run; a context manager whose `refresh` may be called at any rate."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self._jobs, self._console = jobs, console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._shown = 0.0
        self._states = {job.name: "waiting" for job in jobs}

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown = 0.0
        self.refresh()
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        now = time.monotonic()
        if self._live is not None:
            if now - self._shown >= LIVE_SECONDS:
                self._shown = now
                self._live.update(self._table(), refresh=True)
            return
        due = now - self._shown >= PLAIN_SECONDS
        for job in self._jobs:
            changed = job.state != self._states[job.name]
            if changed or (due and job.state == "running"):
                self._states[job.name] = job.state
                self._console.print(self._line(job), soft_wrap=True)
        if due:
            self._shown = now

    def _line(self, job: Job) -> str:
        p = _progress(job)
        parts = [f"{job.state:8} {job.name}"]
        if p.last_step is not None:
            parts.append(f"step {p.step}/{p.last_step}")
        if p.test_loss is not None:
            parts.append(f"held-out loss {number(p.test_loss)} (baseline {number(p.baseline)})")
        if p.steps_per_s is not None:
            parts.append(f"{p.steps_per_s:.1f} steps/s")
        if job.state == "running" and p.seconds_left is not None:
            parts.append(f"{duration(p.seconds_left)} left")
        if job.message and job.state in ("failed", "busy"):
            parts.append(job.message)
        return "  ".join(parts)

    def _table(self) -> Group:
        """All jobs if they fit on the screen, otherwise the running ones and their neighbors."""
        room = max(4, self._console.height - 5)
        jobs = list(self._jobs)
        if len(jobs) > room:
            active = [k for k, job in enumerate(jobs) if job.state == "running"]
            first = max(0, min((active[0] if active else 0) - 2, len(jobs) - room))
            jobs = jobs[first : first + room]
        rows = [(job.name, job.state, _progress(job)) for job in jobs]
        done = sum(job.state in ("finished", "skipped") for job in self._jobs)
        failed = sum(job.state in ("failed", "busy") for job in self._jobs)
        line = f"{done} of {len(self._jobs)} runs finished" + (f", {failed} failed" if failed else "")
        return Group(runs_table(rows, self._console.width), Text(line, style="dim"))
