"""Behavior by behavior beside nn.GRU: what it takes we take, what it refuses we refuse in the same way."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import goru
from tests.specimens import PLAIN, Kind, assert_close, draw, lively, rounding

F32, F64 = torch.float32, torch.float64
I, H = 3, 4

plain_kinds = pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.name)
layers = pytest.mark.parametrize("cls", [goru.GORU, goru.EURNN])


def shape_of(value: Any) -> Any:
    if isinstance(value, PackedSequence):
        return ("packed", tuple(value.data.shape), value.batch_sizes.tolist())
    if isinstance(value, Tensor):
        return tuple(value.shape)
    return [shape_of(item) for item in value]


SHAPES = [
    pytest.param((5, 2, I), None, {}, id="batched"),
    pytest.param((5, 2, I), (1, 2, H), {}, id="batched-hx"),
    pytest.param((5, I), None, {}, id="unbatched"),
    pytest.param((5, I), (1, H), {}, id="unbatched-hx"),
    pytest.param((5, 2, I), (1, 5, H), {"batch_first": True}, id="batch-first-hx"),
    pytest.param((5, I), (1, H), {"batch_first": True}, id="batch-first-unbatched"),
    pytest.param((5, 2, I), (6, 2, H), {"num_layers": 3, "bidirectional": True}, id="deep-both-ways"),
    pytest.param((5, 2, I), None, {"num_layers": 2, "bidirectional": True, "batch_first": True}, id="all"),
    pytest.param((5, I), (4, H), {"num_layers": 2, "bidirectional": True}, id="deep-unbatched"),
    pytest.param((1, 1, I), None, {}, id="one-step-one-row"),
    pytest.param((5, 0, I), None, {}, id="empty-batch"),
    pytest.param((5, 0, I), (2, 0, H), {"bidirectional": True}, id="empty-batch-hx"),
    pytest.param((0, 5, I), (1, 0, H), {"batch_first": True}, id="empty-batch-first"),
]


@plain_kinds
@pytest.mark.parametrize(("shape", "hx_shape", "options"), SHAPES)
def test_same_shapes_as_gru(kind: Kind, shape, hx_shape, options):
    x = torch.randn(shape)
    theirs = nn.GRU(I, H, **options)(x, None if hx_shape is None else torch.zeros(hx_shape))
    hx = None if hx_shape is None else torch.zeros(hx_shape, dtype=kind.state_dtype(F32))
    output, h_n = kind.layer(I, H, **options)(x, hx)
    assert shape_of((output, h_n)) == shape_of(theirs)
    assert output.dtype == F32
    assert h_n.dtype == kind.state_dtype(F32)


@plain_kinds
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_sequences_as_gru(kind: Kind, enforce_sorted: bool):
    lengths = [4, 2, 1] if enforce_sorted else [2, 4, 1]
    packed = pack_sequence([draw(n, I, dtype=F32) for n in lengths], enforce_sorted=enforce_sorted)
    theirs, their_h = nn.GRU(I, H, 2, bidirectional=True)(packed)
    ours, our_h = kind.layer(I, H, num_layers=2, bidirectional=True)(packed)
    assert isinstance(ours, PackedSequence)
    assert shape_of(ours) == shape_of(theirs)
    assert our_h.shape == their_h.shape
    for name in ("sorted_indices", "unsorted_indices"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert (a is None) == (b is None)
        assert a is None or torch.equal(a, b)


@plain_kinds
def test_batch_first_is_a_transposition(kind: Kind):
    ours = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    first = kind.layer(I, H, num_layers=2, bidirectional=True, batch_first=True, dtype=F64)
    first.load_state_dict(ours.state_dict())
    x = draw(5, 2, I)
    output, h_n = ours(x)
    output_first, h_n_first = first(x.transpose(0, 1))
    allowed = rounding(F64, 10, 2 * H + I)
    assert_close(output_first.transpose(0, 1), output, allowed)
    assert_close(h_n_first, h_n, allowed)


@plain_kinds
def test_unbatched_is_a_batch_of_one(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, bidirectional=True, dtype=F64))
    x, hx = draw(5, I), draw(4, H, dtype=kind.state_dtype(F64))
    output, h_n = layer(x, hx)
    batched, batched_h = layer(x[:, None], hx[:, None])
    assert torch.equal(output, batched[:, 0])
    assert torch.equal(h_n, batched_h[:, 0])


@plain_kinds
def test_hx_missing_is_zeros(kind: Kind):
    layer = lively(kind.layer(I, H, num_layers=2, dtype=F64))
    x = draw(5, 2, I)
    zeros = torch.zeros(2, 2, H, dtype=kind.state_dtype(F64))
    for a, b in zip(layer(x), layer(x, zeros), strict=True):
        assert torch.equal(a, b)


@plain_kinds
def test_positional_and_keyword_arguments(kind: Kind):
    layer = lively(kind.layer(I, H))
    x, hx = draw(5, 2, I, dtype=F32), draw(1, 2, H, dtype=kind.state_dtype(F32))
    expected = layer(x, hx)[0]
    assert torch.equal(layer(input=x, hx=hx)[0], expected)
    assert torch.equal(layer(x, hx=hx)[0], expected)


@layers
def test_constructor_takes_the_positions_of_gru(cls):
    layer = cls(I, H, 2, False, True, 0.25, True)
    for name, value in {
        "input_size": I,
        "hidden_size": H,
        "num_layers": 2,
        "bias": False,
        "batch_first": True,
        "dropout": 0.25,
        "bidirectional": True,
    }.items():
        assert getattr(layer, name) == value
    with pytest.raises(TypeError):
        cls(I, H, 2, False, True, 0.25, True, "fft")  # all that nn.GRU does not have is by keyword only


@plain_kinds
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True}, {"bidirectional": True}, {"num_layers": 2, "batch_first": True}]
)
def test_results_lie_in_memory_as_those_of_gru(kind: Kind, options):
    """So that a view() which works on nn.GRU's output works on ours."""
    x = torch.zeros(5, 2, I)
    theirs, their_h = nn.GRU(I, H, **options)(x)
    ours, our_h = kind.layer(I, H, **options)(x)
    assert ours.stride() == theirs.stride()
    assert our_h.is_contiguous() == their_h.is_contiguous()


@plain_kinds
@pytest.mark.parametrize("backend", ["auto", "reference", "manual"])
def test_nan_stays_in_its_row_and_after_its_step(kind: Kind, backend: str):
    layer = lively(kind.layer(I, H, backend=backend))
    x = draw(5, 3, I, dtype=F32)
    clean = layer(x)[0]
    x[2, 1, 0] = math.nan
    output, h_n = layer(x)
    assert output[2:, 1].isnan().all()
    assert h_n[0, 1].isnan().all()
    output[2:, 1] = clean[2:, 1] = 0
    assert_close(output, clean, rounding(F32, 5, 2 * H + I))


@plain_kinds
def test_inputs_are_left_alone(kind: Kind):
    layer = lively(kind.layer(I, H))
    x, hx = draw(5, 2, I, dtype=F32), draw(1, 2, H, dtype=kind.state_dtype(F32))
    kept = x.clone(), hx.clone()
    layer(x, hx)
    assert torch.equal(x, kept[0])
    assert torch.equal(hx, kept[1])


@plain_kinds
def test_writing_into_a_result_does_not_change_the_next(kind: Kind):
    """Outputs share no memory with buffers that are kept."""
    layer = lively(kind.layer(I, H))
    x = draw(5, 2, I, dtype=F32)
    with torch.no_grad():
        first, first_h = layer(x)
        kept, kept_h = first.clone(), first_h.clone()
        first.fill_(9.0)
        assert torch.equal(first_h, kept_h)  # h_n is no view of the output
        first_h.fill_(9.0)
        layer.orthogonal_matrix().fill_(9.0)
        second, second_h = layer(x)
    assert torch.equal(second, kept)
    assert torch.equal(second_h, kept_h)


def packed(features: int = I, dtype: torch.dtype = F32, enforce_sorted: bool = True) -> PackedSequence:
    lengths = (3, 2) if enforce_sorted else (2, 3)
    return pack_sequence([torch.zeros(n, features, dtype=dtype) for n in lengths], enforce_sorted=enforce_sorted)


WIDE = {F32: F64, torch.complex64: torch.complex128}

# Each makes the arguments of a call that nn.GRU(3, 4) refuses; `s` is the dtype that the state should have.
BAD_CALLS: dict[str, Callable[[torch.dtype], tuple[Any, ...]]] = {
    "0-D input": lambda s: (torch.zeros(()),),
    "1-D input": lambda s: (torch.zeros(I),),
    "4-D input": lambda s: (torch.zeros(1, 2, 2, I),),
    "wrong feature size": lambda s: (torch.zeros(5, 2, I + 1),),
    "no features": lambda s: (torch.zeros(5, 2, 0),),
    "wrong feature size, unbatched": lambda s: (torch.zeros(5, I + 1),),
    "wrong feature size, packed": lambda s: (packed(I + 1),),
    "hx with too many rows": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 3, H, dtype=s)),
    "hx with too few rows": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 1, H, dtype=s)),
    "hx of wrong size": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 2, H + 1, dtype=s)),
    "hx for two layers": lambda s: (torch.zeros(5, 2, I), torch.zeros(2, 2, H, dtype=s)),
    "hx of no layer": lambda s: (torch.zeros(5, 2, I), torch.zeros(0, 2, H, dtype=s)),
    "hx 2-D for 3-D": lambda s: (torch.zeros(5, 2, I), torch.zeros(2, H, dtype=s)),
    "hx 4-D for 3-D": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 1, 2, H, dtype=s)),
    "hx 3-D for 2-D": lambda s: (torch.zeros(5, I), torch.zeros(1, 1, H, dtype=s)),
    "hx 1-D for 2-D": lambda s: (torch.zeros(5, I), torch.zeros(H, dtype=s)),
    "hx of wrong size, unbatched": lambda s: (torch.zeros(5, I), torch.zeros(1, H + 1, dtype=s)),
    "hx double": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 2, H, dtype=WIDE[s])),
    "hx integer": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 2, H, dtype=torch.int64)),
    "hx bfloat16": lambda s: (torch.zeros(5, 2, I), torch.zeros(1, 2, H, dtype=torch.bfloat16)),
    "input double": lambda s: (torch.zeros(5, 2, I, dtype=F64),),
    "input bfloat16": lambda s: (torch.zeros(5, 2, I, dtype=torch.bfloat16),),
    "input integer": lambda s: (torch.zeros(5, 2, I, dtype=torch.int64),),
    "input bool": lambda s: (torch.zeros(5, 2, I, dtype=torch.bool),),
    "input complex": lambda s: (torch.zeros(5, 2, I, dtype=torch.complex64),),
    "input double, packed": lambda s: (packed(dtype=F64),),
    "input on another device": lambda s: (torch.zeros(5, 2, I, device="meta"),),
    "empty sequence": lambda s: (torch.zeros(0, 2, I),),
    "empty sequence, unbatched": lambda s: (torch.zeros(0, I),),
    "empty sequence and batch": lambda s: (torch.zeros(0, 0, I),),
    "hx with too many rows, packed": lambda s: (packed(), torch.zeros(1, 5, H, dtype=s)),
    "hx with too few rows, packed": lambda s: (packed(), torch.zeros(1, 1, H, dtype=s)),
    "hx with too few rows, unsorted": lambda s: (packed(enforce_sorted=False), torch.zeros(1, 1, H, dtype=s)),
    "hx of wrong size, packed": lambda s: (packed(), torch.zeros(1, 2, H + 1, dtype=s)),
    "hx 2-D, packed": lambda s: (packed(), torch.zeros(2, H, dtype=s)),
    "hx double, packed": lambda s: (packed(), torch.zeros(1, 2, H, dtype=WIDE[s])),
    "no arguments": lambda s: (),
    "a third position": lambda s: (torch.zeros(5, 2, I), None, None),
}


@plain_kinds
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_raise_as_gru_does(kind: Kind, name: str):
    make = BAD_CALLS[name]
    with pytest.raises(Exception) as theirs:  # noqa: PT011  (which one is the question)
        nn.GRU(I, H)(*make(F32))
    layer = kind.layer(I, H)
    with pytest.raises(theirs.type) as ours:
        layer(*make(kind.state_dtype(F32)))
    assert ours.type is theirs.type
    assert str(ours.value)


@plain_kinds
@pytest.mark.parametrize("value", [None, [[1.0, 2.0, 3.0]], "x", 1.0], ids=["None", "list", "str", "float"])
def test_something_that_is_no_tensor_is_refused(kind: Kind, value: Any):
    with pytest.raises((TypeError, AttributeError)):
        kind.layer(I, H)(value)
    if value is not None:
        with pytest.raises((TypeError, AttributeError)):
            kind.layer(I, H)(torch.zeros(5, 2, I), value)


@plain_kinds
def test_hx_with_too_many_rows_for_an_unsorted_packed_input_raises(kind: Kind):
    """nn.GRU takes the first rows in silence; ours says what is wrong."""
    rows = torch.zeros(1, 5, H, dtype=kind.state_dtype(F32))
    nn.GRU(I, H)(packed(enforce_sorted=False), torch.zeros(1, 5, H))
    with pytest.raises(RuntimeError, match=r"5"):
        kind.layer(I, H)(packed(enforce_sorted=False), rows)


def test_a_real_state_for_a_complex_layer_is_refused_and_the_reverse():
    with pytest.raises(RuntimeError, match="complex"):
        goru.EURNN(I, H)(torch.zeros(5, 2, I), torch.zeros(1, 2, H))
    for layer in (goru.EURNN(I, H, complex=False), goru.GORU(I, H)):
        with pytest.raises(RuntimeError, match=r"float32"):
            layer(torch.zeros(5, 2, I), torch.zeros(1, 2, H, dtype=torch.complex64))


@plain_kinds
def test_errors_name_the_expected_and_the_given(kind: Kind):
    layer = kind.layer(I, H, num_layers=2)
    s = kind.state_dtype(F32)
    with pytest.raises(RuntimeError, match=r"(?s)3.*17|17.*3"):
        layer(torch.zeros(5, 2, 17))
    with pytest.raises(RuntimeError, match=r"(?s)2, 2, 4.*2, 9, 4|2, 9, 4.*2, 2, 4"):
        layer(torch.zeros(5, 2, I), torch.zeros(2, 9, H, dtype=s))
    with pytest.raises(ValueError, match=r"(?s)float64.*float32|float32.*float64"):
        layer(torch.zeros(5, 2, I, dtype=F64))
    with pytest.raises(ValueError, match=r"4"):
        layer(torch.zeros(1, 5, 2, I))


BAD_CONSTRUCTIONS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "input_size 0": ((0, 4), {}),
    "input_size -3": ((-3, 4), {}),
    "hidden_size 0": ((3, 0), {}),
    "hidden_size -1": ((3, -1), {}),
    "num_layers 0": ((3, 4, 0), {}),
    "num_layers -1": ((3, 4, -1), {}),
    "num_layers 1.5": ((3, 4, 1.5), {}),
    "num_layers str": ((3, 4, "2"), {}),
    "input_size float": ((3.0, 4), {}),
    "input_size str": (("3", 4), {}),
    "hidden_size float": ((3, 4.0), {}),
    "hidden_size None": ((3, None), {}),
    "bias int": ((3, 4), {"bias": 1}),
    "bias None": ((3, 4), {"bias": None}),
    "batch_first int": ((3, 4), {"batch_first": 1}),
    "batch_first str": ((3, 4), {"batch_first": "yes"}),
    "dropout negative": ((3, 4, 2), {"dropout": -0.1}),
    "dropout above 1": ((3, 4, 2), {"dropout": 1.1}),
    "dropout bool": ((3, 4, 2), {"dropout": True}),
    "dropout NaN": ((3, 4, 2), {"dropout": math.nan}),
    "dropout str": ((3, 4, 2), {"dropout": "0.5"}),
    "dropout None": ((3, 4, 2), {"dropout": None}),
    "dtype integer": ((3, 4), {"dtype": torch.int64}),
    "unknown keyword": ((3, 4), {"foo": 1}),
    "missing size": ((3,), {}),
    "unknown device": ((3, 4), {"device": "nowhere"}),
}


# What nn.GRU of torch 2.6 and 2.9 does not check yet, and what later ones raise.
LATER = {"input_size 0": ValueError, "input_size -3": ValueError} | dict.fromkeys(
    ("bias int", "bias None", "batch_first int", "batch_first str"), TypeError
)


@layers
@pytest.mark.parametrize("name", BAD_CONSTRUCTIONS)
def test_bad_constructions_raise_as_gru_does(cls, name: str):
    arguments, options = BAD_CONSTRUCTIONS[name]
    if name in LATER and torch.__version__ < "2.13":
        expected = LATER[name]
    else:
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            nn.GRU(*arguments, **options)
        expected = theirs.type
    with pytest.raises(expected):
        cls(*arguments, **options)


@layers
def test_dropout_with_one_layer_warns_as_gru_does(cls):
    with pytest.warns(UserWarning, match="dropout") as theirs:
        nn.GRU(3, 4, dropout=0.5)
    with pytest.warns(UserWarning, match="dropout") as ours:
        layer = cls(3, 4, dropout=0.5)
    assert len(ours) == len(theirs) == 1
    for word in ("dropout=0.5", "num_layers=1"):
        assert word in str(ours[0].message)
    assert ours[0].filename == __file__  # points at the caller
    assert layer.dropout == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cls(3, 4, 2, dropout=0.5)
        cls(3, 4, dropout=0)


@layers
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mesh": "butterfly"}, ValueError),
        ({"mesh": 2}, (ValueError, TypeError)),
        ({"mesh": "fft", "capacity": 2}, ValueError),
        ({"mesh": "tunable", "capacity": 0}, ValueError),
        ({"mesh": "tunable", "capacity": -2}, ValueError),
        ({"mesh": "tunable", "capacity": 5}, ValueError),
        ({"mesh": "tunable", "capacity": 2.5}, TypeError),
        ({"mesh": "tunable", "capacity": "2"}, TypeError),
        ({"backend": "cuda-magic"}, ValueError),
    ],
)
def test_bad_options_of_our_own(cls, options, error):
    with pytest.raises(error):
        cls(3, 4, **options)


def test_a_gate_switch_that_is_no_bool_is_refused():
    construct: Any = goru.GORU
    for name in ("reset_gate", "update_gate"):
        with pytest.raises(TypeError, match=name):
            construct(3, 4, **{name: 1})


@pytest.mark.parametrize("cls", [goru.GORU, goru.EURNN, goru.GORUCell, goru.EURNNCell])
def test_a_complex_dtype_is_refused(cls):
    """Parameters are real; a complex layer is asked for by complex=True."""
    with pytest.raises((ValueError, TypeError, RuntimeError)):
        cls(3, 4, dtype=torch.complex64)


@plain_kinds
@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param([6, 2], id="longer-than-T"),
        pytest.param([0, 2], id="zero"),
        pytest.param([-1, 2], id="negative"),
        pytest.param([5], id="too-few"),
        pytest.param([5, 2, 2], id="too-many"),
        pytest.param([[5, 2]], id="two-dimensional"),
    ],
)
def test_bad_lengths_are_refused(kind: Kind, lengths):
    with pytest.raises((ValueError, RuntimeError)):
        kind.layer(I, H)(torch.zeros(5, 2, I), lengths=torch.tensor(lengths))


@plain_kinds
def test_lengths_of_a_wrong_kind_are_refused(kind: Kind):
    layer = kind.layer(I, H)
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        layer(torch.zeros(5, 2, I), lengths=torch.tensor([2.5, 1.0]))
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        layer(packed(), lengths=torch.tensor([3, 2]))  # a packed sequence tells its own lengths
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        layer(torch.zeros(5, I), lengths=torch.tensor([3, 2]))


@plain_kinds
def test_lengths_may_be_a_list(kind: Kind):
    layer = lively(kind.layer(I, H, dtype=F64))
    x = draw(5, 2, I)
    for a, b in zip(layer(x, lengths=[2, 5]), layer(x, lengths=torch.tensor([2, 5])), strict=True):
        assert torch.equal(a, b)


@plain_kinds
@pytest.mark.parametrize("batch_first", [False, True])
def test_lengths_and_packing_agree(kind: Kind, batch_first: bool):
    layer = lively(kind.layer(I, H, num_layers=2, batch_first=batch_first, bidirectional=True, dtype=F64))
    lengths = torch.tensor([2, 5, 3])
    x = draw(5, 3, I)
    if batch_first:
        x = x.transpose(0, 1)
    output, h_n = layer(x, lengths=lengths)
    sequences = pack_padded_sequence(x, lengths, batch_first=batch_first, enforce_sorted=False)
    other, other_h = layer(sequences)
    padded, _ = pad_packed_sequence(other, batch_first=batch_first)
    allowed = rounding(F64, 10, 2 * H + I)
    assert output.shape == padded.shape
    assert_close(output, padded, allowed)
    assert_close(h_n, other_h, allowed)
