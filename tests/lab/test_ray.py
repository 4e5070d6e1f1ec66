"""The grid on Ray: the files of the local engine, whatever dies on the way; one module, one cluster."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from goru.lab import paper
from goru.lab.cli import main
from goru.lab.engines import process, worker
from goru.lab.engines import ray as engine_ray
from goru.lab.engines.local import Job, plan, run_locally
from goru.lab.engines.ray import Cluster, run_on_ray
from goru.lab.errors import LabError, RunInterruptedError, UsageError
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold, read_json, read_metrics
from tests.lab.small import outcome, small
from tests.lab.test_kills import BIG, wait_for

# Ray reads these when it is imported: addresses of this machine stay local, nothing is reported to anyone.
os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
ray: Any = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
    # Ray closes its pipes and files when the interpreter gets to them.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

PATIENCE = 300.0
"""Seconds; a machine that is busy otherwise is no fault."""
NODE = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 80 * 2**20}
QUICK_TO_MISS = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that takes no runs; tests add machines."""
    from ray.cluster_utils import Cluster as Machines

    machines = Machines(True, head_node_args={**NODE, "num_cpus": 0, "_system_config": QUICK_TO_MISS})
    yield machines
    machines.shutdown()


def carry_out(
    configs: Sequence[RunConfig], folder: Path, machines: Any, watch: Callable[[], None] = lambda: None, **options: Any
) -> list[Job]:
    jobs = plan(configs, folder)
    where = Cluster(machines.address if machines else "")
    defaults = {"retries": 3, "checkpoint_seconds": 0.2, "stop": lambda: False, "busy_seconds": 30.0}
    run_on_ray(jobs, folder, where, refresh=watch, **{**defaults, **options})
    return jobs


def holder(directory: Path) -> int | None:
    """The process that works on a run."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) == str(directory / "lock"):
                return int(link.parts[2])
        except OSError:
            continue
    return None


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def step(directory: Path) -> int:
    return max((line["step"] for line in read_metrics(directory)), default=0)


def attempts(directory: Path) -> list[int]:
    return [one["from_step"] for one in json.loads((directory / "environment.json").read_text())["attempts"]]


def test_the_same_files_as_from_the_local_engine(cluster: Any, tmp_path: Path) -> None:
    """Results, and what is told of a run that fails or is busy; a thread more is the run's own matter."""
    configs = [
        small("copying", "goru", {"threads": 2, "layer.hidden_size": 64, "batch": 16}),
        small("copying", "gru", {"optimizer.lr": 3e38}),
        small("copying", "lstm"),
    ]
    machine = cluster.add_node(**NODE, num_cpus=2)
    jobs = {}
    for engine in ("local", "ray"):
        folder = tmp_path / engine
        with hold(configs[2], folder):
            if engine == "ray":
                jobs[engine] = carry_out(configs, folder, cluster, busy_seconds=0.0)
            else:
                jobs[engine] = plan(configs, folder)
                nothing = {"stop": lambda: False, "refresh": lambda: None}
                run_locally(jobs[engine], folder, processes=2, checkpoint_seconds=30, **nothing)
    assert [job.state for job in jobs["ray"]] == ["finished", "failed", "busy"]
    for ours, local in zip(jobs["ray"], jobs["local"], strict=True):
        assert ours.state == local.state
        assert ours.message.replace("ray", "local") == local.message.replace("ray", "local")
    assert outcome(jobs["ray"][0].directory) == outcome(jobs["local"][0].directory)
    environment = read_json(jobs["ray"][0].directory / "environment.json")
    assert environment is not None
    assert (environment["engine"], environment["threads"]) == ("ray", 2)
    assert not list((tmp_path / "ray").glob(".grid*"))
    # What is finished is skipped.
    assert [job.state for job in plan(configs, tmp_path / "ray")] == ["skipped", "waiting", "waiting"]
    cluster.remove_node(machine)


def test_workers_and_machines_die(cluster: Any, tmp_path: Path) -> None:
    """kill -9 of a run's process and of Ray's own, a machine lost, another one added: the same results."""
    first, second = (small("copying", "gru", BIG | {"eval_every": 100}, steps=800, seed=seed) for seed in (0, 1))
    directory, other = (config.directory(tmp_path / "ray") for config in (first, second))
    machines = [cluster.add_node(**NODE, num_cpus=2)]
    done: list[str] = []

    def saved(run: Path) -> bool:
        """Whether it has begun and would not start from the beginning again."""
        return step(run) >= 20 and (run / "checkpoint.safetensors").exists()

    def watch() -> None:
        pid, its = holder(directory), holder(other)
        if len(done) < 3 and its is not None and saved(other):
            os.kill(its, signal.SIGSTOP)  # so that it is still there when its machine goes
        if pid is None:
            return
        if not done and saved(directory):
            os.kill(pid, signal.SIGKILL)
            done.append("run")
        elif len(done) == 1 and len(attempts(directory)) == 2 and step(directory) >= 60:
            os.kill(parent(pid), signal.SIGKILL)
            done.append("worker")
        elif len(done) == 2 and len(attempts(directory)) == 3 and step(directory) >= 100 and saved(other):
            cluster.remove_node(machines.pop(), allow_graceful=False)
            machines.append(cluster.add_node(**NODE, num_cpus=2))
            done.append("machine")

    jobs = carry_out([first, second], tmp_path / "ray", cluster, watch)
    assert done == ["run", "worker", "machine"]
    assert [(job.state, job.message) for job in jobs] == [("finished", ""), ("finished", "")]
    for config in (first, second):
        train(config, tmp_path / "whole")
        assert outcome(config.directory(tmp_path / "ray")) == outcome(config.directory(tmp_path / "whole"))
    assert len(attempts(directory)) == 4
    assert len(attempts(other)) == 2
    assert min(attempts(directory)[1:] + attempts(other)[1:]) > 0, "started from the beginning"
    cluster.remove_node(machines.pop())


def test_the_driver_dies_and_is_started_again(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Then Ctrl-C, and a run killed more often than is allowed."""
    machine = cluster.add_node(**NODE, num_cpus=1)
    config = small("copying", "gru", BIG, steps=100_000)
    directory = config.directory(tmp_path)
    program = (
        "import sys; from pathlib import Path; from tests.lab.test_ray import carry_out, small, BIG\n"
        "class Machines: address = sys.argv[1]\n"
        "carry_out([small('copying', 'gru', BIG, steps=100_000)], Path(sys.argv[2]), Machines)"
    )
    root = str(Path(__file__).parents[2])
    driver = subprocess.Popen([sys.executable, "-c", program, cluster.address, str(tmp_path)], cwd=root)
    try:
        wait_for(lambda: (directory / "checkpoint.safetensors").exists(), PATIENCE)
        assert main(["status", "--runs", str(tmp_path)]) == 0
        assert capsys.readouterr().out.count("running") == 1
    finally:
        driver.kill()
        driver.wait()
    assert list(tmp_path.glob(".grid*"))
    before = step(directory)

    (job,) = carry_out([config], tmp_path, cluster, stop=lambda: step(directory) > before + 10)
    assert job.state == "stopped"
    assert not list(tmp_path.glob(".grid*"))
    wait_for(lambda: not runs.is_alive(directory))
    saved = runs.RunDirectory(directory, config).load_checkpoint()
    assert saved is not None
    stopped_at = saved[1]["step"]
    assert stopped_at >= before + 10
    assert not (directory / "failure.json").exists()

    def kill() -> None:
        if (pid := holder(directory)) is not None and attempts(directory)[-1] == stopped_at:
            os.kill(pid, signal.SIGKILL)

    (job,) = carry_out([config], tmp_path, cluster, kill, retries=0, checkpoint_seconds=1e9)
    assert job.state == "failed"
    assert job.message == "its process or machine died 1 times; run the same command again to continue."
    cluster.remove_node(machine)


def listening(pids: set[str]) -> set[str]:
    """The addresses at which these processes listen, in hexadecimal as the kernel tells them."""
    inodes = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def family(pid: int) -> set[str]:
    """A process and its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[stat.parts[2]] = stat.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
    found = {str(pid)}
    while more := {child for child, its in parents.items() if its in found} - found:
        found |= more
    return found


def test_a_ray_of_its_own(tmp_path: Path) -> None:
    """From the command line, on this machine alone, ended by Ctrl-C; nothing is left behind."""
    command = [sys.executable, "-m", "goru.lab", "reproduce", "copying", "--quick", "--models", "gru"]
    arguments = ["--runs", str(tmp_path), "--engine", "ray", "--jobs", "1"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (directory,) = [run.directory(tmp_path) for run in paper.grid(["copying"], models=["gru"], quick=True)]
    try:
        wait_for(lambda: len(read_metrics(directory)) > 2, PATIENCE)
        everyone = family(process.pid)
        addresses = listening(everyone)
    finally:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == RunInterruptedError.exit_code, errors
    assert errors.splitlines() == [
        "goru: stopped; every run is saved. To continue: "
        f"goru reproduce copying --quick --models gru {' '.join(arguments)}"
    ]
    assert "running  copying/quick/gru/seed0" in output
    assert (directory / "checkpoint.safetensors").exists()
    # 127.0.0.1, plainly and inside IPv6.
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert addresses
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everyone))


# What goes wrong


@pytest.fixture
def one_job(tmp_path: Path) -> list[Job]:
    return plan([small("copying", "gru")], tmp_path)


def failure(jobs: list[Job], folder: Path, address: str, **more: Any) -> str:
    nothing = {"retries": 0, "checkpoint_seconds": 30, "stop": lambda: False, "refresh": lambda: None}
    with pytest.raises(LabError) as error:
        run_on_ray(jobs, folder, Cluster(address, **more), **nothing)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_without_ray(one_job: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert (
        'needs Ray (import of ray halted; None in sys.modules): pip install -c constraints.txt ".[ray]" in a checkout'
        in failure(one_job, tmp_path, "")
    )


def test_an_address_that_does_not_answer(one_job: list[Job], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.monotonic()
    said = failure(one_job, tmp_path, f"127.0.0.1:{port}")
    assert said.startswith(f"127.0.0.1:{port} does not answer (Connection refused); start one there with `ray start")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        assert "is not a Ray cluster" in failure(one_job, tmp_path, f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert time.monotonic() - started < 5
    for wrong in ("auto", "ray://127.0.0.1:10001", "127.0.0.1", ":1"):
        with pytest.raises(UsageError, match="--address should be HOST:PORT"):
            run_on_ray(
                one_job, tmp_path, Cluster(wrong), retries=0, checkpoint_seconds=30, stop=bool, refresh=lambda: None
            )


def test_machines_that_are_not_fit(cluster: Any, one_job: list[Job], tmp_path: Path) -> None:
    machine = cluster.add_node(**NODE, num_cpus=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_ray, "_mark", lambda runs: contextlib.nullcontext(runs / ".nothing"))
        said = failure(one_job, tmp_path, cluster.address)
    assert said.startswith(f"{socket.gethostname()} does not share {tmp_path} and its locks; ")
    assert one_job[0].state == "waiting"
    said = failure(one_job, tmp_path, cluster.address, cpus_per_run=3.0)
    assert said.startswith("no machine of the cluster has 3 processors and 0 GPUs for a run; ")
    cluster.remove_node(machine)
    client = ray._raylet.GcsClient(address=cluster.address)
    key = b"CLUSTER_METADATA"
    true = client.internal_kv_get(key, b"cluster")
    assert true is not None
    client.internal_kv_put(key, json.dumps(json.loads(true) | {"ray_version": "1.0"}).encode(), True, b"cluster")
    said = failure(one_job, tmp_path, cluster.address)
    client.internal_kv_put(key, true, True, b"cluster")
    assert said.startswith(f"the cluster at {cluster.address} has other versions (Ray: 1.0, Python: 3.")
    assert f"here Ray {ray.__version__}" in said


def test_a_machine_that_does_not_share_the_folder(tmp_path: Path) -> None:
    versions = {name: process.version(name) for name in process.SAME_PACKAGES}
    mark = tmp_path / ".grid"
    for make in (lambda: None, mark.touch):
        make()
        script, problem = process.ready(str(mark), versions)
        assert f"does not share {tmp_path} and its locks; take a folder" in problem
        assert not script
    with mark.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert process.ready(str(mark), versions) == (worker.__file__, "")
        _, problem = process.ready(str(mark), versions | {"torch": "1.0"})
        assert problem.endswith(
            f"has torch {versions['torch']}, this machine 1.0; install the same version on all machines."
        )


def test_planted_marks_neither_block_nor_lead_elsewhere(tmp_path: Path) -> None:
    """A pipe with the name of a mark, a link to someone's file."""
    (tmp_path / "treasure").write_text("mine")
    os.mkfifo(tmp_path / ".grid-pipe")
    (tmp_path / ".grid-link").symlink_to(tmp_path / "treasure")
    code = "import sys; from pathlib import Path; from goru.lab.engines.ray import _mark\n"
    code += "with _mark(Path(sys.argv[1])): pass"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=True)
    assert (tmp_path / "treasure").read_text() == "mine"


def test_the_settings_of_the_engine_go_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the machine that carries it out: by them data are found and arithmetic is set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GORU_DATA", f"here{os.pathsep}/there")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    settings = engine_ray._settings()
    assert settings["GORU_DATA"] == f"{tmp_path}/here{os.pathsep}/there"
    assert settings["OMP_NUM_THREADS"] == "3"
    monkeypatch.setenv("GORU_BACKEND", "nonsense")
    config = small("copying", "goru", steps=2)
    with engine_ray._mark(tmp_path) as mark:
        told = process.carry_out(config.to_json(), str(tmp_path), "", str(mark), 30.0, settings, {}, 0.0)
        assert list(told) == [socket.gethostname(), (0, "the process ended with exit code 0.")]
    assert not mark.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--address", "127.0.0.1:1"], "go with --engine ray"),
        (["--gpus-per-run", "1"], "go with --engine ray"),
        (["--engine", "ray", "--address", "127.0.0.1:1", "--jobs", "2"], "--jobs is for this machine"),
        (["--engine", "ray", "--gpus-per-run", "1"], "add --device cuda"),
        (["--engine", "ray", "--retries", "-1"], "should be at least 0"),
        (["--engine", "rai"], "ray"),
    ],
)
def test_options(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "copying", "--quick", "--runs", str(tmp_path), *options]) == 2
    output = capsys.readouterr()
    assert said in output.err + output.out


def test_addresses() -> None:
    assert engine_ray._split("10.0.0.1:6379") == ("10.0.0.1", 6379)
    assert engine_ray._split("[::1]:6379") == ("::1", 6379)
    for address in ("::1:6379", "host", "host:", ":1", "a/b:1", "host:99999"):
        with pytest.raises(UsageError, match="HOST:PORT"):
            engine_ray._split(address)
