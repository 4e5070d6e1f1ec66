"""`goru doctor`: what runs on this machine and why, and whether it computes the right results."""

from __future__ import annotations

import functools
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import __version__
from .kernels import native
from .kernels.backends import BACKENDS, REFERENCE, choose, preference, use_backend
from .kernels.mesh import build_matrix
from .kernels.native import library
from .layers.eurnn import EURNN
from .layers.gated import GRU, LSTM
from .layers.goru import GORU
from .layers.unit import from_state
from .rotations import Mesh

USAGE = "usage: goru doctor\n\nWhich kernels run on this machine and why, with a self-test of a few seconds.\n"
LAYERS = ("GORU", "EURNN", "GRU", "LSTM")
DTYPES = (torch.float32, torch.float64, torch.bfloat16)
INPUTS, UNITS = 3, 19
TESTED: dict[str, Callable[..., Any]] = {  # few mesh layers run by rotations, many with the matrix U
    "GORU": GORU,
    "GORU, 2 mesh layers": lambda *sizes, **options: GORU(*sizes, mesh="tunable", capacity=2, **options),
    "GORU, 19 mesh layers": lambda *sizes, **options: GORU(*sizes, mesh="tunable", capacity=UNITS, **options),
    "EURNN, 2 mesh layers": EURNN,
    "EURNN, 19 mesh layers": lambda *sizes, **options: EURNN(*sizes, capacity=UNITS, **options),
    "GRU": GRU,
    "LSTM": LSTM,
}
SECONDS = 8.0  # the self-test of a device starts no new backend or dtype after so long


@dataclass(frozen=True)
class Check:
    """One comparison of the self-test: largest difference from the reference, relative to its largest value."""

    name: str
    difference: float
    allowed: float
    error: str = ""
    """The exception that ended it, if so."""

    @property
    def passed(self) -> bool:
        return self.difference <= self.allowed  # NaN does not

    def __str__(self) -> str:
        how = self.error or f"{self.difference:.1e} (allowed {self.allowed:.0e})"
        return f"{'ok    ' if self.passed else 'FAILED'} {self.name}: {how}"


def main(argv: list[str]) -> int:
    """Print the report; returns 0 if no check failed, 1 if one did or GORU_BACKEND is wrong, 2 for a usage error."""
    if argv in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if argv:
        print(f"goru doctor takes no arguments, got {' '.join(argv)}", file=sys.stderr)
        return 2
    try:
        preference()
    except ValueError as error:
        print(f"goru: {error}.", file=sys.stderr)
        return 1
    for title, lines in (("versions", _versions()), ("native kernels", _native()), ("backends", _backends())):
        print(title)
        for line in lines:
            print(f"  {line}")
    print("self-test against the reference")
    passed = failed = skipped = 0
    for check in self_test():
        if check is None:
            skipped += 1
            continue
        passed += check.passed
        failed += not check.passed
        print(f"  {check}")
    over = f", {skipped} skipped after {SECONDS:g} seconds" if skipped else ""
    print(f"{passed} of {passed + failed + skipped} checks passed{over}, {failed or 'none'} failed.")
    return 1 if failed else 0


def _versions() -> Iterator[str]:
    yield f"goru {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
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

    None for each check that was skipped because the time of its device was over.
    """
    for device in _devices():
        start, over = time.monotonic(), False
        torch.manual_seed(1)
        for allowed, tests in _planned(device):
            for number, (name, difference) in enumerate(tests.items()):
                over = over or (number == 1 and time.monotonic() - start > SECONDS)
                if over:
                    yield None
                    continue
                try:
                    yield Check(name, difference(), allowed)
                except Exception as error:
                    yield Check(name, math.nan, allowed, f"{type(error).__name__}: {error}")


def _planned(device: torch.device) -> Iterator[tuple[float, dict[str, Callable[[], float]]]]:
    """The tests of each backend and dtype: the allowed difference, and by name what measures the difference."""
    for backend in reversed(BACKENDS.values()):
        for dtype, allowed in ((torch.float64, 1e-10), (torch.float32, 1e-4)):
            if backend is REFERENCE or backend.obstacle(device, dtype):
                continue
            where = "" if device.type == "cpu" else f" on {device}"
            name = f"{backend.name} {str(dtype).removeprefix('torch.')}{where}"
            tests = {f"{name} mesh": functools.partial(_test_mesh, backend.name, device, dtype)}
            for title, make in TESTED.items():
                if title.partition(",")[0].lower() in backend.kernels:
                    tests[f"{name} {title}"] = functools.partial(_test_layer, make, backend.name, device, dtype)
            yield allowed, tests


def _test_mesh(backend: str, device: torch.device, dtype: torch.dtype) -> float:
    worst = []
    for mesh in (Mesh("fft", 13), Mesh("tunable", 13, 13, complex=True)):
        angles = torch.randn(mesh.num_angles, device=device, dtype=dtype, requires_grad=True)
        worst.append(_difference(lambda name, a=angles, m=mesh: [build_matrix(a, m, name)], [angles], backend))
    return float(torch.tensor(worst, dtype=torch.float64).max())  # NaN if one is


def _test_layer(make: Callable[..., Any], backend: str, device: torch.device, dtype: torch.dtype) -> float:
    """One layer in both directions over rows of different lengths."""
    layer = make(INPUTS, UNITS, bidirectional=True, device=device, dtype=dtype)
    lengths = torch.tensor([9, 1, 4, 9, 7], device=device)
    x = torch.randn(9, 5, INPUTS, device=device, dtype=dtype, requires_grad=True)
    state = tuple(
        torch.randn(2, 5, UNITS, device=device, dtype=one, requires_grad=True) for one in layer.unit.state_dtypes(dtype)
    )
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "bias" in name:
                parameter.copy_(-parameter.abs())  # b_h <= 0: modReLU without its jump at 0

    def run(name: str) -> list[Tensor]:
        with use_backend(name):
            output, last = layer(x, from_state(state), lengths=lengths)
        return [output, *(last if isinstance(last, tuple) else (last,))]

    return _difference(run, [x, *state, *layer.parameters()], backend)


def _difference(run: Callable[[str], list[Tensor]], leaves: list[Tensor], backend: str) -> float:
    """Largest relative difference of results and gradients from those of the reference, for random gradients."""
    ours, expected = run(backend), run(REFERENCE.name)
    grads = [torch.randn_like(one) for one in expected]
    ours = [*ours, *torch.autograd.grad(ours, leaves, grads)]
    expected = [*expected, *torch.autograd.grad(expected, leaves, grads)]
    worst = [(a - b).abs().max() / b.abs().max().clamp_min(1e-30) for a, b in zip(ours, expected, strict=True)]
    return torch.stack(worst).max().item()  # NaN if one is
