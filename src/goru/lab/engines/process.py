"""A worker process as its engine sees it: start it, wait for it, stop it.

Ray sends this module to other machines, so it imports nothing but the standard library and `locks`.
"""

import importlib.metadata
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

from goru.lab.locks import held

POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
"""How long a worker may take to write its checkpoint after it was asked to stop."""
SETTINGS = ("GORU_", "OMP_", "KMP_", "MKL_", "ATEN_", "DNNL_", "ONEDNN_")
"""Prefixes of environment variables that locate data and configure arithmetic; a run inherits them."""
SAME_PACKAGES = ("goru", "torch")
"""Packages whose versions decide the results."""


class Worker:
    """A process that works on a run."""

    def __init__(
        self, script: str, config: str, runs: str, engine: str, seconds: float, environment: Mapping[str, str] | None
    ) -> None:
        self._errors: IO[Any] = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-P", script, str(os.getpid()), runs, engine, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            text=True,
            env=environment,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which then asks each worker to stop
        )
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(config)
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it died at once; see its exit code

    def ended(self) -> tuple[int, str] | None:
        """The exit code and the last line of its error output; None while it works."""
        code = self.process.poll()
        if code is None:
            return None
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        self._errors.close()
        return code, said[-1] if said else f"the process ended with exit code {code}."

    def end_by(self, deadline: float) -> tuple[int, str]:
        """Wait for its end; kill it after the deadline."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        ended = self.ended()
        assert ended is not None
        return ended


def carry_out(
    config: str,
    runs: str,
    lock: str,
    mark: str,
    seconds: float,
    settings: Mapping[str, str],
    versions: Mapping[str, str],
    patience: float,
) -> Iterator[Any]:
    """A run on this machine: yields the host when it starts, and the exit code and last message when it ends.

    `lock` is the run's own lock, `mark` a file in the folder of the runs that the engine holds locked. A process
    that worked on the run before may still be ending, or its file server may not have noticed yet that its machine is
    gone: wait for the lock, up to `patience` seconds.
    """
    yield socket.gethostname()
    script, problem = ready(mark, versions)
    if problem:
        yield 1, problem
        return
    deadline = time.monotonic() + patience
    while held(lock) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    worker = Worker(script, config, runs, "ray", seconds, {**environment, **settings})
    try:
        while (ended := worker.ended()) is None:
            time.sleep(POLL_SECONDS)
    except BaseException:  # canceled: KeyboardInterrupt
        worker.process.terminate()
        worker.end_by(time.monotonic() + STOP_SECONDS)
        raise
    if ended[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)  # killed from outside: Ray counts it and retries elsewhere
    yield ended


def ready(mark: str, versions: Mapping[str, str]) -> tuple[str, str]:
    """This machine's worker script, and why a run cannot execute here, if so."""
    here = socket.gethostname()
    package = importlib.util.find_spec("goru")
    if package is None or package.origin is None:
        return "", f"goru is not installed for {sys.executable} on {here}; install version {versions['goru']} there."
    for name, wanted in versions.items():
        found = version(name)
        if found != wanted:
            return "", f"{here} has {name} {found}, this machine {wanted}; install the same version on all machines."
    if not held(mark):
        folder = os.path.dirname(mark)
        return "", f"{here} does not share {folder} and its locks; take a folder that all machines mount at one path."
    return os.path.join(os.path.dirname(package.origin), "lab", "engines", "worker.py"), ""


def version(package: str) -> str:
    """The installed version of a package, without a local suffix such as +cpu."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
