"""Code shared by the calls of all native recurrences: checked arguments, ragged batches, threads and chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from . import library
from .structures import ChunkLayout, Shape

CALL_FLOPS = 1e9  # most work in one library call, between two checks for Ctrl-C: a tenth of a second at most
CHUNK_BYTES = 1 << 20  # what a chunk of a backward pass has in the cache
GROUP_ROWS = 128  # least rows (t, b) of a group: with fewer its sums take longer to add up than to make
STREAMED_BYTES = 4 << 20  # what a forward pass saves, from which on it is written past the caches
UNPACKED_ROWS = 8  # up to this many rows (t, b) a forward pass reads the weights as they are
THREAD_FLOPS = 2e6  # least work that is worth waking a thread for
MEET_FLOPS = 3e4  # least work of a thread between two meetings with others that share its rows,
MEMBER_UNITS = 32  # and least hidden units
TEAM_THREADS = 64  # most threads of all teams, as in csrc/base/team.h


class Call:
    """The checked input of a recurrence over a sequence, the structure that describes it, and its loop over the steps.

    A subclass checks the weights, and sets `block_rows`, the rows of the batch that go together, and `step_flops`, the
    floating-point operations of a step.
    """

    call_flops = CALL_FLOPS
    chunk_bytes = CHUNK_BYTES
    shares_rows = False  # whether several threads can work on the same rows (csrc/base/team.h)
    block_rows: int
    step_flops: float

    def __init__(
        self,
        x: Tensor,
        hidden: int,
        lengths: Tensor | None,
        reverse: bool,
        modrelu: bool,
        *,
        reset: bool = False,
        update: bool = False,
    ) -> None:
        if x.dim() != 3 or x.shape[0] == 0:
            raise RuntimeError(f"the native backend needs x of shape (T, B, I) with T > 0, got {tuple(x.shape)}")
        self.dtype = x.dtype
        self.code = dtype_code(x.dtype)
        self.library = library.get()
        self.T, self.B, self.I = T, B, I = tuple(x.shape)
        self.H = hidden
        self.x, x_step, x_row = rows("x", x, (T, B, I), self.dtype)
        self.ragged = Ragged(lengths, T, B)
        order, active = self.ragged.pointers()
        self.shape = Shape(T, B, I, hidden, reset, update, reverse, modrelu, 0, T, 1, order, active, x_step, x_row)

    @property
    def blocks(self) -> int:
        return -(-self.B // self.block_rows)

    def steps_per_call(self, chunk_step: int = 0) -> int:
        """Steps of one call of the library; `chunk_step`: the elements that a step has in the chunk buffer."""
        steps = min(self.T, int(self.call_flops / max(1.0, self.step_flops)))
        if chunk_step:
            steps = min(steps, self.chunk_bytes // self.dtype.itemsize // chunk_step)
        return max(1, steps)

    def whole_chunks(self, chunk: int) -> int:
        """Steps of one call of the library for a backward pass, twice the work of a step: so many chunks."""
        return max(1, self.steps_per_call() // 2 // chunk) * chunk

    @property
    def packs(self) -> bool:
        """Whether a forward pass packs the weights: for a few rows it reads them as they are."""
        return self.T * self.B > UNPACKED_ROWS

    def layout(self, chunk_row: int, most_groups: int, most_steps: int | None = None) -> Any:
        """The chunk buffer for up to so many groups of rows (csrc/base/shape.h) and so many steps. `chunk_row`: the
        elements that a row of a step has in it."""
        groups = max(1, min(self.blocks, most_groups, self.T * self.B // GROUP_ROWS))
        rows_of_step = min(self.B, -(-self.blocks // groups) * self.block_rows)
        steps = min(self.steps_per_call(chunk_row * groups * rows_of_step), most_steps or self.T)
        blocks = -(-steps * rows_of_step // self.block_rows)
        # The panels are an odd number of blocks apart. Otherwise the same rows of all panels would lie in the same few
        # lines of the first-level cache and evict each other.
        return ChunkLayout((groups * blocks | 1) * self.block_rows, groups, blocks * self.block_rows, steps)

    def threads(self, steps: int, factor: int = 1, share: bool = False) -> int:
        """Threads that are worth waking for so many steps; with `share`, several may work on the same rows."""
        threads, blocks = worth_threads(factor * steps * self.step_flops), max(1, self.blocks)
        if threads <= blocks or not share:
            return min(threads, blocks)
        most = int(self.step_flops / blocks / MEET_FLOPS), self.H // MEMBER_UNITS
        return blocks * max(1, min(min(threads, TEAM_THREADS) // blocks, *most))

    def forward(
        self, function: Callable[..., None], arguments: Any, *codes: int, between: tuple[int, int] | None = None
    ) -> None:
        """Call the function of the library for all steps, or for those of a part, first to last."""
        first, last = between or (0, self.T)
        share = self.shares_rows and self.packs
        self._run(function, arguments, chunks(first, last, self.steps_per_call()), 1, share, codes)

    def backward(
        self,
        function: Callable[..., None],
        arguments: Any,
        steps: int,
        *codes: int,
        checkpoint: int | None = None,
        recompute: Callable[[int, int], None] | None = None,
    ) -> None:
        """Call the function of the library for all steps, last to first: twice the work of a step.

        With `checkpoint`, recompute(first, last) is called before each part of that many steps.
        """
        for first, last in reversed(list(chunks(0, self.T, checkpoint or self.T))):
            if recompute is not None:
                recompute(first, last)
            parts = reversed(list(chunks(first, last, steps)))
            self._run(function, arguments, parts, 2, self.shares_rows, codes)

    def lowest_time(self, first: int, last: int) -> int:
        """Of the steps first ... last - 1."""
        return self.T - last if self.shape.reverse else first

    def _run(self, function: Any, arguments: Any, parts: Any, factor: int, share: bool, codes: tuple[int, ...]) -> None:
        for first, last in parts:
            arguments.shape.first, arguments.shape.last = first, last
            arguments.shape.threads = self.threads(last - first, factor, share)
            function(self.code, *codes, byref(arguments))


def dtype_code(dtype: torch.dtype) -> int:
    """What the library calls a dtype."""
    if dtype not in library.DTYPES:
        raise RuntimeError(f"the native backend supports float32 and float64, got {dtype}")
    return library.DTYPES[dtype]


def check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor, contiguous; raises an error if the kernels cannot read it."""
    if (
        tensor.dtype == dtype
        and tensor.shape == shape
        and tensor.is_contiguous()
        and tensor.device.type == "cpu"
        and not (tensor.is_neg() or tensor.is_conj())
        and (tensor.data_ptr() or tensor.numel() == 0)
    ):
        return tensor
    if tensor.device.type != "cpu":
        raise RuntimeError(f"the native backend needs {name} on the CPU, got a tensor on {tensor.device}")
    if tensor.dtype != dtype:
        raise RuntimeError(f"the native backend needs {name} of dtype {dtype}, got {tensor.dtype}")
    if tuple(tensor.shape) != shape:
        raise RuntimeError(f"the native backend needs {name} of shape {shape}, got {tuple(tensor.shape)}")
    return _with_memory(name, tensor).detach().resolve_conj().resolve_neg().contiguous()


def _with_memory(name: str, tensor: Tensor) -> Tensor:
    """The tensor, if it has memory; autograd's zeros get some."""
    if tensor.data_ptr() or tensor.numel() == 0:
        return tensor
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    raise RuntimeError(f"the native backend needs {name} in memory, got a tensor whose storage was emptied")


def dense_rows(tensor: Tensor) -> tuple[Tensor, int, int]:
    """A (T, B, N) tensor whose last dimension is dense, and its strides of T and B; expanded ones stay small."""
    if tensor.stride(2) == 1 or tensor.shape[2] == 1 or tensor.numel() == 0:
        return tensor, tensor.stride(0), tensor.stride(1)
    small = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride()[:2])]
    dense = small.contiguous()
    step, row = (0 if stride == 0 else s for stride, s in zip(tensor.stride()[:2], dense.stride()[:2], strict=True))
    return dense, step, row


def rows(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, int, int]:
    """A (T, B, N) tensor with its strides of T and B, checked."""
    if tensor.shape == shape and tensor.is_contiguous():
        tensor = check(name, tensor, shape, dtype)
        return tensor, tensor.stride(0), tensor.stride(1)
    check(name, tensor[:0] if len(shape) == tensor.dim() else tensor, (0, *shape[1:]), dtype)
    if tensor.shape[0] != shape[0]:
        raise RuntimeError(f"the native backend needs {name} of shape {shape}, got {tuple(tensor.shape)}")
    return dense_rows(_with_memory(name, tensor).detach().resolve_neg())


class Ragged:
    """Rows in order of decreasing length, and for each step how many rows have it; empty without lengths."""

    def __init__(self, lengths: Tensor | None, steps: int, batch: int) -> None:
        self.order = self.active = None
        if lengths is None or batch == 0:
            return
        lengths = check("lengths", lengths, (batch,), torch.int64)
        low, high = (int(v) for v in torch.aminmax(lengths))
        if low < 1 or high > steps:
            raise RuntimeError(f"lengths must lie between 1 and the {steps} steps of the input, got {low} to {high}")
        if low == steps:
            return
        self.order = torch.argsort(lengths, descending=True, stable=True)
        ends = torch.bincount(lengths, minlength=steps + 1)
        self.active = batch - torch.cumsum(ends, 0)[:steps]

    def pointers(self) -> tuple[int | None, int | None]:
        return (None, None) if self.order is None or self.active is None else (
            self.order.data_ptr(), self.active.data_ptr()
        )  # fmt: skip


def last_state(output: Tensor, lengths: Tensor | None, reverse: bool) -> Tensor:
    """h_n from the output: a row's last step, or in the reverse direction the first one."""
    if reverse:
        return output[0].clone()
    if lengths is None:
        return output[-1].clone()
    return output[lengths - 1, torch.arange(output.shape[1], device="cpu")]


def worth_threads(flops: float) -> int:
    return max(1, min(torch.get_num_threads(), int(flops / THREAD_FLOPS)))


def chunks(first: int, last: int, size: int) -> Iterator[tuple[int, int]]:
    for start in range(first, last, size):
        yield start, min(start + size, last)


def streams(saves: Tensor) -> bool:
    """Whether a forward pass writes what it saves past the caches."""
    return saves.nbytes >= STREAMED_BYTES


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()
