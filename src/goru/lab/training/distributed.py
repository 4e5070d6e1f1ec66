"""One run over several processes: `goru run --processes N`, or `torchrun ... -m goru.lab run` on several machines.

Every process generates the same batch (a function of the seed and the step) and trains on its own rows of it.
DistributedDataParallel averages the gradients, weighted so that they are those of the whole batch. Only the first
process reads and writes the run directory and evaluates, and sends the results to the others. The loop is that of
`loop.py`; `DistributedTraining` holds the differences.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from goru.lab.errors import LabError, RunEndedError, UsageError
from goru.lab.tasks.task import count_rows, take_rows
from goru.lab.training import loop
from goru.lab.training.checkpoints import Checkpoint
from goru.lab.training.config import RunConfig
from goru.lab.training.run_directory import CHECKPOINT_SECONDS, RunDirectory, finished, hold
from goru.lab.training.state import Training

T = TypeVar("T")

PATIENCE = datetime.timedelta(hours=2)
"""How long the others wait while the first process evaluates; a process that dies is noticed at once."""


@dataclass(frozen=True)
class Group:
    """The processes of one training, of which this is number `rank`."""

    rank: int
    size: int

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def part(self, batch: Any, weight: Callable[[Any], float]) -> tuple[Any, float]:
        """This process's rows of a batch, and their share in its loss, which is a mean over `weight` terms."""
        rows = self.rows(count_rows(batch))
        if rows.start == rows.stop:  # fewer rows than processes: this one takes part in the exchange with weight 0
            return take_rows(batch, slice(0, 1)), 0.0
        mine = take_rows(batch, rows)
        return mine, weight(mine) / weight(batch)

    def rows(self, count: int) -> slice:
        """This process's part of so many rows."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sums(self, *values: float) -> list[float]:
        """The sums over all processes."""
        exchanged = torch.tensor(values, dtype=torch.float64, device=_device())
        with self.linked():
            dist.all_reduce(exchanged)
        return exchanged.tolist()

    def from_first(self, work: Callable[[], T]) -> T:
        """The result of `work` in the first process, returned in all of them; an error also ends all."""
        sent: list[Any] = [None, None]
        error = None
        if self.first:
            try:
                sent = [work(), None]
            except LabError as raised:
                error, sent = raised, [None, raised.exit_code]
        with self.linked():
            dist.broadcast_object_list(sent, device=_device())
        if error is not None:
            raise error
        if sent[1] is not None:
            raise SystemExit(sent[1])  # the first process prints why
        return sent[0]

    @contextlib.contextmanager
    def linked(self) -> Iterator[None]:
        """Turn a failed exchange, after another process ended, into a LabError."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or "gloo" in str(error):
                raise LabError(
                    f"process {self.rank} of {self.size} lost another one, which should have printed why; "
                    f"run the same command again to continue from the last checkpoint."
                ) from None
            raise


class DistributedTraining(Training):
    """A training in which this process computes a part of every batch."""

    group: Group
    parallel: nn.Module

    def __init__(self, config: RunConfig) -> None:
        super().__init__(config)
        if any(isinstance(module, nn.Dropout) for module in self.network.modules()):
            # Each process would draw for its own rows: what is dropped would depend on the number of processes.
            raise LabError("a network with dropout trains in one process: start only one, or add --dropout 0.")

    def join(self, group: Group) -> None:
        """Start to average gradients over the processes; all processes of the group call this together."""
        device = next(self.network.parameters()).device
        self.group = group
        self.parallel = DistributedDataParallel(self.network, [device.index] if device.type == "cuda" else None)

    def learn(self, batch: Any) -> float:
        part, share = self.group.part(batch, self.problem.weight)
        loss, carry = self.problem.loss(self.parallel, part, self.carry)
        with self.group.linked():
            self.update(loss * (share * self.group.size))  # DDP averages the gradients of losses that should be added
        self.carry = [state.detach() for state in carry]
        return self.group.sums(share * loss.item())[0]

    def evaluate(self) -> dict[str, float]:
        return self.group.from_first(super().evaluate)

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        return tuple(map(bool, self.group.sums(*wishes)))

    def all_carried(self) -> list[Tensor]:
        if not self.carry:
            return []
        everyone: list[Any] = [None] * self.group.size
        with self.group.linked():
            dist.all_gather_object(everyone, [state.cpu() for state in self.carry])
        return [torch.cat(parts, 0 if parts[0].dim() == 1 else 1) for parts in zip(*everyone, strict=True)]

    def own_carried(self, states: list[Tensor]) -> list[Tensor]:
        return take_rows(states, self.group.rows(count_rows(states))) if states else []


class ReadOnlyRunDirectory(RunDirectory):
    """The run directory in the other processes, which write nothing."""

    def cut_metrics(self, size: int) -> None: ...

    def append(self, record: dict[str, Any]) -> None: ...

    def save_checkpoint(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        self.checkpoint_step = position["step"]

    def write_json(self, name: str, value: dict[str, Any]) -> None: ...

    def write_result(self, result: dict[str, Any]) -> None: ...


def train(
    config: RunConfig,
    runs: Path,
    group: Group,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[int], None] = lambda step: None,
    from_run: Path | None = None,
) -> dict[str, Any]:
    """`loop.train` in every process of a group."""
    prepared: DistributedTraining | None = None
    with contextlib.ExitStack() as stack:
        run: RunDirectory = ReadOnlyRunDirectory(config.directory(runs), config)

        def open_run() -> tuple[dict[str, Any] | None, Checkpoint | None]:
            nonlocal prepared, run
            prepared = loop.prepare(config, runs, DistributedTraining, from_run)
            run = stack.enter_context(hold(config, runs))
            result = finished(run.path)
            return result, run.load_checkpoint() if result is None else None

        result, saved = group.from_first(open_run)
        if result is not None:
            return result
        training = prepared or DistributedTraining(config)
        training.join(group)
        try:
            loop.begin(training, run, saved, "torchrun", group.size)
            if group.first:
                started(training.position.step)
            loop.loop(training, run, checkpoint_seconds, stop)
        except RunEndedError as error:
            if group.first:
                raise
            raise SystemExit(error.exit_code) from None
        return group.from_first(lambda: loop.finish(training, run))


@contextlib.contextmanager
def joined(device: str, batch: int) -> Iterator[Group | None]:
    """The group for which `torchrun` started this process; None if there is only one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if not dist.is_torchelastic_launched() or size == 1:
        yield None
        return
    if size > batch:
        raise UsageError(f"{size} processes cannot share a batch of {batch} rows; start at most {batch}.")
    cuda = device.startswith("cuda")
    if cuda:
        if torch.cuda.device_count() <= int(os.environ["LOCAL_RANK"]):
            raise LabError(f"there are {torch.cuda.device_count()} GPUs here, fewer than processes; start fewer.")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size) and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes are on this machine
    try:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise LabError(f"the processes cannot connect to one another: {str(error).splitlines()[0]}") from None
    try:
        yield Group(dist.get_rank(), size)
    finally:
        dist.destroy_process_group()


def _device() -> torch.device:
    """The device that the backend exchanges tensors on."""
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
