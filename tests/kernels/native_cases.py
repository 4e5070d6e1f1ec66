"""Random problems for the native kernels, and their comparison with the reference. Run as a program it compares many
of them under the instruction set named by GORU_ISA.

Tolerances: float64 1e-10; float32 2^-23 times 8 sqrt(n), at least 64, n being the number of terms of the longest sum
(steps, rows and units), since rounding errors of either sign grow with the root of their number. b_h <= 0, because
modReLU jumps at 0 otherwise.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from goru.kernels import native, operators, reference
from goru.rotations import Mesh


@dataclass(frozen=True)
class Case:
    steps: int = 5
    batch: int = 6
    inputs: int = 3
    hidden: int = 8
    reset: bool = True
    update: bool = True
    bias: bool = True
    ragged: bool = False
    reverse: bool = False
    dtype: torch.dtype = torch.float64
    seed: int = 0

    @property
    def tolerance(self) -> float:
        chain = self.steps * (self.hidden + self.inputs) * max(1, self.batch)
        return 1e-10 if self.dtype == torch.float64 else max(64, chain**0.5 * 8) * 2.0**-23


def draw(case: Case) -> tuple[torch.Generator, Tensor, Tensor | None]:
    """A generator, x and lengths."""
    generator = torch.Generator().manual_seed(case.seed)
    x = torch.randn((case.steps, case.batch, case.inputs), dtype=case.dtype, generator=generator)
    lengths = torch.randint(1, case.steps + 1, (case.batch,), generator=generator) if case.ragged else None
    return generator, x.requires_grad_(), lengths


def spoiled(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x with NaN beyond the rows' ends, where nothing may look."""
    if lengths is None:
        return x
    beyond = torch.arange(x.shape[0])[:, None] >= lengths
    return x.detach().masked_fill(beyond[..., None], float("nan")).requires_grad_()


def goru_arguments(case: Case) -> tuple[list[Any], Tensor | None]:
    generator, x, lengths = draw(case)
    H, I, G = case.hidden, case.inputs, 1 + case.reset + case.update

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, dtype=case.dtype, generator=generator) * scale).requires_grad_()

    h0, weight_ih = normal(case.batch, H), normal(G * H, I, scale=0.3)
    weight_hh = normal((G - 1) * H, H, scale=0.5 / H**0.5) if G > 1 else None
    bias = None
    if case.bias:
        bias = normal(G * H, scale=0.3).detach()
        bias[-H:] = -bias[-H:].abs()
        bias.requires_grad_()
    mesh = Mesh("fft", H)
    angles = torch.randn(mesh.num_angles, dtype=case.dtype, generator=generator)
    u = mesh.matrix(angles).clone().requires_grad_()
    return [x, h0, weight_ih, weight_hh, bias, u], lengths


def relative(ours: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest value, or over 1, the size of what is summed, where the sum nearly cancels.

    NaN counts as infinitely far.
    """
    if ours.shape != expected.shape or ours.dtype != expected.dtype:
        raise AssertionError(f"{ours.shape} {ours.dtype} instead of {expected.shape} {expected.dtype}")
    if ours.numel() == 0:
        return 0.0
    far = (ours - expected).abs().max() / expected.abs().max().clamp_min(1.0)
    return far.item() if far == far else float("inf")


def goru_difference(case: Case) -> float:
    """Results with and without saving and all gradients against the reference: the largest relative difference."""
    arguments, lengths = goru_arguments(case)
    generator = torch.Generator().manual_seed(case.seed + 1)
    switches = (case.reset, case.update, case.reverse)
    expected = reference.goru(*arguments, lengths, *switches)  # type: ignore[arg-type]
    leaves = [a for a in arguments if a is not None]
    grads = [torch.randn(e.shape, dtype=e.dtype, generator=generator) for e in expected]
    expected_grads = torch.autograd.grad(expected, leaves, grads)
    leaves[0] = arguments[0] = spoiled(arguments[0], lengths)  # type: ignore[arg-type]
    ours = operators.goru(*arguments, lengths, *switches, True, "native")[:2]  # type: ignore[arg-type]
    our_grads = torch.autograd.grad(ours, leaves, grads)
    with torch.no_grad():
        plain = operators.goru(*arguments, lengths, *switches, False, "native")[:2]  # type: ignore[arg-type]
    return max(map(relative, [*ours, *plain, *our_grads], [*expected, *expected, *expected_grads]))


def eurnn_difference(case: Case, mesh: Mesh, dense: bool) -> float:
    generator, x, lengths = draw(case)
    dtype = case.dtype.to_complex() if mesh.complex else case.dtype
    h0 = torch.randn((case.batch, mesh.size), dtype=dtype, generator=generator).requires_grad_()
    parts = 1 + mesh.complex
    weight = torch.randn((parts * mesh.size, case.inputs), dtype=case.dtype, generator=generator).requires_grad_()
    bias = None
    if case.bias:
        bias = (-torch.rand(mesh.size, dtype=case.dtype, generator=generator) * 0.3).requires_grad_()
    transition = torch.randn(mesh.num_angles, dtype=case.dtype, generator=generator)
    transition = (mesh.matrix(transition) if dense else transition).requires_grad_()
    leaves = [a for a in (x, h0, weight, bias, transition) if a is not None and a.numel()]
    expected = reference.eurnn(x, h0, weight, bias, transition, lengths, mesh, case.reverse)
    grads = [torch.randn(e.shape, dtype=e.dtype, generator=generator) for e in expected]
    expected_grads = torch.autograd.grad(expected, leaves, grads)
    leaves[0] = x = spoiled(x, lengths)
    rest = (lengths, mesh.kind, mesh.capacity, case.reverse)
    ours = operators.eurnn(x, h0, weight, bias, transition, *rest, True, "native")[:2]
    our_grads = torch.autograd.grad(ours, leaves, grads)
    with torch.no_grad():
        plain = operators.eurnn(x, h0, weight, bias, transition, *rest, False, "native")[:2]
    return max(map(relative, [*ours, *plain, *our_grads], [*expected, *expected, *expected_grads]))


def mesh_difference(mesh: Mesh, dtype: torch.dtype) -> float:
    angles = torch.randn(mesh.num_angles, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
    expected = mesh.matrix(angles)
    ours = operators.mesh_matrix(angles, mesh.kind, mesh.size, mesh.capacity, mesh.complex, "native")
    far = relative(ours, expected)
    if mesh.num_angles:
        grad = torch.randn_like(expected)
        far = max(far, relative(*(torch.autograd.grad(o, angles, grad)[0] for o in (ours, expected))))
    return far


SHAPES = ((5, 6, 3, 8), (7, 1, 2, 5), (1, 3, 4, 2), (4, 9, 17, 19), (6, 35, 1, 33), (3, 2, 1, 1), (40, 5, 10, 24))
DTYPES = (torch.float64, torch.float32)


def goru_cases(shape: tuple[int, int, int, int]) -> list[Case]:
    return [
        Case(*shape, *switches, dtype=dtype)
        for switches in itertools.product((True, False), repeat=5)
        for dtype in DTYPES
    ]


def eurnn_cases(size: int) -> list[tuple[Case, Mesh, bool]]:
    meshes = [
        Mesh(kind, size, capacity, complex)
        for kind, capacity in (("fft", None), ("tunable", min(2, size)), ("tunable", size))
        for complex in (False, True)
    ]
    case = Case(batch=19, inputs=5, hidden=size)
    return [
        (replace(case, bias=bias, ragged=ragged, reverse=reverse, dtype=dtype), mesh, dense)
        for mesh in meshes
        for bias, ragged, reverse, dense in itertools.product((True, False), repeat=4)
        for dtype in DTYPES
    ]


def main() -> int:
    """A part of everything under one instruction set; prints what differs."""
    print(native.isa())
    wrong = 0
    for shape in SHAPES[1::2]:
        for case in goru_cases(shape)[::3]:
            if not goru_difference(case) <= case.tolerance:
                wrong += 1
                print(case)
    for size in (1, 3, 17):
        for case, mesh, dense in eurnn_cases(size)[::5]:
            if not eurnn_difference(case, mesh, dense) <= case.tolerance:
                wrong += 1
                print(case, mesh, dense)
    return wrong


if __name__ == "__main__":
    sys.exit(main() > 0)
