"""A training process reuses its memory from step to step."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from goru.lab.training.allocator import reuse_memory
assert reuse_memory()
def step():
    return sum(torch.ones(10_000_000 + 4096 * k).sum().item() for k in range(3))
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is another than glibc's")
def test_large_pieces_are_not_faulted_in_again() -> None:
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    # 3 steps of 3 pieces of 10,000 pages; without the setting each is fetched anew, 88,000 faults.
    assert int(run.stdout) < 1000
