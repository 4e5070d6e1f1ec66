"""Audio in NIST SPHERE files: a header of text, padded to the length that it names, then 16-bit samples."""

from __future__ import annotations

import numpy as np

from goru.lab.data.readers.lines import FormatError

MAGIC = b"NIST_1A\n"
_BYTE_ORDERS = {"01": "<i2", "10": ">i2"}


def parse(content: bytes, source: str) -> tuple[np.ndarray, int]:
    """The samples (int16) and the sample rate of a single-channel file."""
    head = content[:16]
    size = head[8:].strip()
    if head[:8] != MAGIC or not size.isdigit() or len(head) < 16:
        raise FormatError(source, 1, "not a NIST SPHERE file")
    length = int(size)
    if not 16 <= length <= len(content):
        raise FormatError(source, 2, f"a header of {length} bytes in a file of {len(content)}")
    fields = _fields(content[16:length], source)

    def field(name: str, otherwise: str | None = None) -> str:
        value = fields.get(name, otherwise)
        if value is None:
            raise FormatError(source, None, f"the header lacks {name}")
        return value

    def number(name: str, low: int, high: int, otherwise: str | None = None) -> int:
        value = field(name, otherwise)
        if not (value.isascii() and value.isdigit()) or len(value) > 12 or not low <= int(value) <= high:
            raise FormatError(source, None, f"{name} should be a number from {low} to {high}, it is {value[:40]!r}")
        return int(value)

    coding = field("sample_coding", "pcm")
    order = field("sample_byte_format")
    if coding != "pcm" or order not in _BYTE_ORDERS:
        raise FormatError(
            source, None, f"sample coding {coding[:40]!r}, byte format {order[:40]!r}: not plain 16-bit PCM"
        )
    number("channel_count", 1, 1, "1")
    number("sample_n_bytes", 2, 2)
    rate, count = number("sample_rate", 1, 1_000_000), number("sample_count", 1, 2**32)
    if len(content) - length < 2 * count:
        raise FormatError(source, None, f"{count} samples announced, {(len(content) - length) // 2} are there")
    return np.frombuffer(content, _BYTE_ORDERS[order], count, length).astype(np.int16), rate


def _fields(header: bytes, source: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for number, line in enumerate(header.split(b"\n"), 3):
        try:
            text = line.decode("ascii").strip()
        except UnicodeDecodeError:
            raise FormatError(source, number, "the header is not text") from None
        if text == "end_head":
            return fields
        if not text or text.startswith(";"):
            continue
        parts = text.split(None, 2)
        if len(parts) != 3 or not parts[1].startswith("-"):
            raise FormatError(source, number, "a header line should be: name -type value")
        fields[parts[0]] = parts[2]
    raise FormatError(source, None, "the header has no end_head")
