"""The command `goru`: every verb is a module here, with its options (`Options`) and its function (`main`).

Verbs import what they need when they run: `goru --help`, `ls`, `show`, `status` and usage errors do not import torch.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from goru.lab.errors import LabError, RunInterruptedError, UsageError, nearest, printable

VERBS = ("ls", "show", "run", "reproduce", "status", "report", "record", "data", "bench")


def main(argv: list[str]) -> int:
    """Run a command line; returns the exit code."""
    # A pipe or a file has no width to fit: no column is cut. No markup: names may contain brackets.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 10_000
    console = Console(width=width, markup=False, highlight=False)
    if not argv or argv[0] in ("-h", "--help", "help"):
        console.print(_overview())
        return 0
    try:
        if argv[0] == "doctor":  # part of the library; here for `python -m goru.lab`
            from goru import doctor

            return doctor.main(argv[1:])
        return verb(argv[0]).main(argv[1:], console)
    except LabError as error:
        print(f"goru: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as ended:  # tyro has already printed why
        return ended.code if isinstance(ended.code, int) else 2
    except BrokenPipeError:
        raise
    except OSError as error:  # an impossible path, a folder without read permission
        print(f"goru: {printable(str(error.filename or ''))[:200]}: {error.strerror or error}.", file=sys.stderr)
        return LabError.exit_code
    except KeyboardInterrupt:
        return RunInterruptedError.exit_code


def verb(name: str) -> Any:
    """The module of a verb."""
    if name not in VERBS:
        raise UsageError(nearest("command", name, (*VERBS, "doctor")))
    return importlib.import_module(f"goru.lab.cli.{name}")


def _overview() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row(Text.assemble(("goru COMMAND", "bold"), " ..."), "the experiments of the GORU paper")
    table.add_row()
    for name in VERBS:
        table.add_row(f"goru {name}", (verb(name).Options.__doc__ or "").splitlines()[0])
    table.add_row("goru doctor", "Check which kernels work on this machine, and why others do not.")
    table.add_row()
    table.add_row("goru COMMAND --help", "all options of a command")
    return table
