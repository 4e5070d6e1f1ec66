"""Damaged files of every kind: read as a sentence, never as a wrong number, a crash or a hang."""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from goru.lab.engines import progress
from goru.lab.errors import LabError
from goru.lab.report.record import load, read
from goru.lab.training import manifest
from goru.lab.training.loop import train
from tests.lab.small import outcome, small

CONFIG = small("parenthesis", "goru", steps=6)

Damage = Callable[[random.Random, bytes], bytes]


def flip(chance: random.Random, content: bytes) -> bytes:
    """Some bits are the other way round."""
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 8])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def zeros(chance: random.Random, content: bytes) -> bytes:
    """A block that was never written."""
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice([1, 16, 512, 4096]))
    return content[:start] + bytes(end - start) + content[end:]


def digit(chance: random.Random, content: bytes) -> bytes:
    """Another digit: the file stays well-formed."""
    places = [k for k, byte in enumerate(content) if chr(byte).isdigit()]
    place = chance.choice(places or [0])
    return content[:place] + str(chance.randrange(10)).encode() + content[place + 1 :]


def shuffled(chance: random.Random, content: bytes) -> bytes:
    """Lines in another order, one of them twice."""
    lines = content.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join([*lines, chance.choice(lines)])


def noise(chance: random.Random, content: bytes) -> bytes:
    return chance.randbytes(chance.randrange(1, 2 * len(content)))


def longer(chance: random.Random, content: bytes) -> bytes:
    return content + chance.choice([b"\n", b"\0", b"{}", content])


KINDS: tuple[Damage, ...] = (flip, cut, zeros, digit, shuffled, noise, longer)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train(CONFIG, folder)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints and no result."""
    folder = tmp_path_factory.mktemp("stopped")
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 4"):
        train(CONFIG, folder, checkpoint_seconds=0, stop=lambda: next(count) == 4)
    return folder


def look(directory: Path, folder: Path, file: Path, original: bytes) -> str:
    """What report and status make of a damaged finished run: believed only if it is true."""
    try:
        record = read(directory)
        assert record is not None
        seen = record.state
    except LabError:
        seen = "refused"
    if file.read_bytes() != original:
        assert seen == "refused", (file.name, seen)
    groups, problems = load(folder)
    assert (groups == []) == (seen != "finished")
    assert problems or groups
    try:
        assert progress.read(directory).state != "finished" or seen == "finished"
    except LabError:
        assert seen != "finished"
    return seen


def damage_finished(finished: Path, folder: Path, count: int, seed: str) -> dict[str, int]:
    shutil.copytree(finished, folder / "runs")
    directory = CONFIG.directory(folder / "runs")
    chance = random.Random(seed)
    seen: dict[str, int] = {}
    for _ in range(count):
        file = directory / chance.choice([*manifest.FILES, manifest.NAME])
        original = file.read_bytes()
        file.write_bytes(chance.choice(KINDS)(chance, original))
        if file.name == manifest.NAME:  # white space and the like may leave it as good as before
            try:
                manifest.verify(directory)
            except LabError:
                outcome_ = look(directory, folder / "runs", file, original)
            else:
                outcome_ = "harmless"
        else:
            outcome_ = look(directory, folder / "runs", file, original)
        seen[outcome_] = seen.get(outcome_, 0) + 1
        file.write_bytes(original)
    return seen


def damage_stopped(stopped: Path, finished: Path, folder: Path, count: int, seed: str) -> None:
    """The last checkpoint is damaged: the run goes on from the one before and ends with the same bits."""
    chance = random.Random(seed)
    expected = outcome(CONFIG.directory(finished))
    for number in range(count):
        directory = copy(stopped, folder)
        names = ["checkpoint.safetensors", "environment.json"]
        for name in chance.sample(names, chance.choice([1, 1, 2])):
            content = (directory / name).read_bytes()
            (directory / name).write_bytes(chance.choice([flip, cut, zeros, noise, longer])(chance, content))
        train(CONFIG, folder / "runs")
        assert outcome(directory) == expected, (seed, number)


def damage_texts_of_stopped(stopped: Path, finished: Path, folder: Path, count: int, seed: str) -> dict[str, int]:
    """A text file is damaged: the run ends with the same bits, or with a sentence, and never seals what is false."""
    chance = random.Random(seed)
    expected = outcome(CONFIG.directory(finished))
    seen: dict[str, int] = {}
    for number in range(count):
        directory = copy(stopped, folder)
        file = directory / chance.choice(["metrics.jsonl", "metrics.jsonl", "config.json", "failure.json"])
        if file.name == "failure.json":
            file.write_text('{"message": "no space left", "failed_time": 1.5}\n')
        file.write_bytes(chance.choice(KINDS)(chance, file.read_bytes()))
        with contextlib.suppress(LabError):
            progress.read(directory)
        load(folder / "runs")
        try:
            train(CONFIG, folder / "runs")
        except LabError:
            assert file.name != "failure.json", (seed, number)
            assert not (directory / "result.json").exists(), (seed, number)
            assert not (directory / manifest.NAME).exists(), (seed, number)
            ended = f"{file.name} refused"
        else:
            assert outcome(directory) == expected, (seed, number)
            assert manifest.verify(directory) == "run"
            ended = f"{file.name} mended"
        seen[ended] = seen.get(ended, 0) + 1
    return seen


def copy(stopped: Path, folder: Path) -> Path:
    """A fresh copy of the stopped run."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    shutil.copytree(stopped, folder / "runs")
    return CONFIG.directory(folder / "runs")


def test_finished_runs(finished: Path, tmp_path: Path) -> None:
    seen = damage_finished(finished, tmp_path, 150, "a few")
    assert seen["refused"] > 100


def test_stopped_runs(stopped: Path, finished: Path, tmp_path: Path) -> None:
    damage_stopped(stopped, finished, tmp_path, 6, "a few")


def test_texts_of_stopped_runs(stopped: Path, finished: Path, tmp_path: Path) -> None:
    seen = damage_texts_of_stopped(stopped, finished, tmp_path, 24, "a few")
    assert {"metrics.jsonl refused", "config.json refused", "failure.json mended"} <= seen.keys()


@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_ten_thousand_files_of_finished_runs(part: int, finished: Path, tmp_path: Path) -> None:
    seen = damage_finished(finished, tmp_path, 1_250, f"many {part}")
    assert seen["refused"] > 900


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_checkpoints(part: int, stopped: Path, finished: Path, tmp_path: Path) -> None:
    damage_stopped(stopped, finished, tmp_path, 250, f"many {part}")


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_a_thousand_texts_of_stopped_runs(part: int, stopped: Path, finished: Path, tmp_path: Path) -> None:
    seen = damage_texts_of_stopped(stopped, finished, tmp_path, 250, f"many {part}")
    assert seen["metrics.jsonl refused"] > 50
