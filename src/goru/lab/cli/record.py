"""`goru record`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from goru.lab.cli.parse import OptionalPath, Runs, default_runs, parse
from goru.lab.errors import printable

if TYPE_CHECKING:
    from goru.lab.report.record import Recorded


@dataclass(frozen=True)
class Options:
    """Copy the full-size runs of a folder to a record: a small folder of runs that you can commit.

    Without checkpoints and with thinned curves; `goru report --runs RECORD` draws the same report from it.
    """

    runs: Runs = Path("runs")
    out: Path = Path("results")
    """Folder of the record; an existing record is updated."""
    readme: OptionalPath = None
    """A Markdown file whose results section is updated as well."""


def main(argv: list[str], console: Console) -> int:
    from goru.lab import report as reporting

    options = parse(Options, "record", argv, Options(default_runs()))
    recorded = reporting.record.write(options.runs, options.out, options.readme)
    for problem in recorded.problems:
        console.print(f"skipped: {printable(problem)}", soft_wrap=True)
    for name in recorded.unfinished:
        console.print(f"unfinished: {printable(name)}", soft_wrap=True)
    console.print(_summary(recorded, options.out), soft_wrap=True)
    return 0


def _summary(recorded: Recorded, out: Path) -> str:
    """How many runs were recorded, and how many were not and why."""
    unfinished = len(recorded.unfinished) - recorded.kept
    what = f"recorded {_runs(recorded.written)} in" if recorded.written or recorded.kept else "updated"  # in its place
    text = f"{what} {out}: {recorded.finished} finished, {unfinished} unfinished"
    if recorded.kept:
        text += f"; kept {_runs(recorded.kept)} that only the record has finished"
    if recorded.problems:
        text += f"; skipped {_runs(len(recorded.problems))}"
    if recorded.left_out:
        words = {"quick": "small", "generated": "on generated data", "own": "with other settings"}
        kinds = ", ".join(f"{count} {words[kind]}" for kind, count in recorded.left_out.items())
        text += f"; left out {_runs(total := sum(recorded.left_out.values()))} that "
        text += f"{'is' if total == 1 else 'are'} not at full size ({kinds})"
    return text


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
