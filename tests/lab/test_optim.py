"""RMSProp against TensorFlow's rule written in NumPy; learning rates."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goru.lab.training.config import OptimizerConfig
from goru.lab.training.optimizers import TensorFlowRMSProp, learning_rate, make_optimizer


def test_follows_tensorflows_rule() -> None:
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 4))
    gradients = rng.normal(size=(20, 3, 4)) * 10.0 ** rng.integers(-6, 2, (20, 1, 1))
    # TensorFlow: ms = ones; ms <- d ms + (1 - d) g^2; p <- p - lr g / sqrt(ms + eps).
    expected, mean_square = start.copy(), np.ones((3, 4))
    for g in gradients:
        mean_square = 0.9 * mean_square + 0.1 * g**2
        expected -= 0.01 * g / np.sqrt(mean_square + 1e-10)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = TensorFlowRMSProp([parameter], lr=0.01, decay=0.9)
    for g in gradients:
        parameter.grad = torch.from_numpy(g.copy())
        optimizer.step()
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12)


def test_first_step_is_smaller_than_torchs() -> None:
    """The mean square starts at one: a small gradient moves little at first; torch takes a full step."""
    ours, theirs = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
    for parameter, kind in ((ours, TensorFlowRMSProp), (theirs, torch.optim.RMSprop)):
        parameter.grad = torch.full((1,), 1e-3)
        kind([parameter], lr=0.01).step()
    assert ours.item() == pytest.approx(-0.01 * 1e-3 / 0.9**0.5, rel=1e-5)
    assert theirs.item() == pytest.approx(-0.1, rel=1e-3)


def test_parameters_without_gradient_stay() -> None:
    used, unused = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    used.grad = torch.ones(2)
    TensorFlowRMSProp([used, unused]).step()
    assert (used < 1).all()
    assert (unused == 1).all()


def test_made_from_a_configuration() -> None:
    network = torch.nn.Linear(2, 2)
    rmsprop = make_optimizer(OptimizerConfig(lr=0.5, decay=0.8), network)
    assert isinstance(rmsprop, TensorFlowRMSProp)
    assert (rmsprop.defaults["lr"], rmsprop.defaults["decay"], rmsprop.defaults["eps"]) == (0.5, 0.8, 1e-10)
    assert isinstance(make_optimizer(OptimizerConfig(rule="adam"), network), torch.optim.Adam)


def test_schedules() -> None:
    linear = OptimizerConfig(lr=0.8, schedule="linear")
    assert [learning_rate(linear, step, 4) for step in range(4)] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert [learning_rate(OptimizerConfig(lr=0.8), step, 4) for step in range(4)] == [0.8] * 4
