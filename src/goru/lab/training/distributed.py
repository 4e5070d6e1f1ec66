"""One training over several processes: `torchrun --nproc-per-node N -m goru.lab run ...`.

Every process makes the same batch (a function of the seed and the step) and learns from its own rows of it; the
gradients are averaged by DistributedDataParallel, weighted so that they are those of the whole batch. The first
process alone reads and writes the run directory, evaluates, and tells the others.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from goru.lab.errors import LabError, UsageError
from goru.lab.tasks.task import count_rows, take_rows
from goru.lab.training.run_directory import RunDirectory

T = TypeVar("T")

PATIENCE = datetime.timedelta(hours=2)
"""How long the others may wait for the first one, which evaluates; a process that dies is noticed at once."""


class Group:
    """The processes of one training. In a group of one, nothing is exchanged and nothing is changed."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def parallel(self, network: nn.Module) -> nn.Module:
        """The network through which to compute a loss; gradients are averaged over the processes."""
        if self.size == 1:
            return network
        device = next(network.parameters()).device
        return DistributedDataParallel(network, [device.index] if device.type == "cuda" else None)

    def part(self, batch: Any, weight: Callable[[Any], float]) -> tuple[Any, float]:
        """This process's rows of a batch, and their share in its loss, which is a mean over `weight` terms."""
        if self.size == 1:
            return batch, 1.0
        rows = self._rows(count_rows(batch))
        if rows.start == rows.stop:  # fewer rows than processes: one has to take part in the exchange, for nothing
            return take_rows(batch, slice(0, 1)), 0.0
        mine = take_rows(batch, rows)
        return mine, weight(mine) / weight(batch)

    def _rows(self, count: int) -> slice:
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def scatter(self, states: list[Tensor]) -> list[Tensor]:
        """This process's rows of carried states."""
        if self.size == 1 or not states:
            return states
        return take_rows(states, self._rows(count_rows(states)))

    def gather(self, states: list[Tensor]) -> list[Tensor]:
        """The carried states of all rows: the inverse of `scatter`."""
        if self.size == 1 or not states:
            return states
        everyone: list[Any] = [None] * self.size
        with self.linked():
            dist.all_gather_object(everyone, [state.cpu() for state in states])
        return [torch.cat(parts, 0 if parts[0].dim() == 1 else 1) for parts in zip(*everyone, strict=True)]

    def sums(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(values)
        exchanged = torch.tensor(values, dtype=torch.float64, device=_device())
        with self.linked():
            dist.all_reduce(exchanged)
        return exchanged.tolist()

    def from_first(self, work: Callable[[], T]) -> T:
        """What the first process gets from `work`, in all of them; an error, too, ends all."""
        if self.size == 1:
            return work()
        told: list[Any] = [None, None]
        error = None
        if self.first:
            try:
                told = [work(), None]
            except LabError as raised:
                error, told = raised, [None, raised.exit_code]
        with self.linked():
            dist.broadcast_object_list(told, device=_device())
        if error is not None:
            raise error
        if told[1] is not None:
            raise SystemExit(told[1])  # the first process says why
        return told[0]

    def same_everywhere(self, error: LabError) -> BaseException:
        """What to raise for an error that all processes meet at once: the first one says it."""
        return error if self.first else SystemExit(error.exit_code)

    @contextlib.contextmanager
    def linked(self) -> Iterator[None]:
        """For exchanges: one that fails because another process ended is told in a sentence."""
        try:
            yield
        except RuntimeError as error:
            if self.size > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise LabError(
                    f"process {self.rank} of {self.size} lost another one, which should have said why; "
                    f"the same command again goes on from the last checkpoint."
                ) from None
            raise


ALONE = Group()


class Onlooker(RunDirectory):
    """The run directory as the other processes have it: nothing is written."""

    def cut_metrics(self, size: int) -> None: ...

    def append(self, record: dict[str, Any]) -> None: ...

    def save_checkpoint(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        self.checkpoint_step = position["step"]

    def write_json(self, name: str, value: dict[str, Any]) -> None: ...


@contextlib.contextmanager
def joined(device: str, batch: int) -> Iterator[Group]:
    """The group for which `torchrun` has started this process; without it, a group of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if not dist.is_torchelastic_launched() or size == 1:
        yield ALONE
        return
    if size > batch:
        raise UsageError(f"{size} processes cannot share a batch of {batch} rows; start at most {batch}.")
    cuda = device.startswith("cuda")
    if cuda:
        if torch.cuda.device_count() <= int(os.environ["LOCAL_RANK"]):
            raise LabError(f"there are {torch.cuda.device_count()} GPUs here, fewer than processes; start fewer.")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size) and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all on this machine: nobody else can listen
    try:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise LabError(f"the processes do not find one another: {str(error).splitlines()[0]}") from None
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def _device() -> torch.device:
    """Where tensors have to be to be exchanged."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
