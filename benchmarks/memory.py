"""Peak memory of training, each contender in a fresh process."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path

from .contenders import SHAPES, inputs, layer, training_step


def measure(name: str, shape_name: str, threads: int) -> dict[str, float] | None:
    """MB above the level after two warm-up steps, and above the level before the layer existed; None off Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", name, shape_name, str(threads)]
    root = Path(__file__).resolve().parent.parent
    result = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _settled() -> float:
    """Resident MB once the allocator has given back what is free, so that the level does not depend on its habits."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def _main(name: str, shape_name: str, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    shape = next(shape for shape in SHAPES if shape.name == shape_name)
    x = inputs(shape)
    module = layer(name, shape)
    start = _settled()
    step = training_step(module, x, shape.H)
    for _ in range(2):
        step()
    for parameter in module.parameters():
        parameter.grad = None
    level = _settled()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    for _ in range(3):
        step()
    peak = _status("VmHWM")
    print(json.dumps({"above_warm_level_mb": peak - level, "above_start_mb": peak - start}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
