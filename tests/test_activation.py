"""modReLU: values, gradients, and the places where a division by |a| would go wrong."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import goru
from tests import oracle
from tests.specimens import assert_close, draw

FLOATS = [torch.float32, torch.float64]
ALL = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def threshold(dtype: torch.dtype) -> float:
    """Below this |a| counts as 0 (docs/mathematics.md): the square root of the smallest normal number."""
    return math.sqrt(torch.finfo(dtype).tiny)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_values_equal_the_oracle(dtype):
    a, b = draw(50, 7, dtype=dtype), draw(7, seed=2) * 0.5
    assert_close(goru.modrelu(a, b), oracle.modrelu(a.numpy(), b.numpy()), 1e-15)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (3.0, -1.0, 2.0),
        (-3.0, -1.0, -2.0),
        (0.5, -1.0, 0.0),
        (-0.5, -1.0, 0.0),
        (0.5, 0.25, 0.75),
        (-0.5, 0.25, -0.75),
        (3.0 + 4.0j, -2.5, 1.5 + 2.0j),
        (3.0 + 4.0j, 5.0, 6.0 + 8.0j),
        (3.0 + 4.0j, -6.0, 0.0),
        (0.0, 1.0, 0.0),
        (0.0 + 0.0j, 1.0, 0.0),
    ],
)
def test_values_by_hand(a, b, expected):
    dtype = torch.complex128 if isinstance(a, complex) else torch.float64
    value = goru.modrelu(torch.tensor([a], dtype=dtype), torch.tensor([b], dtype=torch.float64))
    assert value.dtype == dtype
    assert abs(value.item() - expected) <= 1e-15


@pytest.mark.parametrize("epsilon", [0.001, 0.01])
def test_the_authors_epsilon_acts_as_a_bias_where_a_is_real(epsilon: float) -> None:
    """For real a theirs is sign(a) ReLU(|a| + epsilon + b), for complex a it is a / (|a| + epsilon) times the same."""
    b = draw(7, seed=2) * 0.5
    real = draw(50, 7)
    theirs = real.sign() * torch.relu(real.abs() + epsilon + b)
    torch.testing.assert_close(goru.modrelu(real, b + epsilon), theirs, atol=1e-15, rtol=0)
    complex_ = draw(50, 7, dtype=torch.complex128)
    theirs = complex_ / (complex_.abs() + epsilon) * torch.relu(complex_.abs() + epsilon + b)
    assert (goru.modrelu(complex_, b + epsilon) - theirs).abs().max() > epsilon / 10


@pytest.mark.parametrize("dtype", ALL)
def test_without_bias_it_is_the_identity(dtype):
    a = draw(100, dtype=dtype)
    value = goru.modrelu(a, torch.zeros(1, dtype=real_dtype(dtype)))
    if dtype.is_complex:  # a / |a| * |a| rounds a few times
        assert_close(value, a, 4 * torch.finfo(dtype).eps)
    else:
        assert torch.equal(value, a)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("bias", [-1.0, 0.0, 0.01, 2.0])
def test_at_zero_value_and_gradients_are_zero(dtype, bias):
    a = torch.zeros(3, dtype=dtype, requires_grad=True)
    b = torch.full((3,), bias, dtype=real_dtype(dtype), requires_grad=True)
    value = goru.modrelu(a, b)
    assert torch.equal(value, torch.zeros_like(a))
    grad_a, grad_b = torch.autograd.grad(value, (a, b), torch.ones_like(value))
    assert torch.equal(grad_a, torch.zeros_like(a))
    assert torch.equal(grad_b, torch.zeros_like(b))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("factor", [0.5, 0.99, 1e-6])
@pytest.mark.parametrize("bias", [0.0, 2.0, -0.1])
def test_tiny_values_count_as_zero(dtype, factor, bias):
    a = torch.full((2,), factor * threshold(dtype), dtype=dtype).requires_grad_()
    b = torch.full((2,), bias, dtype=real_dtype(dtype), requires_grad=True)
    value = goru.modrelu(a, b)
    assert torch.equal(value, torch.zeros_like(a))
    for gradient in torch.autograd.grad(value, (a, b), torch.ones_like(value)):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("dtype", ALL)
def test_just_above_the_threshold_the_jump_is_there(dtype):
    tiny = threshold(dtype)
    a = torch.tensor([1.5 * tiny, -1.5 * tiny], dtype=dtype, requires_grad=True)
    b = torch.tensor(2.0, dtype=real_dtype(dtype), requires_grad=True)
    value = goru.modrelu(a, b)
    # |a|^2 of a number this small keeps few bits in no dtype: it is normal, so a few roundings are all.
    assert_close(value, torch.tensor([2.0, -2.0], dtype=dtype), 8 * torch.finfo(dtype).eps)
    for gradient in torch.autograd.grad(value.abs().sum(), (a, b)):
        assert torch.isfinite(gradient.abs()).all()


@pytest.mark.parametrize("dtype", ALL)
def test_denormals_huge_values_and_signed_zero_never_give_nan(dtype):
    info = torch.finfo(dtype)
    numbers = [
        0.0,
        -0.0,
        info.tiny,
        -info.tiny,
        info.tiny / 8,
        1e-30,
        1e30 if info.bits == 32 else 1e200,
        -1.0,
    ]
    a = torch.tensor(numbers, dtype=dtype)
    if dtype.is_complex:
        a = torch.cat([a, 1j * a, a * (0.6 + 0.8j)])
    a.requires_grad_()
    for bias in (-1.0, 0.0, 0.01, 2.0):
        b = torch.full(a.shape, bias, dtype=real_dtype(dtype), requires_grad=True)
        value = goru.modrelu(a, b)
        assert torch.isfinite(value.abs()).all()
        for gradient in torch.autograd.grad(value, (a, b), torch.ones_like(value)):
            assert torch.isfinite(gradient.abs()).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_once_and_twice(dtype):
    a = draw(6, 4, dtype=dtype).requires_grad_()
    b = (draw(4, seed=2) * 0.5).requires_grad_()
    assert torch.autograd.gradcheck(goru.modrelu, (a, b))
    assert torch.autograd.gradgradcheck(goru.modrelu, (a, b))


def test_the_gradient_of_the_bias_is_the_sign():
    a = torch.tensor([2.0, -2.0, 0.5, -0.5], dtype=torch.float64)
    b = torch.full((4,), -1.0, dtype=torch.float64, requires_grad=True)
    goru.modrelu(a, b).sum().backward()
    assert b.grad is not None
    assert b.grad.tolist() == [1.0, -1.0, 0.0, 0.0]


def test_broadcasting_follows_torch():
    a, b = draw(5, 3, 4), draw(4, seed=2)
    assert torch.equal(goru.modrelu(a, b), goru.modrelu(a, b.expand(5, 3, 4)))
    assert goru.modrelu(draw(4), draw(3, 1)).shape == (3, 4)
    assert torch.equal(
        goru.modrelu(a, torch.tensor(-0.3, dtype=torch.float64)), goru.modrelu(a, torch.full_like(b, -0.3))
    )


def test_empty_input():
    assert goru.modrelu(torch.empty(0, 4), torch.zeros(4)).shape == (0, 4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    a = torch.tensor([1.5, -0.25, 0.0], dtype=dtype, requires_grad=True)
    value = goru.modrelu(a, torch.tensor(-0.5, dtype=dtype))
    assert value.dtype == dtype
    assert value.tolist() == [1.0, 0.0, 0.0]
    value.sum().backward()
    assert a.grad is not None
    assert a.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_nan_stays_nan(dtype):
    """A NaN hidden by the activation would hide a diverged network."""
    assert torch.isnan(goru.modrelu(torch.tensor([math.nan], dtype=dtype), torch.zeros(1))).all()


def test_a_complex_bias_or_integers_are_refused():
    with pytest.raises(TypeError):
        goru.modrelu(torch.ones(2), torch.ones(2, dtype=torch.complex64))
    with pytest.raises(TypeError):
        goru.modrelu(torch.ones(2, dtype=torch.int64), torch.ones(2))


finite = st.floats(-1e6, 1e6, allow_subnormal=True)


@settings(deadline=None, max_examples=200)
@given(re=finite, im=finite, b=st.floats(-1e3, 1e3))
def test_magnitude_and_phase(re, im, b):
    """|value| = relu(|a| + b) in the direction of a; a complex number on the real axis acts as a real one."""
    a = torch.tensor(complex(re, im), dtype=torch.complex128)
    bias = torch.tensor(b, dtype=torch.float64)
    value = goru.modrelu(a, bias)
    magnitude = abs(complex(re, im))
    if magnitude < threshold(torch.float64):
        assert value.item() == 0
        return
    expected = max(magnitude + b, 0.0)
    bound = 16 * torch.finfo(torch.float64).eps * (magnitude + abs(b))
    assert abs(abs(value.item()) - expected) <= bound
    assert abs(value.item() - expected * complex(re, im) / magnitude) <= bound
    on_axis = goru.modrelu(torch.tensor(complex(re, 0.0), dtype=torch.complex128), bias)
    real = goru.modrelu(torch.tensor(re, dtype=torch.float64), bias)
    assert abs(on_axis.item() - real.item()) <= 16 * torch.finfo(torch.float64).eps * (abs(re) + abs(b))
