"""The paper's claims, judged on groups of runs by the rules of their experiments."""

from __future__ import annotations

from dataclasses import dataclass

from goru.lab import paper
from goru.lab.paper.definition import Claim, Experiment
from goru.lab.paper.outcomes import Group
from goru.lab.paper.rules import Facts, MissingError, Statement

REPRODUCED, PARTLY, NOT_REPRODUCED, OPEN = "reproduced", "partly", "not reproduced", "not yet decided"
STATUSES = (REPRODUCED, PARTLY, NOT_REPRODUCED, OPEN)

HOW_JUDGED = """\
Solved: the final test loss is below 10 % of the baseline, the loss of the best answer that ignores the input. At the
baseline: it is above 90 % of the baseline. Best: better than every other model by more than the spread over seeds (the
larger of the two standard deviations; zero with one seed). Faster: a lower mean test loss over training. A claim is a
list of statements, the main one first. It is reproduced if all hold, not reproduced if the first does not hold, and
partly reproduced otherwise. If a seed of a model has failed, the claim is at most partly reproduced. Numbers are means
over finished seeds; with folds or tasks, over the seeds that have finished all of them. The paper has one EURNN, we run
two, real and complex: if the paper says that EURNN does well, the better one counts; if it says that EURNN falls
behind, both must. Claims are also judged on other initializations of GORU, or of the EURNN if they are about that one,
wherever those were run. The rules were fixed before the runs; how claims are split into statements was revised once
after the first runs, see docs/decisions.md.
"""
"""Shown on the page."""


@dataclass(frozen=True)
class Verdict:
    """A claim judged on one group of runs."""

    claim: Claim
    experiment: Experiment
    variant: str
    status: str
    statements: tuple[Statement, ...] = ()
    note: str = ""
    stand_in: str = ""
    """The model judged in place of the one that the claim is about, if any."""

    @property
    def runs(self) -> str:
        """A description of the runs that it was judged on."""
        reading = self.experiment.label if self.experiment.second_reading else ""
        setting = "" if (self.stand_in or reading) and self.variant == "paper" else self.variant
        model = paper.title(self.stand_in) if self.stand_in else ""
        return ", ".join(part for part in (reading, setting, model) if part)

    @property
    def anchor(self) -> str:
        """The id of the evidence on the page."""
        return "-".join(part for part in (self.claim.name, self.experiment.name, self.variant, self.stand_in) if part)


@dataclass(frozen=True)
class Judged:
    """A claim with its verdicts: first on the paper's setting, then on the others."""

    claim: Claim
    main: Verdict
    others: list[Verdict]


def judge(claim: Claim, group: Group, stand_in: str = "") -> Verdict:
    """The verdict on a claim from the finished runs of a group, optionally on another start of its model."""
    facts = Facts(group, stand_in)
    try:
        statements = tuple(claim.rule(facts))
    except MissingError as missing:
        return Verdict(claim, group.experiment, group.variant, OPEN, note=str(missing), stand_in=stand_in)
    failures = facts.failures()
    if all(statement.holds for statement in statements) and not failures:
        status = REPRODUCED
    else:
        status = PARTLY if statements[0].holds else NOT_REPRODUCED
    few, many = min(facts.seeds.values()), max(facts.seeds.values())
    seeds = "one seed" if many == 1 else f"{few} seeds" if few == many else f"{few} to {many} seeds"
    note = "; ".join([seeds, *failures])
    return Verdict(claim, group.experiment, group.variant, status, statements, note, stand_in)


def judge_all(groups: list[Group]) -> list[Verdict]:
    """Every claim on every full-size group of its experiment, first the paper's setting, even if that was not run.

    A second reading of an experiment judges its claims again.

    Small runs, generated data and custom settings judge no claim.
    """
    verdicts = []
    for one in paper.EXPERIMENTS.values():
        about = [group for group in groups if group.experiment.name == one.name and not group.kind]
        for claim in one.claims:
            if not one.second_reading and (not about or about[0].variant != "paper"):
                verdicts.append(Verdict(claim, one, "paper" if about else "", OPEN, note="not run"))
            for group in about:
                verdicts.append(judge(claim, group))
                starts = [name for name in group.models if claim.about and paper.model(name).start_of == claim.about]
                verdicts += [judge(claim, group, start) for start in starts]
    return verdicts


def by_claim(verdicts: list[Verdict]) -> list[Judged]:
    """The verdicts claim by claim, in the paper's order."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.claim.name, []).append(verdict)
    return [Judged(main.claim, main, others) for main, *others in found.values()]
