"""The picture of speed in the README: a training step of three layers as three bars, drawn from the measurement."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

from .tables import cell

LAYERS = {"native": "GORU, native", "nn.LSTM": "nn.LSTM", "nn.GRU": "nn.GRU"}
"""The bars: columns of the measurement, and what they are called."""
WIDTH, HEIGHT, LEFT, ROOM = 720, 178, 176, 420
"""Of the picture, where the bars begin, and how long the longest is."""


@dataclass(frozen=True)
class Colors:
    """Of one picture: for a light page or for a dark one."""

    text: str
    faint: str
    ours: str
    theirs: str


SCHEMES = {
    "light": Colors("#1f2328", "#59636e", "#b5541c", "#8b97a5"),
    "dark": Colors("#f0f6fc", "#9198a1", "#f0a36b", "#68727d"),
}


def times(measured: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of a training step at the first shape, by what each bar is called."""
    row = measured["sections"][f"training, {measured['threads'][0]} threads"][0]
    return {title: row[name] for name, title in LAYERS.items()}


def shape(measured: dict[str, Any]) -> tuple[str, str, str, str]:
    """Steps, batch, input and hidden size of the bars."""
    row = measured["sections"][f"training, {measured['threads'][0]} threads"][0]
    steps, batch, inputs, hidden = row["T, B, I, H"].partition(" (")[0].split(", ")
    return steps, batch, inputs, hidden


def title(measured: dict[str, Any]) -> str:
    steps, batch, _, hidden = shape(measured)
    return f"Forward and backward pass, milliseconds: {steps} steps, batch {batch}, {hidden} units"


def described(measured: dict[str, Any]) -> str:
    """The picture in words, for those who do not see it."""
    bars = ", ".join(f"{name} {cell(value)}" for name, value in times(measured).items())
    return f"{title(measured)}. {bars}."


def bars(measured: dict[str, Any], scheme: str) -> str:
    """The picture as SVG."""
    colors, values = SCHEMES[scheme], times(measured)
    longest, threads = max(values.values()), measured["threads"][0]
    where = f"{threads} threads of an {measured['processor']}, torch {measured['torch'].partition('+')[0]}, float32"
    family = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"',
        f'     font-family="{family}" font-size="15" role="img" aria-label="{escape(described(measured))}">',
        f'  <text x="0" y="18" fill="{colors.text}" font-weight="600">{escape(title(measured))}</text>',
    ]
    for number, (name, value) in enumerate(values.items()):
        top, length = 36 + 38 * number, ROOM * value / longest
        fill, weight = (colors.ours, 600) if name == LAYERS["native"] else (colors.theirs, 400)
        lines += [
            f'  <text x="{LEFT - 12}" y="{top + 19}" text-anchor="end" font-weight="{weight}" '
            f'fill="{colors.text}">{escape(name)}</text>',
            f'  <rect x="{LEFT}" y="{top}" width="{length:.1f}" height="28" rx="3" fill="{fill}"/>',
            f'  <text x="{LEFT + length + 10:.1f}" y="{top + 19}" font-weight="{weight}" '
            f'fill="{colors.text}">{cell(value)}</text>',
        ]
    lines.append(f'  <text x="0" y="{HEIGHT - 8}" font-size="13" fill="{colors.faint}">{escape(where)}</text>')
    return "\n".join([*lines, "</svg>", ""])
