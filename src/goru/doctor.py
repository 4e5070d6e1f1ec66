"""`goru doctor`: what runs on this machine and why, and whether it computes the right results."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import torch
from torch import Tensor

from .kernels import native
from .kernels.backends import BACKENDS, REFERENCE, choose
from .kernels.eurnn import EURNN, EurnnInputs, EurnnOptions
from .kernels.gated import GRU, LSTM, GatedOptions, GruInputs, LstmInputs
from .kernels.goru import GORU, GoruInputs, GoruOptions
from .kernels.mesh import MESH_MATRIX, MeshInputs
from .kernels.native import library
from .rotations import Mesh

USAGE = "usage: goru doctor\n\nWhich kernels run on this machine and why, with a self-test of a few seconds.\n"
LAYERS = ("GORU", "EURNN", "GRU", "LSTM")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SECONDS = 8.0  # the self-test of a device starts no new backend or dtype after so long


@dataclass(frozen=True)
class Check:
    """One comparison of the self-test: largest difference from the reference, relative to its largest value."""

    name: str
    difference: float
    allowed: float

    @property
    def passed(self) -> bool:
        return self.difference <= self.allowed  # NaN does not


def main(argv: list[str]) -> int:
    """Print the report; returns 0 if every check passed, 1 if one failed, 2 for a usage error."""
    if argv in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if argv:
        print(f"goru doctor takes no arguments, got {' '.join(argv)}", file=sys.stderr)
        return 2
    for title, lines in (("versions", _versions()), ("native kernels", _native()), ("backends", _backends())):
        print(title)
        for line in lines:
            print(f"  {line}")
    print("self-test against the reference")
    failed, whole = 0, True
    try:
        for check in self_test():
            if check is None:
                whole = False
                continue
            failed += not check.passed
            print(f"  {'ok    ' if check.passed else 'FAILED'} {check.name}: {check.difference:.1e}"
                  f" (allowed {check.allowed:.0e})")  # fmt: skip
    except Exception as error:
        failed += 1
        print(f"  FAILED {type(error).__name__}: {error}")
    if failed:
        print(f"{failed} check{'s' if failed > 1 else ''} failed")
    else:
        print(
            "everything works" if whole else f"everything tested works; the rest was skipped after {SECONDS:g} seconds"
        )
    return 1 if failed else 0


def _versions() -> Iterator[str]:
    try:
        version = metadata.version("goru")
    except metadata.PackageNotFoundError:
        version = "not installed"
    yield f"goru {version}, torch {torch.__version__}, Python {platform.python_version()}"
    threads = torch.get_num_threads()
    yield (
        f"{platform.system()} {platform.machine()}, {threads} thread{'s' if threads > 1 else ''} on "
        f"{os.cpu_count()} processors"
    )


def _native() -> Iterator[str]:
    reason = native.unavailable_reason()
    if reason is not None:
        yield f"cannot run: {reason}"
        return
    forced = os.environ.get("GORU_ISA")
    choices = ", ".join(library.levels(library.get()))
    why = f"GORU_ISA={forced}" if forced else "the widest that this processor can run"
    yield f"instruction set {native.isa()} ({why}; it can run {choices})"


def _devices() -> list[torch.device]:
    return [torch.device(kind) for kind in ("cpu", "cuda") if kind == "cpu" or torch.cuda.is_available()]


def _backends() -> Iterator[str]:
    for device in _devices():
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            layers: dict[str, list[str]] = {}
            for layer in LAYERS:
                layers.setdefault(_choice(device, dtype, layer.lower()), []).append(layer)
            for choice, alike in layers.items():
                yield f"{'/'.join(alike)} on {device}, {name}: {choice}"


def _choice(device: torch.device, dtype: torch.dtype, recurrence: str) -> str:
    try:
        choice = choose(None, device, dtype, recurrence)
        return f"{choice.backend} ({choice.reason})"
    except RuntimeError as error:
        return f"none ({error})"


def self_test() -> Iterator[Check | None]:
    """Every backend against `reference`, on each device: outputs and all gradients, odd sizes, ragged rows.

    None if the time of a device is over before that.
    """
    for device in _devices():
        yield from _test_device(device)


def _test_device(device: torch.device) -> Iterator[Check | None]:
    start = time.monotonic()
    for backend in reversed(BACKENDS.values()):
        for dtype, allowed in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            if backend is REFERENCE or backend.obstacle(device, dtype):
                continue
            where = "" if device.type == "cpu" else f" on {device}"
            name, on = f"{backend.name} {str(dtype).removeprefix('torch.')}{where}", (backend.name, device, dtype)
            yield Check(f"{name} mesh", _mesh(*on), allowed)
            if time.monotonic() - start > SECONDS:
                yield None
                return
            for reverse in (False, True):
                way = "reverse" if reverse else "forward"
                for dense in (False, True):
                    by = "with U" if dense else "by rotations"
                    if GORU.name in backend.kernels:
                        yield Check(f"{name} GORU {by} {way}", _goru(*on, reverse, dense), allowed)
                    if EURNN.name in backend.kernels:
                        yield Check(f"{name} EURNN {by} {way}", _eurnn(*on, reverse, dense), allowed)
                for cell, kernel in (("GRU", GRU), ("LSTM", LSTM)):
                    if kernel.name in backend.kernels:
                        yield Check(f"{name} {cell} {way}", _gated(cell, *on, reverse), allowed)


def _draw(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, dtype=dtype, generator=_generator) * scale).to(device).requires_grad_()


_generator = torch.Generator()


def _difference(ours: list[Tensor], expected: list[Tensor], leaves: list[Tensor]) -> float:
    """Largest relative difference of results and gradients, for a fixed random gradient of the results."""
    grads = [torch.randn(e.shape, dtype=e.dtype, generator=_generator).to(e.device) for e in expected]
    ours = [*ours, *torch.autograd.grad(ours, leaves, grads)]
    expected = [*expected, *torch.autograd.grad(expected, leaves, grads)]
    worst = [((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in zip(ours, expected, strict=True)]
    return max(worst) if not any(w != w for w in worst) else float("nan")


def _mesh(backend: str, device: torch.device, dtype: torch.dtype) -> float:
    _generator.manual_seed(1)
    worst = 0.0
    for mesh in (Mesh("fft", 13), Mesh("tunable", 13, 13, complex=True)):
        angles = _draw(mesh.num_angles, device=device, dtype=dtype)
        (u,) = MESH_MATRIX(MeshInputs(angles), mesh, backend)
        worst = max(worst, _difference([u], [mesh.matrix(angles)], [angles]))
    return worst


def _goru(backend: str, device: torch.device, dtype: torch.dtype, reverse: bool, dense: bool) -> float:
    _generator.manual_seed(2)
    T, B, I, H = 9, 5, 3, 19
    lengths = torch.tensor([9, 1, 4, 9, 7], device=device)
    x, h0 = _draw(T, B, I, device=device, dtype=dtype), _draw(B, H, device=device, dtype=dtype)
    weight_ih, weight_hh = (
        _draw(3 * H, I, device=device, dtype=dtype, scale=0.3),
        _draw(2 * H, H, device=device, dtype=dtype, scale=0.3),
    )
    # b_h <= 0: modReLU without its jump at 0
    bias = -_draw(3 * H, device=device, dtype=dtype, scale=0.1).detach().abs()
    bias.requires_grad_()
    mesh = Mesh("fft", H)
    transition = _draw(mesh.num_angles, device=device, dtype=dtype)
    if dense:
        transition = mesh.matrix(transition.detach()).requires_grad_()
    u, angles = (transition, None) if dense else (None, transition)
    inputs = GoruInputs(x, h0, weight_ih, weight_hh, bias, u, angles, lengths)
    options = GoruOptions(mesh, reverse=reverse)
    ours, expected = (GORU(inputs, options, name) for name in (backend, REFERENCE.name))
    return _difference(list(ours), list(expected), [x, h0, weight_ih, weight_hh, bias, transition])


def _eurnn(backend: str, device: torch.device, dtype: torch.dtype, reverse: bool, dense: bool) -> float:
    _generator.manual_seed(3)
    T, B, I, H = 9, 5, 3, 19
    lengths = torch.tensor([9, 1, 4, 9, 7], device=device)
    mesh = Mesh("tunable", H, 2, complex=True)
    x, h0 = _draw(T, B, I, device=device, dtype=dtype), _draw(B, H, device=device, dtype=dtype.to_complex(), scale=0.5)
    weight_ih = _draw(2 * H, I, device=device, dtype=dtype, scale=0.3)
    bias = (-_draw(H, device=device, dtype=dtype, scale=0.1).detach().abs()).requires_grad_()
    transition = _draw(mesh.num_angles, device=device, dtype=dtype)
    if dense:
        transition = mesh.matrix(transition.detach()).requires_grad_()
    u, angles = (transition, None) if dense else (None, transition)
    inputs = EurnnInputs(x, h0, weight_ih, bias, u, angles, lengths)
    options = EurnnOptions(mesh, reverse)
    ours, expected = (EURNN(inputs, options, name) for name in (backend, REFERENCE.name))
    return _difference(list(ours), list(expected), [x, h0, weight_ih, bias, transition])


def _gated(cell: str, backend: str, device: torch.device, dtype: torch.dtype, reverse: bool) -> float:
    _generator.manual_seed(4)
    T, B, I, H, states, gates = 9, 5, 3, 19, *((2, 4) if cell == "LSTM" else (1, 3))
    lengths = torch.tensor([9, 1, 4, 9, 7], device=device)
    leaves = [
        _draw(T, B, I, device=device, dtype=dtype),
        *(_draw(B, H, device=device, dtype=dtype) for _ in range(states)),
    ]
    leaves += [_draw(gates * H, size, device=device, dtype=dtype, scale=0.3) for size in (I, H)]
    leaves += [_draw(gates * H, device=device, dtype=dtype, scale=0.3) for _ in range(2)]
    recurrence, inputs = (LSTM, LstmInputs) if cell == "LSTM" else (GRU, GruInputs)
    options = GatedOptions(reverse)
    ours, expected = (recurrence(inputs(*leaves, lengths), options, name) for name in (backend, REFERENCE.name))  # type: ignore[arg-type]
    return _difference(list(ours), list(expected), leaves)
