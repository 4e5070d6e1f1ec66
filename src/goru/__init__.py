"""Gated orthogonal recurrent units for PyTorch: `goru.GORU` is a drop-in for `torch.nn.GRU`."""

import sys as _sys
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING as _TYPE_CHECKING

__version__ = _version("goru")


def _is_command() -> bool:
    """Whether this process is the command `goru`, or `python -m goru`."""
    program = _sys.argv[0] if getattr(_sys, "argv", None) else ""
    if program == "-m":  # `python -m` has not found its module yet
        return _sys.orig_argv[_sys.orig_argv.index("-m") + 1] in ("goru", "goru.lab")
    return program.replace("\\", "/").rpartition("/")[2] in ("goru", "goru.exe")


if _TYPE_CHECKING or not _is_command():
    from .library import *  # noqa: F403
    from .library import __all__ as __all__
else:  # `goru ls` and `goru --help` should not wait for torch: the library is imported when it is first used

    def __getattr__(name: str) -> object:
        library = _sys.modules.get("goru.library") or _import_module("goru.library")
        if name in library.__all__:
            return getattr(library, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
