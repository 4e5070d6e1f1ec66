"""What the README, the page docs/speed.md and their pictures say of speed and memory, from the recorded measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import chart
from .tables import Rows, cell, fill, table

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "speed.md"
PICTURES = {scheme: ROOT / "docs" / "images" / f"speed-{scheme}.svg" for scheme in chart.SCHEMES}
MEASURED = ROOT / "benchmarks" / "speed.json"


def renewed(measured: dict[str, Any]) -> dict[Path, str]:
    """Every file that has numbers of the measurement, with the numbers as measured."""
    files = {picture: chart.bars(measured, scheme) for scheme, picture in PICTURES.items()}
    for page, text in ((README, _short(measured)), (PAGE, _text(measured))):
        files[page] = fill(page.read_text(encoding="utf-8"), {"speed": text})
    return files


def _short(measured: dict[str, Any]) -> str:
    """The picture, and the mean over all shapes."""
    light, dark = (PICTURES[scheme].relative_to(ROOT) for scheme in ("light", "dark"))
    training = measured["sections"][f"training, {measured['threads'][0]} threads"]
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{dark}">\n'
        f'  <img alt="{chart.described(measured)}" src="{light}">\n</picture>\n\n'
        f"On the geometric mean of {len(training) - 1} shapes, a training step of a GORU is "
        f"{_factors(training[-1])}.\n"
        f"{_from_implementation(training[-1])} of this comes from the implementation: on the same kernels "
        f"{_same_cells(training[-1])}."
    )


def _text(measured: dict[str, Any]) -> str:
    sections, threads = measured["sections"], measured["threads"]
    training = sections[f"training, {threads[0]} threads"]
    where = f"{measured['processor']}, torch {measured['torch'].partition('+')[0]}"
    parts = [
        f"Forward and backward of one layer in milliseconds, float32, {_threads(threads[0])} of an {where};\n"
        f"medians of interleaved rounds in one run. {_scale(training)}",
        table(_speed(training)),
        "",
    ]
    parts += [
        f"With {_threads(other)}, on the geometric mean: {_factors(sections[f'training, {other} threads'][-1])}.\n"
        for other in threads[1:]
    ]
    return "\n".join([*parts, _memory(sections, threads[0]), _streaming(sections, threads[0])])


def _threads(count: int) -> str:
    return f"{count} threads" if count > 1 else "one thread"


def _speed(rows: Rows) -> Rows:
    names = {
        "nn.GRU": "nn.GRU", "nn.LSTM": "nn.LSTM", "goru.GRU": "goru.GRU", "goru.LSTM": "goru.LSTM",
        "manual": "GORU, pure torch", "native": "GORU, native",
    }  # fmt: skip
    names = {name: title for name, title in names.items() if name in rows[0]}
    return [
        {
            "steps, batch, input, hidden": row["T, B, I, H"],
            **{title: row.get(name) for name, title in names.items()},
            "GORU faster than nn.GRU": f"{row['vs GRU']:.2f}x",
            "than nn.LSTM": f"{row['vs LSTM']:.2f}x",
            "goru.GRU than nn.GRU": f"{row['GRU vs nn.GRU']:.2f}x",
            "goru.LSTM than nn.LSTM": f"{row['LSTM vs nn.LSTM']:.2f}x",
        }
        for row in rows
    ]


def _scale(rows: Rows) -> str:
    """What the times may be compared with."""
    names = ("GORU", "GRU", "LSTM")
    joined = "; ".join(f"{name} {_listed(rows[:-1], f'{name} of roofline')}" for name in names)
    return (
        "Share of the roofline (the step's arithmetic at the\nrate of torch's fastest large sgemm, or its bytes at the "
        f"rate of memory, each in its fastest round of the run) that is reached,\nshape by shape: {joined}.\n"
    )


def _listed(rows: Rows, column: str) -> str:
    return ", ".join(f"{row[column]:.2f}" for row in rows)


def _factors(mean: dict[str, Any]) -> str:
    return f"{mean['vs GRU']:.1f} times as fast as nn.GRU, {mean['vs LSTM']:.1f} times as fast as nn.LSTM"


def _from_implementation(mean: dict[str, Any]) -> str:
    """How much of GORU's gain torch's cells have on our kernels too: Most if their factor, squared, exceeds GORU's."""
    most = all(mean[f"{name} vs nn.{name}"] ** 2 > mean[f"vs {name}"] for name in ("GRU", "LSTM"))
    return "Most" if most else "Part"


def _same_cells(mean: dict[str, Any]) -> str:
    """What our GRU and LSTM gain over torch's."""
    gains = (
        f"`goru.{name}` is {mean[f'{name} vs nn.{name}']:.1f} times as fast as `nn.{name}`" for name in ("GRU", "LSTM")
    )
    return ", and ".join(gains)


def _memory(sections: dict[str, Rows], threads: int) -> str:
    rows = sections[f"memory, {threads} threads"]
    names = {
        "nn.GRU": "nn.GRU", "goru.GRU": "goru.GRU", "nn.LSTM": "nn.LSTM", "goru.LSTM": "goru.LSTM",
        "manual": "GORU in pure torch", "native": "native",
    }  # fmt: skip
    joined = ", ".join(f"{title} {rows[0][name]:.0f} MB" for name, title in names.items())
    shares = "; ".join(f"`goru.{name}` {_listed(rows, f'goru.{name} of nn.{name}')}" for name in ("GRU", "LSTM"))
    return (
        f"Peak memory of a training step at the copying shape, above the level after a tiny step:\n{joined}.\n"
        f"As a share of torch's layer, shape by shape: {shares}.\n"
    )


def _streaming(sections: dict[str, Rows], threads: int) -> str:
    times = {row["cell"]: row["us"] for row in sections[f"streaming, {threads} threads"]}
    return (
        f"One step at a time, batch 1, without gradients: `GORUCell` takes {cell(times['GORUCell native'])} us,"
        f" `goru.GRUCell` {cell(times['goru.GRUCell'])}\n(`nn.GRUCell` {cell(times['nn.GRUCell'])}),"
        f" `goru.LSTMCell` {cell(times['goru.LSTMCell'])} (`nn.LSTMCell` {cell(times['nn.LSTMCell'])})."
    )
