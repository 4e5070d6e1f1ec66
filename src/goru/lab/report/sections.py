"""What the report says of each experiment: its runs, figures, tables and verdicts, ready to be laid out."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from goru.lab import paper
from goru.lab.engines.display import duration
from goru.lab.paper.experiment import Experiment
from goru.lab.report import comparisons, curves, figures, synthetic
from goru.lab.report.claims import Verdict
from goru.lab.report.figures import Figure
from goru.lab.report.records import Group, Record, parts_done
from goru.lab.report.tables import Table
from goru.lab.training.config import flat

_PATIENCE = 8
"""Unfinished runs that are told one by one; more are counted."""


@dataclass(frozen=True)
class Variant:
    """One setting of an experiment, with everything that was run in it."""

    group: Group

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def title(self) -> str:
        kinds = {"quick": "small version", "generated": "generated data"}
        kind, setting = paper.split_variant(self.group.variant)
        others = paper.EXPERIMENTS[self.group.experiment].papers
        plain = "the paper's setting" + (f" but for {', '.join(others)}" if others else "")
        own = {"paper": "" if kind else plain}.get(setting, setting)
        return ", ".join(part for part in (kinds.get(kind, ""), own) if part)

    @property
    def data(self) -> str:
        return comparisons.data_title(self.group)

    @cached_property
    def tables(self) -> list[Table]:
        compared = comparisons.has_comparison(self.group)
        return comparisons.tables(self.group) if compared else [synthetic.results(self.group)]

    @cached_property
    def curve(self) -> Figure | None:
        return figures.losses(self.group) if self._has_curves else None

    @cached_property
    def curve_in_time(self) -> Figure | None:
        return figures.losses(self.group, along="seconds") if self._has_curves else None

    @property
    def _has_curves(self) -> bool:
        """Whether there is a curve to draw: those of different tasks have nothing in common, and one point is none."""
        return self.group.experiment != "babi" and any(len(record.test.steps) > 1 for record in self.group.records)

    @cached_property
    def gates(self) -> Figure | None:
        return figures.gates(self.group)

    @cached_property
    def spectrum(self) -> Figure | None:
        return figures.spectra(self.group)

    @property
    def figures(self) -> list[Figure]:
        drawn = (self.curve, self.curve_in_time, self.gates, self.spectrum)
        return [figure for figure in drawn if figure is not None]

    def interactive(self) -> dict[str, Any]:
        """What the page draws itself, by the name of the figure that it replaces."""
        found = {self.curve.name: curves.losses_for_page(self.group)} if self.curve else {}
        if self.gates is not None and (gates := curves.gates_for_page(self.group)):
            found[self.gates.name] = gates
        return found

    @property
    def time(self) -> str:
        return duration(sum(record.seconds for record in self.group.records))

    @property
    def gaps(self) -> list[str]:
        """What is missing: models that were not run, parts that were not, runs that have not ended."""
        one, group = paper.EXPERIMENTS[self.group.experiment], self.group
        told = []
        wanted = one.quick_models if group.kind == "quick" else tuple(one.models)
        absent = [paper.title(model) for model in wanted if model not in group.models]
        if absent:
            told.append(f"Not run: {', '.join(absent)}.")
        if one.in_parts and not group.kind:
            parts = {m: parts_done(records) for m, records in group.models.items()}
            if min(parts.values()) < len(one.variants):
                counts = ", ".join(f"{paper.title(m)} {count}" for m, count in parts.items())
                told.append(f"Of {len(one.variants)} {one.part_word} finished: {counts}.")
        unfinished = [record for record in group.records if not record.finished]
        for record in unfinished[:_PATIENCE]:
            why = f": {record.message}" if record.message else ""
            told.append(f"Not finished: {_run_name(record)}, {record.progress}{why}.")
        if len(unfinished) > _PATIENCE:
            told.append(f"And {len(unfinished) - _PATIENCE} more that are not finished.")
        return told

    @property
    def settings(self) -> list[tuple[str, str, bool]]:
        """The settings that all models share, and whether each differs from the paper's."""
        one = paper.EXPERIMENTS[self.group.experiment]
        base = flat(one.settings) | one.papers
        apart = {"experiment", "variant", "model", "seed"}
        apart |= {path for changes in one.variants.values() for path in changes} if one.in_parts else set()
        return [
            (path, str(value), value != base.get(path))
            for path, value in flat(self.group.records[0].config).items()
            if path not in apart and not path.startswith("layer.")
        ]

    @property
    def layers(self) -> list[tuple[str, str]]:
        """The recurrent layer of every model in words."""
        told = []
        for model, records in self.group.models.items():
            layer = records[0].config.layer
            words = [f"{layer.hidden_size} units"]
            if layer.cell in ("goru", "eurnn"):
                capacity = f", capacity {layer.capacity or 2}" if layer.mesh == "tunable" else ""
                words += [f"{layer.mesh} mesh{capacity}"]
            if layer.cell == "eurnn":
                words += ["complex" if layer.complex else "real"]
            words += [f"without {gate} gate" for gate in ("reset", "update") if not getattr(layer, f"{gate}_gate")]
            words += [f"start: {layer.init}"]
            told.append((paper.title(model), ", ".join(words)))
        return told

    @property
    def machines(self) -> list[str]:
        return sorted({machine(record) for record in self.group.records})


@dataclass(frozen=True)
class Section:
    """An experiment with all the settings that it was run in."""

    experiment: Experiment
    variants: list[Variant]
    verdicts: list[Verdict] = field(default_factory=list)

    @cached_property
    def side_by_side(self) -> Table | None:
        if self.experiment.in_parts or any(comparisons.has_comparison(v.group) for v in self.variants):
            return None
        return synthetic.side_by_side([v.group for v in self.variants if not v.group.kind])

    @property
    def gaps(self) -> list[str]:
        """The settings of the paper that were not run at all, where others were."""
        full = [variant.group for variant in self.variants if not variant.group.kind]
        absent = [name for name in self.experiment.variants if name not in {group.variant for group in full}]
        missing = full and absent and not self.experiment.in_parts
        return [f"Settings not run: {', '.join(absent)}."] if missing else []

    @property
    def decisions(self) -> tuple[str, ...]:
        return paper.decisions(self.experiment.name)

    @cached_property
    def tables(self) -> list[Table]:
        beside = [self.side_by_side] if self.side_by_side else []
        return beside + [table for variant in self.variants for table in variant.tables]


def make(groups: list[Group], verdicts: list[Verdict]) -> list[Section]:
    """The sections in the paper's order."""
    by_experiment: dict[str, list[Variant]] = {}
    for group in groups:
        by_experiment.setdefault(group.experiment, []).append(Variant(group))
    return [
        Section(paper.EXPERIMENTS[name], variants, [v for v in verdicts if v.claim.experiment == name and v.variant])
        for name, variants in by_experiment.items()
    ]


def machine(record: Record) -> str:
    """On what a run was made."""
    e = record.environment
    versions = e.get("versions")
    versions = versions if isinstance(versions, dict) else {}
    return (
        f"{e.get('processor', 'unknown processor')}, {e.get('cores', '?')} cores, "
        f"{e.get('threads', '?')} thread a run, "
        f"torch {versions.get('torch', '?')}, goru {versions.get('goru', '?')}"
    )


def _run_name(record: Record) -> str:
    c = record.config
    part = f", {c.variant}" if paper.EXPERIMENTS[c.experiment].in_parts else ""
    return f"{paper.title(c.model)}{part}, seed {c.seed}"
