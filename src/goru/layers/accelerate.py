"""Run the torch.nn.GRU and torch.nn.LSTM layers of an existing model on the kernels of this package."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn
from torch.nn.utils import parametrize

from .gated import like

# Attributes of every nn.Module that hold hooks. The new layer gets the same objects, so existing handles still remove
# their hooks.
HOOKS = [name for name in vars(nn.Module()) if name.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))]


@dataclass(frozen=True)
class Acceleration:
    """What `accelerate` did: the names of the layers that it replaced, and why it skipped others."""

    replaced: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{name}: replaced" for name in self.replaced]
        lines += [f"{name}: left as it is, {reason}" for name, reason in self.left.items()]
        return "\n".join(lines) or "no nn.GRU and no nn.LSTM found"


def accelerate(module: nn.Module) -> Acceleration:
    """Replace every torch.nn.GRU and torch.nn.LSTM inside `module`, in place, with the same layer on our kernels.

    The new layers reuse the parameters of the old ones (an optimizer keeps working, tied weights stay tied), their
    hooks, their mode and their state dict. A layer that would behave differently is skipped, with the reason.

    Args:
        module: the model; it is changed in place.

    Returns:
        `replaced`, the names of the replaced layers, and `left`, the reason for each layer that was skipped.

    >>> model = nn.Sequential(nn.LSTM(10, 20))
    >>> print(accelerate(model))
    0: replaced
    """
    if type(module) in (nn.GRU, nn.LSTM):
        name = type(module).__name__
        raise TypeError(
            f"accelerate replaces layers inside a module, got an nn.{name} itself: build goru.{name} and load its state"
            " dict"
        )
    done = Acceleration()
    new: dict[int, nn.Module] = {}  # one for each old layer, wherever it is used
    for path, parent in list(module.named_modules()):
        for name, child in list(parent._modules.items()):
            if not isinstance(child, nn.GRU | nn.LSTM):
                continue
            where = f"{path}.{name}" if path else name
            if (reason := _obstacle(child)) is not None:
                done.left[where] = reason
                continue
            if id(child) not in new:
                new[id(child)] = _replacement(child)
            parent._modules[name] = new[id(child)]
            done.replaced.append(where)
    return done


def _obstacle(layer: nn.GRU | nn.LSTM) -> str | None:
    """Why the layer cannot be replaced without changing its behavior, as a clause; None if it can."""
    if parametrize.is_parametrized(layer):
        return "it is parametrized: accelerate the model first, parametrize then"
    if type(layer) not in (nn.GRU, nn.LSTM):
        return f"{type(layer).__name__} is a subclass of nn.{'GRU' if isinstance(layer, nn.GRU) else 'LSTM'}"
    if layer.proj_size:
        return f"it has projections (proj_size={layer.proj_size})"
    names = {name for group in layer._all_weights for name in group}
    if {name for name, parameter in layer._parameters.items() if parameter is not None} != names:
        return "its parameters are not those of torch, as after torch.nn.utils.weight_norm"
    return None


def _replacement(old: nn.GRU | nn.LSTM) -> nn.Module:
    new = like(old)
    new.dropout = float(old.dropout)  # not an argument: torch has already warned if it has no effect
    new._parameters = old._parameters
    new.train(old.training)
    for name in HOOKS:
        setattr(new, name, getattr(old, name))
    return new
