"""What `goru` exports; importing it imports torch and registers the operators."""

from . import gates
from .activation import modrelu
from .kernels.backends import use_backend
from .layers.accelerate import accelerate
from .layers.eurnn import EURNN, EURNNCell
from .layers.gated import GRU, LSTM, GRUCell, LSTMCell
from .layers.goru import GORU, GORUCell
from .layers.orthogonal import parameter_groups

__all__ = [
    "EURNN",
    "GORU",
    "GRU",
    "LSTM",
    "EURNNCell",
    "GORUCell",
    "GRUCell",
    "LSTMCell",
    "accelerate",
    "gates",
    "modrelu",
    "parameter_groups",
    "use_backend",
]
