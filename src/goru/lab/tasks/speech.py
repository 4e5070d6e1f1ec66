"""Next frames of speech: the log-magnitude spectrum at t + 1 from those up to t."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from goru.lab.tasks.task import Problem, Task


@dataclass(frozen=True)
class Speech(Task):
    """Next frames of speech."""

    sources: ClassVar = {
        "so762": ("speech_so762_8k", "speechocean762 at 8 kHz"),
        "timit": ("timit", "TIMIT"),
        "generated": (None, "generated voices"),
    }
    data: Literal["so762", "timit", "generated"] = "so762"
    """The open corpus, the user's own copy of TIMIT, or speech-like signals that this project makes."""
    normalize: bool = True
    """Whether the network sees frames with mean 0 and deviation 1, rather than the log-magnitudes themselves."""
    utterances: int = 240
    """Training utterances of generated data (validation: a fourth, test: four tenths)."""

    def __post_init__(self) -> None:
        if self.utterances < 10:
            raise ValueError("utterances should be at least 10")

    def problem(self, seed: int, batch_size: int) -> Problem:
        from goru.lab.problems.speech import SpeechProblem, splits

        return SpeechProblem(splits(self), seed, batch_size, normalize=self.normalize)
