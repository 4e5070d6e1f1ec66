"""Reading out of archives that are not trusted.

Nothing is ever unpacked by the archive's own names: the caller says which files it wants and how long they
are, and gets their bytes. A member is taken only if it is a regular file of exactly that length.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from goru.lab.errors import LabError
from goru.lab.readers.damage import BROKEN, reason

TAR_LIMIT = 4 * 2**30
"""Bytes of content after which a tar archive is not read on: it would be a decompression bomb."""


class DataDamagedError(LabError):
    """Data that are there, but are not what they should be."""


def read_members(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    """The wanted files of a tar or zip archive, by name: those that it holds, under any leading folders.

    `wanted` gives each name's exact length. A path that would lead out of the archive, a wanted name that
    is a link or has another length, and a damaged archive are errors.
    """
    try:
        if zipfile.is_zipfile(archive):
            return _read_zip(archive, wanted)
        return _read_tar(archive, wanted)
    except FileNotFoundError:
        raise
    except BROKEN as error:
        raise DataDamagedError(f"{archive} is damaged or not an archive ({reason(error)}).") from None


def read_gzip(file: Path, size: int) -> bytes:
    """A gzipped file of `size` bytes; never reads more than that."""
    try:
        with gzip.open(file) as stream:
            content = stream.read(size + 1)
    except FileNotFoundError:
        raise
    except BROKEN as error:
        raise DataDamagedError(f"{file} is damaged ({reason(error)}).") from None
    if len(content) != size:
        raise DataDamagedError(f"{file} should hold {size} bytes, it holds {_amount(len(content), size)}.")
    return content


def _read_tar(archive: Path, wanted: Mapping[str, int]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = _wanted_name(archive, member.name, wanted)
            if member.offset_data + member.size > TAR_LIMIT:
                raise DataDamagedError(f"{archive} holds more than {TAR_LIMIT >> 30} GiB; it is not read on.")
            if name is None or member.isdir():
                continue
            if not member.isreg():
                raise DataDamagedError(f"{archive}: {member.name} is not a regular file.")
            _check_length(archive, member.name, member.size, wanted[name])
            stream = tar.extractfile(member)
            assert stream is not None
            found[name] = stream.read()
            if len(found) == len(wanted):
                break
    return found


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
    for first in range(len(parts)):
        name = "/".join(parts[first:])
        if name in wanted:
            return name
    return None


def _check_length(archive: Path, member: str, size: int, expected: int) -> None:
    if size != expected:
        raise DataDamagedError(f"{archive}: {member} should have {expected} bytes, it has {_amount(size, expected)}.")


def _amount(size: int, expected: int) -> str:
    return "more" if size > expected else str(size)
