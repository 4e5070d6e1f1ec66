"""About the least time that a step can take on this machine: its arithmetic at the rate of a large matrix product, or
its bytes at the rate of memory, whichever is longer. Both rates are measured in the same run as the layers. torch has
two libraries for products, of which MKL, its usual one, leaves half of an AMD processor's AVX-512 unused: the faster
one counts.

Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from .contenders import Shape

SIZE = 1536  # of the matrices of the large product
MEMORY = 1 << 26  # numbers copied, 256 MB: far more than any cache holds


def gemm_steps() -> dict[str, Callable[[], None]]:
    """A large product in float32, by each of torch's libraries."""
    a, b, out = (torch.randn(SIZE, SIZE) for _ in range(3))
    steps: dict[str, Callable[[], None]] = {"sgemm": lambda: torch.mm(a, b, out=out)}  # type: ignore[dict-item]
    if torch.backends.mkldnn.is_available():
        left, right = a.to_mkldnn(), b.to_mkldnn()
        steps["sgemm, oneDNN"] = lambda: functional.linear(left, right)  # type: ignore[assignment]
    return steps


def copy_step() -> Callable[[], None]:
    """A large copy."""
    a, b = torch.ones(MEMORY), torch.empty(MEMORY)

    def step() -> None:
        b.copy_(a)

    return step


@dataclass(frozen=True)
class Cell:
    """What a step of a row costs: matrices that the state and the input are multiplied with, numbers saved for backward
    (in H), and layers of rotations."""

    recurrent: int
    inputs: int
    saved: int
    rotations: Callable[[int], int] = lambda hidden: 0


# What the native kernels save is in their sources: csrc/goru/goru_forward.h, csrc/gated/gru.h and lstm.h.
CELLS = {
    "GORU": Cell(2, 3, 2, lambda hidden: math.ceil(math.log2(hidden))),
    "GRU": Cell(3, 3, 3),
    "LSTM": Cell(4, 4, 4),
}


def milliseconds(name: str, shape: Shape, gemm_ms: float, copy_ms: float, training: bool) -> float:
    """The bound for one layer over a sequence; no gradient of the input is needed."""
    cell, rows = CELLS[name], shape.T * shape.B
    # A product forward, and in training one back to the state and one for the weights.
    flops = 2 * rows * shape.H * (cell.recurrent * shape.H * (3 if training else 1))
    flops += 2 * rows * shape.H * (cell.inputs * shape.I * (2 if training else 1))
    # A rotation of a pair is 4 products and 2 sums; backward turns the state, takes it and its gradient back, and sums.
    flops += rows * shape.H // 2 * cell.rotations(shape.H) * (6 + (6 + 12 + 4) * training)
    numbers = rows * (shape.I + shape.H)
    if training:
        # Saved values are written and read; the output, its gradient and the input are read once more.
        numbers += rows * (2 * cell.saved * shape.H + 2 * shape.H + shape.I)
    rate = 2 * SIZE**3 / gemm_ms
    return max(flops / rate, numbers * copy_ms / (2 * MEMORY))
