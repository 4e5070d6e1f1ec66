"""The recurrences GRU and LSTM: every backend against the reference, and the reference against torch's own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import goru
from goru.kernels import native
from goru.kernels.gated import GRU, LSTM, GatedOptions, GruInputs, LstmInputs
from goru.kernels.native import library
from tests.kernels.native_cases import difference, spoiled, tolerance
from tests.kernels.test_native_fuzz import damaged

RECURRENCES = {"gru": (GRU, GruInputs, 3), "lstm": (LSTM, LstmInputs, 4)}
BACKENDS = ["manual", "native"] if native.unavailable_reason() is None else ["manual"]
needs_native = pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")


@dataclass(frozen=True)
class Problem:
    cell: str = "gru"
    steps: int = 5
    batch: int = 6
    inputs: int = 3
    hidden: int = 8
    bias: bool = True
    ragged: bool = False
    reverse: bool = False
    dtype: torch.dtype = torch.float64
    seed: int = 0

    def draw(self) -> tuple[list[Tensor | None], Tensor | None]:
        """The arguments of the recurrence and the lengths."""
        generator = torch.Generator().manual_seed(self.seed)
        T, B, I, H, rows = self.steps, self.batch, self.inputs, self.hidden, RECURRENCES[self.cell][2] * self.hidden

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            return (torch.randn(shape, dtype=self.dtype, generator=generator) * scale).requires_grad_()

        states = [normal(B, H) for _ in range(2 if self.cell == "lstm" else 1)]
        weights = [normal(rows, I, scale=0.5), normal(rows, H, scale=H**-0.5)]
        biases = [normal(rows, scale=0.3), normal(rows, scale=0.3)] if self.bias else [None, None]
        lengths = torch.randint(1, T + 1, (B,), generator=generator) if self.ragged else None
        return [normal(T, B, I), *states, *weights, *biases], lengths

    def call(self, backend: str, lengths: Tensor | None) -> Callable[..., tuple[Tensor, ...]]:
        recurrence, inputs, _ = RECURRENCES[self.cell]
        return lambda *a: recurrence(inputs(*a, lengths), GatedOptions(self.reverse), backend)

    def difference(self, backend: str) -> float:
        """From the reference, results and all gradients, see native_cases.py; inference gives the bits of training."""
        arguments, lengths = self.draw()
        given = [spoiled(arguments[0], lengths), *arguments[1:]]  # type: ignore[arg-type]
        ours = self.call(backend, lengths)

        def same_without_saving(*a: Any) -> tuple[Tensor, ...]:
            results = ours(*a)
            with torch.no_grad():
                assert all(map(torch.equal, results, ours(*a)))
            return results

        return difference(self.call("reference", lengths), same_without_saving, arguments, given)


SHAPES: list[tuple[int, int, int, int]] = [
    (1, 1, 1, 1),
    (1, 1, 3, 5),
    (2, 1, 3, 8),
    (9, 5, 3, 19),
    (5, 9, 10, 33),
    (3, 3, 17, 7),
    (6, 17, 4, 64),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("cell", RECURRENCES)
def test_results_and_gradients(cell: str, shape: tuple[int, int, int, int], dtype: torch.dtype, backend: str) -> None:
    for ragged in (False, True):
        for reverse in (False, True):
            for bias in (False, True):
                problem = Problem(cell, *shape, bias, ragged, reverse, dtype)
                assert problem.difference(backend) <= tolerance(dtype), problem


@pytest.mark.parametrize("ragged", [False, True], ids=["full", "ragged"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("cell", RECURRENCES)
def test_reference_is_what_torch_computes(cell: str, reverse: bool, ragged: bool) -> None:
    problem = Problem(cell, 7, 5, 4, 6, ragged=ragged, reverse=reverse)
    arguments, lengths = problem.draw()
    module = (nn.GRU if cell == "gru" else nn.LSTM)(4, 6, bidirectional=reverse, dtype=torch.float64)
    suffix = "_l0_reverse" if reverse else "_l0"
    weights = arguments[-4:]
    for name, weight in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), weights, strict=True):
        delattr(module, name + suffix)
        setattr(module, name + suffix, weight)
    x, states = arguments[0], arguments[1:-4]
    assert x is not None
    hx = [torch.stack([torch.zeros_like(s), s] if reverse else [s]) for s in states if s is not None]
    input = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    output, last = module(input, hx[0] if cell == "gru" else tuple(hx))
    if lengths is not None:
        output, _ = pad_packed_sequence(output, total_length=x.shape[0])
    expected = [output[..., -6:], *(part[-1] for part in ((last,) if cell == "gru" else last))]
    ours = problem.call("reference", lengths)(*arguments)
    grads = [torch.randn_like(r) for r in expected]
    wanted = [a for a in arguments if a is not None]
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(r, wanted, grads) for r in (ours, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", RECURRENCES)
def test_gradcheck(cell: str, backend: str) -> None:
    for problem in (Problem(cell, 3, 2, 2, 3), Problem(cell, 3, 3, 1, 2, bias=False, ragged=True, reverse=True)):
        arguments, lengths = problem.draw()
        assert torch.autograd.gradcheck(problem.call(backend, lengths), arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", RECURRENCES)
def test_operators_are_registered_as_torch_wants_them(cell: str, backend: str) -> None:
    recurrence, inputs, _ = RECURRENCES[cell]
    for problem in (Problem(cell), Problem(cell, bias=False, ragged=True, reverse=True)):
        arguments, lengths = problem.draw()
        for checkpoint in (None, 2):
            flat = (*inputs(*arguments, lengths), problem.reverse, checkpoint, backend)
            for operator in (recurrence.operator, recurrence.saving_operator):
                torch.library.opcheck(operator, flat)


@pytest.mark.parametrize("cell", RECURRENCES)
def test_saturated_gates_stay_finite(cell: str) -> None:
    """Sums far outside the range of exp: gates of 0 and 1, no NaN, the reference's values."""
    for backend in BACKENDS:
        for dtype in (torch.float32, torch.float64):
            problem = Problem(cell, 4, 3, 2, 9, dtype=dtype)
            arguments, _ = problem.draw()
            big = [None if a is None else (a.detach() * 300).requires_grad_() for a in arguments]
            expected, ours = problem.call("reference", None)(*big), problem.call(backend, None)(*big)
            wanted = [a for a in big if a is not None]
            for results in (expected, ours):
                gradients = torch.autograd.grad(results[0].sum(), wanted, retain_graph=True)
                assert all(t.isfinite().all() for t in (*results, *gradients))
            torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@needs_native
@pytest.mark.parametrize("update", [0.0, 8.0, 12.0, 16.0, 17.0, 20.0, 40.0])
@needs_native
def test_a_gru_that_keeps_its_state_has_gradients_as_exact_as_torch(update: float) -> None:
    """The native kernel derives n from the states, which loses digits as z approaches 1: no more than torch loses.

    From z = 1 on, in float32, the candidate has no gradient at all.
    """
    exact = nn.GRU(4, 9).double()
    with torch.no_grad():
        exact.get_parameter("bias_ih_l0")[9:18] = update
    x, h0, weights = (torch.randn(shape, dtype=torch.float64) for shape in ((20, 3, 4), (1, 3, 9), (20, 3, 9)))

    def gradients(layer: nn.Module) -> list[Tensor]:
        dtype = next(layer.parameters()).dtype
        inputs = [x.to(dtype).requires_grad_(), h0.to(dtype).requires_grad_()]
        loss = (layer(*inputs)[0] * weights.to(dtype)).sum()
        return list(torch.autograd.grad(loss, [*inputs, *layer.parameters()]))

    def worst(found: list[Tensor]) -> float:
        pairs = zip(found, gradients(exact), strict=True)
        return max(((ours - true).abs().max() / (true.abs().max() + 1e-12)).item() for ours, true in pairs)

    theirs, ours = nn.GRU(4, 9), goru.GRU(4, 9, backend="native")
    for layer in (theirs, ours):
        layer.load_state_dict(exact.state_dict())
    assert worst(gradients(ours)) <= 3 * worst(gradients(theirs)) + 1e-6
    if update >= 40:
        rows = dict(zip(("x", "h0", *dict(ours.named_parameters())), gradients(ours), strict=True))
        assert (rows["bias_ih_l0"] == 0).all()
        assert (rows["weight_hh_l0"] == 0).all()


@pytest.mark.parametrize("cell", RECURRENCES)
def test_tanh_is_accurate_near_zero_and_far_out(cell: str) -> None:
    """One unit, one step, no recurrence: the candidate alone, to a few units in the last place."""
    values = torch.cat([torch.logspace(-30, 1.5, 400), -torch.logspace(-30, 1.5, 400), torch.zeros(1)])
    for dtype, size in ((torch.float32, 1e-30), (torch.float64, 1e-300)):
        x = values.to(dtype).reshape(1, -1, 1)
        B = x.shape[1]
        state = torch.zeros(B, 1, dtype=dtype)
        if cell == "gru":  # z = 0 (far to the left), n = tanh(x)
            weight, bias = (
                torch.tensor([[0.0], [0.0], [1.0]], dtype=dtype),
                torch.tensor([0.0, -80.0, 0.0], dtype=dtype),
            )
            inputs = GruInputs(x, state, weight, torch.zeros(3, 1, dtype=dtype), bias, torch.zeros(3, dtype=dtype))
            found = GRU(inputs, GatedOptions(), "native")[0]
        else:  # i = 1, g = tanh(x): c_n
            weight = torch.tensor([[0.0], [0.0], [1.0], [0.0]], dtype=dtype)
            bias = torch.tensor([80.0, 0.0, 0.0, 0.0], dtype=dtype)
            zeros = torch.zeros(4, 1, dtype=dtype), bias, torch.zeros(4, dtype=dtype)
            found = LSTM(LstmInputs(x, state, state, weight, *zeros), GatedOptions(), "native")[2]
        expected = torch.tanh(x.double()).reshape(-1)
        far = (found.double().reshape(-1) - expected).abs() / expected.abs().clamp_min(size)
        assert far.max() <= 4 * torch.finfo(dtype).eps


@needs_native
@pytest.mark.parametrize("level", ["generic", "avx2", "avx512"])
def test_every_instruction_set(level: str) -> None:
    loaded = library.get()
    runnable = library.levels(loaded)
    if level not in runnable:
        pytest.skip(f"this processor cannot run {level}")
    before = loaded.goru_chosen()
    from goru.kernels.gated import native as kernels

    try:
        loaded.goru_choose(runnable[level])
        kernels._sizes.cache_clear()
        for cell in RECURRENCES:
            for dtype in (torch.float32, torch.float64):
                for reverse in (False, True):
                    ragged = Problem(cell, 6, 11, 5, 21, ragged=True, reverse=reverse, dtype=dtype)
                    single_row = Problem(cell, 6, 1, 5, 64, reverse=reverse, dtype=dtype)  # 64 fills whole panels
                    for problem in (ragged, single_row):
                        assert problem.difference("native") <= tolerance(dtype), problem
    finally:
        loaded.goru_choose(before)
        kernels._sizes.cache_clear()


@needs_native
@pytest.mark.parametrize("cell", RECURRENCES)
def test_bits_do_not_depend_on_threads(cell: str) -> None:
    problem = Problem(cell, 12, 40, 20, 96, ragged=True, dtype=torch.float32)
    arguments, lengths = problem.draw()
    wanted = [a for a in arguments if a is not None]
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3, 6):
            torch.set_num_threads(threads)
            results = problem.call("native", lengths)(*arguments)
            found.append([*results, *torch.autograd.grad([r.sum() for r in results], wanted)])
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("cell", RECURRENCES)
def test_any_layout_in_memory(cell: str, backend: str) -> None:
    """Transposed, sliced and expanded arguments and gradients give what their dense copies give."""
    problem = Problem(cell, 6, 5, 4, 7)
    arguments, _ = problem.draw()
    x, *rest = [a.detach() for a in arguments if a is not None]

    def sliced(t: Tensor) -> Tensor:
        wide = torch.full((*t.shape[:-1], 2 * t.shape[-1]), float("nan"), dtype=t.dtype)
        wide[..., ::2] = t
        return wide[..., ::2]

    strange = [x.transpose(0, 1).contiguous().transpose(0, 1), *map(sliced, rest)]
    results = []
    for given in ([x, *rest], strange):
        leaves = [t.requires_grad_() for t in given]
        output = problem.call(backend, None)(*leaves)
        grads = [
            torch.ones(1, 1, 1, dtype=x.dtype).expand_as(output[0]),
            *(sliced(torch.ones_like(o)) for o in output[1:]),
        ]
        results.append([*output, *torch.autograd.grad(output, leaves, grads)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


@needs_native
@pytest.mark.parametrize("part", range(2))
def test_random_problems_and_damaged_arguments(part: int) -> None:
    chance = random.Random(part)
    for _ in range(100):
        _one(chance)


@needs_native
@pytest.mark.soak
@pytest.mark.parametrize("part", range(8))
def test_twenty_thousand_random_problems(part: int) -> None:
    chance = random.Random(f"1997 {part}")
    for _ in range(2_500):
        _one(chance)


def _one(chance: random.Random) -> None:
    problem = Problem(
        chance.choice(list(RECURRENCES)),
        steps=chance.choice([1, 1, 2, 3, 5, 9]),
        batch=chance.choice([1, 2, 3, 4, 5, 7, 8, 9, 16, 17]),
        inputs=chance.choice([1, 2, 3, 7, 8, 9, 17]),
        hidden=chance.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33]),
        bias=chance.random() < 0.5, ragged=chance.random() < 0.5, reverse=chance.random() < 0.5,
        dtype=chance.choice([torch.float32, torch.float64]), seed=chance.randrange(1 << 30),
    )  # fmt: skip
    if chance.random() < 0.5:
        assert problem.difference("native") <= tolerance(problem.dtype), problem
    else:
        _refused_or_right_shape(chance, problem)


def _refused_or_right_shape(chance: random.Random, problem: Problem) -> None:
    """Damaged arguments: an exception, or (a change that changes nothing) a result of the right shape."""
    recurrence, inputs, _ = RECURRENCES[problem.cell]
    arguments, lengths = problem.draw()
    plain = [None if a is None else a.detach() for a in arguments]
    i = chance.choice([i for i, a in enumerate(plain) if a is not None])
    plain[i] = damaged(chance, plain[i])  # type: ignore[arg-type]
    options = GatedOptions(problem.reverse)
    try:
        output, *last, saved = recurrence.run(inputs(*plain, lengths), options, True, "native")
    except (RuntimeError, ValueError, TypeError):
        return
    assert output.shape == (*plain[0].shape[:2], plain[1].shape[1])  # type: ignore[union-attr]
    tensors = [output, saved, *(torch.randn_like(r) for r in (output, *last))]
    damage = chance.randrange(len(tensors))
    if tensors[damage].numel():
        tensors[damage] = damaged(chance, tensors[damage])
    output, saved, *grads = tensors
    try:
        flat = recurrence.options.flatten(options)
        recurrence.backward_operator(*grads, output, saved, *inputs(*plain, lengths), *flat, True, "native")
    except (RuntimeError, ValueError, TypeError):
        return
