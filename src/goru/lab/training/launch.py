"""`goru run --processes N`: the processes of one run on this machine, whose store listens only on 127.0.0.1.

torchrun's own agent starts and supervises the processes. Only the store through which they find one another is made
here: torchrun's store listens on all interfaces, and anyone who reaches it can send pickles.
"""

from __future__ import annotations

import os
import socket
import sys
import uuid

from torch.distributed import PrefixStore, TCPStore  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from goru.lab.errors import RunInterruptedError

LOOPBACK = "127.0.0.1"
BACKEND = "goru-loopback"


class LoopbackRendezvous(StaticTCPRendezvous):
    """One agent, and a store on a free port of 127.0.0.1."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        super().__init__(LOOPBACK, port, rank=0, world_size=1, run_id=parameters.run_id, timeout=600)
        self._on_loopback = TCPStore(
            LOOPBACK, port, 1, True, multi_tenant=True, master_listen_fd=listener.detach(), use_libuv=False
        )

    def next_rendezvous(self) -> RendezvousInfo:
        store = PrefixStore(self.run_id, self._on_loopback)
        return RendezvousInfo(store, self.rank, self.world_size, RendezvousStoreInfo(LOOPBACK, self.master_port))

    def get_backend(self) -> str:
        return BACKEND


def launch(processes: int, argv: list[str]) -> int:
    """Run `goru ARGV` in several processes of one group; the exit code of the first that failed, or 0."""
    rendezvous_handler_registry.register(BACKEND, LoopbackRendezvous)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend=BACKEND,
        max_restarts=0,
        monitor_interval=0.1,
    )
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as torchrun does; each process sets its own number later
    try:
        elastic_launch(config, sys.executable)("-m", "goru.lab", *argv)
    except ChildFailedError as failed:
        _, failure = failed.get_first_failure()
        return failure.exitcode if failure.exitcode > 0 else 128 - failure.exitcode
    except SignalException:
        return RunInterruptedError.exit_code
    return 0
