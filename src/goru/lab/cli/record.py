"""`goru record`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from goru.lab.cli.parse import default_runs, parse
from goru.lab.errors import printable


@dataclass(frozen=True)
class Options:
    """Copy the full-size runs of a folder to a record: a small folder of runs that you can commit.

    Without checkpoints and with thinned curves; `goru report --runs RECORD` draws the same report from it.
    """

    runs: Path = Path("runs")
    """Folder of the run directories."""
    out: Path = Path("results")
    """Folder of the record; an existing record is updated."""
    readme: Path | None = None
    """A Markdown file whose results section is updated as well."""


def main(argv: list[str], console: Console) -> int:
    from goru.lab import report as reporting

    options = parse(Options, "record", argv, Options(default_runs()))
    unfinished = _unfinished(options.runs)
    recorded = reporting.record.write(options.runs, options.out, options.readme)
    for problem in recorded.problems:
        console.print(f"skipped: {printable(problem)}", soft_wrap=True)
    for name in unfinished:
        console.print(f"unfinished: {printable(name)}", soft_wrap=True)
    kept = f", {recorded.kept} unchanged because only the record has them finished" if recorded.kept else ""
    part = f", {len(unfinished)} of the runs in {options.runs} unfinished" if unfinished else ""
    console.print(f"{recorded.written} runs recorded in {options.out}{kept}{part}", soft_wrap=True)
    return 0


def _unfinished(runs: Path) -> list[str]:
    """The unfinished full-size runs, with their state."""
    from goru.lab.report.reading import load

    records = [record for group in load(runs)[0] if not group.kind for record in group.records]
    return [f"{record.path.relative_to(runs)} ({record.state})" for record in records if not record.finished]
