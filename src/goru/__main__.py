"""The command `goru`: `doctor` belongs to the library, every other verb to the laboratory (`goru[lab]`)."""

from __future__ import annotations

import os
import signal
import sys

USAGE = """usage: goru COMMAND ...

  goru doctor   which kernels run on this machine and why, with a short self-test

Every other command (ls, show, run, reproduce, status, report, record, data, bench) belongs to the laboratory: {lab}
"""
INSTALL = 'pip install -c constraints.txt ".[lab]" in a checkout'


def main(argv: list[str] | None = None) -> int:
    """Carry out a command line; returns the exit code."""
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # its reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _main(argv: list[str]) -> int:
    if argv[:1] == ["doctor"]:
        from . import doctor

        return doctor.main(argv[1:])
    asks_help = not argv or argv[0] in ("-h", "--help", "help")
    try:
        from .lab import cli
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "goru" and error.name not in ("goru.lab", "goru.lab.cli"):
            raise  # a fault of ours, not a missing dependency
        if asks_help:
            print(USAGE.format(lab=INSTALL), end="")
            return 0
        print(f"goru {argv[0]} needs the laboratory: {INSTALL}", file=sys.stderr)
        return 2
    return cli.main(argv)


if __name__ == "__main__":
    sys.exit(main())
