"""Durations as text."""

from __future__ import annotations

import math


def duration(seconds: float | None) -> str:
    """
    >>> duration(3725), duration(None)
    ('1:02:05', '')
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
