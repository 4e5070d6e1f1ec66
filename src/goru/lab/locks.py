"""Locks on files, released when their process ends. Standard library only: Ray sends this module to other machines."""

import fcntl
import os


def held(path: str) -> bool:
    """Whether a process holds the lock of a file; a missing file is not locked."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
