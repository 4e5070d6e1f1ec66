"""Command lines from dataclasses, and the options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeVar

import tyro

T = TypeVar("T")

Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT ...")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]


def parse(kind: type[T], verb: str, argv: list[str], default: T | None = None) -> T:
    """The options of a command, an instance of `kind`; a usage error ends the process with a message."""
    return tyro.cli(
        kind,
        prog=f"goru {verb}",
        args=argv,
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def default_runs() -> Path:
    """The folder of the runs: `GORU_RUNS`, or `runs` in the current folder."""
    return Path(os.environ.get("GORU_RUNS", "runs"))


def allow_other_kernels(allowed: bool) -> None:
    """Apply `--other-kernels` to this process and its children."""
    if allowed:
        os.environ["GORU_OTHER_KERNELS"] = "1"
