"""Layers on the native kernels under torch.compile, torch.export and autocast."""

from __future__ import annotations

import pytest
import torch

import goru
from goru.kernels import native

pytestmark = pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")

LAYERS = {
    "GORU": lambda: goru.GORU(3, 8, backend="native"),
    "EURNN complex": lambda: goru.EURNN(3, 64, backend="native"),
    "EURNN real": lambda: goru.EURNN(3, 8, complex=False, backend="native"),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_compiled_training_and_inference_with_any_length_and_batch(kind: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    layer = LAYERS[kind]()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps, batch in ((5, 4), (7, 3), (4, 9)):
        x = torch.randn(steps, batch, 3)
        results = []
        for module in (layer, compiled):
            layer.zero_grad()
            output, _ = module(x)
            output.square().sum().backward()
            results.append([output.detach(), *(p.grad.clone() for p in layer.parameters())])
            with torch.no_grad():
                torch.testing.assert_close(module(x)[0], output.detach())
        torch.testing.assert_close(*results)


def test_the_plain_equations_compile_too() -> None:
    torch._dynamo.reset()
    layer, x = goru.EURNN(3, 4, backend="reference"), torch.randn(2, 1, 3)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x)[0], layer(x)[0])


@pytest.mark.filterwarnings("ignore")  # torch's exporter warns about itself
def test_exported() -> None:
    layer = goru.GORU(3, 8, backend="native").eval()
    x = torch.randn(5, 2, 3)
    dynamic = {"input": {0: torch.export.Dim("steps", min=2), 1: torch.export.Dim("batch", min=2)}}
    program = torch.export.export(layer, (x,), dynamic_shapes=(dynamic["input"],))
    other = torch.randn(9, 4, 3)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(other)[0], layer(other)[0])


def test_autocast_keeps_float32() -> None:
    layer = goru.GORU(3, 8, backend="native")
    x = torch.randn(5, 2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, h_n = layer(x)
    assert output.dtype == h_n.dtype == torch.float32
    torch.testing.assert_close(output, layer(x)[0])
