"""One recurrence on every backend: what a layer calls, and the torch operators that torch.compile, torch.export and
autograd see.

A recurrence is defined once, by its *inputs* (a NamedTuple of tensors), its *options* (a frozen dataclass of plain
values), the shapes of its results, and a kernel for each backend (backends.py). `Recurrence` makes the rest: three
operators, their fake implementations, the autograd formulas, autocast, and a plain function for calls that nothing
traces. Inputs and options travel as these two objects; only an operator's schema has them flattened.

    goru::<name>           what a traced graph holds. It carries the backend that was requested, "auto" for most layers,
                           and chooses when it runs: an exported program runs on another machine. Whether something has
                           to be saved for a backward pass is decided then as well.
    goru::<name>_saving    what runs where a gradient is needed. What is saved differs by backend, so it carries a name.
    goru::<name>_backward  the hand-derived backward pass of that backend.

Where torch needs more than one hand-derived backward pass (second derivatives, torch.func, forward mode, gradients in
batches) the equations of the reference backend run instead, differentiated by torch; a log line says so.

Legend of all recurrences: T steps, B batch, I input, H hidden.
  x (T, B, I), h0 (B, H). u (H, H) acts as u @ h; `angles` of a mesh may replace it. Exactly one of them is given.
  lengths (B) int64 or None: row b has the steps 0 ... lengths[b] - 1; after them the state does not change and
  the output is 0. reverse: the steps run from last to first, output[t] is the state after step t.
"""

from __future__ import annotations

import dataclasses
import logging
import typing
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..tracing import batched_by_autograd, full_precision, transformed, untraced, wrapped
from . import backends
from .backends import Choice, Equations, Kernel
from .lengths import check as check_lengths

Inputs = TypeVar("Inputs", bound=tuple)
Options = TypeVar("Options")
Results = tuple[Tensor, ...]
_SCHEMA = {bool: "bool", int: "SymInt", str: "str", float: "float"}
_LIBRARY = torch.library.Library("goru", "FRAGMENT")


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
        given = f"{tensors}, {self.options.schema}"
        outputs, gradients = ", ".join(["Tensor"] * count), ", ".join(["Tensor"] * len(self.differentiable))
        self.operator = _define(name, f"({given}, str backend) -> ({outputs})", self._flat_run, self._fake_run)
        self.saving_operator = _define(
            f"{name}_saving", f"({given}, str backend) -> ({outputs}, Tensor)", self._flat_forward, self._fake_forward
        )
        self.backward_operator = _define(
            f"{name}_backward",
            f"({grads}, Tensor output, Tensor saved, {given}, bool needs_x, str backend) -> ({gradients})",
            self._flat_backward,
            self._fake_backward,
        )
        _LIBRARY.impl(name, self._autograd, "Autograd")
        torch.library.register_vmap(f"goru::{name}", self._vmap, lib=_LIBRARY)
        for operator, formula, context in (
            (self.saving_operator, self._gradient, self._flat_context),
            (self.backward_operator, self._second_gradient, self._second_context),
        ):
            torch.library.register_autograd(operator.name(), formula, setup_context=context, lib=_LIBRARY)
        # torch's dispatcher takes as long as many steps: a call that nothing traces bypasses it.
        self._plain = type(
            f"Plain_{name}",
            (torch.autograd.Function,),
            {"forward": staticmethod(self._plain_forward), "backward": staticmethod(self._gradient)},
        ).apply

    def __call__(self, inputs: Inputs, options: Options, backend: Choice | str) -> Results:
        """The results, on this backend or choice."""
        if transformed(*inputs):
            return self._fall_back(inputs, options, "derivatives by torch.func or in forward mode")
        choice = backends.as_choice(backend)
        kernel = backends.kernel(choice.backend, self.name)
        if isinstance(kernel, Equations):
            return self._equations(inputs, options)
        if not untraced(*inputs):
            return _as_tuple(self.operator(*inputs, *self.options.flatten(options), choice.requested))
        if self._needs_gradient(inputs):
            return self._plain(*inputs, options, choice.backend)[: self.count]
        return self._forward(inputs, options, False, kernel)[: self.count]

    def rotates(self, mesh: Any, backend: Choice | str) -> bool:
        """Whether this backend prefers the angles of the mesh to its matrix."""
        return backends.kernel(backends.as_choice(backend).backend, self.name).rotates(mesh)

    def is_plain(self, backend: Choice | str) -> bool:
        """Whether this backend runs it in plain torch operations, which torch itself can differentiate and trace."""
        return isinstance(backends.kernel(backends.as_choice(backend).backend, self.name), Equations)

    def run(self, inputs: Inputs, options: Options, save: bool, backend: str) -> Results:
        """The results and what was saved, by the operators."""
        flat = self.options.flatten(options)
        if save:
            return self.saving_operator(*inputs, *flat, backend)
        return *_as_tuple(self.operator(*inputs, *flat, backend)), inputs[0].new_empty(0)

    # ------------------------------------------------------------------------------------------- implementations

    def _needs_gradient(self, inputs: Inputs) -> bool:
        given = (inputs[i] for i in self.differentiable)
        return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given)

    def _check_lengths(self, inputs: Inputs) -> None:
        if self.lengths is not None and not wrapped(inputs[self.lengths]):
            check_lengths(inputs[self.lengths], inputs[0].shape[0])

    def _equations(self, inputs: Inputs, options: Options) -> Results:
        kernel = backends.kernel(backends.REFERENCE.name, self.name)
        assert isinstance(kernel, Equations)
        self._check_lengths(inputs)
        with full_precision(inputs[0]):
            return kernel.run(inputs, options)

    def _fall_back(self, inputs: Inputs, options: Options, reason: str) -> Results:
        """The results from the equations, where a hand-derived backward pass is not enough."""
        if not torch.compiler.is_compiling():
            logging.getLogger("goru").info("%s: the reference backend runs instead, for %s", self.name, reason)
        return self._equations(inputs, options)

    def _forward(self, inputs: Inputs, options: Options, save: bool, kernel: Kernel | Equations) -> Results:
        assert isinstance(kernel, Kernel)
        self._check_lengths(inputs)
        return kernel.forward(inputs, options, save)

    def _backward(
        self,
        inputs: Inputs,
        options: Options,
        output: Tensor,
        saved: Tensor,
        grads: Results,
        needs_x: bool,
        backend: str,
    ) -> tuple[Tensor | None, ...]:
        kernel = backends.kernel(backend, self.name)
        assert isinstance(kernel, Kernel)
        return kernel.backward(inputs, options, output, saved, grads, needs_x)

    # ------------------------------------------------------------------------------------------- operators

    def unflatten(self, flat: Sequence[Any]) -> tuple[Inputs, Options]:
        """Inputs and options from an operator's arguments; trailing arguments are ignored."""
        return self.inputs(*flat[: self.tensors]), self.options.unflatten(flat[self.tensors :])

    def _chosen(self, inputs: Inputs, requested: str) -> str:
        """The backend of an operator that runs now."""
        argument = None if requested == "auto" else requested
        return backends.choose(argument, inputs[0].device, inputs[0].dtype, self.name).backend

    def _flat_run(self, *flat: Any) -> Tensor | Results:
        *given, requested = flat
        inputs, options = self.unflatten(given)
        kernel = backends.kernel(self._chosen(inputs, requested), self.name)
        if isinstance(kernel, Equations):
            return _as_result(self._equations(inputs, options))
        return _as_result(self._forward(inputs, options, False, kernel)[: self.count])

    def _fake_run(self, *flat: Any) -> Tensor | Results:
        inputs, options = self.unflatten(flat[:-1])
        shapes = self.results(inputs, options)
        return _as_result(tuple(inputs[0].new_empty(shape, dtype=dtype) for shape, dtype in shapes))

    def _autograd(self, *flat: Any) -> Tensor | Results:
        """The operator above autograd: where a gradient is needed another one runs, which saves."""
        *given, requested = flat
        inputs, options = self.unflatten(given)
        if not self._needs_gradient(inputs):
            with torch._C._AutoDispatchBelowAutograd():
                return self.operator(*flat)
        backend = self._chosen(inputs, requested)
        if self.is_plain(backend):
            return _as_result(self._equations(inputs, options))
        return _as_result(self.saving_operator(*given, backend)[: self.count])

    def _vmap(self, info: Any, in_dims: tuple[int | None, ...], *flat: Any) -> tuple[Any, Any]:
        def element(i: int) -> list[Any]:
            return [value if dim is None else value.select(dim, i) for value, dim in zip(flat, in_dims, strict=True)]

        each = [_as_tuple(self.operator(*element(i))) for i in range(info.batch_size)]
        return _as_result(tuple(map(torch.stack, zip(*each, strict=True)))), _as_result((0,) * self.count)

    def _flat_forward(self, *flat: Any) -> Results:
        *given, backend = flat
        return self._forward(*self.unflatten(given), True, backends.kernel(backend, self.name))

    def _fake_forward(self, *flat: Any) -> Results:
        *given, backend = flat
        inputs, options = self.unflatten(given)
        kernel = backends.kernel(backend, self.name)
        assert isinstance(kernel, Kernel)
        results = [inputs[0].new_empty(shape, dtype=dtype) for shape, dtype in self.results(inputs, options)]
        return *results, results[-1].new_empty(kernel.saved(inputs, options))

    def _split_backward(self, flat: Sequence[Any]) -> tuple[Results, Tensor, Tensor, Inputs, Options, bool, str]:
        grads, (output, saved, *given, needs_x, backend) = tuple(flat[: self.count]), flat[self.count :]
        inputs, options = self.unflatten(given)
        return grads, output, saved, inputs, options, needs_x, backend

    def _flat_backward(self, *flat: Any) -> Tensor | Results:
        grads, output, saved, inputs, options, needs_x, backend = self._split_backward(flat)
        gradients = self._backward(inputs, options, output, saved, grads, needs_x, backend)
        return _as_result(tuple(inputs[0].new_empty(0) if g is None else g for g in gradients))

    def _fake_backward(self, *flat: Any) -> Tensor | Results:
        *_, inputs, _, needs_x, _ = self._split_backward(flat)
        wanted = [inputs[i] if needs_x or i > 0 else None for i in self.differentiable]
        return _as_result(tuple(inputs[0].new_empty(0) if t is None else t.new_empty(t.shape) for t in wanted))

    # ------------------------------------------------------------------------------------------- autograd

    def _flat_context(self, ctx: Any, inputs: tuple, output: Results) -> None:
        *given, backend = inputs
        self._context(ctx, *self.unflatten(given), backend, output, plain=False)

    def _context(self, ctx: Any, inputs: Inputs, options: Options, backend: str, outputs: Results, plain: bool) -> None:
        ctx.options, ctx.backend, ctx.plain = options, backend, plain
        ctx.save_for_backward(*inputs, outputs[0], outputs[-1])
        ctx.set_materialize_grads(False)  # `saved` never has a gradient: zeros in its size would cost more than a step

    def _plain_forward(self, ctx: Any, *arguments: Any) -> Results:
        *tensors, options, backend = arguments
        inputs = self.inputs(*tensors)
        outputs = self._forward(inputs, options, True, backends.kernel(backend, self.name))
        self._context(ctx, inputs, options, backend, outputs, plain=True)
        return outputs

    def _gradient(self, ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, output, saved = ctx.saved_tensors
        inputs = self.inputs(*tensors)
        present = tuple(
            # A missing gradient is an expanded zero, which allocates nothing.
            output.new_zeros((), dtype=dtype).expand(shape) if grad is None else grad
            for grad, (shape, dtype) in zip(grads[: self.count], self.results(inputs, ctx.options), strict=True)
        )
        needs_x = ctx.needs_input_grad[0]
        if transformed(*present) or batched_by_autograd(*present):
            gradients = self._gradient_of_equations(inputs, ctx.options, present, "gradients in batches")
        # Past the dispatcher only for plain tensors, and where nothing will differentiate the gradient again.
        elif ctx.plain and not torch.is_grad_enabled() and untraced(*present):
            gradients = self._backward(inputs, ctx.options, output, saved, present, needs_x, ctx.backend)
        else:
            flat = self.options.flatten(ctx.options)
            gradients = _as_tuple(self.backward_operator(*present, output, saved, *inputs, *flat, needs_x, ctx.backend))
        by_input: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        for i, gradient in zip(self.differentiable, gradients, strict=True):
            by_input[i] = gradient if inputs[i] is not None and (needs_x or i > 0) else None
        return tuple(by_input)

    def _given(self, inputs: Inputs) -> list[int]:
        """Which inputs are given and can have a gradient."""
        return [i for i in self.differentiable if inputs[i] is not None]

    def _with(self, inputs: Inputs, tensors: Sequence[Tensor]) -> Inputs:
        """The inputs, with those that can have a gradient replaced."""
        new = list(inputs)
        for i, tensor in zip(self._given(inputs), tensors, strict=True):
            new[i] = tensor
        return self.inputs(*new)

    def _gradient_of_equations(
        self, inputs: Inputs, options: Options, grads: Results, reason: str
    ) -> tuple[Tensor | None, ...]:
        """The result of the backward operator, but differentiable."""
        given = self._given(inputs)
        _, backward, *_ = torch.func.vjp(
            lambda *tensors: self._fall_back(self._with(inputs, tensors), options, reason),
            *(inputs[i] for i in given),
        )
        gradients = dict(zip(given, backward(grads), strict=True))
        return tuple(gradients.get(i) for i in self.differentiable)

    def _second_context(self, ctx: Any, inputs: tuple, output: Any) -> None:
        grads, _, _, given, ctx.options, ctx.needs_x, _ = self._split_backward(inputs)
        ctx.save_for_backward(*grads, *given)
        ctx.set_materialize_grads(False)

    def _second_gradient(self, ctx: Any, *arriving: Tensor | None) -> tuple[Tensor | None, ...]:
        """The backward pass of the backward operator: of its equations, as functions of `grads` and the inputs."""
        saved = ctx.saved_tensors
        grads, inputs = tuple(saved[: self.count]), self.inputs(*saved[self.count :])
        given = self._given(inputs)
        # The gradients that were differentiated, by their place among all.
        places = [
            k
            for k, i in enumerate(self.differentiable)
            if arriving[k] is not None and i in given and (ctx.needs_x or i > 0)
        ]
        second: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
        if not places:
            return tuple(second)

        def first(grads: Results, *tensors: Tensor) -> Results:
            reason = "second derivatives"
            gradients = self._gradient_of_equations(self._with(inputs, tensors), ctx.options, grads, reason)
            return tuple(typing.cast(Tensor, gradients[k]) for k in places)

        _, backward, *_ = torch.func.vjp(first, grads, *(inputs[i] for i in given))
        of_grads, *of_inputs = backward(tuple(arriving[k] for k in places))
        second[: self.count] = of_grads
        for i, gradient in zip(given, of_inputs, strict=True):
            second[self.count + 2 + i] = gradient  # `output` and `saved` are functions of the inputs
        return tuple(second)


STALE: Any = object()  # what a runner of single steps returns when the cell has changed since it was made


class Stepper:
    """Single steps of one cell without gradients, on a backend with a fast path for them (`Kernel.stepper`).

    A runner may hold addresses, which must not be copied or pickled with the cell.
    """

    def __init__(self, recurrence: str, options: Any) -> None:
        self.recurrence, self.options = recurrence, options
        self.runners: dict[str, Callable[..., Any]] = {}  # by the requested backend
        self.makers: dict[tuple[Any, ...], Callable[..., Any] | None] = {}  # by all that the choice depends on

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"runners": {}, "makers": {}}

    def step(self, cell: Any, x: Tensor, hx: Any) -> Any:
        """The cell's next state; None if this call must go through the recurrence."""
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
        """A runner for the cell as it is now; None if there is no fast path for it."""
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

    def unflatten(self, flat: Sequence[Any]) -> Any:
        return self._take(iter(flat))

    def _take(self, flat: Any) -> Any:
        return self.kind(*(_plain_value(next(flat)) if part is None else part._take(flat) for _, part in self.parts))


def _plain_value(value: Any) -> Any:
    """torch 2.6 traces the numbers of a second layer as symbols: a compiled graph is for one value of an option."""
    return int(value) if isinstance(value, torch.SymInt) else value


def _define(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """An operator of this library, on every device."""
    _LIBRARY.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"goru::{name}", fake, lib=_LIBRARY)
    operator = getattr(torch.ops.goru, name).default
    for device, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        _LIBRARY.impl(name, _in_full_precision(operator, device, getattr(torch._C.DispatchKey, key)), key)
    return operator


def _in_full_precision(operator: Any, device: str, key: Any) -> Callable[..., Any]:
    """The operator under autocast: a recurrence stays in float32, since rounding would add up over the steps."""

    def wide(value: Any) -> Any:
        half = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
        return value.float() if half and value.device.type == device else value

    def run(*flat: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return operator(*map(wide, flat))

    return run


def _as_tuple(result: Tensor | Results) -> Results:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def _as_result(values: tuple[Any, ...]) -> Any:
    """What an operator returns: a single result without its tuple."""
    return values[0] if len(values) == 1 else values
