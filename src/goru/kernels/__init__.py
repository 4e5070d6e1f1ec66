"""The recurrences and their backends: a folder for each cell, and one for what the native backend shares."""

from . import eurnn, gated, goru, mesh

__all__ = ["eurnn", "gated", "goru", "mesh"]
