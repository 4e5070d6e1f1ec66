"""Look into a gated layer while it runs: gates, candidate and state over time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from .kernels.goru import reference
from .kernels.lengths import valid_steps
from .kernels.mesh import build_matrix
from .layers.goru import GORU, GORUUnit
from .tracing import full_precision


@dataclass
class GateRecord:
    """The newest forward pass of one layer in one direction, each signal (T, B, H); None before there was one.

    Batch rows are in the order of the input. Beyond a row's end all signals are 0. A gate that is off reads 1 (reset)
    or 0 (update).
    """

    name: str
    layer: int
    reverse: bool
    reset: Tensor | None = None
    update: Tensor | None = None
    candidate: Tensor | None = None
    state: Tensor | None = None


@contextmanager
def record(module: nn.Module) -> Iterator[list[GateRecord]]:
    """Record the gates of every GORU and nn.GRU in `module` (or of `module` itself) during the `with` block.

    Yields one record per layer and direction, filled by each forward pass with its signals. The pass itself is not
    touched: the signals are computed beside it, from the same inputs and weights, without gradients.

    >>> layer = GORU(3, 4)
    >>> with record(layer) as records:
    ...     output, h_n = layer(torch.ones(5, 2, 3))
    >>> records[0].update.shape
    torch.Size([5, 2, 4])
    """
    gated = [(name, part) for name, part in module.named_modules() if isinstance(part, GORU | nn.GRU)]
    if not gated:
        raise TypeError(
            f"record needs a GORU or a torch.nn.GRU, or a module that holds one, got {type(module).__name__}"
        )
    records: list[GateRecord] = []
    handles = []
    listeners = []
    try:
        for name, part in gated:
            directions = 2 if part.bidirectional else 1
            own = [
                GateRecord(name, layer, bool(direction))
                for layer in range(part.num_layers)
                for direction in range(directions)
            ]
            records += own
            if isinstance(part, GORU):
                listener = _goru_listener(part, own)
                part._listeners.append(listener)
                listeners.append((part, listener))
            handles.append(part.register_forward_hook(_hook(own), with_kwargs=True))
        yield records
    finally:
        for handle in handles:
            handle.remove()
        for part, listener in listeners:
            part._listeners.remove(listener)


def _goru_listener(part: GORU, own: list[GateRecord]):
    unit = part.unit
    assert isinstance(unit, GORUUnit)

    @torch.no_grad()
    def listen(index, x, state, parameters, lengths, reverse) -> None:
        with full_precision(x):  # as the pass itself
            u = build_matrix(parameters["angles"], unit.mesh, "manual")
            trace = reference.trace(unit.inputs(x, state, parameters, lengths, u), unit.options(reverse))
        _fill(own[index], trace.reset, trace.update, trace.candidate, trace.output)

    return listen


def _hook(own: list[GateRecord]):
    @torch.no_grad()
    def hook(module, args, kwargs, result) -> None:
        input = kwargs["input"] if "input" in kwargs else args[0]
        hx = kwargs.get("hx", args[1] if len(args) > 1 else None)
        if isinstance(module, nn.GRU):
            _record_gru(module, input, hx, own)
        if isinstance(input, PackedSequence) and input.unsorted_indices is not None:
            for item in own:
                signals = (item.reset, item.update, item.candidate, item.state)
                _fill(item, *(s.index_select(1, input.unsorted_indices) for s in signals if s is not None))

    return hook


def _fill(item: GateRecord, reset: Tensor, update: Tensor, candidate: Tensor, state: Tensor) -> None:
    item.reset, item.update, item.candidate, item.state = reset, update, candidate, state


def _record_gru(gru: nn.GRU, input: Tensor | PackedSequence, hx: Tensor | None, own: list[GateRecord]) -> None:
    """The equations of torch.nn.GRU once more, keeping what it throws away. Rows stay in packed order here."""
    if gru.training and gru.dropout > 0 and gru.num_layers > 1:
        raise RuntimeError(
            "nn.GRU draws its dropout masks where nobody can see them: call .eval() or set dropout=0 to record gates"
        )
    if isinstance(input, PackedSequence):
        x, lengths = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        valid = valid_steps(lengths.to(x.device), x.shape[0])[..., None]
        if hx is not None and input.sorted_indices is not None:
            hx = hx.index_select(1, input.sorted_indices)
    else:
        x = input.unsqueeze(1) if input.dim() == 2 else input.transpose(0, 1) if gru.batch_first else input
        hx = hx.unsqueeze(1) if hx is not None and hx.dim() == 2 else hx
        valid = torch.ones(x.shape[0], x.shape[1], 1, dtype=torch.bool, device=x.device)
    outputs: list[Tensor] = []
    for index, item in enumerate(own):
        suffix = f"_l{item.layer}" + ("_reverse" if item.reverse else "")
        h = x.new_zeros(x.shape[1], gru.hidden_size) if hx is None else hx[index]
        _fill(item, *_gru_trace(gru, suffix, x, h, valid, item.reverse))
        assert item.state is not None
        outputs.append(item.state)
        if len(outputs) == (2 if gru.bidirectional else 1):
            x, outputs = torch.cat(outputs, -1), []


def _gru_trace(gru: nn.GRU, suffix: str, x: Tensor, h: Tensor, valid: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """reset, update, candidate and state of one layer in one direction, each (T, B, H)."""
    weight_hh = getattr(gru, "weight_hh" + suffix)
    bias_ih, bias_hh = (getattr(gru, name + suffix, None) for name in ("bias_ih", "bias_hh"))
    from_x = nn.functional.linear(x, getattr(gru, "weight_ih" + suffix), bias_ih).unbind(0)
    steps = []
    for t in range(x.shape[0] - 1, -1, -1) if reverse else range(x.shape[0]):
        x_r, x_z, x_n = from_x[t].chunk(3, -1)
        h_r, h_z, h_n = nn.functional.linear(h, weight_hh, bias_hh).chunk(3, -1)
        reset, update = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        candidate = torch.tanh(x_n + reset * h_n)
        h = torch.where(valid[t], (1 - update) * candidate + update * h, h)
        steps.append([torch.where(valid[t], s, torch.zeros_like(s)) for s in (reset, update, candidate, h)])
    if reverse:
        steps.reverse()
    return tuple(torch.stack(signal) for signal in zip(*steps, strict=True))
