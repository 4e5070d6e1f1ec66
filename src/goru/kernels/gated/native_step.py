"""Single steps of a GRU or an LSTM on the native kernels."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int, c_int64, c_void_p

from torch import Tensor

from ..native import library
from ..native.call import pointer
from ..native.steps import Prepared, Steps
from ..native.structures import structure
from .native import GatedCall, GatedForward
from .reference import GatedOptions, GruInputs, LstmInputs

GatedStream = structure(
    "GatedStream", (GatedForward, "forward"), (c_int64, "bias_bytes"), (c_void_p, "bias_ih bias_hh")
)
library.declare(
    c_int,
    goru_gated_step=[c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64],
)


class PreparedGated(Prepared):
    """`parameters`: weight_ih, weight_hh, bias_ih, bias_hh."""

    def __init__(self, parameters: Sequence[Tensor | None], lstm: bool) -> None:
        weight_ih, weight_hh, bias_ih, bias_hh = parameters
        assert weight_ih is not None
        assert weight_hh is not None
        super().__init__(parameters, weight_hh.shape[1])
        x, h = weight_ih.new_empty(1, 1, self.inputs), weight_ih.new_empty(1, self.hidden)
        weights = weight_ih, weight_hh, bias_ih, bias_hh
        g = GatedCall(LstmInputs(x, h, h, *weights) if lstm else GruInputs(x, h, *weights), GatedOptions())
        places = weight_ih.data_ptr(), weight_hh.data_ptr()
        forward = GatedForward(g.shape, None, None, None, None, *places, None, None, None)
        forward.shape.threads = 1
        size = g.sizes.bias * self.dtype.itemsize
        self.arguments = GatedStream(forward, size, pointer(bias_ih), pointer(bias_hh))
        self.address, self.codes, self.function = byref(self.arguments), (g.code, g.cell), g.library.goru_gated_step

    def call(self, x: int, states: list[int], new: list[int], rows: int) -> bool:
        # For a GRU the last state is the first one: its place for c is not read.
        return self.function(*self.codes, self.address, x, states[0], states[-1], new[0], new[-1], rows) != 0


def gru_steps(options: GatedOptions) -> Steps:
    return Steps(lambda parameters: PreparedGated(parameters, lstm=False))


def lstm_steps(options: GatedOptions) -> Steps:
    return Steps(lambda parameters: PreparedGated(parameters, lstm=True))
