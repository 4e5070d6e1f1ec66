"""Durable file writes: readers see either the whole old file or the whole new one, even after a crash.

A new file gets an unguessable temporary name and is created exclusively; links are never followed. The writer holds a
lock on it, so a temporary file without a lock belongs to a process that died.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import secrets
import stat
from pathlib import Path

from goru.lab import locks

_ATTEMPTS = 100


def replace(path: Path, content: bytes, previous: Path | None = None) -> None:
    """Write under a temporary name, make it durable, then rename. The old file becomes `previous`, if given."""
    clear_abandoned(path.parent, path.name)
    temporary, descriptor = _create(path)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
        if previous is not None and os.path.lexists(path):
            os.replace(path, previous)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)
    sync_folder(path.parent)


def _create(path: Path) -> tuple[Path, int]:
    """A new temporary file next to `path`, open for writing and locked."""
    for _ in range(_ATTEMPTS):
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(temporary, flags, 0o666)
        except FileExistsError:
            continue
        with contextlib.suppress(OSError):  # a file system without locks: nothing is ever cleared there
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        os.close(descriptor)  # cleared by another writer before the lock was taken
    raise FileExistsError(f"no temporary name is free next to {path}")


def clear_abandoned(folder: Path, name: str = "*") -> None:
    """Remove the temporary files of writers that died, of one file or of all files in a folder."""
    for left in folder.glob(f".{name if name == '*' else glob.escape(name)}.*.tmp"):
        with contextlib.suppress(OSError):
            locks.remove_if_free(str(left))


def make_folder(folder: Path, root: Path | None = None) -> None:
    """Create a folder with its parents, durably; OSError if it, or a folder between it and `root`, is a link or a file.

    `root`, by default the parent, is the user's own choice and may be a link.
    """
    root = folder.parent if root is None else root
    missing = [one for one in (root, *root.parents) if not one.exists()]
    try:
        root.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise _no_folder(root) from None
    for one in missing:
        sync_folder(one.parent)
    below = folder.relative_to(root).parts
    for count in range(1, len(below) + 1):
        one = root.joinpath(*below[:count])
        try:
            one.mkdir()
        except OSError:  # some systems do not say first that it exists
            if not os.path.lexists(one):
                raise
            if one.is_symlink():
                raise NotADirectoryError(f"{one} is a link: name the folder that it points to") from None
            if not one.is_dir():
                raise _no_folder(one) from None
        else:
            sync_folder(one.parent)


def _no_folder(path: Path) -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def open_for_writing(path: Path, flags: int = 0) -> int:
    """A descriptor of a file, created if needed; OSError if it is a link, a pipe or a device."""
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write everything, in as many calls as needed."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
