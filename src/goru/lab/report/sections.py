"""One section per experiment: its runs, figures, tables and verdicts, ready for layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from goru.lab import paper
from goru.lab.durations import duration
from goru.lab.paper import columns
from goru.lab.paper.columns import Cell, Table
from goru.lab.paper.definition import Experiment
from goru.lab.paper.findings import capitalized
from goru.lab.paper.outcomes import Group, Record, percent
from goru.lab.report import figures
from goru.lab.report.claims import Verdict
from goru.lab.report.figures import Figure
from goru.lab.training.config import flat

_OFF = ("eval_every", "patience", "stop_below")
"""Settings that are not used if they are 0."""
_LISTED = 8
"""Unfinished runs that are listed one by one; more are counted."""


@dataclass(frozen=True)
class Variant:
    """One setting of an experiment, with everything that was run in it."""

    group: Group

    @property
    def is_plain(self) -> bool:
        """Whether it is exactly the paper's setting."""
        return self.group.variant == "paper" and not self._differs

    @property
    def _differs(self) -> dict[str, Any]:
        found = self.group.experiment.paper
        return dict(found.differs) if found else {}

    @property
    def title(self) -> str:
        if self.group.kind == "own":
            words = self.group.setting
            describes = words != self.group.variant and self.group.first.config.task.describe()
            return ", ".join(part for part in (describes, words) if part)
        kinds = {"quick": "small version", "generated": "generated data"}
        kind, setting = paper.split_variant(self.group.variant)
        if setting != "paper" or kind:
            return ", ".join(part for part in (kinds.get(kind, ""), setting) if part and part != "paper")
        found = self.group.experiment.paper
        if found is None:
            return "full size"
        differs = f" except {', '.join(found.differs)}" if found.differs else ""
        return found.differs_title or f"the paper's setting{differs}"

    @cached_property
    def tables(self) -> list[Table]:
        return [columns.results(self.group), *(table(self.group) for table in self.group.experiment.more_tables)]

    @cached_property
    def curve(self) -> Figure | None:
        return figures.losses(self.group) if self._has_curves else None

    @cached_property
    def curve_in_time(self) -> Figure | None:
        return figures.losses(self.group, along="seconds") if self._has_curves else None

    @property
    def _has_curves(self) -> bool:
        """Whether there is a curve to draw, with more than one point."""
        return self.group.experiment.curves and any(len(record.test.steps) > 1 for record in self.group.records)

    @cached_property
    def gates(self) -> Figure | None:
        return figures.gates(self.group)

    @cached_property
    def spectrum(self) -> Figure | None:
        return figures.spectra(self.group)

    @cached_property
    def own_figures(self) -> list[Figure]:
        return [figures.own(self.group, drawing) for drawing in self.group.experiment.drawings]

    @property
    def figures(self) -> list[Figure]:
        drawn = (self.curve, self.curve_in_time, self.gates, self.spectrum, *self.own_figures)
        return [figure for figure in drawn if figure is not None]

    def interactive(self) -> dict[str, Any]:
        """The data of the interactive figures, by the name of the figure that each replaces."""
        found = {self.curve.name: figures.losses_for_page(self.group)} if self.curve else {}
        if self.gates is not None:
            found[self.gates.name] = figures.gates_for_page(self.group)
        return found

    @property
    def time(self) -> str:
        return duration(sum(record.seconds for record in self.group.records))

    @property
    def not_run(self) -> str:
        """The models of the experiment without a run."""
        wanted = self.group.experiment.version("quick" if self.group.kind == "quick" else "").models
        absent = [paper.title(model) for model in wanted if model not in self.group.models]
        return f"Not run: {'; '.join(absent)}." if absent else ""

    @property
    def gaps(self) -> list[str]:
        """What is incomplete: parts and unfinished runs."""
        one, group = self.group.experiment, self.group
        found = []
        if one.parts and not group.kind:
            parts = {model: group.parts_done(model) for model in group.models}
            if min(parts.values()) < one.part_count:
                counts = ", ".join(f"{paper.title(model)} {count}" for model, count in parts.items())
                found.append(f"Of {one.part_count} {one.parts} finished: {counts}.")
            found += [
                f"Not counted: {paper.title(model)}, seed {seed} ({count} of {one.part_count} {one.parts})."
                for model in group.models
                for seed, count in group.incomplete_seeds(model).items()
            ]
        unfinished = [record for record in group.records if not record.finished]
        for record in unfinished[:_LISTED]:
            c, why = record.config, f": {record.message}" if record.message else ""
            run = f"{paper.title(c.model)}{f', {c.variant}' if one.parts else ''}, seed {c.seed}"
            found.append(f"Not finished: {run}, {record.progress}{why}.")
        if len(unfinished) > _LISTED:
            found.append(f"And {len(unfinished) - _LISTED} more unfinished runs.")
        return found

    @property
    def settings(self) -> list[tuple[str, str, bool]]:
        """The settings that all models share, and whether each differs from the paper's; without those that have no
        effect."""
        one, config = self.group.experiment, self.group.first.config
        base = flat(one.base) | self._differs
        apart = {"experiment", "model", "seed", *(() if self.group.kind == "own" else ("variant",))}
        apart |= {path for changes in one.variants.values() for path in changes} if one.parts else set()
        apart |= {"epochs" if config.steps else "steps"}
        apart |= set() if config.optimizer.rule == "rmsprop" else {"optimizer.decay"}
        found = [
            (path, value, value != base.get(path))
            for path, value in flat(config).items()
            if path not in apart and not path.startswith("layer.")
        ]
        return [(path, str(value), changed) for path, value, changed in found if changed or value or path not in _OFF]

    @property
    def layers(self) -> list[tuple[str, str]]:
        """A description of the recurrent layer of every model."""
        layers = []
        for model, records in self.group.models.items():
            layer = records[0].config.layer
            words = [f"{layer.hidden_size} units"]
            if layer.cell in ("goru", "eurnn"):
                capacity = f", capacity {layer.capacity or 2}" if layer.mesh == "tunable" else ""
                words += [f"{layer.mesh} mesh{capacity}"]
            if layer.cell == "eurnn":
                words += ["complex" if layer.complex else "real"]
            words += [f"without {gate} gate" for gate in ("reset", "update") if not getattr(layer, f"{gate}_gate")]
            start = f"memory {layer.memory}" if layer.memory and layer.init == "published" else layer.init
            words += [f"initialization: {start}"]
            layers.append((paper.title(model), ", ".join(words)))
        return layers

    @property
    def machines(self) -> list[str]:
        return sorted({machine(record) for record in self.group.records})


@dataclass(frozen=True)
class Section:
    """An experiment with all the settings that it was run in."""

    experiment: Experiment
    variants: list[Variant]
    verdicts: list[Verdict]

    @cached_property
    def side_by_side(self) -> Table | None:
        """All settings side by side: one row per model, with its final loss over the baseline."""
        groups = [variant.group for variant in self.variants if not variant.group.kind]
        measure = self.experiment.measure
        if self.experiment.parts or measure is None or not measure.of_baseline or len(groups) < 2:
            return None
        models = dict.fromkeys(model for group in groups for model in group.models)
        rows = tuple(columns.row(paper.title(one), *(_loss_share(group, one) for group in groups)) for one in models)
        title = f"{self.experiment.title}: settings side by side, final test loss over the baseline"
        headings = ("model", *(group.variant for group in groups))
        return Table(f"{self.experiment.name}-variants", title, "", headings, rows)

    @property
    def gaps(self) -> list[str]:
        """The settings of the paper that were not run, although others were."""
        full = [variant.group for variant in self.variants if not variant.group.kind]
        absent = [name for name in self.experiment.variants if name not in {group.variant for group in full}]
        missing = full and absent and not self.experiment.parts
        return [f"Settings not run: {', '.join(absent)}."] if missing else []

    @property
    def main(self) -> Variant:
        """The setting that is shown first."""
        return self.variants[0]

    @property
    def finding(self) -> str:
        """A sentence on what its first setting shows."""
        return capitalized(self.experiment.found(self.main.group))

    @property
    def learned(self) -> list[str]:
        """One sentence per group that judges no claim on what it learned."""
        found = []
        for group in (variant.group for variant in self.variants if variant.group.kind):
            if phrase := self.experiment.found(group):
                title = group.title if group.kind == "own" else f"{self.experiment.title}{group.suffix}"
                found.append(f"{title}: {phrase}")
        return found

    @property
    def next_command(self) -> str:
        """The command that runs it at full size, and its cost."""
        hours = self.experiment.seconds / 3600
        return f"`goru reproduce {self.experiment.name}`" + (f" ({hours:.1f} core hours)" if hours else "")

    @cached_property
    def tables(self) -> list[Table]:
        beside = [self.side_by_side] if self.side_by_side else []
        return beside + [table for variant in self.variants for table in variant.tables]


def make(groups: list[Group], verdicts: list[Verdict]) -> list[Section]:
    """The sections in the paper's order."""
    by_experiment: dict[str, list[Variant]] = {}
    for group in groups:
        by_experiment.setdefault(group.experiment.name, []).append(Variant(group))
    return [
        Section(paper.experiment(name), variants, [v for v in verdicts if v.experiment.name == name and v.variant])
        for name, variants in by_experiment.items()
    ]


def _loss_share(group: Group, model: str) -> Cell:
    if model not in group.models:
        return Cell("")
    records, found = group.shown(model), group.scores(model, "test_loss")
    text = percent(found.mean / group.baseline) if found else ""
    first = records[0]
    return Cell(text) if first.finished else Cell(f"{text} ({first.step:,} of {first.last_step:,})", "open")


def machine(record: Record) -> str:
    """The hardware and software of a run."""
    e = record.environment
    versions = e.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    return (
        f"{e.get('processor', 'unknown processor')}, {e.get('cores', '?')} cores, "
        f"{e.get('threads', '?')} thread per run, "
        f"torch {versions.get('torch', '?')}, goru {versions.get('goru', '?')}{_kernels(e.get('attempts'))}"
    )


def _kernels(attempts: Any) -> str:
    """The backends and instruction sets of the attempts, in order."""
    known = [a for a in attempts if isinstance(a, dict) and "backend" in a] if isinstance(attempts, list) else []
    used = dict.fromkeys(f"{a['backend']} ({a.get('isa', '?')})" for a in known)
    return f", kernels: {', then '.join(used)}" if used else ""
