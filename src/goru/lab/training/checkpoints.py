"""Checkpoints: named tensors and a position in one safetensors file, with a checksum over both."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from goru.lab.errors import LabError
from goru.lab.training.checks import has_type, is_number
from goru.lab.untrusted import parse_json

FORMAT = "goru.lab.checkpoint/1"

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors and position."""


LATER = {"reached", "metrics_sha256", "backend", "isa"}
"""Fields of a position that checkpoints of older versions do not have."""
SIGNED = {"loss_sum", "best_score"}
"""Fields that may be negative."""


@dataclass
class Position:
    """The progress of a run; stored in the checkpoint's header."""

    step: int = 0
    seconds: float = 0.0
    """Working time of all attempts up to their last checkpoints."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl at the checkpoint."""
    metrics_sha256: str = ""
    """Checksum of these bytes."""
    loss_sum: float = 0.0
    """Training losses since the last logged line."""
    loss_count: int = 0
    best_score: float | None = None
    best_step: int = 0
    waited: int = 0
    """Evaluations since the best one."""
    reached: bool = False
    """Whether the last evaluation was below `stop_below`."""
    backend: str = ""
    """The implementation that computed the last steps, in case that environment.json is lost."""
    isa: str = ""
    """Its instruction set."""


class UnusableError(Exception):
    """A checkpoint is unusable; the message completes a sentence about its file."""


def encode(tensors: dict[str, Tensor], position: dict[str, Any], config: str) -> bytes:
    """The content of a checkpoint file; `config` is the digest of the run's configuration."""
    text = json.dumps(position)
    header = {"format": FORMAT, "config": config, "position": text, "digest": _digest(tensors, text)}
    return save(tensors, header)


def read(path: Path, config: str) -> Checkpoint:
    """The checkpoint in a file, verified; UnusableError says what is wrong with it."""
    try:
        if not path.is_file():
            raise UnusableError("is not a regular file")
        with safe_open(str(path), framework="pt") as file:
            header = file.metadata() or {}
            # Copies: what safetensors returns may be a view of the file itself.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise UnusableError(f"cannot be read ({str(error).strip()})") from None
    if header.get("format") != FORMAT:
        raise UnusableError("was not written by this laboratory")
    if header.get("config") != config:
        raise UnusableError("belongs to another configuration")
    position = header.get("position", "")
    if header.get("digest") != _digest(tensors, position):
        raise UnusableError("is damaged (its checksum does not match)")
    return tensors, _position(position)


def _position(text: str) -> dict[str, Any]:
    """The position, if it is valid: the checksum only shows that nothing changed by accident."""
    try:
        position, expected = parse_json(text, "its position"), get_type_hints(Position)
        if not isinstance(position, dict) or not expected.keys() - LATER <= position.keys() <= expected.keys():
            raise ValueError("other fields")
        for name, value in position.items():
            number = isinstance(value, (int, float))
            wrong = not has_type(value, expected[name]) or (number and not math.isfinite(value))
            if wrong or (number and value < 0 and name not in SIGNED) or (name == "seconds" and not is_number(value)):
                raise ValueError(f"{name} is {value!r:.40}")
        for name in ("loss_count", "best_step", "waited"):
            if position[name] > position["step"]:
                raise ValueError(f"{name} is {position[name]} at step {position['step']}")
    except (LabError, ValueError) as error:
        raise UnusableError(f"has an invalid position ({error})") from None
    return position


def _digest(tensors: dict[str, Tensor], position: str) -> str:
    digest = hashlib.sha256(position.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
