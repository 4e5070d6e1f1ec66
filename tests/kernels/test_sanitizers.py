"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, as a stand-alone program over random shapes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "src/goru/kernels/csrc"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
# Not optimised: it compiles in a fraction of the time, and every access is still checked.
FLAGS = ["-std=c++17", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiled(folder: Path, *flags: str) -> Path:
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    trial = folder / "trial.cpp"
    trial.write_text("int main() {}\n")
    program = folder / "sanitized"
    if subprocess.run([COMPILER, *FLAGS, str(trial), "-o", str(program)], capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    sources = [str(HERE / "csrc/sanitized.cpp"), str(KERNELS / "threads.cpp")]
    command = [COMPILER, *FLAGS, *flags, f"-I{KERNELS}", *sources, "-o", str(program), "-pthread", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def check(program: Path, rounds: int) -> None:
    done = subprocess.run(
        [str(program), str(rounds)], capture_output=True, text=True, env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{rounds} rounds\n"


def test_generic(tmp_path: Path) -> None:
    check(compiled(tmp_path), 20)


@pytest.mark.soak
def test_avx2(tmp_path: Path) -> None:
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    if "avx2" not in flags or "fma" not in flags:
        pytest.skip("the processor has no AVX2")
    check(compiled(tmp_path, "-mavx2", "-mfma"), 200)
