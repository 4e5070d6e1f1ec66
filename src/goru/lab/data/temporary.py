"""Temporary folders of fetches: gone when a fetch ends, and if it was killed, when the next one begins.

A folder is locked as long as the process that uses it lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".fetching-"
_LOCK = "lock"
_STALE_SECONDS = 24 * 3600.0
"""Age after which a folder without a lock counts as abandoned: a new one has none for an instant."""


@contextlib.contextmanager
def temporary_folder(root: Path) -> Iterator[Path]:
    """A folder in `root` for the time of the context."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=root) as name:
        folder = Path(name)
        # The lock gets its name only once it is held, so that no one sees it free.
        with (folder / f"new {_LOCK}").open("w") as lock:
            with contextlib.suppress(OSError):  # a file system without locks: others judge by the age
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.rename(lock.name, folder / _LOCK)
            yield folder


def remove_abandoned(root: Path) -> None:
    """Remove the folders in `root` of fetches that were killed."""
    for folder in root.glob(f"{_PREFIX}*"):
        if _abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return time.time() - folder.stat().st_mtime > _STALE_SECONDS
    except OSError:  # held, or not ours to judge
        pass
    return False
