"""EURNN by rotations against the product with U, on one thread: the figures behind `prefers_rotations`.

    python -m benchmarks.rotations [--rounds N] [--hidden H ...]

Nanoseconds of a training step for each row and time step, the least of some rounds that go through all ways in turn,
in processor time: with one thread that is the time on an idle machine, also when this one is not. Building U is left
out, since it grows with neither rows nor steps.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from goru.kernels import native
from goru.kernels.eurnn import EURNN, EurnnInputs, EurnnOptions
from goru.kernels.eurnn.native import prefers_rotations
from goru.rotations import Mesh

BATCH, INPUTS = 64, 10


def steps_at(size: int) -> int:
    """So many that the call itself does not count."""
    return max(8, 8192 // size)


def training_step(mesh: Mesh, rotate: bool) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(mesh.num_angles, generator=generator)
    transition = (drawn if rotate else mesh.matrix(drawn)).requires_grad_()
    steps = steps_at(mesh.size)
    x = torch.randn(steps, BATCH, INPUTS, generator=generator)
    h0 = torch.zeros(BATCH, mesh.size, dtype=torch.complex64 if mesh.complex else torch.float32)
    weight = torch.randn((1 + mesh.complex) * mesh.size, INPUTS, generator=generator).requires_grad_()
    bias = torch.full((mesh.size,), -0.01, requires_grad=True)
    grad = torch.randn(steps, BATCH, mesh.size, generator=generator)

    def step() -> None:
        u, angles = (None, transition) if rotate else (transition, None)
        output, _ = EURNN(EurnnInputs(x, h0, weight, bias, u, angles), EurnnOptions(mesh), "native")
        torch.autograd.grad(output, (weight, bias, transition), grad)

    return step


def interleaved(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Least seconds of processor time of each."""
    best = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()
    for _ in range(rounds):
        for name, way in ways.items():
            start = time.process_time()
            way()
            best[name] = min(best[name], time.process_time() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hidden", type=int, nargs="+", default=[32, 128, 512, 1024])
    arguments = parser.parse_args()
    if (reason := native.unavailable_reason()) is not None:
        raise SystemExit(reason)
    torch.set_num_threads(1)
    print(f"{native.isa()}, float32, one thread; ns for each row and step")
    print(
        f"{'':22} {'rotations':>9} {'rotated':>9} {'with U':>9}  {'a rotation':>10}  {'an element':>10}  faster   rule"
    )
    for complex in (False, True):
        for size in arguments.hidden:
            meshes = {"fft": Mesh("fft", size, None, complex)}
            for capacity in (2, 4, 8, 16, 32, 64, 128, 256):
                if capacity < size:
                    meshes[f"tunable {capacity}"] = Mesh("tunable", size, capacity, complex)
            ways = {name: training_step(mesh, True) for name, mesh in meshes.items()}
            times = interleaved(ways | {"U": training_step(meshes["fft"], False)}, arguments.rounds)
            each = {name: seconds * 1e9 / (steps_at(size) * BATCH) for name, seconds in times.items()}
            for name, mesh in meshes.items():
                faster = "rotated" if each[name] < each["U"] else "U"
                rule = "rotated" if prefers_rotations(mesh) else "U"
                print(
                    f"{'complex' if complex else 'real':7} {size:4} {name:10}"
                    f" {mesh.num_rotations:8} {each[name]:9.0f} {each['U']:9.0f}"
                    f"  {each[name] / mesh.num_rotations:10.2f}  {each['U'] / size**2:10.3f}  {faster:8} {rule}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
