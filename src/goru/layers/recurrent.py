"""The interface of torch.nn.GRU and torch.nn.GRUCell, written once for every unit of this package.

A *unit* (unit.py) defines the parameters, their initialization and the recurrence of one layer in one direction. The
modules here do everything else: layers, directions, packing, padding, unbatched input, dropout, names, errors.
Nothing here needs a mesh; orthogonal.py adds it. Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

import numbers
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..kernels import backends
from ..kernels.backends import Choice
from ..kernels.recurrence import Stepper
from ..tracing import autocast_enabled
from .unit import (
    Parameters,
    State,
    Unit,
    as_state,
    check_floating,
    from_state,
    in_dtype,
    result_dtype,
    wrong_state_dtype,
)


class RecurrentModule(nn.Module):
    """What layers and cells share: a unit, its sizes, its parameters and its backend."""

    def __init__(
        self, unit: Any, input_size: int, hidden_size: int, backend: str | None, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        check_floating(dtype)
        self.unit: Unit = unit
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.backend = None if backend is None else backends.check_name(backend, "backend")
        self._names = tuple(unit.shapes(input_size))

    def _add_parameters(self, input_size: int, suffix: str, device: Any, dtype: torch.dtype | None) -> None:
        """The parameters of one layer in one direction, not initialized yet."""
        for name, shape in self.unit.shapes(input_size).items():
            self.register_parameter(name + suffix, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def _initialize(self, parameters: Parameters, layer: int = 0) -> None:
        self.unit.initialize(parameters)

    def _effective(self, parameters: Parameters, layer: int = 0) -> Parameters:
        """The parameters of a layer in the form that its recurrence expects."""
        return parameters

    def _backend(self, weight: Tensor) -> Choice:
        argument = self.backend if self.hidden_size else backends.REFERENCE.name  # no kernel takes 0 units
        return backends.choose(argument, weight.device, weight.dtype, self.unit.recurrence, self.hidden_size)

    def _start(self, state: State | None, size: tuple[int, ...], weight: Tensor) -> State:
        """The initial state in the dtypes of the recurrence; zeros of this size if there is none."""
        dtypes = self.unit.state_dtypes(weight.dtype)
        if state is None:
            return tuple(torch.zeros(size, dtype=dtype, device=weight.device) for dtype in dtypes)
        return tuple(part.to(dtype) for part, dtype in zip(state, dtypes, strict=True))

    def _run_unit(
        self,
        x: Tensor,
        state: State,
        parameters: Parameters,
        lengths: Tensor | None,
        reverse: bool,
        backend: Choice,
        suffix: str = "",
    ) -> tuple[Tensor, State]:
        """One layer in one direction, whose parameters have this suffix."""
        return self.unit.run(x, state, parameters, lengths, reverse, backend)

    def __prepare_scriptable__(self) -> NoReturn:
        """torch.jit.script calls this."""
        instead = "use torch.jit.trace, torch.compile or torch.export"
        raise RuntimeError(f"torch.jit.script cannot compile {type(self).__name__}: {instead}")


class RecurrentLayer(RecurrentModule):
    """Stacked layers of one unit, in one or two directions, with the interface of nn.GRU."""

    cell_type: Callable[..., RecurrentCell] | None = None

    def __init__(
        self,
        unit: Any,
        input_size: int,
        hidden_size: int,
        *,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(unit, input_size, hidden_size, backend, dtype)
        self.dropout = float(dropout)  # a TypeError if nn.GRU has one
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
                stacklevel=_constructors(self) + 1,
            )
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bool(bidirectional)
        self._listeners: list[Callable[..., None]] = []  # called before each layer and direction, see gates.py
        for layer in range(num_layers):
            for suffix in self._suffixes(layer):
                self._add_parameters(self._width(layer), suffix, device, dtype)
        self.reset_parameters()
        if self.backend is None:
            backends.mention_missing()

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _places(self) -> list[tuple[int, bool]]:
        """Every layer and direction (whether it is the backward one), in the order of the states."""
        return [(layer, bool(reverse)) for layer in range(self.num_layers) for reverse in range(self.num_directions)]

    def _width(self, layer: int) -> int:
        """The features of a layer's input."""
        return self.input_size if layer == 0 else self.hidden_size * self.num_directions

    def _suffixes(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse") if self.bidirectional else (f"_l{layer}",)

    def _parameters_of(self, layer: int, reverse: bool) -> Parameters:
        suffix = self._suffixes(layer)[int(reverse)]  # torch 2.9 does not compile an index that is a bool
        return {name: getattr(self, name + suffix) for name in self._names}  # finds parametrized weights too

    def reset_parameters(self) -> None:
        """Reinitialize all parameters."""
        for layer, reverse in self._places():
            self._initialize(self._parameters_of(layer, reverse), layer)

    def flatten_parameters(self) -> None:
        """Does nothing; for compatibility with nn.GRU. There is no flat copy of the weights."""

    @property
    def all_weights(self) -> list[list[Tensor]]:
        return [list(self._parameters_of(*place).values()) for place in self._places()]

    def _check_place(self, layer: int, reverse: bool) -> None:
        if not 0 <= layer < self.num_layers:
            raise IndexError(f"layer must be from 0 to {self.num_layers - 1}, got {layer}")
        if reverse and not self.bidirectional:
            raise IndexError("reverse=True asks for the backward direction, but the layer is not bidirectional")

    def cell(self, layer: int = 0, reverse: bool = False) -> Any:
        """The cell for single steps of one layer and direction. It shares the layer's parameters."""
        self._check_place(layer, reverse)
        if self.cell_type is None:
            raise NotImplementedError(f"{type(self).__name__} has no cell")
        options = self.unit.cell_options() | {"backend": self.backend, "device": "meta"}  # without memory
        cell = self.cell_type(self._width(layer), self.hidden_size, self.bias, **options)
        for name, parameter in self._parameters_of(layer, reverse).items():
            if not isinstance(parameter, nn.Parameter):
                raise TypeError(
                    f"a cell shares parameters, but {name} of this layer is computed: remove its parametrization first"
                )
            cell.register_parameter(name, parameter)
        return cell.train(self.training)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        parts += [f"{name}={getattr(self, name)}" for name, value in defaults.items() if getattr(self, name) != value]
        if particular := self.unit.describe():
            parts.append(particular)
        if self.backend is not None:
            parts.append(f"backend={self.backend!r}")
        return ", ".join(parts)

    def implementation(self) -> tuple[str, str]:
        """The backend that would run now and its instruction set or device: the last bits of results depend on both."""
        weight = next(self.parameters())
        chosen = self._backend(weight).backend
        return chosen, backends.BACKENDS[chosen].level(weight.device)

    def forward(
        self, input: Tensor | PackedSequence, hx: Any = None, *, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Any, Any]:
        """Run over a sequence: (T, B, I), (B, T, I) with `batch_first`, (T, I) unbatched, or a PackedSequence.

        `hx` is the initial state (layers * directions, B, H), zeros if not given. `lengths` (B) is the number of steps
        of each row of a padded batch: after them the output is zero, `h_n` is the state at each row's last step, and
        the backward direction starts there. Returns `output` and `h_n` like nn.GRU.
        """
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ValueError("a PackedSequence carries its own lengths: lengths= goes with a padded tensor")
            return self._forward_packed(input, hx)
        if not isinstance(input, Tensor):
            raise TypeError(f"{self.unit.name}: input must be a Tensor or a PackedSequence, got {type(input).__name__}")
        if input.dim() not in (2, 3):
            raise ValueError(f"{self.unit.name}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        state = as_state(hx, self.unit)
        for part in state or ():
            if part.dim() != input.dim():
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise RuntimeError(f"For {kind} input, hx should also be {input.dim()}-D but got {part.dim()}-D tensor")
        if not batched:
            input = input.unsqueeze(1)
            state = None if state is None else tuple(part.unsqueeze(1) for part in state)
        elif self.batch_first:
            input = input.transpose(0, 1)
        output, last = self._run(input, state, self._check_lengths(lengths, input))
        if not batched:
            return output.squeeze(1), from_state(tuple(part.squeeze(1) for part in last))
        return output.transpose(0, 1) if self.batch_first else output, from_state(last)

    def _forward_packed(self, packed: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        if packed.data.dim() != 2:
            raise RuntimeError(f"a packed input must have 2 dimensions, got {packed.data.dim()}")
        batch = int(packed.batch_sizes[0])
        state = as_state(hx, self.unit)
        self._check_state(state, batch, packed.data)
        if state is not None and packed.sorted_indices is not None:
            state = tuple(part.index_select(1, packed.sorted_indices) for part in state)
        # Rows stay in sorted order here: the packed result has the layout of the packed input.
        padded, lengths = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes))
        output, last = self._run(padded, state, lengths.to(padded.device))
        data = pack_padded_sequence(output, lengths).data
        if packed.unsorted_indices is not None:
            last = tuple(part.index_select(1, packed.unsorted_indices) for part in last)
        result = PackedSequence(data, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
        return result, from_state(last)

    def _run(self, x: Tensor, state: State | None, lengths: Tensor | None) -> tuple[Tensor, State]:
        """All layers and directions over x (T, B, I)."""
        first = self._parameters_of(0, False)["weight_ih"]
        self._check_input(x, first)
        B = x.shape[1]
        self._check_state(state, B, x)
        results = result_dtype(x, state)
        if x.dtype != first.dtype:  # only under autocast
            x = x.to(first.dtype)
        state = self._start(state, (self.num_layers * self.num_directions, B, self.hidden_size), first)
        backend = self._backend(first)
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                parameters = self._effective(self._parameters_of(layer, bool(direction)), layer)
                start = tuple(part[len(last)] for part in state)
                for listen in self._listeners:
                    listen(len(last), x, start, parameters, lengths, bool(direction))
                output, end = self._run_unit(x, start, parameters, lengths, bool(direction), backend, suffix)
                outputs.append(output)
                last.append(end)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = nn.functional.dropout(x, self.dropout, self.training)
        # A copy even of a single state: users may detach h_n in place.
        return x.to(results), in_dtype(tuple(torch.stack(parts) for parts in zip(*last, strict=True)), results)

    def _check_input(self, x: Tensor, weight: Tensor) -> None:
        if x.dtype != weight.dtype and not (x.is_floating_point() and autocast_enabled(x)):
            # nn.GRU's message; a model of integers is not an option.
            instead = f", or convert model: model.to({x.dtype})" if x.is_floating_point() else ""
            raise ValueError(
                f"{self.unit.name}: RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}){instead}"
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

    def _check_state(self, state: State | None, batch: int, x: Tensor) -> None:
        if state is None:
            return
        expected = (self.num_layers * self.num_directions, batch, self.hidden_size)
        dtypes = self.unit.state_dtypes(self._parameters_of(0, False)["weight_ih"].dtype)
        for hx, dtype in zip(state, dtypes, strict=True):
            if tuple(hx.shape) != expected:
                raise RuntimeError(f"Expected hidden size {expected}, got {list(hx.shape)}")
            if hx.dtype != dtype and not autocast_enabled(x):
                raise RuntimeError(wrong_state_dtype(self.unit.name, dtype, hx.dtype))
            if hx.device != x.device:
                raise RuntimeError(f"{self.unit.name}: hx is on {hx.device}, the input is on {x.device}")

    def _check_lengths(self, lengths: Tensor | Sequence[int] | None, x: Tensor) -> Tensor | None:
        """lengths as an int64 tensor (B); their values are checked inside the operators."""
        if lengths is None:
            return None
        lengths = torch.as_tensor(lengths, device=x.device)
        if lengths.dtype not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8) and lengths.numel():
            instead = "; from a mask, pass its sum over the steps" if lengths.dtype == torch.bool else ""
            raise TypeError(f"lengths must be whole numbers, got {lengths.dtype}{instead}")
        if lengths.dim() == 0:
            lengths = lengths.reshape(1)
        if tuple(lengths.shape) != (x.shape[1],):
            raise RuntimeError(
                f"lengths must have one number for each of the {x.shape[1]} rows of a batch (batch_first="
                f"{self.batch_first}), got shape {list(lengths.shape)}"
            )
        return lengths.to(torch.int64)


class RecurrentCell(RecurrentModule):
    """One step of a unit, with the interface of nn.GRUCell."""

    optional: tuple[str, ...] = ("bias",)  # parameters that are None if the unit does not have them
    _stepper: Stepper | None = None  # for units with a fast path for single steps

    def __init__(
        self,
        unit: Any,
        input_size: int,
        hidden_size: int,
        *,
        backend: str | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(unit, input_size, hidden_size, backend, dtype)
        self._add_parameters(input_size, "", device, dtype)
        for name in self.optional:
            if name not in self._names:
                self.register_parameter(name, None)
        self.reset_parameters()

    def _named(self) -> Parameters:
        return {name: getattr(self, name) for name in self._names}

    def reset_parameters(self) -> None:
        """Reinitialize all parameters."""
        self._initialize(self._named())

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.optional[0] not in self._names:
            parts.append("bias=False")
        if particular := self.unit.describe():
            parts.append(particular)
        return ", ".join(parts)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        """The next state (B, H) from an input (B, I) and a state (B, H), zeros if not given; or all without B."""
        if (
            hx is not None
            and self._stepper is not None
            and self.hidden_size
            and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
            and (new := self._stepper.step(self, input, hx)) is not None
        ):
            return new
        name = type(self).__name__
        if not isinstance(input, Tensor):
            raise TypeError(f"{name}: input must be a Tensor, got {type(input).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        state = as_state(hx, self.unit)
        for i, part in enumerate(state or ()):
            if part.dim() not in (1, 2):
                hidden = f"hx[{i}]" if isinstance(hx, tuple) else "hidden"
                raise ValueError(f"{name}: Expected {hidden} to be 1D or 2D, got {part.dim()}D instead")
            if part.dim() != input.dim():
                raise RuntimeError(
                    f"{name}: hx must have as many dimensions as the input, {input.dim()}, got {part.dim()}"
                )
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        parameters = self._effective(self._named())
        weight = parameters["weight_ih"]
        if x.shape[1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.shape[1]} expected {self.input_size}")
        autocast = autocast_enabled(x)
        if x.dtype != weight.dtype and not (x.is_floating_point() and autocast):
            raise RuntimeError(f"{name}: input must have the dtype of the weights, {weight.dtype}, got {x.dtype}")
        results = result_dtype(x, state)
        if state is not None:
            state = state if batched else tuple(part.unsqueeze(0) for part in state)
            self._check_state(state, weight, x.shape[0], autocast)
        state = self._start(state, (x.shape[0], self.hidden_size), weight)
        x = x.to(weight.dtype).unsqueeze(0)
        _, last = self._run_unit(x, state, parameters, None, False, self._backend(weight))
        last = in_dtype(last, results)
        return from_state(last if batched else tuple(part.squeeze(0) for part in last))

    def _check_state(self, state: State, weight: Tensor, batch: int, autocast: bool) -> None:
        for h, dtype in zip(state, self.unit.state_dtypes(weight.dtype), strict=True):
            if h.shape[1] != self.hidden_size:
                raise RuntimeError(
                    f"hidden0 has inconsistent hidden_size: got {h.shape[1]}, expected {self.hidden_size}"
                )
            if h.shape[0] != batch:
                raise RuntimeError(f"Input batch size {batch} doesn't match hidden0 batch size {h.shape[0]}")
            if h.dtype != dtype and not autocast:
                raise RuntimeError(wrong_state_dtype(type(self).__name__, dtype, h.dtype))


def _constructors(module: nn.Module) -> int:
    """How many constructors of this module are running: a warning belongs to the line that called the first of them."""
    count, frame = 0, sys._getframe(1)
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is module:
        count, frame = count + 1, frame.f_back
    return count
