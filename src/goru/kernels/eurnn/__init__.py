"""The EURNN recurrence, h = modReLU(U h' + W_x x, b): its arguments, and its kernel on each backend."""

from __future__ import annotations

from ..backends import MANUAL, REFERENCE, Equations, Kernel
from ..native import NATIVE
from ..native.half import with_half_precision
from ..recurrence import Recurrence
from . import manual, native, reference
from .reference import EurnnInputs, EurnnOptions, results

__all__ = ["EURNN", "EurnnInputs", "EurnnOptions"]

EURNN = Recurrence("eurnn", EurnnInputs, EurnnOptions, results, count=2)
REFERENCE.kernels["eurnn"] = Equations(reference.eurnn, manual.prefers_rotations)
MANUAL.kernels["eurnn"] = Kernel(manual.forward, manual.backward, manual.saved, manual.prefers_rotations)
NATIVE.kernels["eurnn"] = with_half_precision(
    Kernel(native.forward, native.backward, native.saved, native.prefers_rotations)
)
