"""The networks and the initial values of the paper's models."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import goru
from goru.kernels import backends
from goru.lab import paper
from goru.lab.cells import BACKENDS, STUDIED, LayerConfig, make_layer
from goru.lab.errors import LabError
from goru.lab.networks import Dropout, StepTagger, count_parameters, one_hot, update_gates


def tagger(layer: LayerConfig, symbols: int = 10, outputs: int = 9) -> StepTagger:
    torch.manual_seed(0)
    return StepTagger(lambda size: make_layer(layer, size), symbols, outputs)


def fills(values: torch.Tensor, bound: float) -> bool:
    """Whether values look uniform in [-bound, bound]: inside it, and reaching nearly to both ends."""
    return bool(values.abs().max() <= bound and values.max() > 0.95 * bound and values.min() < -0.95 * bound)


def test_the_names_of_the_backends_are_those_of_the_library() -> None:
    assert ("auto", *backends.BACKENDS) == BACKENDS


def test_gru_starts_as_in_tensorflow() -> None:
    layer = make_layer(LayerConfig(cell="gru", hidden_size=100), 10)
    assert isinstance(layer, goru.GRU)
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
    assert isinstance(layer, goru.LSTM)
    weight_ih, weight_hh, bias_ih, bias_hh = layer.all_weights[0]
    assert fills(weight_ih, math.sqrt(6 / (100 + 360)))
    assert fills(weight_hh, math.sqrt(6 / (100 + 360)))
    assert (bias_ih[90:180] == 1).all()  # torch's order is input, forget, cell, output
    assert bias_ih.sum() == 90
    assert (bias_hh == 0).all()


def test_torchs_own_start_is_a_variant() -> None:
    layer: Any = make_layer(LayerConfig(cell="gru", hidden_size=100, init="torch"), 10)
    assert fills(layer.all_weights[0][0], 0.1)


def test_chrono_start_of_a_gru_and_an_lstm() -> None:
    """Tallec and Ollivier: the bias of the gate that keeps the state is ln of a uniform time up to the memory."""
    gru: Any = make_layer(LayerConfig(cell="gru", hidden_size=1000, init="chrono", memory=200), 10)
    times = gru.bias_ih_l0[1000:2000].exp()
    assert fills(times - 100, 99.01)
    assert (gru.bias_ih_l0[:1000] == 1).all()  # the reset gate starts as in TensorFlow
    assert (gru.bias_ih_l0[2000:] == 0).all()
    lstm: Any = make_layer(LayerConfig(cell="lstm", hidden_size=1000, init="chrono", memory=200), 10)
    assert fills(lstm.bias_ih_l0[1000:2000].exp() - 100, 99.01)
    assert torch.equal(lstm.bias_ih_l0[:1000], -lstm.bias_ih_l0[1000:2000])
    assert (lstm.bias_ih_l0[2000:] == 0).all()


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("modrelu", [True, False])
@pytest.mark.parametrize("memory", [None, 5])
def test_a_goru_with_a_part_replaced(orthogonal: bool, modrelu: bool, memory: int | None) -> None:
    """Against the plain equations, outputs and gradients; with both parts it is the layer itself."""
    config = LayerConfig(hidden_size=6, memory=memory, orthogonal=orthogonal, modrelu=modrelu)
    torch.manual_seed(0)
    made: Any = make_layer(config, 3).double()
    whole = orthogonal and modrelu
    layer = made if whole else made.layer
    x, h0 = torch.randn(9, 4, 3, dtype=torch.float64), torch.randn(1, 4, 6, dtype=torch.float64)
    lengths = torch.tensor([9, 1, 4, 9])
    output, h_n = made(x, h0, lengths=lengths)
    u = layer.orthogonal_matrix() if orthogonal else made.weight_hh_c
    (b_r, b_z, b_h), h, rows = layer.bias_l0.chunk(3), h0[0], []
    b_h = b_h / (memory or 1)
    for t in range(9):
        (x_r, x_z, x_c), (h_r, h_z) = (
            (x[t] @ layer.weight_ih_l0.T).chunk(3, -1),
            (h @ layer.weight_hh_l0.T).chunk(2, -1),
        )
        r, z = torch.sigmoid(x_r + h_r + b_r), torch.sigmoid(x_z + h_z + b_z)
        a = x_c + r * (h @ u.T)
        c = goru.modrelu(a, b_h) if modrelu else torch.tanh(a + b_h)
        running = (t < lengths)[:, None]
        h = torch.where(running, z * h + (1 - z) * c, h)
        rows.append(torch.where(running, h, 0.0))
    torch.testing.assert_close(output, torch.stack(rows), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(h_n[0], h, rtol=1e-10, atol=1e-10)
    parameters: dict[str, Any] = dict(made.named_parameters())
    values = list(parameters.values())
    assert ("weight_hh_c" in parameters) != orthogonal
    weights = torch.randn_like(output)
    for ours, theirs in zip(
        torch.autograd.grad((output * weights).sum() + h_n.sum(), values),
        torch.autograd.grad((torch.stack(rows) * weights).sum() + h.sum(), values),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_free_matrix_starts_as_a_rotation_and_counts() -> None:
    torch.manual_seed(0)
    free: Any = make_layer(LayerConfig(hidden_size=8, orthogonal=False), 3)
    torch.manual_seed(0)
    plain: Any = make_layer(LayerConfig(hidden_size=8), 3)
    assert torch.equal(free.weight_hh_c, plain.orthogonal_matrix())
    assert count_parameters(free)["hidden_to_hidden_parameters"] == 3 * 8 * 8
    assert count_parameters(plain)["hidden_to_hidden_parameters"] == 2 * 8 * 8 + 12
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(free(x)[0], plain(x)[0])
    with pytest.raises(ValueError, match="need both gates"):
        make_layer(LayerConfig(hidden_size=8, orthogonal=False, reset_gate=False), 3)


def test_an_eurnn_can_start_with_the_authors_epsilon() -> None:
    plain: Any = make_layer(LayerConfig(cell="eurnn", hidden_size=8), 3)
    epsilon: Any = make_layer(LayerConfig(cell="eurnn", hidden_size=8, init="epsilon"), 3)
    assert (plain.bias_l0 == 0).all()
    assert torch.equal(epsilon.bias_l0, torch.full((8,), 0.01))
    for name in ("copying", "denoise", "parenthesis"):
        one = paper.experiment(name)
        assert one.config("eurnn-epsilon").layer == replace(one.config("eurnn-real").layer, init="epsilon")


@pytest.mark.parametrize("gates", [{}, {"reset_gate": False}])
def test_goru_can_start_with_the_authors_noise(gates: dict[str, Any]) -> None:
    """b_z uniform within Glorot's bound for a vector; everything else as published."""
    H = 300
    torch.manual_seed(0)
    plain: Any = make_layer(LayerConfig(hidden_size=H, **gates), 3)
    torch.manual_seed(0)
    noise: Any = make_layer(LayerConfig(hidden_size=H, init="noise", **gates), 3)
    begin = H if plain.reset_gate else 0
    b_z, bound = noise.bias_l0[begin : begin + H], (3 / H) ** 0.5
    assert b_z.abs().max() <= bound
    assert b_z.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
    with torch.no_grad():
        b_z.zero_()
    for ours, theirs in zip(noise.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    wrongs: list[dict[str, Any]] = [{"update_gate": False}, {"memory": 10}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="needs the update gate and excludes a memory"):
            make_layer(LayerConfig(hidden_size=8, init="noise", **wrong), 3)


@pytest.mark.parametrize(
    ("cell", "init"), [("goru", "epsilon"), ("goru", "chrono"), ("gru", "noise"), ("eurnn", "torch")]
)
def test_the_start_of_another_cell_is_refused(cell: Any, init: Any) -> None:
    """However the configuration came about, not only on the command line."""
    with pytest.raises(LabError, match=f"--init {init} is an initialization of .*, not of {cell.upper()}"):
        make_layer(LayerConfig(cell=cell, hidden_size=8, init=init), 3)


def test_dropout_draws_from_the_random_state_that_checkpoints_hold() -> None:
    """On a device with a generator of its own too; on the CPU it is torch's, bit for bit."""
    x = torch.randn(7, 5, 9, requires_grad=True)
    drawn = []
    for dropout in (Dropout(0.3), torch.nn.Dropout(0.3)):
        torch.manual_seed(3)
        kept = dropout(x)
        drawn.append((kept, *torch.autograd.grad(kept.sum(), x), torch.get_rng_state()))
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*drawn, strict=True))
    torch.manual_seed(3)
    assert Dropout(0.3)(x.detach().to("meta")).device.type == "meta"
    assert torch.equal(torch.get_rng_state(), drawn[0][-1])
    assert torch.equal(Dropout(0.3).eval()(x), x)


@pytest.mark.parametrize("options", [{"init": "chrono"}, {"memory": 10}])
def test_chrono_and_memory_need_each_other(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="together or not at all"):
        make_layer(LayerConfig(cell="gru", **options), 10)


def test_the_memory_of_a_model_follows_its_task() -> None:
    copying = paper.experiment("copying")
    assert copying.config("goru-memory").layer.memory == 200
    assert copying.config("goru-memory", "quick").layer.memory == 60
    assert copying.config("gru-chrono", "quick").layer.memory == 60
    assert copying.config("goru", "quick").layer.memory is None
    assert paper.experiment("lengths").config("goru-memory", "T1000").layer.memory == 1000
    layer: Any = make_layer(copying.config("goru-memory").layer, 10)
    assert layer.memory == (200.0,)


@pytest.mark.parametrize("name", STUDIED)
def test_every_start_of_the_study_can_be_drawn(name: str) -> None:
    layer: Any = make_layer(LayerConfig(hidden_size=16, init=name, memory=50), 10)
    chosen: Any = make_layer(LayerConfig(hidden_size=16, memory=50), 10)
    output, _ = layer(torch.randn(60, 2, 10))
    assert output.isfinite().all()
    same_blocks = torch.equal(layer.angles_l0 == 0, chosen.angles_l0 == 0)
    assert same_blocks == name.startswith("quarters")
    with pytest.raises(ValueError, match="needs a memory"):
        make_layer(LayerConfig(init=name), 10)


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
