"""The GORU recurrence: its arguments, and its kernel on each backend.

r = sigmoid(W_r h' + W_rx x + b_r)    z = sigmoid(W_z h' + W_zx x + b_z)    c = modReLU(W_x x + r (U h'), b_h)
h = z h' + (1 - z) c
"""

from __future__ import annotations

from ..backends import MANUAL, REFERENCE, Equations, Kernel
from ..native import NATIVE
from ..native.half import with_half_precision
from ..recurrence import Recurrence
from . import manual, native, native_step, reference
from .reference import GoruInputs, GoruOptions, results

__all__ = ["GORU", "GoruInputs", "GoruOptions"]

GORU = Recurrence("goru", GoruInputs, GoruOptions, results, count=2)
REFERENCE.kernels["goru"] = Equations(reference.goru)
MANUAL.kernels["goru"] = Kernel(manual.forward, manual.backward, manual.saved)
NATIVE.kernels["goru"] = with_half_precision(
    Kernel(native.forward, native.backward, native.saved, native.prefers_rotations, native_step.steps)
)
