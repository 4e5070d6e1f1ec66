"""Hypothesis without deadlines (a loaded machine is no fault) and with the same examples; figures drawn once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

FIGURES = ("losses", "gates", "spectra", "own", "overview")


def remembered(draw: Callable[..., Any]) -> Callable[..., Any]:
    drawn: dict[str, Any] = {}

    def again(*given: Any, **named: Any) -> Any:
        key = repr((given, named))
        if key not in drawn:
            drawn[key] = draw(*given, **named)
        return drawn[key]

    return again


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that write a report or a record many times over: the figure of the same runs is drawn once."""
    from goru.lab.report import figures

    for name in FIGURES:
        monkeypatch.setattr(figures, name, remembered(getattr(figures, name)))
