"""The paper's experiments as data: settings, models, sizes, claims, and what was decided where it is silent.

Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljacic, Bengio:
Gated Orthogonal Recurrent Units: On Learning to Forget.
"""

from __future__ import annotations

import contextlib
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
    """Processor seconds of a training step with one thread, by `goru bench` on a shared machine (AVX-512).

    Of an experiment in parts: its first part's.
    """
    steps_per_epoch: int = 0
    """Steps of one pass over the training set, where there is one."""
    log_loss: bool = False
    """Whether the paper draws the loss on a logarithmic scale."""
    in_parts: bool = False
    """Whether the variants are parts (folds, tasks) of one result."""
    generated: dict[str, Any] = field(default_factory=dict)
    """Changes that put generated data in the place of files; empty where all data are generated anyway."""
    without_files: tuple[str, ...] = ("paper",)
    """The variants that can be run on generated data."""
    quick_variants: tuple[str, ...] = ("paper",)
    """The variants of the small version."""

    @property
    def seconds(self) -> float:
        """What all models and variants take with one seed, if no run stops early."""
        steps = self.settings.steps or self.settings.epochs * self.steps_per_epoch
        return steps * len(self.variants) * sum(self.step_seconds.values())

    @property
    def first_variant(self) -> str:
        return next(iter(self.variants))

    def variant_of(self, config: RunConfig) -> str | None:
        """The name of the variant that a configuration is, whatever it calls itself."""
        kinds = ("", "generated", "quick") if self.generated else ("", "quick")
        for kind in kinds:
            for setting in self.variants | self.options:
                with contextlib.suppress(UsageError):  # not every setting has generated data
                    known = self.config(config.model, f"{kind}-{setting}" if kind else setting, config.seed)
                    if known == dataclasses.replace(config, variant=known.variant):
                        return known.variant
        return None

    def config(self, model: str, variant: str = "paper", seed: int = 0) -> RunConfig:
        """The run of a model; `variant` is `quick`, one of `variants` or `options`, or `quick-` and one."""
        if model not in self.models:
            raise UsageError(nearest(f"model of {self.name}", model, self.models))
        kind, setting = split_variant(variant)
        if setting == "paper":
            setting = self.first_variant
        known = self.variants | self.options
        if setting not in known:
            raise UsageError(nearest(f"variant of {self.name}", setting, ["quick", *known]))
        if kind == "generated" and not self.generated:
            raise UsageError(f"{self.name} needs no files: leave `generated` away.")
        name = "-".join(part for part in (kind, "" if kind and setting == "paper" else setting) if part)
        config = dataclasses.replace(self.settings, variant=name, model=model, seed=seed, layer=self.models[model])
        changes = {"": {}, "generated": self.generated, "quick": self.generated | self.quick}[kind]
        try:
            return override(override(config, changes), known[setting])
        except ValueError as error:
            raise UsageError(f"{self.name}, variant {variant}: {error}.") from None


def split_variant(variant: str) -> tuple[str, str]:
    """The kind of a variant (quick, generated or the full one) and its setting.

    >>> split_variant("quick-task05"), split_variant("generated"), split_variant("fold03")
    (('quick', 'task05'), ('generated', 'paper'), ('', 'fold03'))
    """
    for kind in ("quick", "generated"):
        if variant == kind or variant.startswith(f"{kind}-"):
            return kind, variant.removeprefix(kind).removeprefix("-") or "paper"
    return "", variant


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
    "goru-no-reset": "GORU without reset gate",
    "goru-no-update": "GORU without update gate",
}

_MAIN_MODELS = ("goru", "eurnn-real", "eurnn-complex", "gru", "lstm")

_EQUAL_MODELS = {name: dataclasses.replace(SYNTHETIC_MODELS[name], hidden_size=128) for name in _MAIN_MODELS}
"""All with the same hidden size, as in the experiments on data but the Penn Treebank's."""

_LANGUAGE_MODELS = {
    "goru": LayerConfig(cell="goru", hidden_size=512),
    "goru-no-reset": LayerConfig(cell="goru", hidden_size=512, reset_gate=False),
    "goru-no-update": LayerConfig(cell="goru", hidden_size=512, update_gate=False),
    "eurnn-real": dataclasses.replace(_EURNN, hidden_size=2048),
    "eurnn-complex": dataclasses.replace(_EURNN, hidden_size=2048, complex=True),
    "gru": LayerConfig(cell="gru", hidden_size=415),
    "lstm": LayerConfig(cell="lstm", hidden_size=350),
}

_ALL_DECISIONS = (
    "RMSProp follows TensorFlow's rule: the mean square starts at one, epsilon 1e-10 is inside the root, "
    "no momentum, no gradient clipping.",
    "The paper does not say which EURNN it ran: ours is run real and complex, tunable mesh with capacity 2.",
    "GRU and LSTM start as in TensorFlow 1: Glorot over the joined [x, h] matrices, biases 0, "
    "gates of the GRU and the forget gate of the LSTM 1.",
    "Where symbols are tagged step by step (all but babi, penn_treebank and speech), the head starts uniform "
    "in +-sqrt(6 / (symbols in + outputs)), bias 0.01; elsewhere Glorot-uniform, bias 0.",
    "goru-june2017 is GORU as first published: modReLU's bias starts at 2, tunable mesh with capacity 2.",
)

_EXPERIMENTS = (
    Experiment(
        name="copying",
        title="Copying memory task",
        shown_in="Figure: copying",
        summary="Remember ten symbols over a silence of T steps.",
        paper_says="EURNN converges within hundreds of iterations; GORU solves it; GRU and LSTM stay at the baseline.",
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
        quick={
            "task.delay": 60,
            "task.test_size": 256,
            "steps": 1200,
            "batch": 32,
            "eval_every": 50,
            "optimizer.lr": 0.002,
        },
        quick_models=_MAIN_MODELS,
        step_seconds={
            "goru": 0.189,
            "goru-june2017": 0.201,
            "eurnn-real": 0.201,
            "eurnn-complex": 0.337,
            "gru": 0.306,
            "lstm": 0.25,
        },
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
        title="Denoise task",
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
        quick={
            "task.delay": 60,
            "task.recall": 5,
            "task.test_size": 256,
            "steps": 1400,
            "batch": 32,
            "eval_every": 50,
        },
        quick_models=_MAIN_MODELS,
        step_seconds={
            "goru": 0.191,
            "goru-june2017": 0.21,
            "eurnn-real": 0.195,
            "eurnn-complex": 0.334,
            "gru": 0.278,
            "lstm": 0.251,
        },
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
        title="Parenthesis task",
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
        quick={"task.length": 60, "task.test_size": 256, "steps": 800, "batch": 32, "eval_every": 50},
        quick_models=_MAIN_MODELS,
        step_seconds={
            "goru": 0.246,
            "goru-june2017": 0.237,
            "eurnn-real": 0.361,
            "eurnn-complex": 0.432,
            "gru": 0.256,
            "lstm": 0.275,
        },
        claims=("C5", "C6"),
        decisions=(
            "20 bracket and 10 noise symbols, uniformly at random; counts stay between 0 and 10.",
            "Loss: mean cross-entropy over steps and kinds; baseline: entropy of the pooled labels.",
            "The gate figure shows the update gate, as the text says (the caption prints r).",
        ),
        log_loss=True,
    ),
    Experiment(
        name="shortest_path",
        title="Algorithmic task: shortest path",
        shown_in="Table: algo",
        summary="Read a graph of nine nodes edge by edge, then say the shortest path between two of them.",
        paper_says="Accuracy: GORU 75.0 +- 5.3, GRU 74.1 +- 4.8, EURNN 66.3 +- 3.2, LSTM 60.9 +- 4.7.",
        settings=RunConfig(
            experiment="shortest_path",
            steps=0,
            epochs=200,
            batch=50,
            eval_every=0,
            patience=40,
            optimizer=OptimizerConfig(lr=0.001),
            task=TASKS["shortest_path"](),
        ),
        models=_EQUAL_MODELS,
        variants={f"fold{k:02}": {"task.fold": k} for k in range(1, 11)},
        in_parts=True,
        generated={"task.data": "generated"},
        without_files=tuple(f"fold{k:02}" for k in range(1, 11)),
        quick={"epochs": 60, "patience": 0},
        quick_models=_MAIN_MODELS,
        quick_variants=("fold01",),
        step_seconds={"goru": 0.035, "eurnn-real": 0.01, "eurnn-complex": 0.014, "gru": 0.055, "lstm": 0.042},
        steps_per_epoch=19,
        claims=("C7",),
        decisions=(
            "Tokens are fed one-hot to every model; the L + 1 outputs (path, end) are read from step 76 on, "
            "an `ans` token goes in for each node of the path.",
            "At most 200 epochs of 19 steps, stopped after 40 without a lower validation loss; the test "
            "scores are those of the best epoch. Mean and deviation over the ten folds.",
            "Both accuracies are given: single symbols (most likely the paper's) and whole sequences. "
            "Reference levels: source, some node, target, end without reading the graph, and the same with a "
            "neighbour of the source in the middle.",
        ),
    ),
    Experiment(
        name="babi",
        title="Episodic question answering, 20 tasks",
        shown_in="Table: babi",
        summary="Read a story, answer a question about it with one word.",
        paper_says="Mean accuracy: GORU 60.4, GRU 58.2 (its column averages 60.2), LSTM 56.0, EURNN 52.9.",
        settings=RunConfig(
            experiment="babi",
            steps=0,
            epochs=100,
            batch=32,
            eval_every=0,
            patience=20,
            optimizer=OptimizerConfig(rule="adam", lr=0.001),
            task=TASKS["babi"](),
        ),
        models=_EQUAL_MODELS,
        variants={f"task{k:02}": {"task.number": k} for k in range(1, 21)},
        in_parts=True,
        generated={"task.data": "generated"},
        without_files=("task01", "task05", "task06", "task17"),
        quick={"epochs": 30, "patience": 0},
        quick_models=_MAIN_MODELS,
        quick_variants=("task01", "task05"),
        step_seconds={"goru": 0.023, "eurnn-real": 0.017, "eurnn-complex": 0.019, "gru": 0.038, "lstm": 0.03},
        steps_per_epoch=29,
        claims=("C8",),
        decisions=(
            "The `en` files with 1000 training questions a task; the last 100 are for validation. At most "
            "100 epochs, stopped after 20 without a lower validation loss; the best epoch is tested.",
            "The paper names no sizes here: 128 units in all three places, word vectors of 50, batch 32, "
            "Adam with learning rate 0.001, for every model.",
            "The last outputs of the RNNs over statements and question are joined into a single input of the "
            "third RNN, as the paper words it; words and full stops are symbols, an answer is one class.",
        ),
    ),
    Experiment(
        name="penn_treebank",
        title="Next characters of a text",
        shown_in="Table: ptb",
        summary="Predict a text character by character, the state carried through.",
        paper_says="Bits per character: LSTM 1.596, GRU 1.601, GORU 1.623, EURNN 1.715; "
        "GORU without reset gate 1.722, without update gate 1.754.",
        settings=RunConfig(
            experiment="penn_treebank",
            steps=0,
            epochs=20,
            batch=32,
            log_every=100,
            eval_every=0,
            patience=3,
            optimizer=OptimizerConfig(lr=0.001),
            task=TASKS["penn_treebank"](),
        ),
        models=_LANGUAGE_MODELS,
        variants={"paper": {}},
        generated={"task.data": "generated"},
        quick={"task.characters": 200_000, "epochs": 5, "layer.hidden_size": 64, "log_every": 20},
        quick_models=tuple(_LANGUAGE_MODELS),
        step_seconds={
            "goru": 0.157,
            "goru-no-reset": 0.101,
            "goru-no-update": 0.105,
            "eurnn-real": 0.063,
            "eurnn-complex": 0.089,
            "gru": 0.152,
            "lstm": 0.091,
        },
        steps_per_epoch=3135,
        claims=("C9", "C10"),
        decisions=(
            "The learning rate stays 0.001 (decay 0.9) for at most 20 epochs; a run stops after 3 epochs "
            "without a lower validation loss, and the best epoch is tested: one rule for all models.",
            "32 lanes of the training text, 50 steps a segment, the state carried from one to the next and "
            "zero where an epoch begins. Validation and test text are read in one pass from a zero state.",
            "Characters are fed one-hot; the head starts Glorot-uniform.",
        ),
    ),
    Experiment(
        name="speech",
        title="Next frames of a speech spectrum",
        shown_in="Table: timit",
        summary="Predict the log-magnitude spectrum of the next 16 ms.",
        paper_says="Mean squared error on TIMIT's test set: GORU 47.6, EURNN 51.9, GRU 57.3, LSTM 57.5.",
        settings=RunConfig(
            experiment="speech",
            steps=0,
            epochs=40,
            batch=32,
            eval_every=0,
            patience=5,
            optimizer=OptimizerConfig(rule="adam", lr=0.001),
            task=TASKS["speech"](),
        ),
        models=_EQUAL_MODELS,
        variants={"paper": {}},
        options={"timit": {"task.data": "timit"}},
        generated={"task.data": "generated"},
        quick={"task.utterances": 160, "epochs": 40, "patience": 0},
        quick_models=_MAIN_MODELS,
        step_seconds={"goru": 0.081, "eurnn-real": 0.037, "eurnn-complex": 0.054, "gru": 0.138, "lstm": 0.114},
        steps_per_epoch=75,
        claims=("C11",),
        decisions=(
            "The open corpus stands in for TIMIT (variant `timit` reads a user's own copy), so errors are "
            "comparable between models, not with the paper's.",
            "A frame is ln(max(|STFT|, 1e-4)) of samples in [-1, 1): Hann window of 256, hop 128, 129 bins. "
            "The network sees it minus each bin's mean, divided by one overall deviation (training set).",
            "The error is the mean square over frames and bins of the natural log-magnitude itself, padding "
            "left out. At most 40 epochs, stopped after 5 without a lower validation error.",
        ),
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
    generated: bool = False,
) -> list[RunConfig]:
    """The runs of a reproduction, seed by seed so that a first complete answer comes early."""
    chosen = [experiment(name) for name in names or EXPERIMENTS]
    runs = []
    for seed in range(seeds):
        for one in chosen:
            kind = "quick" if quick else "generated" if generated and one.generated else ""
            usual = {"quick": one.quick_variants, "generated": one.without_files, "": tuple(one.variants)}[kind]
            for setting in variants or usual:
                variant = "-".join(part for part in (kind, "" if kind and setting == "paper" else setting) if part)
                chosen_models = models or (one.quick_models if quick else tuple(one.models))
                runs += [one.config(model, variant, seed) for model in chosen_models]
    return runs
