"""One training over two processes: the gradients of the whole batch, one checkpoint, one writer, one voice."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from goru.lab.cli import main
from goru.lab.errors import LabError, RunBusyError, RunInterruptedError
from goru.lab.training import distributed
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig, override
from goru.lab.training.distributed import DistributedTraining, Group
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold, read_metrics
from goru.lab.training.state import Training
from tests.lab.small import SMALL, outcome, save, small
from tests.lab.test_kills import BIG, PROCESSES, children, wait_for

SIZE = 2

# Every task; every cell; rows that two cannot halve; a last batch with fewer rows than processes.
CASES = {
    **{f"{name}-goru": (small(name, "goru", {"batch": 5}), 1) for name in SMALL},
    **{f"copying-{model}": (small("copying", model), 1) for model in ("eurnn-real", "eurnn-complex", "gru", "lstm")},
    "no-gates": (small("penn_treebank", "goru-no-reset", {"layer.update_gate": False}), 2),
    "one-row": (small("shortest_path", "goru", {"batch": 37}), 1),
    "one-row-adam": (small("babi", "gru", {"batch": 53}), 1),
}


def learn(config: RunConfig, step: int, group: Group | None) -> dict[str, Tensor]:
    """Loss and gradients of a step in double precision, and the state carried on."""
    torch.set_default_dtype(torch.float64)
    if group is None:
        training = Training(config)
    else:
        training = DistributedTraining(config)
        training.join(group)
    loss = 0.0
    for k in range(step + 1):
        batch = training.problem.batch(k)
        parts = [p.double() if isinstance(p, Tensor) and p.is_floating_point() else p for p in batch]
        loss = training.learn(type(batch)(*parts))
    found = {name: p.grad for name, p in training.network.named_parameters() if p.grad is not None}
    assert len(found) == len(list(training.network.parameters()))
    carried = {f"carry/{k}": state for k, state in enumerate(training.all_carried())}
    torch.set_default_dtype(torch.float32)
    return {"loss": torch.tensor(loss, dtype=torch.float64), **found, **carried}


def member(rank: int, folder: Path, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """A process of a group; it says in a file how it ended."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=SIZE)
    try:
        work(Group(rank, SIZE), *arguments)
        said = "ended"
    except LabError as error:
        said = f"{type(error).__name__}: {error}"
    except SystemExit as silent:
        said = f"silent {silent.code}"
    (folder / f"said{rank}").write_text(said)


def together(folder: Path, work: Callable[..., object], *arguments: Any) -> list[str]:
    """Let a group do something; returns how each of its processes ended."""
    folder.mkdir(parents=True)
    members = [PROCESSES.Process(target=member, args=(rank, folder, work, arguments)) for rank in range(SIZE)]
    for one in members:
        one.start()
    for one in members:
        one.join(120)
        assert one.exitcode is not None, "it hangs"
    said = [folder / f"said{rank}" for rank in range(SIZE)]
    return [file.read_text() if file.exists() else "died" for file in said]


def learn_all(group: Group, folder: Path) -> None:
    for name, (config, step) in CASES.items():
        save_file({k: v.contiguous() for k, v in learn(config, step, group).items()}, folder / f"{name}{group.rank}")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("learned")
    assert together(folder / "group", learn_all, folder) == ["ended", "ended"]
    return folder


@pytest.mark.parametrize("name", list(CASES))
def test_gradients_are_those_of_one_process(name: str, learned: Path) -> None:
    config, step = CASES[name]
    alone = learn(config, step, None)
    for rank in range(SIZE):
        shared = load_file(learned / f"{name}{rank}")
        assert shared.keys() == alone.keys()
        for key, expected in alone.items():
            # Sums over at most some thousand terms, in another order.
            torch.testing.assert_close(shared[key], expected, rtol=1e-10, atol=1e-13, msg=lambda m, k=key: f"{k}: {m}")


def train_apart(group: Group, config: RunConfig, folder: Path, stop_after: int = 10**9) -> None:
    """Train with a folder of its own for each process."""
    asked = iter(range(1, 10**9))
    stop = lambda: next(asked) >= stop_after  # noqa: E731
    distributed.train(config, folder / str(group.rank), group, checkpoint_seconds=0, stop=stop)


def test_stopped_and_resumed_by_any_number_of_processes(tmp_path: Path) -> None:
    """Twice with two is the same to the bit; two, one, two is close to one; the first process alone writes."""
    config = small("penn_treebank", "goru", {"batch": 5}, steps=30)
    assert together(tmp_path / "a", train_apart, config, tmp_path / "whole") == ["ended", "ended"]
    stopped = ["RunInterruptedError: stopped at step 12 of 30.", "silent 130"]
    assert together(tmp_path / "b", train_apart, config, tmp_path / "pieces", 12) == stopped
    saved = runs.RunDirectory(config.directory(tmp_path / "pieces" / "0"), config).load_checkpoint()
    assert saved is not None
    assert saved[0]["carry/0"].shape == (1, 5, 8)
    (tmp_path / "mixed").mkdir()
    subprocess.run(["cp", "-r", str(tmp_path / "pieces" / "0"), str(tmp_path / "mixed" / "0")], check=True)
    assert together(tmp_path / "c", train_apart, config, tmp_path / "pieces") == ["ended", "ended"]
    whole = outcome(config.directory(tmp_path / "whole" / "0"))
    assert outcome(config.directory(tmp_path / "pieces" / "0")) == whole

    asked = iter(range(1, 100))
    with pytest.raises(RunInterruptedError, match="stopped at step 20 of 30"):
        train(config, tmp_path / "mixed" / "0", stop=lambda: next(asked) >= 8)
    assert together(tmp_path / "d", train_apart, config, tmp_path / "mixed") == ["ended", "ended"]
    train(config, tmp_path / "one")
    one, mixed = (config.directory(tmp_path / name) for name in ("one", "mixed/0"))
    for expected, found in zip(outcome(one)["metrics"], outcome(mixed)["metrics"], strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    environment = json.loads((mixed / "environment.json").read_text())
    assert [(a["from_step"], a["processes"]) for a in environment["attempts"]] == [(0, 2), (12, 1), (20, 2)]
    for folder in ("whole", "pieces", "mixed"):
        assert [path.name for path in (tmp_path / folder).iterdir()] == ["0"]


def fail_alone(group: Group, config: RunConfig, folder: Path, rank: int, kind: str) -> None:
    if kind == "busy" and group.first:
        with hold(config, folder):
            distributed.train(config, folder, group)
    steps = iter(range(100))

    def stop() -> bool:
        if next(steps) == 5 and group.rank == rank:
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise LabError("mine")
        return False

    distributed.train(config, folder, group, stop=stop if kind != "diverges" else lambda: False)


@pytest.mark.parametrize(
    ("kind", "rank", "said"),
    [
        ("error", 0, ["LabError: mine", "LabError: process 1 of 2 lost another one"]),
        ("error", 1, ["LabError: process 0 of 2 lost another one", "LabError: mine"]),
        ("killed", 1, ["LabError: process 0 of 2 lost another one", "died"]),
        ("busy", 0, ["RunBusyError: another process is working on", f"silent {RunBusyError.exit_code}"]),
        ("diverges", 0, ["RunEndedError: the loss became ", "silent 1"]),
    ],
)
def test_what_ends_one_ends_all(kind: str, rank: int, said: list[str], tmp_path: Path) -> None:
    config = small("copying", "gru", {"optimizer.lr": 3e38} if kind == "diverges" else None)
    started = time.monotonic()
    ended = together(tmp_path / "group", fail_alone, config, tmp_path / "runs", rank, kind)
    assert [one.startswith(start) for one, start in zip(ended, said, strict=True)] == [True, True], ended
    assert time.monotonic() - started < 60
    assert not runs.is_alive(config.directory(tmp_path / "runs"))


def test_torchrun(tmp_path: Path) -> None:
    """As a user starts it: Ctrl-C, one voice, then on with one process."""
    config = small("penn_treebank", "goru", BIG | {"batch": 5}, steps=2000)
    directory = config.directory(tmp_path)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "goru.lab", "run", "--config", save(config, tmp_path / "config.json"), "--runs", str(tmp_path)]
    process = subprocess.Popen([*torchrun, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: len(read_metrics(directory)) > 2, 300)
    finally:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)
    said = [line for line in errors.splitlines() if line.startswith("goru: ")]
    assert len(said) == 1, errors
    assert said[0].startswith("goru: stopped at step ")
    assert "lab/cli/" not in errors  # no traceback of ours
    assert output.count("running  penn_treebank/small/goru/seed0") == 1
    saved = runs.RunDirectory(directory, config).load_checkpoint()
    assert saved is not None
    assert f"stopped at step {saved[1]['step']} of 2000" in said[0]
    before = saved[1]["step"]
    with pytest.raises(RunInterruptedError):
        train(config, tmp_path, stop=lambda: True)
    saved = runs.RunDirectory(directory, config).load_checkpoint()
    assert saved is not None
    assert saved[1]["step"] == before + 1
    assert math.isfinite(saved[1]["loss_sum"])


def listening(pids: set[int]) -> set[str]:
    """The addresses that processes listen on, in the kernel's spelling (0100007F is 127.0.0.1)."""
    sockets = set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(descriptor)
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in sockets:
                found.add(local.partition(":")[0])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_of_one_machine_listen_on_loopback_alone(tmp_path: Path) -> None:
    """As torchrun, but that nobody else can reach the store, which takes pickles."""
    config = small("copying", "gru", BIG | {"batch": 5}, steps=100_000)
    directory = config.directory(tmp_path)
    command = ["run", "--config", save(config, tmp_path / "config.json"), "--runs", str(tmp_path), "--processes", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "goru.lab", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: len(read_metrics(directory)) > 2 or process.poll() is not None, 300)
        workers = children(process.pid)
        addresses = listening({process.pid, *workers})
    finally:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=300)
    assert len(workers) == 2, errors
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert addresses
    assert process.returncode == RunInterruptedError.exit_code, errors
    said = [line for line in errors.splitlines() if line.startswith("goru: ")]
    assert len(said) == 1, errors
    assert said[0].startswith("goru: stopped at step ")
    assert output.count("running  copying/small/gru/seed0") == 1
    environment = runs.read_json(directory / "environment.json")
    assert environment is not None
    assert environment["processes"] == 2


def test_processes_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for processes, why in (
        ("0", "--processes should be at least 1; got 0."),
        ("-1", "--processes should be at least 1; got -1."),
        ("9", "--processes 9 needs at least 9 rows in a batch; --batch is 8."),
    ):
        assert main(["run", "copying", "--batch", "8", "--runs", str(tmp_path), "--processes", processes]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said == f"goru: {why}"


def test_dropout_is_refused(tmp_path: Path) -> None:
    """What is dropped would depend on the number of processes; nothing is written."""
    config = small("babi", "gru", {"task.dropout": 0.3})
    said = ["LabError: a network with dropout trains in one process", "silent 1"]
    ended = together(tmp_path / "group", train_apart, config, tmp_path / "runs")
    assert [one.startswith(start) for one, start in zip(ended, said, strict=True)] == [True, True], ended
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("from_run", [False, True])
def test_dropout_is_refused_before_processes_start(
    from_run: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`goru run --processes` writes nothing, not even the steps of a run that it would continue."""
    config = small("babi", "gru", {"task.dropout": 0.3, "epochs": 0}, steps=2)
    train(config, tmp_path / "shorter")
    longer = override(config, {"variant": "longer", "steps": 4})
    command = ["run", "--config", save(longer, tmp_path / "config.json"), "--runs", str(tmp_path / "runs")]
    more = ["--from-run", str(config.directory(tmp_path / "shorter"))] if from_run else []
    assert main([*command, "--processes", "2", *more]) == 1
    assert capfd.readouterr().err.startswith("goru: a network with dropout trains in one process: start only one")
    assert not longer.directory(tmp_path / "runs").exists()


def test_more_processes_than_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "9", "RANK": "0", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert main(["run", "copying", "--batch", "8", "--runs", str(tmp_path)]) == 2
    said = "goru: 9 processes cannot share a batch of 8 rows; start at most 8."
    assert capsys.readouterr().err.splitlines() == [said]


def test_a_device_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    for device in ("cuda", "nowhere"):
        assert main(["run", "copying", "--device", device, "--runs", str(tmp_path)]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"goru: --device {device} cannot be used here (")
