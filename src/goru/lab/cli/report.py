"""`goru report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from goru.lab.cli.parse import OptionalPath, Runs, default_runs, parse
from goru.lab.errors import printable


@dataclass(frozen=True)
class Options:
    """Write figures, tables, verdicts and a page from run directories."""

    runs: Runs = Path("runs")
    out: OptionalPath = None
    """Output folder (None: `report` inside the folder of the runs)."""


def main(argv: list[str], console: Console) -> int:
    options = parse(Options, "report", argv, Options(default_runs()))
    write_report(options.runs, options.out or options.runs / "report", console, None)
    return 0


def write_report(runs: Path, out: Path, console: Console, variants: set[str] | None) -> None:
    """Write the report, and print the tables and verdicts of some variants (None: all)."""
    from goru.lab import report as reporting

    written = reporting.write(runs, out)
    for table in written.tables:
        if variants is None or table.variant in variants:
            table = table.shortened or table
            shown = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
            for k, heading in enumerate(table.headings):
                shown.add_column(heading, justify="left" if k == 0 else "right")
            for texts in table.texts:
                shown.add_row(*texts)
            console.print(shown)
            console.print()
    verdicts = [v for v in written.verdicts if v.variant and (variants is None or v.variant in variants)]
    title = "The paper's claims on these runs"
    judged = Table(title=title, title_justify="left", box=None, pad_edge=False, show_header=False)
    for verdict in verdicts:
        judged.add_row(verdict.claim.name, verdict.runs, verdict.status, verdict.claim.text)
    if judged.rows:
        console.print(judged)
        console.print()
    skipped = [f"skipped: {printable(problem)}" for problem in written.problems]
    for line in (*written.learned, *written.notices, *skipped, f"Page with the figures: {written.page.resolve()}"):
        console.print(line, soft_wrap=True)
