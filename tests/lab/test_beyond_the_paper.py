"""The experiments beyond the paper, and runs that end when they are solved."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

import goru
from goru.lab import paper
from goru.lab.cells import STUDIED
from goru.lab.errors import LabError
from goru.lab.paper import columns, lengths, memories, meshes, starts
from goru.lab.problems.adding import AddingProblem
from goru.lab.report import figures, sections
from goru.lab.report.record import load
from goru.lab.tasks.adding import Adding
from goru.lab.tasks.denoise import Denoise
from goru.lab.training.config import from_json, override
from goru.lab.training.loop import train
from goru.lab.training.run_directory import read_metrics
from tests.lab.small import outcome, small
from tests.lab.test_report import write_run
from tests.lab.test_train import in_pieces


@pytest.mark.parametrize("length", [2, 3, 50])
def test_the_sum_is_that_of_the_marked_numbers(length: int) -> None:
    problem = AddingProblem(Adding(length=length, test_size=64), seed=3, batch_size=32)
    inputs, targets = problem.batch(5)
    numbers, marks = inputs.unbind(-1)
    assert inputs.shape == (length, 32, 2)
    assert (marks[: length // 2].sum(0) == 1).all()  # one in each half
    assert (marks[length // 2 :].sum(0) == 1).all()
    torch.testing.assert_close((numbers * marks).sum(0), targets[0])
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    again = AddingProblem(Adding(length=length, test_size=64), seed=3, batch_size=32).batch(5)
    assert torch.equal(again.inputs, inputs)
    assert not torch.equal(problem.batch(6).inputs, inputs)


def test_the_baseline_of_adding_is_the_error_of_answering_one() -> None:
    problem = AddingProblem(Adding(length=10, test_size=100_000), seed=0, batch_size=32)
    error = (problem.test.targets - 1).square().mean().item()
    assert problem.baseline() == pytest.approx(error, rel=0.02)


def test_adding_is_learned(tmp_path: Path) -> None:
    """A short one: a tenth of the baseline after a few hundred steps."""
    config = paper.experiment("adding").config("goru-memory", "quick")
    changes = {"task.length": 6, "steps": 300, "layer.hidden_size": 32, "layer.memory": 6, "task.test_size": 64}
    result = train(override(config, {**changes, "variant": "small", "optimizer.lr": 0.005}), tmp_path)
    assert result["final"]["test_loss"] < 0.1 * result["baseline"]


SOLVABLE = small(
    "copying", "eurnn-real", {"task.delay": 1, "task.recall": 1, "stop_below": 1.2, "optimizer.lr": 0.01}, steps=400
)


def test_a_run_ends_when_its_loss_is_low_enough(tmp_path: Path) -> None:
    result = train(SOLVABLE, tmp_path)
    lines = [line for line in read_metrics(SOLVABLE.directory(tmp_path)) if "test_loss" in line]
    below = [line["step"] for line in lines if line["test_loss"] < 1.2 * result["baseline"]]
    assert below == [result["step"]] == [lines[-1]["step"]]
    assert 0 < result["step"] < 400


def test_it_ends_there_in_pieces_too(tmp_path: Path) -> None:
    train(SOLVABLE, tmp_path / "whole")
    assert in_pieces(SOLVABLE, tmp_path / "pieces", 7) > 1
    assert outcome(SOLVABLE.directory(tmp_path / "whole")) == outcome(SOLVABLE.directory(tmp_path / "pieces"))


def test_it_needs_a_test_set_that_is_scored(tmp_path: Path) -> None:
    config = small("babi", "goru", {"stop_below": 0.5})
    with pytest.raises(LabError, match="--stop-below has no effect"):
        train(config, tmp_path)
    with pytest.raises(LabError, match="stop-below should be"):
        small("copying", "goru", {"stop_below": math.nan})


def test_iterations_to_solve_against_length(tmp_path: Path) -> None:
    write_run(tmp_path, "lengths", "goru-memory", [2.0, 0.5, 0.05], variant="T50")
    write_run(tmp_path, "lengths", "goru-memory", [2.0, 0.05], variant="T50", seed=1)
    write_run(tmp_path, "lengths", "goru-memory", [2.0, 0.5, 0.3], variant="T1000")
    write_run(tmp_path, "lengths", "gru", [2.0, 1.0], variant="T50", finished=False)
    (group,), problems = load(tmp_path)
    assert problems == []
    table = columns.results(group)
    rows = {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.texts}
    assert rows["GORU with memory"]["T = 50"] == "150"
    assert rows["GORU with memory"]["T = 1,000"] == "no (30%)"
    assert rows["GORU with memory"]["T = 100"] == ""
    assert rows["GRU"]["T = 50"] == "not yet"
    (section,) = sections.make([group], [])
    (drawn,) = section.variants[0].own_figures
    assert len(drawn.png) > 5000
    assert drawn.dark is not None
    assert drawn.dark.svg != drawn.svg
    assert drawn.caption == ""  # one length is no comparison
    write_run(tmp_path, "lengths", "goru-memory", [2.0, 0.5, 0.4, 0.05], variant="T100")
    (group,), _ = load(tmp_path)
    assert lengths.growth(group) == (
        "GORU with memory: 150 iterations at T = 50, 300 at T = 100; "
        "2 times the silence takes 2.0 times the iterations."
    )
    canvas = Figure()
    lengths.draw(canvas, group)
    (axes,) = canvas.axes
    assert [text.get_text() for text in axes.texts] == ["crosses: not solved within 3,000 iterations"]
    assert axes.texts[0].get_position()[1] < 3_000  # below the crosses
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["300", "500", "1,000", "3,000"]
    assert lengths.EXPERIMENT.config("gru-chrono", "T2000").layer.memory == 2000


def test_the_score_of_a_start(tmp_path: Path) -> None:
    """The geometric mean of the shares, none below 1 %, over the seeds' mean."""
    for task, finals in {"copying": (0.001, 0.003), "denoise": (0.4, 0.6), "parenthesis": (0.2, 0.2)}.items():
        for seed, final in enumerate(finals):
            write_run(tmp_path, "starts", "quarters", [2.0, final], variant=task, seed=seed)
        write_run(tmp_path, "starts", "goru", [2.0, 0.9], variant=task)
    write_run(tmp_path, "starts", "open", [2.0, 0.001], variant="copying")
    (group,), problems = load(tmp_path)
    assert problems == []
    assert starts.score_of(group, "quarters") == pytest.approx(math.exp(np.log([0.01, 0.5, 0.2]).mean()))
    assert starts.score_of(group, "goru") == pytest.approx(0.9)
    assert starts.score_of(group, "open") is None
    table = columns.results(group)
    rows = {row[0].text: row for row in table.rows}
    assert rows["quarters"][4].tone == "better"  # the best of those with all three tasks
    assert rows["GORU"][4].tone == ""
    assert rows["open"][4].text == ""
    assert len(figures.own(group, starts.EXPERIMENT.drawings[0]).png) > 5000
    assert starts.separates(group) == (
        "The lowest score is on top. They differ most on copying: from at most 1 to 90 % of the baseline."
    )


def test_the_start_that_is_found_is_told_in_both_meshes(tmp_path: Path) -> None:
    finals = {"goru": 0.9, "open": 0.5, "quarters": 0.3, "quarters-tunable": 0.2}
    for name, final in finals.items():
        for task in starts.TASKS:
            write_run(tmp_path, "starts", name, [2.0, final], variant=task)
    (group,), _ = load(tmp_path)
    assert starts.lowest_score(group) == (
        "of the 2 starts in the FFT mesh, quarters has the lowest score, 30.0 (20.0 in the tunable mesh); "
        "GORU as published has 90.0."
    )


def test_the_mesh_with_the_lowest_score(tmp_path: Path) -> None:
    for name, final in {"fft": 0.3, "tunable-2": 0.5, "tunable-16": 0.2}.items():
        for task in starts.TASKS:
            write_run(tmp_path, "meshes", name, [2.0, final], variant=task)
    (group,), problems = load(tmp_path)
    assert problems == []
    assert meshes.lowest_score(group) == "of 3 meshes, tunable-16 has the lowest score, 20.0; fft has 30.0."
    tones = {row[0].text: row[4].tone for row in columns.results(group).rows}
    assert tones == {"fft": "", "tunable-2": "", "tunable-16": "better"}


def test_a_memory_starts_as_the_recorded_studies_chose() -> None:
    """Of the recorded starts and meshes, those with the lowest score are the layer's default."""
    groups = {group.experiment.name: group for group in load(Path(__file__).parents[2] / "results")[0]}
    chosen = {name: starts.scores_of(groups[name]) for name in ("starts", "meshes")}
    lowest = {name: min(scores, key=scores.__getitem__) for name, scores in chosen.items()}
    candidates = {name: score for name, score in chosen["starts"].items() if name in STUDIED}
    assert len(candidates) == len(STUDIED)
    assert min(candidates, key=candidates.__getitem__) == "quarters"
    assert len(chosen["meshes"]) == len(meshes.MODELS)
    layer = meshes.MODELS[lowest["meshes"]]
    default = goru.GORU(10, 128, memory=100).unit.mesh
    assert (layer.init, layer.mesh, layer.capacity) == ("quarters", default.kind, default.capacity)
    assert STUDIED["quarters"] == ({}, None)  # no change to the default


def test_the_memory_with_the_lowest_loss_and_of_equal_ones_the_longest(tmp_path: Path) -> None:
    losses = {"copying": (0.004, 0.001, 0.02), "denoise": (0.3, 0.02, 0.04), "parenthesis": (0.4, 0.3, 0.2)}
    for task, finals in losses.items():
        for name, final in zip(memories.MEMORIES, finals, strict=True):
            write_run(tmp_path, "memories", name, [2.0, final], variant=task)
    (group,), problems = load(tmp_path)
    assert problems == []
    assert memories.best_memories(group) == (
        "over 100 steps, the best memory is 100 steps for copying, 33 steps for denoise and 10 steps for parenthesis."
    )


def test_a_memory_is_not_chosen_while_runs_are_missing(tmp_path: Path) -> None:
    write_run(tmp_path, "memories", "memory-33", [2.0, 0.5], variant="denoise")
    (group,), _ = load(tmp_path)
    assert memories.chosen(group, "denoise") is None
    assert memories.best_memories(group) == ""


def test_the_synthetic_tasks_have_the_memory_that_the_recorded_study_chose() -> None:
    groups = {group.experiment.name: group for group in load(Path(__file__).parents[2] / "results")[0]}
    for task in memories.TASKS:
        chosen = memories.chosen(groups["memories"], task)
        assert chosen is not None
        assert all(len(starts.shares(groups["memories"], name, task)) == 3 for name in memories.MEMORIES)
        parts = starts.STEPS // memories.MEMORIES[chosen]
        of_goru, of_gru = (paper.experiment(task).config(name).layer.memory for name in ("goru-memory", "gru-chrono"))
        assert (of_goru, of_gru) == (200 // parts, 200)


def test_a_study_has_tasks_of_several_kinds() -> None:
    config = starts.EXPERIMENT.config("halves", "denoise", seed=2)
    assert isinstance(config.task, Denoise)
    assert from_json(config.to_json(), "here") == config
    assert {type(starts.EXPERIMENT.config("goru", name).task).__name__.lower() for name in starts.TASKS} == set(
        starts.TASKS
    )
