"""What `goru` exports; importing it imports torch and registers the operators."""

from . import gates
from .activation import modrelu
from .kernels.backends import use_backend
from .layers.eurnn import EURNN, EURNNCell
from .layers.goru import GORU, GORUCell
from .layers.parameter_groups import parameter_groups

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
