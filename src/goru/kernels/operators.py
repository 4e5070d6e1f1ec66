"""The recurrences as torch operators: what torch.compile, torch.export and autograd see.

Each operator calls the implementation named by its `backend` argument (`manual` in torch, `native` in C++), so that
the fake implementations and the autograd formulas are written once. Both modules have the functions

    mesh_matrix, mesh_matrix_backward, goru_forward, goru_backward, eurnn_forward, eurnn_backward

with the arguments of the operators below, less `backend`. `reference` is not an operator: it is plain torch, traced
and differentiated by torch itself.

Legend: T steps, B batch, I input, H hidden, K blocks saved by GORU.
  x (T, B, I), h0 (B, H), weight_ih (3H, I) rows r z c, weight_hh (2H, H) rows r z, bias (3H) b_r b_z b_h; rows of a
  gate that is off are missing, and weight_hh is None when both are off.
  transition: u (H, H), which acts as u @ h, or the angles (1-D) of the mesh of `kind` and `capacity`, by which is
  cheaper.
  lengths (B) int64 or None: row b has the steps 0 ... lengths[b] - 1; the state stays as it is beyond them, the output
  is 0 there. reverse: the steps are taken last to first, output[t] is the state after step t was taken.
  saved (T, B, K H), only with save: for `manual` blocks v = u @ h, then r, then z where the gates are on, then the
  candidate c; `native` saves less (csrc/goru_forward.h).
  EURNN is complex if h0 is. There weight_ih is (2H, I), output the real part, and saved the pre-activation (T, B, H),
  in the backend's own order; a real EURNN saves nothing.
An optional result that does not exist is an empty tensor.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ..rotations import Mesh
from . import manual, native
from .lengths import check as check_lengths
from .watching import no_vmap, refuse_batches, unwatched

BACKENDS: dict[str, ModuleType] = {"manual": manual, "native": native}

# ------------------------------------------------------------------------------------------------- mesh


@torch.library.custom_op("goru::mesh_matrix", mutates_args=())
def mesh_matrix(angles: Tensor, kind: str, size: int, capacity: int | None, complex: bool, backend: str) -> Tensor:
    return BACKENDS[backend].mesh_matrix(angles, Mesh(kind, size, capacity, complex))


@torch.library.custom_op("goru::mesh_matrix_backward", mutates_args=())
def mesh_matrix_backward(
    grad: Tensor,
    u: Tensor,
    angles: Tensor,
    kind: str,
    size: int,
    capacity: int | None,
    complex: bool,
    backend: str,
) -> Tensor:
    return BACKENDS[backend].mesh_matrix_backward(grad, u, angles, Mesh(kind, size, capacity, complex))


@mesh_matrix.register_fake
def _(angles, kind, size, capacity, complex, backend):
    return angles.new_empty((size, size), dtype=angles.dtype.to_complex() if complex else angles.dtype)


@mesh_matrix_backward.register_fake
def _(grad, u, angles, kind, size, capacity, complex, backend):
    return torch.empty_like(angles)


def _mesh_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    angles, *ctx.spec = inputs
    ctx.save_for_backward(output, angles)


def _mesh_gradient(ctx: Any, grad: Tensor):
    u, angles = ctx.saved_tensors
    refuse_batches(ctx.spec[-1], grad)
    return mesh_matrix_backward(grad, u, angles, *ctx.spec), None, None, None, None, None


mesh_matrix.register_autograd(_mesh_gradient, setup_context=_mesh_context)


# ------------------------------------------------------------------------------------------------- GORU


def run_goru(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    save: bool,
    backend: str,
    kind: str = "fft",
    capacity: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """output (T, B, H), h_n (B, H), saved."""
    check_lengths(lengths, x.shape[0])
    return BACKENDS[backend].goru_forward(
        x, h0, weight_ih, weight_hh, bias, transition, lengths, _mesh(kind, h0, capacity),
        reset_gate, update_gate, reverse, save,
    )  # fmt: skip


def _goru_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    needs_x: bool,
    backend: str,
    kind: str = "fft",
    capacity: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x (empty unless needs_x), h0, weight_ih, weight_hh, bias, transition."""
    return BACKENDS[backend].goru_backward(
        grad_output, grad_h_n, x, h0, weight_ih, weight_hh, bias, transition, lengths, output, saved,
        _mesh(kind, h0, capacity), reset_gate, update_gate, reverse, needs_x,
    )  # fmt: skip


goru = torch.library.custom_op("goru::goru", run_goru, mutates_args=())
goru_backward = torch.library.custom_op("goru::goru_backward", _goru_backward, mutates_args=())


def _mesh(kind: str, h0: Tensor, capacity: int | None) -> Mesh:
    if h0.dim() != 2:
        raise RuntimeError(f"h0 must have the shape (B, H), got {tuple(h0.shape)}")
    return Mesh(kind, h0.shape[1], capacity, h0.is_complex())


def saved_blocks(reset_gate: bool, update_gate: bool, matrix: bool, backend: str) -> int:
    """K: how many blocks of H a GORU step saves for its backward pass; what they hold is the backend's own affair."""
    return native.saved_blocks(reset_gate, update_gate, matrix) if backend == "native" else 2 + reset_gate + update_gate


@goru.register_fake
def _(
    x, h0, weight_ih, weight_hh, bias, transition, lengths, reset_gate, update_gate, reverse, save, backend,
    kind="fft", capacity=None,
):  # fmt: skip
    T, B, H = x.shape[0], x.shape[1], h0.shape[1]
    saved = (T, B, saved_blocks(reset_gate, update_gate, transition.dim() == 2, backend) * H) if save else (0,)
    return x.new_empty((T, B, H)), x.new_empty((B, H)), x.new_empty(saved)


@goru_backward.register_fake
def _(
    grad_output, grad_h_n, x, h0, weight_ih, weight_hh, bias, transition, lengths, output, saved,
    reset_gate, update_gate, reverse, needs_x, backend, kind="fft", capacity=None,
):  # fmt: skip
    return (
        _like(x if needs_x else None, x), _like(h0, x), _like(weight_ih, x), _like(weight_hh, x), _like(bias, x),
        _like(transition, x),
    )  # fmt: skip


def _like(tensor: Tensor | None, other: Tensor) -> Tensor:
    return other.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape)


def _present(grad: Tensor | None, like: Tensor) -> Tensor:
    """A gradient that did not arrive is 0, without memory of its own."""
    return like.new_zeros(()).expand_as(like) if grad is None else grad


def _goru_context(ctx: Any, inputs: tuple, output: tuple) -> None:
    *tensors, ctx.reset_gate, ctx.update_gate, ctx.reverse, save, ctx.backend, ctx.kind, ctx.capacity = inputs
    if not save:
        raise RuntimeError("goru::goru was differentiated, but called with save=False")
    ctx.save_for_backward(*tensors, output[0], output[2])
    ctx.set_materialize_grads(False)  # `saved` never has a gradient: zeros in its size would cost more than a step


def _goru_gradient(ctx: Any, grad_output: Tensor | None, grad_h_n: Tensor | None, grad_saved: None):
    x, h0, weight_ih, weight_hh, bias, transition, lengths, output, saved = ctx.saved_tensors
    grad_output, grad_h_n = _present(grad_output, output), _present(grad_h_n, h0)
    refuse_batches(ctx.backend, grad_output, grad_h_n)
    backward = _goru_backward if _is_plain(ctx, grad_output, grad_h_n) else goru_backward
    dx, dh0, dweight_ih, dweight_hh, dbias, dtransition = backward(
        grad_output, grad_h_n, x, h0, weight_ih, weight_hh, bias, transition, lengths, output, saved,
        ctx.reset_gate, ctx.update_gate, ctx.reverse, ctx.needs_input_grad[0], ctx.backend, ctx.kind, ctx.capacity,
    )  # fmt: skip
    return (
        dx if ctx.needs_input_grad[0] else None,
        dh0,
        dweight_ih,
        None if weight_hh is None else dweight_hh,
        None if bias is None else dbias,
        dtransition,
        *(None,) * 8,
    )


goru.register_autograd(_goru_gradient, setup_context=_goru_context)


# ------------------------------------------------------------------------------------------------- EURNN


def run_eurnn(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    kind: str,
    capacity: int | None,
    reverse: bool,
    save: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """output (T, B, H) real, h_n (B, H), saved."""
    check_lengths(lengths, x.shape[0])
    mesh = _mesh(kind, h0, capacity)
    return BACKENDS[backend].eurnn_forward(x, h0, weight_ih, bias, transition, lengths, mesh, reverse, save)


def _eurnn_backward(
    grad_output: Tensor,
    grad_h_n: Tensor,
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    output: Tensor,
    saved: Tensor,
    kind: str,
    capacity: int | None,
    reverse: bool,
    needs_x: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x (empty unless needs_x), h0, weight_ih, bias, transition."""
    mesh = _mesh(kind, h0, capacity)
    return BACKENDS[backend].eurnn_backward(
        grad_output,
        grad_h_n,
        x,
        h0,
        weight_ih,
        bias,
        transition,
        lengths,
        output,
        saved,
        mesh,
        reverse,
        needs_x,
    )


eurnn = torch.library.custom_op("goru::eurnn", run_eurnn, mutates_args=())
eurnn_backward = torch.library.custom_op("goru::eurnn_backward", _eurnn_backward, mutates_args=())


@eurnn.register_fake
def _(x, h0, weight_ih, bias, transition, lengths, kind, capacity, reverse, save, backend):
    T, B, H = x.shape[0], x.shape[1], h0.shape[1]
    saved = (T, B, H) if h0.is_complex() else (0,)
    if backend == "native":
        mesh = Mesh(kind, H, capacity, h0.is_complex())
        saved = native.eurnn_saved_shape(T, B, mesh, transition.dim() == 1, x.dtype)
    return x.new_empty((T, B, H)), h0.new_empty((B, H)), h0.new_empty(saved if save else (0,))


@eurnn_backward.register_fake
def _(
    grad_output, grad_h_n, x, h0, weight_ih, bias, transition, lengths, output, saved,
    kind, capacity, reverse, needs_x, backend,
):  # fmt: skip
    return (
        _like(x if needs_x else None, x), _like(h0, x), _like(weight_ih, x), _like(bias, x), _like(transition, x),
    )  # fmt: skip


def _eurnn_context(ctx: Any, inputs: tuple, output: tuple) -> None:
    *tensors, ctx.kind, ctx.capacity, ctx.reverse, save, ctx.backend = inputs
    if not save:
        raise RuntimeError("goru::eurnn was differentiated, but called with save=False")
    ctx.save_for_backward(*tensors, output[0], output[2])
    ctx.set_materialize_grads(False)  # `saved` never has a gradient: zeros in its size would cost more than a step


def _eurnn_gradient(ctx: Any, grad_output: Tensor | None, grad_h_n: Tensor | None, grad_saved: None):
    x, h0, weight_ih, bias, transition, lengths, output, saved = ctx.saved_tensors
    grad_output, grad_h_n = _present(grad_output, output), _present(grad_h_n, h0)
    refuse_batches(ctx.backend, grad_output, grad_h_n)
    backward = _eurnn_backward if _is_plain(ctx, grad_output, grad_h_n) else eurnn_backward
    dx, dh0, dweight_ih, dbias, dtransition = backward(
        grad_output, grad_h_n, x, h0, weight_ih, bias, transition, lengths, output, saved,
        ctx.kind, ctx.capacity, ctx.reverse, ctx.needs_input_grad[0], ctx.backend,
    )  # fmt: skip
    return (
        dx if ctx.needs_input_grad[0] else None,
        dh0,
        dweight_ih,
        None if bias is None else dbias,
        dtransition,
        *(None,) * 6,
    )


eurnn.register_autograd(_eurnn_gradient, setup_context=_eurnn_context)


# ------------------------------------------------------------------------------------------------- calls nobody watches


def _plain(name: str, run: Any, context: Any, gradient: Any) -> Any:
    """An operator and its formula as a plain autograd function: torch's dispatcher costs as much as many steps."""

    def forward(ctx: Any, *inputs: Any):
        output = run(*inputs)
        context(ctx, inputs, output)
        ctx.plain = True
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
    return type(name, (torch.autograd.Function,), methods).apply


plain_goru = _plain("PlainGoru", run_goru, _goru_context, _goru_gradient)
plain_eurnn = _plain("PlainEurnn", run_eurnn, _eurnn_context, _eurnn_gradient)


def _is_plain(ctx: Any, *grads: Tensor) -> bool:
    """Whether a gradient is asked for by a plain function, for plain tensors, and will not be differentiated again."""
    return getattr(ctx, "plain", False) and not torch.is_grad_enabled() and unwatched(*grads)


# ------------------------------------------------------------------------------------------------- what they cannot do


def _no_second_gradient(ctx: Any, *grads: Tensor):
    raise RuntimeError(
        f"the {ctx.backend!r} backend differentiates once; for second derivatives build the layer with "
        "backend='reference' or use goru.use_backend('reference')"
    )


def _backend_of(inputs: tuple) -> str:
    return next(value for value in inputs if isinstance(value, str) and value in BACKENDS)


def _remember_backend(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.backend = _backend_of(inputs)


def _no_vmap(info: Any, in_dims: tuple, *args: Any):
    raise no_vmap(_backend_of(args))


for _operator in (mesh_matrix_backward, goru_backward, eurnn_backward):
    _operator.register_autograd(_no_second_gradient, setup_context=_remember_backend)
for _operator in (mesh_matrix, goru, eurnn, mesh_matrix_backward, goru_backward, eurnn_backward):
    _operator.register_vmap(_no_vmap)
    # Under autocast a recurrence stays in float32, as nn.GRU does on a CPU: rounding would pile up over the steps.
    for _device in ("cpu", "cuda"):
        _operator.register_autocast(_device, torch.float32)
