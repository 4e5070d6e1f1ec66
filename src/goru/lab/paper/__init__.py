"""The paper's experiments, one file each: settings, models, the paper's numbers, claims and their rules.

Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljačić, Bengio:
Gated Orthogonal Recurrent Units: On Learning to Forget.
"""

from __future__ import annotations

from collections.abc import Sequence

from goru.lab.errors import UsageError, nearest
from goru.lab.paper.definition import Claim, Drawing, Experiment, Paper, Smaller, join_variant, split_variant
from goru.lab.paper.models import EQUAL_MODELS, MODELS, SYNTHETIC_MODELS, Model, model, title
from goru.lab.paper.registry import Registry
from goru.lab.training.config import RunConfig

__all__ = [
    "EQUAL_MODELS",
    "EXPERIMENTS",
    "MODELS",
    "SHARED_DECISIONS",
    "SYNTHETIC_MODELS",
    "Claim",
    "Drawing",
    "Experiment",
    "Model",
    "Paper",
    "Smaller",
    "decisions",
    "experiment",
    "grid",
    "model",
    "split_variant",
    "title",
]

EXPERIMENTS = Registry()

SHARED_DECISIONS = (
    "RMSProp follows TensorFlow's rule: the mean square starts at one, epsilon 1e-10 is inside the root, "
    "no momentum, no gradient clipping.",
    "The paper does not say which EURNN it ran: we run a real and a complex one, tunable mesh with capacity 2.",
    "modReLU adds nothing to |a|. The authors' code adds 0.001 (GORU) or 0.01 (EURNN). In GORU and the real EURNN "
    "that acts as a bias: added to it, our layers equal their cells to 1e-15.",
    "So their biases start at 0.011 (GORU) and 0.01 (real EURNN), ours at 0.01 and 0. On copying, denoise and "
    "parenthesis, `eurnn-epsilon` is the real EURNN that starts at 0.01.",
    "GRU and LSTM start as in TensorFlow 1: Glorot over the joined [x, h] matrices; biases are 0, except 1 for the "
    "GRU's gates and the LSTM's forget gate.",
    "Where symbols are tagged step by step (all but babi, penn_treebank, speech, adding and psmnist), the head starts "
    "uniform in +-sqrt(6 / (symbols in + outputs)), bias 0.01; elsewhere Glorot-uniform, bias 0.",
    "goru-june2017 is GORU as first published: modReLU's bias starts at 2, tunable mesh with capacity 2.",
)
"""Our decisions for all experiments."""


def experiment(name: str) -> Experiment:
    """An experiment by its name; another name is a UsageError that suggests the nearest."""
    if name not in EXPERIMENTS:
        raise UsageError(nearest("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


def decisions(name: str) -> tuple[str, ...]:
    """Our decisions for an experiment, its own first."""
    return experiment(name).decisions + SHARED_DECISIONS


def grid(
    names: Sequence[str] = (),
    *,
    models: Sequence[str] = (),
    variants: Sequence[str] = (),
    seeds: int = 1,
    quick: bool = False,
    generated: bool = False,
) -> list[RunConfig]:
    """The runs of a reproduction, ordered by seed so that a first complete set comes early.

    Without names: the experiments of the paper.
    """
    chosen = [experiment(name) for name in names] or [one for one in EXPERIMENTS.values() if one.paper]
    runs = []
    for seed in range(seeds):
        for one in chosen:
            kind = "quick" if quick else "generated" if generated and one.generated else ""
            version = one.version(kind)
            chosen_models = models or version.models
            for name in variants or version.variants:
                plain = name in ("paper", kind)  # for an experiment in parts, that stands for all of them
                settings = version.variants if plain and one.parts else ["paper" if plain else name]
                for setting in settings:
                    runs += [one.config(model, join_variant(kind, setting), seed) for model in chosen_models]
    return list(dict.fromkeys(runs))
