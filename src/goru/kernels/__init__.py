"""The recurrences and their backends: a folder for each cell, one for what the native backend shares, and
one for the triton backend."""

from . import eurnn, goru, mesh, triton

__all__ = ["eurnn", "goru", "mesh", "triton"]
