"""GORU with its rotations applied directly, and calls that go past torch's dispatcher."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import goru
from goru.kernels import native, recurrence
from goru.kernels.goru import GORU
from goru.rotations import Mesh
from goru.tracing import untraced
from tests.kernels.native_cases import (
    Case,
    difference,
    flat,
    goru_arguments,
    goru_call,
    reference_goru,
    relative,
    run_goru,
    same_without_saving,
)

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)

MESHES = [
    Mesh(kind, size, capacity)
    for size in (1, 2, 3, 5, 8, 16, 17, 33, 70)
    for kind, capacity in (("fft", None), ("tunable", 1), ("tunable", 2), ("tunable", 3), ("tunable", size))
    if capacity is None or capacity <= size
]


def arguments_of(case: Case, mesh: Mesh) -> tuple[list[Any], Tensor | None]:
    """As goru_arguments, with the angles of a mesh in place of U."""
    arguments, lengths = goru_arguments(case)
    generator = torch.Generator().manual_seed(case.seed + 5)
    angles = torch.randn(mesh.num_angles, dtype=case.dtype, generator=generator)
    return [*arguments[:5], angles.requires_grad_()], lengths


def rotations_difference(case: Case, mesh: Mesh) -> float:
    """Results and all gradients against the reference with U built by autograd's own path."""
    arguments, lengths = arguments_of(case, mesh)
    switches = (case.reset, case.update, case.reverse)
    spec = {"kind": mesh.kind, "capacity": mesh.capacity}
    return difference(
        lambda *a: reference_goru(*a[:5], mesh.matrix(a[5]), lengths, *switches),
        lambda *a: same_without_saving(run_goru, *a, lengths, *switches, **spec),
        arguments,
        arguments,
        bias=4,
    )


@pytest.mark.parametrize("mesh", MESHES, ids=lambda m: f"{m.kind}-{m.size}-{m.capacity}")
def test_rotations_equal_the_reference(mesh: Mesh) -> None:
    wrong = []
    for number, (reset, update, bias, ragged, reverse) in enumerate(itertools.product((True, False), repeat=5)):
        for dtype in (torch.float64, torch.float32):
            steps, batch = ((4, 7), (1, 3), (2, 4), (9, 1))[number % 4]  # with packed weights and without
            case = Case(steps, batch, 3, mesh.size, reset, update, bias, ragged, reverse, dtype, number)
            if not rotations_difference(case, mesh) <= case.tolerance:
                wrong.append(case)
    assert not wrong


def test_rotations_do_not_depend_on_the_number_of_threads() -> None:
    mesh = Mesh("fft", 48)
    arguments, _ = arguments_of(Case(30, 37, 5, 48, dtype=torch.float32), mesh)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            output, h_n, _ = run_goru(*arguments, None, True, True, False)  # type: ignore[arg-type]
            results.append([output, *torch.autograd.grad(output.square().sum() + h_n.sum(), arguments)])  # type: ignore[arg-type]
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_torch_checks_the_operator_with_angles() -> None:
    for mesh in (Mesh("fft", 8), Mesh("tunable", 8, 2)):
        arguments, lengths = arguments_of(Case(ragged=True), mesh)
        call = goru_call(*arguments, lengths, True, True, False, kind=mesh.kind, capacity=mesh.capacity)
        for operator in (GORU.operator, GORU.saving_operator):
            torch.library.opcheck(operator, flat(GORU, call))


def test_manual_takes_angles_too() -> None:
    mesh = Mesh("tunable", 8, 3)
    arguments, _ = arguments_of(Case(), mesh)
    switches = (None, True, True, False)
    results = []
    for backend in ("manual", "native"):
        output, _, _ = run_goru(*arguments, *switches, backend=backend, kind=mesh.kind, capacity=mesh.capacity)
        results.append([output, *torch.autograd.grad(output.square().sum(), arguments)])  # type: ignore[arg-type]
    assert max(map(relative, *results)) < 1e-12


@pytest.mark.parametrize("kind", [goru.GORU, goru.EURNN])
def test_a_call_past_the_dispatcher_gives_the_same(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = kind(3, 16, backend="native")
    x = torch.randn(5, 2, 3, requires_grad=True)
    results = []
    for plain in (True, False):
        monkeypatch.setattr(recurrence, "untraced", lambda *tensors, plain=plain: plain)
        output, h_n = layer(x)
        assert ("Plain" in type(output.grad_fn).__name__) == plain
        grads = torch.autograd.grad(output.sum() + h_n.abs().sum(), [x, *layer.parameters()])
        with torch.no_grad():
            results.append([output, h_n, *grads, *layer(x)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_what_is_traced_goes_through_the_dispatcher() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    x = torch.randn(5, 2, 3)
    assert untraced(x, None, torch.nn.Parameter(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not untraced(x)
    with FakeTensorMode() as mode:
        assert not untraced(x)
        fake = mode.from_tensor(x)
    assert not untraced(fake)
    assert not untraced(x.to("meta"))
    seen = []
    torch.func.vmap(lambda row: seen.append(untraced(row)) or row)(x)
    assert seen == [False]


def test_a_few_rows_need_no_packed_weights() -> None:
    """The same rows in a batch large enough for packing: the same states up to the order of summation."""
    layer = goru.GORU(5, 37, backend="native", dtype=torch.float64)
    x, h = torch.randn(1, 40, 5, dtype=torch.float64), torch.randn(1, 40, 37, dtype=torch.float64)
    with torch.no_grad():
        together, _ = layer(x, h)
        for first in range(0, 40, 8):
            few, _ = layer(x[:, first : first + 8], h[:, first : first + 8])
            assert relative(few, together[:, first : first + 8]) < 1e-14
