"""The cost of the reproduction: what was spent, what is estimated, what is extrapolated."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.paper import definition
from goru.lab.report import costs
from goru.lab.report.record import load
from tests.lab.test_report import SOLVED, write_run


def law(cell: str, shape: tuple[int, int, int, int]) -> float:
    start, slope = costs.authors_law(cell)
    steps, batch, units, layers = shape
    return steps * (start + slope * batch * units * layers)


def test_the_law_meets_what_was_measured() -> None:
    for shape, milliseconds in costs.AUTHORS_STEP_MS["goru"].items():
        assert law("goru", shape) == pytest.approx(milliseconds, rel=0.01)
    for shape, milliseconds in costs.AUTHORS_STEP_MS["eurnn"].items():
        assert law("eurnn", shape) == pytest.approx(milliseconds, rel=1e-9)  # two points, a line through both


def test_authors_steps() -> None:
    copying = paper.experiment("copying")
    assert costs.authors_step_seconds(copying.config("goru")) == pytest.approx(0.723, rel=0.01)
    assert costs.authors_step_seconds(copying.config("eurnn-complex")) == pytest.approx(1.263)
    assert costs.authors_step_seconds(copying.config("gru")) is None
    assert costs.authors_step_seconds(paper.experiment("penn_treebank").config("goru")) == pytest.approx(
        0.192, rel=0.01
    )
    short, long = (paper.experiment("babi").config("goru", f"task{k:02}") for k in (4, 3))
    assert (costs.authors_step_seconds(long) or 0) / (costs.authors_step_seconds(short) or 1) == pytest.approx(
        434.5 / 24
    )
    for config in paper.grid():
        assert (costs.authors_step_seconds(config) is None) == (config.layer.cell in ("gru", "lstm"))


def rows(folder: Path) -> dict[str, dict[str, str]]:
    table = costs.table(load(folder)[0])
    assert table is not None
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.texts}


def test_spent_and_missing(tmp_path: Path) -> None:
    write_run(tmp_path, "copying", "goru", SOLVED)  # 200 steps, six seconds
    one = paper.experiment("copying")
    found = rows(tmp_path)[one.title]
    seconds = {model: one.step_seconds(one.config(model)) for model in one.models}
    missing = sum(10_000 * seconds[model] for model in one.models if model != "goru") / 3600
    assert found["runs finished"] == f"1 of {len(one.models)}"
    assert found["core hours, wall clock"] == "0.00"
    assert found["still missing"] == f"{missing:.1f}"
    assert found["core hours"] == f"{missing + 200 * seconds['goru'] / 3600:.1f}"
    assert found["hours on 2 cores"] == f"{(missing + 200 * seconds['goru'] / 3600) / 2:.1f}"
    everything = rows(tmp_path)["all"]
    assert everything["runs finished"] == f"1 of {len(paper.grid())}"


def test_a_run_counts_its_own_steps(tmp_path: Path) -> None:
    """Finished, it is 200 steps of the authors' code; stopped, as many as it was to have."""
    write_run(tmp_path / "a", "copying", "goru", SOLVED)
    write_run(tmp_path / "b", "copying", "goru", [*SOLVED, 0.04], finished=False)
    per_step = costs.authors_step_seconds(paper.experiment("copying").config("goru"))
    step = paper.experiment("copying").step_seconds(paper.experiment("copying").config("goru"))
    for folder, steps in (("a", 200), ("b", 300)):
        (group,), _ = load(tmp_path / folder)
        cost = costs._cost(group.records[0].config, group.records[0])
        assert cost.authors == pytest.approx(steps * (per_step or 0))
        assert (cost.clock, cost.left) == (6.0, 0.0)
        assert cost.work == pytest.approx(steps * step)


def test_a_model_that_was_not_measured_counts_by_its_own_time(tmp_path: Path) -> None:
    write_run(tmp_path, "copying", "goru", SOLVED)
    (group,), _ = load(tmp_path)
    record = group.records[0]
    cost = costs._cost(dataclasses.replace(record.config, model="mine"), record)
    assert (cost.work, cost.left) == (pytest.approx(6.0), 0.0)


def test_costs_are_those_that_were_measured() -> None:
    """Of every model, at its size and batch; other variants by the length of their sequences, other starts alike."""
    file = Path(definition.__file__).with_name("step_times.json")
    measured = {(row["experiment"], row["model"]): row for row in json.loads(file.read_text())["timings"]}
    twins = {
        "goru-memory": "goru",
        "goru-free": "goru",
        "goru-tanh": "goru",
        "eurnn-epsilon": "eurnn-real",
        "gru-chrono": "gru",
        "lstm-chrono": "lstm",
    }
    for one in (one for one in paper.EXPERIMENTS.values() if one.paper):
        for model in one.models:
            config = one.config(model)
            row = measured.get((one.name, model)) or measured[one.name, twins[model]]
            assert (row["hidden_size"], row["batch"]) == (config.layer.hidden_size, config.batch)
            assert row["threads"] == 1
            assert one.step_seconds(config) == row["cpu_seconds"] > 0
            assert one.steps_per_epoch == (row["steps_per_epoch"] or 0)
    babi = paper.experiment("babi")
    first, third = (babi.config("goru", variant) for variant in ("task01", "task03"))
    assert babi.step_seconds(third) == pytest.approx(babi.step_seconds(first) * 434.5 / 46.3)


def test_an_experiment_without_known_lengths_has_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No law for the authors' code then, but our own costs."""
    one = dataclasses.replace(paper.experiment("copying"), time_steps=None)
    monkeypatch.setattr(paper, "EXPERIMENTS", {"copying": one})
    write_run(tmp_path, "copying", "goru", SOLVED)
    found = rows(tmp_path)[one.title]
    assert float(found["core hours"]) > 0
    assert found["authors' code (extrapolated)"] == "0.00"


def test_the_small_version_has_no_cost_table(tmp_path: Path) -> None:
    write_run(tmp_path, "copying", "goru", SOLVED, variant="quick")
    assert costs.table(load(tmp_path)[0]) is None
