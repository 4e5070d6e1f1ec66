"""Full disks and folders that cannot be written."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from goru.lab.errors import LabError
from goru.lab.training import run_directory as runs
from goru.lab.training.loop import train
from tests.lab.small import outcome, small

CONFIG = small("copying", "gru", steps=400)
TINY_DISK = 96 * 1024


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TINY_DISK}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1024))


def test_a_full_disk(tiny_disk: Path, tmp_path: Path) -> None:
    ballast = tiny_disk / "ballast"
    asked = iter(range(1, 10_000))

    def fill_at_step_50() -> bool:
        if next(asked) == 50:
            fill(ballast)
        return False

    with pytest.raises(LabError, match=r"no space left for .* \(last good checkpoint: step 49\)") as error:
        train(CONFIG, tiny_disk, checkpoint_seconds=0, stop=fill_at_step_50)
    assert "\n" not in str(error.value)
    assert not list(CONFIG.directory(tiny_disk).glob(".*.tmp"))
    # The checkpoint is good, and with room again the run ends as if nothing had happened.
    ballast.unlink()
    saved = runs.RunDirectory(CONFIG.directory(tiny_disk), CONFIG).load_checkpoint()
    assert saved is not None
    assert saved[1]["step"] == 49
    train(CONFIG, tiny_disk, checkpoint_seconds=1e9)
    train(CONFIG, tmp_path, checkpoint_seconds=1e9)
    assert outcome(CONFIG.directory(tiny_disk)) == outcome(CONFIG.directory(tmp_path))


def test_a_limit_on_file_size(tmp_path: Path) -> None:
    """The same without root: writing fails in the middle of metrics.jsonl."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, before[1]))
    try:
        with pytest.raises(LabError, match="no space left for"):
            train(CONFIG, tmp_path, checkpoint_seconds=1e9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    train(CONFIG, tmp_path)
    train(CONFIG, tmp_path / "other")
    assert outcome(CONFIG.directory(tmp_path)) == outcome(CONFIG.directory(tmp_path / "other"))


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(LabError, match=r"cannot write to .*: Not a directory"):
        train(CONFIG, tmp_path / "runs")


def test_a_folder_without_permission() -> None:
    with tempfile.TemporaryDirectory() as place:  # the one of pytest is closed to other users
        os.chmod(place, 0o755)
        folder = Path(place) / "runs"
        folder.mkdir(mode=0o555)
        user = os.geteuid()
        try:
            if user == 0:  # root may write everywhere: be somebody else for a moment
                os.seteuid(65534)
            with pytest.raises(LabError, match=r"cannot write to .*: Permission denied\."):
                train(CONFIG, folder)
        finally:
            os.seteuid(user)
