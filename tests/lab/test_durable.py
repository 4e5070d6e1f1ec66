"""Files that matter: planted links, several writers on one path, writers that die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goru.lab import durable

PROCESSES = multiprocessing.get_context("fork")
SIZE = 40_000


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    """The old predictable name, the file itself: whatever they point to stays as it was."""
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    folder = tmp_path / "report"
    folder.mkdir()
    for name in (".page.html.tmp", "page.html"):
        (folder / name).symlink_to(treasure)
    durable.replace(folder / "page.html", b"new")
    assert treasure.read_text() == "mine"
    assert not (folder / "page.html").is_symlink()
    assert (folder / "page.html").read_bytes() == b"new"


def test_a_name_that_exists_already_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the random name is known, the file is created for the writer alone."""
    names = iter(["0", "0", "1"])
    monkeypatch.setattr(durable.secrets, "token_hex", lambda n: next(names))
    (tmp_path / "treasure").write_text("mine")
    (tmp_path / ".a.0.tmp").symlink_to(tmp_path / "treasure")
    durable.replace(tmp_path / "a", b"new")
    assert (tmp_path / "treasure").read_text() == "mine"
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "report").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError, match="is a link"):
        durable.make_folder(tmp_path / "report")
    durable.make_folder(tmp_path / "a" / "b")
    durable.make_folder(tmp_path / "a" / "b")


def write_many(path: Path, letter: bytes, rounds: int) -> None:
    for _ in range(rounds):
        durable.replace(path, letter * SIZE)


def four_writers(tmp_path: Path, rounds: int) -> int:
    """Four processes write one path while this one reads it; returns how often it was read."""
    path = tmp_path / "file"
    durable.replace(path, b"_" * SIZE)
    writers = [PROCESSES.Process(target=write_many, args=(path, letter, rounds)) for letter in (b"a", b"b", b"c", b"d")]
    for writer in writers:
        writer.start()
    reads = 0
    while any(writer.is_alive() for writer in writers):
        content = path.read_bytes()
        assert content == content[:1] * SIZE, "torn"
        reads += 1
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    return reads


def test_four_writers_and_a_reader(tmp_path: Path) -> None:
    assert four_writers(tmp_path, 300) > 100


@pytest.mark.soak
def test_four_writers_and_a_reader_for_long(tmp_path: Path) -> None:
    assert four_writers(tmp_path, 10_000) > 10_000


def test_what_a_dead_writer_left_is_cleared(tmp_path: Path) -> None:
    """But not the file of a writer that is still at work."""
    code = "import os, sys; from pathlib import Path; from goru.lab import durable\n"
    stuck = "durable.os.fsync = lambda d: (print(flush=True), os.read(0, 1))\n"
    command = [sys.executable, "-c", code + stuck + "durable.replace(Path(sys.argv[1]), b'x')", str(tmp_path / "a")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.readline()  # it has written, and not renamed
    (temporary,) = tmp_path.iterdir()
    durable.replace(tmp_path / "a", b"other")
    assert temporary.exists()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    (tmp_path / ".b.0123.tmp").write_text("of another file")
    durable.replace(tmp_path / "a", b"new")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".b.0123.tmp", "a"]
    durable.clear_abandoned(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


def test_cleared_before_the_lock_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the creation of the temporary file and its lock another writer may clear it: another one is made."""
    flock, cleared = durable.fcntl.flock, []

    def late(descriptor: int, operation: int) -> None:
        if not cleared:
            cleared.extend(tmp_path.glob(".a.*.tmp"))
            cleared[0].unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(durable.fcntl, "flock", late)
    durable.replace(tmp_path / "a", b"new")
    assert len(cleared) == 1
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.replace(tmp_path / "a", b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for call in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(durable.os, call, fail)
            with pytest.raises(OSError, match="No space"):
                durable.replace(tmp_path / "a", b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["a"]


def test_two_reports_into_one_folder(tmp_path: Path) -> None:
    """At once: both succeed, and the folder holds whole files."""
    from tests.lab.small import goru
    from tests.lab.test_report import SOLVED, write_run

    write_run(tmp_path / "runs", "copying", "goru", SOLVED)
    command = [sys.executable, "-m", "goru.lab", "report", "--runs", str(tmp_path / "runs")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for one in both:
        _, errors = one.communicate(timeout=300)
        assert (one.returncode, errors) == (0, "")
    before = {file.name: file.read_bytes() for file in (tmp_path / "runs" / "report").iterdir()}
    assert not [name for name in before if name.endswith(".tmp")]
    assert goru("report", "--runs", str(tmp_path / "runs")).returncode == 0
    assert {file.name: file.read_bytes() for file in (tmp_path / "runs" / "report").iterdir()} == before
