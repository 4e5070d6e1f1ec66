"""ONNX export: translations of this library's operators into ONNX's own, for `torch.onnx.export`.

    torch.onnx.export(model, (x,), "model.onnx", dynamo=True, custom_translation_table=goru.onnx.translations(),
                      dynamic_shapes=...)

GRU and LSTM become ONNX's own operators. The recurrence of GORU and EURNN becomes a Scan over the steps, and U the
product of its rotations, constants that torch's exporter or the runtime folds. The numbers of steps and rows stay free.
The file has no operator outside ONNX's own set. A complex EURNN has no translation: ONNX has no complex products. Needs
the extra `goru[onnx]` and torch 2.9 or newer.

Legend: T steps, B batch, I input, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxscript
import torch
from onnxscript import evaluator

from .activation import smallest_magnitude
from .kernels.eurnn import EURNN, EurnnOptions
from .kernels.gated import GRU, LSTM, GatedOptions
from .kernels.goru import GORU, GoruOptions
from .kernels.mesh import MESH_MATRIX
from .kernels.recurrence import Recurrence
from .rotations import Mesh

__all__ = ["translations"]

Value = Any  # a value of the graph that is being made; the fields of inputs are such values too, or None
op: Any = onnxscript.opset18
OLDEST = "2.9"  # torch whose exporter records an operator with several outputs
_TORCH = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The table for `torch.onnx.export(custom_translation_table=...)`.

    >>> len(translations())  # four recurrences, and U from its angles
    5
    """
    if torch.__version__ < OLDEST:
        raise RuntimeError(f"goru.onnx needs torch {OLDEST} or newer, this is torch {torch.__version__}")
    made = {GORU: _goru, EURNN: _eurnn, GRU: _gru, LSTM: _lstm}
    made[MESH_MATRIX] = lambda inputs, mesh: _matrix(inputs.angles, mesh)
    return {recurrence.operator: _of_operator(recurrence, translate) for recurrence, translate in made.items()}


def _of_operator(recurrence: Recurrence, translate: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A translation with the operator's arguments, from one with the inputs and options of a recurrence."""

    def translated(*flat):  # without annotations, from which torch would infer a signature
        *given, _backend = flat
        return translate(*recurrence.unflatten(given))

    translated.__name__ = recurrence.name
    return translated


def _goru(inputs: Any, options: GoruOptions) -> tuple[Value, Value]:
    H, gates = options.mesh.size, options.reset_gate + options.update_gate
    u = _matrix(inputs.angles, options.mesh) if inputs.u is None else inputs.u
    recurrent = u if inputs.weight_hh is None else op.Concat(inputs.weight_hh, u, axis=0)
    b_gates = b_h = None
    if inputs.bias is not None:
        b_gates = op.Slice(inputs.bias, _constant([0]), _constant([gates * H]))
        b_h = op.Slice(inputs.bias, _constant([gates * H]), _constant([(gates + 1) * H]))

    def step(h: Value, from_x: Sequence[Value], from_h: Sequence[Value], modrelu: Callable[[Value], Value]) -> Value:
        on = [op.Sigmoid(op.Add(a, b)) for a, b in zip(from_x[:-1], from_h[:-1], strict=True)]
        candidate = modrelu(op.Add(from_x[-1], op.Mul(on[0], from_h[-1]) if options.reset_gate else from_h[-1]))
        return op.Add(candidate, op.Mul(on[-1], op.Sub(h, candidate))) if options.update_gate else candidate

    return _scan(inputs, recurrent, b_gates, b_h, gates + 1, options.reverse, step)


def _eurnn(inputs: Any, options: EurnnOptions) -> tuple[Value, Value]:
    u = _matrix(inputs.angles, options.mesh) if inputs.u is None else inputs.u
    _refuse_complex(options.mesh)

    def step(h: Value, from_x: Sequence[Value], from_h: Sequence[Value], modrelu: Callable[[Value], Value]) -> Value:
        return modrelu(op.Add(from_x[0], from_h[0]))

    return _scan(inputs, u, None, inputs.bias, 1, options.reverse, step)


def _gru(inputs: Any, options: GatedOptions) -> tuple[Value, ...]:
    # torch's order of the gates is r, z, n; with `linear_before_reset` both have the same equations.
    return _gated(op.GRU, inputs, options, (inputs.h0,), order=(1, 0, 2), linear_before_reset=1)


def _lstm(inputs: Any, options: GatedOptions) -> tuple[Value, ...]:
    # torch's order of the gates is i, f, g, o, that of ONNX i, o, f, g.
    return _gated(op.LSTM, inputs, options, (inputs.h0, inputs.c0), order=(0, 3, 1, 2))


def _gated(
    operator: Any,
    inputs: Any,
    options: GatedOptions,
    states: Sequence[Value],
    order: tuple[int, ...],
    **attributes: int,
) -> tuple[Value, ...]:
    """ONNX's own operator, for one direction; its arrays have an axis of directions."""

    H = inputs.weight_hh.shape[1]
    rows = _constant(np.arange(len(order) * H).reshape(-1, H)[list(order)].ravel())

    def ordered(by_gate: Value) -> Value:
        return op.Gather(by_gate, rows, axis=0)

    def with_direction(value: Value) -> Value:
        return op.Unsqueeze(value, _constant([0]))

    bias = None
    if inputs.bias_ih is not None:
        bias = with_direction(op.Concat(ordered(inputs.bias_ih), ordered(inputs.bias_hh), axis=0))
    output, *last = operator(
        inputs.x,
        with_direction(ordered(inputs.weight_ih)),
        with_direction(ordered(inputs.weight_hh)),
        bias,
        None if inputs.lengths is None else op.Cast(inputs.lengths, to=ir.DataType.INT32.value),
        *map(with_direction, states),
        hidden_size=H,
        direction="reverse" if options.reverse else "forward",
        **attributes,
    )
    return op.Squeeze(output, _constant([1])), *(op.Squeeze(state, _constant([0])) for state in last)


def _matrix(angles: Value, mesh: Mesh) -> Value:
    """U (H, H): each mesh layer turns the rows of the product so far."""
    _refuse_complex(mesh)
    dtype = angles.dtype.numpy()
    u = _constant(np.eye(mesh.size), dtype)
    if mesh.num_angles == 0:
        return u
    cos, sin = op.Cos(angles), op.Sin(angles)
    # Slot n belongs to the p of rotation n, slot N + n to its q, the last to idle units.
    diagonal = op.Concat(cos, cos, _constant([1], dtype), axis=0)
    off = op.Concat(op.Neg(sin), sin, _constant([0], dtype), axis=0)
    number, rotations, units = 0, mesh.num_rotations, np.arange(mesh.size)
    for pairs in mesh.pairs:
        slot, partner = np.full_like(units, 2 * rotations), units.copy()
        for p, q in pairs:
            slot[p], slot[q], partner[p], partner[q] = number, rotations + number, q, p
            number += 1
        at = _constant(slot[:, None])
        turned = op.Mul(op.Gather(off, at, axis=0), op.Gather(u, _constant(partner), axis=0))
        u = op.Add(op.Mul(op.Gather(diagonal, at, axis=0), u), turned)
    return u


def _refuse_complex(mesh: Mesh) -> None:
    if mesh.complex:
        raise TypeError("a complex EURNN cannot be exported, since ONNX has no complex products: use complex=False")


def _scan(
    inputs: Any,
    recurrent: Value,
    b_gates: Value | None,
    b_h: Value | None,
    blocks: int,
    reverse: bool,
    step: Callable[..., Value],
) -> tuple[Value, Value]:
    """output (T, B, H) and h_n (B, H). step(h, from_x, from_h, modrelu) gives the next state from what the input and
    the state contribute to each block of H units."""
    x, h0 = inputs.x, inputs.h0
    dtype = x.dtype.numpy()
    zero, tiny = _constant(0, dtype), _constant(smallest_magnitude(_TORCH[np.dtype(dtype)]), dtype)
    sequences = []
    if inputs.lengths is not None:
        steps = op.Range(_constant(0), op.Squeeze(op.Shape(x, start=0, end=1)), _constant(1))
        valid = op.Less(op.Reshape(steps, _constant([-1, 1, 1])), op.Reshape(inputs.lengths, _constant([1, -1, 1])))
        x = op.Where(valid, x, zero)
        sequences.append(valid)
    from_x = op.MatMul(x, op.Transpose(inputs.weight_ih, perm=[1, 0]))
    if b_gates is not None:
        from_x = op.Add(from_x, op.Concat(b_gates, _constant(np.zeros(h0.shape[1]), dtype), axis=0))
    transposed = op.Transpose(recurrent, perm=[1, 0])

    def modrelu(a: Value) -> Value:
        if b_h is None:
            return a
        size = op.Abs(a)
        return op.Where(op.Less(size, tiny), zero, op.Mul(op.Sign(a), op.Relu(op.Add(size, b_h))))

    def split(joined: Value) -> Sequence[Value]:
        return [joined] if blocks == 1 else op.Split(joined, num_outputs=blocks, axis=-1)

    def body(h: Value, a: Value, alive: Value | None = None) -> tuple[Value, Value]:
        new = step(h, split(a), split(op.MatMul(h, transposed)), modrelu)
        if alive is None:
            return op.Identity(new), op.Identity(new)
        new = op.Where(alive, new, h)
        return new, op.Where(alive, new, zero)

    h_n, output = _scan_node(body, h0, [from_x, *sequences], reverse)
    return output, h_n


def _scan_node(body: Callable[..., Sequence[Value]], state: Value, sequences: list[Value], reverse: bool) -> Any:
    """ONNX's Scan over the first axis of the sequences: the last state, and what `body` returns besides the state.

    torch's exporter records the operators that a translation calls; the body is recorded the same way, into a graph of
    its own.
    """
    outer: Any = evaluator.default()
    inner = type(outer)(outer.opset, {})
    number = len(outer.nodes)
    h = ir.Value(name=f"state_{number}", type=state.type, shape=state.shape)
    elements = [ir.Value(name=f"element_{number}_{i}", type=s.type) for i, s in enumerate(sequences)]
    with evaluator.default_as(inner):
        results = body(h, *elements)
    for i, result in enumerate(results):
        result.name = f"result_{number}_{i}"
    direction = [int(reverse)]
    attributes = [
        ir.AttrGraph("body", ir.Graph([h, *elements], results, nodes=inner.nodes, name=f"step_{number}")),
        ir.AttrInt64("num_scan_inputs", len(sequences)),
        ir.AttrInt64s("scan_input_directions", direction * len(sequences)),
        ir.AttrInt64s("scan_output_directions", direction),
    ]
    node = ir.Node("", "Scan", [state, *sequences], attributes, num_outputs=2, version=outer.opset.version)
    outer.nodes.append(node)
    return node.outputs


def _constant(value: Any, dtype: Any = np.int64) -> Value:
    return op.Constant(value=ir.tensor(np.asarray(value, dtype)))
