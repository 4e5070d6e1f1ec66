"""What every run of a grid needs: checked once, before the first one starts."""

from __future__ import annotations

import torch

from goru.kernels.backends import BACKENDS, preference
from goru.lab.errors import LabError
from goru.lab.training import state
from goru.lab.training.config import RunConfig


def check_backend() -> None:
    """Raise LabError if GORU_BACKEND names no backend."""
    try:
        preference()
    except ValueError as error:
        raise LabError(f"{error}.") from None


def check_device(config: RunConfig) -> None:
    """Raise LabError if this machine lacks the device of a run, or if the backend of GORU_BACKEND cannot use it."""
    device = state.device_of(config)
    backend, source = preference()
    obstacle = BACKENDS[backend].obstacle(device, torch.float32) if backend in BACKENDS else None
    if obstacle is not None:
        raise LabError(f"the {backend} backend cannot run here ({source}): {obstacle}.")
