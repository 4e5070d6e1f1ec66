"""The networks around a recurrent layer, and the layers as each model of the paper has them.

Legend: T steps, B batch, H hidden, S input symbols, O outputs of the head.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

import goru

if TYPE_CHECKING:
    from goru.lab.config import LayerConfig
    from goru.lab.tasks.task import MakeRecurrent

HEAD_BIAS = 0.01


class StepTagger(nn.Module):
    """One-hot symbols -> recurrent layer -> linear head at every step: (T, B) symbols to (T, B, O) logits."""

    def __init__(self, make_recurrent: MakeRecurrent, symbols: int, outputs: int) -> None:
        super().__init__()
        self.symbols = symbols
        self.recurrent: Any = make_recurrent(symbols)
        self.head = nn.Linear(self.recurrent.hidden_size, outputs)
        # The authors' code takes the numbers of symbols in and out as the fans of the head.
        bound = math.sqrt(6 / (symbols + outputs))
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.constant_(self.head.bias, HEAD_BIAS)

    def encode(self, symbols: Tensor) -> Tensor:
        """(T, B) symbols as (T, B, S) one-hot vectors, on the network's device."""
        symbols = symbols.to(self.head.weight.device)
        one_hot = self.head.weight.new_zeros(*symbols.shape, self.symbols)
        return one_hot.scatter_(-1, symbols.unsqueeze(-1), 1.0)

    def forward(self, symbols: Tensor) -> Tensor:
        return self.head(self.recurrent(self.encode(symbols))[0])


def update_gates(network: nn.Module, symbols: Tensor) -> Tensor | None:
    """The update gate (T, B, H) of a tagger on a batch; None when its layer has none."""
    recurrent = getattr(network, "recurrent", None)
    if not (isinstance(recurrent, nn.GRU) or getattr(recurrent, "update_gate", False)):
        return None
    with goru.gates.record(network) as records:
        network(symbols)
    return records[0].update


def make_layer(layer: LayerConfig, input_size: int) -> nn.Module:
    """The recurrent layer of a configuration, initialised."""
    backend = None if layer.backend == "auto" else layer.backend
    if layer.cell == "goru":
        return goru.GORU(
            input_size,
            layer.hidden_size,
            mesh=layer.mesh,
            capacity=layer.capacity,
            reset_gate=layer.reset_gate,
            update_gate=layer.update_gate,
            init=layer.init,
            backend=backend,
        )
    if layer.cell == "eurnn":
        return goru.EURNN(
            input_size,
            layer.hidden_size,
            complex=layer.complex,
            mesh=layer.mesh,
            capacity=layer.capacity,
            backend=backend,
        )
    baseline = (nn.GRU if layer.cell == "gru" else nn.LSTM)(input_size, layer.hidden_size)
    if layer.init != "torch":
        initialise_as_tensorflow(baseline)
    return baseline


@torch.no_grad()
def initialise_as_tensorflow(layer: nn.GRU | nn.LSTM) -> None:
    """TensorFlow 1's initial values: Glorot over the joined [x, h] matrices, biases 0 but for open gates.

    TensorFlow's GRU has one matrix for r and z together and one for the candidate, its LSTM one for all four.
    """
    H = layer.hidden_size
    parts = ((0, 2), (2, 3)) if isinstance(layer, nn.GRU) else ((0, 4),)
    opened = slice(0, 2 * H) if isinstance(layer, nn.GRU) else slice(H, 2 * H)  # r, z or the forget gate
    for k in range(layer.num_layers):
        weight_ih, weight_hh, bias_ih, bias_hh = layer.all_weights[k]
        for first, last in parts:
            bound = math.sqrt(6 / (weight_ih.shape[1] + H + (last - first) * H))
            for weight in (weight_ih, weight_hh):
                weight[first * H : last * H].uniform_(-bound, bound)
        bias_ih.zero_()
        bias_hh.zero_()
        bias_ih[opened] = 1.0


def count_parameters(network: nn.Module) -> dict[str, int]:
    """All parameters, and those that act on the state (what the paper matched between models)."""
    sizes = {name: p.numel() for name, p in network.named_parameters()}
    hidden = sum(size for name, size in sizes.items() if "weight_hh" in name or "angles" in name)
    return {"parameters": sum(sizes.values()), "hidden_to_hidden_parameters": hidden}
