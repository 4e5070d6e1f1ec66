"""A user's own copy of TIMIT: TRAIN and TEST, dialect regions, speakers, sentences; upper or lower case.

The paper's sizes are 2400, 600 and 1000 utterances, which ones it does not say. Here: the speakers of TRAIN
in order of a hash of their names give the first two sets (a speaker is in one of them only), those of TEST
the third; the two sentences that everybody reads (SA1, SA2) are excluded, as usual.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from goru.lab.data.readers import sphere
from goru.lab.data.readers.lines import FormatError
from goru.lab.data.readers.utterances import SHORTEST, by_speaker, halve_rate

SIZES = {"train": 2400, "valid": 600, "test": 1000}
RATE = 16_000


def find_utterances(folder: Path) -> dict[str, list[Path]]:
    """The sound files of each set, in order."""
    chosen: dict[str, list[Path]] = {}
    for half, splits in (("train", ("valid", "train")), ("test", ("test",))):
        chosen |= by_speaker(_half(folder, half), {split: SIZES[split] for split in splits})
    if any(len(chosen[split]) < size for split, size in SIZES.items()):
        raise FormatError(str(folder), None, f"holds too few sentences for sets of {SIZES}")
    return chosen


def read_utterance(file: Path) -> np.ndarray:
    """The samples of a sound file at 8 kHz, float64, on the scale of 16-bit numbers."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise FormatError(str(file), None, f"cannot be read ({error.strerror or error})") from None
    samples, rate = sphere.parse(content, str(file))
    if rate != RATE:
        raise FormatError(str(file), None, f"has {rate} samples a second, TIMIT has {RATE}")
    halved = halve_rate(samples.astype(np.float64))
    if len(halved) < SHORTEST:
        raise FormatError(str(file), None, f"has {len(samples)} samples, at least {2 * SHORTEST - 1} are needed")
    return halved


def check(folder: Path) -> None:
    """Check that the layout is TIMIT's, that the sets can be filled and that every chosen file is readable."""
    for files in find_utterances(folder).values():
        for file in files:
            read_utterance(file)


def _half(folder: Path, name: str) -> dict[str, list[Path]]:
    """Sound files by speaker of TRAIN or TEST; `folder` may be TIMIT itself or what holds it."""
    for top in (folder, folder / "TIMIT", folder / "timit"):
        for spelling in (name.upper(), name):
            if (top / spelling).is_dir():
                return _speakers(top / spelling)
    raise FormatError(str(folder), None, f"has no folder {name.upper()} with TIMIT's dialect regions")


def _speakers(half: Path) -> dict[str, list[Path]]:
    speakers: dict[str, list[Path]] = {}
    for file in sorted(half.glob("*/*/*")):
        sentence = file.stem.upper()
        if file.suffix.upper() == ".WAV" and not sentence.startswith("SA"):
            speakers.setdefault(file.parent.name.upper(), []).append(file)
    return {name: sorted(files, key=lambda file: file.stem.upper()) for name, files in speakers.items()}
