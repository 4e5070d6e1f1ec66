"""Checkpoints: named tensors and a position in one safetensors file, with a checksum over both."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT = "goru.lab.checkpoint/1"

Checkpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors and position."""


class UnusableError(Exception):
    """A checkpoint that cannot be used; the message is the end of a sentence about its file."""


def encode(tensors: dict[str, Tensor], position: dict[str, Any], config: str) -> bytes:
    """The content of a checkpoint file; `config` is the digest of the run's configuration."""
    text = json.dumps(position)
    header = {"format": FORMAT, "config": config, "position": text, "digest": _digest(tensors, text)}
    return save(tensors, header)


def read(path: Path, config: str) -> Checkpoint:
    """The checkpoint in a file, verified; UnusableError says what is wrong with it."""
    try:
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
    return tensors, json.loads(position)


def _digest(tensors: dict[str, Tensor], position: str) -> str:
    digest = hashlib.sha256(position.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
