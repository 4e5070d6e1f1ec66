"""Digits pixel by pixel: the readers, the split, the order of the pixels, learning."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from goru.lab import data as datasets
from goru.lab.data import catalogue
from goru.lab.data.archives import DataDamagedError
from goru.lab.data.generated import digits as drawn
from goru.lab.data.readers import digits as files
from goru.lab.data.readers.lines import FormatError
from goru.lab.problems.digits import DigitsProblem, load
from goru.lab.tasks.digits import Digits
from tests.lab.real_data import needs
from tests.lab.tasks.learning import fit, network_of, scores

IMAGES = struct.pack(">4I", 0x803, 2, 28, 28) + bytes(range(256)) * 6 + bytes(2 * 784 - 6 * 256)
SPLITS: list[str] = ["train", "valid", "test"]
LABELS = struct.pack(">2I", 0x801, 3) + bytes([7, 0, 9])


def test_the_files_of_mnist_by_hand() -> None:
    pictures = files.parse_images(IMAGES, "here")
    assert pictures.shape == (2, 784)
    assert pictures[0, :3].tolist() == [0, 1, 2]
    assert pictures[1, 0] == 784 % 256
    assert files.parse_labels(LABELS, "here").tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("parse", "content"),
    [
        (files.parse_images, b""),
        (files.parse_images, IMAGES[:-1]),
        (files.parse_images, b"\0\0\0\1" + IMAGES[4:]),
        (files.parse_images, struct.pack(">4I", 0x803, 2, 29, 28) + IMAGES[16:]),
        (files.parse_labels, LABELS[:5]),
        (files.parse_labels, LABELS + b"\1"),
        (files.parse_labels, LABELS[:-1] + b"\12"),
        (files.parse_list, b""),
        (files.parse_list, b"[1, 2]"),
        (files.parse_list, b'{"data": 3}'),
        (files.parse_list, b'{"data": [0.5]}'),
        (files.parse_list, json.dumps({"data": [0] * 783 + [1.5]}).encode()),
        (files.parse_list, json.dumps({"data": [0] * 783 + ["a"]}).encode()),
        (files.parse_list, b'{"data": ' + b"[" * 100_000),
        (files.parse_list, json.dumps({"data": [0] * 783}).encode()[:-2] + b", NaN]}"),
    ],
)
def test_other_content_is_an_error_that_names_the_file(parse: object, content: bytes) -> None:
    with pytest.raises(FormatError, match=r"^here: should"):
        parse(content, "here")  # pyright: ignore


def test_numbers_in_thousandths_give_the_bytes_back() -> None:
    every = [round(byte / 255, 3) for byte in range(256)] * 49
    pictures = files.parse_list(json.dumps({"data": every}).encode(), "here")
    assert pictures.shape == (16, 784)
    assert pictures.ravel()[:256].tolist() == list(range(256))


def problem(**settings: object) -> DigitsProblem:
    task = Digits(data="generated", digits=160, **settings)  # pyright: ignore
    made = task.problem(3, 10)
    assert isinstance(made, DigitsProblem)
    return made


def test_the_order_of_the_pixels_is_the_same_in_every_run() -> None:
    rows, order = problem(permuted=False), problem()
    torch.testing.assert_close(order.batch(4).inputs.sum(0), rows.batch(4).inputs.sum(0))  # the same pixels
    assert not torch.equal(order.batch(4).inputs, rows.batch(4).inputs)
    other_seed = Digits(data="generated", digits=160).problem(8, 10)
    assert isinstance(other_seed, DigitsProblem)
    assert torch.equal(other_seed._take("test", torch.arange(5)).inputs, order._take("test", torch.arange(5)).inputs)
    pictures, labels = drawn.write(160, np.random.default_rng(0))
    sets = dict.fromkeys(SPLITS, (pictures, labels))
    plain = DigitsProblem(Digits(data="generated", permuted=False), sets, 0, 10)._take("test", torch.arange(160))
    assert plain.inputs.shape == (784, 160, 1)
    assert np.array_equal((255 * plain.inputs[:, :, 0].T).round().numpy(), pictures)
    assert plain.targets.tolist() == labels.tolist()


def test_smaller_pictures_are_means_of_neighbors() -> None:
    picture = np.zeros((1, 28, 28), dtype=np.uint8)
    picture[0, 4:8, 8:12] = 200  # one square of 4 x 4
    picture[0, 0, 0] = 160
    sets = {split: (picture.reshape(1, -1), np.array([3], dtype=np.uint8)) for split in SPLITS}
    small = DigitsProblem(Digits(data="generated", permuted=False, side=7), sets, 0, 1).batch(0).inputs
    expected = torch.zeros(7, 7)
    expected[1, 2], expected[0, 0] = 200 / 255, 10 / 255
    torch.testing.assert_close(small.reshape(7, 7), expected)


def test_scores_are_those_of_single_digits() -> None:
    one = problem(side=7)
    network = network_of(one)
    every = one._take("test", torch.arange(20))
    logits = torch.cat([network(every.inputs[:, k : k + 1]) for k in range(20)])
    loss = torch.nn.functional.cross_entropy(logits, every.targets)
    right = (logits.argmax(-1) == every.targets).double().mean()
    assert scores(one, network) == pytest.approx({"loss": loss.item(), "accuracy": right.item()}, rel=1e-5)


def test_generated_digits_are_learned() -> None:
    one = Digits(data="generated", side=7).problem(0, 50)
    assert 2.2 < one.baseline() < 2.31
    assert fit(one, 300)["accuracy"] > 0.3  # chance: 0.1


@pytest.mark.parametrize("settings", [{"side": 8}, {"digits": 79}])
def test_impossible_settings(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="side should be one of 28, 14, 7, digits at least 80"):
        Digits(**settings)  # pyright: ignore


@needs("mnist10k")
def test_the_ten_thousand_digits() -> None:
    """Of each class the last tenth is for testing, the tenth before for validation."""
    splits = load(Digits())
    assert {split: len(labels) for split, (_, labels) in splits.items()} == {"train": 7996, "valid": 999, "test": 1005}
    counts = np.array([1001, 1127, 991, 1032, 980, 863, 1014, 1070, 944, 978])
    for split, first, last in (("train", 0, 8), ("valid", 8, 9), ("test", 9, 10)):
        assert (np.bincount(splits[split][1]) == counts * last // 10 - counts * first // 10).all()
    pictures = np.concatenate([splits[split][0] for split in splits])
    assert len(np.unique(pictures, axis=0)) > 9_900  # hardly any digit twice


def test_all_digits_from_a_folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last 5,000 training digits are for validation, the files of ten thousand for testing."""
    rng = np.random.default_rng(0)
    content = {}
    for split, count in (("train", 5_003), ("t10k", 4)):
        pictures, labels = rng.integers(0, 256, count * 784, np.uint8), rng.integers(0, 10, count, np.uint8)
        content[f"{split}-images-idx3-ubyte"] = struct.pack(">4I", 0x803, count, 28, 28) + pictures.tobytes()
        content[f"{split}-labels-idx1-ubyte"] = struct.pack(">2I", 0x801, count) + labels.tobytes()
    monkeypatch.setattr(datasets, "read", lambda *_: content)
    splits = load(Digits(data="mnist"))
    assert [len(labels) for _, labels in splits.values()] == [3, 5_000, 4]
    assert splits["train"][0].tobytes() == content["train-images-idx3-ubyte"][16 : 16 + 3 * 784]
    assert splits["valid"][1].tobytes() == content["train-labels-idx1-ubyte"][-5_000:]


def test_the_files_of_mnist_have_their_lengths_and_are_unpacked(tmp_path: Path) -> None:
    """Each part is unpacked to its own length; another length is an error."""
    sizes = {part.name: part.size for part in catalogue.dataset("mnist").parts}
    assert sizes["train-images-idx3-ubyte"] == 16 + 60_000 * 784
    assert sizes["t10k-labels-idx1-ubyte"] == 8 + 10_000
    (source,) = catalogue.dataset("mnist").sources
    assert {one.file for one in source.downloads} == {f"{name}.gz" for name in sizes}
    assert all(one.known_hash and one.known_hash.startswith("sha256:") for one in source.downloads)
    downloads = {f"{name}.gz": tmp_path / f"{name}.gz" for name in sizes}
    for file in downloads.values():
        file.write_bytes(gzip.compress(b"too short"))
    with pytest.raises(DataDamagedError, match="should hold 47040016 bytes"):
        source.make(downloads, tmp_path)  # pyright: ignore
