"""The study by which the `memory` of GORU was chosen for the synthetic tasks. Beyond the paper.

The rule was written before the runs. For each task: the memory with the lowest final held-out loss, averaged over the
seeds, where losses below 1 % of the baseline count as 1 %; of equal ones the longest memory.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from goru.lab.paper import meshes
from goru.lab.paper.columns import Column
from goru.lab.paper.findings import joined
from goru.lab.paper.models import WITH_MEMORY
from goru.lab.paper.outcomes import Group
from goru.lab.paper.starts import FLOOR, RUNS, STEPS, TASKS, share_column, shares

MEMORIES = {f"memory-{steps}": steps for steps in (STEPS, STEPS // 3, STEPS // 10)}
"""The longest first."""
MODELS = {name: replace(WITH_MEMORY, memory=steps) for name, steps in MEMORIES.items()}


def chosen(group: Group, part: str) -> str | None:
    """The memory that the rule chooses for a task; None while a memory has no run."""
    found = {name: shares(group, name, part) for name in MEMORIES}
    if not all(found.values()):
        return None
    return min(found, key=lambda name: max(FLOOR, fmean(found[name])))  # the first of equal ones is the longest


def best_memories(group: Group) -> str:
    """The chosen memory of each task."""
    known = {part: name for part in TASKS if (name := chosen(group, part)) is not None}
    said = [f"{MEMORIES[name]} steps for {part}" for part, name in known.items()]
    return f"over {STEPS} steps, the best memory is {joined(said)}." if said else ""


def _column(part: str) -> Column:
    return share_column(part, lambda group, name: chosen(group, part) == name)


EXPERIMENT = replace(
    meshes.EXPERIMENT,
    name="memories",
    title="Study: how long a memory GORU should start with",
    label="Memories",
    place=15,
    summary="Three memories of a GORU, on short versions of the three synthetic tasks.",
    base=replace(meshes.EXPERIMENT.base, experiment="memories"),
    models=MODELS,
    matched="Sizes: the same for every memory.",
    decisions=(
        "The rule, written before the runs: for each task the memory with the lowest final loss, averaged over three "
        "seeds; losses below 1 % of the baseline count as 1 %, and of equal ones the longest memory is taken.",
        "The paper's tasks, of 200 steps, take the same share of their length.",
        "Tasks as in the study of the meshes: T = 100, 1,600 iterations of 64 sequences.",
        "The memories were picked after first tries with other seeds, also with T = 100: denoise with 30 and with 10 "
        "steps ended at 2 to 3 %, with 100 at 8 and 31 %.",
    ),
    columns=(*(_column(part) for part in TASKS), RUNS),
    drawings=(),
    finding=best_memories,
)
