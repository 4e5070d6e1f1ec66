"""`goru status`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from goru.lab.cli.parse import Runs, default_runs, parse
from goru.lab.errors import LabError, printable


@dataclass(frozen=True)
class Options:
    """Show the progress and results of all runs in a folder."""

    runs: Runs = Path("runs")


def main(argv: list[str], console: Console) -> int:
    from goru.lab.durations import duration
    from goru.lab.engines import progress
    from goru.lab.engines.display import runs_table
    from goru.lab.training import run_directory

    options = parse(Options, "status", argv, Options(default_runs()))
    found = run_directory.find(options.runs)
    if not found:
        raise LabError(f"there are no runs in {options.runs}; start some: goru reproduce --quick")
    rows, problems = [], []
    for path in found:
        try:
            rows.append((printable(str(path.relative_to(options.runs))), progress.read(path)))
        except LabError as error:
            problems.append(str(error))
    console.print(runs_table([(name, p.state, p) for name, p in rows], console.width))
    for name, p in rows:
        if p.state == "failed":
            console.print(f"{name}: {p.message}", soft_wrap=True)
    for problem in problems:
        console.print(f"skipped: {problem}", soft_wrap=True)
    unverified = sum(not p.verified for _, p in rows)
    if unverified:
        console.print(f"{unverified} finished runs predate checksums and count as unverified")
    done = sum(p.state == "finished" for _, p in rows)
    spent = sum(p.seconds or 0 for _, p in rows)
    console.print(f"{done} of {len(rows)} runs finished, {duration(spent)} of work")
    return 0
