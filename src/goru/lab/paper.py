"""The paper's experiments as data: settings, models, sizes, claims, and what was decided where it is silent.

Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljacic, Bengio:
Gated Orthogonal Recurrent Units: On Learning to Forget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from goru.lab.config import LayerConfig, OptimizerConfig, RunConfig, override
from goru.lab.errors import UsageError, nearest
from goru.lab.tasks import TASKS


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper."""

    name: str
    title: str
    shown_in: str
    """Where the paper shows it."""
    summary: str
    paper_says: str
    settings: RunConfig
    """The paper's settings; the model is filled in."""
    models: dict[str, LayerConfig]
    variants: dict[str, dict[str, Any]]
    """Settings worth running, as changes of the paper's; `goru reproduce` runs all of them."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """More named settings, run on request (`--variants`)."""
    quick: dict[str, Any] = field(default_factory=dict)
    """Changes that make the small version."""
    quick_models: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    step_seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of a training step with one thread, measured by `goru bench` on two shared cores (AVX-512)."""
    log_loss: bool = False
    """Whether the paper draws the loss on a logarithmic scale."""

    def config(self, model: str, variant: str = "paper", seed: int = 0) -> RunConfig:
        """The run of a model; `variant` is `quick`, one of `variants` or `options`, or `quick-` and one."""
        if model not in self.models:
            raise UsageError(nearest(f"model of {self.name}", model, self.models))
        quick = variant == "quick" or variant.startswith("quick-")
        setting = (variant.removeprefix("quick").removeprefix("-") or "paper") if quick else variant
        known = self.variants | self.options
        if setting not in known:
            raise UsageError(nearest(f"variant of {self.name}", setting, ["quick", *known]))
        config = override(self.settings, self.quick) if quick else self.settings
        config = override(config, known[setting])
        return dataclasses.replace(config, variant=variant, model=model, seed=seed, layer=self.models[model])


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by a rule fixed before the runs."""

    name: str
    text: str
    experiment: str


SOLVED = 0.1
"""Solved: final test loss below this share of the baseline."""
AT_BASELINE = 0.9
"""At the baseline: final test loss above this share of it."""

_EURNN = LayerConfig(cell="eurnn", hidden_size=512, mesh="tunable", capacity=2)

SYNTHETIC_MODELS = {
    "goru": LayerConfig(cell="goru", hidden_size=128),
    "goru-june2017": LayerConfig(cell="goru", hidden_size=128, mesh="tunable", capacity=2, init="june2017"),
    "eurnn-real": _EURNN,
    "eurnn-complex": dataclasses.replace(_EURNN, complex=True),
    "gru": LayerConfig(cell="gru", hidden_size=100),
    "lstm": LayerConfig(cell="lstm", hidden_size=90),
}
"""Hidden sizes of the paper's three synthetic tasks."""

MODEL_TITLES = {
    "goru": "GORU",
    "goru-june2017": "GORU (June 2017 start)",
    "eurnn-real": "EURNN (real)",
    "eurnn-complex": "EURNN (complex)",
    "gru": "GRU",
    "lstm": "LSTM",
}

_MAIN_MODELS = ("goru", "eurnn-real", "eurnn-complex", "gru", "lstm")

_ALL_DECISIONS = (
    "RMSProp follows TensorFlow's rule: the mean square starts at one, epsilon 1e-10 is inside the root, "
    "no momentum, no gradient clipping.",
    "The paper does not say which EURNN it ran: ours is run real and complex, tunable mesh with capacity 2.",
    "GRU and LSTM start as in TensorFlow 1: Glorot over the joined [x, h] matrices, biases 0, "
    "gates of the GRU and the forget gate of the LSTM 1.",
    "The head starts uniform in +-sqrt(6 / (symbols in + outputs)), bias 0.01; "
    "symbols are fed one-hot to every model.",
    "goru-june2017 is GORU as first published: modReLU's bias starts at 2, tunable mesh with capacity 2.",
)

_EXPERIMENTS = (
    Experiment(
        name="copying",
        title="Copying memory task, T = 200",
        shown_in="Figure: copying",
        summary="Remember ten symbols over a silence of T steps.",
        paper_says="EURNN converges within hundreds of iterations; GORU solves it; "
        "GRU and LSTM stay at the baseline.",
        settings=RunConfig(
            experiment="copying",
            steps=10_000,
            batch=128,
            optimizer=OptimizerConfig(lr=0.001),
            task=TASKS["copying"](),
        ),
        models=SYNTHETIC_MODELS,
        variants={"paper": {}},
        options={"random-placement": {"task.placement": "random"}},
        quick={"task.delay": 50, "task.test_size": 256, "steps": 1000, "batch": 64, "eval_every": 50},
        quick_models=_MAIN_MODELS,
        claims=("C1", "C2"),
        decisions=(
            "The data stand at the start, as in the authors' code; `random-placement` is "
            'the variant of the text ("each instance has a different location").',
            "Loss: cross-entropy over all T + 20 steps, baseline 10 ln 8 / (T + 20). "
            "Accuracy: the ten recalled symbols only, singly and as whole sequences.",
        ),
    ),
    Experiment(
        name="denoise",
        title="Denoise task, T = 200",
        shown_in="Figure: denoise",
        summary="Pick ten symbols out of noise and say them in order.",
        paper_says="GORU and GRU solve it, both ahead of LSTM; EURNN stays at the baseline.",
        settings=RunConfig(
            experiment="denoise",
            steps=10_000,
            batch=128,
            optimizer=OptimizerConfig(lr=0.01),
            task=TASKS["denoise"](),
        ),
        models=SYNTHETIC_MODELS,
        variants={"paper": {}, "lr0.001": {"optimizer.lr": 0.001}},
        options={"recall-loss-on": {"task.loss_on": "recall"}},
        quick={"task.delay": 50, "task.test_size": 256, "steps": 1000, "batch": 64, "eval_every": 50},
        quick_models=_MAIN_MODELS,
        claims=("C3", "C4"),
        decisions=(
            "The ten places are distinct (the authors' code draws them with replacement and loses symbols) "
            "and the marker has a one-hot vector of its own (theirs is all zero).",
            "The paper's learning rate is 0.01, the code's 0.001: both are run.",
            "Loss and accuracy as in copying; `recall-loss-on` puts the loss on the last ten steps alone.",
        ),
    ),
    Experiment(
        name="parenthesis",
        title="Parenthesis task, length 200",
        shown_in="Figures: paren, bar (gates)",
        summary="Count the open brackets of ten kinds, through noise.",
        paper_says="GORU is best in learning speed and in final loss; the update gate peaks on noise.",
        settings=RunConfig(
            experiment="parenthesis",
            steps=5_000,
            batch=128,
            optimizer=OptimizerConfig(lr=0.001),
            task=TASKS["parenthesis"](),
        ),
        models=SYNTHETIC_MODELS,
        variants={"paper": {}},
        options={"adam-rule": {"optimizer.rule": "adam"}},
        quick={"task.length": 60, "task.test_size": 256, "steps": 600, "batch": 64, "eval_every": 50},
        quick_models=_MAIN_MODELS,
        claims=("C5", "C6"),
        decisions=(
            "20 bracket and 10 noise symbols, uniformly at random; counts stay between 0 and 10.",
            "Loss: mean cross-entropy over steps and kinds; baseline: entropy of the pooled labels.",
            "The gate figure shows the update gate, as the text says (the caption prints r).",
        ),
        log_loss=True,
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _EXPERIMENTS}

CLAIMS = {
    name: Claim(name, text, experiment)
    for name, experiment, text in (
        (
            "C1",
            "copying",
            "GORU is the only gated unit that solves copying at T = 200; GRU and LSTM stay at the baseline.",
        ),
        ("C2", "copying", "EURNN solves copying within hundreds of iterations."),
        ("C3", "denoise", "EURNN stays at the baseline on denoise."),
        ("C4", "denoise", "GORU and GRU solve denoise, ahead of LSTM in speed and final loss."),
        ("C5", "parenthesis", "GORU is best on parenthesis in speed and final loss."),
        ("C6", "parenthesis", "The update gate peaks on noise input, in GORU and GRU alike."),
        ("C7", "shortest_path", "GORU has the best mean on the algorithmic task."),
        ("C8", "babi", "GORU has the best mean over the 20 bAbI tasks (against the recomputed means)."),
        ("C9", "penn_treebank", "On Penn Treebank GORU is close to LSTM and GRU and well ahead of EURNN."),
        ("C10", "penn_treebank", "Removing either gate hurts on Penn Treebank."),
        ("C11", "speech", "GORU has the lowest error on speech, EURNN second, at equal hidden size."),
    )
}


def experiment(name: str) -> Experiment:
    """An experiment by its name; a name that is not one is a UsageError with the nearest."""
    if name not in EXPERIMENTS:
        raise UsageError(nearest("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]


def decisions(name: str) -> tuple[str, ...]:
    """What was decided for an experiment, its own first."""
    return EXPERIMENTS[name].decisions + _ALL_DECISIONS


def title(model: str) -> str:
    """How a model is called in figures and tables."""
    return MODEL_TITLES.get(model, model)


def grid(
    names: Sequence[str] = (),
    *,
    models: Sequence[str] = (),
    variants: Sequence[str] = (),
    seeds: int = 1,
    quick: bool = False,
) -> list[RunConfig]:
    """The runs of a reproduction, seed by seed so that a first complete answer comes early."""
    chosen = [experiment(name) for name in names or EXPERIMENTS]
    runs = []
    for seed in range(seeds):
        for one in chosen:
            for setting in variants or one.variants:
                if quick and not variants and setting != "paper":
                    continue
                variant = setting if not quick else "quick" if setting == "paper" else f"quick-{setting}"
                chosen_models = models or (one.quick_models if quick else one.models)
                runs += [one.config(model, variant, seed) for model in chosen_models]
    return runs
