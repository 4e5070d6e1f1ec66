"""Configurations: JSON there and back, errors, names of variants, the paper's grid."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.errors import LabError, UsageError, nearest
from goru.lab.training.config import RunConfig, flat, from_json, override, variant_name
from tests.lab.small import small

SYNTHETIC = ("copying", "denoise", "parenthesis")

EVERY = [
    experiment.config(model, variant)
    for experiment in paper.EXPERIMENTS.values()
    for model in experiment.models
    for variant in ("quick", *experiment.all_variants)
]


@pytest.mark.parametrize("config", EVERY, ids=lambda c: f"{c.experiment}-{c.variant}-{c.model}")
def test_every_shipped_configuration_survives_json(config: RunConfig) -> None:
    again = from_json(config.to_json(), "here")
    assert again == config
    assert type(again.task) is type(config.task)
    assert again.digest() == config.digest()


def test_runs_kept_before_a_field_existed_go_on() -> None:
    """They are read with the value of what they did, equal today's, and fit their checkpoints' fingerprint."""
    config = paper.experiment("penn_treebank").config("goru")
    data = json.loads(config.to_json())
    del data["optimizer"]["schedule"], data["layer"]["memory"], data["stop_below"]
    del data["layer"]["orthogonal"], data["layer"]["modrelu"]
    text = json.dumps(data, indent=2) + "\n"
    assert from_json(text, "here") == config
    assert hashlib.sha256(text.encode()).hexdigest() == config.digest()
    assert override(config, {"optimizer.schedule": "linear"}).digest() != config.digest()
    assert override(config, {"layer.memory": 200}).digest() != config.digest()


def test_shipped_configurations_are_different_runs() -> None:
    assert len({config.digest() for config in EVERY}) == len(EVERY)


def test_settings_of_the_paper() -> None:
    copying = paper.experiment("copying").config("goru")
    assert (copying.batch, copying.steps, copying.optimizer.lr, copying.optimizer.decay) == (
        128,
        10_000,
        0.001,
        0.9,
    )
    assert flat(copying)["task.delay"] == 200
    assert paper.experiment("denoise").config("gru").optimizer.lr == 0.01
    assert paper.experiment("denoise").config("gru", "lr0.001").optimizer.lr == 0.001
    assert flat(paper.experiment("parenthesis").config("gru"))["task.length"] == 200


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sed": 1}, 'there is no field "sed"; did you mean "seed"?'),
        ({"steps": "many"}, "steps should be int, got 'many'"),
        ({"steps": True}, "steps should be int, got True"),
        ({"experiment": "copyng"}, 'there is no experiment "copyng"; did you mean "copying"?'),
        ({"optimizer": {"rule": "sgd"}}, "rule should be one of 'rmsprop', 'adam', got 'sgd'"),
        ({"task": {"delay": 0}}, "at least 1"),
        ({"task": [1]}, "should be a JSON object"),
        ({"variant": "../up"}, "plain folder name"),
        ({"model": ".."}, "plain folder name"),
        ({"seed": -1}, "seed should be at least 0"),
    ],
)
def test_wrong_fields_are_named(change: dict, message: str) -> None:
    data = json.loads(small("copying", "goru").to_json()) | change
    with pytest.raises(LabError) as error:
        from_json(json.dumps(data), "file.json")
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_what_is_not_a_configuration(text: str) -> None:
    with pytest.raises(LabError, match=r"file\.json"):
        from_json(text, "file.json")


def test_variants_are_named_after_what_changes() -> None:
    base = paper.experiment("copying").config("goru")
    quick = paper.experiment("copying").config("goru", "quick")
    assert variant_name(base, base) == "paper"
    assert variant_name(override(base, {"optimizer.lr": 0.01}), base) == "lr0.01"
    assert variant_name(override(base, {"task.placement": "random"}), base) == "random-placement"
    assert variant_name(override(base, {"layer.update_gate": False}), base) == "no-update-gate"
    assert variant_name(override(quick, {"steps": 5}), quick) == "quick+steps5"
    assert variant_name(override(base, {"seed": 4}), base) == "paper"


def test_a_named_variant_is_the_one_that_its_options_make() -> None:
    """`goru run denoise --lr 0.001` is the run that `goru reproduce` calls lr0.001."""
    for one in (paper.experiment(name) for name in SYNTHETIC):
        for name, changes in one.all_variants.items():
            base = one.config("gru")
            assert variant_name(override(base, dict(changes)), base) == name


def test_directory() -> None:
    config = small("copying", "gru", seed=3)
    assert str(config.directory(Path("runs"))) == str(Path("runs") / "copying" / "small" / "gru" / "seed3")


def test_grid() -> None:
    runs = paper.grid(["denoise"], seeds=2)
    assert len(runs) == 2 * 2 * len(paper.experiment("denoise").models)
    assert [run.seed for run in runs] == sorted(run.seed for run in runs)
    quick = paper.grid(SYNTHETIC, quick=True)
    assert {run.variant for run in quick} == {"quick"}
    assert {run.experiment for run in quick} == set(SYNTHETIC)
    assert {run.experiment for run in paper.grid()} == {one.name for one in paper.EXPERIMENTS.values() if one.paper}
    assert len({run.directory(Path()) for run in runs + quick}) == len(runs + quick)
    one = paper.grid(["denoise"], models=["gru"], variants=["lr0.001"], quick=True)
    assert [run.variant for run in one] == ["quick-lr0.001"]
    assert one[0].optimizer.lr == 0.001


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(UsageError, match='did you mean "denoise"'):
        paper.grid(["denoize"])
    with pytest.raises(UsageError, match='did you mean "eurnn-real"'):
        paper.grid(["copying"], models=["eurn-real"])
    with pytest.raises(UsageError, match='did you mean "random-placement"'):
        paper.grid(["copying"], variants=["random_placement"])
    assert nearest("model", "xyz", ["goru", "gru"]) == 'there is no model "xyz"; there are: goru, gru.'


def test_override_leaves_the_original() -> None:
    base = small("copying", "goru")
    changed = override(base, {"optimizer.lr": 1.0, "seed": 2})
    assert (changed.optimizer.lr, changed.seed) == (1.0, 2)
    assert base == small("copying", "goru")
    assert dataclasses.replace(changed, seed=0).optimizer.lr == 1.0


def test_every_option_of_a_run_has_a_name_of_its_own() -> None:
    """Options drop the prefix of their group, so two fields must not share a last name."""
    for one in paper.EXPERIMENTS.values():
        names = [path.rpartition(".")[2] for path in flat(one.base)]
        assert len(names) == len(set(names))
