"""What is measured: layers of equal hidden size over one sequence.

Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import goru
from goru.kernels import native

Step = Callable[[], None]


@dataclass(frozen=True)
class Shape:
    name: str
    T: int
    B: int
    I: int
    H: int

    def __str__(self) -> str:
        return f"{self.T}, {self.B}, {self.I}, {self.H} ({self.name})"


SHAPES = (
    Shape("copying", 220, 128, 10, 128),
    Shape("Penn Treebank", 50, 32, 50, 512),
    Shape("speech", 211, 32, 129, 128),
    Shape("long", 1000, 16, 10, 128),
    Shape("stream", 200, 1, 10, 128),
)


def backends() -> list[str]:
    """The backends of ours that can run here, slowest first."""
    return ["reference", "manual"] + (["native"] if native.unavailable_reason() is None else [])


def layer(name: str, shape: Shape) -> nn.Module:
    """`nn.GRU`, `nn.LSTM`, `goru.GRU`, `goru.LSTM`, or a GORU on one of our backends by its name."""
    torch.manual_seed(0)
    if name == "nn.GRU":
        return nn.GRU(shape.I, shape.H)
    if name == "nn.LSTM":
        return nn.LSTM(shape.I, shape.H)
    if name in ("goru.GRU", "goru.LSTM"):
        return getattr(goru, name.removeprefix("goru."))(shape.I, shape.H)
    return goru.GORU(shape.I, shape.H, backend=name)


def inputs(shape: Shape) -> Tensor:
    return torch.randn(shape.T, shape.B, shape.I, generator=torch.Generator().manual_seed(1))


def training_step(module: nn.Module, x: Tensor, hidden: int, **call: Tensor) -> Step:
    """Forward and backward of all parameters, from a gradient at every output, as a loss over all steps gives it."""
    grad = torch.randn(*x.shape[:2], hidden, generator=torch.Generator().manual_seed(2)).to(x)
    parameters = list(module.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        output, _ = module(x, **call)
        output.backward(grad)

    return step


def forward_step(module: nn.Module, x: Tensor, **call: Tensor) -> Step:
    """Forward alone, without gradients."""

    def step() -> None:
        with torch.no_grad():
            module(x, **call)

    return step
