"""Start a GORU from a trained nn.GRU.

The gates of the two are the same and are copied. The candidate differs: nn.GRU has tanh(W_in x + b_in + r (W_hn h +
b_hn)), GORU has modReLU(W_x x + r (U h), b_h). W_in is copied, U becomes the rotation nearest to W_hn that the mesh
can represent, b_h starts at 0, and b_in and b_hn are dropped; `Conversion` reports what is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..decomposition import angles_of_rotation, fit_angles, nearest_rotation
from .goru import GORU


@dataclass(frozen=True)
class Conversion:
    """The conversion of one layer in one direction.

    residual: `|U - Q| / |Q|` with Q the rotation nearest to W_hn: how well the mesh represents it.
    distance: `|U - W_hn| / |W_hn|`: how far U is from the GRU's own matrix, which need not be orthogonal.
    dropped_b_in, dropped_b_hn: the candidate's two biases, which a GORU does not have (None without biases).
    """

    layer: int
    reverse: bool
    residual: float
    distance: float
    dropped_b_in: Tensor | None
    dropped_b_hn: Tensor | None

    def __str__(self) -> str:
        where = f"layer {self.layer}" + (" (reverse)" if self.reverse else "")
        text = f"{where}: residual of U {self.residual:.2g}, distance from W_hn {self.distance:.2g}"
        if self.dropped_b_in is None or self.dropped_b_hn is None:
            return text
        return f"{text}, dropped |b_in| {self.dropped_b_in.norm():.2g} and |b_hn| {self.dropped_b_hn.norm():.2g}"


@torch.inference_mode(False)  # U is fitted by its gradient
@torch.no_grad()
def from_gru(gru: nn.GRU, *, mesh: str | None = None, capacity: int | None = None, **options: Any) -> GORU:
    """A GORU with the gates, sizes, device and dtype of `gru`; `layer.conversion` has a `Conversion` for
    each layer and direction. For the arguments, see `GORU.from_gru`.
    """
    if not isinstance(gru, nn.GRU):
        raise TypeError(f"from_gru needs a torch.nn.GRU, got {type(gru).__name__}")
    if not (options.get("reset_gate", True) and options.get("update_gate", True)):
        raise ValueError("from_gru copies both gates of a GRU: reset_gate and update_gate cannot be off")
    if "init" in options:
        raise ValueError("from_gru starts from the weights of a GRU: init has no effect")
    H = gru.hidden_size
    if mesh is None:
        mesh, capacity = "tunable", H if capacity is None else capacity
    weight: Tensor = gru.all_weights[0][0]
    layer = GORU(
        gru.input_size, H, gru.num_layers, gru.bias, gru.batch_first, gru.dropout, gru.bidirectional,
        mesh=mesh, capacity=capacity, device=weight.device, dtype=weight.dtype, **options,
    )  # fmt: skip
    layer.train(gru.training)
    report = []
    for k in range(gru.num_layers):
        for reverse, suffix in enumerate((f"_l{k}", f"_l{k}_reverse")[: layer.num_directions]):
            ours = layer._parameters_of(k, bool(reverse))
            ours["weight_ih"].copy_(getattr(gru, "weight_ih" + suffix))
            weight_hh = getattr(gru, "weight_hh" + suffix)
            ours["weight_hh"].copy_(weight_hh[: 2 * H])
            b_in = b_hn = None
            if gru.bias:
                bias_ih, bias_hh = getattr(gru, "bias_ih" + suffix), getattr(gru, "bias_hh" + suffix)
                ours["bias"][: 2 * H] = (bias_ih + bias_hh)[: 2 * H]
                ours["bias"][2 * H :] = 0
                b_in, b_hn = bias_ih[2 * H :].clone(), bias_hh[2 * H :].clone()
            W_hn = weight_hh[2 * H :].to("cpu", torch.float64)
            target = nearest_rotation(W_hn)
            spec = layer.unit.mesh
            exact = spec.kind == "tunable" and spec.capacity == H
            ours["angles"].copy_(angles_of_rotation(target) if exact else fit_angles(spec, target))
            u = layer.orthogonal_matrix(k, bool(reverse)).to("cpu", torch.float64)
            residual = ((u - target).norm() / target.norm()).item()
            distance = ((u - W_hn).norm() / W_hn.norm()).item() if W_hn.any() else float("inf")
            report.append(Conversion(k, bool(reverse), residual, distance, b_in, b_hn))
    layer.conversion = report
    return layer
