"""Run directories: locks, atomic files, damaged checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from goru.lab.engines.local import plan
from goru.lab.errors import LabError, RunBusyError
from goru.lab.training import run_directory as runs
from goru.lab.training.config import override
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold
from tests.lab.small import outcome, small

CONFIG = small("copying", "gru")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after 13 steps."""
    stop_after(tmp_path, 13)
    return CONFIG.directory(tmp_path)


def stop_after(folder: Path, steps: int) -> None:
    count = iter(range(1, 1000))
    with pytest.raises(LabError, match=f"stopped at step {steps} of 40"):
        train(CONFIG, folder, stop=lambda: next(count) == steps)


def test_files(tmp_path: Path) -> None:
    result = train(CONFIG, tmp_path)
    directory = CONFIG.directory(tmp_path)
    assert {file.name for file in directory.iterdir()} == {
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "checkpoint.safetensors",
        "manifest.json",
        "result.json",
        "lock",
    }
    assert runs.read_config(directory) == CONFIG
    environment = json.loads((directory / "environment.json").read_text())
    assert environment["threads"] == 1
    assert {"versions", "processor", "engine", "host", "platform"} <= set(environment)
    assert runs.read_json(directory / "result.json") == result
    assert runs.find(tmp_path) == [directory]


def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    train(CONFIG, tmp_path)
    files = sorted(CONFIG.directory(tmp_path).iterdir())
    before = [(file.stat().st_mtime_ns, file.read_bytes()) for file in files]
    train(CONFIG, tmp_path)
    assert [(file.stat().st_mtime_ns, file.read_bytes()) for file in files] == before


def test_second_process_leaves(tmp_path: Path) -> None:
    # Two descriptors of one process exclude each other like those of two processes.
    with hold(CONFIG, tmp_path) as run:
        assert runs.is_alive(run.path)
        with pytest.raises(RunBusyError, match="another process is working on"):
            train(CONFIG, tmp_path)
        assert not (run.path / "failure.json").exists()
    assert not runs.is_alive(CONFIG.directory(tmp_path))
    train(CONFIG, tmp_path)


def test_looking_at_a_run_does_not_stop_it(tmp_path: Path) -> None:
    """A reader's look at the lock must not make a starting run believe that it is busy."""
    with hold(CONFIG, tmp_path) as run:
        lock = os.open(run.path / "lock", os.O_RDONLY)
    import fcntl
    import threading

    fcntl.flock(lock, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, [lock]).start()
    with hold(CONFIG, tmp_path):
        pass


def test_another_configuration_is_another_run(stopped: Path, tmp_path: Path) -> None:
    other = override(CONFIG, {"optimizer.lr": 0.5})
    with pytest.raises(LabError, match=r"optimizer\.lr 0\.001 there, 0\.5 here"):
        train(other, tmp_path)
    # The directory is as it was, and its own run goes on.
    train(CONFIG, tmp_path)


def damaged_flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(3)}, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-10]), "cannot be read"),
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (lambda path: path.write_bytes(os.urandom(5000)), "cannot be read"),
        (damaged_flip, "checksum does not match"),
        (foreign, "was not written by this laboratory"),
    ],
    ids=["truncated", "empty", "noise", "bit-flip", "foreign"],
)
def test_unusable_checkpoints(stopped: Path, tmp_path: Path, damage, message: str) -> None:
    checkpoint = stopped / "checkpoint.safetensors"
    damage(checkpoint)
    content = checkpoint.read_bytes()
    with pytest.raises(LabError, match=message) as error:
        train(CONFIG, tmp_path)
    assert str(error.value).endswith("delete it to start this run from the beginning.")
    assert "\n" not in str(error.value)
    assert checkpoint.read_bytes() == content  # kept: it may be evidence, or all that there is
    checkpoint.unlink()
    train(CONFIG, tmp_path)
    assert outcome(stopped)["result"]["step"] == 40


def test_checkpoint_of_another_configuration(stopped: Path, tmp_path: Path) -> None:
    other = override(CONFIG, {"seed": 1})
    directory = other.directory(tmp_path)
    directory.mkdir(parents=True)
    (directory / "checkpoint.safetensors").write_bytes((stopped / "checkpoint.safetensors").read_bytes())
    with pytest.raises(LabError, match="belongs to another configuration"):
        train(other, tmp_path)


def test_metrics_shorter_than_the_checkpoint(stopped: Path, tmp_path: Path) -> None:
    (stopped / "metrics.jsonl").write_text("")
    with pytest.raises(LabError, match=r"relies on \d+ bytes of metrics\.jsonl, which has 0; delete it to start"):
        train(CONFIG, tmp_path)


def change_metrics(directory: Path, line: int) -> None:
    """Another digit in a line of the metrics, which keep their length."""
    file = directory / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    name = '"test_loss": ' if "test_loss" in lines[line] else '"loss": '
    before, _, after = lines[line].partition(name)
    lines[line] = before + name + str((int(after[0]) + 1) % 10) + after[1:]
    file.write_text("".join(lines))


def test_changed_metrics_are_never_sealed(stopped: Path, tmp_path: Path) -> None:
    change_metrics(stopped, 0)
    with pytest.raises(LabError, match=r"relies on the first \d+ bytes of metrics\.jsonl, which have changed; delete"):
        train(CONFIG, tmp_path)
    assert not (stopped / "manifest.json").exists()


def test_metrics_that_changed_between_two_checkpoints(tmp_path: Path) -> None:
    """The one before does not rely on the changed line: the run goes on from there and writes the line anew."""
    for stop in (13, 3):
        count = iter(range(1, 1000))
        with pytest.raises(LabError, match="stopped at"):
            train(CONFIG, tmp_path, stop=lambda count=count, stop=stop: next(count) == stop)
    directory = CONFIG.directory(tmp_path)
    change_metrics(directory, -1)
    train(CONFIG, tmp_path)
    train(CONFIG, tmp_path / "whole")
    assert outcome(directory) == outcome(CONFIG.directory(tmp_path / "whole"))
    attempts = json.loads((directory / "environment.json").read_text())["attempts"]
    assert [attempt["from_step"] for attempt in attempts] == [0, 13, 13]
    assert "bytes of metrics.jsonl, which have changed; continued from the one before it" in attempts[2]["notes"][0]


def test_what_a_kill_leaves_is_cleared(stopped: Path, tmp_path: Path) -> None:
    (stopped / ".checkpoint.safetensors.0123abcd.tmp").write_bytes(b"half a checkpoint")
    with (stopped / "metrics.jsonl").open("a") as file:
        file.write('{"step": 15, "loss": 9.9}\n{"step": 20, "lo')
    assert runs.read_metrics(stopped)[-1]["loss"] == 9.9  # readers leave out the half line
    train(CONFIG, tmp_path)
    train(CONFIG, tmp_path / "whole")
    assert not list(stopped.glob(".*.tmp"))
    assert outcome(stopped) == outcome(CONFIG.directory(tmp_path / "whole"))


def test_a_failure_is_noted_until_the_next_attempt(stopped: Path, tmp_path: Path) -> None:
    checkpoint = stopped / "checkpoint.safetensors"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(b"")
    with pytest.raises(LabError):
        train(CONFIG, tmp_path)
    failure = runs.read_json(stopped / "failure.json")
    assert failure is not None
    assert "cannot be read" in failure["message"]
    checkpoint.write_bytes(content)
    train(CONFIG, tmp_path)
    assert not (stopped / "failure.json").exists()


def test_damaged_configuration_file(stopped: Path, tmp_path: Path) -> None:
    (stopped / "config.json").write_text("{")
    with pytest.raises(LabError, match="not valid JSON"):
        train(CONFIG, tmp_path)


def test_a_finished_run_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    train(CONFIG, tmp_path)
    assert [job.state for job in plan([CONFIG], tmp_path)] == ["skipped"]
    assert [job.state for job in plan([override(CONFIG, {"threads": 2})], tmp_path)] == ["skipped"]
    (job,) = plan([override(CONFIG, {"optimizer.lr": 0.5})], tmp_path)
    assert job.state == "failed"
    assert "holds another configuration (optimizer.lr" in job.message
    assert "0.5 here); choose another --variant or --runs." in job.message


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_planted_link_is_not_followed(name: str, tmp_path: Path) -> None:
    """A run directory of a stranger: a link in place of a file that is opened for writing."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    directory = CONFIG.directory(tmp_path / "runs")
    directory.mkdir(parents=True)
    (directory / name).symlink_to(treasure)
    with pytest.raises(LabError, match="cannot write to"):
        train(CONFIG, tmp_path / "runs")
    assert treasure.read_text() == "mine"
    (directory / name).unlink()
    os.mkfifo(directory / name)
    with pytest.raises(LabError, match="is not a regular file"):
        train(CONFIG, tmp_path / "runs")


@pytest.mark.parametrize("depth", range(4))
def test_a_run_directory_below_a_link(depth: int, tmp_path: Path) -> None:
    """No folder between the runs and a run's files may be a link; the folder of the runs itself may."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    directory = CONFIG.directory(tmp_path / "runs")
    link = [directory, *directory.parents][depth]
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match="is a link: name the folder that it points to"):
        train(CONFIG, tmp_path / "runs")
    assert not list((tmp_path / "elsewhere").iterdir())
    link.unlink()
    assert train(CONFIG, tmp_path / "runs")["step"] == 40


@pytest.fixture
def saved_twice(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 12 and 13."""
    count = iter(range(1, 1000))
    with pytest.raises(LabError, match="stopped at step 13"):
        train(CONFIG, tmp_path, checkpoint_seconds=0, stop=lambda: next(count) == 13)
    return CONFIG.directory(tmp_path)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.write_bytes(b""), "cannot be read"),
        (damaged_flip, "is damaged (its checksum does not match)"),
        (foreign, "was not written by this laboratory"),
        (lambda path: (path.unlink(), path.mkdir()), "is not a regular file"),
    ],
    ids=["empty", "bit-flip", "foreign", "directory"],
)
def test_one_damaged_checkpoint_costs_a_few_steps(saved_twice: Path, tmp_path: Path, damage, why: str) -> None:
    checkpoint = saved_twice / "checkpoint.safetensors"
    damage(checkpoint)
    train(CONFIG, tmp_path, checkpoint_seconds=0)
    train(CONFIG, tmp_path / "whole")
    assert outcome(saved_twice) == outcome(CONFIG.directory(tmp_path / "whole"))
    attempts = json.loads((saved_twice / "environment.json").read_text())["attempts"]
    assert [attempt["from_step"] for attempt in attempts] == [0, 12]
    (note,) = attempts[1]["notes"]
    assert note.startswith(f"checkpoint.safetensors {why}")
    assert note.endswith("; continued from the one before it")
    assert (saved_twice / "checkpoint.damaged.safetensors").exists()  # evidence, and never taken for a good one


def test_two_damaged_checkpoints(saved_twice: Path, tmp_path: Path) -> None:
    for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
        damaged_flip(saved_twice / name)
    before = {file.name: file.read_bytes() for file in saved_twice.glob("*.safetensors")}
    with pytest.raises(LabError, match=r"delete it and checkpoint\.previous\.safetensors to start this run"):
        train(CONFIG, tmp_path)
    assert {file.name: file.read_bytes() for file in saved_twice.glob("*.safetensors")} == before
    for name in before:
        (saved_twice / name).unlink()
    assert train(CONFIG, tmp_path)["step"] == 40


def test_a_kill_between_the_two_renames(saved_twice: Path, tmp_path: Path) -> None:
    os.replace(saved_twice / "checkpoint.safetensors", saved_twice / "checkpoint.previous.safetensors")
    with pytest.raises(LabError, match="holds another configuration"):
        train(override(CONFIG, {"optimizer.lr": 0.5}), tmp_path)
    assert train(CONFIG, tmp_path)["step"] == 40
    train(CONFIG, tmp_path / "whole")
    assert outcome(saved_twice) == outcome(CONFIG.directory(tmp_path / "whole"))


def test_a_kill_that_cost_the_end_of_the_metrics(saved_twice: Path, tmp_path: Path) -> None:
    """Power loss: the checkpoint is there, the last line of metrics.jsonl is not."""
    content = (saved_twice / "metrics.jsonl").read_bytes()
    count = iter(range(1, 1000))
    with pytest.raises(LabError, match="stopped at step 15"):
        train(CONFIG, tmp_path, checkpoint_seconds=0, stop=lambda: next(count) == 2)
    (saved_twice / "metrics.jsonl").write_bytes(content)
    train(CONFIG, tmp_path)
    train(CONFIG, tmp_path / "whole")
    assert outcome(saved_twice) == outcome(CONFIG.directory(tmp_path / "whole"))


def stop_goru(folder: Path) -> Path:
    config = small("copying", "goru")
    count = iter(range(1, 1000))
    with pytest.raises(LabError, match="stopped at step 13"):
        train(config, folder, stop=lambda: next(count) == 13)
    return config.directory(folder)


def test_other_kernels_are_refused_or_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resuming under another backend would change bits without a word."""
    monkeypatch.delenv("GORU_OTHER_KERNELS", raising=False)
    monkeypatch.setenv("GORU_BACKEND", "manual")
    directory = stop_goru(tmp_path)
    (first,) = json.loads((directory / "environment.json").read_text())["attempts"]
    assert first["backend"] == "manual"
    assert first["isa"]
    assert first["versions"]["torch"] == torch.__version__
    before = {file.name: file.read_bytes() for file in directory.iterdir() if file.name != "failure.json"}
    monkeypatch.setenv("GORU_BACKEND", "reference")
    with pytest.raises(LabError, match=r"was computed with manual .* would continue with reference .*--other-kernels"):
        train(small("copying", "goru"), tmp_path)
    after = {file.name: file.read_bytes() for file in directory.iterdir() if file.name != "failure.json"}
    assert after == before
    monkeypatch.setenv("GORU_OTHER_KERNELS", "1")
    train(small("copying", "goru"), tmp_path)
    second = json.loads((directory / "environment.json").read_text())["attempts"][1]
    assert second["backend"] == "reference"
    assert "computed with manual" in second["notes"][0]


@pytest.mark.parametrize("damage", ["{", '{"attempts": []}', '{"attempts": [1]}', '{"attempts": [{}]}', None])
def test_other_kernels_are_refused_without_the_environment(
    damage: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint names the kernels too."""
    monkeypatch.delenv("GORU_OTHER_KERNELS", raising=False)
    monkeypatch.setenv("GORU_BACKEND", "manual")
    directory = stop_goru(tmp_path)
    (directory / "environment.json").unlink()
    if damage is not None:
        (directory / "environment.json").write_text(damage)
    checkpoint = (directory / "checkpoint.safetensors").read_bytes()
    monkeypatch.setenv("GORU_BACKEND", "reference")
    with pytest.raises(LabError, match=r"was computed with manual .* would continue with reference .*--other-kernels"):
        train(small("copying", "goru"), tmp_path)
    assert (directory / "checkpoint.safetensors").read_bytes() == checkpoint
    monkeypatch.setenv("GORU_BACKEND", "manual")
    assert train(small("copying", "goru"), tmp_path)["step"] == 40


def test_a_backend_that_does_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GORU_BACKEND", "evil")
    with pytest.raises(LabError, match=r"GORU_BACKEND must be one of .*, got 'evil'"):
        train(small("copying", "goru"), tmp_path)
