"""The networks and the initial values of the paper's models."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import goru
from goru.lab import paper
from goru.lab.cells import LayerConfig, make_layer
from goru.lab.networks import StepTagger, count_parameters, one_hot, update_gates


def tagger(layer: LayerConfig, symbols: int = 10, outputs: int = 9) -> StepTagger:
    torch.manual_seed(0)
    return StepTagger(lambda size: make_layer(layer, size), symbols, outputs)


def fills(values: torch.Tensor, bound: float) -> bool:
    """Whether values look uniform in [-bound, bound]: inside it, and reaching nearly to both ends."""
    return bool(values.abs().max() <= bound and values.max() > 0.95 * bound and values.min() < -0.95 * bound)


def test_gru_starts_as_in_tensorflow() -> None:
    layer = make_layer(LayerConfig(cell="gru", hidden_size=100), 10)
    assert isinstance(layer, nn.GRU)
    weight_ih, weight_hh, bias_ih, bias_hh = layer.all_weights[0]
    gates, candidate = math.sqrt(6 / (110 + 200)), math.sqrt(6 / (110 + 100))
    for weight in (weight_ih, weight_hh):
        assert fills(weight[:200], gates)
        assert fills(weight[200:], candidate)
    assert (bias_ih[:200] == 1).all()
    assert (bias_ih[200:] == 0).all()
    assert (bias_hh == 0).all()


def test_lstm_starts_as_in_tensorflow() -> None:
    layer = make_layer(LayerConfig(cell="lstm", hidden_size=90), 10)
    assert isinstance(layer, nn.LSTM)
    weight_ih, weight_hh, bias_ih, bias_hh = layer.all_weights[0]
    assert fills(weight_ih, math.sqrt(6 / (100 + 360)))
    assert fills(weight_hh, math.sqrt(6 / (100 + 360)))
    assert (bias_ih[90:180] == 1).all()  # torch's order is input, forget, cell, output
    assert bias_ih.sum() == 90
    assert (bias_hh == 0).all()


def test_torchs_own_start_is_a_variant() -> None:
    layer: Any = make_layer(LayerConfig(cell="gru", hidden_size=100, init="torch"), 10)
    assert fills(layer.all_weights[0][0], 0.1)


def test_models_are_the_papers() -> None:
    models: dict[str, Any] = {name: make_layer(layer, 10) for name, layer in paper.SYNTHETIC_MODELS.items()}
    assert isinstance(models["goru"], goru.GORU)
    assert (models["goru"].hidden_size, models["gru"].hidden_size, models["lstm"].hidden_size) == (
        128,
        100,
        90,
    )
    for name in ("eurnn-real", "eurnn-complex"):
        assert isinstance(models[name], goru.EURNN)
        assert models[name].hidden_size == 512
    default: Any = models["goru"]  # the isinstance above has narrowed the entry itself
    # b_h, the last third of the bias: 0.01 in the final code, 2 in June 2017 (with another mesh).
    assert (default.bias_l0[-128:] == 0.01).all()
    assert (models["goru-june2017"].bias_l0[-128:] == 2).all()
    assert default.angles_l0.numel() == 64 * 7
    assert models["goru-june2017"].angles_l0.numel() == 64 + 63
    assert models["eurnn-real"].angles_l0.numel() == 256 + 255
    assert models["eurnn-complex"].angles_l0.numel() == 2 * 511 + 512


def test_head_and_counts() -> None:
    network = tagger(LayerConfig(cell="gru", hidden_size=100))
    assert fills(network.head.weight, math.sqrt(6 / 19))
    assert (network.head.bias == 0.01).all()
    assert count_parameters(network) == {
        "parameters": 300 * 10 + 300 * 100 + 600 + 900 + 9,
        "hidden_to_hidden_parameters": 30_000,
    }


@pytest.mark.parametrize("cell", ["goru", "eurnn", "gru", "lstm"])
def test_tagger_sees_one_hot_symbols(cell: str) -> None:
    network = tagger(LayerConfig(cell=cell, hidden_size=6, mesh="tunable"), symbols=4, outputs=3)
    symbols = torch.tensor([[0, 3], [2, 1]])
    vectors = torch.tensor([[[1.0, 0, 0, 0], [0, 0, 0, 1]], [[0, 0, 1, 0], [0, 1, 0, 0]]])
    assert torch.equal(one_hot(symbols, 4, network.head.weight), vectors)
    assert network(symbols).shape == (2, 2, 3)
    assert torch.equal(network(symbols), network.head(network.recurrent(vectors)[0]))


def test_update_gates() -> None:
    symbols = torch.randint(0, 10, (7, 3))
    for cell in ("goru", "gru"):
        gates = update_gates(tagger(LayerConfig(cell=cell, hidden_size=6)), symbols)
        assert gates is not None
        assert gates.shape == (7, 3, 6)
        assert ((gates > 0) & (gates < 1)).all()
    assert update_gates(tagger(LayerConfig(cell="lstm", hidden_size=6)), symbols) is None
    assert update_gates(tagger(LayerConfig(cell="eurnn", hidden_size=6)), symbols) is None
    assert update_gates(tagger(LayerConfig(hidden_size=6, update_gate=False)), symbols) is None
