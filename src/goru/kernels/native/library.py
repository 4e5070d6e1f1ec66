"""The shared library of the C++ kernels: finding and checking it, its instruction set, its memory."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from .structures import wrong_sizes

SOURCES = Path(__file__).parents[1] / "csrc"
LIBRARY = Path(__file__).parents[1] / "_native.so"
MOST_BYTES = 1 << 56  # more than any machine has: beyond it sizes would wrap around in the library
DTYPES = {torch.float32: 0, torch.float64: 1}


_signatures: dict[str, tuple[list[Any], Any]] = {}


def declare(result: Any = None, /, **functions: list[Any]) -> None:
    """The types of the arguments of functions in the library, by name, and of their result; None: there is none."""
    _signatures.update({name: (arguments, result) for name, arguments in functions.items()})


def source_hash() -> str | None:
    """The state of the C++ sources, as hatch_build.py computes it; None if they are not shipped."""
    if not SOURCES.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


@cache
def load() -> ctypes.CDLL | str:
    """The library, ready for use, or one sentence that says why there is none."""
    if not LIBRARY.exists():
        return "the native kernels were not built when goru was installed (no C++ compiler, or GORU_NO_NATIVE was set)"
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        return f"the native kernels cannot be loaded: {error}"
    library.goru_source_hash.restype = c_char_p
    if source_hash() not in (None, library.goru_source_hash().decode()):
        return (
            "the native kernels are older than their C++ sources: rebuild them with `python hatch_build.py` or "
            "`pip install -e .`"
        )
    library.goru_level_name.restype = c_char_p
    library.goru_take.argtypes, library.goru_take.restype = [c_int64], c_void_p
    library.goru_give.argtypes, library.goru_give.restype = [c_void_p], None
    library.goru_tensor.argtypes = [c_int, c_int, c_int, POINTER(c_int64)]
    library.goru_tensor.restype = c_void_p
    if wrong := wrong_sizes(library):
        return (
            f"the native kernels have other structures than this version of goru ({', '.join(wrong)}): rebuild them "
            "with `python hatch_build.py` or `pip install -e .`"
        )
    for name, signature in _signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = signature
    runnable = levels(library)
    wanted = os.environ.get("GORU_ISA")
    if wanted:
        if wanted not in runnable:
            names = ", ".join(runnable)
            return f"GORU_ISA={wanted} is not an instruction set that this processor can run: it can run {names}"
        library.goru_choose(runnable[wanted])
    else:
        library.goru_choose(max(runnable.values()))
    return library


def levels(library: ctypes.CDLL) -> dict[str, int]:
    """The instruction sets of the library that this processor can run, narrowest first."""
    return {library.goru_level_name(i).decode(): i for i in range(library.goru_levels()) if library.goru_level_runs(i)}


_forked = False


def _remember_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_remember_fork)


def get() -> Any:
    """The library; RuntimeError if there is none.

    In a forked child torch's own thread pool does not exist, and its larger operations would wait for it forever:
    there torch is put on one thread, as its DataLoader does with its workers.
    """
    if _forked and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
    library = load()
    if isinstance(library, str):
        raise RuntimeError(library)
    return library


@contextmanager
def scratch(elements: dict[str, int], itemsize: int, zeros: dict[str, int] | None = None):
    """Addresses of buffers with these numbers of elements, from the library's pool, valid inside the block. `zeros` are
    others that are filled with zeros."""
    offsets, total = {}, 0
    for name, count in (zeros or {}).items():
        offsets[name] = total
        total += (count * itemsize + 127) // 64 * 64
    filled = total
    for name, count in elements.items():
        offsets[name] = total
        total += (count * itemsize + 127) // 64 * 64
    library = get()
    address = library.goru_take(total) if total < MOST_BYTES else None
    if not address:
        raise RuntimeError(f"not enough memory: the native kernels could not get a buffer of {total} bytes")
    try:
        if filled:
            ctypes.memset(address, 0, filled)
        yield {name: address + offset for name, offset in offsets.items()}
    finally:
        library.goru_give(address)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object


def pooled_empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """torch.empty for large tensors that come and go with each training step: the memory is reused by the next."""
    total = math.prod(shape) * dtype.itemsize
    if total < 1 << 17:
        return torch.empty(shape, dtype=dtype, device="cpu")
    code = 5 if dtype.is_complex else 2
    managed = None
    if total < MOST_BYTES:
        managed = get().goru_tensor(code, dtype.itemsize * 8, len(shape), (c_int64 * len(shape))(*shape))
    if not managed:
        raise RuntimeError(f"not enough memory: the native kernels could not get {total} bytes for a tensor")
    return from_dlpack(_new_capsule(managed, b"dltensor", None))


def release() -> None:
    """Give the pool's idle memory back to the system."""
    if not isinstance(library := load(), str):
        library.goru_release()
