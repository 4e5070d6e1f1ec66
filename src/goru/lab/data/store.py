"""Find data sets on this machine, read them with their checksums, verify them.

The search order is the folder of `--data-dir`, the folders in `GORU_DATA`, the user's cache directory; each set is a
folder with its name there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from goru.lab.data.archives import DataDamagedError, read_gzip, read_members
from goru.lab.data.catalogue import DataSet, Part
from goru.lab.data.readers.lines import FormatError
from goru.lab.errors import LabError, UsageError

VARIABLE = "GORU_DATA"
_chosen: list[Path] = []
"""The folder of `--data-dir`, if given."""


class DataMissingError(LabError):
    """Data that are not on this machine."""


def roots() -> list[Path]:
    """The folders to look in, in order."""
    listed = [Path(folder).expanduser() for folder in os.environ.get(VARIABLE, "").split(os.pathsep) if folder]
    return [*listed, Path(platformdirs.user_cache_dir("goru")) / "data"]


def search_first(folder: Path | None) -> None:
    """Search a folder, if given, before all others, in this process and its children."""
    if folder is None:
        return
    if os.pathsep in str(folder):
        raise UsageError(
            f"--data-dir {folder}: a folder whose name holds {os.pathsep!r} cannot be searched; rename it."
        )
    _chosen[:] = [folder.expanduser().resolve()]
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = os.pathsep.join([str(_chosen[0]), *([before] if before else [])])


def find(dataset: DataSet) -> Path | None:
    """The first folder that holds a set, or some of it."""
    folders = (root / name for root in roots() for name in (dataset.name, dataset.name.upper()))
    return next((folder for folder in folders if _holds(folder, dataset)), None)


def require(dataset: DataSet) -> Path:
    """The folder of a set; if there is none, an error that says how to get it."""
    folder = find(dataset)
    if folder is None:
        raise DataMissingError(f"the data set {dataset.name} is not on this machine: {remedy(dataset)}.")
    return folder


def remedy(dataset: DataSet) -> str:
    """How to get a set that is missing."""
    if not dataset.sources:
        return f"{dataset.bring} at {roots()[0] / dataset.name}"
    return f"run `{fetch_command(dataset)}`, or set {VARIABLE} to the folder that holds {dataset.name}/"


def fetch_command(dataset: DataSet) -> str:
    """The command that fetches a set to the first folder of the search order."""
    chosen = [one for one in _chosen if one == roots()[0]]
    return " ".join(["goru data fetch", dataset.name, *(f"--data-dir {shlex.quote(str(one))}" for one in chosen)])


@contextlib.contextmanager
def with_remedy(dataset: DataSet) -> Iterator[None]:
    """Add to errors about damaged files how to get good ones."""
    try:
        yield
    except (DataDamagedError, FormatError) as error:
        how = f"run `{fetch_command(dataset)}` for a good copy" if dataset.sources else remedy(dataset)
        raise DataDamagedError(f"{str(error).rstrip('.')}; {how}.") from None


def read(dataset: DataSet, names: Sequence[str]) -> dict[str, bytes]:
    """Files of a set by name, each with the length and the checksum that it should have."""
    folder = require(dataset)
    parts = {part.name: part for part in dataset.parts if part.name in names}
    with with_remedy(dataset):
        found = _read_parts(folder, dataset, list(parts.values()))
        for name in names:
            if name not in found:
                raise DataMissingError(f"{folder} lacks {name}: {remedy(dataset)}.")
            if len(found[name]) != parts[name].size or hashlib.sha256(found[name]).hexdigest() != parts[name].sha256:
                raise DataDamagedError(f"{folder / name} has the wrong length or checksum.")
    return found


def check_quickly(dataset: DataSet) -> None:
    """Raise an error that says how to fix it if a set does not pass a quick check.

    Sets with a table of checksums are small and verified completely; for the others, the files must exist and pass a
    quick check.
    """
    folder = require(dataset)
    if dataset.parts:
        read(dataset, [part.name for part in dataset.parts])
    for name in dataset.files:
        if not (folder / name).is_file():
            raise DataMissingError(f"{folder} lacks {name}: {remedy(dataset)}.")
    if dataset.quick_check is not None:
        with with_remedy(dataset):
            dataset.quick_check(folder)


@dataclass(frozen=True)
class Verdict:
    """What verifying a set found."""

    state: Literal["good", "missing", "damaged"]
    folder: Path | None
    message: str
    """How to get it, what is wrong with it, or a remark if it is good."""


def verify(dataset: DataSet) -> Verdict:
    """Verify a data set, if it is found."""
    folder = find(dataset)
    if folder is None:
        return Verdict("missing", None, remedy(dataset))
    remark = None
    try:
        if dataset.check is not None:
            with with_remedy(dataset):
                remark = dataset.check(folder)
        else:
            read(dataset, [part.name for part in dataset.parts])
    except LabError as error:
        return Verdict("damaged", folder, str(error))
    return Verdict("good", folder, remark or "")


def _holds(folder: Path, dataset: DataSet) -> bool:
    if not folder.is_dir():
        return False
    if dataset.files:
        return any((folder / name).is_file() for name in dataset.files)
    if not dataset.parts:
        return any(folder.iterdir())
    if any((folder / name).is_file() for name in dataset.archives):
        return True
    return any(_single(folder, part) is not None for part in dataset.parts)


def _single(folder: Path, part: Part) -> Path | None:
    """The part as a separate file, plain or gzipped."""
    return next((file for file in (folder / part.name, folder / f"{part.name}.gz") if file.is_file()), None)


def _read_parts(folder: Path, dataset: DataSet, parts: Iterable[Part]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        left: dict[str, int] = {}
        for part in parts:
            file = _single(folder, part)
            if file is None:
                left[part.name] = part.size
            elif file.name.endswith(".gz"):
                found[part.name] = read_gzip(file, part.size)
            else:
                with file.open("rb") as stream:
                    found[part.name] = stream.read(part.size + 1)
        for name in dataset.archives:
            if left and (folder / name).is_file():
                taken = read_members(folder / name, left)
                found |= taken
                left = {name: size for name, size in left.items() if name not in taken}
    except OSError as error:
        raise DataDamagedError(f"{folder} cannot be read: {error.strerror or error}.") from None
    return found
