"""Speech-like signals: a buzz through changing resonances, hisses and pauses, over a little noise.

Written as sound files in an archive with a manifest, like the recorded speech.
"""

from __future__ import annotations

import io
import zipfile
from typing import NamedTuple

import numpy as np

from goru.lab.data.readers.utterances import RATE, add_sound, manifest, pcm_digest

_VOWELS = np.array([[730, 1090, 2440], [270, 2290, 3010], [300, 870, 2240], [530, 1840, 2480], [570, 840, 2410]])
"""Resonances (Hz) of a, i, u, e, o."""
_BANDWIDTH = 90.0
_HIGHEST = RATE / 2 - 100


class Voices(NamedTuple):
    """The archive of a split and its manifest."""

    archive: bytes
    manifest: bytes


def write(split: str, count: int, rng: np.random.Generator) -> Voices:
    """Utterances of one to two seconds."""
    buffer = io.BytesIO()
    rows = []
    with zipfile.ZipFile(buffer, "w") as archive:
        for k in range(count):
            samples = utterance(rng)
            file = f"{split}/voice{k:04}.flac"
            add_sound(archive, file, samples)
            about = [f"{k:04}", f"{k:04}", "", "", ""]
            rows.append([split, file, *about, str(len(samples)), "0", pcm_digest(samples), ""])
    return Voices(buffer.getvalue(), manifest(rows).encode())


def utterance(rng: np.random.Generator) -> np.ndarray:
    """16-bit samples."""
    pitch = rng.uniform(90, 220)
    sounds = [_sound(pitch, rng) for _ in range(rng.integers(6, 12))]
    signal = np.concatenate(sounds)
    signal = signal / np.abs(signal).max() * rng.uniform(3000, 15000)
    return np.round(signal + rng.normal(0, 8, len(signal))).astype(np.int16)


def _sound(pitch: float, rng: np.random.Generator) -> np.ndarray:
    length = int(rng.uniform(0.08, 0.24) * RATE)
    envelope = np.sin(np.pi * np.linspace(0, 1, length)) ** 0.5
    kind = rng.random()
    if kind < 0.12:
        return np.zeros(length)
    if kind < 0.3:  # a hiss: high-pass filtered noise
        return 0.15 * envelope * np.diff(rng.normal(size=length + 1))
    start, end = _VOWELS[rng.integers(len(_VOWELS), size=2)]
    glide = np.linspace(0, 1, length)
    frequency = pitch * (1 + 0.15 * np.sin(2 * np.pi * (rng.random() + glide * rng.uniform(0.2, 0.6))))
    phase = 2 * np.pi * np.cumsum(frequency) / RATE
    harmonics = np.arange(1, int(_HIGHEST / (1.15 * pitch)) + 1)
    # Resonances move slowly: their gains are computed at a few moments and interpolated.
    moments = np.linspace(0, 1, 8)
    resonances = start + moments[:, None] * (end - start)  # (8, 3)
    offset = (harmonics[None, :, None] * pitch - resonances[:, None, :]) / _BANDWIDTH  # (8, harmonics, 3)
    gains = (1 / (1 + offset**2)).sum(-1) / harmonics**0.5
    voiced = np.zeros(length)
    for k, harmonic in enumerate(harmonics):
        voiced += np.interp(glide, moments, gains[:, k]) * np.sin(harmonic * phase)
    return envelope * voiced
