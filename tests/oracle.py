"""The paper's equations once more, in NumPy and plain loops, sharing no line with the library.

Everything is computed in float64 or complex128, one sequence and one unit at a time where that is readable,
so that tests have something to compare with that is slow and obvious.

Legend: T steps, H hidden units, I input features, K stacked layers, D directions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float64 or complex128


@dataclass(frozen=True)
class Network:
    """What the oracle has to know of a layer beside its parameters."""

    cell: str  # "goru" or "eurnn"
    hidden_size: int
    num_layers: int = 1
    bidirectional: bool = False
    mesh: str = "fft"
    capacity: int | None = None
    complex: bool = False
    reset_gate: bool = True
    update_gate: bool = True


def mesh_pairs(kind: str, size: int, capacity: int | None = None) -> list[list[tuple[int, int]]]:
    """The rotated pairs, one list for each mesh layer."""
    layers: list[list[tuple[int, int]]] = []
    if size == 1:
        return layers
    if kind == "tunable":
        assert capacity is not None
        for layer in range(capacity):
            start = 0 if layer % 2 == 0 else 1
            pairs = []
            while start + 1 < size:
                pairs.append((start, start + 1))
                start += 2
            layers.append(pairs)
        return layers
    distance = 2 ** (math.ceil(math.log2(size)) - 1)
    while distance >= 1:
        layers.append(
            [(j, j + distance) for j in range(size) if math.floor(j / distance) % 2 == 0 and j + distance < size]
        )
        distance //= 2
    return layers


def number_of_angles(kind: str, size: int, capacity: int | None = None, complex: bool = False) -> int:
    rotations = sum(len(pairs) for pairs in mesh_pairs(kind, size, capacity))
    if size == 1 or not complex:
        return rotations
    return rotations + rotations + size


def mesh_matrix(kind: str, size: int, capacity: int | None, angles: Array, complex: bool = False) -> Array:
    """U as a product of dense H x H matrices, one for each mesh layer, and the diagonal of phases last."""
    layers = mesh_pairs(kind, size, capacity)
    count = sum(len(pairs) for pairs in layers)
    U = np.eye(size, dtype=np.complex128 if complex else np.float64)
    if size == 1:
        return U
    number = 0
    for pairs in layers:
        A = np.eye(size, dtype=U.dtype)
        for p, q in pairs:
            c, s = math.cos(angles[number].real), math.sin(angles[number].real)
            if complex:
                phi = float(angles[count + number].real)
                e = math.cos(phi) + 1j * math.sin(phi)
                A[p, p], A[p, q] = c, -e * s
                A[q, p], A[q, q] = s, e * c
            else:
                A[p, p], A[p, q] = c, -s
                A[q, p], A[q, q] = s, c
            number += 1
        U = A @ U
    if complex:
        omega = angles[2 * count :]
        assert len(omega) == size
        U = np.diag(np.cos(omega) + 1j * np.sin(omega)) @ U
    return U


def modrelu(a: Array, b: Array) -> Array:
    """a / |a| * relu(|a| + b), element by element; 0 at a = 0."""
    a, b = np.broadcast_arrays(a, b)
    value = np.zeros(a.shape, dtype=a.dtype)
    for index in np.ndindex(a.shape):
        magnitude = abs(a[index])
        if magnitude >= math.sqrt(np.finfo(np.float64).tiny):
            value[index] = a[index] / magnitude * max(magnitude + b[index], 0.0)
    return value


def sigmoid(a: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-a))


@dataclass(frozen=True)
class Step:
    """All that one step of a cell computes; gates that are off are None."""

    reset: Array | None
    update: Array | None
    candidate: Array
    state: Array


def step(net: Network, weights: Mapping[str, Array], U: Array, x: Array, h: Array) -> Step:
    """One step of one sequence: x (I,), h (H,). `weights` has a cell's names: weight_ih, weight_hh, bias."""
    H = net.hidden_size
    if net.cell == "eurnn":
        W = weights["weight_ih"]
        drive = W[:H] @ x + 1j * (W[H:] @ x) if net.complex else W @ x
        b = weights.get("bias", np.zeros(H))
        candidate = modrelu(U @ h + drive, b)
        return Step(None, None, candidate, candidate)

    # The rows of the three blocks, in the order r, z, candidate; a gate that is off has none.
    blocks = ["r"] * net.reset_gate + ["z"] * net.update_gate + ["c"]
    row = {block: slice(H * i, H * (i + 1)) for i, block in enumerate(blocks)}
    W_x = {block: weights["weight_ih"][row[block]] for block in blocks}
    bias = weights.get("bias", np.zeros(H * len(blocks)))
    b = {block: bias[row[block]] for block in blocks}

    r = z = None
    if net.reset_gate:
        r = sigmoid(weights["weight_hh"][row["r"]] @ h + W_x["r"] @ x + b["r"])
    if net.update_gate:
        z = sigmoid(weights["weight_hh"][row["z"]] @ h + W_x["z"] @ x + b["z"])
    rotated = U @ h
    candidate = modrelu(W_x["c"] @ x + (rotated if r is None else r * rotated), b["c"])
    state = candidate if z is None else z * h + (1.0 - z) * candidate
    return Step(r, z, candidate, state)


def one_direction(
    net: Network, weights: Mapping[str, Array], x: Array, h0: Array, reverse: bool
) -> tuple[list[Step], Array]:
    """One sequence (T, I) through one layer and direction: its steps by *input* time, and the last state."""
    U = mesh_matrix(net.mesh, net.hidden_size, net.capacity, weights["angles"], net.complex)
    steps: dict[int, Step] = {}
    h = h0
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        steps[t] = step(net, weights, U, x[t], h)
        h = steps[t].state
    return [steps[t] for t in range(len(x))], h


def run(
    net: Network, parameters: Mapping[str, Array], sequences: Sequence[Array], hx: Array | None = None
) -> tuple[list[Array], Array, list[list[list[Step]]]]:
    """All layers and directions over a list of sequences of any lengths, each (T_i, I).

    Gives the outputs (T_i, D * H), h_n (K * D, B, H), and the steps of every layer and direction
    (k * D + d), sequence and time. `hx` is (K * D, B, H) or None for zeros.
    """
    D = 2 if net.bidirectional else 1
    state_dtype = np.complex128 if net.complex else np.float64
    h_n = np.zeros((net.num_layers * D, len(sequences), net.hidden_size), dtype=state_dtype)
    records: list[list[list[Step]]] = [[] for _ in range(net.num_layers * D)]
    outputs: list[Array] = []
    for row, x in enumerate(sequences):
        for k in range(net.num_layers):
            directions = []
            for d in range(D):
                suffix = f"_l{k}" + ("_reverse" if d == 1 else "")
                weights = {
                    name: parameters[name + suffix]
                    for name in ("weight_ih", "weight_hh", "bias", "angles")
                    if name + suffix in parameters
                }
                h0 = np.zeros(net.hidden_size, state_dtype) if hx is None else hx[k * D + d, row]
                steps, h_n[k * D + d, row] = one_direction(net, weights, x, h0, reverse=d == 1)
                records[k * D + d].append(steps)
                # The next layer, and whoever reads the output, sees the real part.
                directions.append(np.stack([np.real(s.state) for s in steps]))
            x = np.concatenate(directions, axis=1)
        outputs.append(x)
    return outputs, h_n, records
