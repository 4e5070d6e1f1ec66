"""`goru reproduce`."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from goru.lab import paper
from goru.lab.cli.parse import Names, OptionalPath, Runs, allow_other_kernels, default_runs, parse
from goru.lab.engines.local import RETRIES
from goru.lab.errors import LabError, RunInterruptedError, UsageError
from goru.lab.paper.findings import joined
from goru.lab.training.config import RunConfig
from goru.lab.training.run_directory import CHECKPOINT_SECONDS

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Options:
    """Run experiments of the paper with all their models, then write the report.

    Run the same command again to continue: it skips finished runs and resumes the others.
    """

    experiments: Names = ()
    """Experiments to run (none: all of the paper)."""
    quick: bool = False
    """Run the small version: shorter sequences, fewer steps."""
    models: tuple[str, ...] = ()
    """Run only these models."""
    variants: tuple[str, ...] = ()
    """Run only these settings (`goru show EXPERIMENT` lists them)."""
    tasks: str = ""
    """Run only these tasks, such as 1,5,17, of an experiment with tasks."""
    data: Literal["files", "generated"] = "files"
    """Data from files, or generated data instead (`--quick` always uses generated data)."""
    data_dir: OptionalPath = None
    """Folder to search first for data sets."""
    seeds: int = 1
    """Number of seeds: 0 ... N-1."""
    threads: int = 1
    """Threads per run; the last bits of the results depend on it."""
    device: str = "cpu"
    """Device of the runs, such as cuda."""
    engine: Literal["local", "ray"] = "local"
    """A pool of processes on this machine, or Ray (`goru[ray]`)."""
    address: str = ""
    """HOST:PORT of a Ray cluster that shares the folder of the runs (empty: a private Ray on this machine)."""
    jobs: int = 0
    """Number of runs at a time on this machine (0: one per core)."""
    cpus_per_run: float = 0.0
    """Processors that Ray reserves per run (0: as many as the run has threads)."""
    gpus_per_run: float = 0.0
    """GPUs that Ray reserves per run."""
    retries: int = RETRIES
    """How often to restart a run whose process or machine died, from its last checkpoint."""
    other_kernels: bool = False
    """Continue runs that started with another backend or instruction set; their environment.json says so."""
    runs: Runs = Path("runs")
    without: OptionalPath = None
    """Skip runs that are finished in this record, such as results."""
    out: OptionalPath = None
    """Folder of the report (None: `report` inside the folder of the runs)."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds between checkpoints; the results do not depend on it."""


def main(argv: list[str], console: Console) -> int:
    options = parse(Options, "reproduce", argv, Options(runs=default_runs()))
    execute = _engine(options)
    from goru.lab.cli.report import write_report
    from goru.lab.data import store
    from goru.lab.engines.display import Display
    from goru.lab.engines.local import plan
    from goru.lab.training.signals import StopOnSignal

    if options.without is not None and not options.without.is_dir():
        raise UsageError(f"--without should be a folder of runs, such as results; {options.without} is none.")
    allow_other_kernels(options.other_kernels)
    store.search_first(options.data_dir)
    configs, left_out = chosen_runs(options)
    jobs = plan(configs, options.runs, options.without)
    if waiting := [job.config for job in jobs if job.state == "waiting"]:
        _check_machine(waiting[0], local=options.engine == "local")
    for reason in left_out:
        console.print(f"skipped: {reason}", soft_wrap=True)
    if options.without is not None and not any(job.directory.exists() or job.state != "skipped" for job in jobs):
        console.print(f"nothing to run: {len(jobs)} of {len(jobs)} runs are finished in {options.without}.")
        return 0
    with StopOnSignal(signal.SIGINT, signal.SIGTERM) as stop:
        with Display(jobs, console) as display:
            execute(
                jobs,
                options.runs,
                retries=options.retries,
                checkpoint_seconds=options.checkpoint_seconds,
                stop=stop,
                refresh=display.refresh,
            )
        if stop():
            again = shlex.join(["goru", "reproduce", *argv])
            raise RunInterruptedError(f"stopped; every run is saved. To continue: {again}")
    failed = [job for job in jobs if job.state in ("failed", "busy", "stopped")]
    try:
        out = options.out or options.runs / "report"
        shown = {paper.experiment(config.experiment).group_of(config.variant) for config in configs}
        write_report(options.runs, out, console, shown)
    finally:
        for reason in left_out:
            console.print(f"skipped: {reason}", soft_wrap=True)
        for job in failed:
            print(f"goru: {job.state}: {job.name}: {job.message}", file=sys.stderr)
    return 1 if failed else 0


def _check_machine(config: RunConfig, local: bool) -> None:
    """Raise LabError, once for all runs, if GORU_BACKEND names no backend, or if this machine lacks the device of a run
    or cannot use it with that backend; the machines of a cluster (not `local`) have their own devices."""
    import torch

    from goru.kernels.backends import BACKENDS, mention_missing, preference
    from goru.lab.training.state import device_of

    try:
        backend, source = preference()
    except ValueError as error:
        raise LabError(f"{error}.") from None
    if local:
        device = device_of(config)
        obstacle = BACKENDS[backend].obstacle(device, torch.float32) if backend in BACKENDS else None
        if obstacle is not None:
            raise LabError(f"the {backend} backend cannot run here ({source}): {obstacle}.")
        if backend == "auto":
            mention_missing()  # the runs' own logs are not shown


def _engine(options: Options) -> Callable[..., None]:
    """The function that executes the runs."""
    processes = options.jobs or os.cpu_count() or 1
    if options.retries < 0 or options.jobs < 0 or min(options.cpus_per_run, options.gpus_per_run) < 0:
        raise UsageError("--jobs, --retries, --cpus-per-run and --gpus-per-run should be at least 0.")
    if options.engine == "local":
        if options.address or options.cpus_per_run or options.gpus_per_run:
            raise UsageError("--address, --cpus-per-run and --gpus-per-run go with --engine ray.")
        from goru.lab.engines.local import run_locally

        return functools.partial(run_locally, processes=processes)
    if options.address and options.jobs:
        raise UsageError("--jobs is for this machine; a cluster takes as many runs as fit (--cpus-per-run).")
    if options.gpus_per_run and options.device == "cpu":
        raise UsageError("--gpus-per-run reserves GPUs that no run would use; add --device cuda.")
    from goru.lab.engines.ray import Cluster, run_on_ray

    cluster = Cluster(options.address, processes, options.cpus_per_run, options.gpus_per_run)
    return functools.partial(run_on_ray, cluster=cluster)


def chosen_runs(options: Options) -> tuple[list[RunConfig], list[str]]:
    """The chosen runs whose data are available, and why others are skipped.

    For an experiment named on the command line, missing data are an error.
    """
    variants, names = options.variants, options.experiments
    if options.tasks:
        with_tasks = {name: one for name, one in paper.EXPERIMENTS.items() if one.parts == "tasks"}
        names = names or tuple(name for name, one in with_tasks.items() if one.paper)
        if variants or not set(names) <= set(with_tasks):
            raise UsageError(f"--tasks goes only with {joined(list(with_tasks))}, without --variants.")
        numbers = [number.strip() for number in options.tasks.split(",")]
        if wrong := [number for number in numbers if not number.isdigit()]:
            raise UsageError(f"--tasks should be numbers joined by commas, such as 1,5,17; got {wrong[0]!r}.")
        variants = tuple(paper.experiment(names[0]).part(int(number)) for number in numbers)
    if not 1 <= options.seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds should be between 1 and {MOST_SEEDS}, got {options.seeds}.")
    configs = paper.grid(
        names,
        models=options.models,
        variants=variants,
        seeds=options.seeds,
        quick=options.quick,
        generated=options.data == "generated",
    )
    configs = [dataclasses.replace(one, threads=options.threads, device=options.device) for one in configs]
    from goru.lab.cli import data

    missing = data.missing(configs)
    named = [reason for experiment, reason in missing.items() if experiment in names]
    if named:
        raise LabError(" ".join(named))
    left_out = [f"{experiment}: {reason}" for experiment, reason in missing.items()]
    return [config for config in configs if config.experiment not in missing], left_out
