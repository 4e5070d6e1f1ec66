"""dtype and device arguments, conversions, bfloat16, autocast and the meta device."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import goru
from tests.specimens import BY_NAME, KINDS, PLAIN, Kind, assert_close, draw, lively, rounding

F32, F64 = torch.float32, torch.float64
I, H = 3, 4

each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
backends = pytest.mark.parametrize("backend", ["auto", "reference", "manual"])


def shape_of(value: Any) -> Any:
    if isinstance(value, PackedSequence):
        return ("packed", tuple(value.data.shape), value.batch_sizes.tolist())
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return [shape_of(item) for item in value]


@each_kind
def test_dtype_argument_and_to(kind: Kind):
    assert all(p.dtype == F64 for p in kind.layer(I, H, dtype=F64).parameters())
    layer = lively(kind.layer(I, H))
    assert all(p.dtype == F32 for p in layer.parameters())
    layer = layer.to(F64)
    output, h_n = layer(draw(5, 2, I))
    assert output.dtype == F64
    assert h_n.dtype == kind.state_dtype(F64)
    layer.float()
    assert layer(draw(5, 2, I, dtype=F32))[1].dtype == kind.state_dtype(F32)


@each_kind
def test_to_after_a_pass_in_inference(kind: Kind):
    layer = lively(kind.layer(I, H), b_h="negative").eval()
    x = draw(5, 2, I, dtype=F32)
    with torch.no_grad():
        single = layer(x)[0]
        double = layer.double()(x.double())[0]
        assert double.dtype == F64
        assert_close(single, double, rounding(F32, 5, 2 * H + I))
        assert torch.equal(layer.float()(x)[0], single)


def test_default_dtype_is_respected():
    torch.set_default_dtype(F64)
    try:
        layer: Any = goru.GORU(I, H)
        assert layer.angles_l0.dtype == F64
        assert layer(torch.zeros(2, 1, I))[0].dtype == F64
    finally:
        torch.set_default_dtype(F32)


@plain_kinds
def test_device_argument(kind: Kind):
    layer = kind.layer(I, H, device="meta")
    assert all(p.device.type == "meta" for p in layer.parameters())
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert torch.isfinite(layer(torch.zeros(2, 1, I))[0]).all()
    assert next(kind.layer(I, H, device=torch.device("cpu")).parameters()).device.type == "cpu"


@plain_kinds
def test_shapes_on_the_meta_device(kind: Kind):
    """As nn.GRU: shapes can be worked out without memory."""
    x = torch.zeros(5, 2, I, device="meta")
    expected = shape_of(nn.GRU(I, H, 2, bidirectional=True, device="meta")(x))
    layer = kind.layer(I, H, num_layers=2, bidirectional=True, device="meta")
    output, h_n = layer(x)
    assert shape_of((output, h_n)) == expected
    assert output.device.type == h_n.device.type == "meta"


@backends
@pytest.mark.parametrize(
    "name",
    [
        "goru",
        "goru-tunable",
        "goru-no-reset",
        "goru-no-update",
        "goru-no-gates",
        "goru-no-bias",
        "eurnn-real",
    ],
)
def test_bfloat16(name: str, backend: str):
    """Follows the float32 layer with the same (rounded) parameters within the rounding of 8 bits, and trains.

    U is built in float32 and rounded, so that it is as orthogonal as bfloat16 can say.
    """
    kind, steps = BY_NAME[name], 4
    low = lively(kind.layer(I, H, backend=backend, dtype=torch.bfloat16), b_h="negative")
    high = kind.layer(I, H, backend=backend)
    high.load_state_dict({n: v.float() for n, v in low.state_dict().items()})
    x = draw(steps, 2, I, dtype=torch.bfloat16)
    output, h_n = low(x)
    assert output.dtype == h_n.dtype == torch.bfloat16
    # A few roundings of numbers of order 1 a step; terms inside a product are summed in float32.
    assert_close(output, high(x.float())[0], 4 * steps * torch.finfo(torch.bfloat16).eps, "output")
    output.float().square().sum().backward()
    for parameter_name, p in low.named_parameters():
        assert p.grad is not None, parameter_name
        assert p.grad.dtype == torch.bfloat16
        assert torch.isfinite(p.grad).all(), parameter_name
    # Each of H entries of a column is rounded by at most eps / 2: |U^T U - I| <= 2 * (eps / 2) * sqrt(H).
    assert low.orthogonality_error() <= torch.finfo(torch.bfloat16).eps * math.sqrt(H)


@backends
@pytest.mark.parametrize("name", ["goru", "goru-tunable", "eurnn-real"])
def test_u_of_a_bfloat16_layer_is_rounded_once(name: str, backend: str):
    """Built in float32 from the bfloat16 angles; built in bfloat16 it would lose a bit with every mesh layer."""
    kind = BY_NAME[name]
    low = lively(kind.layer(I, 64, backend=backend, dtype=torch.bfloat16))
    high = kind.layer(I, 64, backend=backend)
    high.load_state_dict({n: v.float() for n, v in low.state_dict().items()})
    U = low.orthogonal_matrix()
    assert U.dtype == torch.bfloat16
    # Half a unit in the last place of an entry below 1, and the rounding of float32 itself.
    assert (U.float() - high.orthogonal_matrix()).abs().max() <= torch.finfo(torch.bfloat16).eps / 4 + 1e-5


def test_bfloat16_with_a_complex_state():
    """There is no complex bfloat16: the state is complex64, parameters and output stay bfloat16."""
    low = lively(goru.EURNN(I, H, dtype=torch.bfloat16), b_h="negative")
    high = goru.EURNN(I, H)
    high.load_state_dict({n: v.float() for n, v in low.state_dict().items()})
    x, hx = draw(3, 2, I, dtype=torch.bfloat16), draw(1, 2, H, dtype=torch.complex64)
    output, h_n = low(x, hx)
    assert output.dtype == torch.bfloat16
    assert h_n.dtype == torch.complex64
    allowed = 4 * 3 * torch.finfo(torch.bfloat16).eps
    expected, expected_h = high(x.float(), hx)
    assert_close(output, expected, allowed)
    assert_close(h_n, expected_h, allowed)


@plain_kinds
def test_autocast(kind: Kind):
    """Under autocast nn.GRU takes float32 input and gives a usable gradient; so do we."""
    layer = lively(kind.layer(I, H), b_h="negative")
    x = draw(5, 2, I, dtype=F32)
    exact = layer(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        nn.GRU(I, H)(x)
        output, _ = layer(x)
    assert_close(output.float(), exact, 5 * 4 * torch.finfo(torch.bfloat16).eps)
    output.float().sum().backward()
    assert torch.isfinite(layer.angles_l0.grad).all()


RECURRENT: dict[str, tuple[Any, Any]] = {
    "GORU": (goru.GORU, nn.GRU),
    "EURNN": (lambda *sizes: goru.EURNN(*sizes, complex=False), nn.GRU),
    "GRU": (goru.GRU, nn.GRU),
    "GORUCell": (goru.GORUCell, nn.GRUCell),
    "EURNNCell": (lambda *sizes: goru.EURNNCell(*sizes, complex=False), nn.GRUCell),
    "GRUCell": (goru.GRUCell, nn.GRUCell),
    "LSTMCell": (goru.LSTMCell, nn.LSTMCell),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("state", [None, F32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16])
@pytest.mark.parametrize("kind", RECURRENT)
def test_results_under_autocast_have_the_dtypes_of_torch(kind, dtype, state, grad):
    ours, theirs = (make(I, H) for make in RECURRENT[kind])
    single = "Cell" in kind
    x = draw(*(() if single else (5,)), 2, I, dtype=F32).to(dtype)
    h = None if state is None else torch.zeros(*(() if single else (1,)), 2, H, dtype=state)
    hx = (h, h) if h is not None and "LSTM" in kind else h
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(grad):
        results, expected = ours(x, hx), theirs(x, hx)
    dtypes = [[r.dtype for r in ([made] if isinstance(made, torch.Tensor) else made)] for made in (results, expected)]
    assert dtypes[0] == dtypes[1]


def test_the_state_of_a_complex_layer_stays_complex_under_autocast():
    layer = goru.EURNN(I, H)
    x = draw(5, 2, I, dtype=F32).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, h_n = layer(x)
        again, _ = layer(x, h_n)
    assert (output.dtype, h_n.dtype, again.dtype) == (torch.bfloat16, torch.complex64, torch.bfloat16)


@pytest.mark.parametrize(("module", "error"), [(goru.GORU(I, H), ValueError), (goru.GORUCell(I, H), RuntimeError)])
def test_whole_numbers_are_refused_under_autocast_too(module, error):
    x = torch.ones(2, I, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(error, match="dtype"):
        module(x)
