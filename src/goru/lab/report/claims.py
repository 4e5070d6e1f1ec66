"""The paper's claims, judged by rules that were fixed before the runs.

Solved: final test loss below 10 % of the memoryless baseline. At the baseline: above 90 % of it. Best: better
than every other model by more than the spread over seeds (the larger of the two standard deviations). Faster:
a lower test loss on average over training. A claim is a list of statements, the first its heart: reproduced
when all hold, not reproduced when the first does not, else partly. Losses are means over the finished seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goru.lab import paper
from goru.lab.report.records import Group, Record, Spread, spread

REPRODUCED, PARTLY, NOT_REPRODUCED, OPEN = "reproduced", "partly", "not reproduced", "open"

HUNDREDS = 1000
""""Within hundreds of iterations": fewer than this."""
GATE_MARGIN = 0.05
"""The gate peaks on noise when its mean share there is higher by at least this."""


@dataclass(frozen=True)
class Statement:
    """One checkable part of a claim."""

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Verdict:
    """A claim judged on one group of runs."""

    claim: paper.Claim
    variant: str
    status: str
    statements: tuple[Statement, ...] = ()
    note: str = ""


class _MissingError(Exception):
    """A model that the claim needs has no finished run."""


class _Facts:
    """What the claims ask of a group."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.used: set[str] = set()

    def runs(self, model: str) -> list[Record]:
        found = self.group.finished(model)
        if not found:
            raise _MissingError(paper.title(model))
        self.used.add(model)
        return found

    def loss(self, model: str) -> Spread:
        return spread([run.score("test_loss") or 0.0 for run in self.runs(model)])

    def share(self, model: str) -> float:
        """Final test loss over the baseline."""
        return self.loss(model).mean / self.group.baseline

    def speed(self, model: str) -> Spread:
        return spread([run.mean_test_loss for run in self.runs(model)])

    def solved(self, model: str) -> bool:
        return self.share(model) < paper.SOLVED

    def at_baseline(self, model: str) -> bool:
        return self.share(model) > paper.AT_BASELINE

    def shares(self, *models: str) -> str:
        return ", ".join(f"{paper.title(m)} at {self.share(m):.1%} of the baseline" for m in models)


def _better(a: Spread, b: Spread) -> bool:
    return b.mean - a.mean > max(a.deviation, b.deviation)


def _c1(f: _Facts) -> list[Statement]:
    return [
        Statement("GORU solves it", f.solved("goru"), f.shares("goru")),
        Statement(
            "neither GRU nor LSTM does", not f.solved("gru") and not f.solved("lstm"), f.shares("gru", "lstm")
        ),
        Statement(
            "GRU and LSTM stay at the baseline",
            f.at_baseline("gru") and f.at_baseline("lstm"),
            f.shares("gru", "lstm"),
        ),
    ]


def _c2(f: _Facts) -> list[Statement]:
    models = ("eurnn-real", "eurnn-complex")
    threshold = paper.SOLVED * f.group.baseline
    first = {m: [run.first_step_below(threshold) for run in f.runs(m)] for m in models}
    quick = [m for m in models if all(step is not None and step < HUNDREDS for step in first[m])]
    told = "; ".join(
        f"{paper.title(m)}: {', '.join('never' if s is None else f'step {s}' for s in first[m])}"
        for m in models
    )
    return [
        Statement("an EURNN solves it", any(f.solved(m) for m in models), f.shares(*models)),
        Statement(f"in fewer than {HUNDREDS} iterations", bool(quick), f"first below 10 %: {told}"),
    ]


def _c3(f: _Facts) -> list[Statement]:
    models = ("eurnn-real", "eurnn-complex")
    return [
        Statement("no EURNN solves it", not any(f.solved(m) for m in models), f.shares(*models)),
        Statement("both stay at the baseline", all(f.at_baseline(m) for m in models), f.shares(*models)),
    ]


def _c4(f: _Facts) -> list[Statement]:
    lstm, speed = f.loss("lstm"), f.speed("lstm")
    return [
        Statement("GORU and GRU solve it", f.solved("goru") and f.solved("gru"), f.shares("goru", "gru")),
        Statement(
            "both end with a lower loss than LSTM",
            all(_better(f.loss(m), lstm) for m in ("goru", "gru")),
            f"GORU {f.loss('goru')}, GRU {f.loss('gru')}, LSTM {lstm}",
        ),
        Statement(
            "both learn faster than LSTM",
            all(_better(f.speed(m), speed) for m in ("goru", "gru")),
            f"mean test loss over training: GORU {f.speed('goru')}, GRU {f.speed('gru')}, LSTM {speed}",
        ),
    ]


def _c5(f: _Facts) -> list[Statement]:
    others = ("gru", "lstm", "eurnn-real", "eurnn-complex")

    def told(measure: Callable[[str], Spread]) -> str:
        return ", ".join(f"{paper.title(m)} {measure(m)}" for m in ("goru", *others))

    return [
        Statement(
            "GORU has the best final loss",
            all(_better(f.loss("goru"), f.loss(m)) for m in others),
            told(f.loss),
        ),
        Statement(
            "GORU learns fastest",
            all(_better(f.speed("goru"), f.speed(m)) for m in others),
            f"mean test loss over training: {told(f.speed)}",
        ),
    ]


def _c6(f: _Facts) -> list[Statement]:
    statements = []
    for model in ("goru", "gru"):
        figures = [run.figure for run in f.runs(model) if run.figure]
        if not figures:
            raise _MissingError(f"the gates of {paper.title(model)}")
        noise = spread([figure["gate_share_noise"] for figure in figures])
        brackets = spread([figure["gate_share_brackets"] for figure in figures])
        statements.append(
            Statement(
                f"the update gate of {paper.title(model)} peaks on noise",
                noise.mean - brackets.mean >= GATE_MARGIN,
                f"share of units above {figures[0]['gate_threshold']}: "
                f"{noise} on noise, {brackets} on brackets",
            )
        )
    return statements


_RULES: dict[str, Callable[[_Facts], list[Statement]]] = {
    "C1": _c1,
    "C2": _c2,
    "C3": _c3,
    "C4": _c4,
    "C5": _c5,
    "C6": _c6,
}


def judge(claim: paper.Claim, group: Group) -> Verdict:
    """The verdict on a claim from the finished runs of a group."""
    facts = _Facts(group)
    try:
        statements = tuple(_RULES[claim.name](facts))
    except _MissingError as missing:
        return Verdict(claim, group.variant, OPEN, note=f"no finished run yet: {missing}")
    if all(statement.holds for statement in statements):
        status = REPRODUCED
    else:
        status = PARTLY if statements[0].holds else NOT_REPRODUCED
    seeds = {len(group.finished(model)) for model in facts.used}
    few = min(seeds)
    note = (
        "one seed" if seeds == {1} else f"{few} seeds" if len(seeds) == 1 else f"{few} to {max(seeds)} seeds"
    )
    return Verdict(claim, group.variant, status, statements, note)


def judge_all(groups: list[Group]) -> list[Verdict]:
    """Every claim on every group that it is about; an open verdict where there are no runs at all."""
    verdicts = []
    for claim in paper.CLAIMS.values():
        about = [g for g in groups if g.experiment == claim.experiment and claim.name in _RULES]
        verdicts += [judge(claim, group) for group in about]
        if not about:
            verdicts.append(Verdict(claim, "", OPEN, note="not run"))
    return verdicts
