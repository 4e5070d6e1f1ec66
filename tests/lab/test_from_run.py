"""Runs that go on from a shorter one: the same bits as a run that did all steps, or a refusal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goru.lab.errors import LabError
from goru.lab.training import checkpoints
from goru.lab.training.config import RunConfig, override
from goru.lab.training.from_run import begin_from
from goru.lab.training.loop import train
from goru.lab.training.run_directory import read_json
from tests.lab.small import goru, outcome, save, small

EPOCHS = {"steps": 0, "epochs": 4, "eval_every": 0}


def fresh(config: RunConfig, folder: Path) -> dict[str, Any]:
    train(config, folder)
    return outcome(config.directory(folder))


@pytest.mark.parametrize("model", ["goru", "lstm"])
@pytest.mark.parametrize(
    ("experiment", "changes", "fewer"),
    [
        ("copying", {}, {"steps": 20}),
        ("penn_treebank", EPOCHS, {"epochs": 1}),  # carries its state, keeps the best parameters
        ("penn_treebank", EPOCHS | {"patience": 1, "optimizer.lr": 0.3}, {"epochs": 1}),  # ends early
        ("speech", EPOCHS | {"optimizer.rule": "adam"}, {"epochs": 3}),
    ],
)
def test_same_bits_as_all_steps_at_once(experiment, changes, fewer, model: str, tmp_path: Path) -> None:
    config = small(experiment, model, changes)
    shorter = override(config, fewer | {"variant": "short"})
    train(shorter, tmp_path)
    begin_from(shorter.directory(tmp_path), config, tmp_path)
    assert read_json(config.directory(tmp_path) / "result.json") is None
    train(config, tmp_path)
    assert outcome(config.directory(tmp_path)) == fresh(config, tmp_path / "fresh")


def test_from_a_run_that_was_stopped(tmp_path: Path) -> None:
    config = small("copying", "gru")
    longer = override(config, {"steps": 70, "variant": "long"})
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 13"):
        train(longer, tmp_path, stop=lambda: next(count) == 13)
    begin_from(longer.directory(tmp_path), config, tmp_path)
    train(config, tmp_path)
    assert outcome(config.directory(tmp_path)) == fresh(config, tmp_path / "fresh")
    environment = read_json(config.directory(tmp_path) / "environment.json")
    assert environment is not None
    attempts = environment["attempts"]
    assert [attempt["from_step"] for attempt in attempts] == [0, 13]


def test_again_after_a_kill_and_after_its_end(tmp_path: Path) -> None:
    config = small("copying", "gru")
    shorter = override(config, {"steps": 20, "variant": "short"})
    train(shorter, tmp_path)
    begin_from(shorter.directory(tmp_path), config, tmp_path)
    (config.directory(tmp_path) / "checkpoint.safetensors").unlink()  # killed just before it was there
    begin_from(shorter.directory(tmp_path), config, tmp_path)
    train(config, tmp_path)
    ended = outcome(config.directory(tmp_path))
    begin_from(shorter.directory(tmp_path), config, tmp_path)
    train(config, tmp_path)
    assert outcome(config.directory(tmp_path)) == ended == fresh(config, tmp_path / "fresh")


@pytest.mark.parametrize(
    ("there", "here", "message"),
    [
        ({"seed": 1}, {}, "only the number of steps or epochs may differ (seed 1 there, 0 here)"),
        ({"optimizer.lr": 0.01}, {}, "optimizer.lr 0.01 there, 0.001 here"),
        ({"optimizer.schedule": "linear"}, {"optimizer.schedule": "linear"}, "its learning rates depended"),
        ({"steps": 40}, {"steps": 30}, "it is at step 40 already, of 30 wanted"),
        ({"steps": 15}, {}, "it was evaluated at its end, step 15"),
    ],
)
def test_refused(there: dict[str, Any], here: dict[str, Any], message: str, tmp_path: Path) -> None:
    shorter = small("copying", "gru", {"steps": 20, "variant": "short"} | there)
    config = small("copying", "gru", here)
    train(shorter, tmp_path)
    with pytest.raises(LabError) as error:
        begin_from(shorter.directory(tmp_path), config, tmp_path)
    assert str(error.value).startswith(f"cannot continue from {shorter.directory(tmp_path)}: ")
    assert message in str(error.value)
    assert not config.directory(tmp_path).exists()


def test_a_finished_run_with_changed_files(tmp_path: Path) -> None:
    config = small("copying", "gru")
    shorter = override(config, {"steps": 20, "variant": "short"})
    train(shorter, tmp_path)
    file = shorter.directory(tmp_path) / "metrics.jsonl"
    file.write_text(file.read_text().replace('"step": 20', '"step": 21'))
    with pytest.raises(LabError, match=r"cannot continue from .*metrics\.jsonl is not the file that the run wrote"):
        begin_from(shorter.directory(tmp_path), config, tmp_path)
    assert not config.directory(tmp_path).exists()


def with_metrics(directory: Path, config: RunConfig, content: str) -> None:
    """Metrics that are no longer those of the run, and a checkpoint that relies on them."""
    file = directory / "checkpoint.safetensors"
    tensors, position = checkpoints.read(file, config.digest())
    (directory / "metrics.jsonl").write_text(content)
    position |= {"metrics_bytes": len(content), "metrics_sha256": hashlib.sha256(content.encode()).hexdigest()}
    file.write_bytes(checkpoints.encode(tensors, position, config.digest()))


@pytest.mark.parametrize(
    "attack",
    [
        lambda lines: ["[1]\n", *lines],
        lambda lines: [*lines, '{"seconds": 1.0}\n'],
        lambda lines: [*lines, '{"step": "4", "seconds": 1.0}\n'],
        lambda lines: [*lines, '{"step": null, "seconds": 1.0}\n'],
        lambda lines: [*lines, '{"step": 4.5, "seconds": 1.0}\n'],
        lambda lines: [*lines, "\n"],
        lambda lines: lines[1:],
        lambda lines: ["\n", "\n"],
        lambda lines: [" "],
        lambda lines: [""],
        lambda lines: [line.rstrip("\n") for line in lines],
    ],
)
def test_hostile_metrics(attack: Callable[[list[str]], list[str]], tmp_path: Path) -> None:
    config = small("copying", "gru")
    longer = override(config, {"steps": 70, "variant": "long"})
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 13"):
        train(longer, tmp_path, stop=lambda: next(count) == 13)
    directory = longer.directory(tmp_path)
    lines = (directory / "metrics.jsonl").read_text().splitlines(keepends=True)
    with_metrics(directory, longer, "".join(attack(lines)))
    with pytest.raises(LabError, match=r"cannot continue from .*metrics\.jsonl"):
        begin_from(directory, config, tmp_path)
    assert not config.directory(tmp_path).exists()


def test_the_source_is_not_changed(tmp_path: Path) -> None:
    """Not even if its last checkpoint is damaged."""
    config = small("copying", "gru")
    longer = override(config, {"steps": 70, "variant": "long"})
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 13"):
        train(longer, tmp_path, checkpoint_seconds=0, stop=lambda: next(count) == 13)
    directory = longer.directory(tmp_path)
    (directory / "checkpoint.safetensors").write_bytes(b"")
    before = {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in directory.iterdir()}
    begin_from(directory, config, tmp_path)
    assert {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in directory.iterdir()} == before
    train(config, tmp_path)
    assert outcome(config.directory(tmp_path)) == fresh(config, tmp_path / "fresh")


def test_command(tmp_path: Path) -> None:
    config = small("copying", "gru")
    shorter = override(config, {"steps": 20, "variant": "short"})
    file = save(config, tmp_path / "config.json")
    common = ("run", "--config", file, "--runs", str(tmp_path / "runs"), "--from-run")
    nothing = goru(*common, str(tmp_path / "nowhere"))
    assert nothing.returncode == 1
    assert nothing.stderr == (
        f"goru: cannot continue from {tmp_path / 'nowhere'}: it has no config.json; "
        "name the directory of a run, runs/EXPERIMENT/VARIANT/MODEL/seedN.\n"
    )
    train(shorter, tmp_path)
    assert goru(*common, str(shorter.directory(tmp_path))).returncode == 0
    assert outcome(config.directory(tmp_path / "runs")) == fresh(config, tmp_path / "fresh")
