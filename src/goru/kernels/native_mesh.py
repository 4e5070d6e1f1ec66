"""Building U from its angles on the native kernels, and the gradient of the angles. Arguments as in operators.py."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from ..rotations import Mesh
from . import library
from .library import DTYPES, MeshArguments, MeshMatrixArguments, RotationSizes, scratch
from .native_arguments import check, pointer, worth_threads
from .watching import kept

LAYERS_AT_ONCE = 32  # of a tunable mesh
SLICES = 8  # of the columns of U: the gradient's order of summation, whatever the number of threads


class Coefficients:
    """What the rotations of a mesh multiply by; keeps the memory that `arguments` points to."""

    def __init__(self, angles: Tensor, mesh: Mesh) -> None:
        dtype = angles.dtype
        if dtype not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got angles of {dtype}")
        angles = check("angles", angles, (mesh.num_angles,), dtype)
        self.code, self.mesh = DTYPES[dtype], mesh
        self.rotations = mesh.num_rotations if mesh.num_angles else 0
        self.pairs, self.order = _pairs(mesh.kind, mesh.size, mesh.capacity)
        theta, phi, omega = mesh.split(angles)
        theta = theta[self.order]
        c, s = torch.cos(theta), torch.sin(theta)
        self.phases = None
        if mesh.complex:
            phi = phi[self.order]
            e, f = torch.cos(phi), torch.sin(phi)
            self.values = torch.stack([c, s, e * s, f * s, e * c, f * c], 1).contiguous()
            if mesh.num_angles == 0:
                omega = angles.new_zeros(mesh.size)
            self.phases = torch.stack([torch.cos(omega), torch.sin(omega)], 1).contiguous()
        else:
            self.values = torch.stack([c, s], 1).contiguous()
        self.arguments = MeshArguments(
            mesh.size, self.rotations, *(row.data_ptr() for row in self.pairs), self.values.data_ptr(),
            pointer(self.phases),
        )  # fmt: skip

    def in_order(self, gradient: Tensor) -> Tensor:
        """The gradient of the angles as they are stored, from that of the order in which they were used."""
        n, result = self.rotations, gradient.clone()
        result[self.order] = gradient[:n]
        if self.mesh.complex:
            result[n + self.order] = gradient[n : 2 * n]
        return result

    def sizes(self, inputs: int = 0) -> Any:
        sizes = RotationSizes()
        library.get().goru_rotation_sizes(
            self.code, self.mesh.complex, inputs, self.mesh.size, self.rotations, byref(sizes)
        )
        return sizes


@kept
def _pairs(kind: str, size: int, capacity: int | None) -> tuple[Tensor, Tensor]:
    """p, q and reach of every rotation in the order in which the kernels take them, and that order.

    Rotations of different units may be swapped. In a tunable mesh a few layers go over the units together, as a
    slanted front: what a rotation needs is then still in the first-level cache from the layer before, and the
    rotations of one front, p + 2 layer = const, do not wait for each other.
    """
    rotations, reach = list[tuple[int, int, int, int]](), 0
    for layer, pairs in enumerate(Mesh(kind, size, capacity).pairs):
        rotations += [(p, q, reach, layer) for p, q in pairs]
        reach += max((q - p for p, q in pairs), default=0)
    table = torch.tensor(rotations, dtype=torch.int64, device="cpu").reshape(-1, 4).T
    order = torch.arange(len(rotations), device="cpu")
    if kind == "tunable":
        p, layer = table[0], table[3]
        fronts = size + 2 * LAYERS_AT_ONCE
        front = layer // LAYERS_AT_ONCE * fronts + p + 2 * (layer % LAYERS_AT_ONCE)
        order = torch.argsort(front * LAYERS_AT_ONCE + layer % LAYERS_AT_ONCE)
    return table[:3, order].to(torch.int32).contiguous(), order


def mesh_matrix(angles: Tensor, mesh: Mesh) -> Tensor:
    coefficients = Coefficients(angles, mesh)
    u = torch.empty((mesh.size, mesh.size), dtype=_dtype(angles.dtype, mesh), device="cpu")
    _run("goru_mesh_matrix", coefficients, u, None, None, angles.dtype.itemsize)
    return u


def mesh_matrix_backward(grad: Tensor, u: Tensor, angles: Tensor, mesh: Mesh) -> Tensor:
    coefficients = Coefficients(angles, mesh)
    square, dtype = (mesh.size, mesh.size), _dtype(angles.dtype, mesh)
    grad, u = check("grad", grad, square, dtype), check("u", u, square, dtype)
    if mesh.num_angles == 0:
        return torch.zeros_like(angles)
    sums = torch.zeros((SLICES, mesh.num_angles), dtype=angles.dtype, device="cpu")
    _run("goru_mesh_matrix_backward", coefficients, u, grad, sums, angles.dtype.itemsize)
    return coefficients.in_order(sums.sum(0))


def _dtype(real: torch.dtype, mesh: Mesh) -> torch.dtype:
    return real.to_complex() if mesh.complex else real


def _run(name: str, k: Coefficients, u: Tensor, grad: Tensor | None, sums: Tensor | None, itemsize: int) -> None:
    sizes = k.sizes()
    flops = 6.0 * k.rotations * k.mesh.size * (1 + 3 * k.mesh.complex)
    threads = worth_threads(flops, -(-k.mesh.size // sizes.columns))
    with scratch({"state": sizes.matrix_scratch * threads}, itemsize) as memory:
        call = MeshMatrixArguments(
            k.arguments, threads, SLICES, k.mesh.num_angles, u.data_ptr(), pointer(grad), memory["state"], pointer(sums)
        )
        getattr(library.get(), name)(k.code, k.mesh.complex, byref(call))
