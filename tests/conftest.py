"""One thread for each test process: the tensors are tiny, and workers that share cores would only wait."""

from __future__ import annotations

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
