"""Read files from untrusted archives.

Nothing is ever unpacked under the archive's own names: the caller names the files it wants and their lengths, and
gets their bytes. A member counts only if it is a regular file of exactly that length.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from goru.lab.errors import LabError

TAR_LIMIT = 4 * 2**30
"""Bytes of content after which reading a tar archive stops, against decompression bombs."""
HEADERS_LIMIT = 2**20
"""Bytes of headers before a member (long names, attributes), which tarfile keeps in memory."""
_CHUNK = 64 * 1024
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # encrypted, nested too deeply; NotImplementedError (a compression that nobody knows) is one
    ValueError,
)
"""The exceptions of the standard library for damaged archives."""


class DataDamagedError(LabError):
    """Data that exist but are damaged."""


def reason(error: Exception) -> str:
    """The library's message in one short line."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def read_members(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The wanted files of a tar or zip archive, by name: those that it holds, under any leading folders.

    `wanted` gives each name's exact length. A path that would lead out of the archive, a wanted name that
    is a link or has another length, and a damaged archive are errors.
    """
    try:
        if zipfile.is_zipfile(archive):
            return _read_zip(archive, wanted)
        return _read_tar(archive, wanted)
    except BROKEN as error:
        raise DataDamagedError(f"{archive} is damaged or not an archive ({reason(error)}).") from None


def read_gzip(file: Path, size: int) -> bytes:
    """A gzipped file of `size` bytes; never reads more than that."""
    try:
        with gzip.open(file) as stream:
            content = stream.read(size + 1)
    except BROKEN as error:
        raise DataDamagedError(f"{file} is damaged ({reason(error)}).") from None
    if len(content) != size:
        raise DataDamagedError(f"{file} should hold {size} bytes, it holds {_amount(len(content), size)}.")
    return content


def _read_tar(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for member, read in tar_members(archive):
        name = _wanted_name(archive, member.name, wanted)
        if name is None or member.isdir():
            continue
        if not member.isreg() or member.issparse():
            raise DataDamagedError(f"{archive}: {member.name} is not a regular file.")
        _check_length(archive, member.name, member.size, wanted[name])
        found[name] = read()
        if len(found) == len(wanted):
            break
    return found


def tar_members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    """The members of a tar archive, packed or not, each with what reads its content (before the next member)."""
    with archive.open("rb") as file, _unpacked(file) as stream:
        forward = _Forward(archive, stream)
        with cast(Any, tarfile.TarFile)(fileobj=forward, mode="r") as tar:
            while (member := tar.next()) is not None:
                yield member, partial(forward.content, member)
                forward.allowed = HEADERS_LIMIT
                tar.members.clear()  # else they would add up
                tar.pax_headers.clear()


def _unpacked(file: io.BufferedReader) -> IO[bytes]:
    start = file.peek(6)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if start.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(file)
    return bz2.BZ2File(file) if start.startswith(b"BZh") else file


class _Forward:
    """A tar archive's bytes as tarfile asks for them, forward only; refuses to read more than is allowed."""

    def __init__(self, archive: Path, stream: IO[bytes]) -> None:
        self._archive, self._stream, self._position = archive, stream, 0
        self.allowed = HEADERS_LIMIT

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            raise tarfile.ReadError("its members overlap")
        while self._position < position and self._take(min(_CHUNK, position - self._position)):
            pass

    def read(self, size: int) -> bytes:
        if not 0 <= size <= self.allowed:
            raise DataDamagedError(f"{self._archive} holds names or attributes of a member that are too long.")
        self.allowed -= size
        return self._take(size)

    def content(self, member: tarfile.TarInfo) -> bytes:
        self.seek(member.offset_data)
        content = self._take(member.size)
        if len(content) < member.size:
            raise tarfile.ReadError("unexpected end of data")
        return content

    def _take(self, size: int) -> bytes:
        if self._position + size > TAR_LIMIT:
            raise DataDamagedError(
                f"{self._archive} holds more than {TAR_LIMIT >> 30} GiB, the limit: reading stopped."
            )
        content = self._stream.read(size)
        self._position += len(content)
        return content


def _read_zip(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(archive) as content:
        for member in content.infolist():
            name = _wanted_name(archive, member.filename, wanted)
            if name is None or member.is_dir():
                continue
            if member.external_attr >> 28 == 0o12:
                raise DataDamagedError(f"{archive}: {member.filename} is a link.")
            _check_length(archive, member.filename, member.file_size, wanted[name])
            with content.open(member) as stream:
                found[name] = stream.read(wanted[name] + 1)
            _check_length(archive, member.filename, len(found[name]), wanted[name])
    return found


def _wanted_name(archive: Path, member: str, wanted: Mapping[str, int]) -> str | None:
    """Which wanted file a member is: the one whose path is the end of the member's."""
    parts = PurePosixPath(member.replace("\\", "/")).parts
    if ".." in parts or member.startswith(("/", "\\")) or member[1:2] == ":":
        raise DataDamagedError(f"{archive} holds a path that leads out of it ({member!r}); it is not trusted.")
    names = ("/".join(parts[first:]) for first in range(len(parts)))
    return next((name for name in names if name in wanted), None)


def _check_length(archive: Path, member: str, size: int, expected: int) -> None:
    if size != expected:
        raise DataDamagedError(f"{archive}: {member} should have {expected} bytes, it has {_amount(size, expected)}.")


def _amount(size: int, expected: int) -> str:
    return "more" if size > expected else str(size)
