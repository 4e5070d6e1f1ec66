"""Which implementation runs, who decides, and that U is built once for a pass.

What tells the implementations apart from outside: the reference can be differentiated twice, the manual one
says that it cannot.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import goru
from tests.specimens import BY_NAME, assert_close, draw, lively

F64 = torch.float64
I, H = 3, 5
kinds = pytest.mark.parametrize("name", ["goru", "eurnn", "eurnn-real"])


@pytest.fixture(autouse=True)
def _no_backend_from_outside(monkeypatch):
    monkeypatch.delenv("GORU_BACKEND", raising=False)


def ran_reference(layer: nn.Module) -> bool:
    """Whether autograd recorded the equations, not one node for the whole recurrence."""
    waiting = [layer(draw(3, 2, I))[0].grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None:
            if node.name().startswith("Plain_"):
                return False
            waiting += [before for before, _ in node.next_functions]
    return True


def layer_with(backend: str | None, name: str = "goru") -> Any:
    return lively(BY_NAME[name].layer(I, H, backend=backend, dtype=F64))


@kinds
def test_the_argument_decides(name: str):
    assert ran_reference(layer_with("reference", name))
    assert not ran_reference(layer_with("manual", name))


@kinds
def test_without_a_word_the_fast_path_runs(name: str):
    assert not ran_reference(layer_with(None, name))
    assert not ran_reference(layer_with("auto", name))


@kinds
def test_the_environment_decides_if_nobody_else_does(name: str, monkeypatch):
    layer = layer_with(None, name)
    monkeypatch.setenv("GORU_BACKEND", "reference")
    assert ran_reference(layer)
    monkeypatch.setenv("GORU_BACKEND", "manual")
    assert not ran_reference(layer)
    monkeypatch.setenv("GORU_BACKEND", "")
    assert not ran_reference(layer)


@kinds
def test_the_context_comes_before_the_environment(name: str, monkeypatch):
    layer = layer_with(None, name)
    monkeypatch.setenv("GORU_BACKEND", "manual")
    with goru.use_backend("reference"):
        assert ran_reference(layer)
    assert not ran_reference(layer)
    monkeypatch.setenv("GORU_BACKEND", "reference")
    with goru.use_backend("manual"):
        assert not ran_reference(layer)
    with goru.use_backend("auto"):  # a wish of its own, not the lack of one
        assert not ran_reference(layer)


@kinds
def test_the_argument_comes_before_the_context(name: str):
    with goru.use_backend("reference"):
        assert not ran_reference(layer_with("manual", name))
    with goru.use_backend("manual"):
        assert ran_reference(layer_with("reference", name))


def test_contexts_nest_and_end_with_an_error():
    layer = layer_with(None)
    with goru.use_backend("reference"):
        with goru.use_backend("manual"):
            assert not ran_reference(layer)
        assert ran_reference(layer)
        with pytest.raises(KeyError), goru.use_backend("manual"):
            raise KeyError
        assert ran_reference(layer)
    assert not ran_reference(layer)


def test_a_context_belongs_to_its_thread():
    answers: list[bool] = []
    layer = layer_with(None)
    with goru.use_backend("reference"):
        thread = threading.Thread(target=lambda: answers.append(ran_reference(layer)))
        thread.start()
        thread.join()
    assert answers == [False]


def test_cells_follow_the_same_rules(monkeypatch):
    def twice(cell: nn.Module) -> bool:
        x, h = draw(2, I).requires_grad_(), draw(2, H, seed=3).requires_grad_()
        (first,) = torch.autograd.grad(cell(x, h).square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), h)
        return bool(torch.isfinite(second).all())

    assert twice(lively(goru.GORUCell(I, H, backend="reference", dtype=F64)))
    monkeypatch.setenv("GORU_BACKEND", "reference")
    assert twice(lively(goru.GORUCell(I, H, dtype=F64)))


NAMES = r"(?s)(?=.*reference)(?=.*manual)(?=.*native)(?=.*auto)(?=.*fastest)"


@pytest.mark.parametrize("cls", [goru.GORU, goru.EURNN, goru.GORUCell, goru.EURNNCell])
def test_an_unknown_backend_is_refused_at_once(cls):
    with pytest.raises(ValueError, match=NAMES):
        cls(I, H, backend="fastest")


def test_an_unknown_name_in_context_or_environment(monkeypatch):
    with pytest.raises(ValueError, match=NAMES), goru.use_backend("fastest"):
        pass
    monkeypatch.setenv("GORU_BACKEND", "fastest")
    with pytest.raises(ValueError, match=NAMES + r"(?=.*GORU_BACKEND)"):
        layer_with(None)(draw(2, 1, I))


@kinds
def test_all_give_the_same_result(name: str):
    x = draw(6, 3, I)
    expected = layer_with("reference", name)(x)
    for backend in ("manual", "auto", None):
        for a, b in zip(layer_with(backend, name)(x), expected, strict=True):
            assert_close(a, b, 1e-12, str(backend))


def test_the_choice_survives_copies_and_shows_nowhere_in_the_state():
    layer = layer_with("reference")
    other = layer_with("manual")
    other.load_state_dict(layer.state_dict())
    assert ran_reference(layer)
    assert not ran_reference(other)


def trigonometry_of_a_pass(layer: nn.Module, steps: int) -> int:
    """How often sines, cosines or phases of angles are taken, inside custom operators too."""
    x = draw(steps, 2, I)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        output, _ = layer(x)
        if output.requires_grad:
            output.sum().backward()
    return sum(event.name in ("aten::cos", "aten::sin", "aten::polar") for event in profiler.events() or ())


@pytest.mark.parametrize("name", ["goru", "goru-tunable", "eurnn", "eurnn-fft", "eurnn-real"])
@pytest.mark.parametrize("backend", ["reference", "manual", "auto"])
def test_u_is_built_once_for_a_pass(name: str, backend: str):
    """Six steps cost as many sines as two, backward pass included; two directions cost twice one."""
    layer = layer_with(backend, name)
    once = trigonometry_of_a_pass(layer, 2)
    assert backend == "auto" or once > 0
    assert trigonometry_of_a_pass(layer, 6) == once
    both = lively(BY_NAME[name].layer(I, H, bidirectional=True, backend=backend, dtype=F64))
    assert trigonometry_of_a_pass(both, 6) == 2 * once


def test_u_is_kept_in_inference_while_the_angles_stay():
    layer = layer_with("manual").eval()
    with torch.no_grad():
        assert trigonometry_of_a_pass(layer, 4) > 0
        assert trigonometry_of_a_pass(layer, 4) == 0
        layer.angles_l0.add_(0.1)
        assert trigonometry_of_a_pass(layer, 4) > 0
