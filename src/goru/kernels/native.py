"""The C++ kernels; there is no shared library yet, so none of them is available."""

from __future__ import annotations


def unavailable_reason() -> str | None:
    """Why the native kernels cannot run here, in one sentence; None if they can."""
    return "the native kernels are not built"
