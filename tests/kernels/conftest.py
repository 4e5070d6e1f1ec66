"""For all tests of the kernels."""

from __future__ import annotations

import pytest

from goru.kernels.native import call


@pytest.fixture(autouse=True)
def groups_and_teams_for_small_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native kernels split small batches into groups too, and threads share their rows; the tests of the layers
    leave them whole."""
    monkeypatch.setattr(call, "GROUP_ROWS", 1)
    monkeypatch.setattr(call, "MEET_FLOPS", 1)
    monkeypatch.setattr(call, "MEMBER_UNITS", 1)
