"""The data of the figures, for the static files and for the interactive page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from goru.lab import paper
from goru.lab.paper.models import Model
from goru.lab.paper.outcomes import Curve, Group, Record

RISES = 1.05
"""A loss has risen again if its end is above its minimum times this."""


@dataclass(frozen=True)
class Series:
    """The held-out loss of a model along training: mean, lowest and highest over its runs."""

    model: Model
    runs: int
    steps: np.ndarray
    seconds: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def end(self) -> float:
        """The last loss that is a number; nan if none is."""
        known = self.mean[np.isfinite(self.mean)]
        return float(known[-1]) if len(known) else math.nan


def series(group: Group) -> list[Series]:
    """One per model, over the runs that the tables show."""
    return [_series(model, [record.test for record in group.shown(model)]) for model in group.models]


def reading(group: Group) -> str:
    """How to read the curves: what those over several runs are, and whether some are cut off at the top."""
    found, shown = [], series(group)
    if any(s.runs > 1 for s in shown):
        lengths = [{len(record.test.steps) for record in group.shown(model)} for model in group.models]
        cut = ", up to the last iteration that all reached" if any(len(some) > 1 for some in lengths) else ""
        found.append(f"Lines: mean over the runs of a model{cut}. Shading: their range.")
    highest = max((float(v.max()) for s in shown if len(v := s.mean[np.isfinite(s.mean)])), default=0.0)
    if highest > limits(group, shown)[1]:
        found.append(f"Off the scale: losses up to {highest:,.{0 if highest >= 100 else 1}f}.")
    return " ".join(found)


def caption(group: Group) -> str:
    """Which curves are lowest and highest: at the end, or where the validation loss chose; and which rise again."""
    known = {s.model.title: values for s in series(group) if len(values := s.mean[np.isfinite(s.mean)])}
    if len(known) < 2:
        return ""
    on_test = held_out(group) == "test loss"
    levels = {name: float(values[-1] if on_test else values.min()) for name, values in known.items()}
    first, *_, last = sorted(levels, key=levels.__getitem__)
    if on_test:
        return f"Lowest at the end: {first}; highest: {last}."
    rising = sum(float(values[-1]) > RISES * levels[name] for name, values in known.items())
    again = f" {rising} of {len(known)} curves rise again after their minimum." if rising else ""
    return f"Lowest minimum: {first}; highest: {last}.{again}"


def gates_caption(group: Group) -> str:
    """Where the share of open gates differs most and least between noise and brackets."""
    figures = {model: record.figure for model, record in with_gates(group).items() if record.figure}
    shares = {
        paper.title(model): (float(noise), float(figure["gate_share_brackets"]))
        for model, figure in figures.items()
        if (noise := figure.get("gate_share_noise")) is not None
    }
    ranked = sorted(shares, key=lambda name: shares[name][0] - shares[name][1], reverse=True)
    named = [f"{name} ({shares[name][0]:.0%} and {shares[name][1]:.0%})" for name in ranked]
    if not named:
        return ""
    least = f"; smallest: {named[-1]}" if len(named) > 1 else ""
    return f"Largest difference between noise and brackets: {named[0]}{least}."


def _series(model: str, curves: list[Curve]) -> Series:
    """At the evaluations that all runs have reached."""
    count = min(len(curve.steps) for curve in curves)
    values = np.array([curve.losses[:count] for curve in curves], dtype=float)
    steps, seconds = (
        np.array([along[:count] for along in some], dtype=float).mean(0)
        for some in ([curve.steps for curve in curves], [curve.seconds for curve in curves])
    )
    return Series(paper.model(model), len(curves), steps, seconds, values.mean(0), values.min(0), values.max(0))


def limits(group: Group, shown: list[Series]) -> tuple[float, float]:
    """The range of losses to draw: some of every curve, but not the height of the first evaluations.

    If no model has learned anything yet, all of every curve. A run that has only just begun does not count.
    """
    one = group.experiment
    finite = [s.mean[np.isfinite(s.mean)] for s in shown]
    known = [values for values in finite if len(values) and len(values) >= max(map(len, finite)) / 20]
    if not known:
        return 0.01 * group.baseline if one.log_loss else 0.0, 1.6 * group.baseline
    lowest, highest = min(float(v.min()) for v in known), max(float(v.max()) for v in known)
    if one.log_loss:
        return 0.8 * max(lowest, 1e-9), 1.2 * max(highest, group.baseline)
    if lowest > 1.1 * group.baseline:
        return 0.0, 1.05 * highest
    if held_out(group) == "test loss":
        return 0.0, max(1.6 * group.baseline, 1.15 * max(float(v.min()) for v in known))
    early = max(float(v[min(len(v) - 1, max(1, len(v) // 10))]) for v in known)
    pad = 0.06 * (early - lowest) or 0.06 * abs(early) or 1.0
    return lowest - pad, early + pad


def held_out(group: Group) -> str:
    """Which loss is drawn."""
    return "test loss" if "test_loss" in group.records[0].metrics[0] else "validation loss"


def figure_title(group: Group) -> str:
    """The experiment, its data and the variant."""
    one = group.experiment
    data = group.data_title
    return f"{one.title}: {data}{group.suffix}" if data and not one.parts else group.title


def with_gates(group: Group) -> dict[str, Record]:
    """The first run with recorded gates of each model."""
    found: dict[str, Record] = {}
    for record in group.records:
        if record.figure and "gate_share" in record.figure:
            found.setdefault(record.config.model, record)
    return found


def with_spectrum(group: Group) -> Record | None:
    """The run whose spectrum is drawn: GORU's, or the first that has one."""
    found = [record for record in group.records if record.figure and "spectrum_truth" in record.figure]
    return next((record for record in found if record.config.model == "goru"), found[0] if found else None)


def losses_for_page(group: Group) -> dict[str, Any]:
    """The curves of a group as JSON."""
    shown = series(group)
    return {
        "kind": "losses",
        "title": figure_title(group),
        "label": group.experiment.label or group.experiment.title,
        "loss": held_out(group),
        "baseline": _number(group.baseline),
        "log": group.experiment.log_loss,
        "limits": [_number(value) for value in limits(group, shown)],
        "series": [
            {
                "name": s.model.title,
                "color": s.model.color,
                "dash": " ".join(map(str, s.model.dashes)),
                "runs": s.runs,
                "steps": _numbers(s.steps),
                "minutes": _numbers(s.seconds / 60),
                "mean": _numbers(s.mean),
                **({"low": _numbers(s.low), "high": _numbers(s.high)} if s.runs > 1 else {}),
            }
            for s in shown
        ],
    }


def gates_for_page(group: Group) -> dict[str, Any] | None:
    """The gates of a group as JSON, without models whose sequence has other noise."""
    found = with_gates(group)
    figures = {model: record.figure for model, record in found.items() if record.figure}
    if not figures:
        return None
    first = next(iter(figures.values()))
    return {
        "kind": "gates",
        "threshold": first["gate_threshold"],
        "noise": [int(bool(value)) for value in first["noise"]],
        "series": [
            {
                "name": paper.title(model),
                "color": paper.model(model).color,
                "share": [_number(value) for value in figure["gate_share"]],
            }
            for model, figure in figures.items()
            if figure["noise"] == first["noise"]
        ],
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """Five figures are enough to draw; what is not finite is a gap."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
