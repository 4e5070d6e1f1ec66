"""The figures, in the paper's form: test loss against iterations with a dashed baseline; the gates."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas

from goru.lab import paper
from goru.lab.report.records import Curve, Group, Record

# Distinct also for colour-blind readers (Okabe and Ito); a model has one colour everywhere.
COLOURS = {
    "goru": "#d55e00",
    "goru-june2017": "#e69f00",
    "eurnn-real": "#56b4e9",
    "eurnn-complex": "#0072b2",
    "gru": "#009e73",
    "lstm": "#cc79a7",
    "goru-no-reset": "#999999",
    "goru-no-update": "#333333",
}
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


@dataclass(frozen=True)
class Figure:
    """A drawn figure in both formats."""

    name: str
    title: str
    svg: str
    png: bytes

    def save(self, folder: Path) -> None:
        (folder / f"{self.name}.svg").write_text(self.svg)
        (folder / f"{self.name}.png").write_bytes(self.png)


def _finish(name: str, title: str, canvas: Canvas) -> Figure:
    svg, png = io.StringIO(), io.BytesIO()
    canvas.savefig(svg, format="svg", bbox_inches="tight", metadata={"Date": None})
    canvas.savefig(png, format="png", bbox_inches="tight", dpi=150)
    text = svg.getvalue()
    return Figure(name, title, text[text.index("<svg") :], png.getvalue())


def losses(group: Group, along: str = "steps") -> Figure:
    """Test loss of every model against iterations, or against the time spent (`along="seconds"`)."""
    one = paper.EXPERIMENTS[group.experiment]
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(7.2, 4.2))
        axes = canvas.subplots()
        for model, records in group.models.items():
            colour = COLOURS.get(model, "#666666")
            x, low, middle, high = _band([record.test for record in records], along)
            unit = 60.0 if along == "seconds" else 1.0
            axes.plot(x / unit, middle, color=colour, label=paper.title(model), linewidth=1.6)
            if len(records) > 1:
                axes.fill_between(x / unit, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.axhline(group.baseline, color="#333333", linestyle="--", linewidth=1.0, label="baseline")
        if one.log_loss:
            axes.set_yscale("log")
        else:
            # A start far above the baseline would flatten everything of interest.
            axes.set_ylim(0, 1.6 * group.baseline)
        axes.set_xlim(left=0)
        axes.set_xlabel("iterations" if along == "steps" else "minutes of training")
        held_out = "validation" if one.settings.eval_every == 0 else "test"
        axes.set_ylabel(f"{held_out} loss" + (" (log scale)" if one.log_loss else ""))
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        data_title = next(iter(group.models.values()))[0].config.task.data_title
        data = f": {data_title}" if data_title and not one.in_parts else ""
        suffix = "" if along == "steps" else "-time"
        return _finish(
            f"{group.name}{suffix}", group.title if not data else f"{one.title}{data} ({group.variant})", canvas
        )


def _band(curves: list[Curve], along: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lowest, mean and highest loss over seeds, at the evaluations that all have reached."""
    count = min(len(curve.steps) for curve in curves)
    values = np.array([curve.losses[:count] for curve in curves])
    x = np.array([getattr(curve, along)[:count] for curve in curves], dtype=float).mean(0)
    return x, values.min(0), values.mean(0), values.max(0)


def spectra(group: Group) -> Figure | None:
    """A spectrum, GORU's prediction of it (or the first model's that has one) and the error."""
    with_spectrum = [
        record
        for model in ("goru", *group.models)
        for record in group.models.get(model, [])
        if record.figure and "spectrum_truth" in record.figure
    ]
    if not with_spectrum:
        return None
    record = with_spectrum[0]
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
    with mpl.rc_context(_STYLE):
        canvas = Canvas(figsize=(8.0, 6.6))
        rows = canvas.subplots(3, 1, sharex=True)
        for axes, (title, values, colours, bottom, top) in zip(rows, panels, strict=True):
            axes.grid(False)
            image = axes.imshow(
                values.T,
                origin="lower",
                aspect="auto",
                cmap=colours,
                vmin=bottom,
                vmax=top,
                extent=(0, seconds, 0, kilohertz),
                interpolation="nearest",
            )
            axes.set_title(title, fontsize=10, loc="left")
            axes.set_ylabel("kHz")
            canvas.colorbar(image, ax=axes, pad=0.02)
        rows[-1].set_xlabel("seconds")
        return _finish(f"{group.name}-spectrum", "Log-magnitude spectrum of a test utterance", canvas)


def gates(group: Group) -> Figure | None:
    """Share of update-gate units above the threshold at each step, over the noise in the input."""
    shown: dict[str, Record] = {}
    for model, records in group.models.items():
        with_gates = [record for record in records if record.figure and "gate_share" in record.figure]
        if with_gates:
            shown[model] = with_gates[0]
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
            axes.bar(range(len(share)), share, width=1.0, color=COLOURS.get(model, "#666666"), linewidth=0)
            axes.set_ylim(0, 1)
            axes.set_ylabel(paper.title(model).replace(" (", "\n("), rotation=0, ha="right", va="center")
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
        return _finish(f"{group.name}-gates", f"Update gates on the {group.experiment} task", canvas)
