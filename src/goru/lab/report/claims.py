"""The paper's claims, judged by rules that were fixed before the runs.

Solved: final test loss below 10 % of the memoryless baseline. At the baseline: above 90 % of it. Best: better
than every other model by more than the spread over seeds (the larger of the two standard deviations; with one
seed there is none). Faster: a lower test loss on average over training. A claim is a list of statements, the first
its heart: reproduced when all hold, not reproduced when the first does not, else partly; while a seed of a model
has failed, no more than partly. Numbers are means over the finished seeds, of folds and tasks over the seeds that
have them all. The paper has one EURNN, here are two, real and complex: where it is said to do well the better one
counts, where it is said to fall behind both do. Where GORU was also run with its first published start, what the
claims say of GORU is judged on that as well. How claims are taken apart into statements was mended once after the
first runs; the decisions say where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goru.lab import paper
from goru.lab.report.records import Group, Record, Spread, seed_means, spread

REPRODUCED, PARTLY, NOT_REPRODUCED, OPEN = "reproduced", "partly", "not reproduced", "not yet decided"
STATUSES = (REPRODUCED, PARTLY, NOT_REPRODUCED, OPEN)

HUNDREDS = 1000
""""Within hundreds of iterations": fewer than this."""
FOLDS = 10
BABI_TASKS = 20
BPC_MARGIN = 0.05
"""Bits per character: closer is close, further ahead is well ahead (in the paper: 0.03 and 0.09)."""
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
    stand_in: str = ""
    """The model that took GORU's place, where one did."""

    @property
    def runs(self) -> str:
        """On which runs it was judged, in words."""
        return f"{self.variant}, {paper.title(self.stand_in)}" if self.stand_in else self.variant

    @property
    def anchor(self) -> str:
        """Where on the page the evidence is."""
        return "-".join(part for part in (self.claim.name, self.claim.experiment, self.variant, self.stand_in) if part)


class _MissingError(Exception):
    """What a claim needs and is not there yet, in words."""


class _Facts:
    """What the claims ask of a group; `stand_in` is the model that takes GORU's place."""

    def __init__(self, group: Group, stand_in: str = "") -> None:
        self.group, self.stand_in = group, stand_in
        self.seeds: dict[str, int] = {}
        """Of every model that was asked for: on how many seeds the verdict rests."""

    def name(self, model: str) -> str:
        return self.stand_in if model == "goru" and self.stand_in else model

    def title(self, model: str) -> str:
        return paper.title(self.name(model))

    def runs(self, model: str) -> list[Record]:
        name = self.name(model)
        found = self.group.finished(name)
        if not found:
            failed = any(run.state == "failed" for run in self.group.models.get(name, []))
            raise _MissingError(f"{self.title(model)} failed" if failed else f"no finished run of {self.title(model)}")
        self.seeds[name] = len({run.config.seed for run in found})
        return found

    def whole(self, model: str, score: str, parts: int, word: str) -> Spread:
        """A score of an experiment in parts, in percent: for each seed that has them all the mean over them."""
        runs = self.runs(model)
        complete = seed_means(runs, score, parts)
        if not complete:
            seeds = {run.config.seed for run in runs}
            done = max(sum(run.config.seed == seed and run.score(score) is not None for run in runs) for seed in seeds)
            raise _MissingError(f"{done} of {parts} {word} of {self.title(model)} finished")
        self.seeds[self.name(model)] = len(complete)
        return spread([100 * mean for mean in complete])

    def deviation_of_parts(self, model: str, score: str) -> float:
        """How a score differs over the parts, in points, of the seeds that have them all."""
        values = [run.score(score) for run in self.group.shown(self.name(model))]
        return spread([100 * value for value in values if value is not None]).deviation

    def failures(self) -> list[str]:
        """Of the models asked for: the ones that have runs which failed, in words."""
        told = []
        for name in self.seeds:
            records = self.group.models[name]
            failed = sum(run.state == "failed" for run in records)
            if failed:
                told.append(f"{failed} of {len(records)} runs of {paper.title(name)} failed")
        return told

    def scores(self, model: str, name: str) -> list[float]:
        """A final score of every finished run of a model."""
        values = [run.score(name) for run in self.runs(model)]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            raise _MissingError(f"no {name} of {self.title(model)}")
        return known

    def loss(self, model: str) -> Spread:
        return spread(self.scores(model, "test_loss"))

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
        return ", ".join(f"{self.title(m)} at {self.share(m):.1%} of the baseline" for m in models)

    def told(self, measure: Callable[[str], Spread], *models: str) -> str:
        return ", ".join(f"{self.title(m)} {measure(m)}" for m in models)


def _better(a: Spread, b: Spread) -> bool:
    """Whether a is lower by more than the spread."""
    return b.mean - a.mean > max(a.deviation, b.deviation)


EURNNS = ("eurnn-real", "eurnn-complex")
OTHERS = ("gru", "lstm", *EURNNS)


def _best(what: str, ours: Spread, others: Sequence[Spread], evidence: str, sign: int = 1) -> list[Statement]:
    """GORU is best, in two statements: ahead of all others; by more than the spread. `sign` -1: higher is better."""
    return [
        Statement(f"GORU has the {what}", all(sign * (other.mean - ours.mean) > 0 for other in others), evidence),
        Statement(
            "by more than the spread over the seeds",
            all(_better(ours, other) if sign > 0 else _better(other, ours) for other in others),
            evidence,
        ),
    ]


def _c1(f: _Facts) -> list[Statement]:
    return [
        Statement("GORU solves it", f.solved("goru"), f.shares("goru")),
        Statement("neither GRU nor LSTM does", not f.solved("gru") and not f.solved("lstm"), f.shares("gru", "lstm")),
        Statement(
            "GRU and LSTM stay at the baseline",
            f.at_baseline("gru") and f.at_baseline("lstm"),
            f.shares("gru", "lstm"),
        ),
    ]


def _c2(f: _Facts) -> list[Statement]:
    threshold = paper.SOLVED * f.group.baseline
    first = {m: [run.first_step_below(threshold) for run in f.runs(m)] for m in EURNNS}
    solving = [m for m in EURNNS if f.solved(m)]
    quick = [m for m in solving if all(step is not None and step < HUNDREDS for step in first[m])]
    told = "; ".join(
        f"{f.title(m)}: {', '.join('never' if s is None else f'step {s}' for s in first[m])}" for m in EURNNS
    )
    return [
        Statement("an EURNN solves it", bool(solving), f.shares(*EURNNS)),
        Statement(f"in fewer than {HUNDREDS} iterations", bool(quick), f"first below 10 %: {told}"),
    ]


def _c3(f: _Facts) -> list[Statement]:
    stay = [m for m in EURNNS if f.at_baseline(m)]
    return [
        Statement("an EURNN stays at the baseline", bool(stay), f.shares(*EURNNS)),
        Statement("both do", len(stay) == len(EURNNS), f.shares(*EURNNS)),
    ]


def _c4(f: _Facts) -> list[Statement]:
    gated = ("goru", "gru")
    return [
        Statement("GORU and GRU solve it", all(f.solved(m) for m in gated), f.shares(*gated)),
        Statement(
            "both end with a lower loss than LSTM",
            all(_better(f.loss(m), f.loss("lstm")) for m in gated),
            f.told(f.loss, *gated, "lstm"),
        ),
        Statement(
            "both learn faster than LSTM",
            all(_better(f.speed(m), f.speed("lstm")) for m in gated),
            f"mean test loss over training: {f.told(f.speed, *gated, 'lstm')}",
        ),
    ]


def _c5(f: _Facts) -> list[Statement]:
    told = f.told(f.loss, "goru", *OTHERS)
    return [
        *_best("lowest final loss", f.loss("goru"), [f.loss(m) for m in OTHERS], told),
        Statement(
            "GORU learns fastest",
            all(_better(f.speed("goru"), f.speed(m)) for m in OTHERS),
            f"mean test loss over training: {f.told(f.speed, 'goru', *OTHERS)}",
        ),
    ]


def _c6(f: _Facts) -> list[Statement]:
    statements = []
    for model in ("goru", "gru"):
        figures = [run.figure for run in f.runs(model) if run.figure and run.figure.get("gate_share_noise") is not None]
        if not figures:
            raise _MissingError(f"no gates of {f.title(model)}")
        noise = spread([figure["gate_share_noise"] for figure in figures])
        brackets = spread([figure["gate_share_brackets"] for figure in figures])
        statements.append(
            Statement(
                f"the update gate of {f.title(model)} peaks on noise",
                noise.mean - brackets.mean >= GATE_MARGIN,
                f"share of units above {figures[0]['gate_threshold']}: {noise} on noise, {brackets} on brackets",
            )
        )
    return statements


def _c7(f: _Facts) -> list[Statement]:
    means = {m: f.whole(m, "test_accuracy", FOLDS, "folds") for m in ("goru", *OTHERS)}
    folds = {m: f.deviation_of_parts(m, "test_accuracy") for m in means}
    told = ", ".join(f"{f.title(m)} {value} (over the folds ± {folds[m]:.1f})" for m, value in means.items())
    return _best("highest mean accuracy", means["goru"], [means[m] for m in OTHERS], told, sign=-1)


def _c8(f: _Facts) -> list[Statement]:
    means = {m: f.whole(m, "test_accuracy", BABI_TASKS, "tasks") for m in ("goru", *OTHERS)}
    told = f.told(means.__getitem__, *means)
    return _best("highest mean over the tasks", means["goru"], [means[m] for m in OTHERS], told, sign=-1)


def _bpc(f: _Facts, model: str) -> Spread:
    return spread(f.scores(model, "test_bpc"))


def _c9(f: _Facts) -> list[Statement]:
    bits = {m: _bpc(f, m) for m in ("goru", "lstm", "gru", *EURNNS)}
    told, goru = f.told(bits.__getitem__, *bits), bits["goru"]
    return [
        Statement(
            f"GORU is at least {BPC_MARGIN} bits per character ahead of both EURNNs",
            all(bits[m].mean - goru.mean >= BPC_MARGIN for m in EURNNS),
            told,
        ),
        Statement(
            f"GORU is within {BPC_MARGIN} of LSTM and GRU, or ahead",
            all(goru.mean - bits[m].mean <= BPC_MARGIN for m in ("lstm", "gru")),
            told,
        ),
    ]


def _c10(f: _Facts) -> list[Statement]:
    goru = _bpc(f, "goru")
    without = {gate: _bpc(f, f"goru-no-{gate}") for gate in ("reset", "update")}
    worse = [gate for gate, bits in without.items() if _better(goru, bits)]
    told = ", ".join(["GORU " + str(goru), *(f"without {gate} gate {bits}" for gate, bits in without.items())])
    return [
        Statement("without one of its gates it is worse", bool(worse), told),
        *(Statement(f"without the {gate} gate it is worse", gate in worse, told) for gate in without),
    ]


def _c11(f: _Facts) -> list[Statement]:
    errors = {m: f.loss(m) for m in ("goru", *OTHERS)}
    told = f.told(errors.__getitem__, *errors)
    eurnn = min((errors[m] for m in EURNNS), key=lambda value: value.mean)
    return [
        *_best("lowest test error", errors["goru"], [errors[m] for m in OTHERS], told),
        Statement("an EURNN is ahead of GRU and LSTM", all(_better(eurnn, errors[m]) for m in ("gru", "lstm")), told),
    ]


_RULES: dict[str, Callable[[_Facts], list[Statement]]] = {
    "C1": _c1,
    "C2": _c2,
    "C3": _c3,
    "C4": _c4,
    "C5": _c5,
    "C6": _c6,
    "C7": _c7,
    "C8": _c8,
    "C9": _c9,
    "C10": _c10,
    "C11": _c11,
}


def judge(claim: paper.Claim, group: Group, stand_in: str = "") -> Verdict:
    """The verdict on a claim from the finished runs of a group, with another model in GORU's place on request."""
    facts = _Facts(group, stand_in)
    try:
        statements = tuple(_RULES[claim.name](facts))
    except _MissingError as missing:
        return Verdict(claim, group.variant, OPEN, note=str(missing), stand_in=stand_in)
    failures = facts.failures()
    if all(statement.holds for statement in statements) and not failures:
        status = REPRODUCED
    else:
        status = PARTLY if statements[0].holds else NOT_REPRODUCED
    few, many = min(facts.seeds.values()), max(facts.seeds.values())
    seeds = "one seed" if many == 1 else f"{few} seeds" if few == many else f"{few} to {many} seeds"
    small = ["the small version, which says little about the paper's sizes"] if group.kind == "quick" else []
    return Verdict(claim, group.variant, status, statements, "; ".join([seeds, *failures, *small]), stand_in)


_STAND_IN = "goru-june2017"


def judge_all(groups: list[Group]) -> list[Verdict]:
    """Every claim on every group that it is about, the paper's setting first; undecided where that was not run.

    Where there are no other runs at all, the small version leads.
    """
    verdicts = []
    only_small = all(group.kind == "quick" for group in groups)
    for claim in paper.CLAIMS.values():
        about = [g for g in groups if g.experiment == claim.experiment and _judged(g)]
        if not about or (about[0].variant != "paper" and not only_small):
            verdicts.append(Verdict(claim, "paper" if about else "", OPEN, note="not run"))
        for group in about:
            verdicts.append(judge(claim, group))
            if "GORU" in claim.text and _STAND_IN in group.models:
                verdicts.append(judge(claim, group, _STAND_IN))
    return verdicts


def _judged(group: Group) -> bool:
    """Claims about a data set are not judged on generated data, and no claim on settings of one's own."""
    return not group.kind or (group.kind == "quick" and not paper.EXPERIMENTS[group.experiment].generated)
