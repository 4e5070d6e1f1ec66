"""`make bench`: tables of speed and memory on the terminal, everything as JSON beside them.

`python -m benchmarks --record` keeps it as benchmarks/speed.json, from which the README, docs/speed.md and the chart
have their numbers.

Times are medians of interleaved rounds in one run, in milliseconds; roofline.py explains the share of the roofline,
which comes from the rates of the faster `sgemm` and of `copy` in the same run. The tables are not printed when a kernel
disagrees with the reference.

`python -m benchmarks gpu` is a measurement of its own, for a machine with a CUDA device: gpu.py.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import goru

from . import agreement, compare, gpu, memory, readme, roofline
from .contenders import (
    SHAPES,
    Shape,
    Step,
    backends,
    forward_step,
    inputs,
    layer,
    training_step,
)  # fmt: skip
from .tables import Rows, table
from .timing import in_turn, interleaved, medians


def training(rounds: int) -> Rows:
    """Forward and backward."""
    return _against_torch(rounds, training_step, ("nn.GRU", "nn.LSTM", "goru.GRU", "goru.LSTM", *backends()), True)


def forward(rounds: int) -> Rows:
    """Forward alone, without gradients."""
    names = ("nn.GRU", "nn.LSTM", "goru.GRU", "goru.LSTM", *(name for name in backends() if name != "reference"))
    return _against_torch(rounds, lambda module, x, hidden: forward_step(module, x), names, False)


def _against_torch(rounds: int, make: Callable[..., Step], names: tuple[str, ...], whole: bool) -> Rows:
    times, products = {}, roofline.gemm_steps()
    for shape in SHAPES:
        x = inputs(shape)
        steps = {name: make(layer(name, shape), x, shape.H) for name in names}
        steps |= {**products, "copy": roofline.copy_step()}
        times[shape] = in_turn(steps, rounds, slow={"reference": 1})
    fastest = {name: min(min(measured[name]) for measured in times.values()) for name in (*products, "copy")}
    sgemm, copy = min(fastest[name] for name in products), fastest["copy"]
    rows = []
    for shape, measured in times.items():
        bounds = {name: roofline.milliseconds(name, shape, sgemm, copy, whole) for name in ("GORU", "GRU", "LSTM")}
        rows.append({"T, B, I, H": str(shape), **medians(measured), **_ratios(measured, bounds)})
    columns = [name for name in rows[0] if "vs" in name]
    means = {c: math.exp(sum(math.log(row[c]) for row in rows) / len(rows)) for c in columns}
    rows.append({"T, B, I, H": "geometric mean", **means})
    return rows


def _ratios(times: dict[str, list[float]], bounds: dict[str, float]) -> dict[str, float]:
    """How many times faster than torch's layers, by medians, and the share of the roofline that is reached; GORU on our
    fastest backend.

    The share compares fastest rounds: the medians of a product and a copy depend on what else the machine does.
    """
    usual = medians(times)
    ours = {"GORU": backends()[-1], "GRU": "goru.GRU", "LSTM": "goru.LSTM"}
    ratios = {f"vs {name}": usual[f"nn.{name}"] / usual[ours["GORU"]] for name in ("GRU", "LSTM")}
    ratios |= {f"{name} vs nn.{name}": usual[f"nn.{name}"] / usual[f"goru.{name}"] for name in ("GRU", "LSTM")}
    for name, contender in ours.items():
        ratios[f"{name} of roofline"] = bounds[name] / min(times[contender])
    return ratios


def eurnn(rounds: int) -> Rows:
    """EURNN, H 512 complex, T 220, B 128, I 10, beside nn.GRU of the same hidden size: forward and backward."""
    shape = Shape("EURNN", 220, 128, 10, 512)
    x = inputs(shape)
    backend = backends()[-1]
    layers = {
        "nn.GRU": nn.GRU(10, 512),
        "complex, L = 2": goru.EURNN(10, 512, backend=backend),
        "complex, FFT": goru.EURNN(10, 512, mesh="fft", backend=backend),
        "real, L = 2": goru.EURNN(10, 512, complex=False, backend=backend),
        "real, FFT": goru.EURNN(10, 512, complex=False, mesh="fft", backend=backend),
    }
    times = interleaved({name: training_step(module, x, 512) for name, module in layers.items()}, max(3, rounds // 2))
    return [{"layer": name, "ms": ms, "of nn.GRU": ms / times["nn.GRU"]} for name, ms in times.items()]


def ragged(rounds: int) -> Rows:
    """A padded batch with lengths uniform in 1..T against the full one, at the copying shape: forward and backward."""
    shape = SHAPES[0]
    x = inputs(shape)
    module = layer(backends()[-1], shape)
    lengths = torch.randint(1, shape.T + 1, (shape.B,), generator=torch.Generator().manual_seed(3))
    steps = {
        "full": training_step(module, x, shape.H),
        "lengths uniform in 1..T": training_step(module, x, shape.H, lengths=lengths),
    }
    times = interleaved(steps, rounds)
    return [{"batch": name, "ms": ms, "of full": ms / times["full"]} for name, ms in times.items()]


def scaling(rounds: int) -> Rows:
    """Cost per step and row as T and B grow (I 10, H 128): forward and backward; linear means a flat last column."""
    rows = []
    for T, B in ((100, 16), (1000, 16), (10_000, 16), (220, 32), (220, 128), (220, 512)):
        shape = Shape("scaling", T, B, 10, 128)
        step = training_step(layer(backends()[-1], shape), inputs(shape), 128)
        ms = interleaved({"ours": step}, max(3, rounds // 3))["ours"]
        rows.append({"T": T, "B": B, "ms": ms, "ns per step and row": ms * 1e6 / (T * B)})
    return rows


def mesh(rounds: int) -> Rows:
    """Building U and its gradient, beside a whole training step at (50, 32, 50, 1024)."""
    backend = backends()[-1]
    shape = Shape("mesh", 50, 32, 50, 1024)
    rows = []
    for options in ({"mesh": "fft"}, {"mesh": "tunable", "capacity": 1024}):
        module = goru.GORU(50, 1024, backend=backend, **options)  # type: ignore[arg-type]
        grad = torch.randn(1024, 1024)

        def build(module: goru.GORU = module, grad: torch.Tensor = grad) -> None:
            module.zero_grad()
            module.orthogonal_matrix().backward(grad)

        steps: dict[str, Callable[[], None]] = {
            "build": build,
            "step": training_step(module, inputs(shape), 1024),
        }
        times = interleaved(steps, max(3, rounds // 3))
        rest = times["step"] - times["build"]
        rows.append(
            {"mesh": " ".join(map(str, options.values())), "U and its gradient": times["build"],
             "whole step": times["step"], "share of the step": times["build"] / times["step"],
             "of the rest": times["build"] / rest}
        )  # fmt: skip
    return rows


def streaming(rounds: int) -> Rows:
    """One step at a time, batch 1, I 10, H 128, in a loop under inference_mode: microseconds a step."""
    cells = {
        "nn.GRUCell": nn.GRUCell(10, 128),
        "nn.GRU": nn.GRU(10, 128),
        "nn.LSTMCell": nn.LSTMCell(10, 128),
        **{f"GORUCell {name}": goru.GORUCell(10, 128, backend=name) for name in backends()},
        "goru.GRUCell": goru.GRUCell(10, 128),
        "goru.LSTMCell": goru.LSTMCell(10, 128),
    }
    x, h = torch.randn(1, 10), torch.zeros(1, 128)

    def call(module: nn.Module) -> Callable[[], None]:
        args: tuple[Any, Any] = (x[None], h[None]) if isinstance(module, nn.GRU) else (x, h)
        if isinstance(module, nn.LSTMCell | goru.LSTMCell):
            args = x, (h, h)

        def step() -> None:
            module(*args)

        return step

    with torch.inference_mode():  # around the loop, as a stream has it: docs/layers.md
        times = interleaved({name: call(module) for name, module in cells.items()}, rounds)
    return [{"cell": name, "us": ms * 1e3} for name, ms in times.items()]


def checkpoints(rounds: int) -> Rows:
    """Training with and without checkpoint=256, T 10000, B 4, I 10, H 128; MB beyond inputs and outputs at T 100000."""
    shape = Shape("checkpoints", 10_000, 4, 10, 128)
    x, rows = inputs(shape), []
    for name in ("GORU", "GRU", "LSTM"):
        kind = getattr(goru, name)
        steps = {
            "without": training_step(kind(shape.I, shape.H), x, shape.H),
            "with": training_step(kind(shape.I, shape.H, checkpoint=256), x, shape.H),
        }
        times = interleaved(steps, max(3, rounds // 3))
        row: dict[str, Any] = {"layer": name, **times, "with / without": times["with"] / times["without"]}
        for label, interval in (("without", 0), ("with", 256)):
            if (peak := memory.measure_long(name, interval, torch.get_num_threads())) is not None:
                row[f"{label}, MB"] = peak
        rows.append(row)
    return rows


def memory_peaks(threads: int) -> Rows:
    """Training at each shape in a fresh process: MB above the level after a tiny step; warm: after two whole steps."""
    rows = []
    for shape in SHAPES:
        row: dict[str, Any] = {"T, B, I, H": str(shape)}
        ours = (name for name in backends() if name != "reference")
        for name in ("nn.GRU", "nn.LSTM", "goru.GRU", "goru.LSTM", *ours):
            result = memory.measure(name, shape.name, threads)
            if result is not None:
                row[name] = result["above_start_mb"]
                row[f"{name}, warm"] = result["above_warm_level_mb"]
        if "nn.GRU" in row:
            row["GORU of nn.GRU"] = row[backends()[-1]] / row["nn.GRU"]
            row["goru.GRU of nn.GRU"] = row["goru.GRU"] / row["nn.GRU"]
            row["goru.LSTM of nn.LSTM"] = row["goru.LSTM"] / row["nn.LSTM"]
        rows.append(row)
    return rows


SECTIONS: dict[str, Callable[[int], Rows]] = {
    "training": training, "forward": forward, "eurnn": eurnn, "ragged": ragged, "scaling": scaling, "mesh": mesh,
    "streaming": streaming, "checkpoints": checkpoints,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", help=f"which of {', '.join([*SECTIONS, 'memory'])} (default: all), or gpu"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1], help="thread counts to measure with")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/bench.json"))
    parser.add_argument(
        "--record", action="store_true", help="keep the measurement and renew README, pages and pictures with it"
    )
    parser.add_argument("--page", action="store_true", help="renew them from the last record, do not measure")
    parser.add_argument("--compare", metavar="REVISION", help="time the training section of a git revision too")
    options = parser.parse_args()
    if options.page:
        return renew_readme()
    if options.sections == ["gpu"]:
        return gpu.main(options.rounds)
    if options.record and options.sections:
        parser.error(f"--record keeps a whole measurement, not {', '.join(options.sections)} alone")
    sections = options.sections or [*SECTIONS, "memory"]
    for name in sections:
        if name not in (*SECTIONS, "memory"):
            parser.error(f"unknown section {name!r}; there are {', '.join([*SECTIONS, 'memory'])}")
    problems = agreement.check()
    if problems:
        print("no times: a kernel disagrees with the reference", *problems, sep="\n  ", file=sys.stderr)
        return 1
    if options.compare:
        print(table(compare.revisions(options.compare, options.rounds, options.threads[0])))
        return 0
    report: dict[str, Any] = {
        "torch": torch.__version__, "goru": goru.__version__, "processor": _processor(), "backends": backends(),
        "threads": options.threads, "load": os.getloadavg()[0], "sections": {},
    }  # fmt: skip
    for threads in options.threads:
        torch.set_num_threads(threads)
        for name in sections:
            if threads != options.threads[0] and name not in ("training", "forward"):
                continue
            rows = memory_peaks(threads) if name == "memory" else SECTIONS[name](options.rounds)
            report["sections"][f"{name}, {threads} threads"] = rows
            title = (memory_peaks if name == "memory" else SECTIONS[name]).__doc__
            print(f"\n## {name}, {threads} thread{'s' * (threads > 1)}: {title}\n\n{table(rows)}", flush=True)
    out = readme.MEASURED if options.record else options.json
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"\nwritten to {out}")
    return renew_readme() if options.record else 0


def renew_readme() -> int:
    measured = json.loads(readme.MEASURED.read_text())
    for file, text in readme.renewed(measured).items():
        file.write_text(text, encoding="utf-8")
        print(f"renewed {file}")
    return 0


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
