"""Speech as sound files in zip archives, one per split, with a manifest that lists them and their checksums."""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple, TypeVar

import numpy as np
import soundfile

from goru.lab.data.archives import BROKEN, reason
from goru.lab.data.readers.lines import FormatError, numbered, shown

RATE = 8000
COLUMNS = (
    "split",
    "file",
    "utt",
    "spk",
    "gender",
    "age",
    "orig_split",
    "n_samples_8k",
    "dropped_lsb",
    "pcm_sha256_16",
    "text",
)
SHORTEST = 384
"""Samples: two frames of 256, half over one another; fewer leave nothing to predict."""
LONGEST = 60 * RATE
"""Samples; more would not be a sentence."""
_HALF_LENGTH = 20
_KAISER_BETA = 5.0

T = TypeVar("T")


class Entry(NamedTuple):
    """A line of the manifest."""

    split: str
    file: str
    """Its name in the archive."""
    speaker: str
    samples: int
    pcm_sha256_16: str
    """The first 16 digits of the sha256 of its samples as little-endian 16-bit numbers."""


def parse_manifest(content: bytes, source: str) -> list[Entry]:
    """The entries of a manifest.tsv."""
    lines = numbered(content, source)
    _, heading = next(lines, (1, ""))
    if tuple(heading.split("\t")) != COLUMNS:
        raise FormatError(source, 1, f"the columns should be {' '.join(COLUMNS)}")
    entries = []
    for line, text in lines:
        columns = text.split("\t")
        if len(columns) != len(COLUMNS):
            raise FormatError(source, line, f"should have {len(COLUMNS)} columns, has {len(columns)}")
        row = dict(zip(COLUMNS, columns, strict=True))
        count, digest = row["n_samples_8k"], row["pcm_sha256_16"]
        if not (count.isascii() and count.isdigit()) or len(count) > 9 or not SHORTEST <= int(count) <= LONGEST:
            where = f"{shown(row['file'])}: {shown(count)}"
            raise FormatError(source, line, f"{where} is not a number of samples from {SHORTEST} to {LONGEST}")
        if len(digest) != 16 or digest.strip("0123456789abcdef"):
            raise FormatError(source, line, f"{shown(digest)} is not 16 digits of a checksum")
        if row["split"] not in ("train", "valid", "test") or not row["file"]:
            raise FormatError(source, line, f"split {shown(row['split'])}, file {shown(row['file'])}")
        entries.append(Entry(row["split"], row["file"], row["spk"], int(count), digest))
    if not entries:
        raise FormatError(source, None, "names no utterance")
    return entries


def check_directory(archive: IO[bytes], entries: list[Entry], source: str) -> None:
    """Check that the archive's directory is readable and lists these entries."""
    with _opened(archive, source) as content:
        for entry in entries:
            _member(content, entry, source)


def read_archive(archive: IO[bytes], entries: list[Entry], source: str) -> list[np.ndarray]:
    """The samples (int16) of these entries, each compared with its checksum."""
    with _opened(archive, source) as content:
        return [_read(content, entry, source) for entry in entries]


@contextlib.contextmanager
def _opened(archive: IO[bytes], source: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(archive) as content:
            yield content
    except BROKEN as error:
        raise FormatError(source, None, f"damaged, or not a zip archive ({reason(error)})") from None


def _member(content: zipfile.ZipFile, entry: Entry, source: str) -> zipfile.ZipInfo:
    try:
        return content.getinfo(entry.file)
    except KeyError:
        raise FormatError(source, None, f"lacks {entry.file}") from None


def _read(content: zipfile.ZipFile, entry: Entry, source: str) -> np.ndarray:
    place = f"{source}: {entry.file}"
    member = _member(content, entry, source)
    if member.file_size > 2 * entry.samples + 65_536:
        raise FormatError(place, None, f"{member.file_size} bytes are too many for {entry.samples} samples")
    try:
        sound = io.BytesIO(content.read(member))
        samples, rate = soundfile.read(sound, frames=entry.samples + 1, dtype="int16")
    except soundfile.SoundFileError as error:
        raise FormatError(place, None, f"cannot be decoded ({error})") from None
    if rate != RATE or samples.shape != (entry.samples,):
        more = " or more" if len(samples) > entry.samples else ""
        raise FormatError(
            place, None, f"shape {samples.shape}{more} at {rate} Hz, should be {entry.samples} samples at {RATE} Hz"
        )
    if pcm_digest(samples) != entry.pcm_sha256_16:
        raise FormatError(place, None, "its samples do not have the checksum of the manifest")
    return samples


def pcm_digest(samples: np.ndarray) -> str:
    """The value of the manifest's column pcm_sha256_16 for some samples."""
    return hashlib.sha256(samples.astype("<i2").tobytes()).hexdigest()[:16]


def add_sound(archive: zipfile.ZipFile, file: str, samples: np.ndarray) -> None:
    """Write a sound file into an archive."""
    sound = io.BytesIO()
    soundfile.write(sound, samples, RATE, format="FLAC", subtype="PCM_16")
    archive.writestr(zipfile.ZipInfo(file), sound.getvalue())


def manifest(rows: Iterable[Sequence[str]]) -> str:
    """The content of a manifest.tsv."""
    return "".join("\t".join(row) + "\n" for row in [COLUMNS, *rows])


def by_speaker(sentences: Mapping[str, list[T]], sizes: Mapping[str, int], salt: str = "") -> dict[str, list[T]]:
    """Sets of these sizes, speaker after speaker in the order of a hash of their names; too small if too few are left.

    The rest of a speaker that overflows a set is not used.
    """
    order = sorted(sentences, key=lambda name: hashlib.sha256(f"{salt}{name}".encode()).hexdigest())
    left = [sentences[name] for name in order]
    sets = {}
    for name, size in sizes.items():
        chosen: list[T] = []
        while len(chosen) < size and left:
            chosen.extend(left.pop(0))
        sets[name] = chosen[:size]
    return sets


def halve_rate(samples: np.ndarray) -> np.ndarray:
    """From 16 kHz to 8 kHz, as scipy.signal.resample_poly(x, 1, 2) does it: every second sample of the filtered signal,
    ceil(n / 2) of them."""
    # A sinc at half the band under a Kaiser window, with unit gain for a constant signal.
    taps = np.arange(-_HALF_LENGTH, _HALF_LENGTH + 1)
    low_pass = 0.5 * np.sinc(0.5 * taps) * np.kaiser(2 * _HALF_LENGTH + 1, _KAISER_BETA)
    filtered = np.convolve(samples, low_pass / low_pass.sum())[_HALF_LENGTH : _HALF_LENGTH + len(samples)]
    return filtered[::2]
