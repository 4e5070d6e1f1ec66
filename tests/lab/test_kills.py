"""Processes that die: runs killed at random moments, parents that vanish, Ctrl-C, two at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.errors import RunBusyError, RunInterruptedError
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold, read_metrics
from tests.lab.small import SMALL, goru, outcome, save, small

# Children are forked from a process that has imported torch and done nothing else.
PROCESSES = multiprocessing.get_context("forkserver")
# What a training imports when it first needs it, so that kills come while it works.
PROCESSES.set_forkserver_preload(["goru.library", "torch._dynamo", "goru.lab.training.distributed"])

BIG = {"layer.hidden_size": 64, "batch": 64}
"""Changes that make a run last for seconds."""


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def attempt(config: RunConfig, folder: Path, checkpoint_seconds: float) -> None:
    train(config, folder, checkpoint_seconds=checkpoint_seconds)


def kill_and_resume(config: RunConfig, folder: Path, kills: int, rng: random.Random) -> None:
    """Kill the run at random moments, at least `kills` times while it was at work; then let it end."""
    whole = config.directory(folder / "whole")
    process = PROCESSES.Process(target=attempt, args=(config, folder / "whole", 30.0))
    process.start()
    wait_for(lambda: runs.is_alive(whole) or not process.is_alive())
    started = time.monotonic()
    process.join()
    length = time.monotonic() - started  # making the data ready included: a kill may come there too
    directory = config.directory(folder / "killed")
    done = 0
    while done < kills:
        seconds = rng.choice([0.0, 0.0, length / 20])
        process = PROCESSES.Process(target=attempt, args=(config, folder / "killed", seconds))
        process.start()
        wait_for(lambda process=process: runs.is_alive(directory) or not process.is_alive())
        waited = rng.uniform(0, length)
        time.sleep(waited)
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        done += process.exitcode != 0
        if process.exitcode == 0:  # it takes less time than the first one, which came with a cold start
            length = min(length, waited)
        if (directory / "result.json").exists():  # it was quicker; the rest of the kills hit another run
            compare(whole, directory)
            (directory / "result.json").unlink()
            (directory / "checkpoint.safetensors").unlink()
        process.close()
    train(config, folder / "killed")
    compare(whole, directory)
    environment = json.loads((directory / "environment.json").read_text())
    resumed = [one["from_step"] for one in environment["attempts"]]
    assert len(resumed) > 1
    assert max(resumed) > 0, "no kill came late enough to resume from a checkpoint"


def compare(whole: Path, killed: Path) -> None:
    assert outcome(whole) == outcome(killed)


KILLED = [("copying", "goru"), ("denoise", "gru"), ("parenthesis", "goru")]


@pytest.mark.parametrize(("experiment", "model"), KILLED)
def test_killed_at_random_moments(experiment: str, model: str, tmp_path: Path) -> None:
    kill_and_resume(small(experiment, model, steps=120), tmp_path, 4, random.Random(experiment))


@pytest.mark.soak
@pytest.mark.parametrize("model", ["goru", "eurnn-complex", "gru", "lstm"])
@pytest.mark.parametrize("experiment", list(SMALL))
def test_killed_many_times(experiment: str, model: str, tmp_path: Path) -> None:
    """28 times 36: a thousand kills."""
    for round_ in range(3):
        config = small(experiment, model, steps=150, seed=round_)
        kill_and_resume(config, tmp_path, 12, random.Random(f"{experiment}{model}{round_}"))


def test_two_processes_on_one_run(tmp_path: Path) -> None:
    config = small("copying", "gru")
    with hold(config, tmp_path):
        second = goru("run", "--config", save(config, tmp_path / "config.json"), "--runs", str(tmp_path))
    assert second.returncode == RunBusyError.exit_code
    assert second.stderr.splitlines()[-1].startswith("goru: another process is working on")
    assert read_metrics(config.directory(tmp_path)) == []


def children(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if int(parent) == pid and state != "Z":
            found.append(int(name.split()[0]))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def reproduce(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "goru.lab",
        "reproduce",
        "copying",
        "--quick",
        "--runs",
        str(folder),
        *options,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("moment", ["starting", "working"])
def test_workers_die_with_their_parent(moment: str, tmp_path: Path) -> None:
    parent = reproduce(tmp_path, "--models", "gru", "lstm", "--jobs", "2")
    wait_for(lambda: len(children(parent.pid)) == 2)
    workers = children(parent.pid)
    if moment == "working":
        wait_for(lambda: all(runs.is_alive(path) for path in runs.find(tmp_path)) and len(runs.find(tmp_path)) == 2)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not any(alive(worker) for worker in workers), seconds=1.0)


def test_control_c(tmp_path: Path) -> None:
    """Ctrl-C ends a grid cleanly and says how to go on."""
    process = reproduce(tmp_path, "--models", "gru", "--jobs", "1")
    (directory,) = [run.directory(tmp_path) for run in paper.grid(["copying"], models=["gru"], quick=True)]
    wait_for(lambda: len(read_metrics(directory)) > 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == RunInterruptedError.exit_code
    expected = f"goru reproduce copying --quick --runs {tmp_path} --models gru --jobs 1"
    assert errors.splitlines()[-1] == f"goru: stopped; every run is saved. To continue: {expected}"
    assert (directory / "checkpoint.safetensors").exists()
    assert not (directory / "failure.json").exists()
    assert not runs.is_alive(directory)


def test_control_c_on_one_run(tmp_path: Path) -> None:
    config = small("copying", "gru", BIG, steps=3000)
    file = save(config, tmp_path / "config.json")
    command = [sys.executable, "-m", "goru.lab", "run", "--config", file, "--runs", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    directory = config.directory(tmp_path)
    wait_for(lambda: len(read_metrics(directory)) > 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == RunInterruptedError.exit_code
    said = errors.splitlines()[-1]
    assert said.startswith("goru: stopped at step ")
    assert said.endswith(f"To continue: goru run --config {directory / 'config.json'} --runs {tmp_path}")
    saved = runs.RunDirectory(directory, config).load_checkpoint()
    assert saved is not None
    assert f"stopped at step {saved[1]['step']} of 3000" in said


def test_a_grid_goes_on_when_a_run_fails(tmp_path: Path) -> None:
    """One run damaged, one busy, one killed from outside: the others end, and each tells what befell it."""
    from goru.lab.engines import local as engine

    damaged, busy, good, victim = (
        small("copying", "gru", steps=20, seed=0),
        small("copying", "gru", steps=20, seed=1),
        small("copying", "gru", steps=20, seed=2),
        small("copying", "gru", BIG, steps=100_000, seed=3),
    )
    damaged.directory(tmp_path).mkdir(parents=True)
    (damaged.directory(tmp_path) / "checkpoint.safetensors").write_bytes(b"nothing")
    jobs = engine.plan([damaged, busy, victim, good], tmp_path)
    me = os.getpid()

    def refresh() -> None:
        if runs.is_alive(victim.directory(tmp_path)) and len(read_metrics(victim.directory(tmp_path))) > 1:
            for worker in children(me):
                if str(worker) in victims():
                    os.kill(worker, signal.SIGKILL)

    def victims() -> set[str]:
        lock = victim.directory(tmp_path) / "lock"
        return {part.parts[2] for part in Path("/proc").glob("[0-9]*/fd/*") if _points_to(part, lock)}

    with hold(busy, tmp_path):
        engine.run_locally(
            jobs,
            tmp_path,
            processes=2,
            checkpoint_seconds=30,
            stop=lambda: False,
            refresh=refresh,
            retries=1,
        )
    assert [job.state for job in jobs] == ["failed", "busy", "failed", "finished"]
    assert [job.deaths for job in jobs] == [0, 0, 1, 0]
    assert "cannot be read" in jobs[0].message
    assert "another process is working on" in jobs[1].message
    assert jobs[2].message == "its process was killed by signal 9; run the same command again to continue."
    assert [job.state for job in engine.plan([good, damaged], tmp_path)] == ["skipped", "waiting"]


def _points_to(link: Path, target: Path) -> bool:
    try:
        return os.readlink(link) == str(target)
    except OSError:
        return False
