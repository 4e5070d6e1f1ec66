"""The recurrences of torch.nn.GRU and torch.nn.LSTM: their arguments, and their kernels on each backend.

GRU   r = sigmoid(W_r x + b_r + R_r h' + c_r)    z alike    n = tanh(W_n x + b_n + r (R_n h' + c_n))
      h = (1 - z) n + z h'
LSTM  i, f, o = sigmoid(W x + b + R h' + c)    g = tanh(W_g x + b_g + R_g h' + c_g)
      c = f c' + i g    h = o tanh(c)
"""

from __future__ import annotations

from ..backends import MANUAL, REFERENCE, Equations, Kernel
from ..native import NATIVE
from ..native.half import with_half_precision
from ..recurrence import Recurrence
from . import manual, native, native_step, reference
from .reference import GatedOptions, GruInputs, LstmInputs, gru_results, lstm_results

__all__ = ["GRU", "LSTM", "GatedOptions", "GruInputs", "LstmInputs"]

GRU = Recurrence("gru", GruInputs, GatedOptions, gru_results, count=2)
LSTM = Recurrence("lstm", LstmInputs, GatedOptions, lstm_results, count=3)
REFERENCE.kernels |= {"gru": Equations(reference.gru), "lstm": Equations(reference.lstm)}
MANUAL.kernels["gru"] = Kernel(manual.gru_forward, manual.gru_backward, manual.gru_saved)
MANUAL.kernels["lstm"] = Kernel(manual.lstm_forward, manual.lstm_backward, manual.lstm_saved)
for _name, _steps in (("gru", native_step.gru_steps), ("lstm", native_step.lstm_steps)):
    NATIVE.kernels[_name] = with_half_precision(Kernel(native.forward, native.backward, native.saved, stepper=_steps))
