"""`goru ls`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from goru.lab import paper
from goru.lab.cli.parse import parse


@dataclass(frozen=True)
class Options:
    """List the experiments and models, and what each costs."""


def main(argv: list[str], console: Console) -> int:
    parse(Options, "ls", argv)
    headings = ("experiment", "shown in", "models", "settings", "length", "cost of one seed")
    table = Table(*headings, box=None, pad_edge=False, header_style="bold")
    for one in paper.EXPERIMENTS.values():
        steps = one.base.steps
        length = f"{steps} steps" if steps else f"{one.base.epochs} epochs"
        table.add_row(
            one.name,
            one.paper.shown_in if one.paper else "",
            ", ".join(one.models),
            ", ".join(one.variants) if not one.parts else f"{one.first_variant}, ... ({len(one.variants)})",
            length,
            f"{one.seconds / 3600:.1f} core hours" if one.seconds else "not measured",
        )
    console.print(table)
    console.print("\nThe small version of each takes minutes: goru reproduce --quick")
    return 0
