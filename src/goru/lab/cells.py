"""The recurrent cells that the laboratory trains: one table, and the settings that the cells read.

A new cell, a new start or a new setting is added here and nowhere else. Importing this module does not import torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent layer."""

    make: Callable[[int, LayerConfig], nn.Module]
    """From an input size and the settings to a layer, initialized."""
    reads: tuple[str, ...]
    """The fields of `LayerConfig` that it reads, beside the hidden size; a change of any other is refused."""
    starts: tuple[str, ...] = ("published",)
    """The values of `init` that it has."""


def _from_library(name: str, input_size: int, layer: LayerConfig) -> nn.Module:
    """A layer of `goru`; the fields that the cell reads are its keyword arguments."""
    import goru

    arguments: dict[str, Any] = {field: getattr(layer, field) for field in CELLS[layer.cell].reads}
    if arguments.get("backend") == "auto":
        arguments["backend"] = None
    return getattr(goru, name)(input_size, layer.hidden_size, **arguments)


def _from_torch(name: str, input_size: int, layer: LayerConfig) -> nn.Module:
    """A layer of torch, with TensorFlow 1's initial values unless torch's own are wanted."""
    from torch import nn

    from goru.lab.networks import initialize_as_tensorflow

    made = getattr(nn, name)(input_size, layer.hidden_size)
    if layer.init != "torch":
        initialize_as_tensorflow(made)
    return made


CELLS: dict[str, Cell] = {
    "goru": Cell(
        functools.partial(_from_library, "GORU"),
        reads=("mesh", "capacity", "reset_gate", "update_gate", "memory", "init", "backend"),
        starts=("published", "june2017"),
    ),
    "eurnn": Cell(functools.partial(_from_library, "EURNN"), reads=("mesh", "capacity", "complex", "backend")),
    "gru": Cell(functools.partial(_from_torch, "GRU"), reads=("init",), starts=("published", "torch")),
    "lstm": Cell(functools.partial(_from_torch, "LSTM"), reads=("init",), starts=("published", "torch")),
}

if TYPE_CHECKING:
    CellName = str
    Start = str
else:  # the choices of the command line and of config.json come from the table
    CellName = Literal[tuple(CELLS)]
    Start = Literal[tuple(dict.fromkeys(start for cell in CELLS.values() for start in cell.starts))]


@dataclass(frozen=True)
class LayerConfig:
    """The recurrent layer."""

    cell: CellName = "goru"
    """Which recurrent unit."""
    hidden_size: int = 128
    """Units in the state."""
    mesh: Literal["fft", "tunable"] = "fft"
    """Mesh of rotations (GORU and EURNN)."""
    capacity: int | None = None
    """Layers of a tunable mesh (none: 2)."""
    complex: bool = False
    """A unitary instead of an orthogonal matrix (EURNN)."""
    reset_gate: bool = True
    """GORU's reset gate; off means r = 1."""
    update_gate: bool = True
    """GORU's update gate; off means z = 0."""
    memory: int | None = None
    """Steps that GORU's state lasts at the start (none: the start that `init` names)."""
    init: Start = "published"
    """Initialization: as the authors' final code, GORU's first public version, or torch's own (GRU, LSTM)."""
    backend: Literal["auto", "reference", "manual", "native"] = "auto"
    """Implementation of GORU and EURNN."""


def make_layer(layer: LayerConfig, input_size: int) -> nn.Module:
    """The recurrent layer of a configuration, initialized."""
    return CELLS[layer.cell].make(input_size, layer)
