"""Meshes with a hand-derived backward pass, in torch operations: U from angles, and U applied to columns.

Legend: H units, L mesh layers, N rotations, R columns, M the power of two at or above H.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...rotations import Mesh
from ...tracing import cached_constants


def matrix(angles: Tensor, mesh: Mesh) -> Tensor:
    """U (H, H)."""
    if mesh.kind == "fft" and mesh.num_angles:
        return _Butterfly(angles, mesh).matrix()
    identity = torch.eye(mesh.size, dtype=mesh.state_dtype(angles.dtype), device=angles.device)
    return Rotations(angles, mesh).apply(identity)


def matrix_backward(grad: Tensor, u: Tensor, angles: Tensor, mesh: Mesh) -> Tensor:
    """Gradient of the angles from that of U."""
    if mesh.kind == "fft" and mesh.num_angles:
        return _Butterfly(angles, mesh).gradient(grad, u)
    return Rotations(angles, mesh).gradient(u, grad)


class Rotations:
    """A mesh with its angles, applied layer by layer to columns (H, R)."""

    def __init__(self, angles: Tensor, mesh: Mesh) -> None:
        self.mesh = mesh
        self.angles = angles
        # Layers without pairs (H = 1, or H = 2 and an odd layer) do nothing.
        self.layers = [layer for layer, pairs in enumerate(mesh.pairs) if pairs]
        if self.layers:
            self.diagonal, self.off, self.partner = mesh.layer_vectors(angles)
            self.off_back = torch.gather(self.off, 1, self.partner).conj()
            self.diagonal_back = self.diagonal.conj()
        self.phases = _phases(mesh.split(angles)[2])[:, None] if mesh.complex and mesh.num_angles else None

    def apply(self, columns: Tensor) -> Tensor:
        """U @ columns."""
        for layer in self.layers:
            columns = self._rotate(columns, self.diagonal[layer], self.off[layer], self.partner[layer])
        if self.phases is not None:
            return columns * self.phases
        return columns if self.layers else columns.clone()

    def apply_inverse(self, columns: Tensor) -> Tensor:
        """U^H @ columns: the way back, and the way of a gradient."""
        if self.phases is not None:
            columns = columns * self.phases.conj()
        for layer in reversed(self.layers):
            columns = self._undo(layer, columns)
        return columns

    def _undo(self, layer: int, columns: Tensor) -> Tensor:
        return self._rotate(columns, self.diagonal_back[layer], self.off_back[layer], self.partner[layer])

    @staticmethod
    def _rotate(columns: Tensor, diagonal: Tensor, off: Tensor, partner: Tensor) -> Tensor:
        return (columns * diagonal[:, None]).addcmul_(columns.index_select(0, partner), off[:, None])

    def gradient(self, columns: Tensor, grad: Tensor) -> Tensor:
        """Gradient of the angles, summed over columns, from the *outputs* of `apply` and the gradient there.

        Rotations invert: the states between the layers are recomputed on the way back instead of stored.
        """
        mesh = self.mesh
        gradient = torch.zeros_like(self.angles)
        if mesh.num_angles == 0:
            return gradient
        dtheta, dphi, domega = mesh.split(gradient)
        if self.phases is not None:
            domega.copy_((columns.conj() * grad).imag.sum(1))
            columns, grad = columns * self.phases.conj(), grad * self.phases.conj()
        end = mesh.num_rotations
        for layer in reversed(self.layers):
            p, q = _pair_indices(mesh.kind, mesh.size, mesh.capacity, layer, columns.device)
            place = slice(end - len(p), end)
            # d p'/d theta = -q',  d q'/d theta = p'.
            cross = grad.conj() * columns.index_select(0, self.partner[layer])
            cross = (cross.real if mesh.complex else cross).sum(1)
            dtheta[place] = cross[q] - cross[p]
            columns, grad = self._undo(layer, columns), self._undo(layer, grad)
            if mesh.complex:
                dphi[place] = (columns.conj() * grad).imag.sum(1)[q]
            end -= len(p)
        return gradient


class _Butterfly:
    """The matrix of an FFT mesh, from small blocks to large ones.

    Behind its first layer, which pairs j with j + M/2, the mesh splits into two meshes of half the size:

        U = [[Ua, 0], [0, Ub]] [[C, -E S], [S, E C]]         C, S, E diagonal: cos theta, sin theta, exp(i phi)

    Each level only scales columns, so that U costs O(H^2) in all instead of O(H^2 log H). A size that is not a power of
    two is padded by units that are never rotated, and cut out at the end.
    """

    def __init__(self, angles: Tensor, mesh: Mesh) -> None:
        self.mesh = mesh
        self.angles = angles
        self.present = _present(mesh.size, angles.device)  # (L, M/2)
        theta, phi, omega = mesh.split(angles)
        self.cos = self._spread(torch.cos(theta), 1.0)
        self.sin = self._spread(torch.sin(theta), 0.0)
        self.phase = self._spread(_phases(phi), 1.0) if mesh.complex else None
        self.outer = _phases(omega) if mesh.complex else None

    def _spread(self, values: Tensor, idle: float) -> Tensor:
        full = torch.full(self.present.shape, idle, dtype=values.dtype, device=values.device)
        full[self.present] = values
        return full

    def _level(self, layer: int, d: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """cos, sin and phase of the layer of distance d, (M / 2d, 1, d): one row for each block."""
        shape = (-1, 1, d)
        phase = None if self.phase is None else self.phase[layer].view(shape)
        return self.cos[layer].view(shape), self.sin[layer].view(shape), phase

    def _blocks(self) -> list[Tensor]:
        """The blocks of every level: (M, 1, 1), (M / 2, 2, 2), ..., (1, M, M)."""
        dtype = self.cos.dtype if self.phase is None else self.phase.dtype
        M = 2 * self.present.shape[1]
        levels = [torch.ones(M, 1, 1, dtype=dtype, device=self.cos.device)]
        for layer in reversed(range(len(self.present))):
            d = levels[-1].shape[1]
            c, s, e = self._level(layer, d)
            ua, ub = levels[-1][0::2], levels[-1][1::2]
            u = ua.new_empty(len(ua), 2 * d, 2 * d)
            torch.mul(ua, c, out=u[:, :d, :d])
            torch.mul(ua, -s if e is None else -s * e, out=u[:, :d, d:])
            torch.mul(ub, s, out=u[:, d:, :d])
            torch.mul(ub, c if e is None else c * e, out=u[:, d:, d:])
            levels.append(u)
        return levels

    def matrix(self) -> Tensor:
        H = self.mesh.size
        u = self._blocks()[-1][0, :H, :H]
        return u.clone() if self.outer is None else u * self.outer[:, None]

    def gradient(self, grad: Tensor, u: Tensor) -> Tensor:
        H = self.mesh.size
        gradient = torch.zeros_like(self.angles)
        dtheta, dphi, domega = self.mesh.split(gradient)
        if self.outer is not None:
            domega.copy_((u.conj() * grad).imag.sum(1))
            grad = grad * self.outer[:, None].conj()
        levels = self._blocks()
        M = levels[-1].shape[1]
        g = grad.new_zeros(1, M, M)
        g[0, :H, :H] = grad
        dtheta_full, dphi_full = torch.zeros_like(self.cos), torch.zeros_like(self.cos)
        for layer in range(len(self.present)):
            smaller = levels[-2 - layer]
            d = smaller.shape[1]
            c, s, e = self._level(layer, d)
            ua, ub = smaller[0::2], smaller[1::2]
            g11, g12, g21, g22 = g[:, :d, :d], g[:, :d, d:], g[:, d:, :d], g[:, d:, d:]
            # What each diagonal entry is multiplied by, summed over the rows of its column.
            p, q = _column_products(g11, ua), _column_products(g12, ua)
            r, t = _column_products(g21, ub), _column_products(g22, ub)
            below = torch.empty_like(smaller)
            if e is None:
                dtheta_full[layer] = (c * (r - q) - s * (p + t)).flatten()
                below[0::2], below[1::2] = g11 * c - g12 * s, g21 * s + g22 * c
            else:
                dtheta_full[layer] = (c * (r - e * q) - s * (p + e * t)).real.flatten()
                dphi_full[layer] = -(e * (c * t - s * q)).imag.flatten()
                below[0::2], below[1::2] = g11 * c - g12 * (s * e.conj()), g21 * s + g22 * (c * e.conj())
            g = below
        dtheta.copy_(dtheta_full[self.present])
        if self.phase is not None:
            dphi.copy_(dphi_full[self.present])
        return gradient


def _column_products(g: Tensor, u: Tensor) -> Tensor:
    """sum_i conj(g_ij) u_ij of each column j: (blocks, 1, d)."""
    return (g.conj() * u).sum(1, keepdim=True)


def _phases(angles: Tensor) -> Tensor:
    return torch.polar(torch.ones_like(angles), angles)


@cached_constants
def _present(size: int, device: torch.device) -> Tensor:
    """(L, M/2): which pairs of the mesh padded to M units exist, in the order of their angles."""
    pairs = Mesh("fft", size).pairs
    M = 1 << len(pairs)
    present = torch.zeros(len(pairs), M // 2, dtype=torch.bool, device="cpu")
    for layer, layer_pairs in enumerate(pairs):
        d = M >> (layer + 1)
        p = torch.tensor(layer_pairs, device="cpu")[:, 0]
        present[layer, p // (2 * d) * d + p % d] = True
    return present.to(device)


@cached_constants
def _pair_indices(
    kind: str, size: int, capacity: int | None, layer: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    p, q = torch.tensor(Mesh(kind, size, capacity).pairs[layer], device=device).T
    return p, q
