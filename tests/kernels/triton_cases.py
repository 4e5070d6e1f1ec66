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
from benchmarks import contenders, gpu
from goru import doctor
from goru.kernels.backends import choose
from goru.kernels.goru import GoruInputs, GoruOptions, manual, reference
from goru.kernels.triton import TRITON, launch
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
    def options(self) -> GoruOptions:
        return GoruOptions(self.mesh, self.reset, self.update, self.reverse)

    @property
    def lengths(self) -> Tensor | None:
        """Every row another one, the longest in the middle, the shortest of one step."""
        if not self.ragged:
            return None
        return torch.tensor([1 + (self.T - 1 - abs(b - self.B // 2)) % self.T for b in range(self.B)])

    def inputs(self, dtype: torch.dtype) -> GoruInputs:
        """Numbers of `dtype`, held in float64."""
        gates = self.reset + self.update
        bias = draw((gates + 1) * self.H, seed=5) * 0.3
        bias[-self.H :] = -bias[-self.H :].abs()
        inputs = GoruInputs(
            x=draw(self.T, self.B, self.I, seed=1),
            h0=draw(self.B, self.H, seed=2),
            weight_ih=draw((gates + 1) * self.H, self.I, seed=3) * 0.5,
            weight_hh=draw(gates * self.H, self.H, seed=4) / self.H**0.5 if gates else None,
            bias=bias if self.bias else None,
            u=self.mesh.matrix(draw(self.mesh.num_angles, seed=6)),
            angles=None,
        )
        rounded = GoruInputs(*(None if t is None else t.to(dtype).double() for t in inputs))
        return rounded._replace(lengths=self.lengths)

    def grads(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return draw(self.T, self.B, self.H, seed=7).to(dtype), draw(self.B, self.H, seed=8).to(dtype)

    def rounding(self, dtype: torch.dtype) -> float:
        return rounding(dtype, self.T, self.H + self.I)


def expected(case: Case, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """From the reference, differentiated by autograd, in float64."""
    inputs = case.inputs(dtype)
    leaves = {name: t.requires_grad_() for name, t in inputs._asdict().items() if t is not None and name != "lengths"}
    output, h_n = reference.goru(inputs, case.options)
    gradients = torch.autograd.grad([output, h_n], list(leaves.values()), [g.double() for g in case.grads(dtype)])
    return {"output": output, "h_n": h_n, **dict(zip(leaves, gradients, strict=True))}


def on_device(inputs: GoruInputs, dtype: torch.dtype = torch.float32) -> GoruInputs:
    moved = {
        n: t if t is None else t.to(DEVICE, None if n == "lengths" else dtype) for n, t in inputs._asdict().items()
    }
    return GoruInputs(**moved)


def ours(case: Case, dtype: torch.dtype = torch.float32, blocks: Blocks | None = None) -> dict[str, Tensor]:
    """From the Triton kernels; beyond a row's end x and the arriving gradient are NaN."""
    inputs = on_device(case.inputs(dtype), dtype)
    grad_output, grad_h_n = (g.to(DEVICE) for g in case.grads(dtype))
    if inputs.lengths is not None:
        beyond = (torch.arange(case.T, device=DEVICE)[:, None] >= inputs.lengths)[..., None]
        inputs = inputs._replace(x=inputs.x.masked_fill(beyond, float("nan")))
        grad_output = grad_output.masked_fill(beyond, float("nan"))
    output, h_n, saved = launch.forward(inputs, case.options, True, blocks)
    gradients = launch.backward(inputs, case.options, output, saved, (grad_output, grad_h_n), True, blocks)
    return {"output": output, "h_n": h_n, "saved": saved, **by_name(inputs, gradients)}


def by_name(inputs: GoruInputs, gradients: tuple[Tensor | None, ...]) -> dict[str, Tensor]:
    """The gradients of the inputs that are there; of the others there is none."""
    named = dict(zip(inputs._fields[:-1], gradients, strict=True))
    assert [name for name, g in named.items() if g is None] == [n for n in named if getattr(inputs, n) is None]
    return {name: g for name, g in named.items() if g is not None}


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
    case = Case()
    inputs, grads = on_device(case.inputs(torch.float32)), tuple(g.to(DEVICE) for g in case.grads(torch.float32))
    output, h_n, saved = launch.forward(inputs, case.options, True)
    again, last, nothing = launch.forward(inputs, case.options, False)
    assert torch.equal(output, again)
    assert torch.equal(h_n, last)
    assert nothing.numel() == 0
    dx, dh0, *_ = launch.backward(inputs, case.options, output, saved, grads, needs_x=False)
    assert dx is None
    assert dh0 is not None


def test_angles_in_the_place_of_the_matrix() -> None:
    case = Case()
    angles = draw(case.mesh.num_angles, seed=6)
    inputs = on_device(case.inputs(torch.float32)._replace(u=None, angles=angles))
    grads = tuple(g.to(DEVICE) for g in case.grads(torch.float32))
    output, h_n, saved = launch.forward(inputs, case.options, True)
    got = by_name(inputs, launch.backward(inputs, case.options, output, saved, grads, True))
    want = expected(case)
    assert_close(output.cpu(), want["output"], case.rounding(torch.float32))
    assert_close(h_n.cpu(), want["h_n"], case.rounding(torch.float32))
    angles.requires_grad_()
    (dangles,) = torch.autograd.grad(case.mesh.matrix(angles), angles, want["u"])
    assert_close(got["angles"].cpu(), dangles, case.B * case.H * case.rounding(torch.float32))


@pytest.mark.parametrize(
    "blocks", [Blocks(16, 16, 16), Blocks(16, 32, 16, 8, 3), Blocks(32, 16, 64), Blocks(64, 64, 32)]
)
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
    inputs, grads = case.inputs(dtype), tuple(g.double() for g in case.grads(dtype))
    output, saved = got["output"].double().cpu(), got["saved"].double().cpu()
    for name, gradient in by_name(inputs, manual.backward(inputs, case.options, output, saved, grads, True)).items():
        assert got[name].dtype == dtype
        assert_close(got[name].cpu(), gradient, allowed, f"gradient of {name}")


def test_the_state_is_float32_in_bfloat16() -> None:
    """An update gate near 1 moves the state by less than bfloat16 resolves: the steps must add up all the same."""
    T, H = 32, 4
    weight_ih, weight_hh = torch.zeros(3 * H, 1), torch.zeros(2 * H, H)
    weight_ih[-H:] = 1.0  # the candidate is x + r U h
    bias = torch.cat([torch.full((H,), -20.0), torch.full((H,), 6.0), torch.zeros(H)])  # r = 0, z = 0.9975
    x, h0 = torch.full((T, 1, 1), 2.0), torch.ones(1, H)
    inputs = on_device(GoruInputs(x, h0, weight_ih, weight_hh, bias, torch.eye(H), None), torch.bfloat16)
    output, _, _ = launch.forward(inputs, GoruOptions(Mesh("fft", H)), False)
    z = torch.sigmoid(torch.tensor(6.0)).item()
    assert_close(output[-1].cpu(), torch.full((1, H), 2 - z**T), torch.finfo(torch.bfloat16).eps)


def test_nan_is_not_hidden() -> None:
    case = Case(3, 2, 5)
    inputs = on_device(case.inputs(torch.float32))
    inputs.x[1, 0, 0] = float("nan")
    output, h_n, _ = launch.forward(inputs, case.options, False)
    assert output[0].isfinite().all()
    assert output[1:, 0].isnan().all()
    assert output[:, 1].isfinite().all()
    assert h_n[0].isnan().all()


def test_modrelu_at_zero() -> None:
    """Where nothing arrives the candidate is 0 although b_h > 0, and so are the gradients that pass through it."""
    H, ones = 3, torch.ones
    inputs = on_device(
        GoruInputs(
            torch.zeros(2, 2, 1), torch.zeros(2, H), ones(3 * H, 1), ones(2 * H, H), ones(3 * H), torch.eye(H), None
        )
    )
    options = GoruOptions(Mesh("fft", H))
    output, h_n, saved = launch.forward(inputs, options, True)
    assert not output.any()
    assert not h_n.any()
    grads = ones(2, 2, H, device=DEVICE), torch.zeros(2, H, device=DEVICE)
    got = by_name(inputs, launch.backward(inputs, options, output, saved, grads, True))
    assert not got["bias"].any()
    assert not got["x"].any()
    assert got["h0"].any()


def test_empty_batch() -> None:
    results = ours(Case(B=0))
    assert results["output"].shape == (4, 0, 6)
    assert results["x"].shape == (4, 0, 3)
    assert not results["weight_hh"].any()


def test_the_tuner_finds_a_tile() -> None:
    """The tuner calls the program again and again on the same arguments: the last call must give what one call gives.

    The interpreter has no device clock, so that the wall clock takes its part."""

    case = Case(2, 17, 33, ragged=True)
    whole = ours(case)
    tried = []

    def seconds(call: Any, quantiles: Any) -> list[float]:
        start = time.perf_counter()
        call()
        tried.append(time.perf_counter() - start)
        return [tried[-1]] * len(quantiles)

    with pytest.MonkeyPatch.context() as patch:
        for name in launch.TUNED:
            program = launch.tuned(getattr(launch.programs, name), launch.CANDIDATES, do_bench=seconds)
            patch.setitem(launch.TUNED, name, program)
        again = ours(case)
    assert len(tried) >= 4
    for name, one in whole.items():
        if name != "saved":
            assert_close(again[name].cpu(), one.cpu().double(), 2 * case.B * case.rounding(torch.float32), name)


@pytest.mark.parametrize("ragged", [False, True])
def test_layers(ragged: bool) -> None:
    """The whole way: two layers, two directions, a state, gradients of all parameters."""
    layer = lively(goru.GORU(3, 5, num_layers=2, bidirectional=True, dtype=torch.float32), b_h="negative").to(DEVICE)
    lengths = torch.tensor([4, 1, 3]) if ragged else None
    x, hx = (draw(*shape, seed=9, dtype=torch.float32).to(DEVICE) for shape in ((4, 3, 3), (4, 3, 5)))
    found = {}
    for backend in ("reference", "triton"):
        layer.zero_grad()
        with goru.use_backend(backend):
            output, h_n = layer(x, hx, lengths=lengths)
        (output.sum() + h_n.square().sum()).backward()  # a gradient that is one number, expanded
        found[backend] = {"output": output, "h_n": h_n, **{n: p.grad.clone() for n, p in layer.named_parameters()}}
    for name, want in found["reference"].items():
        assert_close(found["triton"][name].cpu(), want.double().cpu(), 3 * 4 * rounding(torch.float32, 4, 13), name)


def test_a_cell_takes_a_step() -> None:
    cell = lively(goru.GORUCell(3, 5, dtype=torch.float32, backend="triton"), b_h="negative").to(DEVICE)
    x, h = (draw(*shape, dtype=torch.float32).to(DEVICE) for shape in ((2, 3), (2, 5)))
    with torch.no_grad():
        got = cell(x, h)
        cell.backend = "reference"
        assert_close(got.cpu(), cell(x, h).double().cpu(), rounding(torch.float32, 1, 8))


def test_a_compiled_layer() -> None:
    """One graph, with the kernels as one operator in it."""
    layer = lively(goru.GORU(3, 5, dtype=torch.float32, backend="triton"), b_h="negative").to(DEVICE)
    x = draw(4, 2, 3, dtype=torch.float32).to(DEVICE)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x)[0], layer(x)[0])


def test_what_it_cannot_do_it_says() -> None:
    x = torch.zeros(2, 1, 3, device=DEVICE)
    with pytest.raises(RuntimeError, match="take up to 1024 hidden units, the layer has 1025"):
        goru.GORU(3, 1025, backend="triton", device=DEVICE)(x)
    with pytest.raises(RuntimeError, match=r"support float32 and bfloat16, the layer has torch\.float64"):
        goru.GORU(3, 5, backend="triton", device=DEVICE, dtype=torch.float64)(x.double())
    with pytest.raises(RuntimeError, match="the triton backend does not implement eurnn"):
        goru.EURNN(3, 5, backend="triton", device=DEVICE)(x)
    choice = choose(None, torch.device(DEVICE), torch.float32, "goru", 5)
    assert (choice.backend == "triton") == (not INTERPRETED)  # nobody wants to train in an interpreter


def test_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of `goru doctor`, of this backend alone."""
    monkeypatch.setattr(doctor, "BACKENDS", {"triton": TRITON})
    monkeypatch.setattr(doctor, "SECONDS", 600.0)
    monkeypatch.setattr(doctor, "_devices", lambda: [torch.device(DEVICE)])
    checks = [check for check in doctor.self_test() if check is not None]
    layers = [title for title in doctor.TESTED if title.startswith("GORU")]
    assert [check.name for check in checks] == [f"triton float32 {title}" for title in ("mesh", *layers)]
    assert all(check.passed for check in checks)


def test_the_benchmark_runs() -> None:
    """What it measures here means nothing; that it can be measured, and what is compared before, does."""
    device, shape = torch.device(DEVICE), contenders.Shape("tiny", 2, 2, 3, 5)
    for precision in ("float32", "bfloat16"):
        row = gpu.measured(shape, precision, True, device, rounds=1)
        assert {"nn.GRU", "triton", "vs GRU"} <= row.keys()
    for dtype, allowed in gpu.ALLOWED.items():
        assert gpu.disagreement(dtype, device) <= allowed
