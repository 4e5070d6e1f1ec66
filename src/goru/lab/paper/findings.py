"""Phrases on what the runs of an experiment show, made from their numbers.

They begin in lower case and end with a period: after a colon they are used as they are, elsewhere `capitalized`.
"""

from __future__ import annotations

from collections.abc import Sequence

from goru.lab.paper.columns import Measure
from goru.lab.paper.models import title
from goru.lab.paper.outcomes import Group, Spread, percent, spread
from goru.lab.paper.rules import SOLVED

_NAMED = 4
"""A sentence names at most this many models with their numbers, and gives a range for the others."""
DIVERGED = 10.0
"""A final loss above so many baselines is called diverged."""


def joined(words: Sequence[str]) -> str:
    """
    >>> joined(["GORU", "GRU", "LSTM"]), joined(["GORU"])
    ('GORU, GRU and LSTM', 'GORU')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def capitalized(text: str) -> str:
    """
    >>> capitalized("solved by GORU."), capitalized("")
    ('Solved by GORU.', '')
    """
    return text[:1].upper() + text[1:]


def who_solves(group: Group) -> str:
    """Which models solved a task and after how many iterations, and where the others ended."""
    losses = {name: loss for name in group.models if (loss := group.final_mean(name, "test_loss")) is not None}
    if not losses:
        return ""
    shares = {name: losses[name] / group.baseline for name in sorted(losses, key=losses.__getitem__)}
    counts = {name: seeds_that_solve(group, name) for name in shares}
    steps = {name: first_steps(group, name) for name, (solved, seeds) in counts.items() if solved == seeds}
    known = {name: step for name, step in steps.items() if step is not None}
    order = [*sorted(known, key=lambda name: known[name].mean), *(name for name in steps if name not in known)]
    solved = [title(name) + (f" after {iterations(known[name])}" if name in known else "") for name in order]
    solved += [f"{title(name)} {_in_seeds(*count)}" for name, count in counts.items() if 0 < count[0] < count[1]]
    rest = {name: share for name, share in shares.items() if not counts[name][0]}
    ends = [f"{title(name)} at {percent(share)}" for name, share in list(rest.items())[:_NAMED]]
    if len(rest) > _NAMED:
        ends.append(f"{len(rest) - _NAMED} more at up to {percent(max(rest.values()))}")
    ended = f"{joined(ends)} of the baseline" if ends else ""
    if not solved and len(shares) == 1:
        ((name, share),) = shares.items()
        return f"{title(name)} does not solve it: it ends at {percent(share)} of the baseline."
    if not solved:
        return f"no model solves it: they end with {ended}."
    return f"solved by {joined(solved)}" + (f"; not by {ended}." if ended else ".")


def seeds_that_solve(group: Group, name: str) -> tuple[int, int]:
    """How many of a model's finished runs end below the bar, and how many there are."""
    losses = [loss for run in group.finished(name) if (loss := run.score("test_loss")) is not None]
    return sum(loss < SOLVED * group.baseline for loss in losses), len(losses)


def _in_seeds(solved: int, seeds: int) -> str:
    return f"in {solved} of {seeds} seeds"


def first_steps(group: Group, name: str) -> Spread | None:
    """When the runs of a model were first below the bar; None if one of them never was."""
    steps = [record.first_step_below(SOLVED * group.baseline) for record in group.shown(name)]
    known = [float(step) for step in steps if step is not None]
    return spread(known) if known and len(known) == len(steps) else None


def iterations(steps: Spread) -> str:
    """
    >>> iterations(spread([2000.0, 3000.0])), iterations(spread([500.0, 500.0]))
    ('2,500 ± 707 iterations', '500 iterations')
    """
    deviation = f" ± {steps.deviation:,.0f}" if round(steps.deviation) else ""
    return f"{steps.mean:,.0f}{deviation} iterations"


DOES_IT_REMEMBER = "Does GORU remember like an EURNN?"
DOES_IT_FORGET = "Does it forget like a GRU?"
WHAT_ORTHOGONALITY_BUYS = "What does orthogonality buy?"


def solves(group: Group, name: str) -> bool:
    """Whether all finished runs of a model end below the bar."""
    solved, seeds = seeds_that_solve(group, name)
    return 0 < solved == seeds


def how_it_ends(group: Group, name: str) -> str:
    """What a model does on a task with a baseline; empty if it has not finished.

    Such as "solves it in 500 iterations", "solves it in 2 of 3 seeds", "ends at 56% of the baseline" or "diverges".
    """
    loss = group.final_mean(name, "test_loss")
    if loss is None:
        return ""
    steps, (solved, seeds) = first_steps(group, name), seeds_that_solve(group, name)
    if 0 < solved < seeds:
        return f"solves it {_in_seeds(solved, seeds)}"
    if solved and steps is not None:
        return f"solves it in {iterations(steps)}"
    if loss > DIVERGED * group.baseline:
        bar = percent(SOLVED)
        before = "" if steps is None else f"falls below {bar} of the baseline after {iterations(steps)}, then "
        return f"{before}diverges"
    return f"ends at {percent(loss / group.baseline)} of the baseline"


def compared(group: Group, *names: str) -> str:
    """How these models end; empty if the first has not finished, or no other has."""
    first, *others = ((title(name), how_it_ends(group, name)) for name in names)
    rest = ", ".join(f"{name} {end}" for name, end in others if end)
    return f"{' '.join(first)}; {rest}" if first[1] and rest else ""


def who_leads(group: Group, measure: Measure) -> str:
    """The first three models by a measure."""
    ranked = measure.ranked(group)
    if not ranked:
        return ""
    first, *rest = [f"{title(name)} with {measure.text(group, name)}{measure.sign}" for name in ranked[:3]]
    then = f", then {joined(rest)}" if rest else ""
    return f"{'highest' if measure.higher_is_better else 'lowest'} {measure.title}: {first}{then}."
