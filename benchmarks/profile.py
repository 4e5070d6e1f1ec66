"""Where the time of a training step goes, by phase: `python -m benchmarks.profile`. Needs perf (Linux).

perf notes a thousand times a second which function runs; each function belongs to a phase. One thread, so that no
thread waits for another.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from .contenders import SHAPES, inputs, layer, training_step
from .tables import table

PHASES = {
    "weight gradients": r"outer_tile|OuterProducts",
    "products": r"\btile<|\bdots<",
    "rotations": r"RowMesh|::turn",
    "gates": r"::unit|::gates|::panel<|Step<.*::rows|GatedCells|::finish",
    "packing": r"_FUN|gated_pack|goru_pack|pack_",
}
REST, OUTSIDE = "rest of the kernels", "Python and torch"
NAMES = {"GORU": "native", "GRU": "goru.GRU", "LSTM": "goru.LSTM"}
SECONDS = 3.0


def phase(function: str, library: str) -> str:
    """The phase that a function belongs to."""
    if "_native.so" not in library:
        return OUTSIDE
    return next((name for name, pattern in PHASES.items() if re.search(pattern, function)), REST)


def measure(name: str, shape_name: str) -> dict[str, float]:
    """Percent of the time in each phase."""
    with tempfile.TemporaryDirectory() as folder:
        data, root = Path(folder) / "perf.data", Path(__file__).resolve().parent.parent
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "-k", "CLOCK_MONOTONIC", "-o", str(data)]
        command += [sys.executable, "-m", "benchmarks.profile", "--run", name, shape_name]
        ran = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
        begin, end = map(float, ran.stdout.split())
        command = ["perf", "script", "-i", str(data), "-F", "time,ip,sym,dso"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    counts: Counter[str] = Counter()
    for line in lines:
        sample = re.match(r"\s*([\d.]+):\s+[0-9a-f]+ (.*) \((.*)\)$", line)
        if sample and begin <= float(sample[1]) <= end:
            counts[phase(sample[2], sample[3])] += 1
    return {name: 100 * counts[name] / counts.total() for name in (*PHASES, REST, OUTSIDE)}


def run(name: str, shape_name: str) -> None:
    """Training steps for some seconds; prints when they began and ended."""
    import torch

    torch.set_num_threads(1)
    shape = next(shape for shape in SHAPES if shape.name == shape_name)
    step = training_step(layer(name, shape), inputs(shape), shape.H)
    step()
    step()
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        step()
    print(begin, time.monotonic())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--run", nargs=2, metavar=("LAYER", "SHAPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(*options.run)
        return 0
    if shutil.which("perf") is None:
        print("perf was not found: install it (linux-perf, or linux-tools)", file=sys.stderr)
        return 1
    rows = []
    for title, name in NAMES.items():
        for shape in SHAPES:
            shares = {phase: f"{share:.0f} %" for phase, share in measure(name, shape.name).items()}
            rows.append({"layer": title, "T, B, I, H": str(shape), **shares})
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
