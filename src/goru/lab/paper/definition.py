"""Experiments and claims."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from goru.lab.errors import UsageError, nearest
from goru.lab.paper.columns import Column, Measure, References, Table, against_baseline, loss_share
from goru.lab.paper.findings import who_leads, who_solves
from goru.lab.paper.outcomes import Group
from goru.lab.paper.rules import Rule
from goru.lab.training.config import LayerConfig, RunConfig, as_on, differences, flat, override, variant_name

Changes = Mapping[str, Any]
"""Fields of a configuration by their dotted paths, such as {"optimizer.lr": 0.01}, and their values."""


_NOT_IN_WORDS = {"experiment", "variant", "model", "seed", "log_every", "eval_every", "task.test_size"}
"""Fields that do not tell the reader of a title what was trained."""
_WORDS = {
    "steps": "{:,} iterations",
    "epochs": "{} epochs",
    "batch": "batch {}",
    "layer.hidden_size": "{} units",
    "optimizer.lr": "learning rate {}",
}
"""How a title names a changed field; others are called by their name."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged by a rule fixed before the runs."""

    name: str
    text: str
    rule: Rule
    about: str = "goru"
    """The model that it is about: it is also judged on that one with other initializations; empty: on none."""


@dataclass(frozen=True)
class Paper:
    """Where the paper shows an experiment, and what it says about it."""

    shown_in: str
    says: str
    differs: Changes = field(default_factory=dict)
    """Settings of the paper that no variant here has."""
    differs_title: str = ""
    """The same in words, for a heading: what the variants have instead."""
    differs_note: str = ""
    """A sentence on what they mean for the comparison."""


@dataclass(frozen=True)
class Smaller:
    """A version of an experiment that needs less time or no files."""

    changes: Changes = field(default_factory=dict)
    variants: tuple[str, ...] = ("paper",)
    """The variants to run in it."""
    models: tuple[str, ...] = ()
    """The models to run in it; empty: all."""


@dataclass(frozen=True)
class Drawing:
    """A figure specific to an experiment."""

    name: str
    title: str
    draw: Callable[[Any, Group], None]
    """Draws a group on a matplotlib figure."""
    size: tuple[float, float] = (7.2, 4.2)
    """Inches."""
    caption: Callable[[Group], str] = lambda _: ""
    """A sentence on what to see in it."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: what to run, what the paper says, how to show and judge the results.

    Five fields define what to run. `base` is the complete configuration of a full-size run; its task may be shared
    with other experiments. `models` has the layer of each model. `variants` are named changes to `base`;
    `goru reproduce` runs all of them, and those `on_request` only if they are named. `quick` turns `base` into a small
    version, `generated` into one that needs no files; their runs are called `quick`, `quick-VARIANT` and so on.

    If one result consists of several runs (folds, tasks), each variant is one of them, and `parts` is their name in
    the plural. Tables then show means over the parts, and "paper" stands for all of them.

    An experiment beyond the paper has no `paper` and no `claims`; a second reading of one of the paper's has no `paper`
    and the claims of the first. Every field with a default is optional.
    """

    name: str
    """Its name on the command line and in run directories."""
    title: str
    label: str = ""
    """A shorter title for the page's contents."""
    place: int
    """Experiments are listed in this order."""
    summary: str

    base: RunConfig
    models: Mapping[str, LayerConfig]
    variants: Mapping[str, Changes] = field(default_factory=lambda: {"paper": {}})
    on_request: Mapping[str, Changes] = field(default_factory=dict)
    parts: str = ""
    memory: Callable[[Any, LayerConfig], int] | None = None
    """The `memory` of a layer that has one, for a task: it follows the length of the task."""
    quick: Smaller = field(default_factory=Smaller)
    generated: Smaller | None = None
    """None: the data are always generated."""

    paper: Paper | None = None
    claims: tuple[Claim, ...] = ()
    matched: str = ""
    """Which sizes the models have in common."""
    decisions: tuple[str, ...] = ()
    """Our decisions where the paper is silent."""

    columns: tuple[Column, ...] = field(default_factory=against_baseline)
    """The columns of its table of results."""
    references: Callable[[Group], References] = lambda _: {}
    """Reference levels that need no learning, shown below the models."""
    more_tables: tuple[Callable[[Group], Table], ...] = ()
    drawings: tuple[Drawing, ...] = ()
    measure: Measure | None = field(default_factory=loss_share)
    """The number by which it ranks the models; None: it is not in the tables over all experiments."""
    finding: Callable[[Group], str] | None = None
    """A phrase on what its runs show, in lower case and with a period (it may follow a colon); None: which models solve
    it, or lead by its measure."""
    leads: bool = False
    """Whether its finding is in the summary of the report."""
    answers: Mapping[str, Callable[[Group], str]] = field(default_factory=dict)
    """Questions that a reader asks, and sentences that answer them from a group; empty if the group cannot. Answers of
    several experiments to one question follow each other."""
    curves: bool = True
    """Whether to draw loss curves; those of different tasks have nothing in common."""
    log_loss: bool = False
    """Whether to draw them on a logarithmic scale."""
    folded: str = ""
    """What the page folds under one heading, with settings and decisions; empty: it shows the results."""
    in_overview: bool = False
    """Whether its curves are part of the README's figure."""

    time_steps: Callable[[Any], float] | None = None
    """From its task to the time steps of a training batch, including padding: the cost of a step is proportional."""

    def found(self, group: Group) -> str:
        """A phrase on what the runs of a group show, as `finding` describes; empty if nothing yet."""
        if self.finding is not None:
            return self.finding(group)
        if self.measure is None:
            return ""
        return who_solves(group) if self.measure.of_baseline else who_leads(group, self.measure)

    # Settings

    @property
    def second_reading(self) -> bool:
        """Whether it is another reading of one of the paper's experiments."""
        return bool(self.claims) and self.paper is None

    @property
    def first_variant(self) -> str:
        return next(iter(self.variants))

    @property
    def all_variants(self) -> Mapping[str, Changes]:
        return {**self.variants, **self.on_request}

    @property
    def part_count(self) -> int:
        """How many runs of a model make one result."""
        return len(self.variants) if self.parts else 1

    def has(self, variant: str) -> bool:
        """Whether `variant` is a reserved name of this experiment."""
        return split_variant(variant)[1] in {"paper", *self.all_variants}

    def kind_of(self, variant: str) -> str:
        """quick, generated, own (custom settings), or empty: full size."""
        return split_variant(variant)[0] if self.has(variant) else "own"

    def group_of(self, variant: str) -> str:
        """The variant under which a run is shown: one for all parts of a result."""
        kind, setting = split_variant(variant)
        return (kind or "paper") if self.parts and setting in self.variants else variant

    def config(self, model: str, variant: str = "paper", seed: int = 0) -> RunConfig:
        """The run of a model; `variant` is one of the variants, `quick` or `generated`, or `quick-` and a variant."""
        if model not in self.models:
            raise UsageError(nearest(f"model of {self.name}", model, self.models))
        kind, setting = split_variant(variant)
        if setting == "paper":
            setting = self.first_variant
        if setting not in self.all_variants:
            raise UsageError(nearest(f"variant of {self.name}", setting, ["quick", *self.all_variants]))
        changes = self.all_variants[setting]
        if kind == "generated" and not self.generated:
            raise UsageError(f"{self.name} needs no files: remove `generated`.")
        if kind and changes.keys() & self.version("generated").changes.keys():
            raise UsageError(f"{setting} has its own data and cannot use generated data.")
        smaller = self.version(kind).changes
        name = join_variant(kind, setting)
        config = dataclasses.replace(self.base, variant=name, model=model, seed=seed, layer=self.models[model])
        try:
            return self.with_memory(override(override(config, dict(smaller)), dict(changes)))
        except ValueError as error:
            raise UsageError(f"{self.name}, variant {variant}: {error}.") from None

    def with_memory(self, config: RunConfig) -> RunConfig:
        """The configuration with the `memory` for its task, if the model has one."""
        if self.memory is None or config.layer.memory is None:
            return config
        return override(config, {"layer.memory": self.memory(config.task, config.layer)})

    def following(self, config: RunConfig, base: RunConfig) -> RunConfig:
        """`config` with the `memory` for its task, if `base`, which it was made from, has that for its own."""
        return self.with_memory(config) if self.with_memory(base) == base else config

    def tasks(self) -> set[type]:
        """The task classes of its variants."""
        return {type(self.base.task), *(type(c["task"]) for c in self.all_variants.values() if "task" in c)}

    def variant_of(self, config: RunConfig) -> str | None:
        """The name of the variant with the settings of a configuration, whatever its own name."""
        known = (
            one.variant for one in self._settings(config) if one == dataclasses.replace(config, variant=one.variant)
        )
        return next(known, None)

    def _settings(self, config: RunConfig) -> Iterator[RunConfig]:
        """The runs of the same model and seed in every version and variant."""
        for kind in ("", "generated", "quick"):
            for setting in self.all_variants:
                with contextlib.suppress(UsageError):  # not every setting has generated data
                    yield self.config(config.model, join_variant(kind, setting), config.seed)

    def other_settings(self, config: RunConfig) -> str:
        """How a run differs from the variant that it names; empty if it does not.

        Threads and device may differ; a custom setting or model has nothing to compare with.
        """
        if config.model not in self.models or not self.has(config.variant):
            return ""
        known = self.config(config.model, config.variant, config.seed)
        return differences(as_on(config, known), known)

    def name_for(self, config: RunConfig, base: RunConfig) -> str:
        """A name for `config`, made from `base`: that of a variant, or the changes from the part that it belongs to.

        A `memory` that follows the task is no change: the same options give all models the same name.
        """
        known = self.variant_of(config) if self.has(base.variant) else None
        if known is None and self.has(base.variant) and self.parts and config != base and self.variant_of(base):
            kind, _ = split_variant(base.variant)
            names = self.generated.variants if kind and self.generated else self.variants
            parts = [self.config(config.model, join_variant(kind, name), config.seed) for name in names]
            base = next((part for part in parts if part.task == config.task), base)
        at_task = self.following(dataclasses.replace(base, task=config.task), base)
        return known or variant_name(config, dataclasses.replace(base, layer=at_task.layer))

    def words_for(self, config: RunConfig) -> str:
        """The settings behind a name that `name_for` made, without those that the task describes; else the name.

        >>> from goru.lab.paper import experiment
        >>> copying = experiment("copying")
        >>> changes = {"steps": 40, "batch": 8, "task.delay": 10, "variant": "steps40+batch8+delay10"}
        >>> copying.words_for(override(copying.config("gru"), changes))
        '40 iterations, batch 8'
        """
        if config.model not in self.models or self.has(config.variant):
            return config.variant
        for base in self._settings(config):
            if variant_name(config, base) == config.variant:
                return ", ".join(self._words(config, base))
        return config.variant

    def _words(self, config: RunConfig, base: RunConfig) -> list[str]:
        before, words = flat(base), [] if base.variant == "paper" else [base.variant]
        for path, value in flat(config).items():
            group, _, name = path.rpartition(".")
            if path in _NOT_IN_WORDS or path not in before or value == before[path]:
                continue
            if group == "task" and override(config.task, {name: before[path]}).describe() != config.task.describe():
                continue
            if path == "layer.memory" and self.memory is not None and value == self.memory(config.task, config.layer):
                continue
            words.append(_WORDS.get(path, f"{name.replace('_', ' ')} {{}}").format(value))
        return words

    def part(self, number: int) -> str:
        """The variant of a part by its number."""
        if not 1 <= number <= self.part_count:
            raise UsageError(f"{self.name} has {self.parts} 1 to {self.part_count}, not {number}.")
        return list(self.variants)[number - 1]

    def version(self, kind: str) -> Smaller:
        """The changes, variants and models of a version: `quick`, which needs no files either, or `generated`.

        Where there is no such version: no changes, and all variants and models.
        """
        chosen = {"quick": self.quick, "generated": self.generated}.get(kind)
        if chosen is None:
            return Smaller({}, tuple(self.variants), tuple(self.models))
        generated = self.generated.changes if self.generated else {}
        return Smaller({**generated, **chosen.changes}, chosen.variants, chosen.models or tuple(self.models))

    # Costs

    def step_seconds(self, config: RunConfig) -> float:
        """Processor seconds of a training step; 0 if the model was not measured with any initialization.

        The first variant is measured; others differ by the length of their sequences.
        """
        sizes = {name: _without_start(layer) for name, layer in self.models.items()}
        alike = [name for name in sizes if sizes[name] == sizes.get(config.model)]
        rows = (step_times().get((self.name, name)) for name in (config.model, *alike))
        measured = next((row["cpu_seconds"] for row in rows if row), 0.0)
        if not measured or self.time_steps is None:
            return measured
        first = override(self.base, dict(self.variants[self.first_variant]))
        return measured * (self.time_steps(config.task) / self.time_steps(first.task))

    def is_measured(self, config: RunConfig) -> bool:
        """Whether the measured time of a step is that of a run of these sizes; sequences may have other lengths."""
        if config.model not in self.models or config.device != "cpu":
            return False
        known = self.config(config.model)
        if _without_start(config.layer) != _without_start(known.layer) or config.batch != known.batch:
            return False
        if not config.steps and config.task.data_set != known.task.data_set:  # an epoch has other steps
            return False
        return self.time_steps is not None or config.task == known.task

    @property
    def steps_per_epoch(self) -> int:
        """Steps of one pass over the training set; 0 if there is none, or none was measured."""
        rows = [row for (name, _), row in step_times().items() if name == self.name]
        return max((row["steps_per_epoch"] or 0 for row in rows), default=0)

    def steps_of(self, config: RunConfig) -> int:
        """The steps of a run that does not stop early."""
        return config.steps or config.epochs * self.steps_per_epoch

    def run_seconds(self, config: RunConfig) -> float:
        """What a run takes with one thread, if it does not stop early."""
        return self.steps_of(config) * self.step_seconds(config)

    @property
    def seconds(self) -> float:
        """What all models and variants take with one seed, if no run stops early."""
        return sum(self.run_seconds(self.config(model, variant)) for variant in self.variants for model in self.models)


@cache
def step_times() -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of `step_times.json` by experiment and model, measured with `goru bench` on the reference machine.

    `cpu_seconds` are those of a training step with one thread; `steps_per_epoch` is null where data have no end.

    To update it in a checkout, on an idle machine: goru bench --out src/goru/lab/paper/step_times.json
    """
    text = resources.files("goru.lab.paper").joinpath("step_times.json").read_text(encoding="utf-8")
    return {(row["experiment"], row["model"]): row for row in json.loads(text)["timings"]}


def _without_start(layer: LayerConfig) -> LayerConfig:
    """What decides the cost of a layer; the ablations run on kernels of the same size."""
    return dataclasses.replace(layer, init="published", memory=None, orthogonal=True, modrelu=True)


def split_variant(variant: str) -> tuple[str, str]:
    """The kind of a variant (quick, generated or empty: full size) and its setting.

    >>> split_variant("quick-task05"), split_variant("generated"), split_variant("fold03")
    (('quick', 'task05'), ('generated', 'paper'), ('', 'fold03'))
    """
    for kind in ("quick", "generated"):
        if variant == kind or variant.startswith(f"{kind}-"):
            return kind, variant.removeprefix(kind).removeprefix("-") or "paper"
    return "", variant


def join_variant(kind: str, setting: str) -> str:
    """Inverse of `split_variant`.

    >>> join_variant("quick", "task05"), join_variant("quick", "paper"), join_variant("", "paper")
    ('quick-task05', 'quick', 'paper')
    """
    return "-".join(part for part in (kind, "" if kind and setting == "paper" else setting) if part)
