"""The summary of a report: the findings in a few sentences, and a ranking of all models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from goru.lab import paper
from goru.lab.paper.columns import Cell, Measure
from goru.lab.paper.findings import joined
from goru.lab.paper.models import Model
from goru.lab.paper.outcomes import Group
from goru.lab.report import claims

PARTLY, UNFINISHED, FAILED = "†", "…", "failed"
_MEANINGS = {
    PARTLY: f"{PARTLY} marks a mean over only some of the parts",
    UNFINISHED: f"{UNFINISHED} marks an unfinished run",
    FAILED: f"{FAILED} marks a run without a result",
}


def main_groups(groups: Sequence[Group]) -> list[Group]:
    """The paper's setting of each experiment; the small versions if nothing was run at full size."""
    full = [group for group in groups if not group.kind]
    return [group for group in full if group.variant == "paper"] or [
        group for group in groups if not full and group.variant in ("quick", "generated")
    ]


@dataclass(frozen=True)
class Ranking:
    """Every model on every experiment, by the measure of the experiment."""

    groups: list[Group]
    models: list[Model]

    def measure(self, group: Group) -> Measure:
        assert group.experiment.measure is not None
        return group.experiment.measure

    def label(self, group: Group) -> str:
        return group.experiment.label or group.experiment.title

    def cell(self, group: Group, model: Model) -> Cell:
        """A model's number; its tone is its rank if it is among the first three."""
        text, final = number(group, model.name), self.measure(group).ranked(group)
        if model.name not in final:
            return Cell(text, "open" if text else "")
        ahead = final[: final.index(model.name)]
        place = 1 + sum(number(group, one) != text and not paper.model(one).ablation for one in ahead)
        return Cell(text, f"place{place}" if place <= 3 else "")

    def first(self, group: Group) -> list[Model]:
        """The best models; several if they print the same number."""
        return [model for model in self.models if self.cell(group, model).tone == "place1"]

    @property
    def note(self) -> str:
        """The number of seeds, and the meaning of the signs."""
        seeds = {len(group.complete_seeds(model)) for group in self.groups for model in group.models} - {0}
        many = f"1 to {max(seeds)}" if 1 in seeds and len(seeds) > 1 else " or ".join(map(str, sorted(seeds)))
        rest = (
            ["each number is from one seed" if seeds == {1} else f"each number is a mean over {many} seeds"]
            if seeds
            else []
        )
        texts = [self.cell(group, model).text for group in self.groups for model in self.models]
        found = [meaning for sign, meaning in _MEANINGS.items() if any(sign in text for text in texts)]
        return "; ".join([*rest, *found])


def ranking(groups: Sequence[Group]) -> Ranking | None:
    """None if no experiment has a measure."""
    ranked = [group for group in main_groups(groups) if group.experiment.measure]
    trained = [model for group in ranked for model in group.models]
    models = [paper.model(name) for name in dict.fromkeys([*paper.MODELS, *trained]) if name in trained]
    return Ranking(ranked, [model for model in models if not model.ablation]) if ranked else None


def number(group: Group, model: str) -> str:
    """A model's number by the measure of its experiment, or its state."""
    if model not in group.models:
        return ""
    if not group.finished(model):
        failed = all(record.state == "failed" for record in group.models[model])
        return FAILED if failed else UNFINISHED
    measure = group.experiment.measure
    text = measure.text(group, model) if measure else ""
    return text if group.kind or group.complete_seeds(model) or not text else f"{text}{PARTLY}"


def findings(groups: Sequence[Group], verdicts: Sequence[claims.Verdict]) -> list[str]:
    """The verdicts in short, the main findings, and the best model of each experiment."""
    lead = [
        f"{group.experiment.label or group.experiment.title}: {found}"
        for group in main_groups(groups)
        if group.experiment.leads and (found := group.experiment.found(group))
    ]
    return [sentence for sentence in (_on_claims(verdicts), *lead, _on_places(ranking(groups))) if sentence]


def _on_claims(verdicts: Sequence[claims.Verdict]) -> str:
    judged = claims.by_claim(list(verdicts))
    counts = {status: sum(one.main.status == status for one in judged) for status in claims.STATUSES}
    if counts[claims.OPEN] == len(judged):
        return ""
    words = {claims.PARTLY: "{} in part", claims.NOT_REPRODUCED: "{} not", claims.OPEN: "{} not yet decided"}
    rest = [text.format(counts[status]) for status, text in words.items() if counts[status]]
    sentence = f"{counts[claims.REPRODUCED]} of the paper's {len(judged)} claims are reproduced in the paper's setting"
    return " ".join([sentence + (f", {joined(rest)}." if rest else "."), *other_starts(judged)])


def other_starts(judged: Sequence[claims.Judged]) -> list[str]:
    """For each other initialization of GORU, the claims with a better verdict in the paper's setting."""
    better: dict[str, dict[str, list[str]]] = {}
    for one in judged:
        for other in one.others:
            improves = claims.STATUSES.index(other.status) < claims.STATUSES.index(one.main.status)
            if other.stand_in and other.variant == one.main.variant and improves and one.main.status != claims.OPEN:
                better.setdefault(other.stand_in, {}).setdefault(other.status, []).append(one.claim.name)
    words = {claims.REPRODUCED: "{} too", claims.PARTLY: "{} in part"}
    return [
        f"With {paper.title(start)}: "
        + ", ".join(words[status].format(joined(names)) for status in words if (names := found.get(status)))
        + "."
        for start, found in better.items()
    ]


def _on_places(found: Ranking | None) -> str:
    """Which model is best on which experiments, ordered by their number."""
    if found is None:
        return ""
    where: dict[str, list[str]] = {}
    for group in found.groups:
        for model in found.first(group):
            where.setdefault(model.title, []).append(found.label(group).lower())
    first = sorted(where, key=lambda title: -len(where[title]))
    named = "; ".join(f"{name} on {joined(where[name])}" for name in first)
    return f"Best in this table: {named}." if named else ""
