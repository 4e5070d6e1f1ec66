"""What each command of `goru` can be asked for; tyro makes the command lines and help texts from these classes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from goru.lab.cli.data import DataOptions
from goru.lab.engines.local import RETRIES
from goru.lab.training.config import RunConfig
from goru.lab.training.loop import CHECKPOINT_SECONDS


def default_runs() -> Path:
    """Where runs are kept: `GORU_RUNS`, else the folder `runs` here."""
    return Path(os.environ.get("GORU_RUNS", "runs"))


Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT ...")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]


@dataclass(frozen=True)
class LsOptions:
    """The experiments and models, and what each costs."""


@dataclass(frozen=True)
class ShowOptions:
    """An experiment's settings, what the paper says of it, and what was decided."""

    experiment: Name


@dataclass(frozen=True)
class RunOptions:
    """Train one model on one experiment, from its last checkpoint where there is one.

    Any field of the configuration is an option; changed settings get a variant (folder) of their own.
    `--variant` begins with one of the listed settings (`goru show EXPERIMENT`), or names yours; `--quick` begins with
    the small version; `--config FILE` in the place of EXPERIMENT takes a run's config.json.
    """

    config: RunConfig
    runs: Path
    """Folder of the run directories."""
    from_run: Path | None = None
    """Begin with the steps of this run, the same one for fewer steps or epochs (learning rate constant)."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds between checkpoints; the results do not depend on it."""
    data_dir: Path | None = None
    """A folder to look for data sets in before all others."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Run experiments of the paper with all their models, then write the report.

    The same command again skips what is finished and resumes what is not.
    """

    experiments: Names = ()
    """Which experiments (none: all)."""
    quick: bool = False
    """The small version: shorter sequences, fewer steps."""
    models: tuple[str, ...] = ()
    """Only these models."""
    variants: tuple[str, ...] = ()
    """Only these settings (`goru show EXPERIMENT` lists them)."""
    tasks: str = ""
    """Only these tasks, such as 1,5,17, of an experiment in tasks."""
    data: Literal["files", "generated"] = "files"
    """Data sets from files, or generated data in their place (`--quick` always generates)."""
    data_dir: Path | None = None
    """A folder to look for data sets in before all others."""
    seeds: int = 1
    """Seeds 0 ... N-1."""
    threads: int = 1
    """Threads of each run; the results depend on it in the last bits."""
    device: str = "cpu"
    """Where the tensors of each run live, such as cuda."""
    engine: Literal["local", "ray"] = "local"
    """A pool of processes on this machine, or Ray (`goru[ray]`)."""
    address: str = ""
    """HOST:PORT of a Ray cluster that sees the folder of the runs (none: a Ray of its own on this machine)."""
    jobs: int = 0
    """Runs at a time on this machine (0: one for each core)."""
    cpus_per_run: float = 0.0
    """Processors that Ray reserves for a run (0: as many as it has threads)."""
    gpus_per_run: float = 0.0
    """GPUs that Ray reserves for a run."""
    retries: int = RETRIES
    """How often a run whose process or machine died is started again, from its last checkpoint."""
    runs: Path = Path("runs")
    """Folder of the run directories."""
    out: Path | None = None
    """Folder of the report (none: `report` inside the folder of the runs)."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds between checkpoints; the results do not depend on it."""


@dataclass(frozen=True)
class StatusOptions:
    """Progress and results of all runs in a folder, from anywhere that sees it."""

    runs: Path = Path("runs")
    """Folder of the run directories."""


@dataclass(frozen=True)
class ReportOptions:
    """Figures, tables, judged claims and one page, from run directories alone."""

    runs: Path = Path("runs")
    """Folder of the run directories."""
    out: Path | None = None
    """Where to write (none: `report` inside the folder of the runs)."""


@dataclass(frozen=True)
class RecordOptions:
    """Put the full-size runs of a folder into a record: a small folder of runs that can be committed.

    Checkpoints stay behind, curves are thinned; `goru report --runs RECORD` draws the same report from it.
    """

    runs: Path = Path("runs")
    """Folder of the run directories."""
    out: Path = Path("results")
    """Folder of the record; what is in it already is updated."""
    readme: Path | None = None
    """A Markdown file whose section of results is renewed as well."""


@dataclass(frozen=True)
class BenchOptions:
    """Time of a training step at the paper's sizes, and the share of it that is not the model's."""

    experiments: Names = ()
    """Which experiments (none: all)."""
    models: tuple[str, ...] = ()
    """Only these models."""
    steps: int = 10
    """Steps to time."""
    threads: int = 1
    """Threads of the run."""
    out: Path = Path("bench.json")
    """Where to write the numbers as JSON."""


OPTIONS: dict[str, type] = {
    "ls": LsOptions,
    "show": ShowOptions,
    "run": RunOptions,
    "reproduce": ReproduceOptions,
    "status": StatusOptions,
    "report": ReportOptions,
    "record": RecordOptions,
    "data": DataOptions,
    "bench": BenchOptions,
}
