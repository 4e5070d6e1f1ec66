"""The tasks on data in the loop: a run in pieces is the same run to the bit, the state carried through included."""

from __future__ import annotations

from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.errors import RunInterruptedError
from goru.lab.training.config import RunConfig, override
from goru.lab.training.loop import train
from tests.lab.small import outcome

SMALL = {
    "shortest_path": {"epochs": 5, "task.graphs": 190},
    "babi": {"epochs": 3, "task.questions": 120},
    "penn_treebank": {"epochs": 2, "task.characters": 5000, "task.length": 10},
    "speech": {"epochs": 3, "task.utterances": 20, "batch": 8},
}


def small(experiment: str, model: str) -> RunConfig:
    config = paper.experiment(experiment).config(model, "quick")
    return override(config, {"layer.hidden_size": 8, "log_every": 3, **SMALL[experiment]})


@pytest.mark.parametrize(
    ("experiment", "model"),
    [
        ("shortest_path", "goru"),
        ("babi", "eurnn-complex"),
        ("penn_treebank", "goru-no-update"),
        ("penn_treebank", "lstm"),
        ("penn_treebank", "eurnn-complex"),
        ("speech", "gru"),
    ],
)
def test_a_run_in_pieces_is_the_same_run(experiment: str, model: str, tmp_path: Path) -> None:
    config = small(experiment, model)
    train(config, tmp_path / "whole")
    attempts = 0
    while True:
        attempts += 1
        asked = iter(range(1, 1000))
        try:
            train(config, tmp_path / "pieces", stop=lambda asked=asked: next(asked) >= 7)
            break
        except RunInterruptedError:
            continue
    assert attempts > 1
    whole = outcome(config.directory(tmp_path / "whole"))
    assert whole == outcome(config.directory(tmp_path / "pieces"))
    assert {"valid_loss", "test_loss"} <= whole["result"]["final"].keys()
    assert whole["result"]["about"]
