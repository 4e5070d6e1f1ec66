"""Backends are objects: one from outside the package runs a layer; the library is refused where its border differs."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

import goru
from goru.kernels import backends, native
from goru.kernels.goru import manual
from goru.kernels.native import structures

CPU = torch.device("cpu")


class Toy(backends.Backend):
    def obstacle(self, device: torch.device, dtype: torch.dtype) -> str | None:
        return None if dtype == torch.float64 else f"the toy kernels support float64, the layer has {dtype}"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A backend that multiplies by U in torch and notes what it is called for; gone after the test."""
    monkeypatch.delenv("GORU_BACKEND", raising=False)
    noted: list[str] = []

    def forward(inputs, options, save):
        noted.append("forward")
        return manual.forward(inputs, options, save)

    def backward(*arguments):
        noted.append("backward")
        return manual.backward(*arguments)

    kernels = {
        "goru": backends.Kernel(forward, backward, manual.saved),
        "mesh_matrix": backends.MANUAL.kernels["mesh_matrix"],
    }
    backends.register(Toy("toy", "the toy kernels are the simplest", kernels=kernels))
    try:
        yield noted
    finally:
        del backends.BACKENDS["toy"]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_backend_from_outside_runs_a_layer(calls: list[str], compiled: bool) -> None:
    layer = goru.GORU(3, 6, 2, bidirectional=True, backend="toy", dtype=torch.float64)
    same = goru.GORU(3, 6, 2, bidirectional=True, backend="reference", dtype=torch.float64)
    same.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, 3, dtype=torch.float64)
    run = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
    results = []
    for call in (run, same):
        output, h_n = call(x, lengths=torch.tensor([5, 1, 4, 2]))
        gradients = torch.autograd.grad(
            output.sin().sum() + h_n.sum(), list((layer if call is run else same).parameters())
        )
        results.append([output, h_n, *gradients])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    assert calls.count("forward") == calls.count("backward") == 4  # two layers, two directions


def test_a_backend_from_outside_takes_part_in_the_choice(calls: list[str]) -> None:
    choice = backends.choose(None, CPU, torch.float64, "goru")
    assert (choice.backend, choice.reason) == ("toy", "automatic choice: the toy kernels are the simplest")
    other = backends.choose(None, CPU, torch.float32, "goru")
    assert other.backend in ("native", "manual")
    assert "the toy kernels support float64, the layer has torch.float32" in other.reason
    eurnn = backends.choose(None, CPU, torch.float64, "eurnn")
    assert eurnn.backend in ("native", "manual")
    assert "the toy backend does not implement eurnn" in eurnn.reason
    with pytest.raises(RuntimeError, match=r"toy backend cannot run here \(backend='toy' .*\): .* support float64"):
        goru.GORU(3, 4, backend="toy")(torch.zeros(2, 1, 3))
    with pytest.raises(RuntimeError, match="does not implement eurnn"):
        goru.EURNN(3, 4, backend="toy", dtype=torch.float64)(torch.zeros(2, 1, 3, dtype=torch.float64))
    with goru.use_backend("toy"):
        goru.GORU(3, 4, dtype=torch.float64)(torch.zeros(2, 1, 3, dtype=torch.float64))
    assert calls == ["forward"]


def test_a_name_is_given_once(calls: list[str]) -> None:
    for name in ("toy", "native", "auto"):
        with pytest.raises(ValueError, match=f"unique name, got '{name}'"):
            backends.register(backends.Backend(name, ""))


@pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")
def test_every_structure_has_the_same_size_on_both_sides() -> None:
    library = native.library.get()
    assert structures.wrong_sizes(library) == []
    names = {mirror.__name__ for mirror in structures.STRUCTURES}
    assert len(names) == len(structures.STRUCTURES) >= 13
    assert {"Shape", "Transition", "GoruForward", "MeshMatrixArguments", "EurnnArguments", "DenseSizes"} <= names
    assert all(ctypes.sizeof(mirror) % 8 == 0 for mirror in structures.STRUCTURES)


@pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")
def test_a_library_with_another_structure_is_refused() -> None:
    code = """
from ctypes import c_int64
from goru.kernels import native
from goru.kernels.native.structures import Shape, structure
structure("GoruForward", (Shape, "shape"), (c_int64, "one more"))
structure("Unheard", (c_int64, "of"))
print(native.unavailable_reason())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "other structures than this version of goru (GoruForward, Unheard): rebuild them" in done.stdout
