"""The figures: their data, for the interactive page, and drawings of them, as files.

Loss curves as in the paper, test loss against iterations with a dashed baseline; gates; spectra; and the figures
specific to an experiment.
"""

from __future__ import annotations

import dataclasses
import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas

from goru.lab import durable, paper
from goru.lab.paper.definition import Drawing
from goru.lab.paper.models import Model
from goru.lab.paper.outcomes import Group, Record

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
    def known(self) -> np.ndarray:
        """The losses that are numbers."""
        return self.mean[np.isfinite(self.mean)]


def series(group: Group) -> list[Series]:
    """One per model, over the runs that the tables show, at the evaluations that all of them have reached."""
    found = []
    for model in group.models:
        curves = [record.test for record in group.shown(model)]
        count = min(len(curve.steps) for curve in curves)
        steps, seconds = np.array([(curve.steps[:count], curve.seconds[:count]) for curve in curves], float).mean(0)
        values = np.array([curve.losses[:count] for curve in curves], float)
        ranges = values.mean(0), values.min(0), values.max(0)
        found.append(Series(paper.model(model), len(curves), steps, seconds, *ranges))
    return found


def reading(group: Group) -> str:
    """How to read the curves: what those over several runs are, and whether some are cut off at the top."""
    found, shown = [], series(group)
    if any(s.runs > 1 for s in shown):
        lengths = [{len(record.test.steps) for record in group.shown(model)} for model in group.models]
        cut = ", up to the last iteration that all reached" if any(len(some) > 1 for some in lengths) else ""
        found.append(f"Lines: mean over the runs of a model{cut}. Shading: their range.")
    highest = max((float(s.known.max()) for s in shown if len(s.known)), default=0.0)
    if highest > limits(group, shown)[1]:
        found.append(f"Off the scale: losses up to {highest:,.{0 if highest >= 100 else 1}f}.")
    return " ".join(found)


def caption(group: Group) -> str:
    """Which curves are lowest and highest: at the end, or where the validation loss chose; and which rise again."""
    drawn = [s for s in series(group) if len(s.known)]
    known = {s.model.title: s.known for s in drawn}
    if len(known) < 2:
        return ""
    on_test = held_out(group) == "test loss"
    levels = {s.model.title: float(s.known[-1]) if on_test else _lowest(group, s.model.name) for s in drawn}
    first, *_, last = sorted(levels, key=levels.__getitem__)
    if on_test:
        return f"Lowest at the end: {first}; highest: {last}."
    rising = sum(float(values[-1]) > RISES * levels[name] for name, values in known.items())
    again = f" {rising} of {len(known)} curves rise again after their minimum." if rising else ""
    return f"Lowest minimum: {first}; highest: {last}.{again}"


def _lowest(group: Group, name: str) -> float:
    """The lowest losses of a model's runs, averaged: those of the mean curve depend on how many runs it has."""
    lows = [min(filter(math.isfinite, record.test.losses), default=math.inf) for record in group.shown(name)]
    return fmean(lows)


def gates_caption(group: Group) -> str:
    """Where the share of open gates differs most and least between noise and brackets."""
    shares = {
        paper.title(model): (float(noise), float(figure["gate_share_brackets"]))
        for model, figure in with_gates(group).items()
        if (noise := figure.get("gate_share_noise")) is not None
    }
    ranked = sorted(shares, key=lambda name: shares[name][0] - shares[name][1], reverse=True)
    named = [f"{name} ({shares[name][0]:.0%} and {shares[name][1]:.0%})" for name in ranked]
    if not named:
        return ""
    least = f"; smallest: {named[-1]}" if len(named) > 1 else ""
    return f"Largest difference between noise and brackets: {named[0]}{least}."


def limits(group: Group, shown: list[Series]) -> tuple[float, float]:
    """The range of losses to draw: some of every curve, but not the height of the first evaluations.

    If no model has learned anything yet, all of every curve. A run that has only just begun does not count.
    """
    one = group.experiment
    longest = max((len(s.known) for s in shown), default=0)
    known = [s.known for s in shown if len(s.known) and len(s.known) >= longest / 20]
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


def with_gates(group: Group) -> dict[str, dict[str, Any]]:
    """The recorded gates of each model, averaged over its runs on the same sequences."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in group.records:
        if record.figure and "gate_share" in record.figure:
            found.setdefault(record.config.model, []).append(record.figure)
    return {name: _averaged(figures) for name, figures in found.items()}


def _averaged(figures: list[dict[str, Any]]) -> dict[str, Any]:
    first = figures[0]
    alike = [one for one in figures if one["noise"] == first["noise"]]
    means: dict[str, Any] = {
        "gate_share": [fmean(shares) for shares in zip(*(one["gate_share"] for one in alike), strict=True)]
    }
    for share in ("gate_share_noise", "gate_share_brackets"):
        if all(one.get(share) is not None for one in alike):
            means[share] = fmean(one[share] for one in alike)
    return first | means


def has_spectrum(record: Record) -> bool:
    return "spectrum_truth" in (record.figure or {})


def with_spectrum(group: Group) -> Record | None:
    """The run whose spectrum is drawn: GORU's, or the first that has one."""
    found = [record for record in group.records if has_spectrum(record)]
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
                "ablation": s.model.ablation,
                "runs": s.runs,
                "steps": _numbers(s.steps),
                "minutes": _numbers(s.seconds / 60),
                "mean": _numbers(s.mean),
                **({"low": _numbers(s.low), "high": _numbers(s.high)} if s.runs > 1 else {}),
            }
            for s in shown
        ],
    }


def gates_for_page(group: Group) -> dict[str, Any]:
    """The gates of a group that has some as JSON, without models whose sequence has other noise."""
    found = with_gates(group)
    first = next(iter(found.values()))
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
            for model, figure in found.items()
            if figure["noise"] == first["noise"]
        ],
    }


def _numbers(values: np.ndarray) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    """Five figures are enough to draw; what is not finite is a gap."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "goru",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


_DARK: dict[Any, Any] = {
    "figure.facecolor": "#0d1117",
    "axes.facecolor": "#0d1117",
    "grid.color": "#2a313a",
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "#c9d1d9"),
}
"""For a page with a dark background."""
_DARK_PAGE = {**_DARK, **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none")}
"""The same, on the page's own background."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure in both formats, or in the one that is shown; the other is then empty."""

    name: str
    title: str
    svg: str
    png: bytes
    photographic: bool = False
    """Whether to embed it as PNG: an image, not lines."""
    note: str = ""
    """How to read it."""
    caption: str = ""
    """What to see in it."""
    dark: Figure | None = None
    """The same for a page with a dark background."""

    @property
    def text(self) -> str:
        """What stands below its title."""
        return " ".join(part for part in (self.caption, self.note) if part)

    def save(self, folder: Path) -> None:
        durable.replace(folder / f"{self.name}.svg", self.svg.encode())
        durable.replace(folder / f"{self.name}.png", self.png)


def _finish(
    name: str, title: str, canvas: Canvas, *, shown_alone: bool = False, photographic: bool = False, **more: Any
) -> Figure:
    """The figure in both formats; `shown_alone`: in the one that a page embeds, since it does not become files."""
    svg, png = io.StringIO(), io.BytesIO()
    canvas.draw_without_rendering()
    box = canvas.get_tightbbox().padded(mpl.rcParams["savefig.pad_inches"])  # once for both files
    if not (shown_alone and photographic):
        canvas.savefig(svg, format="svg", bbox_inches=box, metadata={"Date": None})
    if not shown_alone or photographic:
        canvas.savefig(png, format="png", bbox_inches=box, dpi=150, metadata={"Software": None})
    text = svg.getvalue()
    return Figure(name, title, text[text.index("<svg") :] if text else "", png.getvalue(), photographic, **more)


def _light_and_dark(make: Callable[[bool], Figure]) -> Figure:
    """`make` gets whether its figure is shown alone: the dark one is."""
    with mpl.rc_context(_STYLE):
        light = make(False)
    with mpl.rc_context({**_STYLE, **_DARK_PAGE}):
        return dataclasses.replace(light, dark=make(True))


def losses(group: Group, along: str = "steps") -> Figure:
    """Held-out loss of every model against iterations, or against the time spent (`along="seconds"`)."""
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(7.2, 4.2))
        axes = canvas.subplots()
        _draw_losses(axes, group, along)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        suffix, axis = ("", "") if along == "steps" else ("-time", ", against minutes")
        more: dict[str, Any] = {"note": reading(group), "caption": caption(group)}
        return _finish(f"{group.name}{suffix}", f"{figure_title(group)}{axis}", canvas, **more)


def _draw_losses(axes: Any, group: Group, along: str = "steps") -> None:
    shown = series(group)
    for s in shown:
        x = s.seconds / 60 if along == "seconds" else s.steps
        dashes = {"dashes": s.model.dashes} if s.model.dashes else {}
        axes.plot(x, s.mean, color=s.model.color, label=s.model.title, linewidth=1.6, **dashes)
        if s.runs > 1:
            axes.fill_between(x, s.low, s.high, color=s.model.color, alpha=0.18, linewidth=0)
    low, high = limits(group, shown)
    if low <= group.baseline <= high:
        axes.axhline(group.baseline, color=mpl.rcParams["text.color"], linestyle=":", linewidth=1.2, label="baseline")
    log = group.experiment.log_loss
    if log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    off = [s for s in shown if len(s.known) and s.known[-1] > high]
    for k, s in enumerate(off):  # ends off the scale: an arrow and the value
        text = f"▲ {s.known[-1]:.3g}"
        axes.text(0.99, 0.98 - 0.07 * k, text, color=s.model.color, ha="right", va="top", transform=axes.transAxes)
    axes.set_xlim(left=0)
    axes.set_xlabel("iterations" if along == "steps" else "minutes of training")
    axes.set_ylabel(held_out(group) + (" (log scale)" if log else ""))


def own(group: Group, drawing: Drawing) -> Figure:
    """A figure specific to an experiment."""

    def make(shown_alone: bool) -> Figure:
        canvas = Canvas(figsize=drawing.size)
        drawing.draw(canvas, group)
        name, caption = f"{group.name}-{drawing.name}", drawing.caption(group)
        return _finish(name, drawing.title, canvas, shown_alone=shown_alone, caption=caption)

    return _light_and_dark(make)


def overview(groups: list[Group], dark: bool = False) -> Figure:
    """The synthetic tasks side by side, as in the paper's first figures, with one legend; without ablations."""
    with mpl.rc_context({**_STYLE, "font.size": 9, **(_DARK if dark else {})}):
        canvas = Canvas(figsize=(3.4 * len(groups), 3.3), layout="constrained")
        entries: dict[str, Any] = {}
        for axes, group in zip(np.atleast_1d(canvas.subplots(1, len(groups))), groups, strict=True):
            models = {name: runs for name, runs in group.models.items() if not paper.model(name).ablation}
            _draw_losses(axes, dataclasses.replace(group, models=models or group.models))
            axes.set_title(group.experiment.title, fontsize=10, loc="left")
            entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        canvas.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=4)
        note = "Dotted: the baseline. ▲: off the scale. Colors as in the table below."
        name = "overview-dark" if dark else "overview"
        return _finish(name, "Held-out loss on the synthetic tasks", canvas, shown_alone=True, note=note)


def spectra(group: Group) -> Figure | None:
    """A spectrum, its prediction by GORU (or by the first model that has one) and the error."""
    record = with_spectrum(group)
    if record is None or record.figure is None:
        return None
    truth, prediction = (np.array(record.figure[f"spectrum_{name}"]) for name in ("truth", "prediction"))
    seconds = len(truth) * record.figure["spectrum_seconds_a_frame"]
    kilohertz = record.figure["spectrum_highest_hertz"] / 1000
    low, high = float(truth.min()), float(truth.max())
    difference = prediction - truth
    widest = float(np.abs(difference).max())
    panels = (
        ("truth", truth, "magma", low, high),
        (f"{paper.title(record.config.model)}'s prediction", prediction, "magma", low, high),
        ("prediction - truth", difference, "coolwarm", -widest, widest),
    )
    error = float(np.sqrt(np.square(difference).mean()))
    caption = f"The prediction is off by {error:.2f} (root mean square); the spectrum spans {low:.1f} to {high:.1f}."

    def make(shown_alone: bool) -> Figure:
        canvas = Canvas(figsize=(8.0, 6.6))
        rows = canvas.subplots(3, 1, sharex=True)
        for axes, (title, values, colors, bottom, top) in zip(rows, panels, strict=True):
            axes.grid(False)
            shown = {"cmap": colors, "vmin": bottom, "vmax": top, "extent": (0, seconds, 0, kilohertz)}
            image = axes.imshow(values.T, origin="lower", aspect="auto", interpolation="nearest", **shown)
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_ylabel("kHz")
            canvas.colorbar(image, ax=axes, pad=0.02)
        rows[-1].set_xlabel("seconds")
        title = "Log-magnitude spectrum of a test utterance"
        more: dict[str, Any] = {"photographic": True, "caption": caption}
        return _finish(f"{group.name}-spectrum", title, canvas, shown_alone=shown_alone, **more)

    return _light_and_dark(make)


def _edges(values: Sequence[float]) -> list[float]:
    """Where the bars of these values begin and end. One outline draws ten times faster than as many bars."""
    return [step - 0.5 for step in range(len(values) + 1)]


def gates(group: Group) -> Figure | None:
    """Share of update-gate units above the threshold at each step, over the noise in the input."""
    shown = with_gates(group)
    if not shown:
        return None
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(9.0, 1.5 * len(shown) + 0.9))
        heights = {"height_ratios": [3] * len(shown) + [0.7], "hspace": 0.25}
        *panels, bottom = canvas.subplots(len(shown) + 1, 1, sharex=True, gridspec_kw=heights)
        for axes, (model, figure) in zip(panels, shown.items(), strict=True):
            share = figure["gate_share"]
            axes.stairs(share, _edges(share), fill=True, color=paper.model(model).color, linewidth=0)
            axes.set_ylim(0, 1)
            label = textwrap.fill(paper.title(model), 16, break_on_hyphens=False)
            axes.set_ylabel(label, rotation=0, ha="right", va="center")
            axes.grid(False, axis="x")
        first = next(iter(shown.values()))
        noise = first["noise"]
        bottom.stairs([float(n) for n in noise], _edges(noise), fill=True, color="#333333", linewidth=0)
        bottom.set_yticks([])
        bottom.set_ylabel("noise", rotation=0, ha="right", va="center")
        bottom.grid(False)
        bottom.set_xlim(-0.5, len(noise) - 0.5)
        bottom.set_xlabel("time step")
        panels[0].set_title(f"share of update-gate units above {first['gate_threshold']}", fontsize=10, loc="left")
        title = f"Update gates on the {group.experiment.name} task"
        return _finish(f"{group.name}-gates", title, canvas, caption=gates_caption(group))
