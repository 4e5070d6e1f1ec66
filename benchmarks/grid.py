"""How a grid of runs grows: `python -m benchmarks.grid` measures, then renews the tables of docs/scaling.md.

Measured on this machine: short runs by engine, processes and threads; one training by threads and by processes
(torchrun); the calls that a run makes on its folder, counted by strace. Computed from the costs in
`goru.lab.paper`: what the whole paper takes on more machines. Times want an idle machine; the counts do not mind.

    python -m benchmarks.grid --page        the tables from the last measurement, without measuring again
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from goru.lab import paper
from goru.lab.engines.local import Job, plan, run_locally
from goru.lab.engines.ray import Cluster, run_on_ray
from goru.lab.training import environment
from goru.lab.training.config import RunConfig, override
from goru.lab.training.run_directory import read_json, read_metrics

from .tables import Rows, fill, table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "scaling.md"
MEASURED = ROOT / "benchmarks" / "grid.json"

SHORT = {"steps": 100, "task.delay": 60, "task.test_size": 64, "batch": 32, "eval_every": 50, "variant": "short"}
"""Changes that make a run of copying short."""
SHORT_RUNS = 8
SEEDS = 10
MACHINES = (1, 8, 64)
CORES = 2
"""Of the machine that is multiplied: the one that the costs were measured on."""
CHECKPOINT_SECONDS = 30.0


# Measured


def short_runs(folder: Path) -> Rows:
    """Eight short runs of copying (GORU, 128 units, 100 steps), by engine."""
    rows = []
    for engine, processes, threads in (
        ("local", 1, 1), ("local", 2, 1), ("local", 1, 2), ("local", 2, 2), ("ray", 1, 1), ("ray", 2, 1),
    ):  # fmt: skip
        base = override(paper.experiment("copying").config("goru"), {**SHORT, "threads": threads})
        configs = [override(base, {"seed": seed}) for seed in range(SHORT_RUNS)]
        runs = folder / f"{engine}{processes}{threads}"
        started = time.monotonic()
        jobs = _carry_out(configs, runs, engine, processes)
        wall = time.monotonic() - started
        assert all(job.state == "finished" for job in jobs), [job.message for job in jobs]
        working = [(read_json(job.directory / "result.json") or {})["total_seconds"] for job in jobs]
        rows.append(
            {
                "engine": engine,
                "runs at a time": processes,
                "threads per run": threads,
                "seconds for all": wall,
                "runs per minute": 60 * len(jobs) / wall,
                "seconds of training a run": statistics.mean(working),
                "other time per run": (wall * processes - sum(working)) / len(jobs),
            }
        )
    return rows


def _carry_out(configs: Sequence[RunConfig], runs: Path, engine: str, processes: int) -> list[Job]:
    jobs = plan(configs, runs)
    options: dict[str, Any] = {
        "checkpoint_seconds": CHECKPOINT_SECONDS, "stop": lambda: False, "refresh": lambda: None, "retries": 0,
    }  # fmt: skip
    if engine == "local":
        run_locally(jobs, runs, processes=processes, **options)
    else:
        run_on_ray(jobs, runs, Cluster(processes=processes), **options)
    return jobs


def one_training(folder: Path) -> Rows:
    """Steps a second of the paper's language model (GORU, 512 units, 32 lanes, 50 steps; generated text)."""
    rows = []
    for processes, threads in ((1, 1), (1, 2), (2, 1)):
        changes = {"task.characters": 200_000, "steps": 60, "epochs": 0, "log_every": 10, "eval_every": 1000}
        base = paper.experiment("penn_treebank").config("goru", "generated")
        config = override(base, {**changes, "threads": threads, "variant": "scaling"})
        runs = folder / f"training{processes}{threads}"
        runs.mkdir()
        (runs / "config.json").write_text(config.to_json())
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, *launcher, "-m", "goru.lab", "run", "--config", str(runs / "config.json")]
        subprocess.run([*command, "--runs", str(runs)], check=True, capture_output=True)
        lines = [line for line in read_metrics(config.directory(runs)) if "loss" in line]
        speed = statistics.median(line["steps_per_s"] for line in lines[1:])
        rows.append({"processes": processes, "threads each": threads, "steps a second": speed})
    for row in rows:
        row["of one process and thread"] = row["steps a second"] / rows[0]["steps a second"]
    return rows


# Counted

TRACED = "openat,mkdir,read,pread64,write,pwrite64,fsync,fdatasync,rename,unlink,flock,ftruncate,newfstatat,getdents64"
KINDS = {
    "opened": ("openat",),
    "written": ("write", "pwrite64"),
    "synced": ("fsync", "fdatasync"),
    "renamed": ("rename",),
    "other calls": ("mkdir", "read", "pread64", "unlink", "flock", "ftruncate", "newfstatat", "getdents64"),
}


def count_calls(arguments: Sequence[str], runs: Path) -> dict[str, int]:
    """Run a goru command under strace; returns how often it touched the folder of the runs, and bytes written."""
    with tempfile.NamedTemporaryFile("r") as log:
        trace = ["strace", "-f", "-y", "-qq", "-o", log.name, "-e", f"trace={TRACED}"]
        command = [*trace, sys.executable, "-m", "goru.lab", *arguments, "--runs", str(runs)]
        subprocess.run(command, check=True, capture_output=True)
        lines = [line for line in log if str(runs) in line]
    counts = dict.fromkeys([*KINDS, "bytes"], 0)
    for line in lines:
        match = re.match(r"\d+ +(\w+)\(.*= (-?\d+)", line)
        if match is None:
            continue
        call, value = match.group(1), int(match.group(2))
        for kind, calls in KINDS.items():
            counts[kind] += call in calls
        counts["bytes"] += value if call in KINDS["written"] else 0
    return counts


def folder_calls(folder: Path) -> Rows:
    """Calls on the folder of the runs, for a small run; what a checkpoint writes depends on the model."""
    steps = 20
    # Looking at the display would count, too: it is off where nobody watches, but for its first and last line.
    common = ["run", "copying", "--model", "gru", "--delay", "6", "--recall", "2", "--test-size", "8", "--batch", "2"]
    common += ["--hidden-size", "4", "--steps", str(steps), "--eval-every", "1000"]
    whole = count_calls([*common, "--log-every", "1000", "--checkpoint-seconds", "1e9"], folder / "whole")
    logged = count_calls([*common, "--log-every", "1", "--checkpoint-seconds", "1e9"], folder / "logged")
    saved = count_calls([*common, "--log-every", "1000", "--checkpoint-seconds", "0"], folder / "saved")
    looked = count_calls(["status"], folder / "whole")
    rows: Rows = [{"what": "a run from start to end, one checkpoint, two lines", **whole}]
    for what, counts in (("one more logged line", logged), ("one more checkpoint", saved)):
        rows.append({"what": what, **{kind: (counts[kind] - whole[kind]) / steps for kind in whole}})
    rows.append({"what": "a look at a run that has ended (`goru status`)", **looked})
    return rows


def checkpoint_bytes(folder: Path) -> Rows:
    """Bytes of a checkpoint: the paper's models at their sizes, after two steps."""
    from goru.lab.training.loop import train

    rows = []
    for experiment, model in (("copying", "goru"), ("copying", "eurnn-complex"), ("penn_treebank", "goru")):
        one = paper.experiment(experiment)
        config = one.config(model, "generated" if one.generated else "paper")
        changes = {"steps": 2, "epochs": 0, "eval_every": 1000, "variant": "size"}
        changes |= {"task.test_size": 2} if experiment == "copying" else {"task.characters": 20_000}
        config = override(config, {**changes, "batch": 4})
        train(config, folder)
        size = (config.directory(folder) / "checkpoint.safetensors").stat().st_size
        rows.append({"experiment": experiment, "model": model, "bytes": size})
    return rows


# Computed


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Seconds until all are done, when each goes to the first free slot, in order."""
    free = [0.0] * slots
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def whole_paper(seeds: int = SEEDS) -> Rows:
    """All experiments, models, variants and seeds of `goru reproduce` on machines of two cores, a run a core."""
    seconds = [paper.experiment(config.experiment).run_seconds(config) for config in paper.grid(seeds=seeds)]
    rows = []
    for machines in MACHINES:
        slots = machines * CORES
        took = makespan(seconds, slots)
        rows.append(
            {
                "machines": machines,
                "runs": len(seconds),
                "runs at a time": slots,
                "core hours": sum(seconds) / 3600,
                "longest run, hours": max(seconds) / 3600,
                "hours": took / 3600,
                "days": took / 86400,
                "at work": sum(seconds) / slots / took,
            }
        )
    return rows


def folder_load(calls: Rows, sizes: Rows) -> Rows:
    """What runs at full size ask of the folder a second: a checkpoint every 30 seconds, a line every 20 steps."""
    one = {row["what"].split()[-1]: row for row in calls[1:3]}
    experiments = [one for one in paper.EXPERIMENTS.values() if one.paper]
    speeds = [1 / one.step_seconds(one.config(model)) for one in experiments for model in one.models]
    lines = statistics.mean(speeds) / RunConfig.log_every
    largest = max(row["bytes"] for row in sizes)
    rows = []
    for machines in MACHINES:
        runs = machines * CORES
        rows.append(
            {
                "machines": machines,
                "runs at a time": runs,
                "lines written a second": runs * lines,
                "files synced a second": runs * one["checkpoint"]["synced"] / CHECKPOINT_SECONDS,
                "renames a second": runs * one["checkpoint"]["renamed"] / CHECKPOINT_SECONDS,
                "MB written a second, at most": runs * largest / CHECKPOINT_SECONDS / 1e6,
            }
        )
    return rows


# The page


def tables(measured: dict[str, Any]) -> dict[str, str]:
    """The tables of the page by the names of their places."""
    return {
        "machine": f"Measured on {measured['processor']}, {measured['cores']} cores, torch {measured['torch']}, "
        f"load {measured['load']:.1f} before the start."
        + (" **The machine was not idle: times are inflated; counts are exact.**" if measured["load"] > 0.5 else ""),
        "short runs": table(measured["short_runs"]),
        "one training": table(measured["one_training"]),
        "calls": table(measured["calls"]),
        "sizes": table(measured["sizes"]),
        "load": table(folder_load(measured["calls"], measured["sizes"])),
        "paper": table(whole_paper()),
    }


def renew(page: str, measured: dict[str, Any]) -> str:
    """The page with its tables as they should be."""
    return fill(page, tables(measured))


def measure() -> dict[str, Any]:
    measured: dict[str, Any] = {
        "processor": environment.processor(),
        "cores": os.cpu_count(),
        "torch": torch.__version__.partition("+")[0],
        "load": os.getloadavg()[0],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part, work in (
            ("calls", folder_calls), ("sizes", checkpoint_bytes), ("one_training", one_training),
            ("short_runs", short_runs),
        ):  # fmt: skip
            measured[part] = work(folder)
            print(f"\n{work.__doc__}\n\n{table(measured[part])}", flush=True)
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="do not measure")
    if not parser.parse_args().page:
        MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
    PAGE.write_text(renew(PAGE.read_text(), json.loads(MEASURED.read_text())))
    print(f"\nrenewed {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
