"""GORU with a part replaced: a free matrix instead of U, tanh instead of modReLU. What does each part buy?

A GORU with both replaced is a GRU: n = tanh(W x + b + r (U h)).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import goru
from goru.kernels import backends
from goru.kernels.gated import GRU, GatedOptions, GruInputs
from goru.kernels.goru import GORU, GoruInputs, GoruOptions


class AblatedGORU(nn.Module):
    """A GORU of one layer, with its parameters and initial values, but for the part that is replaced.

    A free matrix starts as the rotation; with tanh, b_h is a bias inside of it.
    """

    def __init__(self, layer: goru.GORU, *, orthogonal: bool, modrelu: bool) -> None:
        super().__init__()
        self.hidden_size, self.modrelu = layer.hidden_size, modrelu
        self.layer = layer
        if not orthogonal:
            self.weight_hh_c = nn.Parameter(layer.orthogonal_matrix().detach().clone())
            layer.register_parameter("angles_l0", None)

    def forward(self, x: Tensor, hx: Tensor | None = None, *, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        H = self.hidden_size
        h0 = x.new_zeros(x.shape[1], H) if hx is None else hx[0]
        layer = self.layer
        weight_ih, weight_hh, bias = (layer.get_parameter(f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias"))
        u = getattr(self, "weight_hh_c", None)
        if u is None:
            u = layer.orthogonal_matrix()
        if layer.memory is not None:
            bias = torch.cat([bias[:-H], bias[-H:] / layer.get_buffer("memory_l0")])
        kernel = GORU if self.modrelu else GRU
        backend = backends.choose(layer.backend, x.device, x.dtype, kernel.name, H)
        if self.modrelu:
            inputs = GoruInputs(x, h0, weight_ih, weight_hh, bias, u, None, lengths)
            output, h_n = GORU(inputs, GoruOptions(layer.unit.mesh), backend)
        else:
            gates = torch.cat([weight_hh, u])
            inputs = GruInputs(x, h0, weight_ih, gates, bias, torch.zeros_like(bias), lengths)
            output, h_n = GRU(inputs, GatedOptions(), backend)
        return output, h_n.unsqueeze(0)
