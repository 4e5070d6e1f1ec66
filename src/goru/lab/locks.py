"""Locks on files, released when their process ends. Standard library only: Ray sends this module to other machines."""

import fcntl
import os

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # it may be a link or a pipe


def held(path: str) -> bool:
    """Whether a process holds the lock of a file; a missing file is not locked."""
    try:
        lock = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remove_if_free(path: str) -> None:
    """Remove a file whose lock no process holds; OSError if one does, or if it is a link."""
    lock = os.open(path, _FLAGS)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(lock)
