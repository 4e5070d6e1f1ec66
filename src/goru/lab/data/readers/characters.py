"""Texts as characters, each followed by a space; "_" is the word space, the line end a character too.

The Penn Treebank is read in this form; most mirrors have its words alone, so the form is also made from those.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from goru.lab.data.readers.lines import FormatError, numbered

WORD_FILES = (
    ("train", 8 * 2**20, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"),
    ("valid", 2**20, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    ("test", 2**20, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
)
"""Split, a bound on its length, sha256."""


def parse(content: bytes, source: str) -> str:
    """The text of a file.

    >>> parse(b"n o _ i t \\n w a s \\n ", "here")
    'no_it\\nwas\\n'
    """
    if not content.endswith(b"\n "):
        raise FormatError(source, content.count(b"\n") + 1, "the file should end with a line end and a space")
    lines = []
    for number, text in numbered(content[:-1], source):
        # The space after a line end stands at the beginning of the next line.
        body = text if number == 1 else text[1:]
        if (number > 1 and text[:1] != " ") or len(body) % 2 or body[1::2].strip(" "):
            raise FormatError(source, number, "every character should be followed by one space")
        characters = body[::2]
        if " " in characters or "\t" in characters:
            raise FormatError(source, number, "a space between words should be written _")
        lines.append(characters)
    return "\n".join(lines) + "\n"


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
