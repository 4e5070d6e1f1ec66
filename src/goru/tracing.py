"""Detects what else observes a call: compilers, tracers, modes, transforms, autocast, forward-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
_tracing = getattr(torch._C, "_is_tracing", None)
_PLAIN = (Tensor, torch.nn.Parameter)


def untraced(*tensors: Tensor | None) -> bool:
    """Whether a call may bypass torch's dispatcher: plain tensors, and no compiler, tracer, mode, transform or autocast
    that has to see it. False if this version of torch cannot tell."""
    if (
        _modes is None
        or _transforms is None
        or _tracing is None
        or torch.compiler.is_compiling()
        or _modes() != 0
        or _transforms()
        or torch.is_autocast_enabled("cpu")
        or _tracing()
    ):
        return False
    for tensor in tensors:  # noqa: SIM110 (a generator costs as much as a good part of a single step)
        if tensor is not None and not (type(tensor) in _PLAIN and tensor.is_cpu):
            return False
    return True


def cached_constants(make: Callable[..., T]) -> Callable[..., T]:
    """Caches constant tensors by the arguments that they are made from.

    A traced call creates new ones: they may be fake tensors, which are meaningless in another call.
    """

    @cache
    def cached(*arguments: Any) -> T:
        with torch.inference_mode(False):
            return make(*arguments)

    @wraps(make)
    def look_up(*arguments: Any) -> T:
        return cached(*arguments) if untraced() else make(*arguments)

    return look_up


def constant_when_compiled(function: F) -> F:
    """torch.compile calls the function once, when it traces a graph, and treats the result as a constant: a compiler
    cannot follow context variables, or the loading of a library.

    Like torch.compiler.assume_constant_result, but without importing torch._dynamo, which takes seconds.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@constant_when_compiled
def _inside_transforms() -> bool:
    return _transforms is not None and _transforms()


def transformed(*tensors: Tensor | None) -> bool:
    """Whether torch.func or forward mode wants to differentiate or batch a call, which only plain torch operations
    allow."""
    if _inside_transforms():
        return True
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return False
    return any(t is not None and forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def batched_by_autograd(*tensors: Tensor) -> bool:
    """Whether these are gradients that torch.autograd.grad(is_grads_batched=True) sends through a backward pass."""
    return any(_is("legacy_batched", t) for t in tensors)


def wrapped(tensor: Tensor | None) -> bool:
    """Whether torch.func has wrapped a tensor, whose values cannot be read then."""
    return tensor is not None and _is("functorch_wrapped_", tensor)


def _is(kind: str, tensor: Tensor) -> bool:
    """Whether torch.func, or the vmap that came before it, has wrapped a tensor."""
    test = getattr(getattr(torch._C, "_functorch", None), f"is_{kind}tensor", None)
    return test is not None and bool(test(tensor))


@constant_when_compiled
def _autocast_exists(kind: str) -> bool:
    return torch.amp.is_autocast_available(kind)


def autocast_enabled(tensor: Tensor) -> bool:
    kind = tensor.device.type
    return _autocast_exists(kind) and torch.is_autocast_enabled(kind)


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """Disables autocast. The operators do this themselves; plain torch operations need this."""
    return torch.autocast(tensor.device.type, enabled=False) if autocast_enabled(tensor) else nullcontext()
