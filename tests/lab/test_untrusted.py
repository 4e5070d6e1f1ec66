"""Run directories of strangers: whatever their files are, one sentence; other runs are shown, nothing hangs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from goru.lab import paper
from goru.lab.cli import main
from goru.lab.errors import LabError, printable
from goru.lab.report.record import load
from goru.lab.training import checkpoints
from goru.lab.training.config import RunConfig, override
from goru.lab.training.loop import train
from goru.lab.untrusted import parse_json, read_bytes
from tests.lab.small import outcome, small
from tests.lab.test_report import write_run

GOOD, BAD = small("parenthesis", "gru", steps=10), small("parenthesis", "goru", steps=10)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for config in (GOOD, BAD):
        train(config, folder)
    return folder


def replaced(value: Any) -> Callable[[Path], None]:
    return lambda path: (
        path.unlink(),
        path.write_text((value if isinstance(value, str) else json.dumps(value)) + "\n"),
    )[0]


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def with_long_integers(path: Path) -> None:
    first, newline, rest = path.read_text().partition("\n" if path.suffix == ".jsonl" else "\0")
    path.write_text(first.replace('"step": 1', '"step": 1' + "0" * 400).replace("0.", "9" * 400) + newline + rest)


ATTACKS: dict[str, Callable[[Path], object]] = {
    "pipe": as_pipe,
    "folder": as_folder,
    "device": as_device,
    "empty": replaced(""),
    "text": replaced("\x1b]0;title\x07"),
    "not-utf8": lambda path: path.write_bytes(b"\xff\xfe\x00\n"),
    "list": replaced([]),
    "nested": replaced("[" * 100_000),
    "nested-a-little": replaced("[" * 30 + "]" * 30),
    "number": replaced("1" * 400),
    "string": replaced('"a"'),
    "empty-object": replaced({}),
    "wrong-types": replaced({name: [[1]] for name in ("step", "final", "gate_share", "noise", "attempts", "seconds")}),
    "long-integers": with_long_integers,
}
FILES = ("config.json", "metrics.jsonl", "result.json", "figure.json", "environment.json")


@pytest.mark.parametrize("file", FILES)
def test_bad_runs_stop_neither_status_nor_report(
    file: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every attack on a file, each as one more seed."""
    folder = tmp_path / "runs"
    shutil.copytree(finished, folder)
    for seed, attack in enumerate(ATTACKS.values(), 1):
        config = override(BAD, {"seed": seed})
        shutil.copytree(BAD.directory(finished), config.directory(folder))
        (config.directory(folder) / "config.json").write_text(config.to_json())
        attack(config.directory(folder) / file)
    assert main(["status", "--runs", str(folder)]) == 0
    assert "parenthesis/small/gru/seed0" in capsys.readouterr().out
    assert main(["report", "--runs", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert "\x1b" not in output.out
    left_out = [line for line in output.out.splitlines() if line.startswith("skipped: ")]
    assert len(left_out) >= 9  # what is no JSON, or not a file; an environment may have any form
    report = (folder / "report" / "report.md").read_text()
    assert "GRU" in report
    assert "\x1b" not in report


def test_one_damaged_run_does_not_stop_a_grid(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It fails with its sentence; the others go on."""
    folder = tmp_path / "runs"
    attacks: dict[str, Callable[[Path], object]] = {
        "is not the file that the run wrote": lambda path: path.write_text(path.read_text() + " "),
        "is not valid JSON": replaced("{"),
        "should be an object": replaced([]),
        "should have a number within bounds as step": replaced({}),
        "is not a regular file": as_pipe,
    }
    damaged = [override(BAD, {"seed": seed}) for seed, _ in enumerate(attacks, 1)]
    for config, (said, attack) in zip(damaged, attacks.items(), strict=True):
        shutil.copytree(BAD.directory(finished), config.directory(folder))
        if said.startswith("should"):
            (config.directory(folder) / "manifest.json").unlink()
        attack(config.directory(folder) / "result.json")
    stray = override(GOOD, {"seed": 1})  # not finished, and its metrics are no object
    stray.directory(folder).mkdir(parents=True)
    (stray.directory(folder) / "metrics.jsonl").write_text("[]\n")
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [*damaged, GOOD, stray])
    assert main(["reproduce", "parenthesis", "--runs", str(folder), "--jobs", "2"]) == 1
    assert outcome(GOOD.directory(folder)) == outcome(GOOD.directory(finished))
    assert outcome(stray.directory(folder))["result"]["step"] == 10
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(attacks)
    for line, config, said in zip(lines, damaged, attacks, strict=True):
        assert line.startswith(f"goru: failed: parenthesis/small/goru/seed{config.seed}: {config.directory(folder)}")
        assert said in line


NAN, INFINITY = float("nan"), float("inf")
NUMBERS: tuple[Any, ...] = (None, "4", [], {}, True, -1, NAN, INFINITY, -INFINITY, 1e300, 10**17)
SPECTRA: tuple[Any, ...] = (NAN, [], [[], []], [[NAN, 1.0]], [[INFINITY, 1.0]], [[1e308, 1.0]], [[1, 2], [3]], [["1"]])


def forged_results() -> list[tuple[str, Any]]:
    fields = ("step", "total_seconds", "baseline", "parameters", "hidden_to_hidden_parameters", "steps_per_s")
    forged = [(name, value) for name in fields for value in NUMBERS]
    forged += [("baseline", 0), ("baseline", 1e-300)]
    return forged + [("final", {"test_loss": value}) for value in NUMBERS if value != -1 and value != 10**17]


def forged_lines() -> list[tuple[str, Any]]:
    forged = [(name, value) for name in ("step", "last_step", "seconds", "baseline") for value in NUMBERS]
    forged += [("baseline", 0), ("baseline", 1e-300)]
    return forged + [("test_loss", value) for value in (None, "4", [], {}, True, 1e300, 1e308)]


def forge(config: RunConfig, folder: Path, source: Path) -> Path:
    """A copy of a run as one more seed, without checksums."""
    shutil.copytree(BAD.directory(source), config.directory(folder))
    directory = config.directory(folder)
    (directory / "config.json").write_text(config.to_json())
    (directory / "manifest.json").unlink()
    return directory


@pytest.mark.parametrize("file", ["result.json", "metrics.jsonl", "figure.json"])
def test_forged_numbers_are_left_out(
    file: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of runs without checksums, or whose checksums were forged too."""
    folder = tmp_path / "runs"
    shutil.copytree(finished, folder)
    if file == "result.json":
        attacks = forged_results()
    elif file == "metrics.jsonl":
        attacks = forged_lines()
    else:
        good = {"spectrum_truth": [[1.0, 2.0]], "spectrum_prediction": [[1.0, 2.0]]}
        good |= {"spectrum_seconds_a_frame": 0.01, "spectrum_highest_hertz": 4000.0}
        attacks = [(name, good | {name: value}) for name in list(good)[:2] for value in SPECTRA]
        attacks += [(name, good | {name: value}) for name in list(good)[2:] for value in (*NUMBERS, 0, 1e-300)]
        gates = json.loads((BAD.directory(finished) / file).read_text())
        for name in ("gate_threshold", "gate_share_brackets"):
            attacks += [(name, gates | {name: value}) for value in NUMBERS if value != -1]
        attacks += [
            (name, gates | {name: [value] * 12}) for name in ("gate_share", "noise") for value in (NAN, [], "1")
        ]
    for seed, (name, value) in enumerate(attacks, 1):
        directory = forge(override(BAD, {"seed": seed}), folder, finished)
        if file == "figure.json":
            (directory / file).write_text(json.dumps(value))
            continue
        if file == "metrics.jsonl":  # an unfinished run
            (directory / "result.json").unlink()
        first, _, rest = (directory / file).read_text().partition("\n" if file == "metrics.jsonl" else "\0")
        (directory / file).write_text(json.dumps(json.loads(first) | {name: value}) + "\n" + rest)
    assert main(["status", "--runs", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    if file != "figure.json":
        assert output.out.count("skipped: ") == len(attacks)
    assert main(["report", "--runs", str(folder)]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert output.out.count("skipped: ") == len(attacks)
    assert "GRU" in (folder / "report" / "report.md").read_text()


@pytest.mark.parametrize("loss", [NAN, INFINITY, 3.4e38, -3.4e38, 0])
@pytest.mark.parametrize("experiment", ["parenthesis", "adding"])
def test_losses_of_a_diverging_run_are_shown(loss: float, experiment: str, tmp_path: Path) -> None:
    """An evaluation of a network that diverges may give any of these."""
    for seed, place in enumerate((0, 1, -1)):
        file = write_run(tmp_path, experiment, "gru", [2.0, 1.0, 0.5], seed=seed, finished=False) / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[place]["test_loss"] = loss
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["status", "--runs", str(tmp_path)]) == 0
    assert main(["report", "--runs", str(tmp_path)]) == 0
    assert len(load(tmp_path)[0][0].records) == 3


def test_control_characters_of_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LabError):
        train(small("copying", "gru", {"optimizer.lr": 3e38}), tmp_path)
    directory = small("copying", "gru").directory(tmp_path)
    (directory / "failure.json").write_text(json.dumps({"message": "\x1b[2J\r\nall is well\u202e"}))
    assert main(["status", "--runs", str(tmp_path)]) == 0
    assert "\\x1b[2J\\r all is well\\u202e" in capsys.readouterr().out
    assert main(["report", "--runs", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out + (tmp_path / "report" / "report.md").read_text()


def test_control_characters_in_the_name_of_a_folder(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "runs")
    BAD.directory(tmp_path / "runs").parent.rename(tmp_path / "runs" / "parenthesis" / "small" / "\x1b[31m")
    for command in ("status", "report"):
        assert main([command, "--runs", str(tmp_path / "runs")]) == 0
        assert "\x1b" not in capsys.readouterr().out
    assert "\x1b" not in (tmp_path / "runs" / "report" / "report.md").read_text()
    assert "\x1b" not in (tmp_path / "runs" / "report" / "index.html").read_text()


def test_printable() -> None:
    assert printable("as it is, ä") == "as it is, ä"
    assert printable("a\tb\nc\x00\x1b\x7f\x9b\u2028") == "a b c\\x00\\x1b\\x7f\\x9b\\u2028"
    assert str(LabError("\x1b[31m")) == "\\x1b[31m"


def test_limits(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(LabError, match="is larger than"):
        read_bytes(tmp_path / "a", 4)
    assert parse_json(str(10**17), "here") == 10**17
    for text in (str(10**18), f"[{10**300}]"):
        with pytest.raises(LabError, match=r"here is not valid JSON: an integer of \d+ digits"):
            parse_json(text, "here")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 7"):
        train(GOOD, tmp_path, stop=lambda: next(count) == 7)
    return GOOD.directory(tmp_path)


@pytest.mark.parametrize("attack", ["empty", "list", "string", "empty-object", "folder", "pipe", "nested"])
def test_a_damaged_environment_does_not_stop_a_run(attack: str, stopped: Path, tmp_path: Path) -> None:
    ATTACKS[attack](stopped / "environment.json")
    if attack == "folder":  # cannot be replaced by a file
        with pytest.raises(LabError, match="cannot write to"):
            train(GOOD, tmp_path)
        return
    train(GOOD, tmp_path)
    train(GOOD, tmp_path / "whole")
    assert outcome(stopped) == outcome(GOOD.directory(tmp_path / "whole"))
    (attempt,) = json.loads((stopped / "environment.json").read_text())["attempts"]
    assert attempt["notes"][0].startswith("environment.json could not be used (")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": "7"}, "step is '7'"),
        ({"step": -1}, "step is -1"),
        ({"step": 7.5}, "step is 7.5"),
        ({"step": True}, "step is True"),
        ({"step": 11}, "it is at step 11, the last one is 10"),
        ({"metrics_bytes": -5}, "metrics_bytes is -5"),
        ({"metrics_bytes": 10**15}, "bytes of metrics.jsonl"),
        ({"metrics_bytes": 3}, "relies on the first 3 bytes of metrics.jsonl, which have changed"),
        ({"metrics_bytes": 3, "metrics_sha256": ""}, "relies on the first 3 bytes of metrics.jsonl"),
        ({"metrics_sha256": 1}, "metrics_sha256 is 1"),
        ({"seconds": float("nan")}, "seconds is nan"),
        ({"seconds": 1e300}, "seconds is 1e[+]300"),
        ({"step": 0}, "loss_count is 2 at step 0"),
        ({"step": 0, "loss_count": 0}, "it is at step 0, the last one is 10"),
        ({"loss_count": 10**17}, "loss_count is 100000000000000000 at step 7"),
        ({"waited": 8}, "waited is 8 at step 7"),
        ({"reached": 1}, "reached is 1"),
        ({"best_score": [1]}, r"best_score is \[1\]"),
        ({"more": 1}, "other fields"),
    ],
)
def test_forged_positions(change: dict[str, Any], message: str, stopped: Path, tmp_path: Path) -> None:
    """With a checksum that is right."""
    file = stopped / "checkpoint.safetensors"
    tensors, position = checkpoints.read(file, GOOD.digest())
    file.write_bytes(checkpoints.encode(tensors, position | change, GOOD.digest()))
    with pytest.raises(LabError, match=message) as error:
        train(GOOD, tmp_path)
    assert "delete it to start this run from the beginning" in str(error.value)


def test_a_position_of_an_older_version(stopped: Path, tmp_path: Path) -> None:
    file = stopped / "checkpoint.safetensors"
    tensors, position = checkpoints.read(file, GOOD.digest())
    older = {name: value for name, value in position.items() if name not in checkpoints.LATER}
    assert older != position
    file.write_bytes(checkpoints.encode(tensors, older, GOOD.digest()))
    assert train(GOOD, tmp_path)["step"] == 10


@pytest.mark.parametrize("position", ["", "[]", "{", "[" * 100_000, '"a"'])
def test_positions_that_are_no_objects(position: str, stopped: Path, tmp_path: Path) -> None:
    file = stopped / "checkpoint.safetensors"
    tensors, _ = checkpoints.read(file, GOOD.digest())
    header = {"format": checkpoints.FORMAT, "config": GOOD.digest(), "position": position}
    file.write_bytes(checkpoints.save(tensors, header | {"digest": checkpoints._digest(tensors, position)}))
    with safe_open(str(file), framework="pt") as content:
        assert content.metadata()["position"] == position
    with pytest.raises(LabError, match="has an invalid position"):
        train(GOOD, tmp_path)


def stop_at_three(config: RunConfig, folder: Path) -> Path:
    count = iter(range(1, 100))
    with pytest.raises(LabError, match="stopped at step 3"):
        train(config, folder, stop=lambda: next(count) == 3)
    return config.directory(folder) / "checkpoint.safetensors"


FORGED: dict[str, Callable[[Tensor | None], Tensor | None]] = {
    "missing": lambda good: None,
    "another-shape": lambda good: torch.zeros(3),
    "a-scalar": lambda good: torch.tensor(-1.0),
    "integer": lambda good: None if good is None else good.to(torch.int64),
    "complex": lambda good: None if good is None else good.to(torch.complex64),
    "double": lambda good: None if good is None else good.to(torch.float64),
    "one-more-dimension": lambda good: None if good is None else good.unsqueeze(0),
}
TEXT = {"layer.hidden_size": 6, "batch": 3}
NAMES = {
    GOOD: ("optimizer/0/mean_square", "parameter/head.bias", "random/torch"),
    small("penn_treebank", "lstm", TEXT): ("carry/0", "carry/1", "best/head.bias", "optimizer/1/mean_square"),
    small("penn_treebank", "goru", TEXT | {"optimizer.rule": "adam"}): (
        "carry/0",
        "optimizer/0/step",
        "optimizer/0/exp_avg",
    ),
}
EXTRA = (
    "optimizer/999/x",
    "optimizer/0/x",
    "optimizer/-1/mean_square",
    "optimizer/x/y",
    "carry/7",
    "best/x",
    "buffer/x",
)
EXTRA += ("parameter/x", "random/x", "x", "", "\x1b[31m")


@pytest.mark.parametrize("config", NAMES, ids=lambda config: f"{config.experiment}-{config.model}")
def test_forged_tensors(config: RunConfig, tmp_path: Path) -> None:
    """With a checksum that is right: exactly the tensors of this network are taken, of their shapes and types."""
    file = stop_at_three(config, tmp_path)
    content = file.read_bytes()
    tensors, position = checkpoints.read(file, config.digest())
    attacks: list[dict[str, Tensor]] = [tensors | {name: torch.zeros(3)} for name in EXTRA if name not in tensors]
    for name in NAMES[config]:
        for forge in FORGED.values():
            forged = {**tensors, name: forge(tensors[name])}
            attacks.append({key: tensor for key, tensor in forged.items() if tensor is not None})
    attacks.append({name: tensor for name, tensor in tensors.items() if not name.startswith("best/")})
    attacks.append({name: tensor for name, tensor in tensors.items() if not name.startswith("carry/")})
    for attack in attacks:
        if same(attack, tensors):
            continue
        file.write_bytes(checkpoints.encode(attack, position, config.digest()))
        with pytest.raises(LabError, match="does not fit this network") as error:
            train(config, tmp_path)
        assert "\x1b" not in str(error.value)
    file.write_bytes(content)
    assert train(config, tmp_path)["step"] == config.steps


def same(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return some.keys() == others.keys() and all(
        tensor.dtype == others[name].dtype and torch.equal(tensor, others[name]) for name, tensor in some.items()
    )
