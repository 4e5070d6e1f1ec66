"""The figures as files, as in the paper: test loss against iterations with a dashed baseline; the gates."""

from __future__ import annotations

import dataclasses
import io
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas

from goru.lab import durable, paper
from goru.lab.paper.definition import Drawing
from goru.lab.paper.outcomes import Group
from goru.lab.report import curves

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
    """A drawn figure in both formats."""

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


def _finish(name: str, title: str, canvas: Canvas, photographic: bool = False) -> Figure:
    svg, png = io.StringIO(), io.BytesIO()
    canvas.savefig(svg, format="svg", bbox_inches="tight", metadata={"Date": None})
    canvas.savefig(png, format="png", bbox_inches="tight", dpi=150, metadata={"Software": None})
    text = svg.getvalue()
    return Figure(name, title, text[text.index("<svg") :], png.getvalue(), photographic)


def _light_and_dark(make: Callable[[], Figure]) -> Figure:
    with mpl.rc_context(_STYLE):
        light = make()
    with mpl.rc_context({**_STYLE, **_DARK_PAGE}):
        return dataclasses.replace(light, dark=make())


def losses(group: Group, along: str = "steps") -> Figure:
    """Held-out loss of every model against iterations, or against the time spent (`along="seconds"`)."""
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(7.2, 4.2))
        axes = canvas.subplots()
        _draw_losses(axes, group, along)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        suffix, axis = ("", "") if along == "steps" else ("-time", ", against minutes")
        drawn = _finish(f"{group.name}{suffix}", f"{curves.figure_title(group)}{axis}", canvas)
        return dataclasses.replace(drawn, note=curves.reading(group), caption=curves.caption(group))


def _draw_losses(axes: Any, group: Group, along: str = "steps") -> None:
    shown = curves.series(group)
    for s in shown:
        x = s.seconds / 60 if along == "seconds" else s.steps
        dashes = {"dashes": s.model.dashes} if s.model.dashes else {}
        axes.plot(x, s.mean, color=s.model.color, label=s.model.title, linewidth=1.6, **dashes)
        if s.runs > 1:
            axes.fill_between(x, s.low, s.high, color=s.model.color, alpha=0.18, linewidth=0)
    low, high = curves.limits(group, shown)
    if low <= group.baseline <= high:
        axes.axhline(group.baseline, color=mpl.rcParams["text.color"], linestyle=":", linewidth=1.2, label="baseline")
    log = group.experiment.log_loss
    if log:
        axes.set_yscale("log")
    axes.set_ylim(low, high)
    for k, s in enumerate(s for s in shown if s.end > high):  # ends off the scale: an arrow and the value
        text = f"▲ {s.end:.3g}"
        axes.text(0.99, 0.98 - 0.07 * k, text, color=s.model.color, ha="right", va="top", transform=axes.transAxes)
    axes.set_xlim(left=0)
    axes.set_xlabel("iterations" if along == "steps" else "minutes of training")
    axes.set_ylabel(curves.held_out(group) + (" (log scale)" if log else ""))


def own(group: Group, drawing: Drawing) -> Figure:
    """A figure specific to an experiment."""

    def make() -> Figure:
        canvas = Canvas(figsize=drawing.size)
        drawing.draw(canvas, group)
        return _finish(f"{group.name}-{drawing.name}", drawing.title, canvas)

    return dataclasses.replace(_light_and_dark(make), caption=drawing.caption(group))


def overview(groups: list[Group], dark: bool = False) -> Figure:
    """The synthetic tasks side by side, as in the paper's first figures, with one legend."""
    with mpl.rc_context({**_STYLE, "font.size": 9, **(_DARK if dark else {})}):
        canvas = Canvas(figsize=(3.4 * len(groups), 3.3), layout="constrained")
        entries: dict[str, Any] = {}
        for axes, group in zip(np.atleast_1d(canvas.subplots(1, len(groups))), groups, strict=True):
            _draw_losses(axes, group)
            axes.set_title(group.experiment.title, fontsize=10, loc="left")
            entries |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        canvas.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=4)
        drawn = _finish("overview-dark" if dark else "overview", "Held-out loss on the synthetic tasks", canvas)
        return dataclasses.replace(drawn, note="Dotted: the baseline. ▲: off the scale. Colors as in the table below.")


def spectra(group: Group) -> Figure | None:
    """A spectrum, its prediction by GORU (or by the first model that has one) and the error."""
    record = curves.with_spectrum(group)
    if record is None:
        return None
    assert record.figure is not None
    truth = np.array(record.figure["spectrum_truth"])
    prediction = np.array(record.figure["spectrum_prediction"])
    seconds = len(truth) * record.figure["spectrum_seconds_a_frame"]
    kilohertz = record.figure["spectrum_highest_hertz"] / 1000
    low, high = float(truth.min()), float(truth.max())
    widest = float(np.abs(prediction - truth).max())
    panels = (
        ("truth", truth, "magma", low, high),
        (f"{paper.title(record.config.model)}'s prediction", prediction, "magma", low, high),
        ("prediction - truth", prediction - truth, "coolwarm", -widest, widest),
    )

    def make() -> Figure:
        canvas = Canvas(figsize=(8.0, 6.6))
        rows = canvas.subplots(3, 1, sharex=True)
        for axes, (title, values, colors, bottom, top) in zip(rows, panels, strict=True):
            axes.grid(False)
            image = axes.imshow(
                values.T,
                origin="lower",
                aspect="auto",
                cmap=colors,
                vmin=bottom,
                vmax=top,
                extent=(0, seconds, 0, kilohertz),
                interpolation="nearest",
            )
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_ylabel("kHz")
            canvas.colorbar(image, ax=axes, pad=0.02)
        rows[-1].set_xlabel("seconds")
        return _finish(f"{group.name}-spectrum", "Log-magnitude spectrum of a test utterance", canvas, True)

    error = float(np.sqrt(np.square(prediction - truth).mean()))
    caption = f"The prediction is off by {error:.2f} (root mean square); the spectrum spans {low:.1f} to {high:.1f}."
    return dataclasses.replace(_light_and_dark(make), caption=caption)


def gates(group: Group) -> Figure | None:
    """Share of update-gate units above the threshold at each step, over the noise in the input."""
    shown = curves.with_gates(group)
    if not shown:
        return None
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(9.0, 1.5 * len(shown) + 0.9))
        panels = canvas.subplots(
            len(shown) + 1,
            1,
            sharex=True,
            squeeze=False,
            gridspec_kw={"height_ratios": [3] * len(shown) + [0.7], "hspace": 0.25},
        )[:, 0]
        for axes, (model, record) in zip(panels, shown.items(), strict=False):
            assert record.figure is not None
            share = record.figure["gate_share"]
            axes.bar(range(len(share)), share, width=1.0, color=paper.model(model).color, linewidth=0)
            axes.set_ylim(0, 1)
            label = textwrap.fill(paper.title(model), 16, break_on_hyphens=False)
            axes.set_ylabel(label, rotation=0, ha="right", va="center")
            axes.grid(False, axis="x")
        record = next(iter(shown.values()))
        assert record.figure is not None
        noise = record.figure["noise"]
        bottom = panels[-1]
        bottom.bar(range(len(noise)), [float(n) for n in noise], width=1.0, color="#333333", linewidth=0)
        bottom.set_yticks([])
        bottom.set_ylabel("noise", rotation=0, ha="right", va="center")
        bottom.grid(False)
        bottom.set_xlim(-0.5, len(noise) - 0.5)
        bottom.set_xlabel("time step")
        threshold = record.figure["gate_threshold"]
        panels[0].set_title(f"share of update-gate units above {threshold}", fontsize=10, loc="left")
        drawn = _finish(f"{group.name}-gates", f"Update gates on the {group.experiment.name} task", canvas)
        return dataclasses.replace(drawn, caption=curves.gates_caption(group))
