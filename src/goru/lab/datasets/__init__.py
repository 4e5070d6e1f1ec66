"""The experiments' data sets: what exists, where from, under which terms; finds, downloads, verifies them."""

from goru.lab.datasets.archives import DataDamagedError
from goru.lab.datasets.catalogue import DATASETS, DataSet, dataset
from goru.lab.datasets.store import (
    DataMissingError,
    Verdict,
    find,
    look_first_in,
    mending,
    read,
    require,
    roots,
    verify,
)

__all__ = [
    "DATASETS",
    "DataDamagedError",
    "DataMissingError",
    "DataSet",
    "Verdict",
    "dataset",
    "find",
    "look_first_in",
    "mending",
    "read",
    "require",
    "roots",
    "verify",
]
