"""The Triton programs compiled without a device, for sm_80 and sm_90: registers and memory that they take.

    python -m benchmarks.gpu_programs          the table, on the terminal
    python -m benchmarks.gpu_programs --page   the same into docs/gpu.md

Needs Triton, whose wheel brings NVIDIA's assembler along.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tables import Rows, fill, table

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
TARGETS = (80, 90)
SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes that one program may take, by NVIDIA's tables of compute capabilities."""
PROGRAMS = ("goru_forward", "goru_backward")
DTYPES = ("float32", "bfloat16")
HIDDEN = 1024  # the most that there is
POINTERS = {
    "goru_forward": ("pre", "h0", "weight", "bias", "lengths", "output", "saved", "state"),
    "goru_backward": (
        "grad_output", "grad_h_n", "h0", "weight", "lengths", "output", "saved", "deltas", "carry", "keep",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """A program for one target. `spilled`: bytes of registers that went to memory, per thread."""

    registers: int
    spilled: int
    shared: int
    ttgir: str
    ptx: str


def compiled(
    name: str, hidden: int, dtype: str, target: int, blocks: Any, precision: str = "ieee", **options: Any
) -> Compiled:
    """One of PROGRAMS, both gates and a bias unless `options` say otherwise; `absent` names pointers that are None."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from goru.kernels.triton import programs

    program = getattr(programs, name)
    absent = options.pop("absent", ())
    own = {"TINY": 1e-19} if name == "goru_forward" else {"BIAS": 1}
    values: dict[str, Any] = {
        "H": hidden, "RESET": 1, "UPDATE": 1, "REVERSE": 0, "OPERAND": getattr(tl, dtype), "PRECISION": precision,
        "TUNING": 128, "BLOCK_B": blocks.rows, "BLOCK_N": blocks.columns, "BLOCK_K": blocks.inner, **own, **options,
        **dict.fromkeys(absent),
    }  # fmt: skip
    kinds = {"lengths": "*i64", "state": "*fp32", "carry": "*fp32", "keep": "*fp32"}
    element = {"float32": "*fp32", "bfloat16": "*bf16"}[dtype]
    signature = {p: kinds.get(p, element) for p in POINTERS[name] if p not in absent} | {"T": "i32", "B": "i32"}
    names = program.arg_names
    source = ASTSource(
        fn=program,
        signature={n: signature.get(n, "constexpr") for n in names},
        constexprs={(names.index(n),): value for n, value in values.items()},
        # What torch allocates is aligned.
        attrs={(names.index(p),): [["tt.divisibility", 16]] for p in POINTERS[name] if p in signature},
    )
    settings = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    kernel = triton.compile(source, target=GPUTarget("cuda", target, 32), options=settings)
    registers, spilled = _usage(kernel.asm["cubin"], Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump")
    return Compiled(registers, spilled, kernel.metadata.shared, kernel.asm["ttgir"], kernel.asm["ptx"])


def _usage(cubin: bytes, cuobjdump: Path) -> tuple[int, int]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", run.stdout)
    if found is None:
        raise RuntimeError(f"cuobjdump -res-usage gave no registers, but {run.stdout!r}")
    return int(found[1]), int(found[2])


def row(
    name: str, dtype: str, blocks: Any, check: Callable[[Compiled, str, int], None] | None = None
) -> dict[str, str]:
    """A line of the table: one program at H = 1024, registers / spilled bytes / shared KiB for each target."""
    line = {
        "program": name.removeprefix("goru_"), "dtype": dtype,
        "rows x columns x inner": f"{blocks.rows} x {blocks.columns} x {blocks.inner}", "warps": str(blocks.warps),
    }  # fmt: skip
    for target in TARGETS:
        one = compiled(name, HIDDEN, dtype, target, blocks)
        if check is not None:
            check(one, name, target)
        line[f"sm_{target}"] = f"{one.registers} / {one.spilled} / {one.shared / 1024:.0f}"
    return line


def rows() -> Rows:
    from goru.kernels.triton.launch import CANDIDATES

    return [row(name, dtype, blocks) for name in PROGRAMS for dtype in DTYPES for blocks in CANDIDATES]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_programs", description=__doc__)
    parser.add_argument("--page", action="store_true", help="renew the table of docs/gpu.md")
    options = parser.parse_args()
    try:
        import triton
    except ImportError:
        print("Triton is not installed; pip install -c constraints.txt triton", file=sys.stderr)
        return 2
    found = table(rows())
    print(found)
    if options.page:
        version = f"Compiled by Triton {triton.__version__}."
        PAGE.write_text(fill(PAGE.read_text(), {"programs": found, "triton version": version}))
        print(f"renewed {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
