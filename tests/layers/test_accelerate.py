"""goru.accelerate: layers are replaced in place, with everything that belongs to them, or left with a reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import goru


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(3, 5, num_layers=2, bidirectional=True, dropout=0.25)
        self.middle = nn.ModuleDict({"lstm": nn.LSTM(10, 4, batch_first=True, bias=False), "other": nn.Linear(4, 4)})
        self.shared = self.encoder

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.encoder(x)
        output, _ = self.middle["lstm"](output.transpose(0, 1))
        return self.middle["other"](output)


def test_results_gradients_and_training_stay_the_same() -> None:
    torch.manual_seed(0)
    model = Model().double().eval()
    expected = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, expected)]  # before the replacement
    before = list(model.parameters())
    names = list(model.state_dict())
    done = goru.accelerate(model)
    assert done.replaced == ["encoder", "shared", "middle.lstm"]
    assert done.left == {}
    assert type(model.encoder) is goru.GRU
    assert model.shared is model.encoder
    assert type(model.middle["lstm"]) is goru.LSTM
    assert list(model.state_dict()) == names
    assert all(a is b for a, b in zip(model.parameters(), before, strict=True))
    assert not model.encoder.training
    assert model.encoder.dropout == 0.25
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    for _ in range(3):
        for m, optimizer in zip((model, expected), optimizers, strict=True):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_a_second_time_there_is_nothing_to_do() -> None:
    model = Model()
    goru.accelerate(model)
    done = goru.accelerate(model)
    assert done.replaced == []
    assert str(done) == "no nn.GRU and no nn.LSTM found"


def test_it_says_what_it_did() -> None:
    model = nn.Sequential(nn.GRU(2, 3), nn.LSTM(3, 4, proj_size=2))
    assert str(goru.accelerate(model)).splitlines() == [
        "0: replaced",
        "1: left as it is, it has projections (proj_size=2)",
    ]


def test_hooks_move_along_and_can_be_removed() -> None:
    model: Any = nn.Sequential(nn.GRU(2, 3))
    seen: list[str] = []
    handle = model[0].register_forward_hook(lambda module, args, result: seen.append(type(module).__name__))
    before = model[0].register_forward_pre_hook(lambda module, args: seen.append("before"))
    goru.accelerate(model)
    model(torch.zeros(2, 1, 2))
    assert seen == ["before", "GRU"]
    handle.remove()
    before.remove()
    model(torch.zeros(2, 1, 2))
    assert seen == ["before", "GRU"]


def test_tied_weights_stay_tied() -> None:
    model: Any = nn.Sequential(nn.LSTM(4, 4), nn.LSTM(4, 4))
    model[1].weight_hh_l0 = model[0].weight_hh_l0
    goru.accelerate(model)
    assert model[1].weight_hh_l0 is model[0].weight_hh_l0
    assert len(list(model.parameters())) == 7


class Own(nn.GRU):
    pass


def parametrized() -> nn.Module:
    layer = nn.GRU(2, 3)
    parametrizations.orthogonal(layer, "weight_hh_l0")
    return layer


@pytest.mark.filterwarnings("ignore")  # weight_norm is deprecated
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (parametrized, "parametrized"),
        (lambda: Own(2, 3), "Own is a subclass of nn.GRU"),
        (lambda: nn.LSTM(3, 4, proj_size=2), "projections"),
        (lambda: nn.utils.weight_norm(nn.GRU(2, 3), "weight_hh_l0"), "parameters are not those of torch"),
    ],
)
def test_what_would_not_behave_the_same_is_left_with_the_reason(make: Any, reason: str) -> None:
    layer = make()
    model: Any = nn.Sequential(layer, nn.GRU(2, 3))
    done = goru.accelerate(model)
    assert done.replaced == ["1"]
    assert reason in done.left["0"]
    assert model[0] is layer


def test_parametrized_after_acceleration() -> None:
    model: Any = nn.Sequential(nn.GRU(2, 3))
    goru.accelerate(model)
    parametrizations.weight_norm(model[0], "weight_hh_l0")
    model(torch.zeros(2, 1, 2))[0].sum().backward()
    assert parametrize.is_parametrized(model[0])


def test_a_layer_itself_is_refused() -> None:
    with pytest.raises(TypeError, match=r"build goru\.LSTM and load its state dict"):
        goru.accelerate(nn.LSTM(2, 3))
