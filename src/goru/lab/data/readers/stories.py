"""Stories with questions in bAbI's format.

A line is `ID text` or `ID question<TAB>answer<TAB>IDs of the supporting lines`; IDs count from 1, and 1
begins a new story. An answer of several items joined by "," is one answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from goru.lab.data.readers.lines import FormatError, numbered, shown

_WORD = re.compile(r"[\w'-]+|[^\w\s]")


class Question(NamedTuple):
    """A question and everything told before it in its story."""

    statements: tuple[str, ...]
    """Words of all statements, one after the other, each with its full stop."""
    question: tuple[str, ...]
    answer: str
    supporting: tuple[int, ...]
    """IDs of the statements that the answer follows from."""
    story: int
    """Number of the story in its file, from 1."""


def words(text: str) -> tuple[str, ...]:
    """
    >>> words("Where is Mary? ")
    ('where', 'is', 'mary', '?')
    """
    return tuple(_WORD.findall(text.lower()))


def parse(content: bytes, source: str) -> list[Question]:
    """All questions of a file, in order."""
    questions: list[Question] = []
    told: list[str] = []
    statement_ids: set[int] = set()
    previous = story = 0
    for line, text in numbered(content, source):
        number, _, rest = text.partition(" ")
        if not number.isascii() or not number.isdigit() or len(number) > 6:
            raise FormatError(source, line, f"should begin with a number and a space, begins with {shown(text)}")
        if int(number) == 1:
            told, statement_ids, story = [], set(), story + 1
        elif int(number) != previous + 1:
            raise FormatError(source, line, f"line {number} of a story follows line {previous}")
        previous = int(number)
        columns = rest.split("\t")
        if len(columns) == 1:
            said = words(rest)
            if not said:
                raise FormatError(source, line, "an empty statement")
            told.extend(said)
            statement_ids.add(previous)
            continue
        if len(columns) != 3:
            raise FormatError(source, line, f"a question should have 3 columns, this has {len(columns)}")
        asked, answer = words(columns[0]), columns[1].strip().lower()
        if not asked or not answer or not told:
            raise FormatError(source, line, "a question needs words, an answer and a statement before it")
        supporting = _supporting(columns[2], statement_ids, source, line)
        questions.append(Question(tuple(told), asked, answer, supporting, story))
    if not questions:
        raise FormatError(source, None, "holds no question")
    return questions


def _supporting(column: str, statements: set[int], source: str, line: int) -> tuple[int, ...]:
    ids = column.split()
    if not all(one.isascii() and one.isdigit() and len(one) <= 6 and int(one) in statements for one in ids):
        raise FormatError(source, line, f"{shown(column)} should be numbers of statements before the question")
    return tuple(map(int, ids))
