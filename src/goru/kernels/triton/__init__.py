"""The triton backend: GORU on NVIDIA devices, float32 and bfloat16.

Nothing here imports Triton before a kernel runs. The programs are in programs.py, what surrounds them in launch.py.
With TRITON_INTERPRET=1 the programs run in Triton's interpreter on the CPU, for tests; `auto` does not choose it then.
"""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor

from .. import backends
from ..backends import MANUAL, Kernel
from ..goru import GoruInputs, GoruOptions, manual
from ..mesh import MESH_MATRIX

INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
CAPABILITY = (8, 0)  # the first with bfloat16 in its tensor cores
OLDEST = (3, 5)  # the tests pass on 3.7 and 3.9, and what was run of them on 3.5; 3.2 fails without a device


class TritonBackend(backends.Backend):
    def obstacle(self, device: torch.device, dtype: torch.dtype) -> str | None:
        if dtype not in (torch.float32, torch.bfloat16):
            return f"the triton kernels support float32 and bfloat16, the layer has {dtype}"
        if device.type != "cuda" and not (INTERPRETED and device.type == "cpu"):
            return f"the triton kernels run on CUDA devices, the layer is on {device}"
        return unavailable_reason() or (None if INTERPRETED else _too_old(device))

    def missing(self) -> str | None:
        return unavailable_reason() if torch.version.cuda is not None and torch.cuda.is_available() else None


@backends.constant_when_compiled
def unavailable_reason() -> str | None:
    """Why the triton kernels cannot run here on any device, in a clause; None if they can."""
    if torch.version.hip is not None:
        return "the triton kernels are made for NVIDIA devices, this torch is built for AMD devices"
    try:
        installed = version("triton")
    except PackageNotFoundError:
        return "Triton is not installed (pip install triton)"
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        return f"the triton kernels need Triton {'.'.join(map(str, OLDEST))} or newer, this is {installed}"
    return None


@backends.constant_when_compiled
def _too_old(device: torch.device) -> str | None:
    capability = torch.cuda.get_device_capability(device)
    if capability < CAPABILITY:
        wanted, found = (".".join(map(str, numbers)) for numbers in (CAPABILITY, capability))
        return f"the triton kernels need a device of compute capability {wanted} or higher, {device} has {found}"
    return None


def _forward(inputs: GoruInputs, options: GoruOptions, save: bool) -> tuple[Tensor, ...]:
    from . import launch

    return launch.forward(inputs, options, save)


def _backward(
    inputs: GoruInputs,
    options: GoruOptions,
    output: Tensor,
    saved: Tensor,
    grads: tuple[Tensor, ...],
    needs_x: bool,
) -> tuple[Tensor | None, ...]:
    from . import launch

    return launch.backward(inputs, options, output, saved, grads, needs_x)


TRITON = backends.register(
    TritonBackend(
        "triton", "the triton kernels are the fastest on a CUDA device", automatic=not INTERPRETED, largest_hidden=1024
    )
)
TRITON.kernels["goru"] = Kernel(_forward, _backward, manual.saved)
TRITON.kernels[MESH_MATRIX.name] = MANUAL.kernels[MESH_MATRIX.name]  # once per pass, in a few torch operations
