"""Commands as a user types them, and what one test process makes for all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REPORT_ON_THE_RECORD = "goru report --runs results --out report"


def run(command: str, folder: Path, timeout: int = 600) -> subprocess.CompletedProcess[str]:
    """As a user would type it, with the environment's scripts on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def report_on_the_record(factory: pytest.TempPathFactory) -> Path:
    """A folder with `report`, which the command above wrote, and `said`, what it printed.

    It takes ten seconds: the first test process that asks makes it, the others wait.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # of all test processes
    folder = folder / "record"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "said").exists():
            if not (folder / "results").exists():
                (folder / "results").symlink_to(ROOT / "results")
            done = run(REPORT_ON_THE_RECORD, folder)
            assert done.returncode == 0, done.stderr
            (folder / "said").write_text(done.stdout)
    return folder
