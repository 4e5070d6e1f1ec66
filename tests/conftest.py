"""One thread for each test process: the tensors are tiny, and workers that share cores would only wait."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

# Nor do the threads of processes that the tests start spin while they wait for each other: they have the same cores.
# OpenMP reads this when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# A background job inherits an ignored Ctrl-C, and so would the processes that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

TOGETHER = ("tests/lab/test_ray.py", "tests/lab/test_distributed.py", "tests/lab/test_page.py")
"""Files whose tests share something costly: a cluster, a pair of processes, reports and a browser."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test to the next free process, but all of such a file to one.

    The plugin's own way (`--dist loadgroup`) does not work in the versions of constraints.txt.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in TOGETHER else nodeid

    return Scheduler(config, log)
