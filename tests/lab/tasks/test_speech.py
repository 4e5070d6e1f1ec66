"""Next frames of speech: the transform, normalization, masked loss, figure, learning."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from goru.lab import data as datasets
from goru.lab.data import speechocean, store
from goru.lab.data.readers import utterances
from goru.lab.errors import LabError
from goru.lab.problems.speech import BINS, FLOOR, SpeechProblem, log_magnitude, splits
from goru.lab.tasks.speech import Speech
from tests.lab import small_speech
from tests.lab.real_data import needs
from tests.lab.tasks.learning import fit, network_of, scores


def test_the_transform_by_hand() -> None:
    """A cosine at the center of bin 16 with amplitude 0.5: the Hann window gives N/4 there, half of it beside."""
    t = np.arange(1000)
    frames = log_magnitude(16384 * np.cos(2 * np.pi * 16 * t / 256))
    assert frames.shape == ((1000 - 256) // 128 + 1, BINS)
    assert frames.dtype == np.float32
    assert frames[:, 16] == pytest.approx(math.log(0.5 * 256 / 4), abs=1e-4)
    assert frames[:, 15] == pytest.approx(math.log(0.5 * 256 / 8), abs=1e-4)
    assert frames[:, 30] == pytest.approx(math.log(FLOOR), abs=0.5)
    assert log_magnitude(np.zeros(400)) == pytest.approx(math.log(1e-4))
    assert log_magnitude(np.zeros(10)).shape == (1, BINS)


def split(*lengths: int, seed: int = 0) -> Callable[[], Iterator[np.ndarray]]:
    rng = np.random.default_rng(seed)
    sounds = [rng.normal(0, 100, 256 + 128 * (frames - 1)) for frames in lengths]
    return lambda: iter(sounds)


@pytest.fixture(scope="module")
def noise() -> SpeechProblem:
    return SpeechProblem({"train": split(9, 4, 6, 12), "valid": split(5, 8), "test": split(7, 3)}, 0, 2)


def test_normalization_and_shapes(noise: SpeechProblem) -> None:
    train = noise.frames("train")
    assert train.lengths.tolist() == [9, 4, 6, 12]
    assert train.values.mean(0).abs().max() < 1e-5
    assert train.values.square().mean().item() == pytest.approx(1.0, abs=1e-4)
    batch = noise.batch(0)
    assert batch.inputs.shape == batch.targets.shape == (int(batch.lengths.max()), 2, BINS)
    assert torch.equal(batch.inputs[1:], batch.targets[:-1])


@pytest.mark.parametrize("cell", ["goru", "gru", "lstm", "eurnn-real", "eurnn-complex"])
def test_loss_is_the_mean_over_real_frames(noise: SpeechProblem, cell: str) -> None:
    """Against a plain loop over single utterances, in the units of the log-magnitude."""
    network = network_of(noise, cell).eval()
    squares, count = 0.0, 0
    ragged = noise.frames("test")
    with torch.no_grad():
        for frames in ragged.values.split(ragged.lengths.tolist()):
            guess = network(frames[:-1].unsqueeze(1), torch.tensor([len(frames) - 1]))[:, 0]
            squares += ((guess - frames[1:]) * noise.deviation).square().sum().item()
            count += guess.numel()
    assert scores(noise, network)["loss"] == pytest.approx(squares / count, rel=1e-5)


def test_without_normalization_the_network_sees_the_log_magnitudes(noise: SpeechProblem) -> None:
    """The error has the same units, and the levels that need no learning are the same."""
    sets = {"train": split(9, 4, 6, 12), "valid": split(5, 8), "test": split(7, 3)}
    raw = SpeechProblem(sets, 0, 2, normalize=False)
    seen = np.concatenate([log_magnitude(sound) for sound in sets["test"]()])
    assert np.array_equal(raw.frames("test").values.numpy(), seen)
    assert raw.baseline() == pytest.approx(noise.baseline(), rel=1e-5)
    assert raw.about()["previous_frame_loss"] == pytest.approx(noise.about()["previous_frame_loss"], rel=1e-5)
    network: Any = network_of(raw, "gru").eval()
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.from_numpy(raw.mean))  # says the mean frame
        assert scores(raw, network)["loss"] == pytest.approx(raw.baseline(), rel=1e-5)
        figures = [problem.figure(network_of(problem, "gru")) for problem in (raw, noise)]
    truth = [figure["spectrum_truth"] for figure in figures if figure]
    assert np.array(truth[0]) == pytest.approx(np.array(truth[1]), abs=0.011)  # rounded to 0.01


def test_reference_errors(noise: SpeechProblem) -> None:
    frames = noise.frames("test")
    parts = frames.values.split(frames.lengths.tolist())
    before = torch.cat([part[1:] - part[:-1] for part in parts]).square().mean().item() * noise.deviation**2
    assert noise.about()["previous_frame_loss"] == pytest.approx(before, rel=1e-5)
    mean = torch.cat([part[1:] for part in parts]).square().mean().item() * noise.deviation**2
    assert noise.baseline() == pytest.approx(mean, rel=1e-5)


def test_figure(noise: SpeechProblem) -> None:
    with torch.no_grad():
        figure = noise.figure(network_of(noise).eval())
    assert figure is not None
    truth = np.array(figure["spectrum_truth"])
    assert truth.shape == np.array(figure["spectrum_prediction"]).shape == (6, BINS)
    original = log_magnitude(next(split(7, 3)()))
    assert truth == pytest.approx(original[1:], abs=0.006)  # rounded to two digits


def test_learns_on_generated_voices() -> None:
    problem = Speech(data="generated", utterances=40).problem(0, 32)
    assert problem.about()["utterances"] == {"train": 40, "valid": 10, "test": 16}
    assert fit(problem, 40)["loss"] < 0.7 * problem.baseline()


def test_timit_is_read_from_the_users_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goru.lab.data.readers import timit
    from tests.lab.test_readers_sound import sphere_file

    monkeypatch.setenv("GORU_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(LabError, match="bring your own copy"):
        Speech(data="timit").problem(0, 2)
    monkeypatch.setattr(timit, "SIZES", {"train": 6, "valid": 3, "test": 3})
    (tmp_path / "TIMIT" / "elsewhere").mkdir(parents=True)
    for use in (lambda: store.check_quickly(datasets.dataset("timit")), lambda: Speech(data="timit").problem(0, 2)):
        with pytest.raises(LabError, match=r"has no folder TRAIN .*; bring your own copy: put or link the folder"):
            use()
    rng = np.random.default_rng(0)
    for half, speakers in (("TRAIN", 4), ("TEST", 2)):
        for k in range(speakers):
            for name in ("SA1", "SI1", "SX2", "SX3"):
                file = tmp_path / "TIMIT" / half / "DR1" / f"MABC{k}" / f"{name}.WAV"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(sphere_file(rng.integers(-2000, 2000, 4000)))
    problem = Speech(data="timit").problem(0, 2)
    assert isinstance(problem, SpeechProblem)
    assert problem.about()["utterances"] == {"train": 6, "valid": 3, "test": 3}
    assert problem.frames("test").lengths.tolist() == [(2000 - 256) // 128 + 1] * 3
    assert Speech(data="timit").data_title == "TIMIT"
    file = timit.find_utterances(tmp_path / "TIMIT")["valid"][1]
    file.write_bytes(sphere_file(np.ones(600)))
    with pytest.raises(LabError, match=rf"{file}: has 600 samples, at least 767 are needed"):
        list(splits(Speech(data="timit"))["valid"]())


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a small recorded corpus, the only one on the machine."""
    monkeypatch.setenv("GORU_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    small_speech.write(tmp_path / "speech_so762_8k", monkeypatch)
    return tmp_path / "speech_so762_8k"


MEND = r"run `goru data fetch speech_so762_8k` for a good copy\.$"


def refused(match: str) -> None:
    """Before a training starts, and by the training itself."""
    for use in (
        lambda: store.check_quickly(datasets.dataset("speech_so762_8k")),
        lambda: Speech().problem(0, 2).about(),
    ):
        with pytest.raises(LabError, match=match) as error:
            use()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("cut", ["train", "test", "all of test"])
def test_a_cut_manifest_is_refused(recorded: Path, cut: str) -> None:
    assert Speech().problem(0, 2).about()["utterances"] == small_speech.SIZES
    manifest = recorded / "manifest.tsv"
    lines = manifest.read_text().splitlines(keepends=True)
    rows = [line for line in lines if line.startswith(f"{cut.split()[-1]}\t")]
    dropped = rows if cut.startswith("all") else rows[-1:]
    manifest.write_text("".join(line for line in lines if line not in dropped))
    refused(rf"manifest\.tsv does not name the 2400 / 600 / 1000 chosen utterances; {MEND}")


@pytest.mark.parametrize("split", small_speech.SIZES)
def test_a_broken_archive_is_refused(recorded: Path, split: str) -> None:
    archive = recorded / f"so762_8k_{split}.zip"
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    refused(rf"so762_8k_{split}\.zip: damaged, or not a zip archive .*; {MEND}")
    other = next(name for name in small_speech.SIZES if name != split)
    archive.write_bytes((recorded / f"so762_8k_{other}.zip").read_bytes())
    refused(rf"so762_8k_{split}\.zip: lacks {split}/voice0000\.flac; {MEND}")
    archive.unlink()
    with pytest.raises(LabError, match=rf"lacks {archive.name}: run `goru data fetch speech_so762_8k`"):
        store.check_quickly(datasets.dataset("speech_so762_8k"))


def test_changed_sounds_are_refused(recorded: Path) -> None:
    archive = recorded / "so762_8k_test.zip"
    whole = bytearray(archive.read_bytes())
    whole[len(whole) // 3] ^= 1
    archive.write_bytes(whole)
    with pytest.raises(LabError, match=rf"so762_8k_test\.zip: .*; {MEND}"):
        Speech().problem(0, 2).about()
    verdict = store.verify(datasets.dataset("speech_so762_8k"))
    assert verdict.state == "damaged"
    assert "run `goru data fetch speech_so762_8k` for a good copy" in verdict.message


def test_another_rounding_is_used(recorded: Path) -> None:
    """The same utterances and lengths, other samples: what they are is for `goru data verify` to say."""
    entries = speechocean.read_manifest(recorded)
    assert speechocean.samples_digest(entries) != speechocean.SAMPLES_SHA256
    store.check_quickly(datasets.dataset("speech_so762_8k"))
    assert Speech().problem(0, 2).about()["utterances"] == small_speech.SIZES


@pytest.mark.parametrize("cell", ["goru", "gru", "lstm", "eurnn-complex"])
def test_the_shortest_utterance_that_is_read(cell: str) -> None:
    """Two frames: one to see, one to predict; every model takes it."""
    sound = np.random.default_rng(0).normal(0, 100, utterances.SHORTEST)
    assert log_magnitude(sound).shape == (2, BINS)
    assert log_magnitude(sound[1:]).shape == (1, BINS)
    problem = SpeechProblem({name: lambda: iter([sound, sound]) for name in ("train", "valid", "test")}, 0, 2)
    assert math.isfinite(scores(problem, network_of(problem, cell).eval())["loss"])


@needs("speech_so762_8k")
def test_learns_on_real_speech() -> None:
    """Trained for moments on a part of the corpus, a GORU is better than saying the frame before."""
    sounds = list(splits(Speech())["valid"]())
    assert len(sounds) == 600
    problem = SpeechProblem(
        {
            "train": lambda: iter(sounds[:480]),
            "valid": lambda: iter(sounds[480:540]),
            "test": lambda: iter(sounds[540:]),
        },
        0,
        32,
    )
    frames = problem.about()["frames"]
    assert sum(frames.values()) == sum((len(sound) - 256) // 128 + 1 for sound in sounds)
    assert fit(problem, 80, hidden_size=128)["loss"] < problem.about()["previous_frame_loss"]
