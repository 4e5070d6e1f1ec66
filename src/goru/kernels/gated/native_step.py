"""Single steps of a GRU or an LSTM on the native kernels."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

from ..native.call import pointer
from ..native.steps import plain_parameters, runner
from ..native.structures import structure
from .native import GatedCall, GatedForward
from .reference import GatedOptions, GruInputs, LstmInputs

GatedStream = structure(
    "GatedStream", (GatedForward, "forward"), (c_int64, "dtype cell bias_bytes"), (c_void_p, "bias_ih bias_hh")
)


def gru_steps(cell: Any, options: GatedOptions) -> Callable[..., Any] | None:
    return _steps(cell, options, lstm=False)


def lstm_steps(cell: Any, options: GatedOptions) -> Callable[..., Any] | None:
    return _steps(cell, options, lstm=True)


def _steps(cell: Any, options: GatedOptions, lstm: bool) -> Callable[..., Any] | None:
    own = plain_parameters(cell)
    if own is None:
        return None
    weight_ih, weight_hh, bias_ih, bias_hh = (own.get(n) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    assert weight_ih is not None
    assert weight_hh is not None
    hidden = weight_hh.shape[1]
    x, h = weight_ih.new_empty(1, 1, weight_ih.shape[1]), weight_ih.new_empty(1, hidden)
    weights = weight_ih, weight_hh, bias_ih, bias_hh
    g = GatedCall(LstmInputs(x, h, h, *weights) if lstm else GruInputs(x, h, *weights), options)
    places = weight_ih.data_ptr(), weight_hh.data_ptr()
    forward = GatedForward(g.shape, None, None, None, None, *places)
    forward.shape.threads = 1
    biases = g.sizes.bias * weight_ih.dtype.itemsize, pointer(bias_ih), pointer(bias_hh)
    stream = GatedStream(forward, g.code, g.cell, *biases)
    return runner(own, {}, hidden, 1 + lstm, g.library.goru_gated_step, stream)
