"""The real data in tests: used where GORU_DATA is set, a stated reason to skip where not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from goru.lab import datasets


def needs(name: str) -> pytest.MarkDecorator:
    """Skips a test when GORU_DATA does not hold the data set."""
    present = any((Path(root) / name).is_dir() for root in os.environ.get("GORU_DATA", "").split(os.pathsep) if root)
    return pytest.mark.skipif(not present, reason=f"GORU_DATA does not hold {name}")


def folder(name: str) -> Path:
    """The folder of a set; for tests that carry `needs`."""
    return datasets.require(datasets.dataset(name))
