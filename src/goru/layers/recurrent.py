"""The contract of torch.nn.GRU and torch.nn.GRUCell, written once for every unit of this package.

A *unit* (GORUUnit, EURNNUnit) knows its parameters, their initialisation and its recurrence over one layer in one
direction. The modules here know everything else: layers, directions, packing, padding, unbatched input, dropout,
names, errors. Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..kernels import dispatch
from ..kernels.watching import autocast_enabled, refuse_transforms, unwatched
from ..rotations import Mesh, orthogonality_error

Parameters = dict[str, Tensor]


class Unit(Protocol):
    """One kind of recurrent unit, without state: what a layer needs to know of it."""

    @property
    def name(self) -> str: ...

    @property
    def mesh(self) -> Mesh: ...

    def shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters of one layer in one direction."""
        ...

    def initialise(self, parameters: Parameters) -> None: ...

    def state_dtype(self, dtype: torch.dtype) -> torch.dtype: ...

    def run(
        self,
        x: Tensor,
        h0: Tensor,
        parameters: Parameters,
        lengths: Tensor | None,
        reverse: bool,
        backend: str,
        matrix: Callable[[], Tensor],
    ) -> tuple[Tensor, Tensor]:
        """output (T, B, H) and h_n (B, H); `matrix()` gives U, built once or kept from an earlier call."""
        ...

    def describe(self) -> str: ...


class MatrixMemory:
    """U of the last inference call, good for as long as the angles have the same values.

    Values are compared, not version counters: those miss a change through `.data`.
    """

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Tensor, str, Tensor]] = {}

    def matrix(self, key: str, angles: Tensor, mesh: Mesh, backend: str) -> Tensor:
        if backend == "reference" or not unwatched(angles) or (torch.is_grad_enabled() and angles.requires_grad):
            return build_matrix(angles, mesh, backend)
        refuse_transforms(backend, angles)  # a remembered U would not know that derivatives are wanted
        kept = self.kept.get(key)
        if kept is not None and kept[1] == backend and kept[0].dtype == angles.dtype and torch.equal(kept[0], angles):
            return kept[2]
        # An inference tensor could not be saved for a backward pass that comes later, with frozen angles.
        with torch.inference_mode(False), torch.no_grad():
            u = build_matrix(angles, mesh, backend)
            self.kept[key] = (angles.detach().clone(), backend, u)
        return u

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": {}}


def build_matrix(angles: Tensor, mesh: Mesh, backend: str) -> Tensor:
    """U in the dtype of the angles. Half precision is built in float32 and rounded once, not layer by layer."""
    if angles.dtype in (torch.bfloat16, torch.float16):
        u = dispatch.mesh_matrix(angles.float(), mesh, "manual" if backend == "native" else backend)
        return u if mesh.complex else u.to(angles.dtype)
    return dispatch.mesh_matrix(angles, mesh, backend)


def check_sizes(input_size: Any, hidden_size: Any, bias: Any) -> None:
    """The checks that layers and cells share, as nn.GRU makes them."""
    if not isinstance(bias, bool):
        raise TypeError(f"bias should be of type bool, got: {type(bias).__name__}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")


class RecurrentLayer(nn.Module):
    """Stacked layers of one unit, in one or two directions, called as nn.GRU is."""

    def __init__(
        self,
        unit: Unit,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        backend: str | None,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.dropout = float(dropout)  # a TypeError where nn.GRU has one
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= self.dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being "
                f"zeroed, got {dropout!r}"
            )
        if not isinstance(batch_first, bool):
            raise TypeError(f"batch_first should be of type bool, got: {type(batch_first).__name__}")
        if not isinstance(num_layers, int):
            raise TypeError(f"num_layers should be of type int, got: {type(num_layers).__name__}")
        if num_layers <= 0:
            raise ValueError(f"num_layers must be greater than zero, got {num_layers}")
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        _check_floating(dtype)
        self.unit = unit
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bool(bidirectional)
        self.backend = None if backend is None else dispatch.check_name(backend, "backend")
        self._matrices = MatrixMemory()
        self._gate_listeners: list[Callable[..., None]] = []
        self._names = tuple(unit.shapes(input_size))
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * self.num_directions
            for suffix in self._suffixes(layer):
                for name, shape in unit.shapes(width).items():
                    parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                    self.register_parameter(name + suffix, parameter)
        self.reset_parameters()
        if self.backend is None:
            dispatch.mention_pure_torch()

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse") if self.bidirectional else (f"_l{layer}",)

    def _parameters_of(self, layer: int, reverse: bool) -> Parameters:
        suffix = self._suffixes(layer)[reverse]
        return {name: getattr(self, name + suffix) for name in self._names}  # finds parametrised weights too

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for layer in range(self.num_layers):
            for reverse in range(self.num_directions):
                self.unit.initialise(self._parameters_of(layer, bool(reverse)))

    def flatten_parameters(self) -> None:
        """Does nothing: there is no flat copy of the weights to keep. Here because nn.GRU has it."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [
            list(self._parameters_of(layer, bool(reverse)).values())
            for layer in range(self.num_layers)
            for reverse in range(self.num_directions)
        ]

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        parts.append(self.unit.describe())
        if self.backend is not None:
            parts.append(f"backend={self.backend!r}")
        return ", ".join(parts)

    def orthogonal_matrix(self, layer: int = 0, reverse: bool = False) -> Tensor:
        """The H x H matrix U of one layer and direction; it acts as U @ h. Differentiable."""
        if not 0 <= layer < self.num_layers:
            raise IndexError(f"layer must be from 0 to {self.num_layers - 1}, got {layer}")
        if reverse and not self.bidirectional:
            raise IndexError("reverse=True asks for the backward direction, but the layer is not bidirectional")
        angles = self._parameters_of(layer, reverse)["angles"]
        return build_matrix(angles, self.unit.mesh, self._choose(angles).backend)

    def orthogonality_error(self) -> float:
        """max |U^H U - I| over all layers and directions."""
        with torch.no_grad():
            errors = [
                orthogonality_error(self.orthogonal_matrix(layer, bool(reverse)))
                for layer in range(self.num_layers)
                for reverse in range(self.num_directions)
            ]
            return torch.tensor(errors, dtype=torch.float64).max().item()  # Python's max would pass over a NaN

    def _choose(self, weight: Tensor) -> dispatch.Choice:
        return dispatch.choose(self.backend, weight.device, weight.dtype)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Any, Tensor]:
        """Run over a sequence: (T, B, I), with `batch_first` (B, T, I), unbatched (T, I), or a PackedSequence.

        `hx` is the initial state (layers * directions, B, H), zeros if not given. `lengths` (B) says how many steps
        each row of a padded batch has: beyond them the output is zero, `h_n` is the state at each row's last step,
        and the backward direction starts there. Returns `output` and `h_n` as nn.GRU does.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("a PackedSequence carries its own lengths: lengths= goes with a padded tensor")
            return self._forward_packed(input, hx)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self.unit.name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        if hx is not None and hx.dim() != input.dim():
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(f"For {kind} input, hx should also be {input.dim()}-D but got {hx.dim()}-D tensor")
        if not batched:
            input = input.unsqueeze(1)
            hx = None if hx is None else hx.unsqueeze(1)
        elif self.batch_first:
            input = input.transpose(0, 1)
        output, h_n = self._run(input, hx, self._check_lengths(lengths, input))
        if not batched:
            return output.squeeze(1), h_n.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output, h_n

    def _forward_packed(self, packed: PackedSequence, hx: Tensor | None) -> tuple[PackedSequence, Tensor]:
        if packed.data.dim() != 2:
            raise RuntimeError(f"a packed input must have 2 dimensions, got {packed.data.dim()}")
        batch = int(packed.batch_sizes[0])
        self._check_state(hx, batch, packed.data)
        if hx is not None and packed.sorted_indices is not None:
            hx = hx.index_select(1, packed.sorted_indices)
        # Rows stay in sorted order here: the packed result has the very layout of the packed input.
        padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        output, h_n = self._run(padded, hx, lengths.to(padded.device))
        data = pack_padded_sequence(output, lengths).data
        if packed.unsorted_indices is not None:
            h_n = h_n.index_select(1, packed.unsorted_indices)
        return PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices), h_n

    def _run(self, x: Tensor, hx: Tensor | None, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        """All layers and directions over x (T, B, I)."""
        first = self._parameters_of(0, False)["weight_ih"]
        self._check_input(x, first)
        B = x.shape[1]
        self._check_state(hx, B, x)
        if x.dtype != first.dtype:  # only under autocast
            x = x.to(first.dtype)
        state_dtype = self.unit.state_dtype(first.dtype)
        if hx is None:
            hx = torch.zeros(
                self.num_layers * self.num_directions, B, self.hidden_size, dtype=state_dtype, device=x.device
            )
        elif hx.dtype != state_dtype:
            hx = hx.to(state_dtype)
        backend = self._choose(first).backend
        states = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                parameters = self._parameters_of(layer, bool(direction))
                h0 = hx[len(states)]
                for listen in self._gate_listeners:
                    listen(len(states), x, h0, parameters, lengths, bool(direction))

                def matrix(angles: Tensor = parameters["angles"], key: str = suffix) -> Tensor:
                    return self._matrices.matrix(key, angles, self.unit.mesh, backend)

                output, h_n = self.unit.run(x, h0, parameters, lengths, bool(direction), backend, matrix)
                outputs.append(output)
                states.append(h_n)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = nn.functional.dropout(x, self.dropout, self.training)
        return x, torch.stack(states)  # a copy also of a single one: h_n may be detached in place

    def _check_input(self, x: Tensor, weight: Tensor) -> None:
        if x.dtype != weight.dtype and not autocast_enabled(x):
            raise ValueError(
                f"{self.unit.name} input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        if x.device != weight.device:
            raise RuntimeError(
                f"{self.unit.name} input is on {x.device}, its weights are on {weight.device}: move one to the other"
            )
        if x.shape[0] == 0:
            raise RuntimeError(f"{self.unit.name}: expected a sequence of at least one step, got none")

    def _check_state(self, hx: Tensor | None, batch: int, x: Tensor) -> None:
        if hx is None:
            return
        expected = (self.num_layers * self.num_directions, batch, self.hidden_size)
        if tuple(hx.shape) != expected:
            raise RuntimeError(f"Expected hidden size {expected}, got {list(hx.shape)}")
        dtype = self.unit.state_dtype(self._parameters_of(0, False)["weight_ih"].dtype)
        if hx.dtype != dtype and not autocast_enabled(x):
            raise RuntimeError(f"{self.unit.name}: hx must have dtype {dtype}, got {hx.dtype}")
        if hx.device != x.device:
            raise RuntimeError(f"{self.unit.name}: hx is on {hx.device}, the input is on {x.device}")

    def _check_lengths(self, lengths: Tensor | Sequence[int] | None, x: Tensor) -> Tensor | None:
        """lengths as an int64 tensor (B); their values are checked inside the operators."""
        if lengths is None:
            return None
        lengths = torch.as_tensor(lengths, device=x.device)
        if lengths.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8) and lengths.numel():
            raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}")
        if lengths.dim() == 0:
            lengths = lengths.reshape(1)
        if tuple(lengths.shape) != (x.shape[1],):
            raise RuntimeError(
                f"lengths must have one number for each of the {x.shape[1]} rows, got shape {list(lengths.shape)}"
            )
        return lengths.to(torch.int64)


class RecurrentCell(nn.Module):
    """One step of a unit, called as nn.GRUCell is."""

    def __init__(
        self,
        unit: Unit,
        input_size: int,
        hidden_size: int,
        bias: bool,
        backend: str | None,
        device: Any,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        _check_floating(dtype)
        self.unit = unit
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.backend = None if backend is None else dispatch.check_name(backend, "backend")
        self._matrices = MatrixMemory()
        shapes = unit.shapes(input_size)
        self._names = tuple(shapes)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        if not bias:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _named(self) -> Parameters:
        return {name: getattr(self, name) for name in self._names}

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        self.unit.initialise(self._named())

    def extra_repr(self) -> str:
        bias = ", bias=False" if self.bias is None else ""
        return f"{self.input_size}, {self.hidden_size}{bias}, {self.unit.describe()}"

    def orthogonal_matrix(self) -> Tensor:
        """The H x H matrix U; it acts as U @ h. Differentiable."""
        angles = self.angles
        assert isinstance(angles, Tensor)
        return build_matrix(angles, self.unit.mesh, self._choose(angles).backend)

    def orthogonality_error(self) -> float:
        """max |U^H U - I|."""
        with torch.no_grad():
            return orthogonality_error(self.orthogonal_matrix())

    def _choose(self, weight: Tensor) -> dispatch.Choice:
        return dispatch.choose(self.backend, weight.device, weight.dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state (B, H) from an input (B, I) and a state (B, H), zeros if not given; or both without B."""
        name = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if hx is not None and hx.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {hx.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise RuntimeError(f"{name}: hx must have as many dimensions as the input, {input.dim()}, got {hx.dim()}")
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        parameters = self._named()
        weight = parameters["weight_ih"]
        if x.shape[1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}")
        autocast = autocast_enabled(x)
        if x.dtype != weight.dtype and not autocast:
            raise RuntimeError(f"{name}: input must have the dtype of the weights, {weight.dtype}, got {x.dtype}")
        state_dtype = self.unit.state_dtype(weight.dtype)
        if hx is None:
            h0 = torch.zeros(x.shape[0], self.hidden_size, dtype=state_dtype, device=x.device)
        else:
            h0 = hx if batched else hx.unsqueeze(0)
            if h0.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden has inconsistent hidden_size: got {h0.shape[1]}, expected {self.hidden_size}"
                )
            if h0.shape[0] != x.shape[0]:
                raise RuntimeError(f"Input batch size {x.shape[0]} doesn't match hidden batch size {h0.shape[0]}")
            if h0.dtype != state_dtype and not autocast:
                raise RuntimeError(f"{name}: hx must have dtype {state_dtype}, got {h0.dtype}")
        backend = self._choose(weight).backend

        def matrix() -> Tensor:
            return self._matrices.matrix("", parameters["angles"], self.unit.mesh, backend)

        x = x.to(weight.dtype).unsqueeze(0)
        _, h_n = self.unit.run(x, h0.to(state_dtype), parameters, None, False, backend, matrix)
        return h_n if batched else h_n.squeeze(0)


def _check_floating(dtype: torch.dtype | None) -> None:
    if dtype is not None and not dtype.is_floating_point:
        raise RuntimeError(f"parameters are real floating point numbers, got dtype={dtype}")
