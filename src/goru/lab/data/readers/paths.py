"""Graphs and shortest paths as tokens: `n9 e1 n4 eol ... q1 n9 n6 ans 9 4 6`, one example per line."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goru.lab.data.readers.lines import FormatError, numbered, shown

NODES = 9
EDGE_LINES = 18
TOKENS = (*(f"n{k}" for k in range(1, NODES + 1)), "e1", "eol", "q1", "ans")
"""The 13 input symbols; a token's number is its place here."""
NUMBER = {token: k for k, token in enumerate(TOKENS)}
ANSWER = NUMBER["ans"]
INPUT_STEPS = 4 * EDGE_LINES + 4
END = NODES
"""The class after the last node; node n has class n - 1."""

_NODES = frozenset(range(NODES))
_SHAPE = tuple(
    frozenset({NUMBER[slot]}) if slot else _NODES
    for slot in (*(("", "e1", "", "eol") * EDGE_LINES), "q1", "", "", "ans")
)


class Example(NamedTuple):
    """A graph with a query, and the path."""

    tokens: np.ndarray
    """(76,) numbers of the input tokens."""
    path: tuple[int, ...]
    """Nodes on the path, counted from 0."""


def parse(content: bytes, source: str) -> list[Example]:
    """All examples of a file."""
    examples = [_example(text.split(), source, line) for line, text in numbered(content, source)]
    if not examples:
        raise FormatError(source, None, "holds no example")
    return examples


def _example(words: list[str], source: str, line: int) -> Example:
    given, answer = words[:INPUT_STEPS], words[INPUT_STEPS:]
    if len(given) < INPUT_STEPS:
        raise FormatError(source, line, f"should begin with {INPUT_STEPS} tokens, has {len(words)} words")
    tokens = np.empty(INPUT_STEPS, dtype=np.int64)
    for place, word in enumerate(given):
        token = NUMBER.get(word, -1)
        if token not in _SHAPE[place]:
            raise FormatError(source, line, f"{shown(word)} cannot be word {place + 1}")
        tokens[place] = token
    if not 2 <= len(answer) <= NODES or not all(len(word) == 1 and word in "123456789" for word in answer):
        raise FormatError(
            source,
            line,
            f"the path should be 2 to {NODES} nodes 1 to {NODES}, it is {shown(' '.join(answer))}",
        )
    path = tuple(int(word) - 1 for word in answer)
    if (path[0], path[-1]) != (tokens[-3], tokens[-2]) or len(set(path)) != len(path):
        raise FormatError(source, line, "the path does not lead from the first node asked for to the second")
    return Example(tokens, path)
