"""Groups of parameters for an optimizer with weight decay."""

from __future__ import annotations

from typing import Any

from torch import nn

from .recurrent import RecurrentCell, RecurrentLayer


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """All parameters of `module` in two groups: with weight decay, and without it the angles of its meshes.

    Decay would pull the angles toward 0, and so U toward the identity.

    Args:
        module: the model.
        weight_decay: weight decay of all parameters except the angles.

    >>> import goru
    >>> model = nn.Sequential(nn.Linear(3, 4), goru.GORU(4, 8))
    >>> [group["weight_decay"] for group in parameter_groups(model, 0.01)]
    [0.01, 0.0]
    """
    angles = {
        id(parameter)
        for part in module.modules()
        if isinstance(part, RecurrentLayer | RecurrentCell)
        for name, parameter in part.named_parameters()
        if name.split(".")[-1].startswith("angles") or ".angles" in f".{name}"
    }
    decayed, kept = [], []
    for parameter in module.parameters():
        (kept if id(parameter) in angles else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]
