"""The native backend: recurrences in C++ (csrc/), the fast path on a CPU in float32 and float64; half precision runs
in float32 (half.py).

The library does everything that costs time, products included: with weights packed once per call its products are
faster at these sizes than a BLAS called step by step, give the same bits for any number of threads, and work in a
forked process. The native.py of each cell checks arguments, provides memory and cuts the sequence into chunks of steps:
a chunk's gradients stay in the cache until the weight gradients have been summed from them, and Python can notice
Ctrl-C between two chunks.
"""

from __future__ import annotations

import torch

from .. import backends
from . import library


class NativeBackend(backends.Backend):
    def obstacle(self, device: torch.device, dtype: torch.dtype) -> str | None:
        if device.type != "cpu":
            return f"the native kernels run on the CPU, the layer is on {device}"
        if dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            return f"the native kernels support float32, float64, bfloat16 and float16, the layer has {dtype}"
        return unavailable_reason()

    def missing(self) -> str | None:
        return unavailable_reason()

    def level(self, device: torch.device) -> str:
        return isa()


@backends.constant_when_compiled
def unavailable_reason() -> str | None:
    """Why the native kernels cannot run here, in one sentence; None if they can."""
    found = library.load()
    return found if isinstance(found, str) else None


def isa() -> str:
    """The instruction set in use: generic, avx2 or avx512."""
    found = library.get()
    return found.goru_level_name(found.goru_chosen()).decode()


NATIVE = backends.register(NativeBackend("native", "the native kernels are the fastest on a CPU"))
