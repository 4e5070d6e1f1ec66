"""goru.GRU, goru.LSTM and their cells are torch's: constructor, parameters, results, gradients, forms of call."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import goru
from goru.kernels import native
from tests.specimens import assert_close, draw, rounding

F64 = torch.float64
T, B, I, H = 6, 4, 3, 7
PAIRS: dict[str, tuple[Any, Any]] = {"GRU": (goru.GRU, nn.GRU), "LSTM": (goru.LSTM, nn.LSTM)}
CELLS: dict[str, tuple[Any, Any]] = {"GRU": (goru.GRUCell, nn.GRUCell), "LSTM": (goru.LSTMCell, nn.LSTMCell)}
BACKENDS = ["reference", "manual"] + (["native"] if native.unavailable_reason() is None else [])
both = pytest.mark.parametrize("kind", PAIRS)
everywhere = pytest.mark.parametrize("backend", BACKENDS)


def pair(kind: str, *arguments: Any, backend: str | None = None, **options: Any) -> tuple[Any, Any]:
    """Our layer and torch's with the same weights, through the state dict."""
    ours, theirs = PAIRS[kind]
    torch.manual_seed(3)
    theirs = theirs(*arguments, **options)
    ours = ours(*arguments, **options, backend=backend)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def state(kind: str, *shape: int, dtype: torch.dtype = F64) -> Any:
    h = draw(*shape, seed=5, dtype=dtype)
    return (h, draw(*shape, seed=6, dtype=dtype)) if kind == "LSTM" else h


def parts(results: Any) -> list[Tensor]:
    """All tensors of a result, in order."""
    if isinstance(results, PackedSequence):
        return [results.data]
    return [results] if isinstance(results, Tensor) else [t for part in results for t in parts(part)]


def compare(ours: Any, theirs: Any, *arguments: Any, allowed: float, **more: Any) -> None:
    """Results and all gradients, the input's and the states' too."""
    found = []
    for module in (ours, theirs):
        leaves = [t.detach().clone().requires_grad_() for a in arguments for t in parts(a)]
        rest = iter(leaves)

        def rebuilt(argument: Any, rest: Any = rest) -> Any:
            if isinstance(argument, PackedSequence):
                return PackedSequence(next(rest), *argument[1:])
            return tuple(next(rest) for _ in argument) if isinstance(argument, tuple) else next(rest)

        module.zero_grad()
        results = parts(module(*(rebuilt(a) for a in arguments), **(more if module is ours else {})))
        grads = [draw(*r.shape, seed=10 + i, dtype=r.dtype) for i, r in enumerate(results)]
        torch.autograd.backward(results, grads)
        found.append([*results, *(t.grad for t in leaves), *(p.grad for p in module.parameters())])
    for number, (a, b) in enumerate(zip(*found, strict=True)):
        assert_close(a, b, allowed, f"tensor {number}")


ALLOWED = rounding(F64, 4 * T, 2 * H + I)


@everywhere
@both
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"num_layers": 3},
        {"bidirectional": True, "num_layers": 2},
        {"batch_first": True, "bidirectional": True},
    ],
    ids=str,
)
def test_results_and_gradients_are_torchs(kind: str, options: dict[str, Any], backend: str) -> None:
    ours, theirs = pair(kind, I, H, **options, dtype=F64, backend=backend)
    shape = (B, T, I) if options.get("batch_first") else (T, B, I)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    compare(ours, theirs, draw(*shape), allowed=ALLOWED)
    compare(ours, theirs, draw(*shape), state(kind, count, B, H), allowed=ALLOWED)
    compare(ours, theirs, draw(T, I), state(kind, count, H), allowed=ALLOWED)  # unbatched


@both
def test_float32_at_odd_sizes_and_other_layouts(kind: str) -> None:
    for steps, batch, inputs, hidden in ((1, 1, 1, 1), (9, 1, 5, 13), (4, 11, 17, 30)):
        ours, theirs = pair(kind, inputs, hidden)
        allowed = rounding(torch.float32, 4 * steps, 2 * hidden + inputs)
        x = draw(batch, steps, inputs, dtype=torch.float32).transpose(0, 1)
        compare(ours, theirs, x, state(kind, 1, batch, hidden, dtype=torch.float32), allowed=allowed)


@everywhere
@both
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences(kind: str, enforce_sorted: bool, backend: str) -> None:
    lengths = torch.tensor([6, 4, 3, 1] if enforce_sorted else [3, 6, 1, 4])
    ours, theirs = pair(kind, I, H, 2, bidirectional=True, dtype=F64, backend=backend)
    packed = pack_padded_sequence(draw(T, B, I), lengths, enforce_sorted=enforce_sorted)
    compare(ours, theirs, packed, state(kind, 4, B, H), allowed=ALLOWED)


@everywhere
@both
def test_lengths_give_what_packing_gives(kind: str, backend: str) -> None:
    lengths = torch.tensor([3, 6, 1, 4])
    ours, theirs = pair(kind, I, H, 2, bidirectional=True, dtype=F64, backend=backend)
    x = draw(T, B, I)
    expected, last = theirs(pack_padded_sequence(x, lengths, enforce_sorted=False))
    beyond = torch.arange(T)[:, None] >= lengths
    output, ends = ours(x.masked_fill(beyond[..., None], float("nan")), lengths=lengths)
    assert_close(output, pad_packed_sequence(expected, total_length=T)[0], ALLOWED)
    for a, b in zip(parts(ends), parts(last), strict=True):
        assert_close(a, b, ALLOWED)


@both
def test_parameters_names_shapes_and_first_values(kind: str) -> None:
    ours, theirs = PAIRS[kind]
    for options in ({}, {"bias": False, "num_layers": 2, "bidirectional": True}):
        torch.manual_seed(11)
        a = ours(I, H, **options)
        torch.manual_seed(11)
        b = theirs(I, H, **options)
        assert list(a.state_dict()) == list(b.state_dict())
        assert all(map(torch.equal, a.parameters(), b.parameters()))
        assert [[t.shape for t in group] for group in a.all_weights] == [
            [t.shape for t in group] for group in b.all_weights
        ]
        assert repr(a) == repr(b)
        theirs(I, H, **options).load_state_dict(a.state_dict())
    for name in inspect.signature(ours).parameters:
        if name not in ("backend", "checkpoint"):
            assert hasattr(b, name) or name in ("device", "dtype")


@both
def test_positional_arguments_come_in_torchs_order(kind: str) -> None:
    extra = (0,) if kind == "LSTM" else ()
    ours, theirs = (cls(I, H, 2, False, True, 0.5, True, *extra, dtype=F64) for cls in PAIRS[kind])
    for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.weight_ih_l0.dtype == F64


def test_projections_are_refused() -> None:
    with pytest.raises(ValueError, match="proj_size must be 0, got 3"):
        goru.LSTM(I, H, proj_size=3)


def test_a_state_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(RuntimeError, match="tuple of 2 tensors"):
        goru.LSTM(I, H)(torch.zeros(T, B, I), torch.zeros(1, B, H))
    with pytest.raises(RuntimeError, match="Expected hidden size"):
        goru.LSTM(I, H)(torch.zeros(T, B, I), (torch.zeros(1, B, H), torch.zeros(1, B, H + 1)))


@both
def test_dropout_between_layers(kind: str) -> None:
    layer = PAIRS[kind][0](I, H, 2, dropout=0.5)
    x = draw(T, B, I, dtype=torch.float32)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


@both
def test_copies_and_pickles(kind: str) -> None:
    layer = PAIRS[kind][0](I, H)
    x = draw(T, B, I, dtype=torch.float32)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[0], layer(x)[0])


@both
def test_parametrized_weights_train(kind: str) -> None:
    class Half(nn.Module):
        def forward(self, weight: Tensor) -> Tensor:
            return weight / 2

    layer = PAIRS[kind][0](I, H)
    parametrize.register_parametrization(layer, "weight_hh_l0", Half())
    layer(draw(T, B, I, dtype=torch.float32))[0].sum().backward()
    assert layer.parametrizations.weight_hh_l0.original.grad.abs().sum() > 0


@pytest.mark.filterwarnings("ignore")  # Dynamo and inductor warn about themselves.
@both
def test_compiled_and_exported(kind: str) -> None:
    torch._dynamo.reset()
    layer = PAIRS[kind][0](I, H)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for steps, batch in ((5, 4), (7, 3)):
        x = torch.randn(steps, batch, I)
        results = []
        for module in (layer, compiled):
            layer.zero_grad()
            output, last = module(x)
            (output.square().sum() + sum(t.sum() for t in parts(last))).backward()
            results.append([output.detach(), *(p.grad.clone() for p in layer.parameters())])
        torch.testing.assert_close(*results)
    sizes = {0: torch.export.Dim("steps", min=2), 1: torch.export.Dim("batch", min=2)}
    program = torch.export.export(layer.eval(), (torch.randn(5, 2, I),), dynamic_shapes=(sizes,))
    other = torch.randn(9, 4, I)
    with torch.no_grad():
        torch.testing.assert_close(program.module()(other)[0], layer(other)[0])


@both
def test_autocast_keeps_float32(kind: str) -> None:
    layer = PAIRS[kind][0](I, H)
    x = torch.randn(T, B, I)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = layer(x)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, layer(x)[0])


@both
@pytest.mark.parametrize("backend", ["reference", "manual"])
def test_second_derivatives(kind: str, backend: str) -> None:
    layer = PAIRS[kind][0](2, 3, backend=backend, dtype=F64)
    x = draw(3, 2, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,))


@everywhere
@both
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind: str, bias: bool, backend: str) -> None:
    ours, theirs = CELLS[kind]
    torch.manual_seed(3)
    theirs = theirs(I, H, bias, dtype=F64)
    ours = ours(I, H, bias, backend=backend, dtype=F64)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    compare(ours, theirs, draw(B, I), state(kind, B, H), allowed=ALLOWED)
    compare(ours, theirs, draw(I), state(kind, H), allowed=ALLOWED)
    compare(ours, theirs, draw(B, I), allowed=ALLOWED)
    with torch.no_grad():  # single steps without gradients have a short way
        for rows in (1, B, 20):
            found = [parts(cell(draw(rows, I), state(kind, rows, H))) for cell in (ours, theirs)]
            for a, b in zip(*found, strict=True):
                assert_close(a, b, ALLOWED)


@pytest.mark.skipif("native" not in BACKENDS, reason="no native kernels")
@both
def test_single_steps_follow_every_change_of_the_parameters(kind: str) -> None:
    ours, theirs = CELLS[kind]
    theirs, ours = theirs(I, H), ours(I, H, backend="native")

    def same() -> None:
        for _ in range(2):
            found = [parts(cell(x, s)) for cell in (ours, theirs)]
            for a, b in zip(*found, strict=True):
                assert_close(a, b, 1e-5)

    x, s = draw(2, I, dtype=torch.float32), state(kind, 2, H, dtype=torch.float32)
    with torch.inference_mode():
        ours.load_state_dict(theirs.state_dict())
        same()
    for name, parameter in theirs.named_parameters():
        with torch.no_grad():
            parameter.mul_(-2)
            getattr(ours, name).data.mul_(-2)  # behind the version counter
            same()
    for name, parameter in theirs.named_parameters():
        setattr(theirs, name, nn.Parameter(parameter.detach() + 0.1))
        setattr(ours, name, nn.Parameter(parameter.detach() + 0.1))
        with torch.no_grad():
            same()
    ours = copy.deepcopy(ours)
    with torch.no_grad():
        same()
        before = [t.clone() for t in parts(s)]
        ours(x, s)
        assert all(map(torch.equal, before, parts(s))), "a step changed the state that it was given"


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_a_subclass_is_what_its_base_is(kind: str) -> None:
    """Under whatever name."""
    for base, example in ((kind, getattr(nn, kind)(3, 4)), (f"{kind}Cell", getattr(nn, f"{kind}Cell")(3, 4))):
        own = type("Mine", (getattr(goru, base),), {})(3, 4)
        assert {name: p.shape for name, p in own.named_parameters()} == {
            name: p.shape for name, p in example.named_parameters()
        }
        own.load_state_dict(example.state_dict())
        x = torch.randn(5, 3)
        torch.testing.assert_close(own(x), example(x))
