"""The Triton kernels against the reference: outputs and all gradients. Not collected by itself: test_triton.py runs it
in a process of its own, with Triton's interpreter (TRITON_INTERPRET=1, which Triton reads when it is imported) or on a
device.

Memory from torch.empty is NaN here, so that nothing is read that was not written. b_h <= 0, because modReLU jumps at 0
otherwise.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import goru
from goru.kernels import manual, reference
from goru.kernels.triton import launch
from goru.kernels.triton.launch import Blocks
from goru.rotations import Mesh
from tests.specimens import assert_close, draw, lively, rounding

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
SIZES = list(itertools.product((1, 2, 7), (1, 3, 17), (1, 5, 33, 130)))
"""T, B, H. Every pair of values of two of them is in QUICK."""
QUICK = [
    (1, 1, 1), (2, 3, 1), (7, 17, 1), (1, 3, 5), (2, 17, 5), (7, 1, 5), (1, 17, 33), (2, 1, 33), (7, 3, 33),
    (1, 1, 130), (2, 3, 130), (7, 17, 130),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _memory_starts_as_nan() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


def test_these_run_where_they_should() -> None:
    assert launch.interpreting() == INTERPRETED


@dataclass(frozen=True)
class Case:
    T: int = 4
    B: int = 5
    H: int = 6
    reset: bool = True
    update: bool = True
    bias: bool = True
    ragged: bool = False
    reverse: bool = False
    I: int = 3

    @property
    def mesh(self) -> Mesh:
        return Mesh("tunable", self.H, self.H) if self.H > 1 else Mesh("fft", self.H)

    @property
    def lengths(self) -> Tensor | None:
        """Every row another one, the longest in the middle, the shortest of one step."""
        if not self.ragged:
            return None
        return torch.tensor([1 + (self.T - 1 - abs(b - self.B // 2)) % self.T for b in range(self.B)])

    def arguments(self, dtype: torch.dtype) -> list[Tensor | None]:
        """x, h0, weight_ih, weight_hh, bias, u: numbers of `dtype`, held in float64."""
        gates = self.reset + self.update
        weight = 1 / max(1, self.H) ** 0.5
        bias = draw((gates + 1) * self.H, seed=5) * 0.3
        bias[-self.H :] = -bias[-self.H :].abs()
        arguments = [
            draw(self.T, self.B, self.I, seed=1),
            draw(self.B, self.H, seed=2),
            draw((gates + 1) * self.H, self.I, seed=3) * 0.5,
            draw(gates * self.H, self.H, seed=4) * weight if gates else None,
            bias if self.bias else None,
            self.mesh.matrix(draw(self.mesh.num_angles, seed=6)),
        ]
        return [None if t is None else t.to(dtype).double() for t in arguments]

    def grads(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return draw(self.T, self.B, self.H, seed=7).to(dtype), draw(self.B, self.H, seed=8).to(dtype)

    def rounding(self, dtype: torch.dtype) -> float:
        return rounding(dtype, self.T, self.H + self.I)


def expected(case: Case, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """From the reference, differentiated by autograd, in float64."""
    arguments = [None if t is None else t.requires_grad_() for t in case.arguments(dtype)]
    results = reference.goru(*arguments, case.lengths, case.reset, case.update, case.reverse)  # type: ignore[arg-type]
    leaves = [t for t in arguments if t is not None]
    gradients = torch.autograd.grad(results, leaves, [g.double() for g in case.grads(dtype)])
    return named(case, results, gradients)


def named(case: Case, results: Any, gradients: Any) -> dict[str, Tensor]:
    names = ("x", "h0", "weight_ih", "weight_hh", "bias", "u")
    present = [n for n, t in zip(names, case.arguments(torch.float32), strict=True) if t is not None]
    return {"output": results[0], "h_n": results[1], **dict(zip(present, gradients, strict=True))}


def ours(case: Case, dtype: torch.dtype = torch.float32, blocks: Blocks | None = None) -> dict[str, Tensor]:
    """From the Triton kernels; beyond a row's end x and the arriving gradient are NaN."""
    arguments = [None if t is None else t.to(DEVICE, dtype) for t in case.arguments(dtype)]
    grad_output, grad_h_n = (g.to(DEVICE) for g in case.grads(dtype))
    lengths = case.lengths
    if lengths is not None:
        lengths = lengths.to(DEVICE)
        beyond = (torch.arange(case.T, device=DEVICE)[:, None] >= lengths)[..., None]
        arguments[0] = arguments[0].masked_fill(beyond, float("nan"))  # type: ignore[union-attr]
        grad_output = grad_output.masked_fill(beyond, float("nan"))
    spec = (case.mesh, case.reset, case.update, case.reverse)
    output, h_n, saved = launch.goru_forward(*arguments, lengths, *spec, True, blocks)  # type: ignore[arg-type]
    gradients = launch.goru_backward(
        grad_output, grad_h_n, *arguments, lengths, output, saved, *spec, True, blocks  # type: ignore[arg-type]
    )  # fmt: skip
    given = [g for g, t in zip(gradients, arguments, strict=True) if t is not None]
    return {"saved": saved, **named(case, (output, h_n), given)}


def compare(case: Case, dtype: torch.dtype = torch.float32, blocks: Blocks | None = None) -> None:
    got = ours(case, dtype, blocks)
    for name, want in expected(case, dtype).items():
        assert got[name].dtype == dtype
        # A weight gradient sums T B terms where a state sums H + I.
        terms = case.B if name in ("weight_ih", "weight_hh", "bias", "u") else 1
        assert_close(got[name].cpu(), want, terms * case.rounding(dtype), f"{name} of {case}")


@pytest.mark.parametrize(("T", "B", "H"), QUICK)
def test_sizes(T: int, B: int, H: int) -> None:
    compare(Case(T, B, H, ragged=True))


@pytest.mark.soak
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("T", "B", "H"), SIZES)
def test_all_sizes(T: int, B: int, H: int, ragged: bool, reverse: bool) -> None:
    compare(Case(T, B, H, ragged=ragged, reverse=reverse))


@pytest.mark.soak
@pytest.mark.parametrize("H", [512, 1000, 1024])
def test_large(H: int) -> None:
    compare(Case(3, 2, H, ragged=True))


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_options(reset: bool, update: bool, bias: bool) -> None:
    for ragged, reverse in itertools.product((False, True), repeat=2):
        compare(Case(reset=reset, update=update, bias=bias, ragged=ragged, reverse=reverse))


def test_what_is_not_needed_is_left_out() -> None:
    """What is saved for a backward pass, and the gradient of x; the results are the same without."""
    case = Case(ragged=False)
    arguments = [None if t is None else t.to(DEVICE, torch.float32) for t in case.arguments(torch.float32)]
    grads = [g.to(DEVICE) for g in case.grads(torch.float32)]
    spec = (case.mesh, case.reset, case.update, case.reverse)
    output, h_n, saved = launch.goru_forward(*arguments, None, *spec, True)  # type: ignore[arg-type]
    again, last, nothing = launch.goru_forward(*arguments, None, *spec, False)  # type: ignore[arg-type]
    assert torch.equal(output, again)
    assert torch.equal(h_n, last)
    assert nothing.numel() == 0
    dx, *_ = launch.goru_backward(*grads, *arguments, None, output, saved, *spec, False)  # type: ignore[arg-type]
    assert dx.numel() == 0


@pytest.mark.parametrize("blocks", [Blocks(16, 16, 16), Blocks(16, 32, 16, 8, 3), Blocks(32, 16, 64), Blocks(64, 64, 32)])
def test_tiles(blocks: Blocks) -> None:
    """Rows over several programs, columns and dot products over several tiles, none of them full at the end."""
    compare(Case(2, 18, 37, ragged=True, reverse=True), blocks=blocks)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("H", [5, 33])
def test_bfloat16(H: int, reverse: bool) -> None:
    """Outputs against the reference in float64. A rounding may decide whether modReLU lets a unit pass, so that the
    gradients are those of what the forward pass has saved, by the manual backend in float64."""
    case = Case(4, 5, H, ragged=True, reverse=reverse)
    dtype = torch.bfloat16
    got, want = ours(case, dtype), expected(case, dtype)
    # x W, both operands of a product and the result are rounded to bfloat16 (the interpreter cuts off: by up to eps).
    # Sums and the state are float32, so that the number of steps and of terms does not matter.
    allowed = 4 * torch.finfo(dtype).eps
    for name in ("output", "h_n"):
        assert got[name].dtype == dtype
        assert_close(got[name].cpu(), want[name], allowed, name)
    arguments, grads = case.arguments(dtype), case.grads(dtype)
    lengths, spec = case.lengths, (case.mesh, case.reset, case.update, case.reverse)
    gradients = manual.goru_backward(
        grads[0].double(), grads[1].double(), *arguments, lengths,  # type: ignore[arg-type]
        got["output"].double().cpu(), got["saved"].double().cpu(), *spec, True,
    )  # fmt: skip
    for name, want_one in named(case, (None, None), gradients).items():
        if want_one is not None:
            assert_close(got[name].cpu(), want_one, allowed, f"gradient of {name}")


def test_the_state_is_float32_in_bfloat16() -> None:
    """An update gate near 1 moves the state by less than bfloat16 resolves: the steps must add up all the same."""
    T, H = 32, 4
    weight_ih, weight_hh = torch.zeros(3 * H, 1), torch.zeros(2 * H, H)
    weight_ih[-H:] = 1.0  # the candidate is x + r U h
    bias = torch.cat([torch.full((H,), -20.0), torch.full((H,), 6.0), torch.zeros(H)])  # r = 0, z = 0.9975
    x, h0 = torch.full((T, 1, 1), 2.0), torch.ones(1, H)
    arguments = [t.to(DEVICE, torch.bfloat16) for t in (x, h0, weight_ih, weight_hh, bias, torch.eye(H))]
    output, _, _ = launch.goru_forward(*arguments, None, Mesh("fft", H), True, True, False, False)
    z = torch.sigmoid(torch.tensor(6.0)).item()
    assert_close(output[-1].cpu(), torch.full((1, H), 2 - z**T), torch.finfo(torch.bfloat16).eps)


def test_nan_is_not_hidden() -> None:
    case = Case(3, 2, 5)
    arguments = [None if t is None else t.to(DEVICE, torch.float32) for t in case.arguments(torch.float32)]
    arguments[0][1, 0, 0] = float("nan")  # type: ignore[index]
    spec = (case.mesh, case.reset, case.update, case.reverse)
    output, h_n, _ = launch.goru_forward(*arguments, None, *spec, False)  # type: ignore[arg-type]
    assert output[0].isfinite().all()
    assert output[1:, 0].isnan().all()
    assert output[:, 1].isfinite().all()
    assert h_n[0].isnan().all()


def test_modrelu_at_zero() -> None:
    """Where nothing arrives the candidate is 0 although b_h > 0, and so are the gradients that pass through it."""
    H = 3
    arguments = [torch.zeros(2, 2, 1), torch.zeros(2, H), torch.ones(3 * H, 1), torch.ones(2 * H, H), torch.ones(3 * H)]
    arguments = [t.to(DEVICE) for t in (*arguments, torch.eye(H))]
    spec = (Mesh("fft", H), True, True, False)
    output, h_n, saved = launch.goru_forward(*arguments, None, *spec, True)
    assert not output.any()
    grads = torch.ones(2, 2, H, device=DEVICE), torch.zeros(2, H, device=DEVICE)
    gradients = launch.goru_backward(*grads, *arguments, None, output, saved, *spec, True)
    assert not gradients[4].any()  # of the bias
    assert not gradients[0].any()  # of x


def test_empty_batch() -> None:
    results = ours(Case(B=0))
    assert results["output"].shape == (4, 0, 6)
    assert results["x"].shape == (4, 0, 3)
    assert not results["weight_hh"].any()


def test_the_tuner_finds_a_tile() -> None:
    """The tuner calls the program again and again on the same arguments: the last call must give what one call gives.

    The interpreter has no device clock, so that the wall clock takes its part."""

    def seconds(call: Any, quantiles: Any) -> list[float]:
        start = time.perf_counter()
        call()
        return [time.perf_counter() - start] * len(quantiles)

    case = Case(2, 17, 33, ragged=True)
    whole = ours(case)
    tried = []

    def watched(call: Any, quantiles: Any) -> list[float]:
        tried.append(1)
        return seconds(call, quantiles)

    with pytest.MonkeyPatch.context() as patch:
        for name in launch.TUNED:
            program = launch.tuned(getattr(launch.programs, name), launch.CANDIDATES, do_bench=watched)
            patch.setitem(launch.TUNED, name, program)
        again = ours(case)
    assert len(tried) >= 4
    for name, one in whole.items():
        if name != "saved":
            assert_close(again[name].cpu(), one.cpu().double(), 2 * case.B * case.rounding(torch.float32), name)
