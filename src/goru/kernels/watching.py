"""Who else looks at a call: compilers, tracers, modes, transforms, autocast, forward-mode derivatives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

T = TypeVar("T")

_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(torch._C, "_are_functorch_transforms_active", None)
_tracing = getattr(torch._C, "_is_tracing", None)
_INSTEAD = "build the layer with backend='reference' or use goru.use_backend('reference')"


def unwatched(*tensors: Tensor | None) -> bool:
    """Whether a call may go past torch's dispatcher: plain tensors, and no compiler, tracer, mode, transform or
    autocast that would want to see it. False where this torch cannot tell."""
    return (
        _modes is not None
        and _transforms is not None
        and _tracing is not None
        and not torch.compiler.is_compiling()
        and _modes() == 0
        and not _transforms()
        and not torch.is_autocast_enabled("cpu")
        and not _tracing()
        and all(t is None or (type(t) in (Tensor, torch.nn.Parameter) and t.device.type == "cpu") for t in tensors)
    )


def kept(make: Callable[..., T]) -> Callable[..., T]:
    """Keeps constant tensors by the arguments that they are made from: plain ones alone, which fit any later call.

    While somebody watches they are made anew: what is made there may be a stand-in that means nothing elsewhere.
    """

    @cache
    def remembered(*arguments: Any) -> T:
        with torch.inference_mode(False):
            return make(*arguments)

    @wraps(make)
    def look_up(*arguments: Any) -> T:
        return remembered(*arguments) if unwatched() else make(*arguments)

    return look_up


def refuse_transforms(backend: str, *tensors: Tensor | None) -> None:
    """RuntimeError where torch would want a derivative that a hand-derived backward pass cannot give."""
    if torch.compiler.is_compiling():
        return
    given = [t for t in tensors if t is not None]
    dual = forward_ad._current_level >= 0 and any(forward_ad.unpack_dual(t).tangent is not None for t in given)
    if dual or (_transforms is not None and _transforms() and any(_is("gradtracking", t) for t in given)):
        raise RuntimeError(
            f"the {backend!r} backend knows neither forward-mode derivatives nor those of torch.func; {_INSTEAD}"
        )


def refuse_batches(backend: str, *tensors: Tensor) -> None:
    """RuntimeError for the gradients that torch.autograd.grad(is_grads_batched=True) sends through a backward pass."""
    if any(_is("legacy_batched", t) for t in tensors):
        raise no_vmap(backend)


def no_vmap(backend: str) -> RuntimeError:
    return RuntimeError(f"the {backend!r} backend cannot run under torch.vmap; {_INSTEAD}")


def _is(kind: str, tensor: Tensor) -> bool:
    """Whether torch.func, or the vmap that came before it, has wrapped a tensor."""
    test = getattr(getattr(torch._C, "_functorch", None), f"is_{kind}tensor", None)
    return test is not None and bool(test(tensor))


def autocast_enabled(tensor: Tensor) -> bool:
    kind = tensor.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def full_precision(tensor: Tensor) -> AbstractContextManager[Any]:
    """The operators leave autocast by themselves; plain torch has to be told."""
    return torch.autocast(tensor.device.type, enabled=False) if autocast_enabled(tensor) else nullcontext()
