"""Scaling: the page is what the benchmark makes of the last measurement and the costs; grids seen from elsewhere."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

from benchmarks import grid
from goru.lab import paper
from goru.lab.cli import main
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold
from tests.lab.small import small


def test_the_page_is_up_to_date() -> None:
    page = grid.PAGE.read_text()
    renewed = grid.renew(page, json.loads(grid.MEASURED.read_text()))
    assert renewed == page, "run: python -m benchmarks.grid --page"


def test_makespan() -> None:
    assert grid.makespan([4, 1, 1, 1, 1], 2) == 4
    assert grid.makespan([1, 1, 1, 1, 4], 2) == 6
    assert grid.makespan([3, 5], 64) == 5


def test_the_whole_paper() -> None:
    """Its core hours are those of `goru ls`, ten times; its hours lie between the bounds of the page."""
    rows = grid.whole_paper(10)
    hours = 10 * sum(one.seconds for one in paper.EXPERIMENTS.values() if one.paper) / 3600
    longest = rows[0]["longest run, hours"]
    for row in rows:
        assert row["runs"] == 10 * len(paper.grid())
        assert row["core hours"] == pytest.approx(hours)
        share = hours / row["runs at a time"]
        assert max(share, longest) <= row["hours"] * (1 + 1e-9)
        assert row["hours"] <= share + longest
    assert [row["runs at a time"] for row in rows] == [2, 16, 128]


@pytest.mark.skipif(shutil.which("strace") is None, reason="counts with strace")
def test_calls_are_counted(tmp_path: Path) -> None:
    """A short run against what runs.py says of itself: a file is written, flushed, renamed, its folder flushed."""
    tiny = ["--delay", "3", "--test-size", "2", "--batch", "2", "--hidden-size", "2", "--steps", "2"]
    counts = grid.count_calls(["run", "copying", "--model", "gru", *tiny, "--variant", "tiny"], tmp_path)
    names = {"config.json", "environment.json", "checkpoint.safetensors", "manifest.json", "result.json"}
    directory = tmp_path / "copying" / "tiny" / "gru" / "seed0"
    assert {path.name for path in directory.iterdir()} == names | {"metrics.jsonl", "lock"}
    assert counts["renamed"] == len(names)
    # A file and its folder each, metrics.jsonl before the checkpoint and the manifest, and four new folders.
    assert counts["synced"] == 2 * len(names) + 2 + 4
    assert counts["bytes"] == sum(path.stat().st_size for path in directory.iterdir())


def test_status_names_the_other_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As seen from a machine that shares the folder: who works at what is not finished."""
    config = small("copying", "gru")
    train(config, tmp_path)
    directory = config.directory(tmp_path)
    (directory / "result.json").unlink()
    environment = json.loads((directory / "environment.json").read_text())
    for host, shown in (("elsewhere", True), (socket.gethostname(), False)):
        (directory / "environment.json").write_text(json.dumps(environment | {"host": host}))
        with hold(config, tmp_path):
            assert main(["status", "--runs", str(tmp_path)]) == 0
        text = capsys.readouterr().out
        assert "running" in text
        assert ("elsewhere" in text) == shown
    assert main(["status", "--runs", str(tmp_path)]) == 0
    assert "stopped" in capsys.readouterr().out
