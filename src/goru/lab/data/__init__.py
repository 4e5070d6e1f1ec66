"""The data sets of the experiments: their sources and terms; find, download and verify them."""

from goru.lab.data.archives import DataDamagedError
from goru.lab.data.catalogue import DATASETS, DataSet, dataset
from goru.lab.data.store import (
    DataMissingError,
    Verdict,
    find,
    read,
    require,
    roots,
    search_first,
    verify,
    with_remedy,
)

__all__ = [
    "DATASETS",
    "DataDamagedError",
    "DataMissingError",
    "DataSet",
    "Verdict",
    "dataset",
    "find",
    "read",
    "require",
    "roots",
    "search_first",
    "verify",
    "with_remedy",
]
