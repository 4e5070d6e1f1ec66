"""The process that carries out one run, and the side of the engine that starts it.

    python -P worker.py PARENT RUNS ENGINE SECONDS      the configuration comes on standard input

The process binds its life to its parent's before anything else: importing torch takes longer than a worker may
outlive it. So the standard library is all that is imported here; that also lets an engine send `carry_out` to
other machines.
"""

import ctypes
import fcntl
import importlib.metadata
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import IO, Any

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.1
STOP_SECONDS = 20.0
"""How long a worker may take to write its checkpoint when it is asked to stop."""
SETTINGS = ("GORU_", "OMP_", "KMP_", "MKL_", "ATEN_", "DNNL_", "ONEDNN_")
"""Variables of the environment by which data are found and arithmetic is set; they go with a run."""
SAME_PACKAGES = ("goru", "torch")
"""Packages whose versions decide the results."""


class Worker:
    """A process at work on a run."""

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
            pass  # it died at once; its exit code tells

    def ended(self) -> tuple[int, str] | None:
        """The exit code and the last line of what it said; None while it works."""
        code = self.process.poll()
        if code is None:
            return None
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        self._errors.close()
        return code, said[-1] if said else f"the process ended with exit code {code}."

    def end_by(self, deadline: float) -> tuple[int, str]:
        """Wait for its end, by force after the deadline."""
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
    """A run on whatever machine this is: yields the host when it starts, exit code and last words when it ends.

    `lock` is the run's own, `mark` a file beside the runs that the engine holds locked. A process that worked on
    the run before may still be dying, or its file server may not know yet that its machine is gone: the lock is
    waited for, up to `patience` seconds.
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
    except BaseException:  # cancelled: KeyboardInterrupt
        worker.process.terminate()
        worker.end_by(time.monotonic() + STOP_SECONDS)
        raise
    if ended[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)  # killed from outside: the cluster counts it, and tries elsewhere
    yield ended


def ready(mark: str, versions: Mapping[str, str]) -> tuple[str, str]:
    """This machine's worker script, and why a run cannot be carried out here, if so."""
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


def held(path: str) -> bool:
    """Whether a process holds the lock of a file; nobody holds one that is not there."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def version(package: str) -> str:
    """The installed version of a package, whatever it was built for."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


def die_with(parent: int) -> None:
    """End this process within a second of the parent's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:  # for systems without prctl, and for a parent that died before it was called
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: list[str]) -> int:
    parent, runs, engine, seconds = arguments
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides; it sends SIGTERM

    from pathlib import Path

    from goru.lab.errors import LabError
    from goru.lab.training.config import from_json
    from goru.lab.training.loop import train
    from goru.lab.training.signals import StopOnSignal

    with StopOnSignal(signal.SIGTERM) as stop:
        try:
            config = from_json(sys.stdin.read(), "standard input")
            train(config, Path(runs), checkpoint_seconds=float(seconds), engine=engine, stop=stop)
        except LabError as error:
            print(error, file=sys.stderr)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
