"""Which implementation runs: argument > `use_backend` > GORU_BACKEND > automatic.

reference   the equations in plain torch, differentiated by autograd, also twice
manual      hand-derived backward pass in torch: any device, no compiler
native      C++ kernels: CPU, float32 and float64
auto        native where it can run, else manual
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..rotations import Mesh
from . import native, operators, reference
from .native import GoruSteps
from .watching import full_precision, refuse_transforms, unwatched

CHOICES = ("reference", "manual", "native", "auto")

_in_context: ContextVar[str | None] = ContextVar("goru_backend", default=None)


@dataclass(frozen=True)
class Choice:
    """A backend and, in a sentence, why it was taken."""

    backend: str
    reason: str


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Run layers inside the `with` block on one implementation; a layer's own `backend=` still comes first.

    A graph made by torch.compile or torch.export keeps the implementation that was chosen when it was traced.

    >>> import goru, torch
    >>> with goru.use_backend("reference"):
    ...     output, h_n = goru.GORU(3, 4)(torch.ones(5, 2, 3))
    """
    token = _in_context.set(check_name(name, "use_backend"))
    try:
        yield
    finally:
        _in_context.reset(token)


def check_name(name: str, where: str) -> str:
    if name not in CHOICES:
        raise ValueError(f"{where} must be one of {', '.join(map(repr, CHOICES))}, got {name!r}")
    return name


def choose(argument: str | None, device: torch.device, dtype: torch.dtype) -> Choice:
    """The backend for a layer whose constructor was given `argument`, on this device and with this dtype."""
    if argument is None:
        wanted, source = _preference()
    else:
        wanted, source = check_name(argument, "backend"), f"backend={argument!r} was given to the layer"
    obstacle = native_obstacle(device, dtype)
    if wanted == "native" and obstacle is not None:
        raise RuntimeError(f"the native backend cannot run here ({source}): {obstacle}")
    if wanted != "auto":
        return Choice(wanted, source)
    if obstacle is None:
        return Choice("native", f"{source}: the native kernels are the fastest on a CPU")
    return Choice("manual", f"{source}: {obstacle}")


# The two functions below are asked once when torch.compile traces a graph, which then stays as it is: a compiler can
# follow neither context variables nor the loading of a library.
@torch.compiler.assume_constant_result
def _preference() -> tuple[str, str]:
    """What the context or the environment asks for, and which of them does."""
    if (context := _in_context.get()) is not None:
        return context, f"inside use_backend({context!r})"
    if env := os.environ.get("GORU_BACKEND"):
        return check_name(env, "the environment variable GORU_BACKEND"), f"GORU_BACKEND={env}"
    return "auto", "automatic choice"


@torch.compiler.assume_constant_result
def _native_missing() -> str | None:
    return native.unavailable_reason()


def native_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the native kernels cannot take a tensor like this; None if they can."""
    if device.type != "cpu":
        return f"the native kernels run on the CPU, the layer is on {device}"
    if dtype not in (torch.float32, torch.float64):
        return f"the native kernels know float32 and float64, the layer has {dtype}"
    return _native_missing()


def mesh_matrix(angles: Tensor, mesh: Mesh, backend: str) -> Tensor:
    """U (H, H) from its angles."""
    if backend == "reference":
        return mesh.matrix(angles)
    refuse_transforms(backend, angles)
    return operators.mesh_matrix(angles, mesh.kind, mesh.size, mesh.capacity, mesh.complex, backend)


def goru(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor | None,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    mesh: Mesh,
    *,
    reset_gate: bool,
    update_gate: bool,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """output (T, B, H) and h_n (B, H) of one layer in one direction; letters as in operators.py."""
    if backend == "reference":
        with full_precision(x):
            u = transition
            return reference.goru(x, h0, weight_ih, weight_hh, bias, u, lengths, reset_gate, update_gate, reverse)
    tensors = (x, h0, weight_ih, weight_hh, bias, transition)
    refuse_transforms(backend, *tensors)
    save = _needs_gradient(*tensors)
    run = operators.goru
    if unwatched(*tensors):
        run = operators.plain_goru if save else operators.run_goru
    output, h_n, _ = run(
        x, h0, weight_ih, weight_hh, bias, transition, lengths, reset_gate, update_gate, reverse, save, backend,
        mesh.kind, mesh.capacity,
    )  # fmt: skip
    return output, h_n


def goru_step(
    steps: GoruSteps, x: Tensor, h: Tensor, parameters: tuple[Tensor | None, ...], argument: str | None
) -> Tensor | None:
    """The state after one step without gradients, the short way; None where this call has to go the long one.

    `parameters`: weight_ih, weight_hh, bias, angles.
    """
    weight, _, _, angles = parameters
    if weight is None or angles is None or not unwatched(x, h):
        return None
    if choose(argument, weight.device, weight.dtype).backend != "native":
        return None
    refuse_transforms("native", x, h, *parameters)
    return steps.step(x, h, parameters)


def eurnn(
    x: Tensor,
    h0: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    transition: Tensor,
    lengths: Tensor | None,
    mesh: Mesh,
    *,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """output (T, B, H), real, and h_n (B, H). The transition is U or the angles of the mesh."""
    if backend == "reference":
        with full_precision(x):
            return reference.eurnn(x, h0, weight_ih, bias, transition, lengths, mesh, reverse)
    tensors = (x, h0, weight_ih, bias, transition)
    refuse_transforms(backend, *tensors)
    save = _needs_gradient(*tensors)
    run = operators.eurnn
    if unwatched(*tensors):
        run = operators.plain_eurnn if save else operators.run_eurnn
    output, h_n, _ = run(x, h0, weight_ih, bias, transition, lengths, mesh.kind, mesh.capacity, reverse, save, backend)
    return output, h_n


def goru_prefers_rotations(mesh: Mesh, backend: str) -> bool:
    """Whether a GORU should turn its state layer by layer or multiply by U; in torch the product always wins, since it
    is one with the gates'."""
    return backend == "native" and native.goru_prefers_rotations(mesh)


def prefers_rotations(mesh: Mesh, steps: int, batch: int, backend: str) -> bool:
    """Whether an EURNN should rotate its state layer by layer, O(H L) a step, or multiply by U, O(H^2)."""
    if backend == "native":
        return native.prefers_rotations(mesh, steps, batch)
    # In torch a mesh layer is three passes over the state, each bound by memory: about 24 multiplications a number.
    return 24 * mesh.num_layers < mesh.size


def _needs_gradient(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


@cache
def mention_pure_torch() -> None:
    """Say once in a process, and not as a warning that could become an error, that the native kernels are missing."""
    if (reason := native.unavailable_reason()) is not None:
        logging.getLogger("goru").warning("goru runs in pure torch, slower than its native kernels: %s", reason)
