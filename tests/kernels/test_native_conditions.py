"""The C++ kernels under conditions that break careless ones: interrupts, threads, fork, odd addresses, tiny numbers."""

from __future__ import annotations

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import goru
from goru.kernels import native
from goru.kernels.native import library
from goru.rotations import Mesh
from tests.kernels.native_cases import Case, goru_arguments, run_eurnn, run_goru, run_mesh

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)
ROOT = Path(__file__).parents[2]

LAYERS = {
    "GORU": lambda: goru.GORU(4, 128, backend="native"),
    "EURNN by rotations": lambda: goru.EURNN(4, 128, backend="native"),
    "EURNN with U": lambda: goru.EURNN(4, 64, capacity=64, backend="native"),
}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what it runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_long_sequence_can_be_interrupted(kind: str, training: bool, interruptible: None) -> None:
    """Within a second of the processor's time: on a busy machine the clock on the wall says nothing about us."""
    layer, x = LAYERS[kind](), torch.zeros(4000, 64, 4)
    sent = 0.0

    def interrupt() -> None:
        nonlocal sent
        sent = time.process_time()
        _thread.interrupt_main()

    timer = threading.Timer(0.3, interrupt)

    def work() -> None:
        timer.start()
        for _ in range(1000):
            with torch.set_grad_enabled(training):
                output = layer(x)[0]
            if training:
                output.sum().backward()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert time.process_time() - sent < 1


def test_numbers_too_small_to_be_normal() -> None:
    arguments, _ = goru_arguments(Case(20, 3, 2, 9, dtype=torch.float32))
    with torch.no_grad():
        for i in (0, 1):
            arguments[i].mul_(1e-40)  # type: ignore[union-attr]
        found, _, _ = run_goru(*arguments, None, True, True, False, save=False)  # type: ignore[arg-type]
        assert torch.equal(found, torch.zeros_like(found))  # taken as 0, which is what keeps them from being slow
        assert torch.tensor(1e-40) * 1 > 0  # the caller's own arithmetic still has them


@pytest.fixture
def one_thread() -> Iterator[None]:
    """A thread that waits for another one takes processor time, on a busy machine far more than the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", LAYERS)
def test_numbers_too_small_to_be_normal_are_not_slow(kind: str, one_thread: None) -> None:
    """At most twice as slow, in processor time, the best of several; on some processors they are far slower."""
    layer = LAYERS[kind]()
    inputs = {
        scale: torch.randn(100, 16, 4, generator=torch.Generator().manual_seed(0)) * scale for scale in (1, 1e-38)
    }
    best = dict.fromkeys(inputs, float("inf"))
    for _ in range(5):
        for scale, x in inputs.items():
            start = time.process_time()
            layer(x)[0].backward(torch.full((100, 16, layer.hidden_size), float(scale)))
            best[scale] = min(best[scale], time.process_time() - start)
    assert best[1e-38] <= 2 * best[1]


def unaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers at an address that is a multiple of nothing but the size of a number."""
    storage = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    copy = storage[1:].view(tensor.shape).copy_(tensor.detach())
    assert copy.data_ptr() % 8 == (4 if tensor.dtype == torch.float32 else 0)
    return copy.requires_grad_()


def test_unaligned_pointers() -> None:
    arguments, _ = goru_arguments(Case(5, 7, 3, 11, dtype=torch.float32))
    mesh = Mesh("tunable", 11, 3, True)
    real = [torch.randn(5, 7, 3), torch.randn(22, 3), -torch.rand(11), torch.randn(mesh.num_angles)]
    h0 = torch.randn(7, 11, dtype=torch.complex64)

    def run(change) -> list[torch.Tensor]:
        a = [change(t) for t in arguments]
        x, weight, bias, angles = map(change, real)
        results = [
            *run_goru(*a, None, True, True, False)[:2],
            *run_eurnn(x, h0, weight, bias, angles, None, mesh, False)[:2],
            *run_eurnn(x, h0, weight, bias, mesh.matrix(angles), None, mesh, False)[:2],
            run_mesh(angles, mesh),
        ]
        grads = [torch.ones_like(r) if r.is_complex() else change(torch.ones_like(r)) for r in results]
        return [*results, *torch.autograd.grad(results, [*a, x, weight, bias, angles], grads)]

    for a, b in zip(run(unaligned), run(lambda t: t.detach().clone().requires_grad_()), strict=True):
        assert torch.equal(a, b)


def test_sixteen_threads_at_once() -> None:
    problems = [goru_arguments(Case(20, 5 + i, 3, 17 + i, dtype=torch.float32, seed=i))[0] for i in range(16)]

    def solve(arguments: list) -> torch.Tensor:
        output = run_goru(*arguments, None, True, True, False)[0]
        return torch.autograd.grad(output.square().sum(), arguments[5])[0]

    expected = [solve(p) for p in problems]
    found: list[torch.Tensor | None] = [None] * 16

    def work(i: int) -> None:
        for _ in range(3):
            found[i] = solve(problems[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))  # type: ignore[arg-type]


def test_use_after_fork() -> None:
    code = """
import os, torch
from tests.kernels.native_cases import Case, goru_arguments, run_goru
arguments, _ = goru_arguments(Case(60, 64, 3, 64, dtype=torch.float32))
def solve():
    output = run_goru(*arguments, None, True, True, False)[0]
    return torch.autograd.grad(output, arguments[5], torch.ones_like(output))[0]
torch.set_num_threads(2)
expected = solve()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(solve(), expected) else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, timeout=500, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_memory_is_kept_between_steps_and_can_be_released() -> None:
    first = library.pooled_empty((1000, 1000), torch.float32)
    address = first.data_ptr()
    del first
    second = library.pooled_empty((900, 1000), torch.float32)
    assert second.data_ptr() == address
    third = library.pooled_empty((1000, 1000), torch.float32)
    assert third.data_ptr() != address
    del second, third
    library.release()


@pytest.mark.parametrize("make", [goru.GORU, goru.GRU, goru.LSTM])
@pytest.mark.parametrize("hidden", [1, 5, 16])
def test_gradients_of_weights_are_contiguous_and_hold_no_padding(make: Any, hidden: int) -> None:
    layer = make(3, hidden, backend="native")
    weights = [parameter for name, parameter in layer.named_parameters() if name.startswith("weight")]
    for weight, gradient in zip(
        weights, torch.autograd.grad(layer(torch.randn(4, 2, 3))[0].sum(), weights), strict=True
    ):
        assert gradient.is_contiguous()
        assert gradient.untyped_storage().nbytes() == weight.untyped_storage().nbytes()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_growing_buffer_replaces_the_smaller_one() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    library.release()
    before = resident()
    for n in range(20):
        library.pooled_empty((1000 + 50 * n, 1000), torch.float32).zero_()  # 4 to 8 MB each, 118 MB in all
    assert resident() - before < 24e6
    library.release()


def test_a_kept_output_is_not_overwritten_by_the_next_call() -> None:
    arguments, _ = goru_arguments(Case(200, 64, 3, 32, dtype=torch.float32))
    output = run_goru(*arguments, None, True, True, False)[0]  # type: ignore[arg-type]
    copy = output.detach().clone()
    view = output.detach()[5]
    del output
    with torch.no_grad():
        for _ in range(3):
            run_goru(*(a * 2 for a in arguments), None, True, True, False)  # type: ignore
    assert torch.equal(view, copy[5])
