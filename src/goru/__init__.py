"""Gated orthogonal recurrent units for PyTorch: `goru.GORU` takes the place of `torch.nn.GRU`."""

from importlib.metadata import version as _version

from . import gates
from .activation import modrelu
from .kernels.backends import use_backend
from .layers.eurnn import EURNN, EURNNCell
from .layers.goru import GORU, GORUCell
from .layers.parameter_groups import parameter_groups

__version__ = _version("goru")

__all__ = [
    "EURNN",
    "GORU",
    "EURNNCell",
    "GORUCell",
    "gates",
    "modrelu",
    "parameter_groups",
    "use_backend",
]
