"""GORU: a GRU whose candidate path is orthogonal.

r_t = sigmoid(W_r h_{t-1} + W_rx x_t + b_r)
z_t = sigmoid(W_z h_{t-1} + W_zx x_t + b_z)
c_t = modReLU(W_x x_t + r_t * (U h_{t-1}), b_h)
h_t = z_t * h_{t-1} + (1 - z_t) * c_t
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..kernels.backends import Choice
from ..kernels.goru import GORU as RECURRENCE
from ..kernels.goru import GoruInputs, GoruOptions
from ..kernels.recurrence import Stepper
from ..rotations import Mesh
from .orthogonal import OrthogonalCell, OrthogonalLayer
from .recurrent import Parameters, State, check_sizes

if TYPE_CHECKING:
    from .convert import Conversion


@dataclass(frozen=True)
class GORUUnit:
    """Parameters, initialisation and recurrence of a GORU; a gate that is off has no parameters."""

    mesh: Mesh
    bias: bool
    reset_gate: bool
    update_gate: bool
    init: str

    name = "GORU"
    recurrence = RECURRENCE.name

    def __post_init__(self) -> None:
        for gate in ("reset_gate", "update_gate"):
            if not isinstance(getattr(self, gate), bool):
                raise TypeError(f"{gate} should be of type bool, got: {type(getattr(self, gate)).__name__}")
        if self.init not in STARTS:
            raise ValueError(f"init must be one of {', '.join(map(repr, STARTS))}, got {self.init!r}")

    @property
    def gates(self) -> int:
        return self.reset_gate + self.update_gate

    def shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        H, gates = self.mesh.size, self.gates
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": ((gates + 1) * H, input_size)}
        if gates:
            shapes["weight_hh"] = (gates * H, H)
        if self.bias:
            shapes["bias"] = ((gates + 1) * H,)
        shapes["angles"] = (self.mesh.num_angles,)
        return shapes

    @torch.no_grad()
    def initialise(self, parameters: Parameters) -> None:
        STARTS[self.init](self, parameters)

    def state_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        return (dtype,)

    def options(self, reverse: bool = False) -> GoruOptions:
        return GoruOptions(self.mesh, self.reset_gate, self.update_gate, reverse)

    def inputs(
        self, x: Tensor, state: State, parameters: Parameters, lengths: Tensor | None, u: Tensor | None
    ) -> GoruInputs:
        """The arguments of the recurrence, by rotations where u is None."""
        return GoruInputs(
            x,
            state[0],
            parameters["weight_ih"],
            parameters.get("weight_hh"),
            parameters.get("bias"),
            u,
            parameters["angles"] if u is None else None,
            lengths,
        )

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
        u = None if RECURRENCE.rotates(self.mesh, backend) else matrix()
        output, h_n = RECURRENCE(self.inputs(x, state, parameters, lengths, u), self.options(reverse), backend)
        return output, (h_n,)

    def describe(self) -> str:
        text = f"mesh={self.mesh.kind!r}"
        if self.mesh.kind == "tunable":
            text += f", capacity={self.mesh.capacity}"
        for gate in ("reset_gate", "update_gate"):
            if not getattr(self, gate):
                text += f", {gate}=False"
        return text if self.init == "published" else f"{text}, init={self.init!r}"


def _start(b_h: float) -> Callable[[GORUUnit, Parameters], None]:
    """Small weights, an open reset gate, random angles, and this bias of modReLU."""

    def start(unit: GORUUnit, parameters: Parameters) -> None:
        H = unit.mesh.size
        nn.init.uniform_(parameters["weight_ih"], -0.01, 0.01)
        if unit.gates:
            nn.init.uniform_(parameters["weight_hh"], -0.01, 0.01)
        if unit.bias:
            bias = parameters["bias"].zero_()
            if unit.reset_gate:
                bias[:H] = 2.0
            bias[-H:] = b_h
        if unit.mesh.num_angles:
            nn.init.uniform_(parameters["angles"], -math.pi, math.pi)

    return start


# How the parameters start, by the name that `init` takes: those of the two public versions of the authors' code. The
# June 2017 one goes with mesh="tunable", capacity=2.
STARTS: dict[str, Callable[[GORUUnit, Parameters], None]] = {"published": _start(0.01), "june2017": _start(2.0)}


class GORU(OrthogonalLayer):
    """Gated orthogonal recurrent layer; takes the place of `torch.nn.GRU`.

    >>> layer = GORU(10, 128, batch_first=True)
    >>> output, h_n = layer(torch.zeros(32, 50, 10))
    >>> output.shape, h_n.shape
    (torch.Size([32, 50, 128]), torch.Size([1, 32, 128]))

    Arguments as in nn.GRU, and by keyword only:
        mesh: how the rotations are laid out, "fft" or "tunable".
        capacity: layers of the tunable mesh, 1 ... hidden_size (default 2); hidden_size reaches every rotation.
        reset_gate, update_gate: False removes the gate (r = 1, z = 0).
        init: "published" (b_h = 0.01) or "june2017" (b_h = 2), see docs.
        backend: "reference", "manual", "native" or "auto"; see `goru.use_backend`.

    With `bias=False` all three biases are 0: modReLU is the identity and the candidate is linear.
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
        mesh: str = "fft",
        capacity: int | None = None,
        reset_gate: bool = True,
        update_gate: bool = True,
        init: str = "published",
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias)
        unit = GORUUnit(Mesh(mesh, hidden_size, capacity), bias, reset_gate, update_gate, init)
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
        self.reset_gate = reset_gate
        self.update_gate = update_gate
        self.conversion: list[Conversion] = []  # filled by from_gru

    def _cell(self, input_size: int) -> GORUCell:
        unit: GORUUnit = self.unit
        return GORUCell(
            input_size,
            self.hidden_size,
            self.bias,
            mesh=unit.mesh.kind,
            capacity=unit.mesh.capacity,
            reset_gate=unit.reset_gate,
            update_gate=unit.update_gate,
            init=unit.init,
            backend=self.backend,
            device="meta",
        )

    @classmethod
    def from_gru(cls, gru: nn.GRU, *, mesh: str | None = None, capacity: int | None = None, **options: Any) -> GORU:
        """A GORU that starts from a trained nn.GRU: its gates are copied, U is the rotation nearest to its W_hn.

        By default U is that rotation exactly, by `mesh="tunable", capacity=hidden_size`; another mesh is fitted to it.
        `layer.conversion` has, per layer and direction, the residual of U and the biases that have no place.
        """
        from .convert import from_gru  # convert builds on this module

        return from_gru(gru, mesh=mesh, capacity=capacity, **options)


class GORUCell(OrthogonalCell):
    """One step of a GORU; takes the place of `torch.nn.GRUCell`.

    >>> cell = GORUCell(10, 20)
    >>> cell(torch.zeros(3, 10)).shape
    torch.Size([3, 20])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        mesh: str = "fft",
        capacity: int | None = None,
        reset_gate: bool = True,
        update_gate: bool = True,
        init: str = "published",
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias, least=0)
        unit = GORUUnit(Mesh(mesh, hidden_size, capacity), bias, reset_gate, update_gate, init)
        super().__init__(unit, input_size, hidden_size, bias=bias, backend=backend, device=device, dtype=dtype)
        self._stepper = Stepper(RECURRENCE.name, unit.options())

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state (B, H) from an input (B, I) and a state (B, H), zeros if not given; or both without B."""
        if hx is not None and self.hidden_size and not (torch.compiler.is_compiling() or torch.is_grad_enabled()):
            own = self._parameters
            if all(name in own for name in self._names):  # else one is computed: torch.nn.utils.parametrize
                parameters = own["weight_ih"], own.get("weight_hh"), own.get("bias"), own["angles"]
                if (h := self._stepper.step(input, hx, parameters, self.backend)) is not None:
                    return h
        return super().forward(input, hx)
