"""Every call on files fails once, in a run, its report and its record: nothing is lost, nothing false is believed."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goru.lab import report
from goru.lab.errors import LabError
from goru.lab.report import record
from goru.lab.report.record import load
from goru.lab.training import run_directory as runs
from goru.lab.training.loop import train
from tests.lab.faults import Crash, Disk, chosen
from tests.lab.small import outcome, small
from tests.lab.test_report import SOLVED, write_run

pytestmark = pytest.mark.usefixtures("drawn_once")

CONFIG = small("parenthesis", "goru", {"eval_every": 2, "log_every": 1}, steps=3)


def run(folder: Path) -> dict[str, Any]:
    return train(CONFIG, folder, checkpoint_seconds=0)


@contextlib.contextmanager
def ends(disk: Disk) -> Iterator[None]:
    """The work inside ends with the crash, with a sentence, or (where a failed call does not matter) with success."""
    with disk, contextlib.suppress(LabError, Crash):
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """The outcome of the run, and how many calls it makes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Disk(folder) as disk:
        run(folder)
    disk.release()
    kinds = {call.split()[0] for call in disk.calls}
    assert {"open", "write", "fsync", "replace", "mkdir"} <= kinds
    return outcome(CONFIG.directory(folder)), len(disk.calls)


def resume(folder: Path, expected: dict[str, Any], at_least: int) -> None:
    """Continue a run to its end: the same bits, from the last good checkpoint or a later one."""
    run(folder)
    directory = CONFIG.directory(folder)
    assert outcome(directory) == expected
    assert [file.name for file in directory.iterdir() if ".tmp" in file.name] == []
    environment = runs.read_json(directory / "environment.json")
    assert environment is not None
    assert environment["attempts"][-1]["from_step"] >= at_least


def run_with_faults(
    numbers: list[int], expected: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = [0]
    save = runs.RunDirectory.save_checkpoint

    def noted(self: runs.RunDirectory, tensors: Any, position: dict[str, Any]) -> None:
        save(self, tensors, position)
        saved.append(position["step"])

    monkeypatch.setattr(runs.RunDirectory, "save_checkpoint", noted)
    for at in numbers:
        for error in (errno.EIO, errno.ENOSPC):
            saved[:] = [0]
            here = folder / f"{at}-{errno.errorcode[error]}"
            here.mkdir()
            with ends(disk := Disk(here, at, error=error)):
                run(here)
            disk.release()
            resume(here, expected, 0)
        saved[:] = [0]
        here = folder / f"{at}-crash"
        here.mkdir()
        with ends(disk := Disk(here, at, crash=True)):
            run(here)
        assert disk.crashed
        good, finished = saved[-1], (CONFIG.directory(here) / "result.json").exists()
        for names in (False, True):
            resume(disk.surviving(folder / f"{at}-power-{names}", names=names), expected, 0 if finished else good)
        disk.release()
        resume(here, expected, 0 if finished else good)
        for left in folder.iterdir():
            shutil.rmtree(left)


def test_a_run(undisturbed: tuple[dict[str, Any], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, count = undisturbed
    run_with_faults(chosen(count, 12), expected, tmp_path, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_every_call_of_a_run(
    part: int, undisturbed: tuple[dict[str, Any], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, count = undisturbed
    run_with_faults(chosen(count, 1)[part::4], expected, tmp_path, monkeypatch)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def visible(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(folder).items() if not Path(name).name.startswith(".")}


def left_behind(disk: Disk, folder: Path) -> list[Path]:
    """What a failure leaves: the folder itself, and after a crash what a loss of power would have left of it."""
    lost = []
    for names in (False, True) if disk.crashed else ():
        shutil.rmtree(folder / f"power-{names}", ignore_errors=True)
        lost.append(disk.surviving(folder / f"power-{names}", names=names))
    disk.release()
    return [*lost, disk.folder]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source") / "runs"
    write_run(folder, "copying", "goru", SOLVED)
    write_run(folder, "copying", "gru", SOLVED, finished=False)
    return folder


def report_with_faults(source: Path, folder: Path, every: int) -> None:
    """No file of a report is ever torn, and the same command again writes what an undisturbed one does."""
    work = folder / "work"
    work.mkdir()
    with Disk(work) as disk:
        report.write(source, work / "report")
    disk.release()
    expected = contents(work / "report")
    shutil.rmtree(work / "report")
    for crash in (False, True):
        for at in chosen(len(disk.calls), every):
            with ends(failing := Disk(work, at, crash=crash)):
                report.write(source, work / "report")
            for left in left_behind(failing, folder):
                here = left / "report"
                if here.exists():
                    assert visible(here).items() <= expected.items()
                report.write(source, here)
                assert contents(here) == expected
                shutil.rmtree(here)


def test_a_report(source: Path, tmp_path: Path) -> None:
    report_with_faults(source, tmp_path, 1000)


@pytest.mark.soak
def test_every_call_of_a_report(source: Path, tmp_path: Path) -> None:
    report_with_faults(source, tmp_path, 1)


def record_with_faults(source: Path, folder: Path, every: int) -> None:
    """A record is never believed with a number that is not true, and the same command again completes it."""
    older = folder / "older" / "runs"
    write_run(older, "copying", "goru", [*SOLVED[:-1], 0.5])
    write_run(older, "copying", "gru", SOLVED)
    record.write(older, folder / "before")
    work = folder / "work"
    shutil.copytree(folder / "before", work / "results")
    with Disk(work) as disk:
        record.write(source, work / "results")
    disk.release()
    expected = contents(work / "results")
    known = finals(folder / "before") | finals(work / "results")
    for crash in (False, True):
        for at in chosen(len(disk.calls), every):
            shutil.rmtree(work)
            shutil.copytree(folder / "before", work / "results")
            with ends(failing := Disk(work, at, crash=crash)):
                record.write(source, work / "results")
            for left in left_behind(failing, folder):
                assert finals(left / "results") <= known
                record.write(source, left / "results")
                assert contents(left / "results") == expected


def finals(folder: Path) -> set[tuple[str, float | None, float]]:
    """What a report would believe of a record: model, final loss and mean loss of each finished run."""
    found = [one for group in load(folder)[0] for one in group.records if one.finished]
    return {(one.config.model, one.score("test_loss"), one.mean_test_loss) for one in found}


def test_a_record(source: Path, tmp_path: Path) -> None:
    record_with_faults(source, tmp_path, 1000)


@pytest.mark.soak
def test_every_call_of_a_record(source: Path, tmp_path: Path) -> None:
    record_with_faults(source, tmp_path, 1)
