"""A disk that fails: every call on files below a folder is counted, and the n-th one fails, crashes, or is the last
before the power goes.

As SQLite tests it: run once to count the calls, then once for each n. A crash leaves what the calls before it did;
after it no call does anything. What survives a loss of power is worked out from what was flushed: a file's content at
its last fsync, the names in a folder at the folder's last fsync.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

CALLS = ("open", "write", "fsync", "replace", "ftruncate", "unlink", "mkdir")


class Crash(BaseException):
    """The process has died; nothing in it handles this."""


class Disk:
    """Inside the block, the calls of `os` on files below `folder` are counted, and the one with the number `at` fails.

    With `crash` it is the process that ends there; without, the call raises an OSError with the code `error`. A write
    that fails has written half of its bytes.
    """

    def __init__(self, folder: Path, at: int | None = None, *, crash: bool = False, error: int = errno.EIO) -> None:
        self.folder, self.at, self.crash, self.error = folder.resolve(), at, crash, error
        self.calls: list[str] = []
        self.crashed = False
        self._real: dict[str, Callable[..., Any]] = {name: getattr(os, name) for name in (*CALLS, "close")}
        self._paths: dict[int, Path] = {}
        self._content: dict[int, bytes] = {}  # inode -> what was flushed
        self._names: dict[Path, dict[str, int]] = {}  # folder -> its names as flushed, with their inodes
        self._held: dict[int, int] = {}  # descriptors that keep inode numbers from being used again

    def __enter__(self) -> Disk:
        for folder, _, files in os.walk(self.folder):  # what is there already was flushed long ago
            for name in files:
                self._flush_file(Path(folder, name))
            self._flush_folder(Path(folder))
        for name in CALLS:
            setattr(os, name, self._counted(name))
        os.close = self._close
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def release(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _counted(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(target: Any, *arguments: Any, **options: Any) -> Any:
            path = self._path(target)
            if path is None:
                return real(target, *arguments, **options)
            if self.crashed:
                raise Crash(f"a call after the crash: {name} {path}")
            self.calls.append(f"{name} {path.relative_to(self.folder)}")
            if len(self.calls) == self.at:
                if name == "write":
                    real(target, bytes(arguments[0])[: len(arguments[0]) // 2])
                if self.crash:
                    self.crashed = True
                    raise Crash(self.calls[-1])
                raise OSError(self.error, os.strerror(self.error), str(path))
            result = real(target, *arguments, **options)
            if name == "open":
                self._paths[result] = path
                self._hold(path)
            elif name == "fsync":
                self._flush_folder(path) if stat.S_ISDIR(os.fstat(target).st_mode) else self._flush_open(target)
            return result

        return call

    def _close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        self._real["close"](descriptor)

    def _path(self, target: Any) -> Path | None:
        """The path of a descriptor or name, if it is below the folder."""
        if isinstance(target, int):
            return self._paths.get(target)
        path = Path(os.path.abspath(target))
        return path if path.is_relative_to(self.folder) else None

    # What has been flushed

    def _hold(self, path: Path) -> int:
        inode = os.lstat(path).st_ino
        if inode not in self._held and path.is_file():
            self._held[inode] = self._real["open"](path, os.O_RDONLY)
        return inode

    def _flush_open(self, descriptor: int) -> None:
        about = os.fstat(descriptor)
        held = self._held[about.st_ino]
        self._content[about.st_ino] = os.pread(held, about.st_size, 0)

    def _flush_file(self, path: Path) -> None:
        self._content[self._hold(path)] = path.read_bytes()

    def _flush_folder(self, folder: Path) -> None:
        self._names[folder] = {entry.name: self._hold(Path(entry.path)) for entry in os.scandir(folder)}

    def surviving(self, out: Path, *, names: bool) -> Path:
        """The folder after a loss of power, written to `out`: what was flushed. With `names`, the names are as they
        are now (a file system that writes names early); contents that were not flushed are lost all the same."""
        self._restore(self.folder, out, names)
        return out

    def _restore(self, folder: Path, out: Path, names: bool) -> None:
        out.mkdir(parents=True)
        found = {e.name: e.inode() for e in os.scandir(folder)} if names else self._names.get(folder, {})
        for name, inode in found.items():
            if (folder / name).is_dir():
                self._restore(folder / name, out / name, names)
            else:
                (out / name).write_bytes(self._content.get(inode, b""))


def chosen(count: int, every: int) -> list[int]:
    """Numbers of calls that fail: each one, or some that are spread evenly, the first and the last among them."""
    step = min(every, count)
    return sorted({1, count, *range(1 + step // 2, count, step)}) if every > 1 else list(range(1, count + 1))
