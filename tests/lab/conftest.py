"""Hypothesis without deadlines (a loaded machine is no fault), with the same examples every time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
