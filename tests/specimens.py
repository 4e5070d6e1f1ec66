"""Layers and cells to test on: every kind once, with parameters lively enough for a mistake to show.

Modules are typed Any here: their parameters are attributes that no type checker can know.

The initialization of the paper (weights within 0.01) would hide a swapped gate behind a tolerance; here
weights are of order 1/sqrt(H) and biases of order 0.3, both signs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import goru
from tests import oracle


@dataclass(frozen=True)
class Kind:
    """A cell with its options; `options` are keyword arguments of the layer and of its cell."""

    name: str
    cell: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def complex(self) -> bool:
        return self.cell == "eurnn" and self.options.get("complex", True)

    def layer(self, input_size: int, hidden_size: int, **more: Any) -> Any:
        cls = goru.GORU if self.cell == "goru" else goru.EURNN
        return cls(input_size, hidden_size, **self.fit(hidden_size), **more)

    def cell_module(self, input_size: int, hidden_size: int, **more: Any) -> Any:
        cls = goru.GORUCell if self.cell == "goru" else goru.EURNNCell
        return cls(input_size, hidden_size, **self.fit(hidden_size), **more)

    def fit(self, hidden_size: int) -> dict[str, Any]:
        """The options, with the capacity cut to what the size allows."""
        options = dict(self.options)
        if "capacity" in options:
            options["capacity"] = min(options["capacity"], hidden_size)
        return options

    def network(self, hidden_size: int, num_layers: int = 1, bidirectional: bool = False) -> oracle.Network:
        options = {name: value for name, value in self.fit(hidden_size).items() if name != "bias"}
        if self.cell == "eurnn":
            options = {"complex": True, "mesh": "tunable", **options}
        else:
            options = {"mesh": "fft", **options}
        if options["mesh"] == "tunable":
            options.setdefault("capacity", min(2, hidden_size))
        return oracle.Network(self.cell, hidden_size, num_layers, bidirectional, **options)

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype.to_complex() if self.complex else dtype


KINDS = [
    Kind("goru", "goru"),
    Kind("goru-tunable", "goru", {"mesh": "tunable", "capacity": 3}),
    Kind("goru-no-reset", "goru", {"reset_gate": False}),
    Kind("goru-no-update", "goru", {"update_gate": False}),
    Kind("goru-no-gates", "goru", {"reset_gate": False, "update_gate": False, "mesh": "tunable"}),
    Kind("goru-no-bias", "goru", {"bias": False}),
    Kind("eurnn", "eurnn"),
    Kind("eurnn-fft", "eurnn", {"mesh": "fft"}),
    Kind("eurnn-no-bias", "eurnn", {"bias": False, "capacity": 4}),
    Kind("eurnn-real", "eurnn", {"complex": False}),
    Kind("eurnn-real-fft", "eurnn", {"complex": False, "mesh": "fft"}),
]
BY_NAME = {kind.name: kind for kind in KINDS}
# One of each cell, for behavior that does not depend on the options.
PLAIN = [BY_NAME["goru"], BY_NAME["eurnn"], BY_NAME["eurnn-real"]]


def lively(module: nn.Module, seed: int = 0, *, b_h: str = "any") -> Any:
    """Give the module random parameters that matter. `b_h="negative"` keeps modReLU continuous (float32)."""
    generator = torch.Generator().manual_seed(seed)
    hidden_size = module.hidden_size
    assert isinstance(hidden_size, int)
    for name, parameter in module.named_parameters():
        value = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if name.startswith("angles"):
            value = (torch.rand(parameter.shape, generator=generator, dtype=torch.float64) * 2 - 1) * math.pi
        elif name.startswith("weight"):
            value = value / math.sqrt(hidden_size)
        elif name.startswith("bias"):
            value = value * 0.3
            if b_h == "negative":
                value[-hidden_size:] = -value[-hidden_size:].abs() * 0.3
        else:
            raise AssertionError(f"a parameter of unknown name: {name}")
        with torch.no_grad():
            parameter.copy_(value)
    return module


def arrays(module: nn.Module) -> dict[str, Any]:
    """The parameters as NumPy arrays, for the oracle."""
    return {name: p.detach().double().numpy() for name, p in module.named_parameters()}


def draw(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers, drawn in double so that every dtype gets the same ones."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=wide).to(dtype)


def rounding(dtype: torch.dtype, steps: int, terms: int) -> float:
    """How far two correct evaluations may part, relative to the size of the result.

    A step rounds dot products of `terms` terms and a handful of elementwise operations; U keeps norms, so
    that errors of different steps add up and do not multiply. 8 allows for the gates' slopes and the rest.
    """
    return 8 * steps * terms * torch.finfo(dtype).eps


def assert_close(actual: Tensor | None, expected: Any, tolerance: float, what: str = "") -> None:
    """max|actual - expected| <= tolerance * max(1, max|expected|), same shape, no NaN."""
    assert actual is not None, f"{what}: there is nothing to compare"
    expected = torch.as_tensor(expected).detach()
    actual = actual.detach()
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert actual.is_complex() == expected.is_complex(), f"{what}: {actual.dtype} against {expected.dtype}"
    if actual.numel() == 0:
        return
    wide = torch.complex128 if actual.is_complex() else torch.float64
    error = (actual.to(wide) - expected.to(wide)).abs().max().item()
    size = max(1.0, expected.to(wide).abs().max().item())
    assert error <= tolerance * size, f"{what}: off by {error:.3e} at size {size:.3g}, allowed {tolerance * size:.3e}"
