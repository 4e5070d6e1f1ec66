"""Times of things that run in turn, so that a slow minute of the machine slows all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(steps: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each step over `rounds` rounds."""
    return medians(in_turn(steps, rounds))


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in times.items()}


def in_turn(
    steps: Mapping[str, Callable[[], None]], rounds: int, slow: Mapping[str, int] | None = None
) -> dict[str, list[float]]:
    """Milliseconds of each step in each of `rounds` rounds; `slow` gives some of them fewer rounds.

    A step is repeated within a round until it took 20 ms, so that the clock and the call do not count.
    """
    slow = slow or {}
    repeats = {}
    for name, step in steps.items():
        step()  # warm-up: first touch of memory, lazy initialization
        start = time.perf_counter()
        step()
        repeats[name] = max(1, round(0.02 / max(time.perf_counter() - start, 1e-6)))
    times: dict[str, list[float]] = {name: [] for name in steps}
    gc.collect()
    gc.disable()
    try:
        for index in range(rounds):
            for name, step in steps.items():
                if index >= slow.get(name, rounds):
                    continue
                start = time.perf_counter()
                for _ in range(repeats[name]):
                    step()
                times[name].append((time.perf_counter() - start) / repeats[name] * 1e3)
    finally:
        gc.enable()
    return times
