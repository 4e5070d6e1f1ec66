"""The triton backend: its kernels in Triton's interpreter or on a device, compiled without one, and its place among the
backends."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

import goru
from benchmarks import gpu_programs
from goru.kernels.backends import BACKENDS, choose
from goru.kernels.triton import INTERPRETED, TRITON, unavailable_reason

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).with_name("triton_cases.py")
need_triton = pytest.mark.skipif(
    unavailable_reason() is not None,
    reason=f"{unavailable_reason()}; it takes 700 MB (pip install -c constraints.txt triton, or make gpu)",
)


def run_cases(*options: str, interpret: bool) -> None:
    """triton_cases.py in a process of its own: Triton reads TRITON_INTERPRET when it is imported."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables["TRITON_INTERPRET"] = "1" if interpret else "0"
    # Of the interpreter of Triton 3.5, and of torch on Python 3.13.0.
    theirs = [
        "-W",
        "ignore:Conversion of an array:DeprecationWarning",
        "-W",
        "ignore:Guards may run slower:RuntimeWarning",
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *theirs, *options, str(CASES)],
        cwd=ROOT, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout or "..." in run.stdout, run.stdout


@need_triton
@pytest.mark.parametrize("part", ["sizes", "options or tiles", "not sizes and not options and not tiles"])
def test_in_the_interpreter(part: str) -> None:
    run_cases("-m", "not soak", "-k", part, interpret=True)


@need_triton
@pytest.mark.soak
@pytest.mark.parametrize("part", ["all_sizes", "large"])
def test_more_in_the_interpreter(part: str) -> None:
    run_cases("-m", "soak", "-k", part, interpret=True)


@need_triton
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device here")
def test_on_a_device() -> None:
    run_cases(interpret=False)


# ------------------------------------------------------------------------------------------------- compiled


@pytest.fixture
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled here and now, not found."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def check(one: gpu_programs.Compiled, name: str, target: int) -> None:
    assert 0 < one.shared <= gpu_programs.SHARED_MEMORY[target]
    assert 0 < one.registers <= 255
    assert f".target sm_{target}" in one.ptx
    # The state goes through global memory. It must not come from the read-only cache, which does not notice the stores
    # of a step before; and all warps wait for each other once in a step forward, twice in a step back.
    assert "ld.global.nc" not in one.ptx
    assert one.ttgir.count("barrier") >= (1 if name == "goru_forward" else 2)


@need_triton
@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize("dtype", gpu_programs.DTYPES)
@pytest.mark.parametrize("name", gpu_programs.PROGRAMS)
def test_compiles_without_a_device(name: str, dtype: str) -> None:
    """The largest tile, for both targets; registers and memory are those of the page."""
    import triton

    from goru.kernels.triton.launch import CANDIDATES

    line = gpu_programs.row(name, dtype, CANDIDATES[-1], check)
    page = gpu_programs.PAGE.read_text()
    if f"Triton {triton.__version__}" in page:  # another version compiles otherwise
        cells = [str(value) for value in line.values()]
        assert any([c.strip() for c in written.split("|")[1:-1]] == cells for written in page.splitlines()), (
            f"{cells} is not in docs/gpu.md; run: python -m benchmarks.gpu_programs --page"
        )


@need_triton
@pytest.mark.soak
@pytest.mark.usefixtures("_own_cache")
@pytest.mark.parametrize("dtype", gpu_programs.DTYPES)
@pytest.mark.parametrize("name", gpu_programs.PROGRAMS)
def test_all_tiles_and_options_compile(name: str, dtype: str) -> None:
    from goru.kernels.triton.launch import CANDIDATES

    for blocks in CANDIDATES:
        for hidden in (1, 128, 1000):
            for target in gpu_programs.TARGETS:
                check(gpu_programs.compiled(name, hidden, dtype, target, blocks), name, target)
    blocks = CANDIDATES[0]
    absent = {"bias", "lengths", "saved"} if name == "goru_forward" else {"lengths"}
    without_bias = {} if name == "goru_forward" else {"BIAS": 0}
    for target in gpu_programs.TARGETS:
        for reset, update in ((0, 0), (0, 1), (1, 0)):
            gates = {"RESET": reset, "UPDATE": update}
            check(gpu_programs.compiled(name, 128, dtype, target, blocks, **gates), name, target)
        bare = gpu_programs.compiled(name, 128, dtype, target, blocks, absent=absent, REVERSE=1, **without_bias)
        check(bare, name, target)
        if dtype == "float32":
            check(gpu_programs.compiled(name, 128, dtype, target, blocks, precision="tf32"), name, target)


# ------------------------------------------------------------------------------------------------- a backend


def test_import_goru_does_not_import_triton() -> None:
    code = "import goru, sys; goru.GORU(3, 4); print([m for m in sys.modules if m.split('.')[0] == 'triton'])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.skipif(INTERPRETED, reason="TRITON_INTERPRET is set: the kernels run on the CPU")
def test_obstacles_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    words = "the triton kernels run on CUDA devices, the layer is on cpu"
    assert TRITON.obstacle(cpu, torch.float32) == words
    refused = pytest.raises(RuntimeError, match=rf"the triton backend cannot run here \(inside use_backend.*{words}")
    with refused, goru.use_backend("triton"):
        goru.GORU(3, 4)(torch.zeros(2, 1, 3))
    assert "support float32 and bfloat16, the layer has torch.float16" in str(TRITON.obstacle(cuda, torch.float16))
    module = sys.modules["goru.kernels.triton"]
    monkeypatch.setattr(module, "version", lambda name: "3.2.0")
    assert TRITON.obstacle(cuda, torch.float32) == "the triton kernels need Triton 3.5 or newer, this is 3.2.0"

    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", absent)
    assert TRITON.obstacle(cuda, torch.float32) == "Triton is not installed (pip install triton)"


def test_auto_prefers_it_on_a_capable_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with such a device: there may be none here."""
    module = sys.modules["goru.kernels.triton"]
    monkeypatch.setattr(module, "INTERPRETED", False)
    monkeypatch.setattr(TRITON, "automatic", True)
    monkeypatch.setattr(module, "version", lambda name: "3.7.1")
    monkeypatch.setattr(torch.version, "hip", None)
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    choice = choose("auto", cuda, torch.bfloat16, "goru", 1024)
    assert choice.backend == "triton"
    assert choice.reason.endswith("the triton kernels are the fastest on a CUDA device")
    for recurrence, hidden, dtype, words in (
        ("goru", 1025, torch.float32, "the triton kernels take up to 1024 hidden units, the layer has 1025"),
        ("eurnn", 5, torch.float32, "the triton backend does not implement eurnn"),
        ("goru", 5, torch.float64, "the triton kernels support float32 and bfloat16, the layer has torch.float64"),
    ):
        choice = choose("auto", cuda, dtype, recurrence, hidden)
        assert choice.backend == "manual"
        assert words in choice.reason
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    choice = choose("auto", cuda, torch.float32, "goru", 5)
    assert choice.backend == "manual"
    assert "need a device of compute capability 8.0 or higher, cuda has 7.5" in choice.reason


def test_a_cpu_keeps_its_reasons() -> None:
    choice = choose("auto", torch.device("cpu"), torch.float32, "goru", 5)
    if choice.backend == "native":
        assert choice.reason.endswith(BACKENDS["native"].merit)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device to measure")
def test_no_device_no_times() -> None:
    run = subprocess.run([sys.executable, "-m", "benchmarks", "gpu"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr == "no times: torch finds no CUDA device here\n"
    assert run.stdout == ""
