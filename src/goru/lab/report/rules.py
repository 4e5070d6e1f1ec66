"""What each of the paper's claims says, statement by statement, as questions to a group of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from goru.lab import paper
from goru.lab.report.records import Group, Record, Spread, parts_done, seed_means, spread

HUNDREDS = 1000
""""Within hundreds of iterations": fewer than this."""
BPC_MARGIN = 0.05
"""Bits per character: closer is close, further ahead is well ahead (in the paper: 0.03 and 0.09)."""
GATE_MARGIN = 0.05
"""The gate peaks on noise when its mean share there is higher by at least this."""
LAST = 20
"""Evaluations at the end of a training that are told beside its last one."""


@dataclass(frozen=True)
class Statement:
    """One checkable part of a claim."""

    text: str
    holds: bool
    evidence: str


class MissingError(Exception):
    """What a claim needs and is not there yet, in words."""


class Facts:
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
            raise MissingError(f"{self.title(model)} failed" if failed else f"no finished run of {self.title(model)}")
        self.seeds[name] = len({run.config.seed for run in found})
        return found

    def whole(self, model: str, score: str) -> Spread:
        """A score of an experiment in parts, in percent: for each seed that has them all the mean over them."""
        runs, one = self.runs(model), paper.EXPERIMENTS[self.group.experiment]
        complete = seed_means(runs, score, len(one.variants))
        if not complete:
            done = parts_done([run for run in runs if run.score(score) is not None])
            raise MissingError(f"{done} of {len(one.variants)} {one.part_word} of {self.title(model)} finished")
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
        return self.share(model) < paper.SOLVED

    def at_baseline(self, model: str) -> bool:
        return self.share(model) > paper.AT_BASELINE

    def shares(self, *models: str) -> str:
        return ", ".join(f"{self.title(m)} at {self.share(m):.1%} of the baseline" for m in models)

    def steadiness(self, *models: str) -> str:
        """How often models were below the bar at the end of training: the verdict hangs on the last evaluation."""
        bar = paper.SOLVED * self.group.baseline
        last = {m: [loss for run in self.runs(m) for loss in run.test.losses[-LAST:]] for m in models}
        counts = (f"{self.title(m)} in {sum(v < bar for v in last[m])} of the last {len(last[m])}" for m in models)
        return f"{self.shares(*models)}; below {paper.SOLVED:.0%}: {', '.join(counts)} evaluations"

    def told(self, measure: Callable[[str], Spread], *models: str) -> str:
        return ", ".join(f"{self.title(m)} {measure(m)}" for m in models)


def _better(a: Spread, b: Spread) -> bool:
    """Whether a is lower by more than the spread."""
    return b.mean - a.mean > max(a.deviation, b.deviation)


EURNNS = ("eurnn-real", "eurnn-complex")
OTHERS = ("gru", "lstm", *EURNNS)


def _best(what: str, ours: Spread, others: Sequence[Spread], evidence: str, sign: int = 1) -> list[Statement]:
    """GORU is best, in two statements: ahead of all others; by more than the spread. `sign` -1: higher is better."""
    one_seed = max(value.count for value in (ours, *others)) == 1
    return [
        Statement(f"GORU has the {what}", all(sign * (other.mean - ours.mean) > 0 for other in others), evidence),
        Statement(
            "by more than the spread over the seeds" + (" (one seed: there is none)" if one_seed else ""),
            all(_better(ours, other) if sign > 0 else _better(other, ours) for other in others),
            evidence,
        ),
    ]


def _c1(f: Facts) -> list[Statement]:
    return [
        Statement("GORU solves it", f.solved("goru"), f.steadiness("goru")),
        Statement("neither GRU nor LSTM does", not f.solved("gru") and not f.solved("lstm"), f.shares("gru", "lstm")),
        Statement(
            "GRU and LSTM stay at the baseline",
            f.at_baseline("gru") and f.at_baseline("lstm"),
            f.shares("gru", "lstm"),
        ),
    ]


def _c2(f: Facts) -> list[Statement]:
    threshold = paper.SOLVED * f.group.baseline
    first = {m: [run.first_step_below(threshold) for run in f.runs(m)] for m in EURNNS}
    solving = [m for m in EURNNS if f.solved(m)]
    quick = [m for m in solving if all(step is not None and step < HUNDREDS for step in first[m])]
    told = "; ".join(
        f"{f.title(m)}: {', '.join('never' if s is None else f'step {s}' for s in first[m])}" for m in EURNNS
    )
    return [
        Statement("an EURNN solves it", bool(solving), f.steadiness(*EURNNS)),
        Statement(f"in fewer than {HUNDREDS} iterations", bool(quick), f"first below 10 %: {told}"),
    ]


def _c3(f: Facts) -> list[Statement]:
    stay = [m for m in EURNNS if f.at_baseline(m)]
    return [
        Statement("an EURNN stays at the baseline", bool(stay), f.shares(*EURNNS)),
        Statement("both do", len(stay) == len(EURNNS), f.shares(*EURNNS)),
    ]


def _c4(f: Facts) -> list[Statement]:
    gated = ("goru", "gru")
    return [
        Statement("GORU and GRU solve it", all(f.solved(m) for m in gated), f.steadiness(*gated)),
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


def _c5(f: Facts) -> list[Statement]:
    told = f.told(f.loss, "goru", *OTHERS)
    return [
        *_best("lowest final loss", f.loss("goru"), [f.loss(m) for m in OTHERS], told),
        Statement(
            "GORU learns fastest",
            all(_better(f.speed("goru"), f.speed(m)) for m in OTHERS),
            f"mean test loss over training: {f.told(f.speed, 'goru', *OTHERS)}",
        ),
    ]


def _c6(f: Facts) -> list[Statement]:
    statements = []
    for model in ("goru", "gru"):
        figures = [run.figure for run in f.runs(model) if run.figure and run.figure.get("gate_share_noise") is not None]
        if not figures:
            raise MissingError(f"no gates of {f.title(model)}")
        f.seeds[f.name(model)] = len(figures)
        noise = spread([figure["gate_share_noise"] for figure in figures])
        brackets = spread([figure["gate_share_brackets"] for figure in figures])
        statements.append(
            Statement(
                f"the update gate of {f.title(model)} peaks on noise, by at least {GATE_MARGIN}",
                noise.mean - brackets.mean >= GATE_MARGIN,
                f"share of units above {figures[0]['gate_threshold']}: {noise} on noise, {brackets} on brackets",
            )
        )
    return statements


def _c7(f: Facts) -> list[Statement]:
    means = {m: f.whole(m, "test_accuracy") for m in ("goru", *OTHERS)}
    folds = {m: f.deviation_of_parts(m, "test_accuracy") for m in means}
    told = ", ".join(f"{f.title(m)} {value} (over the folds ± {folds[m]:.1f})" for m, value in means.items())
    return _best("highest mean accuracy", means["goru"], [means[m] for m in OTHERS], told, sign=-1)


def _c8(f: Facts) -> list[Statement]:
    means = {m: f.whole(m, "test_accuracy") for m in ("goru", *OTHERS)}
    told = f.told(means.__getitem__, *means)
    return _best("highest mean over the tasks", means["goru"], [means[m] for m in OTHERS], told, sign=-1)


def _bpc(f: Facts, model: str) -> Spread:
    return spread(f.scores(model, "test_bpc"))


def _c9(f: Facts) -> list[Statement]:
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


def _c10(f: Facts) -> list[Statement]:
    goru = _bpc(f, "goru")
    without = {gate: _bpc(f, f"goru-no-{gate}") for gate in ("reset", "update")}
    worse = [gate for gate, bits in without.items() if _better(goru, bits)]
    told = ", ".join(["GORU " + str(goru), *(f"without {gate} gate {bits}" for gate, bits in without.items())])
    return [
        Statement("without one of its gates it is worse", bool(worse), told),
        *(Statement(f"without the {gate} gate it is worse", gate in worse, told) for gate in without),
    ]


def _c11(f: Facts) -> list[Statement]:
    errors = {m: f.loss(m) for m in ("goru", *OTHERS)}
    told = f.told(errors.__getitem__, *errors)
    eurnn = min((errors[m] for m in EURNNS), key=lambda value: value.mean)
    return [
        *_best("lowest test error", errors["goru"], [errors[m] for m in OTHERS], told),
        Statement("an EURNN is ahead of GRU and LSTM", all(_better(eurnn, errors[m]) for m in ("gru", "lstm")), told),
    ]


RULES: dict[str, Callable[[Facts], list[Statement]]] = {
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
