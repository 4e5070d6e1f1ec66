"""A grid of runs on a Ray cluster: one Ray task per run, which starts the same worker as the local engine.

Ray decides where and when, and restarts a task whose process or machine died (`max_retries`); the run's own lock and
checkpoint turn that into a resumption. All machines must share the folder of the runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import math
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goru.lab import locks
from goru.lab.engines import process
from goru.lab.engines.local import Job
from goru.lab.errors import LabError, UsageError
from goru.lab.training.run_directory import finished

INSTALL = 'pip install -c constraints.txt ".[ray]" in a checkout'
ANSWER_SECONDS = 5.0
"""How long an address may take to answer."""
FIT_SECONDS = 60.0
"""How long a machine may take to report whether it can execute runs."""
BUSY_SECONDS = 120.0
"""How long a run may look busy: file servers release the locks of a lost machine within about 90 seconds."""
OBJECT_STORE = 80 * 2**20
"""Bytes; only short messages go through it. Ray requires at least 75 MB."""
WAIT_SECONDS = 0.2
MARK = ".grid"


@dataclass(frozen=True)
class Cluster:
    """Where to run, and the resources of a run."""

    address: str = ""
    """HOST:PORT of a running cluster; empty: a private Ray on this machine."""
    processes: int = 1
    """Runs at a time on a private Ray."""
    cpus_per_run: float = 0.0
    """Processors reserved for a run (0: as many as it has threads)."""
    gpus_per_run: float = 0.0
    """GPUs reserved for a run."""

    def cpus(self, job: Job) -> float:
        return self.cpus_per_run or job.config.threads


def run_on_ray(
    jobs: Sequence[Job],
    runs: Path,
    cluster: Cluster,
    *,
    retries: int,
    checkpoint_seconds: float,
    stop: Callable[[], bool],
    refresh: Callable[[], None],
    busy_seconds: float = BUSY_SECONDS,
) -> None:
    """Run the waiting jobs on a cluster; a failure does not affect the others."""
    waiting = [job for job in jobs if job.state == "waiting"]
    if not waiting:
        return
    runs = runs.resolve()
    with _mark(runs) as mark, _connected(cluster, waiting) as ray:
        versions = {name: process.version(name) for name in process.SAME_PACKAGES}
        for module in (process, locks):
            ray.cloudpickle.register_pickle_by_value(module)  # Ray's own processes need not import torch
        _expect_fit(ray, str(mark), versions)
        task = ray.remote(process.carry_out)
        pending: dict[Any, Job] = {}
        for job in waiting:
            reserved = task.options(
                name=job.name,
                num_returns="streaming",
                num_cpus=cluster.cpus(job),
                num_gpus=cluster.gpus_per_run,
                max_retries=retries,
            )
            reference = reserved.remote(
                job.config.to_json(), str(runs), str(job.config.directory(runs) / "lock"), str(mark),
                checkpoint_seconds, _settings(), versions, busy_seconds,
            )  # fmt: skip
            pending[reference] = job
        try:
            while pending and not stop():
                ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=WAIT_SECONDS)
                for reference in ready:
                    if _news(ray, reference, pending[reference], retries):
                        del pending[reference]
                refresh()
        finally:
            _cancel(ray, pending)
            refresh()


def _news(ray: Any, reference: Any, job: Job, retries: int) -> bool:
    """Handle a message of a task; returns whether the task has ended."""
    try:
        message = ray.get(next(reference))
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError):
        job.fail(f"its process or machine died {retries + 1} times; run the same command again to continue.")
        return True
    except (ray.exceptions.RayError, StopIteration) as error:
        job.fail((str(error).strip() or "its task ended without a message").splitlines()[-1])
        return True
    if isinstance(message, str):  # the name of the host that has begun
        job.state = "running"
        return False
    job.end(*message)
    return True


def _cancel(ray: Any, pending: dict[Any, Job]) -> None:
    """Stop the remaining tasks; running ones write a checkpoint first."""
    for reference in pending:
        ray.cancel(reference)
    left = dict(pending)
    deadline = time.monotonic() + process.STOP_SECONDS + 5
    while left and time.monotonic() < deadline:
        for reference in ray.wait(list(left), num_returns=len(left), timeout=WAIT_SECONDS)[0]:
            try:
                ray.get(next(reference))
            except (ray.exceptions.RayError, StopIteration):
                del left[reference]
    for job in pending.values():
        if job.state == "running":
            try:
                job.state = "finished" if finished(job.directory) else "stopped"
            except LabError as error:
                job.fail(str(error))


def _settings() -> dict[str, str]:
    """The environment variables of every run; folders by their absolute paths."""
    found = {name: value for name, value in os.environ.items() if name.startswith(process.SETTINGS)}
    if "GORU_DATA" in found:
        folders = found["GORU_DATA"].split(os.pathsep)
        found["GORU_DATA"] = os.pathsep.join(str(Path(folder).expanduser().resolve()) for folder in folders if folder)
    return found


@contextlib.contextmanager
def _mark(runs: Path) -> Iterator[Path]:
    """A locked file in the folder of the runs; a machine that sees its lock shares the folder and its locks."""
    mark = runs / f"{MARK}-{uuid.uuid4().hex}"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        for left in runs.glob(f"{MARK}-*"):  # of engines that were killed
            with contextlib.suppress(OSError):
                locks.remove_if_free(str(left))
        held = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise LabError(f"cannot write to {runs}: {error.strerror or error}.") from None
    try:
        yield mark
    finally:
        mark.unlink(missing_ok=True)
        os.close(held)


@contextlib.contextmanager
def _connected(cluster: Cluster, jobs: Sequence[Job]) -> Iterator[Any]:
    """Ray, started here or joined; some machine has enough processors for each job."""
    host, port = _split(cluster.address) if cluster.address else ("127.0.0.1", 0)
    if host in ("localhost", "127.0.0.1"):
        # Without this, Ray replaces a local address with the machine's external one.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray._private.worker as internals
    except ModuleNotFoundError as error:
        raise LabError(f"--engine ray needs Ray ({error}): {INSTALL}") from None
    internals.listen_error_messages = lambda worker, threads_stopped: None  # it prints into the display
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address:
        _expect_answer(host, port)
        options["address"] = cluster.address
    else:
        options |= {
            "address": "local",
            "include_dashboard": False,
            "_node_ip_address": host,
            "object_store_memory": OBJECT_STORE,
            "num_cpus": math.ceil(cluster.processes * max(cluster.cpus(job) for job in jobs)),
        }
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**options)
    except (RuntimeError, OSError, ValueError) as error:
        ray.shutdown()  # what it has started
        raise _no_cluster(cluster.address, str(error), ray.__version__) from None
    finally:
        signal.signal(signal.SIGTERM, before)  # Ray replaces the handler
    try:
        _expect_room(ray.nodes(), cluster, jobs)
        yield ray
    finally:
        ray.shutdown()
        signal.signal(signal.SIGTERM, before)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):  # IPv6
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not port.isdigit() or int(port) > 65535 or "/" in host:
        raise UsageError(f"--address should be HOST:PORT, as `ray start --head` prints it; got {address!r}.")
    return host, int(port)


def _expect_answer(host: str, port: int) -> None:
    """Ray itself would try for minutes: check whether a server there speaks its protocol (HTTP/2)."""
    try:
        with socket.create_connection((host, port), ANSWER_SECONDS) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # empty settings
            settings_first = connection.recv(9)[3:4] == b"\4"
        why = "" if settings_first else "is not a Ray cluster"
    except OSError as error:
        why = f"does not answer ({error.strerror or error})"
    if why:
        start = f"start one there with `ray start --head --port={port}`, or remove --address"
        raise LabError(f"{host}:{port} {why}; {start}.")


def _no_cluster(address: str, message: str, version: str) -> LabError:
    if "Version mismatch" in message:
        there = ", ".join(line.strip() for line in message.splitlines()[1:3])
        return LabError(
            f"the cluster at {address} has other versions ({there}; here Ray {version}); "
            f"use an environment with the same ones on all machines."
        )
    where = f"cannot join {address}" if address else "cannot start Ray on this machine"
    return LabError(f"{where}: {message.strip().splitlines()[0] if message.strip() else 'no reason given'}.")


def _expect_fit(ray: Any, mark: str, versions: dict[str, str]) -> None:
    """Check that every machine can execute a run: one that cannot would soon make all runs fail."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    check = ray.remote(process.ready)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
    answers = [
        check.options(num_cpus=0, scheduling_strategy=On(node, soft=False)).remote(mark, versions) for node in nodes
    ]
    for answer in answers:
        with contextlib.suppress(ray.exceptions.RayError):  # it has just left, or is too busy to answer
            _, problem = ray.get(answer, timeout=FIT_SECONDS)
            if problem:
                raise LabError(problem)


def _expect_room(nodes: list[dict[str, Any]], cluster: Cluster, jobs: Sequence[Job]) -> None:
    cpus = max(cluster.cpus(job) for job in jobs)
    for node in nodes:
        has = node["Resources"] if node["Alive"] else {}
        if has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= cluster.gpus_per_run:
            return
    raise LabError(
        f"no machine of the cluster has {cpus:g} processors and {cluster.gpus_per_run:g} GPUs for a run; "
        f"change --cpus-per-run and --gpus-per-run, or add a machine: ray start --address={cluster.address or '...'}"
    )
