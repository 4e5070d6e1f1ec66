"""The data sets of the experiments: their sources and terms; find, download and verify them."""

from goru.lab.data.catalogue import DATASETS, DataSet, dataset
from goru.lab.data.store import find, read, require, verify, with_remedy

__all__ = ["DATASETS", "DataSet", "dataset", "find", "read", "require", "verify", "with_remedy"]
