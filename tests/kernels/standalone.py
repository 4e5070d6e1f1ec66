"""The kernels as a program of their own (csrc/sanitized.cpp): compiled, run, and two of them compared.

Tolerance: the programs do the same sums in another order, with fused multiply-adds or without, over at most 6 steps of
at most 54 terms with b_h <= 0; 1e-12 and 1e-4 of a tensor's largest value are some thousand roundings of float64 and
float32, and far below what a wrong lane, a wrong weight or a missing term would change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src/goru/kernels/csrc"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
# Not optimized: it compiles in a fraction of the time, and every access is still checked.
PLAIN = ["-O0"]
SANITIZERS = ["-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
# Undefined behavior ends the program without a word: a third less to compile. With SANITIZERS it says what and where.
TERSE_SANITIZERS = [*SANITIZERS, "-fsanitize-undefined-trap-on-error"]
AVX2 = ["-mavx2", "-mfma"]
TOLERANCE = {32: 1e-4, 64: 1e-12}


def compiled(folder: Path, *flags: str, compiler: str | None = COMPILER) -> Path:
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "-".join(["program", *(f.strip("-").replace("=", "-") for f in flags)])[:100]
    trial = folder / "trial.cpp"
    trial.write_text("int main() {}\n")
    if subprocess.run([compiler, *flags, str(trial), "-o", str(program)], capture_output=True).returncode:
        pytest.skip(f"{compiler} does not take {' '.join(flags)}")
    sources = [str(HERE / "csrc/sanitized.cpp"), str(KERNELS / "base/threads.cpp")]
    command = [compiler, "-std=c++17", *flags, "-Wno-psabi", f"-I{KERNELS}", *sources, "-o", str(program)]
    done = subprocess.run([*command, "-pthread", "-ldl"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def run(program: Path, rounds: int, *through: str) -> list[tuple[str, Tensor]]:
    """What the program computed: name and values of every result."""
    record = program.with_suffix(".record")
    done = subprocess.run(
        [*through, str(program), str(rounds), str(record)],
        capture_output=True, text=True, env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{rounds} rounds\n"
    results = []
    with record.open("rb") as file:
        while line := file.readline():
            name, bits, count = line.decode().rsplit(" ", 2)
            data = bytearray(file.read(8 * int(count)))
            values = torch.frombuffer(data, dtype=torch.float64) if data else torch.empty(0)
            results.append((f"{name} {bits}", values))
    return results


def assert_same(ours: list[tuple[str, Tensor]], expected: list[tuple[str, Tensor]]) -> None:
    assert len(ours) == len(expected) > 0
    for i, ((name, a), (expected_name, b)) in enumerate(zip(ours, expected, strict=True)):
        assert (name, a.shape) == (expected_name, b.shape)
        if a.numel():
            far = ((a - b).abs().max() / b.abs().max().clamp_min(1.0)).item()
            assert far <= TOLERANCE[int(name[-2:])], f"result {i}, {name}: {far:.1e}"
