"""The models: their titles and colors, and their sizes in the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

from goru.lab.training.config import LayerConfig


@dataclass(frozen=True)
class Model:
    """A model as tables and figures show it."""

    name: str
    """Its name on the command line and in run directories."""
    title: str
    row: str = ""
    """The row of the paper's tables that it is compared with: both EURNNs with the paper's one."""
    color: str = "#8c8c8c"
    dashes: tuple[int, ...] = ()
    """Pattern of its line, if it is a variation of another model."""
    start_of: str = ""
    """The model that differs only in its initialization: claims about that one are also judged on this one."""
    ablation: bool = False
    """Whether it is an ablation or a second reading: reported in a sentence below the results, not in a column."""


_NO_RESET, _NO_UPDATE = "GORU without reset gate", "GORU without update gate"
_EPSILON = "EURNN (real), b = 0.01 at the start"

# Distinct for color-blind readers too, on light and dark pages (Okabe and Ito, the two lightest made darker). A model
# has the same color everywhere.
MODELS = {
    model.name: model
    for model in (
        Model("goru", "GORU", "GORU", "#d55e00"),
        Model("goru-june2017", "GORU (June 2017 start)", "GORU", "#bd8300", (6, 2), start_of="goru"),
        Model("goru-memory", "GORU with memory", "GORU", "#8a63d2", start_of="goru"),
        Model("eurnn-real", "EURNN (real)", "EURNN", "#3a99d1"),
        Model("eurnn-complex", "EURNN (complex)", "EURNN", "#0072b2", (5, 2)),
        Model("gru", "GRU", "GRU", "#009e73"),
        Model("lstm", "LSTM", "LSTM", "#cc79a7"),
        Model("gru-chrono", "GRU, chrono T", "GRU", "#009e73", (2, 2)),
        Model("lstm-chrono", "LSTM, chrono T", "LSTM", "#cc79a7", (2, 2)),
        Model("goru-no-reset", _NO_RESET, _NO_RESET, "#bd8300", (2, 2), ablation=True),
        Model("goru-no-update", _NO_UPDATE, _NO_UPDATE, "#8c8c8c", (6, 2, 1, 2), ablation=True),
        Model("goru-noise", "GORU with noise in b_z", "GORU", "#d55e00", (1, 2), start_of="goru", ablation=True),
        Model("eurnn-epsilon", _EPSILON, "EURNN", "#3a99d1", (1, 2), start_of="eurnn-real", ablation=True),
        Model("goru-free", "GORU with a free matrix for U", color="#d55e00", dashes=(2, 2), ablation=True),
        Model("goru-tanh", "GORU with tanh for modReLU", color="#d55e00", dashes=(6, 2, 1, 2), ablation=True),
    )
}
"""In the order of the columns."""

EURNNS = ("eurnn-real", "eurnn-complex")
RIVALS = ("gru", "lstm", *EURNNS)
"""The models that the paper compares GORU with."""


def model(name: str) -> Model:
    """The model of a name; an unlisted one has its name as title and is drawn in gray."""
    return MODELS.get(name, Model(name, name))


def title(name: str) -> str:
    """The title of a model in figures and tables."""
    return model(name).title


WITH_MEMORY = LayerConfig(cell="goru", hidden_size=128, mesh="tunable", capacity=8, memory=200)
"""GORU with a memory, in the mesh that the layer has by default for up to 500 steps (the study `meshes` chose it)."""
WITH_LONG_MEMORY = replace(WITH_MEMORY, mesh="fft", capacity=None)
"""The same in the mesh that it has by default beyond."""

SYNTHETIC_MODELS = {
    "goru": LayerConfig(cell="goru", hidden_size=128),
    "goru-june2017": LayerConfig(cell="goru", hidden_size=128, mesh="tunable", capacity=2, init="june2017"),
    "goru-memory": WITH_MEMORY,
    "eurnn-real": LayerConfig(cell="eurnn", hidden_size=512, mesh="tunable", capacity=2),
    "eurnn-complex": LayerConfig(cell="eurnn", hidden_size=512, mesh="tunable", capacity=2, complex=True),
    "gru": LayerConfig(cell="gru", hidden_size=100),
    "lstm": LayerConfig(cell="lstm", hidden_size=90),
    "gru-chrono": LayerConfig(cell="gru", hidden_size=100, init="chrono", memory=200),
    "lstm-chrono": LayerConfig(cell="lstm", hidden_size=90, init="chrono", memory=200),
}
"""The hidden sizes of the paper's three synthetic tasks."""
WITH_EPSILON = {"eurnn-epsilon": replace(SYNTHETIC_MODELS["eurnn-real"], init="epsilon")}
"""A second reading of the real EURNN: the authors' epsilon acts like a bias of 0.01, where ours starts at 0."""
LONG_MODELS = {
    name: WITH_LONG_MEMORY if name == "goru-memory" else layer
    for name, layer in SYNTHETIC_MODELS.items()
    if name not in ("goru-june2017", "eurnn-complex")
}
"""The models of the experiments over long sequences, beyond the paper: one EURNN, and two starts of each gated unit."""
MATCHED_PARAMETERS = (
    "Sizes: the paper's, chosen there for about equal numbers of hidden-to-hidden parameters; "
    "the column says how equal these are."
)

EQUAL_MODELS = {
    name: replace(layer, hidden_size=128, memory=layer.memory and 10)
    for name, layer in SYNTHETIC_MODELS.items()
    if layer.init != "chrono"
}
"""All with the same hidden size, as in every experiment on a data set except Penn Treebank; GORU's memory was chosen by
validation in each of them; other readings keep that of the first."""
MATCHED_UNITS = "Sizes: 128 units in every model; the numbers of parameters are not equal."

MAIN_MODELS = ("goru-memory", *EURNNS, "gru", "lstm")
"""The models of the small versions: one initialization of each, for GORU the recommended one."""
