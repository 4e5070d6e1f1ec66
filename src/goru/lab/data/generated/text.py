"""A text source: sentences of invented words, with frequencies, agreement and quotations.

Words are made of syllables and used by Zipf's law; what can be learned is the spelling (short range), which
kind of word follows which, that a verb agrees with its noun, and that a quotation is closed (longer range).
"""

from __future__ import annotations

import numpy as np

from goru.lab.data.readers.characters import characters

_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "pl", "sh")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")
_CODAS = ("", "", "", "n", "r", "s", "l", "m")
_LEXICON_SEED = 7
_NOUNS, _VERBS, _ADJECTIVES = 300, 150, 80


def write(length: int, rng: np.random.Generator) -> bytes:
    """A file of about `length` characters in the character format."""
    lexicon = _Lexicon()
    lines: list[str] = []
    count = 0
    while count < length:
        lines.append(lexicon.sentence(rng))
        count += len(lines[-1]) + 1
    return characters("\n".join(lines)).encode()


class _Lexicon:
    """The language: always the same words; texts differ by the generator that draws sentences."""

    def __init__(self) -> None:
        rng = np.random.default_rng(_LEXICON_SEED)
        made: list[str] = []
        while len(made) < _NOUNS + _VERBS + _ADJECTIVES:
            word = "".join(self._syllable(rng) for _ in range(rng.integers(1, 4)))
            if word not in made:
                made.append(word)
        self.nouns, rest = made[:_NOUNS], made[_NOUNS:]
        self.verbs, self.adjectives = rest[:_VERBS], rest[_VERBS:]
        self._cumulative: dict[int, np.ndarray] = {}

    @staticmethod
    def _syllable(rng: np.random.Generator) -> str:
        return "".join(part[rng.integers(len(part))] for part in (_ONSETS, _VOWELS, _CODAS))

    def _draw(self, words: list[str], rng: np.random.Generator) -> str:
        if len(words) not in self._cumulative:
            weights = 1 / np.arange(1, len(words) + 1)
            self._cumulative[len(words)] = np.cumsum(weights / weights.sum())
        return words[min(int(np.searchsorted(self._cumulative[len(words)], rng.random())), len(words) - 1)]

    def _noun(self, plural: bool, rng: np.random.Generator) -> str:
        adjective = f"{self._draw(self.adjectives, rng)}y " if rng.random() < 0.3 else ""
        return f"{'some' if plural else 'the'} {adjective}{self._draw(self.nouns, rng)}{'z' if plural else ''}"

    def _clause(self, rng: np.random.Generator) -> str:
        plural = rng.random() < 0.4
        verb = self._draw(self.verbs, rng) + ("en" if plural else "eth")
        return f"{self._noun(plural, rng)} {verb} {self._noun(rng.random() < 0.4, rng)}"

    def sentence(self, rng: np.random.Generator) -> str:
        said = self._clause(rng)
        if rng.random() < 0.25:
            speaker = self._noun(plural=False, rng=rng)
            return f"`` {said} '' {speaker} sayeth"
        return f"{said} and {self._clause(rng)}" if rng.random() < 0.3 else said
