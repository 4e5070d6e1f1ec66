"""Peak memory of training, each contender in a fresh process."""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path

from goru.kernels.native import library

from .contenders import SHAPES, inputs, layer, training_step


def measure(name: str, shape_name: str, threads: int) -> dict[str, float] | None:
    """MB above the level after two warm-up steps, and above the level after a tiny step; None off Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", name, shape_name, str(threads)]
    root = Path(__file__).resolve().parent.parent
    result = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)


def measure_long(kind: str, checkpoint: int, threads: int) -> float | None:
    """MB above inputs, outputs and their gradient in training over 100,000 steps (B 4, I 10, H 128); None off Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return None
    command = [sys.executable, "-m", "benchmarks.memory", "long", kind, str(checkpoint), str(threads)]
    root = Path(__file__).resolve().parent.parent
    return json.loads(subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout)


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

    def without_gradients() -> float:
        for parameter in module.parameters():
            parameter.grad = None
        return _settled()

    training_step(module, x[:2, :1], shape.H)()  # torch loads code and its own buffers at the first backward pass
    step = training_step(module, x, shape.H)
    library.release()  # what that step left in our pool would not count
    start = without_gradients()
    for _ in range(2):
        step()
    level = without_gradients()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    for _ in range(3):
        step()
    peak = _status("VmHWM")
    print(json.dumps({"above_warm_level_mb": peak - level, "above_start_mb": peak - start}))


def _main_long(kind: str, checkpoint: int, threads: int) -> None:
    import torch

    import goru

    torch.set_num_threads(threads)
    module = getattr(goru, kind)(10, 128, checkpoint=checkpoint or None)
    x, grad = torch.randn(100_000, 4, 10), torch.randn(100_000, 4, 128)
    module(x[:64])[0].sum().backward()
    level = _settled()
    Path("/proc/self/clear_refs").write_text("5")
    output, _ = module(x)
    output.backward(grad)
    print(json.dumps(_status("VmHWM") - level - output.numel() * output.itemsize / 2**20))


if __name__ == "__main__":
    if sys.argv[1] == "long":
        _main_long(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
