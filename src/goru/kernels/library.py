"""The shared library of the C++ kernels: finding it, its structures and its instruction set, its memory."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

SOURCES = Path(__file__).with_name("csrc")
LIBRARY = Path(__file__).with_name("_native.so")
MOST_BYTES = 1 << 56  # more than any machine has: beyond it sizes would wrap around in the library
DTYPES = {torch.float32: 0, torch.float64: 1}


class Shape(Structure):
    """As in arguments.h."""

    _fields_ = [
        *((name, c_int64) for name in ("steps", "batch", "inputs", "hidden", "reset", "update", "reverse", "modrelu")),
        *((name, c_int64) for name in ("first", "last", "threads")),
        ("order", c_void_p),
        ("active", c_void_p),
        ("x_step", c_int64),
        ("x_row", c_int64),
    ]


class GoruMesh(Structure):
    """As in arguments.h."""

    _fields_ = [("kind", c_int64), ("layers", c_int64), ("table", c_void_p)]


def _goru(name: str, integers: str, pointers: str) -> type[Structure]:
    numbers = [(n, c_int64) for n in integers.split()]
    addresses = [(n, c_void_p) for n in pointers.split()]
    return type(name, (Structure,), {"_fields_": [("shape", Shape), ("mesh", GoruMesh), *numbers, *addresses]})


GoruForward = _goru("GoruForward", "", "x h0 bias packed weight_ih weight_hh u output saved turned")
GoruBackward = _goru(
    "GoruBackward",
    "grad_step grad_row rows",
    "grad_output x h0 output saved packed packed_input carry chunk through turned wide square bias angles grad_x",
)


def _plain(name: str, **fields: Any) -> type[Structure]:
    return type(name, (Structure,), {"_fields_": list(fields.items())})


GoruFinish = _plain(
    "GoruFinish", inputs=c_int64, hidden=c_int64, gates=c_int64, blocks=c_int64, mesh=GoruMesh, wide=c_void_p,
    bias=c_void_p, angles=c_void_p, grad_weight_ih=c_void_p, grad_bias=c_void_p, grad_angles=c_void_p,
)  # fmt: skip
MeshArguments = _plain(
    "MeshArguments", size=c_int64, rotations=c_int64, p=c_void_p, q=c_void_p, reach=c_void_p,
    coefficients=c_void_p, phases=c_void_p,
)  # fmt: skip
MeshMatrixArguments = _plain(
    "MeshMatrixArguments", mesh=MeshArguments, threads=c_int64, slices=c_int64, angles=c_int64, u=c_void_p,
    grad=c_void_p, scratch=c_void_p, sums=c_void_p,
)  # fmt: skip
EurnnArguments = _plain(
    "EurnnArguments", shape=Shape, mesh=MeshArguments, x=c_void_p, weight=c_void_p, bias=c_void_p, state=c_void_p,
    output=c_void_p, saved=c_void_p, scratch=c_void_p, grad_output=c_void_p, h0=c_void_p, grad_step=c_int64,
    grad_row=c_int64, depth=c_int64, gradients=c_void_p, inputs=c_void_p, sums=c_void_p, weights=c_void_p,
    grad_x=c_void_p,
)  # fmt: skip
DenseArguments = _plain(
    "DenseArguments", shape=Shape, saved_step=c_int64, x=c_void_p, packed=c_void_p, bias=c_void_p, state=c_void_p,
    output=c_void_p, saved=c_void_p, grad_step=c_int64, grad_row=c_int64, rows=c_int64, grad_output=c_void_p,
    h0=c_void_p, packed_input=c_void_p, chunk=c_void_p, weights=c_void_p, sums=c_void_p, grad_x=c_void_p,
)  # fmt: skip
DenseSizes = _plain(
    "DenseSizes", packed=c_int64, packed_backward=c_int64, packed_input=c_int64, state=c_int64, inputs=c_int64,
    chunk_row=c_int64, block_rows=c_int64,
)  # fmt: skip
RotationSizes = _plain("RotationSizes", lanes=c_int64, eurnn_scratch=c_int64, matrix_scratch=c_int64, columns=c_int64)


class GoruSizes(Structure):
    """As in table.h."""

    _fields_ = [
        (name, c_int64)
        for name in (
            "packed", "packed_backward", "packed_input", "chunk_row", "through_row", "line", "wide", "square", "bias",
            "block_rows", "width", "mesh", "angles",
        )
    ]  # fmt: skip


def source_hash() -> str | None:
    """The state of the C++ sources, as hatch_build.py computes it; None where they are not shipped."""
    if not SOURCES.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
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
    for name, arguments in {
        "goru_goru_sizes": [c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
        "goru_goru_pack": [c_int, c_int, c_void_p, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
        "goru_goru_pack_backward": [c_int, c_int, c_void_p, c_void_p, c_int64, c_void_p],
        "goru_goru_pack_input": [c_int, c_int, c_void_p, c_int64, c_int64, c_void_p],
        "goru_goru_mesh": [c_int, c_void_p, c_int64, c_void_p, c_void_p],
        "goru_goru_finish": [c_int, c_void_p],
        "goru_goru_forward": [c_int, c_void_p],
        "goru_goru_backward": [c_int, c_void_p],
        "goru_rotation_sizes": [c_int, c_int, c_int64, c_int64, c_int64, c_void_p],
        "goru_mesh_matrix": [c_int, c_int, c_void_p],
        "goru_mesh_matrix_backward": [c_int, c_int, c_void_p],
        "goru_eurnn_forward": [c_int, c_int, c_void_p],
        "goru_eurnn_backward": [c_int, c_int, c_void_p],
        "goru_dense_sizes": [c_int, c_int64, c_int64, c_void_p],
        "goru_dense_pack": [c_int, c_void_p, c_void_p, c_int64, c_int64, c_void_p],
        "goru_dense_pack_input": [c_int, c_void_p, c_int64, c_int64, c_void_p],
        "goru_dense_forward": [c_int, c_void_p],
        "goru_dense_backward": [c_int, c_void_p],
    }.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
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
    """The instruction sets of the library that this processor can run, the plainest first."""
    return {library.goru_level_name(i).decode(): i for i in range(library.goru_levels()) if library.goru_level_runs(i)}


_forked = False


def _remember_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_remember_fork)


def get() -> Any:
    """The library; RuntimeError where there is none.

    In a forked child torch's own thread pool does not exist, and its larger operations would wait for it for ever:
    there torch is put on one thread, as its DataLoader does with its workers.
    """
    if _forked and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
    library = load()
    if isinstance(library, str):
        raise RuntimeError(library)
    return library


@contextmanager
def scratch(elements: dict[str, int], itemsize: int):
    """Addresses of buffers of so many elements each, from the library's pool, for as long as the block lasts."""
    offsets, total = {}, 0
    for name, count in elements.items():
        offsets[name] = total
        total += (count * itemsize + 127) // 64 * 64
    library = get()
    address = library.goru_take(total) if total < MOST_BYTES else None
    if not address:
        raise RuntimeError(f"not enough memory: the native kernels could not get a buffer of {total} bytes")
    try:
        yield {name: address + offset for name, offset in offsets.items()}
    finally:
        library.goru_give(address)


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes, _new_capsule.restype = [c_void_p, c_char_p, c_void_p], ctypes.py_object


def pooled_empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """torch.empty for large tensors that come and go with each training step: the memory is kept for the next."""
    total = math.prod(shape) * dtype.itemsize
    if total < 1 << 20:
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
