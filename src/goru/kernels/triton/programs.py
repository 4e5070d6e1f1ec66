"""The two Triton programs of GORU: the walk forward and the walk back. Importing this file imports Triton.

A program owns BLOCK_B rows of the batch for *all* steps: rows never meet, so no program waits for another one. U is
dense; what needs no recurrence (x W, the weight gradients) is done outside by torch, for all steps at once.

The state of a row block does not fit into registers for every H up to 1024, and neither do the weights: H = 1024 has
12 MB of them. So the weights are read tile by tile (they stay in the L2 cache, every program reads the same ones), and
the state travels through global memory from one step to the next. That is why there is a barrier in each step: all
warps of a program must have written their part of the state before any of them reads it. No result is ever written
where an operand of the same step is read: the programs can run again on the same arguments, as autotuning does.

The state and its gradient are float32 whatever the tensors are: in bfloat16 an update gate near 1 would round every
change of the state away.

Masks are comparisons of blocks: Triton 3.9's interpreter takes no mask that was one comparison of two numbers.

Legend: T steps, B batch, H hidden, P = 1 + gates that are on. Tensors, all contiguous; blocks of H side by side, those
of a gate that is off are missing:
  pre (T, B, r z c)  x W, no bias      h0, grad_h_n (B, H)      bias (r z c) or None      lengths (B) or None
  output, grad_output (T, B, H)        saved (T, B, v r z c), v = U h, c the candidate; None: do not save
  forward: weight (H, P H), columns U W_r W_z transposed, k down and n along; state (2, B, H) float32, double-buffered
  backward: weight (P H, H), rows U W_r W_z; deltas (T, B, v r z c) gradients before the activations;
            carry (B, H) float32, dL/dh between steps and at the end dL/dh0; keep (B, H) float32, what passes by z
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["T", "B"])
def goru_forward(
    pre, h0, weight, bias, lengths, output, saved, state, T, B,
    H: tl.constexpr, RESET: tl.constexpr, UPDATE: tl.constexpr, REVERSE: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr, TINY: tl.constexpr, TUNING: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    P: tl.constexpr = 1 + RESET + UPDATE
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    in_batch = rows < B
    own = rows.to(tl.int64)[:, None] * H
    half = B.to(tl.int64) * H
    length = tl.zeros_like(rows) + T if lengths is None else tl.load(lengths + rows, mask=in_batch, other=0)
    for n in range(0, H, BLOCK_N):
        columns = n + tl.arange(0, BLOCK_N)[None, :]
        inside = in_batch[:, None] & (columns < H)
        tl.store(state + own + columns, tl.load(h0 + own + columns, mask=inside, other=0.0).to(tl.float32), mask=inside)
    for step in range(T):
        tl.debug_barrier()
        t = T - 1 - step if REVERSE else step
        before = state + (step % 2) * half
        after = state + (1 - step % 2) * half
        at = (t * B + rows).to(tl.int64)[:, None]
        alive = (in_batch & (t < length))[:, None]
        for n in range(0, H, BLOCK_N):
            columns = n + tl.arange(0, BLOCK_N)[None, :]
            inside = in_batch[:, None] & (columns < H)
            valid = alive & (columns < H)
            v = tl.zeros((BLOCK_B, BLOCK_N), tl.float32)
            if RESET:
                r = tl.zeros((BLOCK_B, BLOCK_N), tl.float32)
            if UPDATE:
                z = tl.zeros((BLOCK_B, BLOCK_N), tl.float32)
            for k in range(0, H, BLOCK_K):
                across = k + tl.arange(0, BLOCK_K)[None, :]
                down = k + tl.arange(0, BLOCK_K)[:, None]
                h = tl.load(before + own + across, mask=in_batch[:, None] & (across < H), other=0.0)
                h = h.to(pre.dtype.element_ty).to(OPERAND)
                tile = weight + down * (P * H) + columns
                there = (down < H) & (columns < H)
                v = tl.dot(h, tl.load(tile, mask=there, other=0.0).to(OPERAND), v, input_precision=PRECISION)
                if RESET:
                    w = tl.load(tile + H, mask=there, other=0.0).to(OPERAND)
                    r = tl.dot(h, w, r, input_precision=PRECISION)
                if UPDATE:
                    w = tl.load(tile + (P - 1) * H, mask=there, other=0.0).to(OPERAND)
                    z = tl.dot(h, w, z, input_precision=PRECISION)
            # Beyond a row's end x may be anything, so that it is not read there.
            arriving = pre + at * (P * H) + columns
            a = tl.load(arriving + (P - 1) * H, mask=valid, other=0.0).to(tl.float32)
            if RESET:
                r += tl.load(arriving, mask=valid, other=0.0).to(tl.float32)
                if bias is not None:
                    r += tl.load(bias + columns, mask=columns < H, other=0.0).to(tl.float32)
                r = tl.sigmoid(r)
                a += r * v
            else:
                a += v
            if bias is not None:
                b = tl.load(bias + (P - 1) * H + columns, mask=columns < H, other=0.0).to(tl.float32)
                magnitude = tl.abs(a)
                c = magnitude + b
                c = tl.where(c < 0, 0.0, c)  # not tl.maximum: NaN has to stay NaN
                c = tl.where(a < 0, -c, c)
                c = tl.where(magnitude < TINY, 0.0, c)
            else:
                c = a
            h = tl.load(before + own + columns, mask=inside, other=0.0)
            if UPDATE:
                z += tl.load(arriving + (P - 2) * H, mask=valid, other=0.0).to(tl.float32)
                if bias is not None:
                    z += tl.load(bias + (P - 2) * H + columns, mask=columns < H, other=0.0).to(tl.float32)
                z = tl.sigmoid(z)
                new = z * h + (1 - z) * c
            else:
                new = c
            tl.store(after + own + columns, tl.where(alive, new, h), mask=inside)
            result = tl.where(alive, new, 0.0).to(output.dtype.element_ty)
            tl.store(output + at * H + columns, result, mask=inside)
            if saved is not None:
                left = saved + at * ((P + 1) * H) + columns
                tl.store(left, v.to(saved.dtype.element_ty), mask=inside)
                if RESET:
                    tl.store(left + H, r.to(saved.dtype.element_ty), mask=inside)
                if UPDATE:
                    tl.store(left + (P - 1) * H, z.to(saved.dtype.element_ty), mask=inside)
                tl.store(left + P * H, c.to(saved.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["T", "B"])
def goru_backward(
    grad_output, grad_h_n, h0, weight, lengths, output, saved, deltas, carry, keep, T, B,
    H: tl.constexpr, RESET: tl.constexpr, UPDATE: tl.constexpr, REVERSE: tl.constexpr, BIAS: tl.constexpr,
    OPERAND: tl.constexpr, PRECISION: tl.constexpr, TUNING: tl.constexpr,
    BLOCK_B: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Formulas: see manual.py. Each delta is dL/dh times a factor saved by the forward pass.
    P: tl.constexpr = 1 + RESET + UPDATE
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    in_batch = rows < B
    own = rows.to(tl.int64)[:, None] * H
    length = tl.zeros_like(rows) + T if lengths is None else tl.load(lengths + rows, mask=in_batch, other=0)
    for n in range(0, H, BLOCK_N):
        columns = n + tl.arange(0, BLOCK_N)[None, :]
        inside = in_batch[:, None] & (columns < H)
        last = tl.load(grad_h_n + own + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(carry + own + columns, last, mask=inside)
    for step in range(T):
        tl.debug_barrier()
        t = step if REVERSE else T - 1 - step
        at = (t * B + rows).to(tl.int64)[:, None]
        alive = (in_batch & (t < length))[:, None]
        # The row's first step in the order of the walk forward: before it there is h0, and no output.
        if REVERSE:
            first = (in_batch & (t + 1 == length))[:, None]
            at_previous = at + B
        else:
            first = in_batch[:, None] & (at < B)
            at_previous = at - B
        for n in range(0, H, BLOCK_N):
            columns = n + tl.arange(0, BLOCK_N)[None, :]
            inside = in_batch[:, None] & (columns < H)
            valid = alive & (columns < H)
            g = tl.load(carry + own + columns, mask=inside, other=0.0)
            g += tl.load(grad_output + at * H + columns, mask=valid, other=0.0).to(tl.float32)
            left = saved + at * ((P + 1) * H) + columns
            delta = deltas + at * ((P + 1) * H) + columns
            c = tl.load(left + P * H, mask=valid, other=0.0).to(tl.float32)
            da = tl.where(alive, g, 0.0)
            if UPDATE:
                z = tl.load(left + (P - 1) * H, mask=valid, other=0.0).to(tl.float32)
                h = tl.load(output + at_previous * H + columns, mask=valid & ~first, other=0.0).to(tl.float32)
                h += tl.load(h0 + own + columns, mask=valid & first, other=0.0).to(tl.float32)
                dz = da * (h - c) * z * (1 - z)
                tl.store(delta + (P - 1) * H, dz.to(deltas.dtype.element_ty), mask=inside)
                tl.store(keep + own + columns, tl.where(alive, g * z, g), mask=inside)
                da *= 1 - z
            else:
                tl.store(keep + own + columns, tl.where(alive, 0.0, g), mask=inside)
            if BIAS:
                da = tl.where(c == 0, 0.0, da)
            dv = da
            if RESET:
                r = tl.load(left + H, mask=valid, other=0.0).to(tl.float32)
                v = tl.load(left, mask=valid, other=0.0).to(tl.float32)
                dv = da * r
                tl.store(delta + H, (dv * v * (1 - r)).to(deltas.dtype.element_ty), mask=inside)
            tl.store(delta, dv.to(deltas.dtype.element_ty), mask=inside)
            tl.store(delta + P * H, da.to(deltas.dtype.element_ty), mask=inside)
        tl.debug_barrier()
        for n in range(0, H, BLOCK_N):
            columns = n + tl.arange(0, BLOCK_N)[None, :]
            inside = in_batch[:, None] & (columns < H)
            g = tl.load(keep + own + columns, mask=inside, other=0.0)
            for k in range(0, H, BLOCK_K):
                across = k + tl.arange(0, BLOCK_K)[None, :]
                down = k + tl.arange(0, BLOCK_K)[:, None]
                there = (down < H) & (columns < H)
                for p in tl.static_range(P):
                    delta = deltas + at * ((P + 1) * H) + p * H + across
                    d = tl.load(delta, mask=in_batch[:, None] & (across < H), other=0.0).to(OPERAND)
                    w = tl.load(weight + (p * H + down) * H + columns, mask=there, other=0.0).to(OPERAND)
                    g = tl.dot(d, w, g, input_precision=PRECISION)
            tl.store(carry + own + columns, g, mask=inside)
