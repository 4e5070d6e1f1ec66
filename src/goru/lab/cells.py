"""The recurrent cells that the laboratory trains: one table, and the settings that the cells read.

New cells, initializations and settings go here and nowhere else. Importing this module does not import torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from goru.lab.errors import LabError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Cell:
    """A kind of recurrent layer."""

    make: Callable[[int, LayerConfig], nn.Module]
    """From an input size and the settings to a layer, initialized."""
    reads: tuple[str, ...]
    """The fields of `LayerConfig` that it reads, besides the hidden size; changing any other is an error."""
    starts: tuple[str, ...] = ("published",)
    """The values of `init` that it supports."""


def _arguments(layer: LayerConfig) -> dict[str, Any]:
    """The fields that the cell reads, as keyword arguments of a layer of `goru`, but for those that we handle."""
    ours = ("init", "orthogonal", "modrelu")
    arguments = {field: getattr(layer, field) for field in CELLS[layer.cell].reads if field not in ours}
    return arguments | {"backend": None if layer.backend == "auto" else layer.backend}


def _goru(input_size: int, layer: LayerConfig) -> nn.Module:
    """A GORU, optionally with the authors' noise or an initialization from the study, or with a part replaced."""
    import goru
    from goru.lab.ablations import AblatedGORU
    from goru.layers.starts import MemoryStart, start_with_memory

    studied, H = layer.init in STUDIED, layer.hidden_size
    if studied and layer.memory is None:
        raise ValueError(f"init {layer.init} needs a memory, a number of steps")
    if layer.init == "noise" and (layer.memory is not None or not layer.update_gate):
        raise ValueError("init noise needs the update gate and excludes a memory")
    start = "published" if studied or layer.init == "noise" else layer.init
    made = goru.GORU(input_size, H, init=start, **_arguments(layer))
    if layer.init == "noise":
        bias = made.get_parameter("bias_l0").data  # r, z, candidate; r only if there is a reset gate
        bound = math.sqrt(3 / H)  # Glorot's for a vector of H
        bias[-2 * H : -H].uniform_(-bound, bound)
    if studied:
        how, bias_over = STUDIED[layer.init]
        parameters = {name.removesuffix("_l0"): parameter.data for name, parameter in made.named_parameters()}
        start_with_memory(made.unit, parameters, cast(int, layer.memory), MemoryStart(**how))
        if bias_over is not None:
            made.get_buffer("memory_l0").fill_(bias_over)
    if layer.orthogonal and layer.modrelu:
        return made
    if not (layer.reset_gate and layer.update_gate):
        raise ValueError("no-orthogonal and no-modrelu need both gates")
    return AblatedGORU(made, orthogonal=layer.orthogonal, modrelu=layer.modrelu)


AUTHORS_EPSILON = 0.01
"""What the authors' EURNN adds to |a| in modReLU; it acts like a bias."""


def _eurnn(input_size: int, layer: LayerConfig) -> nn.Module:
    """An EURNN, optionally with the authors' epsilon as the initial bias."""
    import goru

    made = goru.EURNN(input_size, layer.hidden_size, **_arguments(layer))
    if layer.init == "epsilon":
        made.get_parameter("bias_l0").data.fill_(AUTHORS_EPSILON)
    return made


def _gated(name: str, input_size: int, layer: LayerConfig) -> nn.Module:
    """A GRU or LSTM, with TensorFlow 1's initial values unless `init` is torch."""
    import goru
    from goru.lab.networks import initialize_as_tensorflow, initialize_chrono

    if (layer.memory is None) == (layer.init == "chrono"):
        raise ValueError("a GRU or LSTM needs init chrono and a memory, a number of steps, together or not at all")
    made = getattr(goru, name)(input_size, layer.hidden_size)
    if layer.init != "torch":
        initialize_as_tensorflow(made)
    if layer.memory is not None:
        initialize_chrono(made, layer.memory)
    return made


_SMALL: dict[str, Any] = {"candidate_input": (0.01, 0.01), "reset_input": (0.01, 0.01), "update_input": (0.01, 0.01)}
_SAME: dict[str, Any] = {"candidate_input": (0.3, 0.3), "reset_input": (0.1, 0.1), "update_input": (0.1, 0.1)}
_SAME |= {"gate_state": (0.03, 0.03)}

STUDIED: dict[str, tuple[dict[str, Any], float | None]] = {
    "open": ({"open_share": 1.0, **_SMALL, "gate_state": (0.01, 0.01)}, None),
    "open-wide": ({"open_share": 1.0}, None),
    "open-ln32": ({"open_share": 1.0, "margin": 32.0, **_SMALL, "gate_state": (0.01, 0.01)}, 1.0),
    "halves-same": ({"open_share": 0.5, **_SAME}, None),
    "quarters-same": ({**_SAME}, None),
    "halves": ({"open_share": 0.5}, None),
    "quarters": ({}, None),
    "quarters-spread": ({"spread": True}, None),
    "quarters-fixed": ({}, math.inf),
    "quarters-plain": ({}, 1.0),
}
"""The initializations of the study: the changes to `MemoryStart`, and the steps that b_h is spread over (None: the
memory; infinity: b_h stays 0)."""

CELLS: dict[str, Cell] = {
    "goru": Cell(
        _goru,
        reads=("mesh", "capacity", "reset_gate", "update_gate", "orthogonal", "modrelu", "memory", "init", "backend"),
        starts=("published", "june2017", "noise", *STUDIED),
    ),
    "eurnn": Cell(_eurnn, reads=("mesh", "capacity", "complex", "init", "backend"), starts=("published", "epsilon")),
    "gru": Cell(functools.partial(_gated, "GRU"), reads=("memory", "init"), starts=("published", "torch", "chrono")),
    "lstm": Cell(functools.partial(_gated, "LSTM"), reads=("memory", "init"), starts=("published", "torch", "chrono")),
}

BACKENDS = ("auto", "reference", "manual", "native", "triton")
"""The names that `goru.kernels.backends`, which imports torch, knows; a test compares them."""

if TYPE_CHECKING:
    CellName = str
    Start = str
    BackendName = str
else:  # the table defines the choices of the command line and of config.json
    CellName = Literal[tuple(CELLS)]
    Start = Literal[tuple(dict.fromkeys(start for cell in CELLS.values() for start in cell.starts))]
    BackendName = Literal[BACKENDS]


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
    """Layers of a tunable mesh (None: 2)."""
    complex: bool = False
    """A unitary instead of an orthogonal matrix (EURNN)."""
    reset_gate: bool = True
    """GORU's reset gate; without it r = 1."""
    update_gate: bool = True
    """GORU's update gate; without it z = 0."""
    orthogonal: bool = True
    """Whether GORU's U is a rotation, rather than a free matrix that starts as one."""
    modrelu: bool = True
    """Whether GORU's candidate uses modReLU, rather than tanh."""
    memory: int | None = None
    """How many steps a state lasts when training begins (GORU; GRU and LSTM with `init` chrono)."""
    init: Start = "published"
    """Initialization: published, june2017 or noise (GORU; noise: the authors' noise in the update gate's bias), epsilon
    (EURNN: the authors' epsilon as bias), torch or chrono (GRU, LSTM), or one of the study `starts` (GORU)."""
    backend: BackendName = "auto"
    """Implementation of GORU and EURNN (triton: GORU on NVIDIA devices)."""


def make_layer(layer: LayerConfig, input_size: int) -> nn.Module:
    """The recurrent layer of a configuration, initialized.

    A setting that no layer can have is a LabError, in terms of the options of `goru run`.
    """
    reads = CELLS[layer.cell].reads
    if layer.hidden_size < 1:
        raise LabError(f"--hidden-size should be at least 1; got {layer.hidden_size}.")
    if layer.init not in CELLS[layer.cell].starts:
        owners = " and ".join(name.upper() for name, cell in CELLS.items() if layer.init in cell.starts)
        raise LabError(f"--init {layer.init} is an initialization of {owners}, not of {layer.cell.upper()}: remove it.")
    if "memory" in reads and layer.memory is not None and layer.memory < 1:
        raise LabError(f"--memory should be at least 1; got {layer.memory}.")
    if "capacity" in reads and layer.capacity is not None:
        if layer.mesh != "tunable":
            why = f"the {layer.mesh} mesh always has ceil(log2 H) layers"
            raise LabError(f"--capacity needs --mesh tunable; {why} (--capacity None).")
        if not 1 <= layer.capacity <= layer.hidden_size:
            units = f"{layer.hidden_size}, the number of units"
            raise LabError(f"--capacity should be from 1 to {units}; got {layer.capacity}.")
    return CELLS[layer.cell].make(input_size, layer)
