"""Initializations of a GORU: the authors' two public versions by name, or a number of steps to remember.

The mathematics is in docs/mathematics.md, "How long a state lasts".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..rotations import Mesh
from .unit import Parameters

if TYPE_CHECKING:
    from .goru import GORUUnit

Start = Callable[["GORUUnit", Parameters], None]


def _published(b_h: float) -> Start:
    """Small weights, an open reset gate, random angles, and this bias of modReLU."""

    def start(unit: GORUUnit, parameters: Parameters) -> None:
        H = unit.mesh.size
        nn.init.uniform_(parameters["weight_ih"], -0.01, 0.01)
        if unit.gates:
            nn.init.uniform_(parameters["weight_hh"], -0.01, 0.01)
        if unit.bias:
            bias = parameters["bias"].zero_()
            if unit.reset_gate:
                bias[:H] = 2.0
            bias[-H:] = b_h
        if unit.mesh.num_angles:
            nn.init.uniform_(parameters["angles"], -math.pi, math.pi)

    return start


# By the name that `init` takes. The June 2017 version goes with mesh="tunable", capacity=2.
STARTS: dict[str, Start] = {"published": _published(0.01), "june2017": _published(2.0)}
DEFAULT_START = "published"

USUAL_INPUTS = 10
"""The bounds of the input weights are for one-hot inputs of this many symbols; wider inputs get smaller bounds."""

LARGEST_SUM = 200
"""A unit may add up a constant input over the whole memory, and a resting one always does: its input weight times the
memory stays below this."""


@dataclass(frozen=True)
class MemoryStart:
    """An initialization with memory; the study `starts` of the laboratory chose the defaults.

    Weights are uniform; a pair has their bounds for rotating and for resting units.
    """

    open_share: float = 0.75
    """Share of the units that rotate with open gates; the others rest near the identity."""
    margin: float = 2.0
    """The biases of the gates are ln(margin * memory)."""
    spread: bool = False
    """Whether the rotating units last for different times, up to `memory`, rather than all for `memory` steps."""
    candidate_input: tuple[float, float] = (0.1, 1.0)
    reset_input: tuple[float, float] = (0.03, 0.1)
    update_input: tuple[float, float] = (0.03, 3.0)
    gate_state: tuple[float, float] = (0.01, 0.03)


CHOSEN = MemoryStart()

MEMORY_CAPACITY = 8
"""Layers of the tunable mesh of a layer with memory, unless the user chooses; the study `meshes` chose it."""
LONGEST_TUNABLE = 500
"""Steps of memory up to which that mesh is the default; docs/mathematics.md has the runs beyond."""


def start_with_memory(unit: GORUUnit, parameters: Parameters, memory: float, how: MemoryStart = CHOSEN) -> None:
    """Initialize so that a state lasts for about `memory` steps.

    The first units *rotate*: both gates let everything through, and U turns the state at random. They carry
    their input along, like an EURNN. The others *rest*: there U is close to the identity, so the state hardly changes
    whatever the update gate does, and the gate sees the input from the beginning.
    """
    H = unit.mesh.size
    rotating = torch.arange(H, device="cpu") < math.ceil(how.open_share * H)
    b = torch.full((H,), math.log(how.margin * memory), device="cpu")
    if how.spread:
        b = torch.log(how.margin * torch.empty(H, device="cpu").uniform_(1, memory))
    wide = math.sqrt(USUAL_INPUTS / max(USUAL_INPUTS, parameters["weight_ih"].shape[1]))
    rows = [*["reset"] * unit.reset_gate, *["update"] * unit.update_gate, "candidate"]
    for k, row in enumerate(rows):
        largest = LARGEST_SUM / memory if row == "candidate" else math.inf
        bounds = [wide * min(bound, largest) for bound in getattr(how, f"{row}_input")]
        _uniform(parameters["weight_ih"][k * H : (k + 1) * H], rotating, *bounds)
        if row != "candidate":
            _uniform(parameters["weight_hh"][k * H : (k + 1) * H], rotating, *how.gate_state)
    bias = parameters["bias"].zero_()
    if unit.reset_gate:
        bias[:H] = b.to(bias)
    if unit.update_gate:
        bias[-2 * H : -H] = torch.where(rotating, -b, 0.0).to(bias)
    if unit.mesh.num_angles:
        parameters["angles"].copy_(_angles(unit.mesh, rotating, memory))


def _uniform(weight: Tensor, rotating: Tensor, bound: float, resting_bound: float) -> None:
    weight.uniform_(-1, 1).mul_(torch.where(rotating, bound, resting_bound).to(weight)[:, None])


def _angles(mesh: Mesh, rotating: Tensor, memory: float) -> Tensor:
    """Uniform among rotating units, small among resting ones, 0 between the two kinds, so that U is two blocks."""
    p, q = torch.tensor([pair for layer in mesh.pairs for pair in layer], device="cpu").T
    # The eigenvalues of U turn by sqrt(layers) times this; the rest's decay over `memory` steps stays below 1/e.
    small = min(1.0, math.sqrt(4 / (mesh.num_layers * memory)))
    drawn = torch.where(
        rotating[p],
        torch.empty(len(p), device="cpu", dtype=torch.float64).uniform_(-math.pi, math.pi),
        small * torch.randn(len(p), device="cpu", dtype=torch.float64),
    )
    return torch.where(rotating[p] == rotating[q], drawn, 0.0)
