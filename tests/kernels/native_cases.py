"""Random problems for the native kernels, and their comparison with the reference. Run as a program it compares many
of them under the instruction set named by GORU_ISA.

What a difference is measured in, see `difference`:
  float64  the largest value of the result (at least 1, the size of what is summed); 1e-10 is allowed.
  float32  what float32 costs on this very problem: how far the float32 *reference* is from the float64 one, or how far
           the float64 result moves when every argument moves by half an ulp, plus 2 ulps of the largest value. FACTOR
           of it is allowed, since another order of summation draws other roundings of the same size.
Differences relative to a result's own size would not do: with one unit the few terms of a gradient may cancel, and what
is left is then mostly rounding, of the reference as of the kernel.

b_h <= 0, because modReLU jumps at 0 otherwise. Its gradient still jumps where |a| + b_h passes 0: roundings decide
which of two right answers comes out there. And with a handful of roundings, as in one unit and three steps, those of
the reference may be small by luck. So a comparison that fails is repeated with b_h moved by JUMP both ways, and with
MORE random moves of the arguments: the farthest of these results counts as what float32 costs.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from goru.kernels import native
from goru.kernels.eurnn import EURNN, EurnnInputs, EurnnOptions
from goru.kernels.eurnn import reference as eurnn_reference
from goru.kernels.goru import GORU, GoruInputs, GoruOptions
from goru.kernels.goru import reference as goru_reference
from goru.kernels.mesh import MESH_MATRIX, MeshInputs
from goru.kernels.native import call as native_call
from goru.rotations import Mesh

ULP = 2.0**-23
FACTOR = 8.0
JUMP = 64 * ULP
MORE = 8

Arguments = Sequence[Tensor | None]


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
        return tolerance(self.dtype)


def split(transition: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """u and angles: the problems here have either in one place, and a vector can only be angles."""
    return (None, transition) if transition.dim() == 1 else (transition, None)


def goru_call(*call: Any, kind: str = "fft", capacity: int | None = None) -> tuple[GoruInputs, GoruOptions]:
    """Six tensors, lengths, reset, update, reverse."""
    x, h0, weight_ih, weight_hh, bias, transition, lengths, reset, update, reverse = call
    if h0.dim() != 2:
        raise RuntimeError(f"h0 must have the shape (B, H), got {tuple(h0.shape)}")
    inputs = GoruInputs(x, h0, weight_ih, weight_hh, bias, *split(transition), lengths)
    return inputs, GoruOptions(Mesh(kind, h0.shape[1], capacity), reset, update, reverse)


def run_goru(*call: Any, save: bool = True, backend: str = "native", **mesh: Any) -> tuple[Tensor, ...]:
    """output, h_n and what was saved, by the operator: six tensors, lengths, reset, update, reverse."""
    return GORU.run(*goru_call(*call, **mesh), save, backend)


def reference_goru(*call: Any, **mesh: Any) -> tuple[Tensor, Tensor]:
    return goru_reference.goru(*goru_call(*call, **mesh))


def eurnn_call(*call: Any) -> tuple[EurnnInputs, EurnnOptions]:
    """Five tensors, lengths, mesh, reverse."""
    x, h0, weight_ih, bias, transition, lengths, mesh, reverse = call
    return EurnnInputs(x, h0, weight_ih, bias, *split(transition), lengths), EurnnOptions(mesh, reverse)


def run_eurnn(*call: Any, save: bool = True, backend: str = "native") -> tuple[Tensor, ...]:
    """output, h_n and what was saved, by the operator: five tensors, lengths, mesh, reverse."""
    return EURNN.run(*eurnn_call(*call), save, backend)


def run_mesh(angles: Tensor, mesh: Mesh, backend: str = "native") -> Tensor:
    return MESH_MATRIX.run(MeshInputs(angles), mesh, True, backend)[0]


def backward(recurrence: Any, call: tuple[Any, Any], output: Any, saved: Any, grads: Any, needs_x: bool) -> Any:
    """The gradients, by the backward operator."""
    inputs, options = call
    flat = recurrence.options.flatten(options)
    return recurrence.backward_operator(*grads, output, saved, *inputs, *flat, needs_x, "native")


def flat(recurrence: Any, call: tuple[Any, Any]) -> tuple[Any, ...]:
    """The arguments of the operator."""
    inputs, options = call
    return (*inputs, *recurrence.options.flatten(options), "native")


def tolerance(dtype: torch.dtype) -> float:
    return 1e-10 if dtype == torch.float64 else FACTOR


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


def solved(function: Callable[..., Sequence[Tensor]], arguments: Arguments, grads: Arguments) -> list[Tensor]:
    """Results, and the gradients of all arguments for these gradients of the results."""
    leaves = [a.detach().requires_grad_() if a is not None else None for a in arguments]
    results = function(*leaves)
    wanted = [leaf for leaf in leaves if leaf is not None and leaf.numel()]
    return [*(r.detach() for r in results), *torch.autograd.grad(results, wanted, grads)]  # type: ignore[arg-type]


def wide(tensors: Arguments) -> list[Tensor | None]:
    return [
        None if t is None else t.detach().to(torch.complex128 if t.is_complex() else torch.float64) for t in tensors
    ]


def moved(tensors: Arguments, seed: int = 0) -> list[Tensor | None]:
    """Every number up or down by half an ulp of float32, as roundings move them."""
    generator = torch.Generator().manual_seed(seed)
    signs = [None if t is None else torch.randint(0, 2, t.shape, generator=generator) * 2 - 1 for t in tensors]
    return [None if t is None else t * (1 + s * ULP / 2) for t, s in zip(tensors, signs, strict=True)]  # type: ignore


def difference(
    expected: Callable[..., Sequence[Tensor]],
    ours: Callable[..., Sequence[Tensor]],
    arguments: Arguments,
    given: Arguments,
    bias: int | None = None,
) -> float:
    """How far our results and gradients are from the expected ones, in the units described above, for random gradients
    of the results. `given` are the arguments that we get; `bias` tells which of them ends with b_h."""
    shapes = expected(*arguments)
    generator = torch.Generator().manual_seed(1)
    grads = [torch.randn(r.shape, dtype=r.dtype, generator=generator) for r in shapes]
    found, single = solved(ours, given, grads), solved(expected, arguments, grads)
    if shapes[0].dtype in (torch.float64, torch.complex128):
        return max(map(relative, found, single))
    for a, b in zip(found, single, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise AssertionError(f"{a.shape} {a.dtype} instead of {b.shape} {b.dtype}")
    exact, wide_grads = wide(arguments), wide(grads)
    double = solved(expected, exact, wide_grads)
    others = [single, solved(expected, moved(exact), wide_grads)]
    far = _over(found, double, others)
    if far <= FACTOR:
        return far
    others += [solved(expected, moved(exact, seed), wide_grads) for seed in range(1, 1 + MORE)]
    if bias is not None and exact[bias] is not None:
        for step in (JUMP, -JUMP):
            shifted = list(exact)
            shifted[bias] = exact[bias] + step  # type: ignore[operator]
            others.append(solved(expected, shifted, wide_grads))
    return _over(found, double, others)


def _over(found: list[Tensor], double: list[Tensor], others: list[list[Tensor]]) -> float:
    worst = 0.0
    for i, (a, b) in enumerate(zip(found, double, strict=True)):
        if a.numel() == 0:
            continue
        cost = max((other[i] - b).abs().max().item() for other in others)
        far = (a - b).abs().max().item() / max(cost + 2 * ULP * b.abs().max().item(), 1e-37)
        worst = max(worst, far) if far == far else float("inf")
    return worst


def goru_difference(case: Case) -> float:
    """Results and all gradients; the results without saving are the same bit by bit."""
    arguments, lengths = goru_arguments(case)
    switches = (case.reset, case.update, case.reverse)
    given = [spoiled(arguments[0], lengths), *arguments[1:]]
    return difference(
        lambda *a: reference_goru(*a, lengths, *switches),
        lambda *a: same_without_saving(run_goru, *a, lengths, *switches),
        arguments,
        given,
        bias=4,
    )


def same_without_saving(run: Any, *call: Any, **mesh: Any) -> tuple[Tensor, Tensor]:
    """output and h_n in training; an error if inference gives other bits."""
    results = run(*call, **mesh)[:2]
    with torch.no_grad():
        plain = run(*call, save=False, **mesh)[:2]
    for a, b in zip(results, plain, strict=True):
        if not torch.equal(a.detach(), b):
            raise AssertionError("inference and training give different results")
    return results


def eurnn_difference(case: Case, mesh: Mesh, dense: bool) -> float:
    generator, x, lengths = draw(case)
    dtype = case.dtype.to_complex() if mesh.complex else case.dtype
    h0 = torch.randn((case.batch, mesh.size), dtype=dtype, generator=generator)
    parts = 1 + mesh.complex
    weight = torch.randn((parts * mesh.size, case.inputs), dtype=case.dtype, generator=generator)
    bias = -torch.rand(mesh.size, dtype=case.dtype, generator=generator) * 0.3 if case.bias else None
    transition = torch.randn(mesh.num_angles, dtype=case.dtype, generator=generator)
    if dense:
        transition = mesh.matrix(transition)
    arguments = [x, h0, weight, bias, transition]
    rest: Any = (lengths, mesh, case.reverse)
    return difference(
        lambda *a: eurnn_reference.eurnn(*eurnn_call(*a, *rest)),
        lambda *a: same_without_saving(run_eurnn, *a, *rest),
        arguments,
        [spoiled(x, lengths), *arguments[1:]],
        bias=3,
    )


def mesh_difference(mesh: Mesh, dtype: torch.dtype) -> float:
    angles = torch.randn(mesh.num_angles, dtype=dtype, generator=torch.Generator().manual_seed(0))
    if mesh.num_angles == 0:
        return relative(run_mesh(angles, mesh), mesh.matrix(angles))
    return difference(lambda a: [mesh.matrix(a)], lambda a: [run_mesh(a, mesh)], [angles], [angles])


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
    native_call.GROUP_ROWS = 1  # groups of rows in small batches too, as in conftest.py
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
