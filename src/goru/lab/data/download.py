"""Download a data set from its public addresses: verify first, then move into place.

Everything happens in a temporary folder next to the destination, which is removed if anything goes wrong; a file is
renamed to its place only when it is complete and its checksum is right. The folder is locked as long as its process
lives; if that was killed, the next fetch removes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import itertools
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pooch
import requests
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from goru.lab.data import store
from goru.lab.data.archives import DataDamagedError, read_members
from goru.lab.data.catalogue import DataSet, Download, Source
from goru.lab.errors import LabError

TIMEOUT_SECONDS = 30
_CHUNK = 64 * 1024
_PREFIX = ".fetching-"
_LOCK = "lock"
_STALE_SECONDS = 24 * 3600.0
"""Age after which a folder without a lock counts as abandoned: a new one has none for an instant."""


def fetch(dataset: DataSet, say: Callable[[str], None] = print, progress: bool = True) -> Path:
    """Download a set into the first folder of the search order, unless a good copy is already there."""
    folder = store.roots()[0] / dataset.name
    remove_abandoned(folder.parent)
    before = store.verify(dataset)
    if before.state == "good" and before.folder is not None:
        say(f"{dataset.name} is already in {before.folder} and verified.")
        return before.folder
    if not dataset.sources:
        raise LabError(f"{dataset.name} cannot be downloaded ({dataset.license.rstrip('.')}): {store.remedy(dataset)}.")
    say(f"{dataset.name}: {dataset.title}.\nLicense: {dataset.license}")
    failures = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in _ways(dataset):
            with temporary_folder(folder.parent) as place:
                try:
                    made = _make(dataset, source, place, progress)
                except _DownloadError as error:
                    failures.append(str(error))
                    continue
                except LabError as error:
                    failures.append(_something_else(source, error, place))
                    continue
                for file in made:
                    (folder / file).parent.mkdir(parents=True, exist_ok=True)
                    os.replace(place / "made" / file, folder / file)
                after = store.verify(dataset)
                if after.state != "good":
                    raise LabError(f"{dataset.name} is in {folder}, but: {after.message}")
                say(f"{dataset.name} is in {folder}, verified.")
                return folder
    except OSError as error:
        raise LabError(f"cannot write {dataset.name} to {folder}: {error.strerror or error}.") from None
    finally:
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()
    raise LabError(f"{dataset.name} could not be fetched: {'; '.join(failures)}.")


class _DownloadError(Exception):
    """No address gave the file."""


def _ways(dataset: DataSet) -> Iterator[Source]:
    """The sources, with one address of each file whose checksum is not known.

    Only the parts made from such a file show whether it is right; if not, the next address is tried.
    """
    for source in dataset.sources:
        choices = [
            [one] if one.known_hash else [dataclasses.replace(one, addresses=(address,)) for address in one.addresses]
            for one in source.downloads
        ]
        for downloads in itertools.product(*choices):
            yield dataclasses.replace(source, downloads=downloads)


def _something_else(source: Source, error: LabError, place: Path) -> str:
    """What is wrong with the files of a source, without the names of temporary folders."""
    what = str(error).rstrip(".")
    for folder in ("downloads", "made"):
        what = what.replace(f"{place / folder}{os.sep}", "").replace(str(place / folder), "it")
    addresses = " and ".join(address for one in source.downloads for address in one.addresses)
    return f"{addresses} returned unexpected content: {what}"


def _make(dataset: DataSet, source: Source, place: Path, progress: bool) -> list[Path]:
    """Download a source and make the set's files from it, in `made`; returns their paths."""
    downloads = {one.file: _download(one, place / "downloads", progress) for one in source.downloads}
    made = place / "made"
    made.mkdir()
    if source.make is None:
        _take_members(dataset, downloads, made)
    else:
        source.make(downloads, made)
    if dataset.check is not None:
        dataset.check(made)
    else:
        _check_parts(dataset, made)
    return sorted(file.relative_to(made) for file in made.rglob("*") if file.is_file())


def _take_members(dataset: DataSet, downloads: Mapping[str, Path], made: Path) -> None:
    wanted = {part.name: part.size for part in dataset.parts}
    for archive in downloads.values():
        for name, content in read_members(archive, wanted).items():
            file = made / name  # a name from our own table, not the archive's
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    missing = [name for name in wanted if not (made / name).is_file()]
    if missing:
        raise DataDamagedError(f"{next(iter(downloads))} lacks {missing[0]}")


def _check_parts(dataset: DataSet, folder: Path) -> None:
    for part in dataset.parts:
        if not (folder / part.name).is_file():
            raise DataDamagedError(f"{part.name} was not made")
        if pooch.file_hash(str(folder / part.name)) != part.sha256:
            raise DataDamagedError(f"{part.name} has a wrong checksum")


def _download(download: Download, folder: Path, progress: bool) -> Path:
    """The file from the first address that provides it complete and correct."""
    folder.mkdir(exist_ok=True)
    pooch.get_logger().setLevel(logging.WARNING)
    receive: Any = functools.partial(_receive, download=download, show=progress)
    failures = []
    for address in download.addresses:
        try:
            return Path(pooch.retrieve(address, download.known_hash, download.file, folder, downloader=receive))
        except requests.HTTPError as error:
            answer = "an error" if error.response is None else error.response.status_code
            failures.append(f"{address} answered {answer}")
        except requests.RequestException as error:
            failures.append(f"{address} {_trouble(error)}")
        except ValueError as error:
            wrong = "gave a file with a wrong checksum" if "hash" in str(error) else f"failed ({error})"
            failures.append(f"{address} {wrong}")
    raise _DownloadError("; ".join(failures))


def _receive(address: str, place: str, _: object, *, download: Download, show: bool) -> None:
    """Write what an address sends to a file, with a progress bar; ValueError if it is more than the file may have."""
    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(TextColumn("{task.description}"), *columns, disable=not show) as progress:
        bar = progress.add_task(download.file, total=None)
        with requests.get(address, timeout=TIMEOUT_SECONDS, stream=True) as response, open(place, "wb") as file:
            response.raise_for_status()
            size, come = int(response.headers.get("content-length", 0)), 0
            if size > download.limit:
                raise ValueError(f"{size} bytes announced, at most {download.limit} expected")
            for chunk in response.iter_content(_CHUNK):
                come += file.write(chunk)
                if come > download.limit:
                    raise ValueError(f"more than the expected {download.limit} bytes")
                progress.update(bar, total=size or None, completed=come)


def _trouble(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "broke off before the end"
    if isinstance(error, requests.Timeout):
        return f"did not answer within {TIMEOUT_SECONDS} s"
    if isinstance(error, requests.exceptions.SSLError):
        return "has a certificate that is not trusted (a proxy, or a wrong clock?)"
    if isinstance(error, requests.ConnectionError):
        return "cannot be reached (offline?)"
    return f"failed ({type(error).__name__})"


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
