"""What an experiment and a claim of the paper consist of."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass, field
from typing import Any

from goru.lab.errors import UsageError, nearest
from goru.lab.training.config import LayerConfig, RunConfig, as_on, differences, override, variant_name


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
    matched: str = ""
    """What the models have in common in size, and what not."""
    decisions: tuple[str, ...] = ()
    step_seconds: dict[str, float] = field(default_factory=dict)
    """Processor seconds of a training step with one thread, as `goru bench` counts them, on a shared machine (AVX2).

    Of an experiment in parts: its first part's.
    """
    steps_per_epoch: int = 0
    """Steps of one pass over the training set, where there is one."""
    papers: dict[str, Any] = field(default_factory=dict)
    """Settings that the paper has otherwise than all variants here, as they are there."""
    log_loss: bool = False
    """Whether the paper draws the loss on a logarithmic scale."""
    in_parts: bool = False
    """Whether the variants are parts (folds, tasks) of one result."""
    part_sizes: dict[str, float] = field(default_factory=dict)
    """How long the sequences of the parts are, the first part's being 1; all alike where nothing is said."""
    generated: dict[str, Any] = field(default_factory=dict)
    """Changes that put generated data in the place of files; empty where all data are generated anyway."""
    without_files: tuple[str, ...] = ("paper",)
    """The variants that can be run on generated data."""
    quick_variants: tuple[str, ...] = ("paper",)
    """The variants of the small version."""

    @property
    def seconds(self) -> float:
        """What all models and variants take with one seed, if no run stops early."""
        return sum(self.run_seconds(self.config(model, variant)) for variant in self.variants for model in self.models)

    def step_cost(self, config: RunConfig) -> float:
        """Processor seconds of a training step of a run, 0 where they are not known."""
        return self.step_seconds.get(config.model, 0.0) * self.part_sizes.get(config.variant, 1.0)

    def run_seconds(self, config: RunConfig) -> float:
        """What a run takes with one thread, if it does not stop early."""
        return (config.steps or config.epochs * self.steps_per_epoch) * self.step_cost(config)

    @property
    def part_word(self) -> str:
        """What the parts of its result are called: folds, tasks."""
        return self.first_variant.rstrip("0123456789") + "s"

    @property
    def first_variant(self) -> str:
        return next(iter(self.variants))

    def knows(self, variant: str) -> bool:
        """Whether `variant` names settings of this experiment, so that no others may be called so."""
        return split_variant(variant)[1] in {"paper", *self.variants, *self.options}

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

    def other_settings(self, config: RunConfig) -> str:
        """What a run has otherwise than the setting that it is called after; empty where there is nothing.

        Threads and device may be any; a setting or model of the user's own has nothing to differ from.
        """
        if config.model not in self.models or not self.knows(config.variant):
            return ""
        known = self.config(config.model, config.variant, config.seed)
        return differences(as_on(config, known), known)

    def name_for(self, config: RunConfig, base: RunConfig) -> str:
        """A name for `config`, made from `base`: a variant's own, or what is changed in the part that it is of."""
        if not self.knows(base.variant):
            return variant_name(config, base)
        known = self.variant_of(config)
        if known is None and self.in_parts and config != base and self.variant_of(base):
            kind, _ = split_variant(base.variant)
            names = self.variants if not kind else self.without_files
            parts = [self.config(config.model, f"{kind}-{name}" if kind else name, config.seed) for name in names]
            base = next((part for part in parts if part.task == config.task), base)
        return known or variant_name(config, base)

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
        if kind and known[setting].keys() & self.generated.keys():
            raise UsageError(f"{setting} is a setting with data of its own, not for generated ones.")
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
