"""`goru doctor`: what would run on this machine and why, and whether it computes the right thing."""

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
from .kernels.goru import GORU, GoruInputs, GoruOptions
from .kernels.mesh import MESH_MATRIX, MeshInputs
from .kernels.native import library
from .rotations import Mesh

USAGE = "usage: goru doctor\n\nWhich kernels run on this machine and why, with a self-test of a few seconds.\n"
LAYERS = ("GORU", "EURNN")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
SECONDS = 8.0  # the self-test starts nothing new after so long


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
    """Print the report; 0 if every check passed, 1 if one failed, 2 for a wrong command line."""
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
                break
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
            "everything works" if whole else f"what was tested works; the rest was left out after {SECONDS:g} seconds"
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


def _backends() -> Iterator[str]:
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    for device in devices:
        for dtype in DTYPES:
            name = str(dtype).removeprefix("torch.")
            try:
                choice = choose(None, torch.device(device), dtype)
                yield f"{'/'.join(LAYERS)} on {device}, {name}: {choice.backend} ({choice.reason})"
            except RuntimeError as error:
                yield f"{'/'.join(LAYERS)} on {device}, {name}: none ({error})"


def self_test() -> Iterator[Check | None]:
    """Every backend that can run on the CPU against `reference`: outputs and all gradients, odd sizes, ragged rows.

    Ends with None where the time is over before that.
    """
    start = time.monotonic()
    cpu = torch.device("cpu")
    for backend in [
        b.name for b in reversed(BACKENDS.values()) if b is not REFERENCE and not b.obstacle(cpu, torch.float32)
    ]:
        for dtype, allowed in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            name = str(dtype).removeprefix("torch.")
            yield Check(f"{backend} {name} mesh", _mesh(backend, dtype), allowed)
            if time.monotonic() - start > SECONDS:
                yield None
                return
            for reverse in (False, True):
                way = "reverse" if reverse else "forward"
                for dense in (False, True):
                    by = "with U" if dense else "by rotations"
                    yield Check(f"{backend} {name} GORU {by} {way}", _goru(backend, dtype, reverse, dense), allowed)
                    yield Check(f"{backend} {name} EURNN {by} {way}", _eurnn(backend, dtype, reverse, dense), allowed)


def _draw(*shape: int, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, dtype=dtype, generator=_generator) * scale).requires_grad_()


_generator = torch.Generator()


def _difference(ours: list[Tensor], expected: list[Tensor], leaves: list[Tensor]) -> float:
    """Largest relative difference of results and gradients, for a fixed random gradient of the results."""
    grads = [torch.randn(e.shape, dtype=e.dtype, generator=_generator) for e in expected]
    ours = [*ours, *torch.autograd.grad(ours, leaves, grads)]
    expected = [*expected, *torch.autograd.grad(expected, leaves, grads)]
    worst = [((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in zip(ours, expected, strict=True)]
    return max(worst) if not any(w != w for w in worst) else float("nan")


def _mesh(backend: str, dtype: torch.dtype) -> float:
    _generator.manual_seed(1)
    worst = 0.0
    for mesh in (Mesh("fft", 13), Mesh("tunable", 13, 13, complex=True)):
        angles = _draw(mesh.num_angles, dtype=dtype)
        (u,) = MESH_MATRIX(MeshInputs(angles), mesh, backend)
        worst = max(worst, _difference([u], [mesh.matrix(angles)], [angles]))
    return worst


def _goru(backend: str, dtype: torch.dtype, reverse: bool, dense: bool) -> float:
    _generator.manual_seed(2)
    T, B, I, H = 9, 5, 3, 19
    lengths = torch.tensor([9, 1, 4, 9, 7])
    x, h0 = _draw(T, B, I, dtype=dtype), _draw(B, H, dtype=dtype)
    weight_ih, weight_hh = _draw(3 * H, I, dtype=dtype, scale=0.3), _draw(2 * H, H, dtype=dtype, scale=0.3)
    bias = -_draw(3 * H, dtype=dtype, scale=0.1).detach().abs()  # b_h <= 0: modReLU without its jump at 0
    bias.requires_grad_()
    mesh = Mesh("fft", H)
    transition = _draw(mesh.num_angles, dtype=dtype)
    if dense:
        transition = mesh.matrix(transition.detach()).requires_grad_()
    u, angles = (transition, None) if dense else (None, transition)
    inputs = GoruInputs(x, h0, weight_ih, weight_hh, bias, u, angles, lengths)
    options = GoruOptions(mesh, reverse=reverse)
    ours, expected = (GORU(inputs, options, name) for name in (backend, REFERENCE.name))
    return _difference(list(ours), list(expected), [x, h0, weight_ih, weight_hh, bias, transition])


def _eurnn(backend: str, dtype: torch.dtype, reverse: bool, dense: bool) -> float:
    _generator.manual_seed(3)
    T, B, I, H = 9, 5, 3, 19
    lengths = torch.tensor([9, 1, 4, 9, 7])
    mesh = Mesh("tunable", H, 2, complex=True)
    x, h0 = _draw(T, B, I, dtype=dtype), _draw(B, H, dtype=dtype.to_complex(), scale=0.5)
    weight_ih = _draw(2 * H, I, dtype=dtype, scale=0.3)
    bias = (-_draw(H, dtype=dtype, scale=0.1).detach().abs()).requires_grad_()
    transition = _draw(mesh.num_angles, dtype=dtype)
    if dense:
        transition = mesh.matrix(transition.detach()).requires_grad_()
    u, angles = (transition, None) if dense else (None, transition)
    inputs = EurnnInputs(x, h0, weight_ih, bias, u, angles, lengths)
    options = EurnnOptions(mesh, reverse)
    ours, expected = (EURNN(inputs, options, name) for name in (backend, REFERENCE.name))
    return _difference(list(ours), list(expected), [x, h0, weight_ih, bias, transition])
