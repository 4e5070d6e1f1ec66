"""For all tests of the kernels."""

from __future__ import annotations

import pytest

from goru.kernels.native import call


@pytest.fixture(autouse=True)
def groups_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernels split small batches into groups too; the tests of the layers leave them whole."""
    monkeypatch.setattr(call, "GROUP_ROWS", 1)
