"""EURNN: a recurrent layer without gates, whose transition is orthogonal or unitary (Jing et al. 2016).

h_t = modReLU(U h_{t-1} + W_x x_t, b)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.backends import Choice
from ..kernels.eurnn import EURNN as RECURRENCE
from ..kernels.eurnn import EurnnInputs, EurnnOptions
from ..rotations import Mesh
from .orthogonal import OrthogonalCell, OrthogonalLayer
from .unit import Parameters, State, check_sizes, listed


@dataclass(frozen=True)
class EURNNUnit:
    """Parameters, initialization and recurrence of an EURNN. Parameters are real even if the state is complex."""

    mesh: Mesh
    bias: bool

    name = "EURNN"
    recurrence = RECURRENCE.name

    def shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        H = self.mesh.size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (2 * H if self.mesh.complex else H, input_size)}
        if self.bias:
            shapes["bias"] = (H,)
        shapes["angles"] = (self.mesh.num_angles,)
        return shapes

    @torch.no_grad()
    def initialize(self, parameters: Parameters) -> None:
        nn.init.uniform_(parameters["weight_ih"], -0.01, 0.01)
        if self.bias:
            parameters["bias"].zero_()
        if self.mesh.num_angles:
            nn.init.uniform_(parameters["angles"], -math.pi, math.pi)

    def state_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        if not self.mesh.complex:
            return (dtype,)
        # There is no complex bfloat16, and complex half lacks most operations.
        return (torch.complex128 if dtype == torch.float64 else torch.complex64,)

    def run(
        self,
        x: Tensor,
        state: State,
        parameters: Parameters,
        lengths: Tensor | None,
        reverse: bool,
        backend: Choice,
        matrix: Callable[[], Tensor],
    ) -> tuple[Tensor, State]:
        if self.mesh.complex and x.dtype in (torch.bfloat16, torch.float16):
            wide = {name: value.float() for name, value in parameters.items()}
            output, last = self.run(x.float(), state, wide, lengths, reverse, backend, matrix)
            return output.to(x.dtype), last
        rotate = x.dtype in (torch.float32, torch.float64) and RECURRENCE.rotates(self.mesh, backend)
        weights = parameters["weight_ih"], parameters.get("bias")
        rotation = (None, parameters["angles"]) if rotate else (matrix(), None)
        inputs = EurnnInputs(x, state[0], *weights, *rotation, lengths)
        output, h_n = RECURRENCE(inputs, EurnnOptions(self.mesh, reverse), backend)
        return output, (h_n,)

    def cell_options(self) -> dict[str, Any]:
        return {"complex": self.mesh.complex, "mesh": self.mesh.kind, "capacity": self.mesh.capacity}

    def describe(self) -> str:
        return listed(self.cell_options(), capacity=None)


class EURNN(OrthogonalLayer):
    """Efficient unitary recurrent layer, with the interface of `torch.nn.GRU`.

    >>> layer = EURNN(10, 64)
    >>> output, h_n = layer(torch.zeros(50, 32, 10))
    >>> output.shape, h_n.dtype
    (torch.Size([50, 32, 64]), torch.complex64)

    Args:
        input_size: number of features in the input, I.
        hidden_size: number of features in the state, H; any number.
        num_layers: number of stacked layers.
        bias: if False, there are no biases. Then modReLU is the identity and the whole layer is linear.
        batch_first: input and output are (B, T, ...) instead of (T, B, ...).
        dropout: dropout probability on the output of every layer except the last, in training.
        bidirectional: also run backward, from the end of each sequence.
        complex: if True, U is unitary and the state complex: `output` is its real part, `h_n` and `hx` are complex
            (the real part alone is not enough to continue from). Use `h_n[-1].real` to read the last state.
            Keyword-only, like all arguments below.
        mesh: layout of the rotations, "tunable" or "fft".
        capacity: layers of the tunable mesh, 1 to hidden_size (None: 2). hidden_size layers reach every U.
        backend: "reference", "manual", "native", "triton" or "auto"; see :func:`goru.use_backend`.
        device, dtype: device and dtype of the parameters.

    Shape:
        - `input`: (T, B, I), (B, T, I) with `batch_first`, (T, I) unbatched, or a `PackedSequence`
        - `hx`: (layers * directions, B, H), zeros if not given
        - `lengths`: (B), the number of steps of each row of a padded batch
        - `output`: (T, B, directions * H), in the layout of the input; `h_n` as `hx`
    """

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
        complex: bool = True,
        mesh: str = "tunable",
        capacity: int | None = None,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias)
        unit = EURNNUnit(Mesh(mesh, hidden_size, capacity, complex), bias)
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
        self.complex = complex


class EURNNCell(OrthogonalCell):
    """One step of an EURNN, with the interface of `torch.nn.GRUCell`; the state is complex if the cell is.

    >>> cell = EURNNCell(10, 20, complex=False)
    >>> cell(torch.zeros(3, 10)).shape
    torch.Size([3, 20])

    Args:
        input_size, hidden_size, bias: as in :class:`goru.EURNN`.
        complex, mesh, capacity, backend, device, dtype: as in :class:`goru.EURNN`, keyword-only.

    Shape:
        - `input`: (B, I) or (I)
        - `hx`: (B, H) or (H), zeros if not given
        - returns the next state, with the shape of `hx`
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        complex: bool = True,
        mesh: str = "tunable",
        capacity: int | None = None,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias, least=0)
        unit = EURNNUnit(Mesh(mesh, hidden_size, capacity, complex), bias)
        super().__init__(unit, input_size, hidden_size, backend=backend, device=device, dtype=dtype)
        self.complex = complex


EURNN.cell_type = EURNNCell
