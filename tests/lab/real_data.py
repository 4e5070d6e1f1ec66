"""The real data in tests: used where they are found, a stated reason to skip where not."""

from __future__ import annotations

from pathlib import Path

import pytest

from goru.lab import data as datasets


def needs(*names: str) -> pytest.MarkDecorator:
    """Skips a test when one of these data sets is not on this machine."""
    missing = [name for name in names if datasets.find(datasets.dataset(name)) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on this machine: {', '.join(missing)}")


def folder(name: str) -> Path:
    """The folder of a set; for tests that carry `needs`."""
    return datasets.require(datasets.dataset(name))
