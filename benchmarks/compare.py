"""The training times of two git revisions, taken in turn: each round runs one, then the other."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .contenders import SHAPES

ROOT = Path(__file__).resolve().parent.parent

# Runs in the other tree with nothing of this one on the path, so it relies on the public API alone.
PROGRAM = """
import json, sys, time, torch, goru
threads, shapes = int(sys.argv[1]), json.loads(sys.argv[2])
torch.set_num_threads(threads)
times = []
for T, B, I, H in shapes:
    torch.manual_seed(0)
    layer, x, grad = goru.GORU(I, H), torch.randn(T, B, I), torch.randn(T, B, H)
    def step():
        layer.zero_grad()
        layer(x)[0].backward(grad)
    step(); step()
    best = []
    for _ in range(3):
        start = time.perf_counter(); step(); best.append(time.perf_counter() - start)
    times.append(sorted(best)[1] * 1e3)
print(json.dumps(times))
"""


def revisions(other: str, rounds: int, threads: int) -> list[dict[str, Any]]:
    """Median milliseconds of this tree and of `other` (built in a temporary work tree) and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "other"
        subprocess.run(
            ["git", "worktree", "add", "--detach", str(tree), other],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
        try:
            # Installed beside this one, without dependencies: torch is the same for both.
            site = Path(folder) / "site"
            subprocess.run(
                [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
                 "--target", str(site), str(tree)],
                check=True,
            )  # fmt: skip
            times: dict[str, list[list[float]]] = {"this tree": [], other: []}
            for _ in range(rounds):
                times["this tree"].append(_measure(ROOT / "src", threads))
                times[other].append(_measure(site, threads))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    rows = []
    for index, shape in enumerate(SHAPES):
        ours, theirs = (statistics.median(run[index] for run in times[name]) for name in ("this tree", other))
        rows.append({"T, B, I, H": str(shape), "this tree": ours, other: theirs, "times faster": theirs / ours})
    return rows


def _measure(path: Path, threads: int) -> list[float]:
    shapes = json.dumps([[s.T, s.B, s.I, s.H] for s in SHAPES])
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(threads), shapes],
        env={**os.environ, "PYTHONPATH": str(path)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return json.loads(result.stdout)
