"""The report on the experiments on data: the paper's numbers beside ours, parts joined, claims judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goru.lab import paper, report
from goru.lab.paper import babi, penn_treebank
from goru.lab.paper.columns import Table
from goru.lab.report import claims, markdown, sections
from goru.lab.report.record import full_size, load

MODELS = ("goru", "eurnn-real", "eurnn-complex", "gru", "lstm")


def write_run(
    folder: Path,
    experiment: str,
    model: str,
    variant: str,
    final: dict[str, float],
    *,
    seed: int = 0,
    about: dict[str, Any] | None = None,
    figure: dict[str, Any] | None = None,
) -> None:
    """A finished run directory with these final scores."""
    config = paper.experiment(experiment).config(model, variant, seed)
    directory = config.directory(folder)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(config.to_json())
    lines = [
        {"step": 0, "last_step": 100, "baseline": 2.0, "valid_loss": 2.1, "seconds": 0.0},
        {"step": 100, "valid_loss": 1.0, "seconds": 5.0},
    ]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = {
        "step": 100,
        "best_step": 100,
        "final": {"valid_loss": 1.0, "test_loss": 1.1} | final,
        "baseline": 2.0,
        "about": about or {},
        "parameters": 12345,
        "hidden_to_hidden_parameters": 678,
        "total_seconds": 5.0,
        "steps_per_s": 20.0,
    }
    (directory / "result.json").write_text(json.dumps(result))
    if figure is not None:
        (directory / "figure.json").write_text(json.dumps(figure))


def tables(folder: Path) -> dict[str, Table]:
    """The tables of a report, without the figures that take their time to draw."""
    groups, problems = load(folder)
    assert problems == []
    return {table.name: table for section in sections.make(groups, []) for table in section.tables}


def row(table: Table, name: str) -> dict[str, str]:
    (cells,) = (cells for cells in table.texts if cells[0] == name)
    return dict(zip(table.headings, cells, strict=True))


def verdict(folder: Path, name: str) -> claims.Verdict:
    (found,) = (v for v in claims.judge_all(load(folder)[0]) if v.claim.name == name and not v.stand_in)
    return found


PATH_LEVELS = {
    "any_node_accuracy": 0.7,
    "any_node_sequence_accuracy": 0.1,
    "neighbour_accuracy": 0.8,
    "neighbour_sequence_accuracy": 0.5,
}


@pytest.mark.parametrize("folds", [2, 10])
def test_folds_are_one_row(tmp_path: Path, folds: int) -> None:
    for model in MODELS:
        for fold, accuracy in ((f"fold{k:02}", 0.7 + k % 2 / 10) for k in range(1, folds + 1)):
            better = 0.1 if model == "goru" else 0.0
            final = {"test_accuracy": accuracy - 0.2 + better, "test_sequence_accuracy": 0.25}
            write_run(tmp_path, "shortest_path", model, fold, final, about=PATH_LEVELS)
    table = tables(tmp_path)["shortest_path-paper"]
    ours = row(table, "GORU")
    assert ours["accuracy %"] == ("65.0 ± 7.1" if folds == 2 else "65.0 ± 5.3")
    assert ours["whole sequences %"] == "25.0 ± 0"
    assert ours["paper %"] == "75.0 ± 5.3"
    assert ours["runs"] == f"{folds} of 10 folds"
    assert ours["difference"] == ("-10.0 so far" if folds == 2 else "-10.0 worse")
    assert ours["parameters"] == "12,345"
    assert row(table, "no learning: any node")["accuracy %"] == "70.0"
    assert row(table, "no learning: a neighbor of the source")["accuracy %"] == "80.0"
    assert row(table, "EURNN (real)")["paper %"] == row(table, "EURNN (complex)")["paper %"] == "66.3 ± 3.2"
    judged = verdict(tmp_path, "C7")
    if folds < 10:
        assert judged.status == claims.OPEN
        return
    assert judged.status == claims.REPRODUCED
    assert [statement.holds for statement in judged.statements] == [True, True]


def test_a_seed_that_is_not_complete_counts_nowhere(tmp_path: Path) -> None:
    """Table, README and verdict rest on the same runs."""
    for fold in range(1, 11):
        for model in MODELS:
            accuracy = {"test_accuracy": 0.7 if model == "goru" else 0.69, "test_sequence_accuracy": 0.1}
            write_run(tmp_path, "shortest_path", model, f"fold{fold:02}", accuracy, about=PATH_LEVELS)
        if fold <= 5:
            poor = {"test_accuracy": 0.3, "test_sequence_accuracy": 0.1}
            write_run(tmp_path, "shortest_path", "goru", f"fold{fold:02}", poor, seed=1, about=PATH_LEVELS)
    found = verdict(tmp_path, "C7")
    assert (found.status, found.note) == ("reproduced", "one seed")
    assert "GORU 70.0 (over the folds ± 0.0)" in found.statements[0].evidence
    assert row(tables(tmp_path)["shortest_path-paper"], "GORU")["accuracy %"] == "70.0 ± 0"
    numbers = markdown.numbers(full_size(tmp_path))
    assert "| accuracy, % | 70.0 |" in numbers
    assert "| the paper | 75.0 |" in numbers


def test_parts_of_several_seeds_make_no_whole(tmp_path: Path) -> None:
    for fold in range(1, 11):
        for model in MODELS:
            accuracy = {"test_accuracy": 0.7, "test_sequence_accuracy": 0.1}
            seed = int(model == "goru" and fold > 6)
            write_run(tmp_path, "shortest_path", model, f"fold{fold:02}", accuracy, seed=seed, about=PATH_LEVELS)
    found = verdict(tmp_path, "C7")
    assert (found.status, found.note) == ("not yet decided", "6 of 10 folds of GORU finished")
    assert "| accuracy, % | 70.0† |" in markdown.numbers(full_size(tmp_path))
    assert row(tables(tmp_path)["shortest_path-paper"], "GORU")["runs"] == "6 of 10 folds"
    (section,) = sections.make(load(tmp_path)[0], [])
    assert section.variants[0].gaps[-1].startswith("Of 10 folds finished: GORU 6, ")


def test_stories_by_task_with_both_means(tmp_path: Path) -> None:
    for model in MODELS:
        for task in (1, 5):
            final = {"test_accuracy": 0.5 + task / 100}
            write_run(tmp_path, "babi", model, f"task{task:02}", final, about={"majority_accuracy": 0.2})
    found = tables(tmp_path)
    by_task = found["babi-paper-tasks"]
    one = row(by_task, "5 three argument relations")
    assert (one["GORU"], one["paper: GORU"], one["paper: baseline"]) == ("55.0 ▼", "87.0", "70.0")
    assert one["most common answer"] == "20.0"
    assert row(by_task, "mean of these tasks")["paper: GRU"] == f"{(49.1 + 78.0) / 2:.1f}"
    assert row(by_task, "mean as the paper prints it")["paper: GRU"] == "58.2"
    main = row(found["babi-paper"], "GRU")
    assert main["accuracy %"] == "53.0 (2 tasks)"
    assert main["paper's mean as printed %"] == "58.2"
    assert verdict(tmp_path, "C8").status == claims.OPEN  # not all tasks yet


def test_the_mean_over_all_tasks_is_judged(tmp_path: Path) -> None:
    for model in MODELS:
        for task in range(1, 21):
            final = {"test_accuracy": babi.paper_mean(paper.model(model).row, [task]) / 100}
            write_run(tmp_path, "babi", model, f"task{task:02}", final, about={"majority_accuracy": 0.2})
    judged = verdict(tmp_path, "C8")  # the paper's own numbers
    assert judged.status == claims.REPRODUCED
    assert "GORU 60.4" in judged.statements[0].evidence
    assert "GRU 60.2" in judged.statements[0].evidence
    assert judged.statements[0].evidence.endswith(
        "; the paper's columns average GORU 60.4, GRU 60.2, LSTM 56.0, EURNN 52.9; it prints 58.2 for GRU"
    )
    assert "recomputed" not in judged.claim.text
    assert judged.note == "one seed"


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, claims.REPRODUCED), ({"goru": 1.70}, claims.NOT_REPRODUCED), ({"lstm": 1.5}, claims.PARTLY)],
)
def test_characters(tmp_path: Path, changes: dict[str, float], status: str) -> None:
    models = [name for name in paper.EXPERIMENTS["penn_treebank"].models if paper.model(name).row]  # of the paper
    for model in models:
        bpc = changes.get(model, penn_treebank.PAPER[paper.model(model).row])
        write_run(
            tmp_path, "penn_treebank", model, "paper", {"test_bpc": bpc, "valid_bpc": bpc}, about={"unigram_bpc": 4.3}
        )
    table = tables(tmp_path)["penn_treebank-paper"]
    assert len(table.rows) == len(models) + 1
    assert row(table, "GORU without reset gate")["paper bpc"] == "1.722"
    assert row(table, "GORU")["difference"] == ("+0.077 worse" if "goru" in changes else "+0.000 close")
    assert row(table, "character frequencies")["test bpc"] == "4.300"
    assert verdict(tmp_path, "C9").status == status
    assert verdict(tmp_path, "C10").status == claims.REPRODUCED


@pytest.mark.parametrize(
    ("reset", "update", "held", "status"),
    [
        (1.7, 1.7, [True, True], claims.REPRODUCED),
        (1.7, 1.5, [True, False], claims.PARTLY),
        (1.5, 1.7, [True, False], claims.PARTLY),
        (1.5, 1.5, [False, False], claims.NOT_REPRODUCED),
    ],
)
def test_c10_is_partly_so_if_one_gate_helps(
    tmp_path: Path, reset: float, update: float, held: list[bool], status: str
) -> None:
    for model, bits in {"goru": 1.6, "goru-no-reset": reset, "goru-no-update": update}.items():
        write_run(tmp_path, "penn_treebank", model, "paper", {"test_bpc": bits, "valid_bpc": bits})
    found = verdict(tmp_path, "C10")
    assert [statement.holds for statement in found.statements] == held
    assert found.status == status


def guessed(folder: Path, accuracies: dict[str, float]) -> str:
    """What is found in runs with these accuracies, where any node is right in 70 % and a neighbor in 80 %."""
    for model, accuracy in accuracies.items():
        for fold in range(1, 11):
            final = {"test_accuracy": accuracy, "test_sequence_accuracy": 0.1}
            write_run(folder, "shortest_path", model, f"fold{fold:02}", final, about=PATH_LEVELS)
    (group,), _ = load(folder)
    return group.experiment.found(group)


def test_what_was_learned_on_paths_is_told_beside_the_guesses(tmp_path: Path) -> None:
    assert guessed(tmp_path / "a", {"goru": 0.65, "goru-memory": 0.71, "gru": 0.69}) == (
        "GORU with memory leads with 71.0%; no model beats guessing a neighbor of the source (80.0%); "
        "only GORU with memory beats guessing any node (70.0%)."
    )
    assert guessed(tmp_path / "b", {"goru": 0.95, "gru": 0.75, "lstm": 0.85}) == (
        "GORU leads with 95.0%; only GORU and LSTM beat guessing a neighbor of the source (80.0%); "
        "every model beats guessing any node (70.0%)."
    )
    assert guessed(tmp_path / "c", {"goru": 0.71}) == (
        "GORU leads with 71.0%; no model beats guessing a neighbor of the source (80.0%); "
        "GORU beats guessing any node (70.0%)."
    )


def test_speech_with_its_spectrum(tmp_path: Path) -> None:
    frames = [[float(f + t) for f in range(5)] for t in range(7)]
    figure = {
        "spectrum_truth": frames,
        "spectrum_prediction": frames[::-1],
        "spectrum_seconds_a_frame": 0.016,
        "spectrum_highest_hertz": 4000.0,
        "spectrum_floor": -9.2,
    }
    errors = {"goru": 0.7, "eurnn-real": 0.8, "eurnn-complex": 1.0, "gru": 0.9, "lstm": 0.9}
    for model, error in errors.items():
        final = {"valid_loss": error, "test_loss": error}
        write_run(tmp_path, "speech", model, "paper", final, about={"previous_frame_loss": 1.03}, figure=figure)
    report.write(tmp_path, tmp_path / "report")
    table = tables(tmp_path)["speech-paper"]
    ours = row(table, "GORU")
    assert (ours["test MSE"], ours["paper: parameters"]) == ("0.700", "59k")
    assert ours["paper: valid, test MSE on TIMIT"] == "45.4, 47.6"
    assert (row(table, "GRU")["of GORU's"], row(table, "GRU")["paper: of GORU's"]) == ("128.6%", "120.4%")
    assert row(table, "GRU")["ours"] == "agrees"
    assert row(table, "the frame before")["test MSE"] == "1.030"
    assert (tmp_path / "report" / "speech-paper-spectrum.png").stat().st_size > 5000
    assert verdict(tmp_path, "C11").status == claims.REPRODUCED
    assert "spectrum" in (tmp_path / "report" / "report.md").read_text()


def test_the_corpus_that_stands_in_is_told(tmp_path: Path) -> None:
    for variant in ("paper", "timit"):
        write_run(tmp_path, "speech", "goru", variant, {})
    (section,) = sections.make(load(tmp_path)[0], [])
    ours, theirs = section.variants
    assert (ours.title, theirs.title) == ("on an open corpus instead of TIMIT", "timit")
    changed = [[path for path, _, other in variant.settings if other] for variant in (ours, theirs)]
    assert changed == [["task.data"], []]


def test_generated_data_carry_their_own_name(tmp_path: Path) -> None:
    """In no table of generated data are the data called bAbI, Penn Treebank or TIMIT, nor the paper's numbers shown."""
    write_run(tmp_path, "babi", "goru", "quick-task01", {"test_accuracy": 0.4}, about={"majority_accuracy": 0.2})
    write_run(tmp_path, "penn_treebank", "goru", "generated", {"test_bpc": 2.0}, about={"unigram_bpc": 4.2})
    write_run(tmp_path, "speech", "goru", "quick", {}, about={"previous_frame_loss": 1.4})
    write_run(tmp_path, "shortest_path", "goru", "generated-fold02", {"test_accuracy": 0.4}, about=PATH_LEVELS)
    assert all(v.status == claims.OPEN for v in claims.judge_all(load(tmp_path)[0]))
    for table in tables(tmp_path).values():
        text = " ".join([table.title, *table.headings, *(cell for cells in table.texts for cell in cells)])
        assert "generated" in text
        for name in ("bAbI", "PTB", "Penn Treebank", "TIMIT", "paper", "Li et al"):
            assert name not in text


def test_the_paper_averages() -> None:
    """The printed means against the columns: only GRU's is off."""
    for name, printed in babi.PAPER_MEANS.items():
        recomputed = babi.paper_mean(name, list(range(1, 21)))
        assert (abs(recomputed - printed) < 0.06) == (name != "GRU"), name
    assert babi.paper_mean("GRU", list(range(1, 21))) == pytest.approx(60.2, abs=0.05)


def test_the_spread_in_the_table_is_over_the_folds_of_all_seeds(tmp_path: Path) -> None:
    """Each fold counts once, as a mean over seeds; the ranking and the verdict take the spread over seeds."""
    for seed, better in ((0, -0.05), (1, 0.05)):
        for fold in range(1, 11):
            final = {"test_accuracy": 0.6 + fold % 2 / 10 + better, "test_sequence_accuracy": 0.25}
            write_run(tmp_path, "shortest_path", "goru", f"fold{fold:02}", final, seed=seed, about=PATH_LEVELS)
    table = tables(tmp_path)["shortest_path-paper"]
    assert row(table, "GORU")["accuracy %"] == "65.0 ± 5.3"
    assert row(table, "GORU")["time"] == "0:50"
    assert "±: the deviation over the folds." in table.note
    (group,), _ = load(tmp_path)
    measure = group.experiment.measure
    assert measure is not None
    assert (measure.text(group, "goru"), measure.deviation(group, "goru")) == ("65.0", "7.1")


def test_seeds_without_all_parts_are_named_and_weigh_nothing(tmp_path: Path) -> None:
    final = {"test_accuracy": 0.7, "test_sequence_accuracy": 0.25}
    for fold in range(1, 11):
        about = PATH_LEVELS | {"any_node_accuracy": fold / 10}
        write_run(tmp_path, "shortest_path", "gru", f"fold{fold:02}", final, about=about)
        if fold == 10:
            write_run(tmp_path, "shortest_path", "gru", "fold10", final, seed=1, about=about)
    groups, _ = load(tmp_path)
    (section,) = sections.make(groups, [])
    assert section.variants[0].gaps == ["Not counted: GRU, seed 1 (1 of 10 folds)."]
    assert groups[0].reference("any_node_accuracy") == pytest.approx(0.55)  # 0.59 if runs weighed alike


def test_other_starts_of_goru_neither_agree_nor_differ(tmp_path: Path) -> None:
    """The paper has one GORU: what its error is to our starts says nothing."""
    for model, loss in {"goru": 0.7, "goru-memory": 0.69, "gru": 0.8}.items():
        write_run(tmp_path, "speech", model, "paper", {"test_loss": loss})
    table = tables(tmp_path)["speech-paper"]
    (column,) = {name for name, text in row(table, "GRU").items() if text in ("agrees", "differs")}
    assert row(table, "GRU")[column] == "agrees"
    assert row(table, "GORU with memory")[column] == row(table, "GORU")[column] == ""
