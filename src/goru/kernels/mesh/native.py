"""Building U from its angles on the native kernels (csrc/mesh), and the gradient of the angles."""

from __future__ import annotations

from ctypes import byref, c_int, c_int64, c_void_p

import torch
from torch import Tensor

from ...rotations import Mesh
from ...tracing import cached_constants
from ..native import library
from ..native.call import check, dtype_code, pointer, worth_threads
from ..native.library import scratch
from ..native.structures import structure

LAYERS_AT_ONCE = 32  # of a tunable mesh
SLICES = 8  # of the columns of U: the gradient's order of summation, for any number of threads

MeshArguments = structure("MeshArguments", (c_int64, "size rotations"), (c_void_p, "p q reach coefficients phases"))
MeshMatrixArguments = structure(
    "MeshMatrixArguments",
    (MeshArguments, "mesh"),
    (c_int64, "threads slices angles"),
    (c_void_p, "u grad scratch sums"),
)
MeshSizes = structure("MeshSizes", (c_int64, "scratch columns"))
library.declare(
    goru_mesh_sizes=[c_int, c_int, c_int64, c_void_p],
    goru_mesh_matrix=[c_int, c_int, c_void_p],
    goru_mesh_matrix_backward=[c_int, c_int, c_void_p],
)


class Coefficients:
    """What the rotations of a mesh multiply by; owns the memory that `arguments` points to."""

    def __init__(self, angles: Tensor, mesh: Mesh) -> None:
        self.code, self.mesh = dtype_code(angles.dtype), mesh
        angles = check("angles", angles, (mesh.num_angles,), angles.dtype)
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


@cached_constants
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


def matrix(angles: Tensor, mesh: Mesh) -> Tensor:
    coefficients = Coefficients(angles, mesh)
    u = torch.empty((mesh.size, mesh.size), dtype=mesh.state_dtype(angles.dtype), device="cpu")
    _run("goru_mesh_matrix", coefficients, u, None, None, angles.dtype.itemsize)
    return u


def matrix_backward(grad: Tensor, u: Tensor, angles: Tensor, mesh: Mesh) -> Tensor:
    coefficients = Coefficients(angles, mesh)
    square, dtype = (mesh.size, mesh.size), mesh.state_dtype(angles.dtype)
    grad, u = check("grad", grad, square, dtype), check("u", u, square, dtype)
    if mesh.num_angles == 0:
        return torch.zeros_like(angles)
    sums = torch.zeros((SLICES, mesh.num_angles), dtype=angles.dtype, device="cpu")
    _run("goru_mesh_matrix_backward", coefficients, u, grad, sums, angles.dtype.itemsize)
    return coefficients.in_order(sums.sum(0))


def _run(name: str, k: Coefficients, u: Tensor, grad: Tensor | None, sums: Tensor | None, itemsize: int) -> None:
    sizes = MeshSizes()
    library.get().goru_mesh_sizes(k.code, k.mesh.complex, k.mesh.size, byref(sizes))
    flops = 6.0 * k.rotations * k.mesh.size * (1 + 3 * k.mesh.complex)
    threads = min(worth_threads(flops), -(-k.mesh.size // sizes.columns))
    with scratch({"state": sizes.scratch * threads}, itemsize) as memory:
        call = MeshMatrixArguments(
            k.arguments, threads, SLICES, k.mesh.num_angles, u.data_ptr(), pointer(grad), memory["state"], pointer(sums)
        )
        getattr(library.get(), name)(k.code, k.mesh.complex, byref(call))
