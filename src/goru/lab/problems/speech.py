"""Next frames of speech: the log-magnitude spectrum at t + 1 from those up to t.

Legend: T frames, B utterances, F = 129 bins. A frame is ln(max(|STFT|, FLOOR)) with a Hann window
(periodic) of 256 samples, hop 128, of samples in [-1, 1) at 8 kHz; only frames that lie wholly inside the
utterance. The network sees and predicts frames minus the mean of each bin, divided by one overall
deviation, both of the training set; without `normalize`, the frames themselves. Errors are mean squares over frames and
bins of the natural log-magnitude itself, so one number that all models share.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from goru.lab import data as datasets
from goru.lab.data import speechocean
from goru.lab.data.generated import voices
from goru.lab.data.readers import timit, utterances
from goru.lab.networks import FrameRegressor
from goru.lab.problems.concatenated import ConcatenatedSequences
from goru.lab.problems.epochs import Epochs, in_order
from goru.lab.tasks.speech import Speech
from goru.lab.tasks.task import TEST_SEED, DataProblem, MakeRecurrent, stream

WINDOW, HOP = 256, 128
BINS = WINDOW // 2 + 1
FLOOR = 1e-4
"""About what rounding to 16 bits leaves in a bin; silence lies there."""
SPLITS = ("train", "valid", "test")
_EVALUATION_BATCH = 50


class Frames(NamedTuple):
    """Frames in (T, B, F), the next ones (T, B, F), how many count of each utterance (B)."""

    inputs: Tensor
    targets: Tensor
    lengths: Tensor


def splits(task: Speech) -> dict[str, Callable[[], Iterator[np.ndarray]]]:
    """For each split a function that reads its utterances, on the scale of 16-bit numbers."""
    if task.data == "generated":
        sizes = {"train": 20, "valid": 5, "test": 8}
        return {split: partial(_generated, split, task.utterances * n // 20) for split, n in sizes.items()}
    return {split: partial(_recorded, task, split) for split in SPLITS}


def _recorded(task: Speech, split: str) -> Iterator[np.ndarray]:
    corpus = datasets.dataset(str(task.data_set))
    folder = datasets.require(corpus)
    with datasets.with_remedy(corpus):
        if task.data == "timit":
            yield from map(timit.read_utterance, timit.find_utterances(folder)[split])
        else:
            yield from speechocean.read_split(folder, speechocean.read_manifest(folder), split)


def _generated(split: str, count: int) -> Iterator[np.ndarray]:
    made = voices.write(split, count, stream(TEST_SEED, split))
    entries = utterances.parse_manifest(made.manifest, "generated manifest")
    return iter(utterances.read_archive(io.BytesIO(made.archive), entries, "generated archive"))


def log_magnitude(samples: np.ndarray) -> np.ndarray:
    """The frames (T, F) of an utterance given on the scale of 16-bit numbers."""
    signal = torch.from_numpy(samples.astype(np.float32) / 32768)
    if len(signal) < WINDOW:
        signal = torch.nn.functional.pad(signal, (0, WINDOW - len(signal)))
    window = torch.hann_window(WINDOW)
    magnitude = torch.fft.rfft(signal.unfold(0, WINDOW, HOP) * window).abs()
    return magnitude.clamp(min=FLOOR).log().numpy()


class SpeechProblem(DataProblem):
    def __init__(
        self,
        splits: dict[str, Callable[[], Iterator[np.ndarray]]],
        seed: int,
        batch_size: int,
        *,
        normalize: bool = True,
    ) -> None:
        self._splits = splits
        train = [log_magnitude(samples) for samples in splits["train"]()]
        everything = np.concatenate(train)
        self.mean = everything.mean(0, dtype=np.float64).astype(np.float32)
        self.deviation = float(np.sqrt(np.square(everything - self.mean).mean(dtype=np.float64)))
        del everything
        # What the network sees is (frames - shift) / scale.
        self.shift, self.scale = (self.mean, self.deviation) if normalize else (np.zeros_like(self.mean), 1.0)
        self._sets = {"train": self._normalized(train)}
        self._epochs = Epochs(len(train), batch_size, seed, self._sets["train"].lengths)
        self.steps_per_epoch = self._epochs.steps

    def _normalized(self, spectra: Sequence[np.ndarray]) -> ConcatenatedSequences:
        return ConcatenatedSequences([(frames - self.shift) / np.float32(self.scale) for frames in spectra])

    def frames(self, split: str) -> ConcatenatedSequences:
        """The frames of a split as the network sees them, read when first asked for."""
        if split not in self._sets:
            self._sets[split] = self._normalized([log_magnitude(samples) for samples in self._splits[split]()])
        return self._sets[split]

    def network(self, make_recurrent: MakeRecurrent) -> nn.Module:
        return FrameRegressor(make_recurrent, BINS, BINS)

    def _cut(self, split: str, rows: Tensor) -> Frames:
        frames, lengths = self.frames(split).padded(rows)
        return Frames(frames[:-1], frames[1:], lengths - 1)

    def batch(self, step: int) -> Frames:
        return self._cut("train", self._epochs.rows(step))

    def _squares(self, network: nn.Module, batch: Frames) -> Tensor:
        """The sum of squared errors over the frames that count, in the units of the log-magnitude."""
        predicted = network(batch.inputs, batch.lengths)
        errors = predicted - batch.targets.to(predicted.device)
        counts = torch.arange(len(errors)).unsqueeze(1) < batch.lengths
        return (errors.square().sum(-1) * counts.to(errors.device)).sum() * self.scale**2

    def loss(self, network: nn.Module, batch: Frames, carry: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Mean squared error over the frames that count."""
        return self._squares(network, batch) / (int(batch.lengths.sum()) * BINS), carry

    def weight(self, batch: Frames) -> float:
        return int(batch.lengths.sum())

    def evaluate(self, network: nn.Module, split: str) -> dict[str, float]:
        squares = count = 0.0
        for rows in in_order(self.frames(split).lengths, _EVALUATION_BATCH):
            batch = self._cut(split, rows)
            squares += self._squares(network, batch).item()
            count += int(batch.lengths.sum()) * BINS
        return {"loss": squares / count}

    def baseline(self) -> float:
        """The error on the test set of saying the mean of every bin."""
        mean = torch.from_numpy((self.mean - self.shift) / np.float32(self.scale))
        return float(self._bulk(lambda frames: frames[1:] - mean))

    def _bulk(self, error: Callable[[Tensor], Tensor]) -> float:
        """Mean square over the test utterances of what `error` gives for one."""
        test = self.frames("test")
        squares = count = 0.0
        for frames in test.values.split(test.lengths.tolist()):
            wrong = error(frames)
            squares += wrong.square().sum().item()
            count += wrong.numel()
        return squares / count * self.scale**2

    def about(self) -> dict[str, Any]:
        sets = {split: self.frames(split) for split in SPLITS}
        return {
            "utterances": {split: len(one) for split, one in sets.items()},
            "frames": {split: int(one.lengths.sum()) for split, one in sets.items()},
            "previous_frame_loss": self._bulk(lambda frames: frames.diff(dim=0)),
            "deviation": self.deviation,
            "floor": FLOOR,
        }

    def figure(self, network: nn.Module) -> dict[str, Any] | None:
        """Truth and prediction of the test utterance of median length, as log-magnitudes."""
        test = self.frames("test")
        row = torch.argsort(test.lengths, stable=True)[len(test) // 2 : len(test) // 2 + 1]
        batch = self._cut("test", row)
        predicted = network(batch.inputs, batch.lengths).cpu()

        def shown(frames: Tensor) -> list[list[float]]:
            natural = frames[:, 0] * self.scale + torch.from_numpy(self.shift)
            return [[round(value, 2) for value in frame] for frame in natural.tolist()]

        return {
            "spectrum_truth": shown(batch.targets),
            "spectrum_prediction": shown(predicted),
            "spectrum_seconds_a_frame": HOP / utterances.RATE,
            "spectrum_highest_hertz": utterances.RATE / 2,
            "spectrum_floor": math.log(FLOOR),
        }
