"""Tables of the experiments on data, our numbers beside the paper's where both are of the same data.

The parts of an experiment (folds, tasks) are one group here: a row is the mean over them. Generated data
stand alone, under their own name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

from goru.lab import paper
from goru.lab.engines.display import duration
from goru.lab.paper import published
from goru.lab.report import stories
from goru.lab.report.records import Group, Record, Spread, complete_seeds, parts_done, settled, spread
from goru.lab.report.rules import BPC_MARGIN
from goru.lab.report.tables import CLOCK, Cell, Table, count, difference, measured_step, progress, rate

_BRIEF = (
    *(
        "model",
        "accuracy %",
        "whole sequences %",
        "paper %",
        "paper %, same tasks",
        "valid bpc",
        "test bpc",
        "paper bpc",
    ),
    *(
        "valid MSE",
        "test MSE",
        "of GORU's",
        "paper: of GORU's",
        "difference",
        "and here",
        "runs",
        "iterations/s",
        "time",
    ),
)

Maker = Callable[[str, list[Record]], str]
"""From a model and its runs to what a table says of them."""


def has_comparison(group: Group) -> bool:
    return group.experiment in _COLUMNS


def tables(group: Group) -> list[Table]:
    """The table of a group, and for the stories one more by task."""
    main = _results(group)
    return [main, stories.by_task(group, data_title(group), on_files(group))] if group.experiment == "babi" else [main]


def data_title(group: Group) -> str:
    """What the data of a group are, by their true name."""
    title = _first(group).config.task.data_title
    return title.partition(",")[0] if paper.EXPERIMENTS[group.experiment].in_parts else title


def on_files(group: Group) -> bool:
    """Whether a group was run on the data sets, not on generated data."""
    return _first(group).config.task.data_set is not None


def _first(group: Group) -> Record:
    return next(iter(group.models.values()))[0]


def _results(group: Group) -> Table:
    columns = dict(_COLUMNS[group.experiment])
    if on_files(group):
        columns |= _PAPER[group.experiment]
        if group.experiment == "speech":
            columns |= _beside_goru(group)
    columns |= {"runs": lambda _, records: _runs(group, records)} | _COSTS
    columns |= {"ms a step": lambda _, records: measured_step(group, records)} | _SIZES
    rows = [
        (paper.title(model), *(cell(model, records) for cell in columns.values()))
        for model, records in group.models.items()
    ]
    rows += [
        (name, *(values.get(heading, "") for heading in columns)) for name, values in _reference_levels(group).items()
    ]
    one = paper.EXPERIMENTS[group.experiment]
    title = f"{one.title}: {data_title(group)} ({group.variant})"
    notes = (_NOTES[_first(group).config.task.data_set or ""] if on_files(group) else "", one.matched)
    note = " ".join(part for part in (*notes, CLOCK) if part)
    return Table(group.name, title, group.variant, ("model", *columns), tuple(rows), _BRIEF, note)


def scores(records: list[Record], name: str) -> Spread | None:
    """A score over the runs whose numbers are shown."""
    values = [value for record in settled(records) if (value := record.score(name)) is not None]
    return spread(values) if values else None


def _shown(name: str, scale: float = 1.0, digits: int = 3) -> Maker:
    def cell(_: str, records: list[Record]) -> str:
        found = scores(records, name)
        if found is None:
            return ""
        deviation = f" ± {scale * found.deviation:.{digits}f}" if found.count > 1 else ""
        return f"{scale * found.mean:.{digits}f}{deviation}"

    return cell


def _result(name: str) -> Maker:
    def cell(_: str, records: list[Record]) -> str:
        counts = sorted({record.result[name] for record in records if record.result})
        if not counts:
            return ""
        return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"

    return cell


def _paper(values: dict[str, str]) -> Maker:
    return lambda model, _: values.get(published.ROWS.get(model, ""), "")


_SIZES: dict[str, Maker] = {
    "units": lambda _, records: str(records[0].config.layer.hidden_size),
    "parameters": _result("parameters"),
    "hidden to hidden": _result("hidden_to_hidden_parameters"),
}
_COSTS: dict[str, Maker] = {
    "steps": lambda _, records: progress(settled(records)) if len(records) == 1 or complete_seeds(records) else "",
    "best step": lambda _, records: (
        f"{fmean(record.result.get('best_step', record.step) for record in records if record.result):.0f}"
        if any(record.result for record in records)
        else ""
    ),
    "iterations/s": lambda _, records: rate(records),
    "time": lambda _, records: duration(sum(record.seconds for record in records)),
}


def _runs(group: Group, records: list[Record]) -> str:
    """How many are finished; of an experiment in parts, of how many parts."""
    one = paper.EXPERIMENTS[group.experiment]
    if not one.in_parts or group.kind:
        return count(records)
    seeds = complete_seeds(records)
    more = f", {len(seeds)} seeds" if len(seeds) > 1 else ""
    return f"{parts_done(records)} of {len(one.variants)} {one.part_word}{more}"


_COLUMNS: dict[str, dict[str, Maker]] = {
    "shortest_path": {
        "accuracy %": _shown("test_accuracy", 100, 1),
        "whole sequences %": _shown("test_sequence_accuracy", 100, 1),
    },
    "babi": {"accuracy %": lambda _, records: stories.mean_of_tasks(records)},
    "penn_treebank": {"valid bpc": _shown("valid_bpc"), "test bpc": _shown("test_bpc")},
    "speech": {"valid MSE": _shown("valid_loss"), "test MSE": _shown("test_loss")},
}
_PAPER: dict[str, dict[str, Maker]] = {
    "shortest_path": {
        "paper %": _paper({row: f"{mean} ± {dev}" for row, (mean, dev) in published.SHORTEST_PATH.items()}),
        "difference": lambda model, records: _path_difference(model, records),
    },
    "babi": {
        "paper %, same tasks": stories.paper_mean,
        "difference": stories.mean_difference,
        "paper's mean as printed %": _paper({row: str(mean) for row, mean in published.BABI_MEANS.items()}),
    },
    "penn_treebank": {
        "paper bpc": _paper({row: str(bpc) for row, bpc in published.PENN_TREEBANK.items()}),
        "difference": lambda model, records: _bpc_difference(model, records),
    },
    "speech": {
        "paper: parameters": _paper({row: values[0] for row, values in published.SPEECH.items()}),
        "paper: valid, test MSE on TIMIT": _paper(
            {row: f"{valid}, {test}" for row, (_, valid, test) in published.SPEECH.items()}
        ),
    },
}


_NOTES: dict[str, str] = {
    "shortest_path": "Close: within the deviation that the paper prints.",
    "babi": f"Close: within {stories.MEAN_CLOSE:g} point of the paper's mean over the same tasks.",
    "ptb": f"Close: within {BPC_MARGIN} bits per character.",
    "speech_so762_8k": "Another corpus than the paper's: the errors are compared as shares of GORU's. "
    "Agrees: on the same side of GORU's error.",
    "timit": "The paper's corpus; on which scale its errors are it does not say: compared are shares of GORU's. "
    "Agrees: on the same side of GORU's error.",
}


def _finished_mean(records: list[Record], name: str) -> float | None:
    finished = [record for record in records if record.finished]
    found = scores(finished, name) if finished else None
    return found.mean if found else None


def _path_difference(model: str, records: list[Record]) -> str:
    theirs = published.SHORTEST_PATH.get(published.ROWS.get(model, ""))
    ours = _finished_mean(records, "test_accuracy")
    if theirs is None or ours is None:
        return ""
    whole = bool(complete_seeds(records))
    return difference(100 * ours, theirs[0], close=theirs[1], digits=1, higher_is_better=True, whole=whole)


def _bpc_difference(model: str, records: list[Record]) -> str:
    theirs = published.PENN_TREEBANK.get(published.ROWS.get(model, ""))
    if theirs is None:
        return ""
    ours = _finished_mean(records, "test_bpc")
    return difference(ours, theirs, close=BPC_MARGIN, digits=3, higher_is_better=False)


def _beside_goru(group: Group) -> dict[str, Maker]:
    """Test errors as shares of GORU's, here and in the paper."""
    reference = _finished_mean(group.models.get("goru", []), "test_loss")

    def share(records: list[Record]) -> float | None:
        ours = _finished_mean(records, "test_loss")
        return None if ours is None or reference is None else ours / reference

    def here(_: str, records: list[Record]) -> str:
        found = share(records)
        return "" if found is None else f"{found:.1%}"

    def there(model: str) -> float | None:
        row = published.SPEECH.get(published.ROWS.get(model, ""))
        return row[2] / published.SPEECH["GORU"][2] if row else None

    def in_paper(model: str, _: list[Record]) -> str:
        found = there(model)
        return "" if found is None else f"{found:.1%}"

    def agreement(model: str, records: list[Record]) -> str:
        ours, theirs = share(records), there(model)
        if model == "goru" or ours is None or theirs is None:
            return ""
        return Cell("agrees", "agrees") if (ours > 1) == (theirs > 1) else Cell("differs", "differs")

    return {"of GORU's": here, "paper: of GORU's": in_paper, "and here": agreement}


def _reference_levels(group: Group) -> dict[str, dict[str, str]]:
    """Rows for what needs no learning, as the runs have computed it."""
    known = [r.result["about"] for r in group.records if r.result and isinstance(r.result.get("about"), dict)]
    if not known:
        return {}

    def mean(name: str) -> float:
        values = [value for about in known if isinstance(value := about.get(name), (int, float))]
        return fmean(values) if values else math.nan

    if group.experiment == "shortest_path":
        return {
            title: {
                "accuracy %": f"{100 * mean(f'{level}_accuracy'):.1f}",
                "whole sequences %": f"{100 * mean(f'{level}_sequence_accuracy'):.1f}",
            }
            for level, title in (
                ("any_node", "guess: any node between"),
                ("neighbour", "guess: a neighbour between"),
            )
        }
    if group.experiment == "penn_treebank":
        return {"character frequencies": {"test bpc": f"{mean('unigram_bpc'):.3f}"}}
    if group.experiment == "speech":
        return {
            "the frame before": {"test MSE": f"{mean('previous_frame_loss'):.3f}"},
            "the mean frame": {"test MSE": f"{group.baseline:.3f}"},
        }
    return {"the commonest answer": {"accuracy %": f"{100 * mean('majority_accuracy'):.1f}"}}
