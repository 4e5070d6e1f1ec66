"""From 16 kHz to 8 kHz, as scipy.signal.resample_poly(x, 1, 2) does it with its default window."""

from __future__ import annotations

import numpy as np

_HALF_LENGTH = 20
_KAISER_BETA = 5.0


def _low_pass() -> np.ndarray:
    """A sinc at half the band under a Kaiser window, with unit gain for a constant signal."""
    taps = np.arange(-_HALF_LENGTH, _HALF_LENGTH + 1)
    filter_ = 0.5 * np.sinc(0.5 * taps) * np.kaiser(2 * _HALF_LENGTH + 1, _KAISER_BETA)
    return filter_ / filter_.sum()


def halve_rate(samples: np.ndarray) -> np.ndarray:
    """Every second sample of the low-pass filtered signal, ceil(n / 2) of them."""
    filtered = np.convolve(samples, _low_pass())[_HALF_LENGTH : _HALF_LENGTH + len(samples)]
    return filtered[::2]
