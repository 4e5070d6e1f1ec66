"""`goru bench`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from goru.lab import paper
from goru.lab.cli.parse import Names, parse
from goru.lab.errors import LabError, UsageError


@dataclass(frozen=True)
class Options:
    """Measure a training step at the paper's sizes, and the share of it outside the model."""

    experiments: Names = ()
    """Experiments to run (none: all)."""
    models: tuple[str, ...] = ()
    """Only these models."""
    steps: int = 10
    """Number of steps to time."""
    threads: int = 1
    """Number of threads."""
    out: Path = Path("bench.json")
    """Where to write the numbers as JSON."""


def main(argv: list[str], console: Console) -> int:
    options = parse(Options, "bench", argv)
    if options.steps < 1 or options.threads < 1:
        raise UsageError("--steps and --threads should be at least 1.")
    if not options.out.resolve().parent.is_dir():
        raise UsageError(f"--out {options.out}: its folder does not exist.")
    experiments = [paper.experiment(name) for name in options.experiments or paper.EXPERIMENTS]
    from goru.lab.cli import data
    from goru.lab.training import bench

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("experiment", "model", "ms/step", "data", "model", "steps/s"):
        table.add_column(heading, justify="left" if heading == "experiment" else "right")
    rows = []
    for one in experiments:
        reason = data.missing([one.config(next(iter(one.models)))]).get(one.name)
        if reason is not None:
            if options.experiments:
                raise LabError(reason)
            console.print(f"skipped: {one.name}: {reason}", soft_wrap=True)
            continue
        for model in options.models or one.models:
            timing = bench.time_step(one.config(model), options.steps, options.threads)
            rows.append(timing)
            seconds = timing["step_seconds"]
            shares = [f"{timing[part]:.1%}" for part in ("data_share", "model_share")]
            table.add_row(one.name, model, f"{1000 * seconds:.1f}", *shares, f"{1 / seconds:.1f}")
    console.print(table)
    bench.write(options.out, rows)
    console.print(f"Numbers: {options.out}")
    return 0
