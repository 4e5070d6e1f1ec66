"""A training step is the model's (forward, loss, backward, optimizer): making its batch takes little of it."""

from __future__ import annotations

import pytest

from goru.lab import paper
from goru.lab.training.bench import time_step
from goru.lab.training.config import override

FEW = {"penn_treebank": {"task.characters": 100_000}, "speech": {"task.utterances": 120}}
"""Less data, in batches of the same size as the paper's."""


@pytest.mark.parametrize("experiment", [name for name, one in paper.EXPERIMENTS.items() if "eurnn-real" in one.models])
def test_the_model_takes_most_of_a_step(experiment: str) -> None:
    """EURNN at the paper's sizes: the model with the shortest steps, where anything else would show most."""
    one = paper.experiment(experiment)
    config = one.config("eurnn-real", "generated" if one.generated else "paper")
    row = time_step(override(config, FEW.get(experiment, {})), steps=3, threads=1)
    assert row["model_share"] >= 0.85
    assert row["model_share"] + row["data_share"] == pytest.approx(1)
    assert 0 < row["cpu_seconds"] < 10
    assert (row["epoch_cpu_seconds"] is None) == (config.steps > 0)
    if one.steps_per_epoch:
        assert row["epoch_cpu_seconds"] == pytest.approx(row["cpu_seconds"] * row["steps_per_epoch"])
