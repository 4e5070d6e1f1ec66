"""Structures that cross the border to the library, mirrored from csrc/*/structures.h and csrc/base/shape.h."""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int64, c_void_p
from typing import Any

STRUCTURES: list[type[Structure]] = []  # all of them: their sizes are compared with the library's when it is loaded


def structure(name: str, *parts: tuple[Any, str]) -> Any:
    """A structure of this name; each part is a type and the names of the fields that have it, in order."""
    fields = [(field, kind) for kind, names in parts for field in names.split()]
    made = type(name, (Structure,), {"_fields_": fields})
    STRUCTURES.append(made)
    return made


def wrong_sizes(library: ctypes.CDLL) -> list[str]:
    """Names of the structures whose size differs in the library, or that it lacks."""
    wrong = []
    for mirror in STRUCTURES:
        size = getattr(library, f"goru_sizeof_{mirror.__name__}", None)
        if size is not None:
            size.argtypes, size.restype = [], c_int64
        if size is None or size() != ctypes.sizeof(mirror):
            wrong.append(mirror.__name__)
    return wrong


Shape = structure(
    "Shape",
    (c_int64, "steps batch inputs hidden reset update reverse modrelu first last threads"),
    (c_void_p, "order active"),
    (c_int64, "x_step x_row saved_from"),
)
ChunkLayout = structure("ChunkLayout", (c_int64, "rows groups group_rows steps"))
