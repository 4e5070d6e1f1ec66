"""A recorded corpus in small, for tests: a folder like that of `speech_so762_8k`, with generated voices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from goru.lab.data import speechocean
from goru.lab.data.generated import voices
from goru.lab.data.readers import utterances

SIZES = {"test": 4, "valid": 3, "train": 6}


def write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files, and let their selection be the one that is expected."""
    folder.mkdir(parents=True)
    lines: list[bytes] = []
    for seed, (split, count) in enumerate(SIZES.items()):
        made = voices.write(split, count, np.random.default_rng(seed))
        (folder / f"so762_8k_{split}.zip").write_bytes(made.archive)
        heading, *rows = made.manifest.splitlines(keepends=True)
        lines += rows if lines else [heading, *rows]
    content = b"".join(lines)
    (folder / "manifest.tsv").write_bytes(content)
    selection = speechocean.selection_digest(utterances.parse_manifest(content, "manifest"))
    monkeypatch.setattr(speechocean, "SELECTION_SHA256", selection)
