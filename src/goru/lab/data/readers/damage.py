"""What the standard library raises over damaged archives, and how a sentence quotes it."""

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
    """The library's words in one short line."""
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
