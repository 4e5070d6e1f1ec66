"""Checksums of finished runs: a changed file is never believed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from goru.lab import report
from goru.lab.cli import main
from goru.lab.errors import LabError
from goru.lab.report import record
from goru.lab.report.overview import unverified
from goru.lab.report.record import load
from goru.lab.training import manifest
from goru.lab.training.loop import train
from tests.lab.small import small
from tests.lab.test_report import SOLVED, write_run

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
    assert manifest.verify(directory) == "run"
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


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"since": "run"}', '{"since": "run", "sha256": {"../../x": "0"}}', '{"since": []}']
)
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
    assert manifest.verify(CONFIG.directory(folder)) == "never"
    assert "1 finished runs predate checksums and count as unverified" in output
    assert "1 of 1 runs finished" in output
    groups, problems = load(folder)
    assert problems == []
    (sentence,) = unverified(groups)
    assert sentence == "1 of 1 runs predate checksums and have none. They count as unverified."


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """The run of a record, of an older version: it had no checksums when it was recorded."""
    directory = write_run(tmp_path / "runs", "copying", "goru", SOLVED)
    record.write(tmp_path / "runs", tmp_path / "results")
    return tmp_path / "results" / directory.relative_to(tmp_path / "runs")


def test_the_record_carries_checksums(recorded: Path, tmp_path: Path) -> None:
    manifest.verify(recorded)
    (recorded / "result.json").write_text((recorded / "result.json").read_text().replace("0", "1", 1))
    assert "is not the file that the run wrote" in load(tmp_path / "results")[1][0]
    with pytest.raises(LabError, match="is not the file that the run wrote"):
        record.write(tmp_path / "results", tmp_path / "results")  # no new checksums for changed files
    record.write(tmp_path / "runs", tmp_path / "results")
    assert load(tmp_path / "results")[1] == []


def test_checksums_that_came_later_say_so(recorded: Path, tmp_path: Path) -> None:
    """Whether the record's files are what the run wrote is not known, however often they are recorded."""
    results = tmp_path / "results"
    assert manifest.verify(recorded) == "record"
    (recorded / "manifest.json").unlink()
    before = (recorded / "result.json").read_bytes()
    record.write(results, results)
    assert manifest.verify(recorded) == "record"
    assert (recorded / "result.json").read_bytes() == before
    record.write(results, tmp_path / "again")
    assert manifest.verify(tmp_path / "again" / recorded.relative_to(results)) == "record"
    when = "theirs were made when the runs were recorded. They count as unverified."
    sentence = f"1 of 1 runs predate checksums; {when}"
    assert sentence in (results / "README.md").read_text()
    written = report.write(results, tmp_path / "report")
    assert written.notices == [sentence]
    for name in ("index.html", "report.md"):
        assert sentence in (tmp_path / "report" / name).read_text()


def test_a_verified_run_stays_verified_in_the_record(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "runs", "copying", "goru", SOLVED)
    (directory / "manifest.json").write_bytes(manifest.encode(manifest.contents(directory)))
    record.write(tmp_path / "runs", tmp_path / "results")
    assert manifest.verify(tmp_path / "results" / directory.relative_to(tmp_path / "runs")) == "run"
    assert unverified(load(tmp_path / "results")[0]) == []


def test_a_changed_run_is_not_called_finished(folder: Path) -> None:
    file = CONFIG.directory(folder) / "result.json"
    file.write_text(file.read_text().replace('"step": 10', '"step": 11'))
    with pytest.raises(LabError, match="delete the run's folder and run it again"):
        train(CONFIG, folder)


def test_the_committed_record_has_checksums() -> None:
    groups, problems = load(Path(__file__).parents[2] / "results")
    assert problems == []
    assert {record.checked_since for group in groups for record in group.records if record.finished} <= {
        "run",
        "record",
    }
