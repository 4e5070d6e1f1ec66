"""The paper's claims, judged by rules that were fixed before the runs.

Solved: final test loss below 10 % of the memoryless baseline. At the baseline: above 90 % of it. Best: better
than every other model by more than the spread over seeds (the larger of the two standard deviations). Faster:
a lower test loss on average over training. A claim is a list of statements, the first its heart: reproduced
when all hold, not reproduced when the first does not, else partly. Losses are means over the finished seeds.
Where GORU was also run with its first published start, what the claims say of GORU is judged on that as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from goru.lab import paper
from goru.lab.report.records import Group, Record, Spread, spread

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
    """A model that the claim needs has no finished run."""


class _Facts:
    """What the claims ask of a group; `stand_in` is the model that takes GORU's place."""

    def __init__(self, group: Group, stand_in: str = "") -> None:
        self.group, self.stand_in = group, stand_in
        self.used: set[str] = set()

    def runs(self, model: str) -> list[Record]:
        name = self.stand_in if model == "goru" and self.stand_in else model
        found = self.group.finished(name)
        if not found:
            raise _MissingError(paper.title(name))
        self.used.add(name)
        return found

    def scores(self, model: str, name: str, scale: float = 1.0) -> list[float]:
        """A final score of every finished run of a model."""
        values = [run.score(name) for run in self.runs(model)]
        known = [scale * value for value in values if value is not None]
        if len(known) < len(values):
            raise _MissingError(f"{name} of {paper.title(model)}")
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
        return ", ".join(f"{paper.title(m)} at {self.share(m):.1%} of the baseline" for m in models)


def _better(a: Spread, b: Spread) -> bool:
    return b.mean - a.mean > max(a.deviation, b.deviation)


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
    models = ("eurnn-real", "eurnn-complex")
    threshold = paper.SOLVED * f.group.baseline
    first = {m: [run.first_step_below(threshold) for run in f.runs(m)] for m in models}
    quick = [m for m in models if all(step is not None and step < HUNDREDS for step in first[m])]
    told = "; ".join(
        f"{paper.title(m)}: {', '.join('never' if s is None else f'step {s}' for s in first[m])}" for m in models
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
        figures = [run.figure for run in f.runs(model) if run.figure and run.figure.get("gate_share_noise") is not None]
        if not figures:
            raise _MissingError(f"the gates of {paper.title(model)}")
        noise = spread([figure["gate_share_noise"] for figure in figures])
        brackets = spread([figure["gate_share_brackets"] for figure in figures])
        statements.append(
            Statement(
                f"the update gate of {paper.title(model)} peaks on noise",
                noise.mean - brackets.mean >= GATE_MARGIN,
                f"share of units above {figures[0]['gate_threshold']}: {noise} on noise, {brackets} on brackets",
            )
        )
    return statements


def _c7(f: _Facts) -> list[Statement]:
    """The spread is that over the folds; all ten are wanted."""
    others = ("gru", "lstm", "eurnn-real", "eurnn-complex")
    accuracy = {}
    for model in ("goru", *others):
        runs = f.runs(model)
        if len({run.config.variant for run in runs}) < FOLDS:
            raise _MissingError(f"all {FOLDS} folds of {paper.title(model)}")
        accuracy[model] = spread(f.scores(model, "test_accuracy", 100))
    told = ", ".join(f"{paper.title(m)} {value}" for m, value in accuracy.items())
    return [
        Statement(
            "GORU has the highest mean accuracy",
            all(accuracy["goru"].mean > accuracy[m].mean for m in others),
            told,
        ),
        Statement(
            "by more than the spread over the folds",
            all(_better(accuracy[m], accuracy["goru"]) for m in others),
            told,
        ),
    ]


def _c8(f: _Facts) -> list[Statement]:
    """A model's number is the mean over the 20 tasks, one for each seed that has them all."""
    others = ("gru", "lstm", "eurnn-real", "eurnn-complex")
    means = {}
    for model in ("goru", *others):
        by_seed: dict[int, dict[str, float]] = {}
        for run, accuracy in zip(f.runs(model), f.scores(model, "test_accuracy", 100), strict=True):
            by_seed.setdefault(run.config.seed, {})[run.config.variant] = accuracy
        complete = [fmean(tasks.values()) for tasks in by_seed.values() if len(tasks) == BABI_TASKS]
        if not complete:
            raise _MissingError(f"all {BABI_TASKS} tasks of {paper.title(model)}")
        means[model] = spread(complete)
    told = ", ".join(f"{paper.title(m)} {value}" for m, value in means.items())
    return [
        Statement(
            "GORU has the highest mean over the tasks",
            all(means["goru"].mean > means[m].mean for m in others),
            told,
        ),
        Statement(
            "by more than the spread over the seeds",
            all(_better(means[m], means["goru"]) for m in others),
            told,
        ),
    ]


def _bpc(f: _Facts, model: str) -> Spread:
    return spread(f.scores(model, "test_bpc"))


def _c9(f: _Facts) -> list[Statement]:
    goru, gated = _bpc(f, "goru"), {m: _bpc(f, m) for m in ("lstm", "gru")}
    eurnn = {m: _bpc(f, m) for m in ("eurnn-real", "eurnn-complex")}
    told = ", ".join(f"{paper.title(m)} {v}" for m, v in {"goru": goru, **gated, **eurnn}.items())
    return [
        Statement(
            f"GORU is at least {BPC_MARGIN} bits per character ahead of both EURNNs",
            all(value.mean - goru.mean >= BPC_MARGIN for value in eurnn.values()),
            told,
        ),
        Statement(
            f"GORU is within {BPC_MARGIN} of LSTM and GRU, or ahead",
            all(goru.mean - value.mean <= BPC_MARGIN for value in gated.values()),
            told,
        ),
    ]


def _c10(f: _Facts) -> list[Statement]:
    goru = _bpc(f, "goru")
    return [
        Statement(f"without the {gate} gate it is worse", _better(goru, without), f"GORU {goru}, without {without}")
        for gate, without in (("reset", _bpc(f, "goru-no-reset")), ("update", _bpc(f, "goru-no-update")))
    ]


def _c11(f: _Facts) -> list[Statement]:
    models = ("goru", "gru", "lstm", "eurnn-real", "eurnn-complex")
    errors = {m: f.loss(m) for m in models}
    told = ", ".join(f"{paper.title(m)} {value}" for m, value in errors.items())
    eurnn = min((errors["eurnn-real"], errors["eurnn-complex"]), key=lambda value: value.mean)
    return [
        Statement(
            "GORU has the lowest test error",
            all(_better(errors["goru"], errors[m]) for m in models[1:]),
            told,
        ),
        Statement(
            "an EURNN comes second",
            all(_better(eurnn, errors[m]) for m in ("gru", "lstm")),
            told,
        ),
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
        return Verdict(claim, group.variant, OPEN, note=f"no finished run yet: {missing}", stand_in=stand_in)
    if all(statement.holds for statement in statements):
        status = REPRODUCED
    else:
        status = PARTLY if statements[0].holds else NOT_REPRODUCED
    seeds = {len({run.config.seed for run in group.finished(model)}) for model in facts.used}
    few = min(seeds)
    note = "one seed" if seeds == {1} else f"{few} seeds" if len(seeds) == 1 else f"{few} to {max(seeds)} seeds"
    if group.kind == "quick":
        note += "; the small version, which says little about the paper's sizes"
    return Verdict(claim, group.variant, status, statements, note, stand_in)


_STAND_IN = "goru-june2017"


def judge_all(groups: list[Group]) -> list[Verdict]:
    """Every claim on every group that it is about; an undecided verdict where there are no runs at all."""
    verdicts = []
    for claim in paper.CLAIMS.values():
        about = [g for g in groups if g.experiment == claim.experiment and _judged(g)]
        for group in about:
            verdicts.append(judge(claim, group))
            if "GORU" in claim.text and _STAND_IN in group.models:
                verdicts.append(judge(claim, group, _STAND_IN))
        if not about:
            verdicts.append(Verdict(claim, "", OPEN, note="not run"))
    return verdicts


def _judged(group: Group) -> bool:
    """Claims about a data set are not judged on generated data."""
    generated = paper.EXPERIMENTS[group.experiment].generated
    return not generated or not group.kind
