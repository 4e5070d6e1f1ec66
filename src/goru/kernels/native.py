"""The recurrences in C++ (csrc/): the fast path on a CPU, float32 and float64. Arguments as in operators.py.

The library does everything that costs time, products included: with weights packed once per call its products are
faster at these sizes than a BLAS called step by step, give the same bits whatever the number of threads, and work in a
forked process. The modules native_*.py check arguments, provide memory and cut the sequence into chunks of steps: a
chunk's gradients stay in the cache until the weight gradients have been summed from them, and Python can notice Ctrl-C
between two chunks.
"""

from __future__ import annotations

from . import library
from .native_eurnn import eurnn_backward, eurnn_forward, eurnn_saved_shape, prefers_rotations
from .native_goru import goru_backward, goru_forward, goru_prefers_rotations, saved_blocks
from .native_mesh import mesh_matrix, mesh_matrix_backward
from .native_step import GoruSteps

__all__ = [
    "GoruSteps",
    "eurnn_backward",
    "eurnn_forward",
    "eurnn_saved_shape",
    "goru_backward",
    "goru_forward",
    "goru_prefers_rotations",
    "isa",
    "mesh_matrix",
    "mesh_matrix_backward",
    "prefers_rotations",
    "saved_blocks",
    "unavailable_reason",
]


def unavailable_reason() -> str | None:
    """Why the native kernels cannot run here, in one sentence; None if they can."""
    found = library.load()
    return found if isinstance(found, str) else None


def isa() -> str:
    """The instruction set in use: generic, avx2 or avx512."""
    found = library.get()
    return found.goru_level_name(found.goru_chosen()).decode()
