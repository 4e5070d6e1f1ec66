"""The summary of a report: the findings in a few sentences, and a ranking of all models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from goru.lab import paper
from goru.lab.paper.columns import Cell, Measure
from goru.lab.paper.findings import joined
from goru.lab.paper.models import Model
from goru.lab.paper.outcomes import Group
from goru.lab.report import claims, costs


@dataclass(frozen=True)
class Link:
    """Words that lead to a place on the page."""

    text: str
    anchor: str


Sentence = tuple[str | Link, ...]


def plain(sentence: Sentence) -> str:
    """The sentence without its links."""
    return "".join(part.text if isinstance(part, Link) else part for part in sentence)


class State(Enum):
    """How far a model's number is: the sign in its cell, and what it means."""

    FINAL = ("", "")
    PARTIAL = ("†", "† marks a mean over only some of the parts")
    SOME_FAILED = ("‡", "‡ leaves out a run that failed")
    UNFINISHED = ("…", "… marks an unfinished run")
    FAILED = ("failed", "failed marks a run without a result")
    ABSENT = ("", "empty: not run")

    def __init__(self, sign: str, meaning: str) -> None:
        self.sign, self.meaning = sign, meaning


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
        text, measure = number(group, model.name), self.measure(group)
        final = measure.ranked(group)
        if model.name not in final:
            return Cell(text, "open" if text else "")
        ahead = [name for name in final[: final.index(model.name)] if not paper.model(name).ablation]
        ours = measure.rounded(group, model.name)
        place = 1 + sum(measure.rounded(group, name) != ours for name in ahead)
        return Cell(text, f"place{place}" if place <= 3 else "")

    def deviation(self, group: Group, model: Model) -> str:
        return deviation(group, model.name)

    def first(self, group: Group) -> list[Model]:
        """The best models; several if their numbers round to the same."""
        return [model for model in self.models if self.cell(group, model).tone == "place1"]

    @property
    def note(self) -> str:
        """The number of seeds, and the meaning of the signs."""
        seeds = {len(group.complete_seeds(model)) for group in self.groups for model in group.models} - {0}
        many = f"1 to {max(seeds)}" if 1 in seeds and len(seeds) > 1 else " or ".join(map(str, sorted(seeds)))
        means = "each number is from one seed" if seeds == {1} else f"each number is a mean over {many} seeds"
        if any(self.deviation(group, model) for group in self.groups for model in self.models):
            means += ", ± their standard deviation"
        found = {state(group, model.name) for group in self.groups for model in self.models}
        said = [means if seeds else "", *(one.meaning for one in State if one in found)]
        return "; ".join(filter(None, said))


def ranking(groups: Sequence[Group]) -> Ranking | None:
    """None if no experiment has a measure."""
    ranked = [group for group in main_groups(groups) if group.experiment.measure]
    return Ranking(ranked, columns(ranked)) if ranked else None


def columns(groups: Sequence[Group]) -> list[Model]:
    """The models of these groups that have a column, in order."""
    trained = [name for group in groups for name in group.models]
    models = [paper.model(name) for name in dict.fromkeys([*paper.MODELS, *trained]) if name in trained]
    return [model for model in models if not model.ablation]


def state(group: Group, model: str) -> State:
    """How far a model's number is."""
    if model not in group.models:
        return State.ABSENT
    if not group.finished(model):
        failed = all(record.state == "failed" for record in group.models[model])
        return State.FAILED if failed else State.UNFINISHED
    if not group.kind and not group.complete_seeds(model):
        return State.PARTIAL
    return State.SOME_FAILED if any(record.state == "failed" for record in group.models[model]) else State.FINAL


def number(group: Group, model: str) -> str:
    """A model's number by the measure of its experiment, or the sign of its state."""
    found, measure = state(group, model), group.experiment.measure
    known = found in (State.FINAL, State.PARTIAL, State.SOME_FAILED)
    text = measure.text(group, model) if measure and known else ""
    return f"{text}{found.sign}" if text or found is not State.PARTIAL else ""


def deviation(group: Group, model: str) -> str:
    """The standard deviation of a model's number; empty if it has fewer than two seeds."""
    measure = group.experiment.measure
    return measure.deviation(group, model) if measure and model in group.models else ""


def runs_done(groups: Sequence[Group]) -> str:
    """How many runs there are, how many of them are not finished, and, of a reproduction, how many are missing."""
    records = [record for group in groups for record in group.records]
    unfinished = sum(not record.finished for record in records)
    missing = 0 if all(group.kind for group in groups) else costs.missing(groups)
    rest = f", {unfinished} of them not finished" if unfinished else ""
    absent = f"; {missing} of the planned ones {'is' if missing == 1 else 'are'} missing" if missing else ""
    return f"{len(records)} run{'s' * (len(records) != 1)}{rest}{absent}."


def unverified(groups: Sequence[Group]) -> list[str]:
    """Sentences about the finished runs whose files had no checksums when they ended."""
    since = [record.checked_since for group in groups for record in group.records if record.finished]
    late = {"never": " and have none", "record": "; theirs were made when the runs were recorded"}
    return [
        f"{count} of {len(since)} runs predate checksums{why}. They count as unverified."
        for when, why in late.items()
        if (count := since.count(when))
    ]


def findings(groups: Sequence[Group], verdicts: Sequence[claims.Verdict]) -> list[Sentence]:
    """The verdicts in short, the main findings, and the best model of each experiment."""
    lead = [
        f"{group.experiment.label or group.experiment.title}: {found}"
        for group in main_groups(groups)
        if group.experiment.leads and (found := group.experiment.found(group))
    ]
    others = [(sentence,) for sentence in (*lead, _on_places(ranking(groups))) if sentence]
    return [sentence for sentence in (_on_claims(verdicts), *others) if sentence]


WHEN_IS_IT_WORTH_IT = "When is it worth it?"


def answers(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The questions of the experiments with their answers, then where GORU is ahead of the other gated models."""
    found: dict[str, list[str]] = {}
    for group in main_groups(groups):
        for question, answer in group.experiment.answers.items():
            if sentence := answer(group):
                found.setdefault(question, []).append(sentence)
    ranks = ranking(groups)
    if worth := _where_it_leads(ranks) if ranks else "":
        found[WHEN_IS_IT_WORTH_IT] = [worth]
    return [(question, " ".join(sentences)) for question, sentences in found.items()]


def _where_it_leads(ranks: Ranking) -> str:
    """The experiments in which GORU, with any of its initializations, is ahead of GRU and LSTM with any of theirs."""
    ahead, level, behind = [], [], []
    for group in ranks.groups:
        rows = {name: paper.model(name).row for name in ranks.measure(group).ranked(group)}
        gated = [name for name in rows if rows[name] in ("GORU", "GRU", "LSTM") and not paper.model(name).ablation]
        if {"GORU"} < {rows[name] for name in gated}:
            first = gated[0]
            rival = next(name for name in gated if (rows[name] == "GORU") != (rows[first] == "GORU"))
            apart = ranks.measure(group).apart(group, first, rival)
            leads = level if not apart else ahead if rows[first] == "GORU" else behind
            leads.append(f"{ranks.label(group).lower()} ({paper.title(first)})")
    lead = f"Ahead of GRU and LSTM on {joined(ahead)}" if ahead else "Nowhere ahead of GRU and LSTM"
    words = {"level within the spread over seeds on": level, "behind on": behind}
    rest = "".join(f"; {word} {joined(places)}" for word, places in words.items() if places)
    return f"{lead}{rest}." if ahead or level or behind else ""


def _on_claims(verdicts: Sequence[claims.Verdict]) -> Sentence:
    judged = claims.by_claim(list(verdicts))
    counts = {status: sum(one.main.status == status for one in judged) for status in claims.STATUSES}
    if counts[claims.OPEN] == len(judged):
        return ()
    one = {status: counts[status] == 1 for status in counts}
    words = {
        claims.PARTLY: "in part",
        claims.NOT_REPRODUCED: "does not" if one[claims.NOT_REPRODUCED] else "do not",
        claims.OPEN: f"{'is' if one[claims.OPEN] else 'are'} not yet decided",
    }
    rest = [f"{counts[status]} {text}" for status, text in words.items() if counts[status]]
    verb = "holds" if one[claims.REPRODUCED] else "hold"
    hold = f"{counts[claims.REPRODUCED]} of the paper's {len(judged)} claims {verb}"
    return (f"{hold} in our runs{f', {joined(rest)}' if rest else ''}.", *other_starts(judged))


def other_starts(judged: Sequence[claims.Judged]) -> Sentence:
    """For other initializations of GORU, the claims with a better verdict in the paper's setting, and those that no
    longer hold.

    An initialization is left out if another one has all of its claims, judged at least as well, and more.
    """
    better: dict[str, dict[str, claims.Verdict]] = {}
    lost: dict[str, list[claims.Verdict]] = {}
    for one in judged:
        for other in one.others:
            alike = other.experiment is one.main.experiment and other.variant == one.main.variant
            if not other.stand_in or not alike or one.main.status == claims.OPEN:
                continue
            if claims.STATUSES.index(other.status) < claims.STATUSES.index(one.main.status):
                better.setdefault(other.stand_in, {})[one.claim.name] = other
            elif one.main.status == claims.REPRODUCED and other.status == claims.NOT_REPRODUCED:
                lost.setdefault(other.stand_in, []).append(other)
    shown = [start for start in better if not any(_covers(better[other], better[start]) for other in better)]
    return tuple(part for s in shown for part in _on_start(s, list(better[s].values()), lost.get(s, [])))


def _covers(more: dict[str, claims.Verdict], less: dict[str, claims.Verdict]) -> bool:
    rank = claims.STATUSES.index
    as_good = all(name in more and rank(more[name].status) <= rank(less[name].status) for name in less)
    same = all(name in less and less[name].status == more[name].status for name in more)
    return as_good and not same


_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")


def _on_start(start: str, verdicts: list[claims.Verdict], lost: list[claims.Verdict]) -> Sentence:
    """For GORU with memory, one more holds (C7: ...) and one in part (C1); C6 does not hold."""
    whole = [verdict for verdict in verdicts if verdict.status == claims.REPRODUCED]
    partly = [verdict for verdict in verdicts if verdict.status == claims.PARTLY]
    parts: list[str | Link] = [f" For {paper.title(start)}, "]
    if whole:
        parts += [f"{_COUNTS[len(whole)]} more {'holds' if len(whole) == 1 else 'hold'} ("]
        for k, verdict in enumerate(whole):
            link = Link(verdict.claim.name, verdict.anchor)
            parts += ["; " * (k > 0), link, f": {verdict.claim.text.removesuffix('.')}"]
        parts += [")"]
    if partly:
        verb = "" if whole else "holds " if len(partly) == 1 else "hold "
        parts += [f"{' and ' if whole else ''}{_COUNTS[len(partly)]} {verb}in part ("]
        for k, verdict in enumerate(partly):
            parts += [", " * (k > 0), Link(verdict.claim.name, verdict.anchor)]
        parts += [")"]
    for k, verdict in enumerate(lost):
        parts += [" and " if k else "; ", Link(verdict.claim.name, verdict.anchor)]
    if lost:
        parts += [" does not hold" if len(lost) == 1 else " do not hold"]
    return (*parts, ".")


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
