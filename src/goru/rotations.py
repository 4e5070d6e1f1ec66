"""Meshes of 2x2 rotations: from angles to an orthogonal or unitary matrix U.

U is a product of sparse layers, U = A_L ... A_2 A_1, and each layer rotates disjoint pairs (p, q) of units:

    real       p' = c p - s q,    q' = s p + c q         c = cos theta, s = sin theta
    complex    p' = c p - e s q,  q' = s p + e c q       e = exp(i phi), then diag(exp(i omega)) at the very end

The phase sits on the input q: on the output it would merge with later phases, and a full mesh would not reach
every unitary. Whatever the angles are, each layer is orthogonal (unitary), and so is U.

Legend: H units, L mesh layers, N rotations in total, R columns that a mesh is applied to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from .tracing import cached_constants, constant_when_compiled

MESHES = ("fft", "tunable")


@dataclass(frozen=True)
class Mesh:
    """Which pairs of `size` units are rotated, layer by layer.

    `kind="tunable"` alternates the pairs (0,1)(2,3)... and (1,2)(3,4)... over `capacity` layers;
    `kind="fft"` has ceil(log2 size) layers of distance ..., 4, 2, 1 and takes no capacity.

    Args:
        kind: "fft" or "tunable".
        size: number of units, H.
        capacity: layers of a tunable mesh (None: 2).
        complex: unitary instead of orthogonal.

    >>> Mesh("fft", 6).pairs
    (((0, 4), (1, 5)), ((0, 2), (1, 3)), ((0, 1), (2, 3), (4, 5)))
    >>> mesh = Mesh("tunable", 4, capacity=4)
    >>> orthogonality_error(mesh.matrix(torch.ones(mesh.num_angles))) < 1e-6
    True
    """

    kind: str
    size: int
    capacity: int | None = None
    complex: bool = False

    def __post_init__(self) -> None:
        if self.kind not in MESHES:
            raise ValueError(f"mesh must be one of {', '.join(map(repr, MESHES))}, got {self.kind!r}")
        if self.size < 0:
            raise ValueError(f"a mesh needs at least 0 units, got size {self.size}")
        if self.kind == "fft":
            if self.capacity is not None:
                raise ValueError(
                    f"capacity needs mesh='tunable': mesh='fft' always has ceil(log2 H) layers, "
                    f"got capacity={self.capacity}"
                )
            return
        capacity = min(2, self.size) if self.capacity is None else self.capacity
        if isinstance(capacity, bool) or not isinstance(capacity, int):
            raise TypeError(f"capacity should be of type int, got: {type(capacity).__name__}")
        if not min(1, self.size) <= capacity <= self.size:
            raise ValueError(f"capacity must be from 1 to the hidden size {self.size}, got {capacity}")
        object.__setattr__(self, "capacity", capacity)

    @property
    def pairs(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The pairs (p, q) of each layer, in the order in which their angles are stored."""
        make = _pairs if torch.compiler.is_compiling() else _cached_pairs  # a compiler warns of a cache and ignores it
        return make(self.kind, self.size, self.capacity)

    @property
    def num_layers(self) -> int:
        return max(self.size - 1, 0).bit_length() if self.capacity is None else self.capacity

    @property
    def num_rotations(self) -> int:
        # Counted, not made: a compiler that traces a layer would follow the making of every pair.
        if self.capacity is not None:
            return sum((self.size - layer % 2) // 2 for layer in range(self.capacity))
        distances = [1 << k for k in range(self.num_layers)]
        return sum(self.size // (2 * d) * d + max(0, self.size % (2 * d) - d) for d in distances)

    @property
    def num_angles(self) -> int:
        """Length of the angles: theta; for a complex mesh theta, phi and omega concatenated."""
        if self.size <= 1:
            return 0
        return 2 * self.num_rotations + self.size if self.complex else self.num_rotations

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of U, and of what it acts on, for angles of this dtype."""
        return _complex(dtype) if self.complex else dtype

    def split(self, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """theta (N), phi (N) and omega (H); phi and omega are empty for a real mesh."""
        n = self.num_rotations
        if not self.complex:
            return angles, angles[:0], angles[:0]
        return angles[:n], angles[n : 2 * n], angles[2 * n :]

    def layer_vectors(self, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each layer as  A_l h = diagonal[l] * h + off[l] * h[partner[l]]:  three (L, H) tensors."""
        slot_p, slot_q, partner = _slots(self.kind, self.size, self.capacity, angles.device)
        theta, phi, _ = self.split(angles)
        cos, sin = torch.cos(theta), torch.sin(theta)
        one, zero = cos.new_ones(1), cos.new_zeros(1)
        if not self.complex:
            diagonal = torch.cat([cos, cos, one])
            off = torch.cat([-sin, sin, zero])
        else:
            phase = torch.polar(torch.ones_like(phi), phi)
            diagonal = torch.cat([cos.to(phase.dtype), phase * cos, one.to(phase.dtype)])
            off = torch.cat([-phase * sin, sin.to(phase.dtype), zero.to(phase.dtype)])
        # Slot n of the joined vector belongs to the p of rotation n, slot N + n to its q, the last to idle units.
        slot = torch.where(slot_p >= 0, slot_p, torch.where(slot_q >= 0, slot_q + theta.numel(), 2 * theta.numel()))
        return diagonal[slot], off[slot], partner

    def apply(self, angles: Tensor, columns: Tensor) -> Tensor:
        """U @ columns for columns of shape (H, R), rotation by rotation, without building U."""
        if self.num_angles == 0:
            return columns + angles.sum()  # nothing is added; the empty angles get an empty gradient instead of none
        diagonal, off, partner = self.layer_vectors(angles)
        for layer in range(self.num_layers):
            rotated = columns.index_select(0, partner[layer])
            columns = diagonal[layer, :, None] * columns + off[layer, :, None] * rotated
        if self.complex:
            omega = self.split(angles)[2]
            columns = torch.polar(torch.ones_like(omega), omega)[:, None] * columns
        return columns

    def matrix(self, angles: Tensor) -> Tensor:
        """U itself, (H, H), in the dtype of the angles (or the complex dtype over it)."""
        return self.apply(angles, torch.eye(self.size, dtype=self.state_dtype(angles.dtype), device=angles.device))


@constant_when_compiled
def _complex(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_complex()


def _pairs(kind: str, size: int, capacity: int | None) -> tuple[tuple[tuple[int, int], ...], ...]:
    if kind == "tunable":
        assert capacity is not None
        return tuple(tuple((p, p + 1) for p in range(layer % 2, size - 1, 2)) for layer in range(capacity))
    distances = [1 << k for k in reversed(range(max(size - 1, 0).bit_length()))]
    return tuple(tuple((j, j + d) for j in range(size - d) if (j // d) % 2 == 0) for d in distances)


_cached_pairs = cache(_pairs)


@cached_constants
def _slots(kind: str, size: int, capacity: int | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For each layer and unit: the rotation in which it is p, in which it is q (else -1), and its partner."""
    pairs = Mesh(kind, size, capacity).pairs
    slot_p = torch.full((len(pairs), size), -1, device="cpu")
    slot_q = torch.full((len(pairs), size), -1, device="cpu")
    partner = torch.arange(size, device="cpu").repeat(len(pairs), 1)
    number = 0
    for layer, layer_pairs in enumerate(pairs):
        if not layer_pairs:
            continue
        p, q = torch.tensor(layer_pairs, device="cpu").T
        numbers = torch.arange(number, number + len(layer_pairs), device="cpu")
        slot_p[layer, p], slot_q[layer, q] = numbers, numbers
        partner[layer, p], partner[layer, q] = q, p
        number += len(layer_pairs)
    return slot_p.to(device), slot_q.to(device), partner.to(device)


def orthogonality_error(matrix: Tensor) -> float:
    """`max |U^H U - I|`, computed in double precision so that it measures U and not the product.

    Args:
        matrix: (H, H), real or complex.

    >>> orthogonality_error(torch.eye(3))
    0.0
    """
    wide = matrix.detach().to(torch.complex128 if matrix.is_complex() else torch.float64)
    gram = wide.mH @ wide - torch.eye(wide.shape[-1], dtype=wide.dtype, device=wide.device)
    return gram.abs().max().item()
