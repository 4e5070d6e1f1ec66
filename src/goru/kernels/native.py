"""The recurrences in C++ (csrc/): the fast path on a CPU, float32 and float64. Arguments as in operators.py.

The library does everything that costs time, products included: with weights packed once per call its products are
faster at these sizes than a BLAS called step by step, give the same bits whatever the number of threads, and work in a
forked process. Here arguments are checked, memory is provided and the sequence is cut into chunks of steps: a chunk's
gradients stay in the cache until the weight gradients have been summed from them, and Python can notice Ctrl-C between
two chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..rotations import Mesh
from . import library, manual
from .library import DTYPES, GoruBackward, GoruForward, GoruSizes, Shape, byref, pooled_empty, scratch

CHUNK_BYTES = 4 << 20  # what a chunk of the backward pass keeps in the cache
CALL_FLOPS = 4e9  # most work in one call of the library: a fraction of a second
THREAD_FLOPS = 2e6  # least work that is worth waking a thread for


def unavailable_reason() -> str | None:
    """Why the native kernels cannot run here, in one sentence; None if they can."""
    found = library.load()
    return found if isinstance(found, str) else None


def supports(device: torch.device, dtype: torch.dtype) -> bool:
    return device.type == "cpu" and dtype in DTYPES


def isa() -> str:
    """The instruction set in use: generic, avx2 or avx512."""
    found = library.get()
    return found.goru_level_name(found.goru_chosen()).decode()


def saved_blocks(reset_gate: bool, update_gate: bool) -> int:
    """Blocks of H that a GORU step saves: v, r, z with both gates; v, r or z, c with one; nothing without."""
    return 3 if reset_gate and update_gate else 2 if reset_gate or update_gate else 0


# ------------------------------------------------------------------------------------------------- arguments


def _check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor, dense; an error in words if it is not what the kernels would read."""
    if tensor.device.type != "cpu":
        raise RuntimeError(f"the native backend needs {name} on the CPU, got a tensor on {tensor.device}")
    if tensor.dtype != dtype:
        raise RuntimeError(f"the native backend needs {name} of dtype {dtype}, got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise RuntimeError(f"the native backend needs {name} of shape {shape}, got {tuple(tensor.shape)}")
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _dense_rows(tensor: Tensor) -> tuple[Tensor, int, int]:
    """A (T, B, N) tensor whose last dimension is dense, and its strides of T and B; expanded ones stay small."""
    tensor = tensor.detach()
    if tensor.stride(2) == 1 or tensor.shape[2] == 1 or tensor.numel() == 0:
        return tensor, tensor.stride(0), tensor.stride(1)
    kept = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride()[:2])]
    dense = kept.contiguous()
    step, row = (0 if stride == 0 else s for stride, s in zip(tensor.stride(), dense.stride(), strict=False))
    return dense, step, row


def _rows(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, int, int]:
    _check(name, tensor[:0] if len(shape) == tensor.dim() else tensor, (0, *shape[1:]), dtype)
    if tensor.shape[0] != shape[0]:
        raise RuntimeError(f"the native backend needs {name} of shape {shape}, got {tuple(tensor.shape)}")
    return _dense_rows(tensor)


class _Ragged:
    """Rows by falling length, and for each time how many of them have it; empty when there are no lengths."""

    def __init__(self, lengths: Tensor | None, steps: int, batch: int) -> None:
        self.order = self.active = None
        if lengths is None or batch == 0:
            return
        lengths = _check("lengths", lengths, (batch,), torch.int64)
        low, high = (int(v) for v in torch.aminmax(lengths))
        if low < 1 or high > steps:
            raise RuntimeError(f"lengths must lie between 1 and the {steps} steps of the input, got {low} to {high}")
        if low == steps:
            return
        self.order = torch.argsort(lengths, descending=True, stable=True)
        ends = torch.bincount(lengths, minlength=steps + 1)
        self.active = batch - torch.cumsum(ends, 0)[:steps]

    def pointers(self) -> tuple[int | None, int | None]:
        return (None, None) if self.order is None or self.active is None else (
            self.order.data_ptr(), self.active.data_ptr()
        )  # fmt: skip


def _last_state(output: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """h_n from the output: a row's last step, or in the reverse direction the first one."""
    if reverse:
        return output[0].clone()
    if lengths is None:
        return output[-1].clone()
    return output[lengths - 1, torch.arange(output.shape[1])]


def _threads(flops: float, blocks: int) -> int:
    return max(1, min(torch.get_num_threads(), blocks, int(flops / THREAD_FLOPS)))


def _chunks(steps: int, size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, steps, size):
        yield first, min(first + size, steps)


# ------------------------------------------------------------------------------------------------- mesh

mesh_matrix = manual.mesh_matrix
mesh_matrix_backward = manual.mesh_matrix_backward


# ------------------------------------------------------------------------------------------------- GORU


class _Goru:
    """The checked weights of a GORU, its sizes, and the structure that describes a call."""

    def __init__(
        self,
        x: Tensor,
        h0: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor | None,
        bias: Tensor | None,
        u: Tensor,
        lengths: Tensor | None,
        reset_gate: bool,
        update_gate: bool,
        reverse: bool,
    ) -> None:
        self.library = library.get()
        if x.dim() != 3 or u.dim() != 2 or x.shape[0] == 0 or u.shape[0] == 0:
            raise RuntimeError(
                f"the native backend needs x of shape (T, B, I) and u of shape (H, H) with T, H > 0, got "
                f"{tuple(x.shape)} and {tuple(u.shape)}"
            )
        self.dtype = dtype = x.dtype
        if dtype not in DTYPES:
            raise RuntimeError(f"the native backend knows float32 and float64, got {dtype}")
        T, B, I = x.shape
        H = u.shape[0]
        G = 1 + reset_gate + update_gate
        self.T, self.B, self.I, self.H, self.G = T, B, I, H, G
        self.x, x_step, x_row = _rows("x", x, (T, B, I), dtype)
        self.h0 = _check("h0", h0, (B, H), dtype)
        self.weight_ih = _check("weight_ih", weight_ih, (G * H, I), dtype)
        self.u = _check("u", u, (H, H), dtype)
        if (weight_hh is None) != (G == 1):
            raise RuntimeError("the native backend needs weight_hh exactly when at least one gate is on")
        self.weight_hh = None if weight_hh is None else _check("weight_hh", weight_hh, ((G - 1) * H, H), dtype)
        self.bias = None if bias is None else _check("bias", bias, (G * H,), dtype)
        self.ragged = _Ragged(lengths, T, B)
        self.code, self.gates = DTYPES[dtype], reset_gate + 2 * update_gate
        self.sizes = GoruSizes()
        self.library.goru_goru_sizes(self.code, self.gates, I, H, byref(self.sizes))
        self.blocks = -(-B // self.sizes.block_rows)
        self.step_flops = 2.0 * B * G * H * (H + I)
        order, active = self.ragged.pointers()
        self.shape = Shape(
            T, B, I, H, reset_gate, update_gate, reverse, bias is not None, 0, T, 1, order, active, x_step, x_row
        )

    def steps_per_call(self) -> int:
        return max(1, min(self.T, int(CALL_FLOPS / max(1.0, self.step_flops))))


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def goru_forward(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    g = _Goru(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    T, B, I, H = g.T, g.B, g.I, g.H
    output = torch.empty((T, B, H), dtype=g.dtype)
    blocks = saved_blocks(reset_gate, update_gate)
    saved = pooled_empty((T, B, blocks * H), g.dtype) if save else torch.empty(0, dtype=g.dtype)
    if B == 0:
        return output, torch.empty_like(g.h0), saved
    with scratch({"packed": g.sizes.packed}, g.dtype.itemsize) as memory:
        packed = memory["packed"]
        g.library.goru_goru_pack(
            g.code, g.gates, g.weight_ih.data_ptr(), _pointer(g.weight_hh), g.u.data_ptr(), I, H, packed
        )
        call = GoruForward(
            g.shape, g.x.data_ptr(), g.h0.data_ptr(), packed, _pointer(g.bias), output.data_ptr(),
            saved.data_ptr() if save else None,
        )  # fmt: skip
        for first, last in _chunks(T, g.steps_per_call()):
            call.shape.first, call.shape.last = first, last
            call.shape.threads = _threads((last - first) * g.step_flops, g.blocks)
            g.library.goru_goru_forward(g.code, byref(call))
    return output, _last_state(output, lengths, reverse), saved


def goru_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    u: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    needs_x: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    g = _Goru(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    T, B, I, H, G, dtype = g.T, g.B, g.I, g.H, g.G, g.dtype
    grad, grad_step, grad_row = _rows("grad_output", grad_output, (T, B, H), dtype)
    output = _check("output", output, (T, B, H), dtype)
    saved = _check("saved", saved, (T, B, saved_blocks(reset_gate, update_gate) * H), dtype)
    carry = _check("grad_h_n", grad_h_n, (B, H), dtype).clone()
    dx = torch.empty((T, B, I) if needs_x else (0,), dtype=dtype)
    s = g.sizes
    weights = torch.zeros(s.weights, dtype=dtype)
    db = torch.zeros((g.blocks, s.bias), dtype=dtype)
    steps = max(1, min(CHUNK_BYTES // dtype.itemsize // (s.chunk_row * max(1, B)), g.steps_per_call(), T))
    if B > 0:
        elements = {
            "packed": s.packed_backward,
            "packed_input": s.packed_input if needs_x else 0,
            "through": s.through_row * B,
            "chunk": s.chunk_row * steps * B,
        }
        with scratch(elements, dtype.itemsize) as memory:
            g.library.goru_goru_pack_backward(
                g.code, g.gates, _pointer(g.weight_hh), g.u.data_ptr(), H, memory["packed"]
            )
            if needs_x:
                g.library.goru_goru_pack_input(
                    g.code, g.gates, g.weight_ih.data_ptr(), I, H, memory["packed_input"]
                )
            call = GoruBackward(
                g.shape, grad_step, grad_row, steps * B, grad.data_ptr(), g.x.data_ptr(), g.h0.data_ptr(),
                output.data_ptr(), saved.data_ptr(), memory["packed"], memory["packed_input"], carry.data_ptr(),
                memory["chunk"], memory["through"], weights.data_ptr(), db.data_ptr(), dx.data_ptr() if needs_x else None,
            )  # fmt: skip
            for first, last in reversed(list(_chunks(T, steps))):
                call.shape.first, call.shape.last = first, last
                call.shape.threads = _threads(2 * (last - first) * g.step_flops, g.blocks)
                g.library.goru_goru_backward(g.code, byref(call))
    Hp = s.bias
    square = weights[: G * Hp * Hp].view(G, Hp, Hp)[:, :H, :H]
    wide = weights[G * Hp * Hp :].view(G, Hp, -1)[:, :H, : I + 1]
    # The sums have the candidate first (as U is before W_r, W_z), weight_ih and bias have it last.
    wide = wide.roll(-1, 0)
    dweight_hh = square[1:].reshape((G - 1) * H, H).clone() if g.weight_hh is not None else weights.new_empty(0)
    dbias = weights.new_empty(0)
    if g.bias is not None:
        dbias = wide[..., I].reshape(-1).clone()
        dbias[-H:] = db.sum(0)[:H]
    return dx, carry, wide[..., :I].reshape(G * H, I).clone(), dweight_hh, dbias, square[0].clone()


# ------------------------------------------------------------------------------------------------- EURNN

eurnn_forward = manual.eurnn_forward
eurnn_backward = manual.eurnn_backward


def prefers_rotations(mesh: Mesh, steps: int, batch: int) -> bool:
    """Whether rotating the state layer by layer is cheaper than the product with U."""
    return 24 * mesh.num_layers < mesh.size
