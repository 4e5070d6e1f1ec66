"""GORU: a GRU whose candidate path is orthogonal.

r_t = sigmoid(W_r h_{t-1} + W_rx x_t + b_r)
z_t = sigmoid(W_z h_{t-1} + W_zx x_t + b_z)
c_t = modReLU(W_x x_t + r_t * (U h_{t-1}), b_h)
h_t = z_t * h_{t-1} + (1 - z_t) * c_t
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
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
from .recurrent import RecurrentModule
from .starts import DEFAULT_START, LONGEST_TUNABLE, MEMORY_CAPACITY, STARTS, start_with_memory
from .unit import Parameters, State, check_checkpoint, check_sizes, listed

if TYPE_CHECKING:
    from .convert import Conversion


@dataclass(frozen=True)
class GORUUnit:
    """Parameters, initialization and recurrence of a GORU; a disabled gate has no parameters."""

    mesh: Mesh
    bias: bool
    reset_gate: bool
    update_gate: bool
    init: str
    checkpoint: int | None = None

    name = "GORU"
    recurrence = RECURRENCE.name

    def __post_init__(self) -> None:
        for gate in ("reset_gate", "update_gate"):
            if not isinstance(getattr(self, gate), bool):
                raise TypeError(f"{gate} should be of type bool, got: {type(getattr(self, gate)).__name__}")
        check_checkpoint(self.checkpoint)
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
    def initialize(self, parameters: Parameters, memory: float | None = None) -> None:
        if memory is None:
            STARTS[self.init](self, parameters)
        else:
            start_with_memory(self, parameters, memory)

    def state_dtypes(self, dtype: torch.dtype) -> tuple[torch.dtype, ...]:
        return (dtype,)

    def options(self, reverse: bool = False) -> GoruOptions:
        return GoruOptions(self.mesh, self.reset_gate, self.update_gate, reverse, self.checkpoint)

    def inputs(
        self, x: Tensor, state: State, parameters: Parameters, lengths: Tensor | None, u: Tensor | None
    ) -> GoruInputs:
        """The arguments of the recurrence, by rotations where u is None."""
        weights = parameters["weight_ih"], parameters.get("weight_hh"), parameters.get("bias")
        return GoruInputs(x, state[0], *weights, u, parameters["angles"] if u is None else None, lengths)

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

    def cell_options(self) -> dict[str, Any]:
        gates = {"reset_gate": self.reset_gate, "update_gate": self.update_gate}
        return {"mesh": self.mesh.kind, "capacity": self.mesh.capacity, **gates, "init": self.init}

    def describe(self) -> str:
        options = self.cell_options() | {"checkpoint": self.checkpoint}
        return listed(options, capacity=None, reset_gate=True, update_gate=True, init=DEFAULT_START, checkpoint=None)


def _mesh(kind: str | None, size: int, capacity: int | None, memories: tuple[float, ...] | None) -> Mesh:
    """The mesh of a GORU; with a memory, the default is the one that learns better over so many steps."""
    if kind is None and memories is not None and max(memories) <= LONGEST_TUNABLE:
        return Mesh("tunable", size, min(MEMORY_CAPACITY, size) if capacity is None else capacity)
    if kind is None and capacity is not None:
        raise ValueError(
            "capacity needs mesh='tunable', which is the default only for a memory of at most "
            f"{LONGEST_TUNABLE} steps; got capacity={capacity} without mesh"
        )
    return Mesh("fft" if kind is None else kind, size, capacity)


def _memories(memory: float | Sequence[float] | None, layers: int, bias: bool, init: str) -> tuple[float, ...] | None:
    """The memory of each layer, validated."""
    if memory is None:
        return None
    if not bias:
        raise ValueError("memory sets the biases of the gates: it needs bias=True")
    if init != DEFAULT_START:
        raise ValueError(
            f"init chooses the initialization without memory: pass one of them, got memory={memory!r} and init={init!r}"
        )
    given = tuple(memory) if isinstance(memory, Sequence) else (memory,) * layers
    if any(isinstance(m, bool) or not isinstance(m, numbers.Real) for m in given):
        instead = "; use .tolist()" if hasattr(memory, "tolist") else ""
        raise TypeError(f"memory should be a number of steps, or one per layer, got {memory!r}{instead}")
    if len(given) != layers:
        raise ValueError(f"memory needs one number for each of the {layers} layers, got {len(given)}")
    if not all(1 <= m < math.inf for m in given):
        raise ValueError(f"memory must be at least 1 step and finite, got {memory!r}")
    return tuple(float(m) for m in given)


class _WithMemory(RecurrentModule):
    """The `memory` of a GORU or a GORUCell: the start of each layer, and a buffer that scales its b_h."""

    unit: Any
    _starts_with: tuple[float, ...] | None
    _buffer: str

    def _add_buffers(self, device: Any, dtype: torch.dtype | None) -> None:
        for layer, steps in enumerate(self._starts_with or ()):
            self.register_buffer(self._buffer.format(layer), torch.tensor(steps, device=device, dtype=dtype))

    def _initialize(self, parameters: Parameters, layer: int = 0) -> None:
        self.unit.initialize(parameters, None if self._starts_with is None else self._starts_with[layer])

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """The memory is a part of the state: repr() and reset_parameters() take the loaded one."""
        super()._load_from_state_dict(*args, **kwargs)
        loaded = [self._buffers[self._buffer.format(layer)] for layer in range(len(self._starts_with or ()))]
        if loaded and not any(buffer is None or buffer.is_meta for buffer in loaded):
            self._starts_with = tuple(float(buffer) for buffer in loaded if buffer is not None)

    def _effective(self, parameters: Parameters, layer: int = 0) -> Parameters:
        """With `memory`, b_h is spread over that many steps: each step adds b_h / memory to the magnitude."""
        memory = self._buffers.get(self._buffer.format(layer))
        if memory is None:
            return parameters
        bias, H = parameters["bias"], self.hidden_size
        return parameters | {"bias": torch.cat([bias[:-H], bias[-H:] / memory])}

    def extra_repr(self) -> str:
        text = super().extra_repr()
        if self._starts_with is None:
            return text
        alike = len(set(self._starts_with)) == 1
        return f"{text}, memory={self._starts_with[0] if alike else self._starts_with}"


class GORU(_WithMemory, OrthogonalLayer):
    """Gated orthogonal recurrent layer, a drop-in for `torch.nn.GRU`.

    >>> layer = GORU(10, 128, batch_first=True)
    >>> output, h_n = layer(torch.zeros(32, 50, 10))
    >>> output.shape, h_n.shape
    (torch.Size([32, 50, 128]), torch.Size([1, 32, 128]))

    Args:
        input_size: number of features in the input, I.
        hidden_size: number of features in the state, H; any number.
        num_layers: number of stacked layers.
        bias: if False, there are no biases. Then modReLU is the identity and the candidate is linear.
        batch_first: input and output are (B, T, ...) instead of (T, B, ...).
        dropout: dropout probability on the output of every layer except the last, in training.
        bidirectional: also run backward, from the end of each sequence.
        mesh: layout of the rotations, "fft" or "tunable". None is "tunable" if the largest `memory` is at most 500
            steps, otherwise "fft". Keyword-only, like all arguments below.
        capacity: layers of the tunable mesh, 1 to hidden_size, which reaches every rotation. None is 2, or 8 if
            `memory` chose the mesh (hidden_size if that is less).
        reset_gate, update_gate: False removes the gate (r = 1, z = 0).
        memory: how many steps a state lasts when training begins; one number, or one per layer. None is the authors'
            initialization, whose state lasts a few dozen steps.
        init: initialization without `memory`: "published" (b_h = 0.01) or "june2017" (b_h = 2).
        checkpoint: if set, training saves only states and recomputes this many steps at a time. None saves the gates.
        backend: "reference", "manual", "native", "triton" or "auto"; see :func:`goru.use_backend`.
        device, dtype: device and dtype of the parameters.

    Shape:
        - `input`: (T, B, I), (B, T, I) with `batch_first`, (T, I) unbatched, or a `PackedSequence`
        - `hx`: (layers * directions, B, H), zeros if not given
        - `lengths`: (B), the number of steps of each row of a padded batch
        - `output`: (T, B, directions * H), in the layout of the input; `h_n` as `hx`

    With `memory`, the third part of the bias, b_h, is spread over that many steps: modReLU uses b_h / memory. The
    state dict then also has `memory_l{k}`.
    """

    _buffer = "memory_l{}"

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
        mesh: str | None = None,
        capacity: int | None = None,
        reset_gate: bool = True,
        update_gate: bool = True,
        memory: float | Sequence[float] | None = None,
        init: str = DEFAULT_START,
        checkpoint: int | None = None,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias)
        self._starts_with = _memories(memory, num_layers if isinstance(num_layers, int) else 1, bias, init)
        rotations = _mesh(mesh, hidden_size, capacity, self._starts_with)
        unit = GORUUnit(rotations, bias, reset_gate, update_gate, init, checkpoint)
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
        self._add_buffers(device, dtype)

    @property
    def memory(self) -> tuple[float, ...] | None:
        """The `memory` of each layer; None with the authors' initialization."""
        if self._starts_with is None:
            return None
        return tuple(float(self.get_buffer(f"memory_l{layer}")) for layer in range(self.num_layers))

    def cell(self, layer: int = 0, reverse: bool = False) -> GORUCell:
        cell = super().cell(layer, reverse)
        if self._starts_with is not None:
            cell._starts_with = (self._starts_with[layer],)
            cell.register_buffer("memory", self.get_buffer(f"memory_l{layer}"))
        return cell

    cell.__doc__ = OrthogonalLayer.cell.__doc__

    @classmethod
    def from_gru(cls, gru: nn.GRU, *, mesh: str | None = None, capacity: int | None = None, **options: Any) -> GORU:
        """A GORU that starts from a trained nn.GRU: its gates are copied, U is the rotation nearest to its W_hn.

        By default U is exactly that rotation, with `mesh="tunable", capacity=hidden_size`; any other mesh is fitted to
        it. `layer.conversion` has, per layer and direction, the residual of U and the biases that were dropped.

        Args:
            gru: the layer to convert; it determines sizes, device and dtype.
            mesh, capacity: as in the constructor.
            options: other keyword arguments of the constructor, without `init`. The gates keep the GRU's biases:
                `memory` only spreads b_h over that many steps.

        >>> layer = GORU.from_gru(nn.GRU(3, 8))
        >>> layer.conversion[0].residual < 1e-5
        True
        """
        from .convert import from_gru  # convert builds on this module

        return from_gru(gru, mesh=mesh, capacity=capacity, **options)


class GORUCell(_WithMemory, OrthogonalCell):
    """One step of a GORU, a drop-in for `torch.nn.GRUCell`.

    >>> cell = GORUCell(10, 20)
    >>> cell(torch.zeros(3, 10)).shape
    torch.Size([3, 20])

    Args:
        input_size, hidden_size, bias: as in :class:`goru.GORU`.
        mesh, capacity, reset_gate, update_gate, memory, init, backend, device, dtype: as in :class:`goru.GORU`,
            keyword-only, `device` and `dtype` too; `memory` is one number.

    Shape:
        - `input`: (B, I) or (I)
        - `hx`: (B, H) or (H), zeros if not given
        - returns the next state, with the shape of `hx`
    """

    _buffer = "memory"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        *,
        mesh: str | None = None,
        capacity: int | None = None,
        reset_gate: bool = True,
        update_gate: bool = True,
        memory: float | None = None,
        init: str = DEFAULT_START,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(input_size, hidden_size, bias, least=0)
        if isinstance(memory, Sequence):
            raise TypeError(f"a cell takes one memory, got {memory!r}")
        self._starts_with = _memories(memory, 1, bias, init)
        unit = GORUUnit(_mesh(mesh, hidden_size, capacity, self._starts_with), bias, reset_gate, update_gate, init)
        super().__init__(unit, input_size, hidden_size, backend=backend, device=device, dtype=dtype)
        self._add_buffers(device, dtype)
        self._stepper = Stepper(RECURRENCE.name, unit.options())


GORU.cell_type = GORUCell
