"""`goru show`."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from goru.lab import paper
from goru.lab.cli.parse import Name, parse
from goru.lab.training.config import flat


@dataclass(frozen=True)
class Options:
    """Show an experiment: its settings, what the paper says, and our decisions."""

    experiment: Name


def main(argv: list[str], console: Console) -> int:
    one = paper.experiment(parse(Options, "show", argv).experiment)
    where = f"  ({one.paper.shown_in})" if one.paper else ""
    console.print(Text.assemble((one.title, "bold"), f"{where}\n{one.summary}"))
    if one.paper:
        console.print("\nThe paper", style="bold")
        console.print(one.paper.says)
    for claim in one.claims:
        console.print(f"  {claim.name}: {claim.text}")
    console.print("\nSettings", style="bold")
    for path, value in flat(one.base).items():
        if not path.startswith("layer.") and path not in ("experiment", "variant", "model", "seed"):
            console.print(f"  {path} = {value}")
    console.print("\nModels", style="bold")
    for name, layer in one.models.items():
        cost = one.step_seconds(one.config(name))
        text = f"  {name}: {layer.hidden_size} units"
        console.print(text + (f", about {1000 * cost:.0f} ms per step" if cost else ""))
    console.print("\nVariants", style="bold")
    for name, changes in one.all_variants.items():
        how = ", ".join(f"{path} = {value}" for path, value in changes.items()) or "as above"
        note = "" if name in one.variants else " (only with --variants)"
        console.print(f"  {name}: {how}{note}")
    for name in ("generated", "quick"):
        if changes := one.version(name).changes:
            console.print(f"  {name}: {', '.join(f'{k} = {v}' for k, v in changes.items())}")
    console.print("\nDecisions", style="bold")
    for text in paper.decisions(one.name):
        console.print(f"  - {text}")
    return 0
