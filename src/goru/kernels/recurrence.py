"""One recurrence on every backend: what a layer calls, and the torch operators that torch.compile, torch.export and
autograd see.

A recurrence is defined once, by its *inputs* (a NamedTuple of tensors), its *options* (a frozen dataclass of plain
values), the shapes of its results, and a kernel for each backend (backends.py). `Recurrence` makes the rest: the
operator `goru::<name>` and its backward operator, their fake implementations, the autograd formula, autocast, the
refusals of what a hand-derived backward pass cannot do, and a plain function for calls that nothing traces. Inputs and
options travel as these two objects; only an operator's schema has them flattened.

Legend of all recurrences: T steps, B batch, I input, H hidden.
  x (T, B, I), h0 (B, H). u (H, H) acts as u @ h; in its place may come `angles`, those of a mesh. Exactly one is given.
  lengths (B) int64 or None: row b has the steps 0 ... lengths[b] - 1; the state stays as it is beyond them, the output
  is 0 there. reverse: the steps are taken last to first, output[t] is the state after step t was taken.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..tracing import full_precision, no_vmap, refuse_batches, refuse_transforms, untraced
from . import backends
from .backends import Equations, Kernel
from .lengths import check as check_lengths

Inputs = TypeVar("Inputs", bound=tuple)
Options = TypeVar("Options")
_SCHEMA = {bool: "bool", int: "SymInt", str: "str", float: "float"}


class Recurrence(Generic[Inputs, Options]):
    """`recurrence(inputs, options, backend)` gives the results; see above.

    results(inputs, options) -> shape and dtype of each result. The first one goes to the backward pass as well.
    `lengths` is the one input without a gradient; it is checked here, where values are known also in a compiled graph.
    """

    def __init__(
        self,
        name: str,
        inputs: type[Inputs],
        options: type[Options],
        results: Callable[[Inputs, Options], list[tuple[tuple[Any, ...], torch.dtype]]],
        count: int,
    ) -> None:
        self.name, self.inputs, self.results, self.count = name, inputs, results, count
        hints = typing.get_type_hints(inputs)
        self.tensors = len(hints)
        self.lengths = list(hints).index("lengths") if "lengths" in hints else None
        self.differentiable = tuple(i for i in range(self.tensors) if i != self.lengths)
        self.options = _Flat(options)
        tensors = ", ".join(f"Tensor{'?' if NoneType in typing.get_args(h) else ''} {n}" for n, h in hints.items())
        grads = ", ".join(f"Tensor grad_{i}" for i in range(count))
        switches = f"{self.options.schema}, bool {{}}, str backend"
        outputs, gradients = ", ".join(["Tensor"] * (count + 1)), ", ".join(["Tensor"] * len(self.differentiable))
        self.operator = torch.library.custom_op(
            f"goru::{name}", self._flat_forward, mutates_args=(),
            schema=f"({tensors}, {switches.format('save')}) -> ({outputs})",
        )  # fmt: skip
        self.backward_operator = torch.library.custom_op(
            f"goru::{name}_backward", self._flat_backward, mutates_args=(),
            schema=f"({grads}, Tensor output, Tensor saved, {tensors}, {switches.format('needs_x')}) -> ({gradients})",
        )  # fmt: skip
        self.operator.register_fake(self._fake_forward)
        self.backward_operator.register_fake(self._fake_backward)
        self.operator.register_autograd(self._gradient, setup_context=self._flat_context)
        self.backward_operator.register_autograd(_no_second_gradient, setup_context=_remember_backend)
        for operator in (self.operator, self.backward_operator):
            operator.register_vmap(_no_vmap)
            # Under autocast a recurrence stays in float32, as nn.GRU does on a CPU: rounding would add up.
            for device in ("cpu", "cuda"):
                operator.register_autocast(device, torch.float32)
        # torch's dispatcher costs as much as many steps: a call that nothing traces bypasses it.
        self._plain = type(
            f"Plain_{name}",
            (torch.autograd.Function,),
            {"forward": staticmethod(self._plain_forward), "backward": staticmethod(self._gradient)},
        ).apply

    def __call__(self, inputs: Inputs, options: Options, backend: str) -> tuple[Tensor, ...]:
        """The results, on the backend of this name."""
        kernel = backends.kernel(backend, self.name)
        if isinstance(kernel, Equations):
            self._check_lengths(inputs)
            with full_precision(inputs[0]):
                return kernel.run(inputs, options)
        refuse_transforms(backend, *inputs)
        save = torch.is_grad_enabled() and any(
            inputs[i] is not None and inputs[i].requires_grad for i in self.differentiable
        )
        if not untraced(*inputs):
            return self.operator(*inputs, *self.options.flatten(options), save, backend)[: self.count]
        if save:
            return self._plain(*inputs, options, backend)[: self.count]
        return self._forward(inputs, options, False, kernel)[: self.count]

    def rotates(self, mesh: Any, backend: str) -> bool:
        """Whether this backend prefers the angles of the mesh to its matrix."""
        return backends.kernel(backend, self.name).rotates(mesh)

    def is_plain(self, backend: str) -> bool:
        """Whether this backend runs it in plain torch operations, which torch itself can differentiate and trace."""
        return isinstance(backends.kernel(backend, self.name), Equations)

    def run(self, inputs: Inputs, options: Options, save: bool, backend: str) -> tuple[Tensor, ...]:
        """The results and what was saved, by the operator."""
        return self.operator(*inputs, *self.options.flatten(options), save, backend)

    # ------------------------------------------------------------------------------------------- implementations

    def _check_lengths(self, inputs: Inputs) -> None:
        if self.lengths is not None:
            check_lengths(inputs[self.lengths], inputs[0].shape[0])

    def _forward(self, inputs: Inputs, options: Options, save: bool, kernel: Kernel | Equations) -> tuple[Tensor, ...]:
        assert isinstance(kernel, Kernel)
        self._check_lengths(inputs)
        return kernel.forward(inputs, options, save)

    def _backward(
        self,
        inputs: Inputs,
        options: Options,
        output: Tensor,
        saved: Tensor,
        grads: tuple[Tensor, ...],
        needs_x: bool,
        backend: str,
    ) -> tuple[Tensor | None, ...]:
        kernel = backends.kernel(backend, self.name)
        assert isinstance(kernel, Kernel)
        return kernel.backward(inputs, options, output, saved, grads, needs_x)

    # ------------------------------------------------------------------------------------------- operators

    def _unflatten(self, flat: tuple) -> tuple[Inputs, Options, bool, str]:
        *rest, switch, backend = flat
        return self.inputs(*rest[: self.tensors]), self.options.unflatten(rest[self.tensors :]), switch, backend

    def _flat_forward(self, *flat: Any) -> tuple[Tensor, ...]:
        inputs, options, save, backend = self._unflatten(flat)
        return self._forward(inputs, options, save, backends.kernel(backend, self.name))

    def _fake_forward(self, *flat: Any) -> tuple[Tensor, ...]:
        inputs, options, save, backend = self._unflatten(flat)
        kernel = backends.kernel(backend, self.name)
        assert isinstance(kernel, Kernel)
        results = [inputs[0].new_empty(shape, dtype=dtype) for shape, dtype in self.results(inputs, options)]
        return *results, results[-1].new_empty(kernel.saved(inputs, options) if save else (0,))

    def _flat_backward(self, *flat: Any) -> tuple[Tensor, ...] | Tensor:
        grads, output, saved = flat[: self.count], flat[self.count], flat[self.count + 1]
        inputs, options, needs_x, backend = self._unflatten(flat[self.count + 2 :])
        gradients = self._backward(inputs, options, output, saved, grads, needs_x, backend)
        return _one_or_all([inputs[0].new_empty(0) if g is None else g for g in gradients])

    def _fake_backward(self, *flat: Any) -> tuple[Tensor, ...] | Tensor:
        inputs, _, needs_x, _ = self._unflatten(flat[self.count + 2 :])
        wanted = [inputs[i] if needs_x or i > 0 else None for i in self.differentiable]
        return _one_or_all([inputs[0].new_empty(0) if t is None else t.new_empty(t.shape) for t in wanted])

    # ------------------------------------------------------------------------------------------- autograd

    def _flat_context(self, ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
        tensors, options, save, backend = self._unflatten(inputs)
        if not save:
            raise RuntimeError(f"goru::{self.name} was differentiated, but called with save=False")
        self._context(ctx, tensors, options, backend, output, plain=False)

    def _context(
        self, ctx: Any, inputs: Inputs, options: Options, backend: str, outputs: tuple[Tensor, ...], plain: bool
    ) -> None:
        ctx.options, ctx.backend, ctx.plain = options, backend, plain
        ctx.save_for_backward(*inputs, outputs[0], outputs[-1])
        ctx.set_materialize_grads(False)  # `saved` never has a gradient: zeros in its size would cost more than a step

    def _plain_forward(self, ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        *tensors, options, backend = arguments
        inputs = self.inputs(*tensors)
        outputs = self._forward(inputs, options, True, backends.kernel(backend, self.name))
        self._context(ctx, inputs, options, backend, outputs, plain=True)
        return outputs

    def _gradient(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, output, saved = ctx.saved_tensors
        inputs = self.inputs(*tensors)
        present = tuple(
            # A gradient that did not arrive is 0, without memory of its own.
            output.new_zeros((), dtype=dtype).expand(shape) if grad is None else grad
            for grad, (shape, dtype) in zip(grads[: self.count], self.results(inputs, ctx.options), strict=True)
        )
        refuse_batches(ctx.backend, *present)
        needs_x = ctx.needs_input_grad[0]
        # Past the dispatcher only for plain tensors, and where nothing will differentiate the gradient again.
        if ctx.plain and not torch.is_grad_enabled() and untraced(*present):
            gradients = self._backward(inputs, ctx.options, output, saved, present, needs_x, ctx.backend)
        else:
            flat = self.options.flatten(ctx.options)
            gradients = self.backward_operator(*present, output, saved, *inputs, *flat, needs_x, ctx.backend)
            gradients = (gradients,) if isinstance(gradients, Tensor) else gradients
        by_input: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        for i, gradient in zip(self.differentiable, gradients, strict=True):
            by_input[i] = gradient if inputs[i] is not None and (needs_x or i > 0) else None
        return tuple(by_input)


STALE: Any = object()  # what a runner of single steps returns when the cell has changed since it was made


class Stepper:
    """Single steps of one cell without gradients, by a backend that has a short way for them (`Kernel.stepper`).

    A runner may hold addresses, which no copy and no pickle of the cell may have.
    """

    def __init__(self, recurrence: str, options: Any) -> None:
        self.recurrence, self.options = recurrence, options
        self.runners: dict[str, Callable[..., Any]] = {}  # by the requested backend
        self.makers: dict[tuple[Any, ...], Callable[..., Any] | None] = {}  # by all that the choice depends on

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"runners": {}, "makers": {}}

    def step(self, cell: Any, x: Tensor, hx: Any) -> Any:
        """The cell's next state; None where this call has to go through the recurrence."""
        # Forward-mode derivatives go through the recurrence, which refuses them.
        if not untraced() or forward_ad._current_level >= 0:
            return None
        requested = cell.backend or backends.preference()[0]
        run = self.runners.get(requested)
        if run is not None and (new := run(cell, x, hx)) is not STALE:
            return new
        run = self._prepare(requested, cell)
        if run is None or (new := run(cell, x, hx)) is STALE:
            return None
        return new

    def _prepare(self, requested: str, cell: Any) -> Callable[..., Any] | None:
        """A runner for the cell as it is now; None where there is no short way for it."""
        weight = cell._parameters.get("weight_ih")
        if weight is None:
            return None
        key = requested, weight.device, weight.dtype
        if key not in self.makers:
            choice = backends.choose(cell.backend, weight.device, weight.dtype, self.recurrence)
            self.makers[key] = getattr(backends.kernel(choice.backend, self.recurrence), "stepper", None)
        make = self.makers[key]
        run = None if make is None else make(cell, self.options)
        if run is None:
            self.runners.pop(requested, None)
        else:
            self.runners[requested] = run
        return run


class _Flat:
    """A dataclass of plain values, and of dataclasses of such, as a list for an operator's schema and back."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.parts: list[tuple[str, _Flat | None]] = []
        schema = []
        hints = typing.get_type_hints(kind)
        for field in dataclasses.fields(kind):
            hint = hints[field.name]
            if dataclasses.is_dataclass(hint):
                part = _Flat(typing.cast(type, hint))
                schema.append(part.schema)
            else:
                optional = isinstance(hint, UnionType)
                (plain,) = [h for h in typing.get_args(hint) if h is not NoneType] if optional else [hint]
                schema.append(f"{_SCHEMA[plain]}{'?' if optional else ''} {field.name}")
                part = None
            self.parts.append((field.name, part))
        self.schema = ", ".join(schema)

    def flatten(self, options: Any) -> list[Any]:
        flat: list[Any] = []
        for name, part in self.parts:
            value = getattr(options, name)
            flat += [value] if part is None else part.flatten(value)
        return flat

    def unflatten(self, flat: list[Any]) -> Any:
        return self._take(iter(flat))

    def _take(self, flat: Any) -> Any:
        return self.kind(*(next(flat) if part is None else part._take(flat) for _, part in self.parts))


def _one_or_all(tensors: list[Tensor]) -> tuple[Tensor, ...] | Tensor:
    """What an operator returns: its schema has no tuple of one."""
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def _no_second_gradient(ctx: Any, *grads: Tensor):
    raise RuntimeError(
        f"the {ctx.backend!r} backend differentiates once; for second derivatives build the layer with "
        "backend='reference' or use goru.use_backend('reference')"
    )


def _remember_backend(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.backend = inputs[-1]


def _no_vmap(info: Any, in_dims: tuple, *args: Any):
    raise no_vmap(args[-1])
