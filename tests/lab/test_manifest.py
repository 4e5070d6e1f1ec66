"""Checksums of finished runs: a changed file is never believed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from goru.lab.cli import main
from goru.lab.errors import LabError
from goru.lab.report import record
from goru.lab.report.records import load
from goru.lab.training import manifest
from goru.lab.training.loop import train
from tests.lab.small import small

CONFIG = small("parenthesis", "goru", steps=10)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(CONFIG, folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_finished_run_is_verified(folder: Path) -> None:
    directory = CONFIG.directory(folder)
    assert manifest.verify(directory)
    listed = json.loads((directory / "manifest.json").read_text())["sha256"]
    assert set(listed) == set(manifest.FILES)


@pytest.mark.parametrize("name", manifest.FILES)
def test_flipped_bits_are_never_believed(name: str, folder: Path) -> None:
    file = CONFIG.directory(folder) / name
    content = file.read_bytes()
    rng = random.Random(name)
    for _ in range(300):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(flipped)
        with pytest.raises(LabError, match="is not the file that the run wrote"):
            manifest.verify(file.parent)
    for other in (content + b" ", content[:-1], b""):
        file.write_bytes(other)
        with pytest.raises(LabError, match="is not the file that the run wrote"):
            manifest.verify(file.parent)
    file.unlink()
    with pytest.raises(LabError, match="is not the file that the run wrote"):
        manifest.verify(file.parent)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"sha256": {}}', '{"sha256": {"../../x": "0"}}'])
def test_a_damaged_manifest(content: str, folder: Path) -> None:
    (CONFIG.directory(folder) / "manifest.json").write_text(content)
    with pytest.raises(LabError, match=r"manifest\.json"):
        manifest.verify(CONFIG.directory(folder))


def test_status_and_report_leave_it_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = CONFIG.directory(folder) / "result.json"
    file.write_text(file.read_text().replace('"step": 10', '"step": 11'))
    assert main(["status", "--runs", str(folder)]) == 0
    assert "result.json is not the file that the run wrote" in capsys.readouterr().out
    groups, problems = load(folder)
    assert groups == []
    assert len(problems) == 1


def test_a_run_of_an_older_version_is_unverified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (CONFIG.directory(folder) / "manifest.json").unlink()
    assert main(["status", "--runs", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "1 finished runs have no checksums (older version): unverified" in output
    assert "1 of 1 runs finished" in output
    assert load(folder)[1] == []


def test_the_record_carries_checksums(tmp_path: Path) -> None:
    from tests.lab.test_report import SOLVED, write_run

    directory = write_run(tmp_path / "runs", "copying", "goru", SOLVED)
    record.write(tmp_path / "runs", tmp_path / "results")
    recorded = tmp_path / "results" / directory.relative_to(tmp_path / "runs")
    assert manifest.verify(recorded)
    (recorded / "result.json").write_text((recorded / "result.json").read_text().replace("0", "1", 1))
    assert "is not the file that the run wrote" in load(tmp_path / "results")[1][0]
