"""The vocabulary of claims: solved, at the baseline, better, best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goru.lab.paper.models import model, title
from goru.lab.paper.outcomes import Group, Record, Spread, number, spread

SOLVED = 0.1
"""Solved: final test loss below this fraction of the baseline."""
AT_BASELINE = 0.9
"""At the baseline: final test loss above this fraction of it."""
LAST = 20
"""Number of final evaluations to report besides the last one."""


@dataclass(frozen=True)
class Statement:
    """One checkable part of a claim."""

    text: str
    holds: bool
    evidence: str


class MissingError(Exception):
    """A claim needs runs that are missing; the message says which."""


class Facts:
    """What a rule can look up in a group of runs; `stand_in` replaces the model that it is another start of."""

    def __init__(self, group: Group, stand_in: str = "") -> None:
        self.group, self.stand_in = group, stand_in
        self._replaced = model(stand_in).start_of
        self.seeds: dict[str, int] = {}
        """The number of seeds of each model behind the verdict."""

    def name(self, model: str) -> str:
        return self.stand_in if model == self._replaced else model

    def title(self, model: str) -> str:
        return title(self.name(model))

    def runs(self, model: str) -> list[Record]:
        """The finished runs of a model; MissingError if there are none."""
        name = self.name(model)
        found = self.group.finished(name)
        if not found:
            failed = any(run.state == "failed" for run in self.group.runs(name))
            raise MissingError(f"{self.title(model)} failed" if failed else f"no finished run of {self.title(model)}")
        self.seeds[name] = len({run.config.seed for run in found})
        return found

    def whole(self, model: str, score: str) -> Spread:
        """A score of an experiment in parts, in percent: for each seed that has all parts the mean over them."""
        self.runs(model)
        name = self.name(model)
        complete = self.group.seed_means(name, score)
        if not complete:
            one, done = self.group.experiment, self.group.parts_done(name, score)
            raise MissingError(f"{done} of {one.part_count} {one.parts} of {self.title(model)} finished")
        self.seeds[name] = len(complete)
        return spread([100 * mean for mean in complete])

    def deviation_of_parts(self, model: str, score: str) -> float:
        """The deviation of a score over the parts, in points; each part is a mean over the seeds that have them all."""
        return 100 * spread(self.group.part_means(self.name(model), score)).deviation

    def failures(self) -> list[str]:
        """Descriptions of the models looked up that have failed runs."""
        failed = {name: sum(run.state == "failed" for run in self.group.models[name]) for name in self.seeds}
        runs = {name: len(self.group.models[name]) for name in self.seeds}
        return [f"{n} of {runs[name]} runs of {title(name)} failed" for name, n in failed.items() if n]

    def scores(self, model: str, name: str) -> list[float]:
        """A final score of every finished run of a model."""
        values = [run.score(name) for run in self.runs(model)]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            raise MissingError(f"no {name} of {self.title(model)}")
        return known

    def loss(self, model: str) -> Spread:
        return spread(self.scores(model, "test_loss"))

    def share(self, model: str) -> float:
        """Final test loss over the baseline."""
        return self.loss(model).mean / self.group.baseline

    def speed(self, model: str) -> Spread:
        return spread([run.mean_test_loss for run in self.runs(model)])

    def solved(self, model: str) -> bool:
        return self.share(model) < SOLVED

    def at_baseline(self, model: str) -> bool:
        return self.share(model) > AT_BASELINE

    # Evidence

    def shares(self, *models: str) -> str:
        """Where models end; the mean, and how many seeds solve the task if only some do."""
        return ", ".join(f"{self.title(m)} at {self._share(m)}" for m in models)

    def _share(self, model: str) -> str:
        text = f"{number(100 * self.share(model), 1)}% of the baseline"
        losses = self.scores(model, "test_loss")
        solved = sum(loss < SOLVED * self.group.baseline for loss in losses)
        return f"{text} (solved in {solved} of {len(losses)} seeds)" if 0 < solved < len(losses) else text

    def steadiness(self, *models: str) -> str:
        """How often models were below the bar at the end of training: the verdict depends on the last evaluation."""
        bar = SOLVED * self.group.baseline
        last = {m: [loss for run in self.runs(m) for loss in run.test.losses[-LAST:]] for m in models}
        counts = (f"{self.title(m)} in {sum(v < bar for v in last[m])} of the last {len(last[m])}" for m in models)
        return f"{self.shares(*models)}; below {SOLVED:.0%}: {', '.join(counts)} evaluations"

    def listed(self, measure: Callable[[str], Spread], *models: str) -> str:
        return ", ".join(f"{self.title(m)} {measure(m)}" for m in models)


Rule = Callable[[Facts], list[Statement]]
"""From the facts to the statements of a claim, the main one first."""


def better(a: Spread, b: Spread) -> bool:
    """Whether a is lower by more than the spread."""
    return b.mean - a.mean > max(a.deviation, b.deviation)


def best(what: str, ours: Spread, others: Sequence[Spread], evidence: str, *, higher: bool = False) -> list[Statement]:
    """GORU is best, in two statements: ahead of all others; by more than the spread."""
    ahead = (ours.mean > other.mean if higher else ours.mean < other.mean for other in others)
    clearly = (better(other, ours) if higher else better(ours, other) for other in others)
    margin = "by more than the spread over the seeds"
    if max(value.count for value in (ours, *others)) == 1:
        margin = "by any margin (one seed, so no spread to compare with)"
    elif ours.count == 1 and any(other.count == 1 for other in others):
        margin += " (over other rows of one seed by any margin)"
    return [
        Statement(f"GORU has the {what}", all(ahead), evidence),
        Statement(margin, all(clearly), evidence),
    ]


@dataclass(frozen=True)
class Level:
    """What a figure of the paper shows about a model, and whether our loss agrees with it."""

    text: str
    holds: Callable[[float, Sequence[float], float], bool]
    """From a model's final loss, those of `rivals` and the baseline."""
    rivals: tuple[str, ...] = ()


SOLVES = Level("solved", lambda loss, _, baseline: loss / baseline < SOLVED)
STAYS_AT_BASELINE = Level("at the baseline", lambda loss, _, baseline: loss / baseline > AT_BASELINE)
