"""Which implementation runs: argument > `use_backend` > GORU_BACKEND > automatic.

reference   the equations in plain torch, differentiated by autograd, also twice
manual      hand-derived backward pass in torch: any device, no compiler
native      C++ kernels: CPU; half precision runs in float32
triton      GORU on NVIDIA devices, float32 and bfloat16
auto        the first of triton, native and manual that can run

A backend is an object of `Backend` with a kernel for each recurrence that it implements. `register` adds one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..rotations import Mesh
from ..tracing import constant_when_compiled

Gradients = tuple[Tensor | None, ...]


def _never(mesh: Mesh) -> bool:
    return False


@dataclass(frozen=True)
class Equations:
    """A recurrence in plain torch operations, which autograd differentiates: run(inputs, options) -> results."""

    run: Callable[[Any, Any], tuple[Tensor, ...]]
    rotates: Callable[[Mesh], bool] = _never


@dataclass(frozen=True)
class Kernel:
    """A recurrence with its own backward pass. The recurrence (recurrence.py) defines `inputs`, `options` and results.

    forward(inputs, options, save) -> (*results, saved): `saved` is for the backward pass, empty without `save`.
    backward(inputs, options, output, saved, grads, needs_x) -> the gradient of each input that can have one; None for
        an input that is None, and for the first input unless `needs_x`.
    saved(inputs, options) -> the shape of `saved`, known from the shapes of the inputs alone; its dtype is that of the
        last result.
    rotates(mesh) -> whether it prefers the angles of a mesh to its matrix.
    stepper(cell, options) -> a runner of single steps of the cell without gradients (native/steps.py), or None.
    """

    forward: Callable[[Any, Any, bool], tuple[Tensor, ...]]
    backward: Callable[[Any, Any, Tensor, Tensor, tuple[Tensor, ...], bool], Gradients]
    saved: Callable[[Any, Any], tuple[Any, ...]]
    rotates: Callable[[Mesh], bool] = _never
    stepper: Callable[[Any, Any], Callable[..., Any] | None] | None = None


@dataclass
class Backend:
    """A way to run recurrences: where it can run, and its kernels by the name of the recurrence."""

    name: str
    merit: str  # why to prefer it where it can run, as a clause; "" if only because others cannot run
    automatic: bool = True  # whether "auto" may choose it
    largest_hidden: int | None = None  # the most hidden units that it supports, None for any number
    kernels: dict[str, Kernel | Equations] = field(default_factory=dict)

    def obstacle(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Why it cannot run a layer on this device with this dtype, as a clause; None if it can."""
        return None

    def missing(self) -> str | None:
        """Why it cannot run at all although this machine is suitable, as a clause; None if it can."""
        return None

    def level(self, device: torch.device) -> str:
        """The instruction set, or the model of the device: the last bits of a result depend on it."""
        return torch_level(device)

    def obstacle_to(
        self, recurrence: str | None, device: torch.device, dtype: torch.dtype, hidden: int | None
    ) -> str | None:
        if recurrence is not None and recurrence not in self.kernels:
            return f"the {self.name} backend does not implement {recurrence}"
        if hidden is not None and self.largest_hidden is not None and hidden > self.largest_hidden:
            return f"the {self.name} kernels take up to {self.largest_hidden} hidden units, the layer has {hidden}"
        return self.obstacle(device, dtype)


def torch_level(device: torch.device) -> str:
    """The instruction set of torch's own operations on a CPU; the model of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()


REFERENCE = Backend("reference", "the plain equations", automatic=False)
MANUAL = Backend("manual", "")
BACKENDS: dict[str, Backend] = {"reference": REFERENCE, "manual": MANUAL}  # "auto" prefers the last one that can run

_VARIABLES: Any = getattr(
    os.environ, "_data", os.environ
)  # the dictionary of os.environ, with keys as the system has them
_KEY: Any = "GORU_BACKEND" if _VARIABLES is os.environ else os.environ.encodekey("GORU_BACKEND")
_in_context: ContextVar[str | None] = ContextVar("goru_backend", default=None)


def register(backend: Backend) -> Backend:
    """Register a backend by its name; `auto` prefers it to earlier ones."""
    if backend.name in (*BACKENDS, "auto"):
        raise ValueError(f"a backend needs a unique name, got {backend.name!r}, which exists")
    BACKENDS[backend.name] = backend
    return backend


def kernel(backend: str, recurrence: str) -> Kernel | Equations:
    found = BACKENDS[backend].kernels.get(recurrence) if backend in BACKENDS else None
    if found is None:
        raise RuntimeError(f"there is no backend {backend!r} with the recurrence {recurrence!r}; use another backend")
    return found


@dataclass(frozen=True)
class Choice:
    """A backend and the reason for the choice. `requested` is the name that the layer was given, or "auto": a graph
    stores it and chooses again when it runs."""

    backend: str
    reason: str
    requested: str


def as_choice(backend: Choice | str) -> Choice:
    """A backend given by name is the one that runs, now and later."""
    return backend if isinstance(backend, Choice) else Choice(backend, "it was named", backend)


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Choose the implementation for layers inside the `with` block; a layer's own `backend=` takes precedence.

    A graph compiled for training keeps the implementation that was chosen when it was traced, and so does every graph
    traced with "reference", which is plain torch. All others choose when they run.

    Args:
        name: "native" (C++ kernels, CPU), "triton" (GORU on NVIDIA devices), "manual" (torch, with a hand-derived
            backward pass), "reference" (the plain equations), or "auto": the first of these that can run.

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
    if name not in BACKENDS and name != "auto":
        names = ", ".join(map(repr, (*BACKENDS, "auto")))
        raise ValueError(f"{where} must be one of {names}, got {name!r}")
    return name


def choose(
    argument: str | None,
    device: torch.device,
    dtype: torch.dtype,
    recurrence: str | None = None,
    hidden: int | None = None,
) -> Choice:
    """The backend for a layer with `backend=argument`, on this device, with this dtype and size."""
    if argument is None:
        wanted, source = preference()
    else:
        wanted, source = check_name(argument, "backend"), f"backend={argument!r} was given to the layer"
    requested = "auto" if argument is None else argument
    if wanted != "auto":
        obstacle = BACKENDS[wanted].obstacle_to(recurrence, device, dtype, hidden)
        if obstacle is not None:
            raise RuntimeError(f"the {wanted} backend cannot run here ({source}): {obstacle}")
        return Choice(wanted, source, requested)
    obstacles = []
    for backend in reversed(BACKENDS.values()):
        if not backend.automatic:
            continue
        obstacle = backend.obstacle_to(recurrence, device, dtype, hidden)
        if obstacle is None:
            merits = [*obstacles, backend.merit] if backend.merit else obstacles
            return Choice(backend.name, f"{source}: {'; '.join(merits)}", requested)
        obstacles.append(obstacle)
    raise RuntimeError(f"no backend can run here ({source}): {'; '.join(obstacles)}")


@constant_when_compiled
def preference() -> tuple[str, str]:
    """The backend that the context or the environment requests, and where the request comes from."""
    if (context := _in_context.get()) is not None:
        return context, f"inside use_backend({context!r})"
    # os.environ.get raises and catches an error if the variable is not set, which takes a good part of a single step.
    if _KEY in _VARIABLES and (env := os.environ.get("GORU_BACKEND")):
        return check_name(env, "the environment variable GORU_BACKEND"), f"GORU_BACKEND={env}"
    return "auto", "automatic choice"


@cache
def mention_missing() -> None:
    """Log once per process that fast kernels are missing; not as a warning, which could become an error."""
    for backend in BACKENDS.values():
        if (reason := backend.missing()) is not None:
            logging.getLogger("goru").warning(
                "goru runs in pure torch, slower than its %s kernels: %s", backend.name, reason
            )
