"""Pictures of digits: MNIST's own files (IDX), and lists of numbers in JSON."""

from __future__ import annotations

import json
import struct

import numpy as np

from goru.lab.data.readers.lines import FormatError

SIDE = 28
PIXELS = SIDE * SIDE
_IMAGES, _LABELS = 0x803, 0x801
"""The first four bytes of a file: unsigned bytes, three dimensions or one."""


def parse_images(content: bytes, source: str) -> np.ndarray:
    """The pictures of an IDX file, (N, 784) bytes."""
    magic, count, rows, columns = _header(content, source, ">4I")
    if magic != _IMAGES or (rows, columns) != (SIDE, SIDE) or len(content) != 16 + count * PIXELS:
        raise FormatError(source, None, f"should hold pictures of {SIDE} x {SIDE} bytes in the format IDX")
    return np.frombuffer(content, np.uint8, offset=16).reshape(count, PIXELS)


def parse_labels(content: bytes, source: str) -> np.ndarray:
    """The labels of an IDX file, (N) bytes from 0 to 9."""
    magic, count = _header(content, source, ">2I")
    labels = np.frombuffer(content, np.uint8, offset=8)
    if magic != _LABELS or len(labels) != count or (labels > 9).any():
        raise FormatError(source, None, "should hold labels from 0 to 9 in the format IDX")
    return labels


def parse_list(content: bytes, source: str) -> np.ndarray:
    """The pictures of one digit, (N, 784) bytes, from a list of numbers from 0 to 1 that are rounded to thousandths.

    >>> parse_list(b'{"data": [' + b", ".join([b"0.502"] * 784) + b"]}", "here")[0, 0]
    np.uint8(128)
    """
    try:
        numbers = np.array(json.loads(content)["data"], dtype=np.float64)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(source, None, 'should hold {"data": [numbers]}') from None
    if numbers.ndim != 1 or len(numbers) % PIXELS or not ((numbers >= 0) & (numbers <= 1)).all():
        raise FormatError(source, None, f"should hold {PIXELS} numbers from 0 to 1 for each picture")
    return np.rint(255 * numbers).astype(np.uint8).reshape(-1, PIXELS)


def _header(content: bytes, source: str, form: str) -> tuple[int, ...]:
    if len(content) < struct.calcsize(form):
        raise FormatError(source, None, f"should begin with {struct.calcsize(form)} bytes of header")
    return struct.unpack_from(form, content)
