"""modReLU, the activation that preserves the sign or phase of its argument."""

from __future__ import annotations

import torch
from torch import Tensor


def smallest_magnitude(dtype: torch.dtype) -> float:
    """|a| below this counts as 0: the square root of the smallest normal number, so |a|^2 is still normal.

    For float16 it is the smallest number of all: the root, 0.008, would zero whole layers at initialization.
    """
    limits = torch.finfo(dtype)
    return limits.tiny * limits.eps if dtype in (torch.float16, torch.complex32) else limits.tiny**0.5


def modrelu(a: Tensor, b: Tensor) -> Tensor:
    """`a / |a| * relu(|a| + b)`: changes the magnitude of `a` by `b` and preserves its sign or phase.

    Args:
        a: real or complex, any shape.
        b: real, with a shape that broadcasts with that of `a`.

    Nothing is added to the magnitude: at a = 0 the value and the gradients of both arguments are 0, never NaN.

    >>> modrelu(torch.tensor([-3.0, 0.5, 0.0]), torch.tensor(-1.0))
    tensor([-2.,  0.,  0.])
    """
    if b.is_complex():
        raise TypeError(f"modrelu needs a real bias b, got {b.dtype}")
    if not (a.is_floating_point() or a.is_complex()):
        raise TypeError(f"modrelu needs a floating point or complex argument a, got {a.dtype}")
    tiny = smallest_magnitude(a.dtype)
    # Zeros are replaced *before* the division, so autograd never sees 0/0, not even in second derivatives.
    zero = a.abs() < tiny
    safe = torch.where(zero, torch.ones_like(a), a)
    if a.is_complex():
        magnitude = safe.abs()
        value = safe / magnitude * torch.relu(magnitude + b)
    else:
        value = safe.sign() * torch.relu(safe.abs() + b)
    return torch.where(zero, torch.zeros_like(value), value)
