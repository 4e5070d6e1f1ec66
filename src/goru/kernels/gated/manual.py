"""GRU and LSTM with hand-derived backward passes, in torch operations: any device, no compiler.

Saved by a GRU, (T, B, 4 H): r, z, n, v = R_n h' + b_hn. By an LSTM, (T, B, 5 H): i, f, g, o, c.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from ..chunks import chunk_size, chunks, previous_states, walk
from ..lengths import valid_steps
from .reference import GatedOptions, GruInputs, LstmInputs


def gru_saved(inputs: GruInputs, options: GatedOptions) -> tuple[Any, ...]:
    return (*inputs.x.shape[:2], 4 * inputs.h0.shape[1])


def lstm_saved(inputs: LstmInputs, options: GatedOptions) -> tuple[Any, ...]:
    return (*inputs.x.shape[:2], 5 * inputs.h0.shape[1])


def gru_forward(inputs: GruInputs, options: GatedOptions, save: bool) -> tuple[Tensor, Tensor, Tensor]:
    frame = _Frame(inputs)
    T, B, H, x, valid = frame.T, frame.B, frame.H, inputs.x, frame.valid
    output = x.new_empty((T, B, H))
    saved = x.new_empty((T, B, 4 * H) if save else (0,))
    h = inputs.h0
    for chunk in frame.chunks(options.reverse):
        arrivals = frame.arrivals(chunk)
        for i in walk(len(arrivals), options.reverse):
            t = chunk.start + i
            from_h = linear(h, inputs.weight_hh, inputs.bias_hh)
            gates = torch.sigmoid(arrivals[i][:, : 2 * H] + from_h[:, : 2 * H])
            v = from_h[:, 2 * H :]
            n = torch.tanh(torch.addcmul(arrivals[i][:, 2 * H :], gates[:, :H], v))
            if save:
                torch.cat([gates, n, v], 1, out=saved[t])
            new = torch.lerp(n, h, gates[:, H:])
            h = new if valid is None else torch.where(valid[t], new, h)
            output[t] = h if valid is None else h.masked_fill(~valid[t], 0)
    return output, h.clone(), saved


def gru_backward(
    inputs: GruInputs, options: GatedOptions, output: Tensor, saved: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    frame = _Frame(inputs)
    H, valid = frame.H, frame.valid
    grad_output, g = grads
    sums = _Sums(inputs, needs_x)
    for chunk in frame.chunks(not options.reverse):
        before = previous_states(chunk, output.__getitem__, inputs.h0, valid, frame.T, options.reverse)
        r, z, n, v = saved[chunk].chunk(4, -1)
        # The factors of g in the blocks r, z, v, n, and the share of g that passes on to h'.
        D = saved.new_empty(saved[chunk].shape)
        dr, dz, dv, da = D.chunk(4, -1)
        torch.mul(1 - z, 1 - n * n, out=da)
        torch.mul(da, r, out=dv)
        torch.mul(dv, v * (1 - r), out=dr)
        torch.mul(before - n, z * (1 - z), out=dz)
        keep, incoming, steps = z, grad_output[chunk], inputs.x[chunk]
        if valid is not None:
            # Filled, not multiplied: beyond a row's end there may be a NaN.
            D.masked_fill_(~valid[chunk], 0)
            incoming, steps = (part.masked_fill(~valid[chunk], 0) for part in (incoming, steps))
            keep = torch.where(valid[chunk], z, torch.ones_like(z))
        for i in walk(len(D), not options.reverse):
            g = g + incoming[i]
            D[i].view(frame.B, 4, H).mul_(g.unsqueeze(1))
            g = torch.addmm(g * keep[i], D[i, :, : 3 * H], inputs.weight_hh)
        flat = D.view(-1, 4 * H)
        sums.add(chunk, steps, torch.cat([flat[:, : 2 * H], flat[:, 3 * H :]], 1), before, flat[:, : 3 * H])
    return sums.dx, g.clone() if g is grads[1] else g, *sums.weights()


def lstm_forward(inputs: LstmInputs, options: GatedOptions, save: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    frame = _Frame(inputs)
    T, B, H, x, valid = frame.T, frame.B, frame.H, inputs.x, frame.valid
    output = x.new_empty((T, B, H))
    saved = x.new_empty((T, B, 5 * H) if save else (0,))
    h, c = inputs.h0, inputs.c0
    for chunk in frame.chunks(options.reverse):
        arrivals = frame.arrivals(chunk)
        for k in walk(len(arrivals), options.reverse):
            t = chunk.start + k
            i, f, g, o = (arrivals[k] + linear(h, inputs.weight_hh, inputs.bias_hh)).chunk(4, 1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            new_c = torch.addcmul(f * c, i, g)
            new = o * new_c.tanh()
            if save:
                torch.cat([i, f, g, o, new_c], 1, out=saved[t])
            if valid is None:
                h, c = new, new_c
                output[t] = h
            else:
                h, c = torch.where(valid[t], new, h), torch.where(valid[t], new_c, c)
                output[t] = h.masked_fill(~valid[t], 0)
    return output, h.clone(), c.clone(), saved


def lstm_backward(
    inputs: LstmInputs, options: GatedOptions, output: Tensor, saved: Tensor, grads: tuple[Tensor, ...], needs_x: bool
) -> tuple[Tensor | None, ...]:
    frame = _Frame(inputs)
    H, valid = frame.H, frame.valid
    grad_output, d, e = grads  # d: gradient of h, e: gradient of c
    sums = _Sums(inputs, needs_x)
    for chunk in frame.chunks(not options.reverse):
        before = previous_states(chunk, output.__getitem__, inputs.h0, valid, frame.T, options.reverse)
        c_before = previous_states(
            chunk, lambda steps: saved[steps][..., 4 * H :], inputs.c0, valid, frame.T, options.reverse
        )
        i, f, g, o, c = saved[chunk].chunk(5, -1)
        tangent = c.tanh()
        # The gradients of i, f, g are these factors times e, that of o times d; `to_cell` takes d to e.
        D = saved.new_empty((*c.shape[:2], 4 * H))
        di, df, dg, do = D.chunk(4, -1)
        torch.mul(g, i * (1 - i), out=di)
        torch.mul(c_before, f * (1 - f), out=df)
        torch.mul(i, 1 - g * g, out=dg)
        torch.mul(tangent, o * (1 - o), out=do)
        to_cell, keep = o * (1 - tangent * tangent), f
        incoming, steps, waits = grad_output[chunk], inputs.x[chunk], None
        if valid is not None:
            waits = ~valid[chunk]
            D.masked_fill_(waits, 0)
            incoming, steps, to_cell = (part.masked_fill(waits, 0) for part in (incoming, steps, to_cell))
            keep = torch.where(valid[chunk], f, torch.ones_like(f))
        for k in walk(len(D), not options.reverse):
            d = d + incoming[k]
            e = torch.addcmul(e, d, to_cell[k])
            D[k, :, : 3 * H].view(frame.B, 3, H).mul_(e.unsqueeze(1))
            D[k, :, 3 * H :].mul_(d)
            e = e * keep[k]
            back = D[k] @ inputs.weight_hh
            d = back if waits is None else torch.where(waits[k], d, back)
        flat = D.view(-1, 4 * H)
        sums.add(chunk, steps, flat, before, flat)
    return sums.dx, d, e, *sums.weights()


class _Frame:
    """What the passes share: sizes, chunks of steps, the input's part of the sums."""

    def __init__(self, inputs: GruInputs | LstmInputs) -> None:
        self.inputs = inputs
        self.T, self.B, _ = inputs.x.shape
        self.H = inputs.h0.shape[1]
        self.valid = None if inputs.lengths is None else valid_steps(inputs.lengths, self.T)[..., None]

    def chunks(self, backwards: bool) -> Any:
        return chunks(self.T, chunk_size(self.T, self.B * 4 * self.H), backwards)

    def arrivals(self, chunk: slice) -> tuple[Tensor, ...]:
        x = self.inputs.x[chunk]
        if self.valid is not None:
            x = x.masked_fill(~self.valid[chunk], 0)
        return linear(x, self.inputs.weight_ih, self.inputs.bias_ih).unbind(0)


class _Sums:
    """dx and the gradients of weights and biases, summed over chunks."""

    def __init__(self, inputs: GruInputs | LstmInputs, needs_x: bool) -> None:
        self.inputs = inputs
        self.dx = torch.empty_like(inputs.x) if needs_x else None
        self.weight_ih, self.weight_hh = torch.zeros_like(inputs.weight_ih), torch.zeros_like(inputs.weight_hh)
        self.bias_ih = None if inputs.bias_ih is None else torch.zeros_like(inputs.bias_ih)
        self.bias_hh = None if inputs.bias_hh is None else torch.zeros_like(inputs.bias_hh)

    def add(self, chunk: slice, x: Tensor, from_x: Tensor, before: Tensor, from_h: Tensor) -> None:
        """from_x, from_h: gradients (T B, gates H) of what the input and the state are multiplied to."""
        self.weight_ih.addmm_(from_x.T, x.reshape(-1, x.shape[2]))
        self.weight_hh.addmm_(from_h.T, before.reshape(-1, before.shape[2]))
        if self.bias_ih is not None:
            self.bias_ih += from_x.sum(0)
        if self.bias_hh is not None:
            self.bias_hh += from_h.sum(0)
        if self.dx is not None:
            self.dx[chunk] = (from_x @ self.inputs.weight_ih).view(x.shape)

    def weights(self) -> tuple[Tensor | None, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
