"""The recurrences and their backends: a folder for each cell, one for what the native backend shares, and
one for the triton backend."""

from . import eurnn, gated, goru, mesh, triton

__all__ = ["eurnn", "gated", "goru", "mesh", "triton"]
