"""Whether the files of a run have their form: numbers where numbers belong, within bounds.

Runs may come from others. A malformed file is a LabError here, not a traceback in the middle of a table or a figure.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from goru.lab.errors import LabError

LARGEST = 1e15
"""Bound of the size of numbers: sums and squares of smaller ones are finite, and figures can show them."""
LARGEST_LOSS = 1e39
"""A network that diverges may have any loss of single precision."""
SMALLEST_BASELINE = 1e-9
DIVERGING = ("loss", "bpc")
"""How the names of scores end that may also be NaN or infinite in the metrics of a diverging run."""


def has_type(value: Any, hint: Any) -> bool:
    """Whether a JSON value fits the annotation of a field: a type, a union or a Literal. A bool is no number."""
    if get_origin(hint) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if get_args(hint):  # a union such as int | None
        return any(has_type(value, part) for part in get_args(hint))
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def is_number(value: Any, largest: float = LARGEST) -> bool:
    """Whether a value is a number, finite and within bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < largest


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 0, within bounds."""
    return isinstance(value, int) and is_number(value) and value >= 0


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def _is_baseline(value: Any) -> bool:
    """Whether a value can be a baseline: tables divide by it."""
    return is_number(value) and value > SMALLEST_BASELINE


_FITS = {
    **dict.fromkeys(("step", "last_step", "parameters", "hidden_to_hidden_parameters"), is_count),
    **dict.fromkeys(("seconds", "total_seconds", "steps_per_s", "best_step", "finished_time"), _is_amount),
    "baseline": _is_baseline,
}
"""What the numbers of a run have to be, by name."""


def check_line(where: str, line: Any) -> None:
    """Raise LabError if a line of metrics.jsonl is malformed."""
    if not isinstance(line, dict) or not {"step", "seconds"} <= {*line}:
        raise LabError(f"{where} should be an object of numbers with step and seconds.")
    for name, value in line.items():
        if name.endswith(DIVERGING):
            fits = is_number(value, LARGEST_LOSS) or (isinstance(value, float) and not math.isfinite(value))
        else:
            fits = _FITS.get(name, is_number)(value)
        if not fits:
            raise LabError(f"{where} should be an object of numbers within bounds; {name:.40} is {value!r:.40}.")


def check_metrics(file: Path, lines: list[Any]) -> None:
    """Raise LabError if the lines of metrics.jsonl are not those of a run."""
    for number, line in enumerate(lines, 1):
        check_line(f"{file}, line {number},", line)
    if not lines or not {"baseline", "last_step"} <= {*lines[0]} or not {"test_loss", "valid_loss"} & {*lines[0]}:
        raise LabError(f"{file} does not begin with the first evaluation.")


def check_result(file: Path, result: Any) -> None:
    """Raise LabError if result.json is malformed."""
    if not isinstance(result, dict):
        raise LabError(f"{file} should be an object.")
    optional = [name for name in ("best_step", "finished_time", "steps_per_s") if name in result]
    for name in ("step", "parameters", "hidden_to_hidden_parameters", "total_seconds", "baseline", *optional):
        if not _FITS[name](result.get(name)):
            raise LabError(f"{file} should have a number within bounds as {name}, got {result.get(name)!r:.40}.")
    final = result.get("final")
    if not isinstance(final, dict) or not final or not all(is_number(value, LARGEST_LOSS) for value in final.values()):
        raise LabError(f"{file} should have the final scores as an object of numbers.")
    if "test_loss" not in final:
        raise LabError(f"{file} should have test_loss among the final scores.")
    about = result.get("about", {})
    if not isinstance(about, dict) or not all(_bounded(value) for value in about.values()):
        raise LabError(f"{file} should have numbers within bounds about its data.")


def _bounded(value: Any) -> bool:
    """Whether all numbers in a JSON value are within bounds."""
    if isinstance(value, (list, dict)):
        return all(map(_bounded, value.values() if isinstance(value, dict) else value))
    return is_number(value) or not isinstance(value, (int, float)) or isinstance(value, bool)


def check_figure(file: Path, figure: Any) -> None:
    """Raise LabError if figure.json is malformed."""
    if not isinstance(figure, dict):
        raise LabError(f"{file} should be an object.")
    if "gate_share" in figure or "gate_share_noise" in figure:
        shares, noise = (
            value if isinstance(value := figure.get(name), list) else [] for name in ("gate_share", "noise")
        )
        marks = [int(mark) if isinstance(mark, bool) else mark for mark in noise]
        means = [figure.get(name) for name in ("gate_threshold", "gate_share_brackets")]
        on_noise = figure.get("gate_share_noise")  # None for a sequence without noise
        numbers = [*shares, *marks, *means, 0 if on_noise is None else on_noise]
        if not shares or len(shares) != len(noise) or not all(map(is_number, numbers)):
            raise LabError(f"{file} should have gate_share and noise of one length, and their means.")
    if "spectrum_truth" in figure:
        shapes = {_shape(figure.get(name)) for name in ("spectrum_truth", "spectrum_prediction")}
        scales: list[Any] = [figure.get(name) for name in ("spectrum_seconds_a_frame", "spectrum_highest_hertz")]
        if len(shapes) != 1 or None in shapes:
            raise LabError(f"{file} should have two spectra of one shape, of numbers within bounds.")
        if not all(is_number(scale) and scale > 1e-6 for scale in scales):
            raise LabError(f"{file} should have positive numbers within bounds as the scales of the spectra.")


def _shape(rows: Any) -> tuple[int, int] | None:
    """The shape of a matrix of numbers; None if it is none, or empty."""
    if not isinstance(rows, list) or not all(isinstance(row, list) and all(map(is_number, row)) for row in rows):
        return None
    widths = {len(row) for row in rows}
    return (len(rows), widths.pop()) if len(widths) == 1 and 0 not in widths else None
