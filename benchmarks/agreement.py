"""Speed of a wrong result is worth nothing: backends are compared with the reference before anything is timed."""

from __future__ import annotations

import torch
from torch import Tensor

import goru

from .contenders import backends


def check() -> list[str]:
    """One sentence for every disagreement: outputs and all gradients, float64 at 1e-10 and float32 with b_h <= 0."""
    problems = []
    for backend in backends():
        if backend == "reference":
            continue
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-4)):
            for kind in ("GORU", "EURNN real", "EURNN complex"):
                wanted = _results(kind, "reference", torch.float64)
                got = _results(kind, backend, dtype)
                for name, want in wanted.items():
                    scale = want.abs().max().item() or 1.0
                    error = (got[name].to(want.dtype) - want).abs().max().item() / scale
                    if not error <= tolerance:
                        problems.append(f"{kind}, {backend}, {dtype}: {name} is off by {error:.1e} (relative)")
    return problems


def _results(kind: str, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
    T, B, I, H = 23, 5, 7, 37
    torch.manual_seed(0)
    if kind == "GORU":
        layer = goru.GORU(I, H, backend=backend, dtype=torch.float64)
    else:
        layer = goru.EURNN(I, H, complex=kind.endswith("complex"), backend=backend, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if not name.startswith("angles"):
                parameter.normal_(0, 0.3)
        layer.bias_l0[-H:].abs_().neg_()  # type: ignore[index, operator, union-attr]
    x = torch.randn(T, B, I, dtype=torch.float64)
    layer, x = layer.to(dtype), x.to(dtype).requires_grad_()
    output, h_n = layer(x)
    output.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
    return {"output": output.detach(), "h_n": h_n.detach(), "x": x.grad, **gradients}  # type: ignore[dict-item]
