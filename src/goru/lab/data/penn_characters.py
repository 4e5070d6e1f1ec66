"""The character files of the Penn Treebank, made from the word files (which most mirrors have)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

WORD_FILES = (
    ("train", 8 * 2**20, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    ("valid", 2**20, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    ("test", 2**20, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
)
"""Split, a bound on its length, sha256."""


def make(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write ptb.char.*.txt from ptb.*.txt."""
    for split, _, _ in WORD_FILES:
        words = downloads[f"ptb.{split}.txt"].read_text(encoding="utf-8")
        (folder / f"ptb.char.{split}.txt").write_bytes(characters(words).encode())


def characters(words: str) -> str:
    """Lines stripped, spaces written "_", a space after every character and every line end.

    >>> characters(" no it was \\n")
    'n o _ i t _ w a s \\n '
    """
    lines = "\n".join(line.strip().replace(" ", "_") for line in words.splitlines()) + "\n"
    return "".join(character + " " for character in lines)
