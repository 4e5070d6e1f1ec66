"""The recurrences and their backends: a folder for each cell, and one for what the native backend shares."""

from . import eurnn, goru, mesh

__all__ = ["eurnn", "goru", "mesh"]
