"""Random argument sets for the native operators: the right answer or a clean exception, never anything else."""

from __future__ import annotations

import random

import pytest
import torch

from goru.kernels import native
from goru.kernels.eurnn import EURNN
from goru.kernels.goru import GORU
from goru.rotations import Mesh
from tests.kernels.native_cases import (
    Case,
    backward,
    eurnn_call,
    eurnn_difference,
    goru_arguments,
    goru_call,
    goru_difference,
    mesh_difference,
    run_eurnn,
    run_goru,
)

pytestmark = pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")


def random_case(chance: random.Random) -> Case:
    def flag() -> bool:
        return chance.random() < 0.5

    return Case(
        steps=chance.choice([1, 1, 2, 3, 5, 9]),
        batch=chance.choice([1, 2, 3, 4, 5, 7, 8, 9, 16, 17]),
        inputs=chance.choice([1, 2, 3, 7, 8, 9, 17]),
        hidden=chance.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33]),
        reset=flag(), update=flag(), bias=flag(), ragged=flag(), reverse=flag(),
        dtype=chance.choice([torch.float32, torch.float64]),
        seed=chance.randrange(1 << 30),
    )  # fmt: skip


def random_mesh(chance: random.Random, size: int) -> Mesh:
    complex = chance.random() < 0.5
    if chance.random() < 0.5:
        return Mesh("fft", size, None, complex)
    return Mesh("tunable", size, chance.randint(1, size), complex)


def damaged(chance: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one property changed."""
    kind = chance.randrange(5)
    if kind == 0 and tensor.is_complex():
        return tensor.real.clone()
    if kind == 0:
        return tensor.to(chance.choice([torch.float16, torch.int64, torch.complex64, torch.bfloat16]))
    if kind == 1:
        return tensor.unsqueeze(chance.randint(0, tensor.dim()))
    if kind == 2:
        return tensor[:0]
    if kind == 3:
        return torch.cat([tensor, tensor[:1]])
    return tensor.narrow(-1, 0, max(0, tensor.shape[-1] - 1))


def one(chance: random.Random) -> None:
    case = random_case(chance)
    kind = chance.randrange(4)
    if kind == 0:
        assert goru_difference(case) <= case.tolerance, case
    elif kind == 1:
        mesh, dense = random_mesh(chance, case.hidden), chance.random() < 0.3
        assert eurnn_difference(case, mesh, dense) <= case.tolerance, (case, mesh, dense)
    elif kind == 2:
        mesh = random_mesh(chance, case.hidden)
        assert mesh_difference(mesh, case.dtype) <= case.tolerance, mesh
    elif chance.random() < 0.5:
        refused_or_same(chance, case)
    else:
        eurnn_refused_or_same(chance, case)


def refused_or_same(chance: random.Random, case: Case) -> None:
    """One damaged argument: an exception, or (a change that changes nothing) a result of the right shape."""
    arguments, lengths = goru_arguments(case)
    plain = [None if a is None else a.detach() for a in arguments]
    i = chance.choice([i for i, a in enumerate(plain) if a is not None])
    plain[i] = damaged(chance, plain[i])  # type: ignore[arg-type]
    switches = (case.reset, case.update, case.reverse)
    try:
        output, h_n, saved = run_goru(*plain, lengths, *switches)
    except (RuntimeError, ValueError, TypeError):
        return
    assert output.shape == (*plain[0].shape[:2], plain[5].shape[0])  # type: ignore[union-attr]
    tensors = [torch.randn_like(output), torch.randn_like(h_n), *plain, lengths, output, saved]
    damage = chance.randrange(len(tensors))
    if tensors[damage] is not None and tensors[damage].dim() and tensors[damage].numel():  # type: ignore[union-attr]
        tensors[damage] = damaged(chance, tensors[damage])  # type: ignore[arg-type]
    try:
        *grads, x, h0, weight_ih, weight_hh, bias, u, lengths, output, saved = tensors
        call = goru_call(x, h0, weight_ih, weight_hh, bias, u, lengths, *switches)
        backward(GORU, call, output, saved, grads, chance.random() < 0.5)
    except (RuntimeError, ValueError, TypeError):
        return


def eurnn_refused_or_same(chance: random.Random, case: Case) -> None:
    """The same for an EURNN, by rotations or with U."""
    mesh, dense = random_mesh(chance, case.hidden), chance.random() < 0.5
    T, B, I, H = case.steps, case.batch, case.inputs, case.hidden
    state = case.dtype.to_complex() if mesh.complex else case.dtype
    angles = torch.randn(mesh.num_angles, dtype=case.dtype)
    tensors = [
        torch.randn(T, B, I, dtype=case.dtype), torch.randn(B, H, dtype=state),
        torch.randn((1 + mesh.complex) * H, I, dtype=case.dtype), torch.randn(H, dtype=case.dtype),
        mesh.matrix(angles) if dense else angles, torch.randint(1, T + 1, (B,)) if case.ragged else None,
    ]  # fmt: skip
    i = chance.choice([i for i, t in enumerate(tensors) if t is not None])
    if tensors[i].numel():  # type: ignore[union-attr]
        tensors[i] = damaged(chance, tensors[i])  # type: ignore[arg-type]
    try:
        output, h_n, saved = run_eurnn(*tensors, mesh, case.reverse)
    except (RuntimeError, ValueError, TypeError):
        return
    assert output.shape == (*tensors[0].shape[:2], h_n.shape[1])  # type: ignore[union-attr]
    gradients = [torch.randn_like(output), torch.randn_like(h_n), *tensors, output, saved]
    damage = chance.randrange(len(gradients))
    if gradients[damage] is not None and gradients[damage].dim() and gradients[damage].numel():
        gradients[damage] = damaged(chance, gradients[damage])
    try:
        *grads, x, h0, weight_ih, bias, transition, lengths, output, saved = gradients
        call = eurnn_call(x, h0, weight_ih, bias, transition, lengths, mesh, case.reverse)
        backward(EURNN, call, output, saved, grads, chance.random() < 0.5)
    except (RuntimeError, ValueError, TypeError):
        return


@pytest.mark.parametrize("part", range(4))
def test_a_thousand_random_argument_sets(part: int) -> None:
    chance = random.Random(part)
    for _ in range(250):
        one(chance)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_a_hundred_thousand_random_argument_sets(part: int) -> None:
    chance = random.Random(f"2017 {part}")
    for _ in range(5_000):
        one(chance)
