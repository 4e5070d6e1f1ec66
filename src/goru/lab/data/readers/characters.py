"""Texts as characters, each followed by a space; "_" is the word space, the line end a character too."""

from __future__ import annotations

from goru.lab.data.readers.lines import FormatError, numbered


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


def alphabet(text: str) -> tuple[str, ...]:
    """The characters of a text, in order.

    >>> alphabet("noon_")
    ('_', 'n', 'o')
    """
    return tuple(sorted(set(text)))
