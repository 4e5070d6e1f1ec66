"""The C++ kernels against the reference, with strange and with wrong arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import goru
from goru.kernels import native
from goru.kernels.eurnn import EURNN
from goru.kernels.goru import GORU
from goru.kernels.mesh import MESH_MATRIX, MeshInputs
from goru.kernels.native import call as native_call
from goru.kernels.native import library
from goru.rotations import Mesh
from tests.kernels import native_cases as cases
from tests.kernels.native_cases import Case, eurnn_call, flat, goru_arguments, goru_call, relative, run_eurnn, run_goru

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("shape", cases.SHAPES, ids=str)
def test_goru_equals_the_reference(shape: tuple[int, int, int, int]) -> None:
    wrong = [case for case in cases.goru_cases(shape) if not cases.goru_difference(case) <= case.tolerance]
    assert not wrong


@pytest.mark.parametrize("size", [1, 2, 3, 17, 40])
def test_eurnn_equals_the_reference(size: int) -> None:
    wrong = [
        (case, mesh, dense)
        for case, mesh, dense in cases.eurnn_cases(size)
        if not cases.eurnn_difference(case, mesh, dense) <= case.tolerance
    ]
    assert not wrong


@pytest.mark.parametrize("size", [1, 2, 3, 8, 33, 70])
def test_mesh_equals_the_reference(size: int) -> None:
    for kind, capacity in (("fft", None), ("tunable", 1), ("tunable", size)):
        for complex in (False, True):
            mesh = Mesh(kind, size, capacity, complex)
            for dtype in cases.DTYPES:
                assert cases.mesh_difference(mesh, dtype) <= cases.tolerance(dtype), (mesh, dtype)


def test_every_instruction_set_of_this_processor() -> None:
    for name in library.levels(library.get()):
        done = subprocess.run(
            [sys.executable, "-m", "tests.kernels.native_cases"],
            cwd=ROOT, env=os.environ | {"GORU_ISA": name}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith(name)


def test_an_instruction_set_that_cannot_run_is_refused() -> None:
    code = "from goru.kernels import native; print(native.unavailable_reason())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"GORU_ISA": "vax"}, capture_output=True, text=True
    )
    assert "GORU_ISA=vax is not an instruction set that this processor can run" in done.stdout


@pytest.mark.parametrize("ragged", [False, True])
def test_results_do_not_depend_on_the_number_of_threads_or_the_run(ragged: bool) -> None:
    """Five blocks of rows or more, so four groups; with fewer and with more threads than groups."""
    case = Case(30, 37, 5, 48, ragged=ragged, dtype=torch.float32)
    arguments, lengths = goru_arguments(case)

    def run() -> list[torch.Tensor]:
        output, h_n, _ = run_goru(*arguments, lengths, True, True, False)  # type: ignore[arg-type]
        return [output, h_n, *torch.autograd.grad(output.square().sum() + h_n.sum(), arguments)]  # type: ignore[arg-type]

    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 6, 3):
            torch.set_num_threads(threads)
            results.append(run())
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


SMALL = {
    "GORU by rotations": lambda: goru.GORU(5, 64, 2, bidirectional=True, backend="native"),
    "GORU by a matrix": lambda: goru.GORU(5, 72, mesh="tunable", capacity=72, backend="native"),
    "GORU without gates": lambda: goru.GORU(5, 40, reset_gate=False, update_gate=False, backend="native"),
    "GRU": lambda: goru.GRU(5, 72, 2, bidirectional=True, backend="native"),
    "LSTM": lambda: goru.LSTM(5, 64, 2, bidirectional=True, backend="native"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 5, 11])
@pytest.mark.parametrize("kind", SMALL)
def test_results_do_not_depend_on_threads_that_share_rows(
    kind: str, batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer blocks of rows than threads, each thread has a part of the units; some threads have no part at all."""
    torch.manual_seed(0)
    layer = SMALL[kind]().to(dtype)
    x = torch.randn(45, batch, 5, dtype=dtype, requires_grad=True)
    lengths = torch.randint(1, 46, (batch,))
    used: list[tuple[int, int]] = []
    plain = native_call.Call.threads

    def threads(self: native_call.Call, steps: int, factor: int = 1, share: bool = False) -> int:
        used.append((plain(self, steps, factor, share), self.blocks))
        return used[-1][0]

    monkeypatch.setattr(native_call.Call, "threads", threads)
    monkeypatch.setattr(native_call, "THREAD_FLOPS", 1)
    results, before = [], torch.get_num_threads()
    try:
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            for given in (None, lengths):
                output = layer(x, lengths=given)[0]
                results.append([output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])])
    finally:
        torch.set_num_threads(before)
    assert any(count > blocks for count, blocks in used)
    for i, found in enumerate(results):
        assert all(map(torch.equal, found, results[i % 2]))


LARGE = SMALL | {
    "EURNN": lambda: goru.EURNN(5, 256, 2, complex=False, bidirectional=True, backend="native"),
    "EURNN, complex": lambda: goru.EURNN(5, 64, bidirectional=True, backend="native"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", LARGE)
def test_what_is_written_past_the_caches_has_the_same_bits(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer: Any = LARGE[kind]().to(dtype)
    results: list[list[torch.Tensor]] = []
    asked: list[bool] = []
    x, lengths = torch.randn(45, 19, 5, dtype=dtype), torch.randint(1, 46, (19,))
    intervals = (None,) if kind.startswith("EURNN") else (None, 7)
    for past in (False, True):
        for module in ("gated", "goru", "eurnn"):
            monkeypatch.setattr(f"goru.kernels.{module}.native.streams", lambda tensor: asked.append(past) or past)  # noqa: B023
        for interval in intervals:
            if not kind.startswith("EURNN"):
                layer.checkpoint = interval
            for given in (None, lengths):
                output = layer(x, lengths=given)[0]
                results.append([output, *torch.autograd.grad(output.square().sum(), list(layer.parameters()))])
    assert {False, True} == set(asked)
    half = len(results) // 2
    for before, after in zip(results[:half], results[half:], strict=True):
        assert all(map(torch.equal, before, after))


def test_strided_inputs_and_expanded_gradients() -> None:
    case = Case(6, 5, 4, 10)
    (x, *rest), _ = goru_arguments(case)
    expected = run_goru(x, *rest, None, True, True, False)[0]
    strange = [
        x.detach().transpose(0, 1).contiguous().transpose(0, 1),
        torch.stack([x.detach(), x.detach()], -1)[..., 0],
        x.detach().flip(2).flip(2),
    ]
    for other in strange:
        found = run_goru(other, *rest, None, True, True, False)[0]
        assert torch.equal(found, expected)
    (dense,) = torch.autograd.grad(expected, rest[4], torch.ones_like(expected), retain_graph=True)
    (expanded,) = torch.autograd.grad(expected.sum(), rest[4], retain_graph=True)
    (again,) = torch.autograd.grad(expected.sum(), rest[4])
    assert torch.equal(dense, expanded)
    assert torch.equal(expanded, again)


def test_empty_batch() -> None:
    arguments, _ = goru_arguments(Case(batch=0))
    output, h_n, _ = run_goru(*arguments, None, True, True, False)  # type: ignore[arg-type]
    assert output.shape == (5, 0, 8)
    grads = torch.autograd.grad(output.sum() + h_n.sum(), arguments)  # type: ignore[arg-type]
    assert all((g == 0).all() for g in grads)
    mesh = Mesh("tunable", 8, 2, True)
    x, h0 = torch.zeros(5, 0, 3), torch.zeros(0, 8, dtype=torch.complex64)
    output, h_n, _ = run_eurnn(x, h0, torch.zeros(16, 3), None, torch.zeros(mesh.num_angles), None, mesh, False)
    assert output.shape == (5, 0, 8)
    assert h_n.dtype == torch.complex64


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_what_is_not_finite_spreads_as_in_torch(value: float) -> None:
    arguments, _ = goru_arguments(Case(4, 3, 2, 9, dtype=torch.float32))
    with torch.no_grad():
        arguments[0][1, 1, 0] = value  # type: ignore[index]
        expected, _ = cases.reference_goru(*arguments, None, True, True, False)  # type: ignore[arg-type]
        found, _, _ = run_goru(*arguments, None, True, True, False, save=False)  # type: ignore[arg-type]
    assert torch.equal(expected.isfinite(), found.isfinite())
    finite = expected.isfinite()
    assert relative(found[finite], expected[finite]) < 1e-5


def check_operators(recurrence: Any, call: tuple[Any, Any]) -> None:
    for operator in (recurrence.operator, recurrence.saving_operator):
        torch.library.opcheck(operator, flat(recurrence, call))


def test_torch_library_accepts_the_operators() -> None:
    case = Case(3, 2, 2, 5, ragged=True)
    arguments, lengths = goru_arguments(case)
    check_operators(GORU, goru_call(*arguments, lengths, True, True, False))
    mesh = Mesh("tunable", 5, 2, True)
    angles = torch.randn(mesh.num_angles, requires_grad=True)
    check_operators(MESH_MATRIX, (MeshInputs(angles), mesh))
    h0 = torch.randn(2, 5, dtype=torch.complex64, requires_grad=True)
    call = eurnn_call(torch.randn(3, 2, 2), h0, torch.randn(10, 2), torch.zeros(5), angles, None, mesh, False)
    check_operators(EURNN, call)


WRONG = {
    "x": lambda a: [a[0][..., :1], *a[1:]],
    "x of two dimensions": lambda a: [a[0][0], *a[1:]],
    "no steps": lambda a: [a[0][:0], *a[1:]],
    "h0": lambda a: [a[0], a[1][:1], *a[2:]],
    "h0 of another dtype": lambda a: [a[0], a[1].float(), *a[2:]],
    "weight_ih": lambda a: [*a[:2], a[2][1:], *a[3:]],
    "weight_hh": lambda a: [*a[:3], a[3][:, 1:], *a[4:]],
    "no weight_hh": lambda a: [*a[:3], None, *a[4:]],
    "bias": lambda a: [*a[:4], a[4][:3], a[5]],
    "u": lambda a: [*a[:5], a[5][:, :2]],
    "x in half precision": lambda a: [a[0].half(), *a[1:]],
    "integers": lambda a: [t.long() for t in a],
}


@pytest.mark.parametrize("what", WRONG)
def test_inconsistent_arguments_are_refused(what: str) -> None:
    arguments, _ = goru_arguments(Case(4, 3, 2, 6))
    wrong = WRONG[what]([a.detach() for a in arguments])  # type: ignore[union-attr]
    with pytest.raises(RuntimeError):
        torch.ops.goru.goru(*flat(GORU, goru_call(*wrong, None, True, True, False)))


@pytest.mark.parametrize("lengths", [[0, 1, 2], [1, 2, 5], [1, 2], [-1, 1, 1]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    arguments, _ = goru_arguments(Case(4, 3, 2, 6))
    with pytest.raises(RuntimeError):
        run_goru(*arguments, torch.tensor(lengths), True, True, False)  # type: ignore[arg-type]
