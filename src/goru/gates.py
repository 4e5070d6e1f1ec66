"""Record the gates, candidate and state of gated layers while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence

from .kernels.gated import GatedOptions
from .kernels.gated import reference as gated_reference
from .kernels.goru import reference
from .kernels.mesh import build_matrix
from .layers.gated import GRU, LSTM, like
from .layers.goru import GORU, GORUUnit
from .tracing import full_precision

OURS = GORU | GRU | LSTM
TORCHS = nn.GRU | nn.LSTM


@dataclass
class GateRecord:
    """The latest forward pass of one layer in one direction, each signal (T, B, H); None before the first.

    GORU and GRU have `reset`, `update`, `candidate` and `state`; an LSTM has `input_gate`, `forget_gate`,
    `output_gate`, `candidate`, `cell` and `state`; the others stay None. Batch rows are in the order of the input.
    After a row's end all signals are 0. A disabled gate of a GORU is 1 (reset) or 0 (update).

    >>> with record(nn.LSTM(3, 4)) as (first,):
    ...     first.name, first.layer, first.reverse, first.forget_gate
    ('', 0, False, None)
    """

    name: str
    layer: int
    reverse: bool
    reset: Tensor | None = None
    update: Tensor | None = None
    input_gate: Tensor | None = None
    forget_gate: Tensor | None = None
    output_gate: Tensor | None = None
    candidate: Tensor | None = None
    cell: Tensor | None = None
    state: Tensor | None = None


SIGNALS = [field.name for field in fields(GateRecord)][3:]


@contextmanager
def record(module: nn.Module) -> Iterator[list[GateRecord]]:
    """Record the gates of every GORU, GRU and LSTM in `module` (or of `module` itself), ours and those of torch.nn,
    during the `with` block.

    Yields one record per layer and direction, filled by each forward pass with its signals. The pass itself
    does not change: the signals are computed separately, from the same inputs and weights, without gradients.

    Args:
        module: a layer, or a model that contains layers.

    >>> layer = GORU(3, 4)
    >>> with record(layer) as records:
    ...     output, h_n = layer(torch.ones(5, 2, 3))
    >>> records[0].update.shape
    torch.Size([5, 2, 4])
    """
    gated = [(name, part) for name, part in module.named_modules() if isinstance(part, OURS | TORCHS)]
    if not gated:
        raise TypeError(
            "record needs a GORU, a GRU or an LSTM, ours or torch's, or a module that holds one, got "
            f"{type(module).__name__}"
        )
    records: list[GateRecord] = []
    with ExitStack() as undo:
        for name, part in gated:
            directions = (False, True) if part.bidirectional else (False,)
            own = [GateRecord(name, layer, reverse) for layer in range(part.num_layers) for reverse in directions]
            records += own
            if isinstance(part, OURS):
                listener = _listener(part.unit, own)
                part._listeners.append(listener)
                undo.callback(part._listeners.remove, listener)
            undo.callback(part.register_forward_hook(_hook(own), with_kwargs=True).remove)
        yield records


def _listener(unit: Any, own: list[GateRecord]):
    """Fills the record of each layer and direction with its signals, before it runs."""

    @torch.no_grad()
    def listen(index, x, state, parameters, lengths, reverse) -> None:
        with full_precision(x):  # as the pass itself
            if isinstance(unit, GORUUnit):
                u = build_matrix(parameters["angles"], unit.mesh, "manual")
                trace: Any = reference.trace(unit.inputs(x, state, parameters, lengths, u), unit.options(reverse))
            else:
                run: Any = gated_reference.lstm_trace if unit.name == "LSTM" else gated_reference.gru_trace
                trace = run(unit.inputs(x, state, parameters, lengths), GatedOptions(reverse))
        for name in SIGNALS:
            setattr(own[index], name, getattr(trace, "output" if name == "state" else name, None))

    return listen


def _hook(own: list[GateRecord]):
    @torch.no_grad()
    def hook(module, args, kwargs, result) -> None:
        input = kwargs["input"] if "input" in kwargs else args[0]
        hx = kwargs.get("hx", args[1] if len(args) > 1 else None)
        if isinstance(module, TORCHS):
            _record_torch(module, input, hx, own)
        if isinstance(input, PackedSequence) and input.unsorted_indices is not None:
            for item in own:
                for name in SIGNALS:
                    if (signal := getattr(item, name)) is not None:
                        setattr(item, name, signal.index_select(1, input.unsorted_indices))

    return hook


def _record_torch(layer: nn.GRU | nn.LSTM, input: Tensor | PackedSequence, hx: Any, own: list[GateRecord]) -> None:
    """Run a torch layer again as one of ours, for the signals that it does not return. Rows stay in packed order."""
    ours = like(layer, backend="reference")
    name = type(ours).__name__
    if layer.training and layer.dropout > 0 and layer.num_layers > 1:
        raise RuntimeError(f"nn.{name} hides its dropout masks: call .eval() or set dropout=0 to record gates")
    if layer.proj_size:
        raise RuntimeError(f"the gates of an LSTM with projections cannot be recorded, got proj_size={layer.proj_size}")
    ours._listeners.append(_listener(ours.unit, own))
    weights = {name: getattr(layer, name) for name, _ in ours.named_parameters()}
    functional_call(ours, weights, (input, hx))
