"""GRU and LSTM: the functions of torch.nn.GRU and torch.nn.LSTM on the kernels of this package.

Constructors, parameter names, shapes and state dicts are torch's, so each loads the other's weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels import gated
from ..kernels.backends import Choice
from ..kernels.gated import GatedOptions, GruInputs, LstmInputs
from ..kernels.recurrence import Recurrence, Stepper
from .recurrent import RecurrentCell, RecurrentLayer
from .unit import Parameters, State, check_checkpoint, check_sizes, listed


@dataclass(frozen=True)
class GatedUnit:
    """Parameters, initialization and recurrence of a GRU or an LSTM."""

    name: str
    hidden_size: int
    bias: bool
    checkpoint: int | None = None

    def __post_init__(self) -> None:
        check_checkpoint(self.checkpoint)

    @property
    def kernel(self) -> Recurrence:
        return gated.LSTM if self.name == "LSTM" else gated.GRU

    @property
    def recurrence(self) -> str:
        return self.kernel.name

    def shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows = (4 if self.name == "LSTM" else 3) * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, self.hidden_size)}
        return shapes | ({"bias_ih": (rows,), "bias_hh": (rows,)} if self.bias else {})

    @torch.no_grad()
    def initialize(self, parameters: Parameters) -> None:
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in parameters.values():
            nn.init.uniform_(parameter, -bound, bound)

    def state_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        return (dtype, dtype) if self.name == "LSTM" else (dtype,)

    def inputs(self, x: Tensor, state: State, parameters: Parameters, lengths: Tensor | None) -> GruInputs | LstmInputs:
        """The arguments of the recurrence."""
        weights = parameters["weight_ih"], parameters["weight_hh"], parameters.get("bias_ih"), parameters.get("bias_hh")
        if self.name == "LSTM":
            h, c = state
            return LstmInputs(x, h, c, *weights, lengths)
        return GruInputs(x, state[0], *weights, lengths)

    def run(
        self, x: Tensor, state: State, parameters: Parameters, lengths: Tensor | None, reverse: bool, backend: Choice
    ) -> tuple[Tensor, State]:
        inputs = self.inputs(x, state, parameters, lengths)
        output, *last = self.kernel(inputs, GatedOptions(reverse, self.checkpoint), backend)
        return output, tuple(last)

    def describe(self) -> str:
        return listed({"checkpoint": self.checkpoint}, checkpoint=None)

    def cell_options(self) -> dict[str, Any]:
        return {}


class GatedLayer(RecurrentLayer):
    """A GRU or an LSTM."""

    kind: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        checkpoint: int | None = None,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias)
        unit = GatedUnit(self.kind, hidden_size, bias, checkpoint)
        super().__init__(
            unit,
            input_size,
            hidden_size,
            num_layers=num_layers,
            bias=bias,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            backend=backend,
            device=device,
            dtype=dtype,
        )


class GRU(GatedLayer):
    """The function of `torch.nn.GRU`, with its constructor and its parameters, on the kernels of this package.

    >>> layer = GRU(10, 128, batch_first=True)
    >>> _ = layer.load_state_dict(nn.GRU(10, 128).state_dict())
    >>> output, h_n = layer(torch.zeros(32, 50, 10))
    >>> output.shape, h_n.shape
    (torch.Size([32, 50, 128]), torch.Size([1, 32, 128]))

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in torch.
        checkpoint: if set, training saves only states and recomputes this many steps at a time. None saves the gates.
            Keyword-only, like all arguments below.
        backend: "reference", "manual", "native" or "auto"; see :func:`goru.use_backend`.
        device, dtype: device and dtype of the parameters.

    Shape:
        - `input`: (T, B, I), (B, T, I) with `batch_first`, (T, I) unbatched, or a `PackedSequence`
        - `hx`: (layers * directions, B, H), zeros if not given
        - `lengths`: (B), the number of steps of each row of a padded batch
        - `output`: (T, B, directions * H), in the layout of the input; `h_n` as `hx`
    """

    kind = "GRU"


class LSTM(GatedLayer):
    """The function of `torch.nn.LSTM`, with its constructor and its parameters, on the kernels of this package.

    >>> layer = LSTM(10, 128, batch_first=True)
    >>> _ = layer.load_state_dict(nn.LSTM(10, 128).state_dict())
    >>> output, (h_n, c_n) = layer(torch.zeros(32, 50, 10))
    >>> output.shape, c_n.shape
    (torch.Size([32, 50, 128]), torch.Size([1, 32, 128]))

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as in torch.
        proj_size: must be 0; this layer has no projections.
        checkpoint: if set, training saves only states and recomputes this many steps at a time. None saves the gates.
            Keyword-only, like all arguments below.
        backend: "reference", "manual", "native" or "auto"; see :func:`goru.use_backend`.
        device, dtype: device and dtype of the parameters.

    Shape:
        - `input`: (T, B, I), (B, T, I) with `batch_first`, (T, I) unbatched, or a `PackedSequence`
        - `hx`: a pair `(h_0, c_0)`, each (layers * directions, B, H), zeros if not given
        - `lengths`: (B), the number of steps of each row of a padded batch
        - `output`: (T, B, directions * H), in the layout of the input; `(h_n, c_n)` as `hx`
    """

    kind = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        checkpoint: int | None = None,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if proj_size != 0:
            raise ValueError(f"goru.LSTM has no projections: proj_size must be 0, got {proj_size}; use torch.nn.LSTM")
        shared: dict[str, Any] = {"checkpoint": checkpoint, "backend": backend, "device": device, "dtype": dtype}
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **shared)
        self.proj_size = 0


def like(layer: nn.GRU | nn.LSTM, backend: str | None = None) -> GRU | LSTM:
    """Our layer with the sizes of one of torch's, without dropout, and without memory for its parameters."""
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional")
    make = LSTM if isinstance(layer, nn.LSTM) else GRU
    return make(**{name: getattr(layer, name) for name in names}, backend=backend, device="meta")


class GatedCell(RecurrentCell):
    """One step of a GRU or an LSTM."""

    kind: str
    optional = ("bias_ih", "bias_hh")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias, least=0)
        unit = GatedUnit(self.kind, hidden_size, bias)
        super().__init__(unit, input_size, hidden_size, backend=backend, device=device, dtype=dtype)
        self.bias = bias
        self._stepper = Stepper(unit.recurrence, GatedOptions())


class GRUCell(GatedCell):
    """One step of a GRU; the function of `torch.nn.GRUCell`.

    >>> cell = GRUCell(10, 20)
    >>> cell(torch.zeros(3, 10)).shape
    torch.Size([3, 20])

    Args:
        input_size, hidden_size, bias, device, dtype: as in torch.
        backend: keyword-only; see :func:`goru.use_backend`.

    Shape:
        - `input`: (B, I) or (I)
        - `hx`: (B, H) or (H), zeros if not given
        - returns the next state, with the shape of `hx`
    """

    kind = "GRU"


class LSTMCell(GatedCell):
    """One step of an LSTM; the function of `torch.nn.LSTMCell`.

    >>> cell = LSTMCell(10, 20)
    >>> h, c = cell(torch.zeros(3, 10))
    >>> h.shape, c.shape
    (torch.Size([3, 20]), torch.Size([3, 20]))

    Args:
        input_size, hidden_size, bias, device, dtype: as in torch.
        backend: keyword-only; see :func:`goru.use_backend`.

    Shape:
        - `input`: (B, I) or (I)
        - `hx`: a pair `(h, c)`, each (B, H) or (H), zeros if not given
        - returns the next pair
    """

    kind = "LSTM"


GRU.cell_type, LSTM.cell_type = GRUCell, LSTMCell
