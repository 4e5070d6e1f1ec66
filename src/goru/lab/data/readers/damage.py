"""The exceptions of the standard library for damaged archives, and how to quote them."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib

BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # encrypted, nested too deeply; NotImplementedError (a compression that nobody knows) is one
    ValueError,
)


def reason(error: Exception) -> str:
    """The library's message in one short line."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
