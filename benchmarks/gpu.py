"""GORU by the triton backend beside cuDNN's GRU and LSTM, on a device: `python -m benchmarks gpu`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

import goru
from goru.kernels.triton import TRITON

from .contenders import SHAPES, Shape, Step, forward_step, inputs, layer, training_step
from .tables import Rows, table
from .timing import interleaved

PRECISIONS = {
    "float32": (torch.float32, False),
    "float32 as TF32": (torch.float32, True),
    "bfloat16": (torch.bfloat16, False),
}
MORE = (Shape("wide", 100, 64, 256, 1024), Shape("large batch", 220, 1024, 10, 128))
ALLOWED = {torch.float32: 2e-4, torch.bfloat16: 5e-2}
"""Largest difference from the reference in float32, relative; more means that no time is printed."""


def main(rounds: int) -> int:
    if not torch.cuda.is_available():
        print("no times: torch finds no CUDA device here", file=sys.stderr)
        return 1
    device = torch.device("cuda")
    for dtype in ALLOWED:
        if (obstacle := TRITON.obstacle(device, dtype)) is not None:
            print(f"no times: {obstacle}", file=sys.stderr)
            return 1
        difference = disagreement(dtype, device)
        if not difference <= ALLOWED[dtype]:
            print(f"no times: the triton backend is off by {difference:.1e} in {dtype}", file=sys.stderr)
            return 1
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for training in (True, False):
        rows: Rows = []
        for shape in (*SHAPES, *MORE):
            rows += [measured(shape, precision, training, device, rounds) for precision in PRECISIONS]
        print(f"\n## {'forward and backward' if training else 'forward'}, milliseconds\n\n{table(rows)}", flush=True)
    return 0


def measured(shape: Shape, precision: str, training: bool, device: torch.device, rounds: int) -> dict[str, object]:
    """A line of the table: medians of interleaved rounds, and how many times faster than nn.GRU ours is."""
    dtype, fast = PRECISIONS[precision]
    x = inputs(shape).to(device, dtype)
    with _tf32(fast):
        steps = {}
        for name in ("nn.GRU", "nn.LSTM", "manual", "triton"):
            module = layer(name, shape).to(device, dtype)
            steps[name] = _finished(training_step(module, x, shape.H) if training else forward_step(module, x), device)
        times = interleaved(steps, rounds)
    line: dict[str, object] = {"T, B, I, H": str(shape), "precision": precision}
    return line | times | {"vs GRU": times["nn.GRU"] / times["triton"]}


def _finished(step: Step, device: torch.device) -> Step:
    """The step until the device has done it."""

    def run() -> None:
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return run


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """cuDNN's recurrences round float32 to TF32 unless they are stopped; here both do or neither does."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def disagreement(dtype: torch.dtype, device: torch.device) -> float:
    """How far output and gradients of `triton` are from those of the reference in float32, relative to the largest."""
    T, B, I, H = 23, 5, 7, 37
    torch.manual_seed(0)
    module = goru.GORU(I, H, bias=False)  # without bias the candidate is linear: no rounding decides what passes
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3)
            parameter.copy_(parameter.to(dtype))
    x = torch.randn(T, B, I).to(dtype)
    found: list[list[Tensor]] = []
    for backend, kind in (("reference", torch.float32), ("triton", dtype)):
        module.to(device, kind).zero_grad()
        with goru.use_backend(backend):
            output, h_n = module(x.to(device, kind))
        (output.square().sum() + h_n.sum()).backward()
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        found.append([t.detach().float() for t in (output, h_n, *gradients)])
    worst = [((a - b).abs().max() / b.abs().max()).item() for b, a in zip(*found, strict=True)]
    return max(worst) if all(w == w for w in worst) else float("nan")
