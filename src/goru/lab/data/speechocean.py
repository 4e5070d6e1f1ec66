"""speechocean762 as an open stand-in for TIMIT: 8 kHz, 2400 / 600 / 1000 sentences, speakers in one set only.

The derivation is fixed: sentences of at most 5 s; speakers in order of sha256("so762-8k:" + id) fill test,
valid and train, each speaker's sentences by id; 16 kHz to 8 kHz; then as many low bits are dropped (at most
5) as stay 12 dB below the file's own noise, which halves the size.
"""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, TypeVar

import numpy as np
import soundfile

from goru.lab.data.archives import BROKEN, DataDamagedError, reason, tar_members
from goru.lab.data.readers import utterances
from goru.lab.data.readers.lines import numbered
from goru.lab.data.readers.utterances import SHORTEST, Entry, halve_rate

SIZES = {"test": 1000, "valid": 600, "train": 2400}
FILES = ("manifest.tsv", *(f"so762_8k_{split}.zip" for split in SIZES))

SELECTION_SHA256 = "fa7a28e104963f2bfc027ec6ed8117d2da6b9c3feae7e38bc1a678300350b215"
"""Digest of the sorted lines `split utterance samples`: the choice of utterances, independent of rounding."""

SAMPLES_SHA256 = "648c5386c699beff20c9b1813396e6bc76532b8b5a4ef354d6faf7727d68ed32"
"""Digest of the sorted lines `split utterance pcm_sha256_16`: the samples of the reference."""
MEAN_SQUARES = {"test": 4225619.43, "valid": 6518249.57, "train": 5211672.87}
"""Of the reference's samples. Another resampler or decoder may round a sample the other way, by one of its
steps; a step is below the file's own noise, so the mean square of a set hardly moves."""
MEAN_SQUARE_TOLERANCE = 1e-3
SIGNATURE_BITS = 64
FARTHEST = 12
"""Bits in which a sound's signature may differ from the reference's. With every sample moved by up to a step, at most 4
differed (800 sounds); of another sound half are expected to differ, and 18 or more did (4000 sounds)."""

_SOURCE_RATE = 16_000
_LONGEST = 5 * _SOURCE_RATE
_TABLES = ("utt2spk", "text", "spk2gender", "spk2age")
_MEMBER_LIMIT = 16 * 2**20

T = TypeVar("T")


def check(folder: Path) -> str:
    """Verify that the manifest selects the right utterances and that every sound matches it.

    Returns whether the samples are the reference's to the bit; where not, the sets' mean squares have to be, and each
    sound has to be the reference's by its signature.
    """
    manifest = read_manifest(folder)
    exact = samples_digest(manifest) == SAMPLES_SHA256
    for split in SIZES:
        sounds = read_split(folder, manifest, split)
        if exact:
            continue
        _check_signatures(folder, manifest, split, sounds)
        found = sum(float(np.square(one, dtype=np.float64).sum()) for one in sounds) / sum(map(len, sounds))
        if abs(found / MEAN_SQUARES[split] - 1) > MEAN_SQUARE_TOLERANCE:
            raise DataDamagedError(
                f"the {split} set of {folder} has a mean square of {found:.6g}, expected {MEAN_SQUARES[split]:.6g} "
                f"(within {MEAN_SQUARE_TOLERANCE:.1%}): its sounds are not those of the corpus."
            )
    if exact:
        return "every sample as in the reference"
    return (
        f"derived with another rounding: the reference's sounds by their signatures, mean squares within "
        f"{MEAN_SQUARE_TOLERANCE:.1%}, samples not the same to the bit, so scores may differ in their last digits"
    )


def signature(samples: np.ndarray) -> int:
    """A 64-bit signature that survives other rounding: the signs of its products with fixed sequences of +1 and -1."""
    positive = _signs()[:, : len(samples)] @ samples.astype(np.float64) > 0
    return int.from_bytes(np.packbits(positive).tobytes(), "big")


@functools.cache
def _signs() -> np.ndarray:
    longest = _LONGEST // 2
    bits = np.frombuffer(hashlib.shake_256(b"so762-8k").digest(SIGNATURE_BITS * longest // 8), dtype=np.uint8)
    return np.unpackbits(bits).reshape(SIGNATURE_BITS, longest).astype(np.float64) * 2 - 1


def signatures() -> list[int]:
    """The signature of each utterance of the reference, in the order of their names."""
    table = resources.files("goru.lab.data") / "checksums" / "speech_so762_8k.signatures"
    return [int(line, 16) for line in table.read_text().splitlines()]


def _check_signatures(folder: Path, manifest: Sequence[Entry], split: str, sounds: Sequence[np.ndarray]) -> None:
    names = sorted(Path(one.file).stem for one in manifest)
    expected = dict(zip(names, signatures(), strict=True))
    for entry, samples in zip((one for one in manifest if one.split == split), sounds, strict=True):
        if (signature(samples) ^ expected[Path(entry.file).stem]).bit_count() > FARTHEST:
            raise DataDamagedError(f"{entry.file} of {folder} does not match the corpus: it is another sound.")


def quick_check(folder: Path) -> None:
    """A quick check: the manifest selects the right utterances, and the archives list them."""
    manifest = read_manifest(folder)
    for split in SIZES:
        _with_archive(folder, manifest, split, utterances.check_directory)


def read_manifest(folder: Path) -> list[Entry]:
    """The manifest of the chosen utterances; one that names others, or not all of them, is an error."""
    file = folder / "manifest.tsv"
    try:
        manifest = utterances.parse_manifest(file.read_bytes(), str(file))
    except OSError as error:
        raise DataDamagedError(f"{file} cannot be read: {error.strerror or error}.") from None
    if selection_digest(manifest) != SELECTION_SHA256:
        raise DataDamagedError(f"{file} does not name the 2400 / 600 / 1000 chosen utterances.")
    return manifest


def read_split(folder: Path, manifest: Sequence[Entry], split: str) -> list[np.ndarray]:
    """The samples of every utterance of a split, in the manifest's order."""
    return _with_archive(folder, manifest, split, utterances.read_archive)


def _with_archive(
    folder: Path, manifest: Sequence[Entry], split: str, use: Callable[[IO[bytes], list[Entry], str], T]
) -> T:
    file = folder / f"so762_8k_{split}.zip"
    try:
        with file.open("rb") as archive:
            return use(archive, [one for one in manifest if one.split == split], str(file))
    except OSError as error:
        raise DataDamagedError(f"{file} cannot be read: {error.strerror or error}.") from None


def selection_digest(manifest: Sequence[Entry]) -> str:
    return _digest(f"{one.split} {Path(one.file).stem} {one.samples}\n" for one in manifest)


def samples_digest(manifest: Sequence[Entry]) -> str:
    return _digest(f"{one.split} {Path(one.file).stem} {one.pcm_sha256_16}\n" for one in manifest)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


class _Sound(NamedTuple):
    """A sentence of the corpus, already at 8 kHz."""

    samples: np.ndarray
    dropped_bits: int
    source_samples: int


def make(downloads: Mapping[str, Path], folder: Path) -> None:
    """Derive the set from the published corpus."""
    archive = downloads["speechocean762.tar.gz"]
    try:
        sounds, tables, halves = _read_corpus(archive)
    except BROKEN as error:
        raise DataDamagedError(f"{archive.name} is damaged ({reason(error)}).") from None
    rows = []
    speakers = tables["utt2spk"]
    for split, names in select({name: one.source_samples for name, one in sounds.items()}, speakers).items():
        with zipfile.ZipFile(folder / f"so762_8k_{split}.zip", "w") as content:
            for name in names:
                samples, dropped, _ = sounds[name]
                speaker = speakers[name]
                file = f"{split}/spk{speaker}_{name}.flac"
                utterances.add_sound(content, file, samples)
                about = [tables[table].get(speaker, "") for table in ("spk2gender", "spk2age")]
                counts = [str(len(samples)), str(dropped), utterances.pcm_digest(samples)]
                text = tables["text"].get(name, "")
                rows.append([split, file, name, speaker, *about, halves.get(name, ""), *counts, text])
    rows.sort(key=lambda row: (row[0], row[1]))
    (folder / "manifest.tsv").write_text(utterances.manifest(rows))


def select(lengths: Mapping[str, int], speakers: Mapping[str, str]) -> dict[str, list[str]]:
    """The utterances of each split, given each one's number of samples at 16 kHz and its speaker."""
    by_speaker: dict[str, list[str]] = {}
    for name in sorted(lengths):
        if lengths[name] <= _LONGEST and name in speakers:
            by_speaker.setdefault(speakers[name], []).append(name)
    chosen = utterances.by_speaker(by_speaker, SIZES, "so762-8k:")
    for split, size in SIZES.items():
        if len(chosen[split]) < size:
            raise DataDamagedError(f"the corpus holds too few sentences for {size} of {split}.")
    return chosen


def drop_low_bits(samples: np.ndarray) -> tuple[np.ndarray, int]:
    """16-bit samples rounded to a multiple of 2^k, and k: rounding noise 12 dB below the signal's own."""
    frames = samples[: len(samples) // 128 * 128].reshape(-1, 128)
    noise = np.percentile(np.sqrt((frames**2).mean(1)), 5)
    dropped = max(k for k in range(6) if k == 0 or 2**k / np.sqrt(12) <= noise / 4)
    step = 2**dropped
    rounded = np.round(samples / step) * step
    return np.clip(rounded, -32768, 32768 - step).astype(np.int16), dropped


def _read_corpus(
    archive: Path,
) -> tuple[dict[str, _Sound], dict[str, dict[str, str]], dict[str, str]]:
    """In one pass: sentences of a fit length, the corpus's tables, and the half that each sentence is in."""
    sounds: dict[str, _Sound] = {}
    tables: dict[str, dict[str, str]] = {name: {} for name in _TABLES}
    halves: dict[str, str] = {}
    for member, read in tar_members(archive):
        path = PurePosixPath(member.name)
        wanted = path.name in tables or path.suffix.lower() == ".wav"
        if not wanted or not member.isreg() or member.issparse() or member.size > _MEMBER_LIMIT:
            continue
        if path.name in tables:
            for _, line in numbered(read(), member.name):
                key, _, value = line.partition("\t" if "\t" in line else " ")
                tables[path.name][key] = value.strip()
                if path.name == "utt2spk":
                    halves[key] = path.parent.name
            continue
        samples = _sound(read(), member.name)
        if 2 * SHORTEST <= len(samples) <= _LONGEST:
            sounds[path.stem] = _Sound(*drop_low_bits(halve_rate(samples.astype(np.float64))), len(samples))
    return sounds, tables, halves


def _sound(content: bytes, name: str) -> np.ndarray:
    """The samples at 16 kHz; a sound that is too long is cut just past the limit."""
    try:
        samples, rate = soundfile.read(io.BytesIO(content), frames=_LONGEST + 1, dtype="int16")
    except soundfile.SoundFileError as error:
        raise DataDamagedError(f"{name} cannot be decoded ({error}).") from None
    if rate != _SOURCE_RATE or samples.ndim != 1:
        raise DataDamagedError(f"{name} should be one channel at {_SOURCE_RATE} Hz.")
    return samples
