"""Instruction sets that this processor may not have: 64-bit ARM in an emulator, AVX-512 as it was compiled."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from goru.kernels import native
from goru.kernels.native import library
from tests.kernels.standalone import PLAIN, assert_same, compiled, run

CROSS = "aarch64-linux-gnu-g++"
EMULATOR = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
needs_cross = pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"{CROSS} is not installed")


@needs_cross
def test_arm_computes_what_the_generic_level_does(tmp_path: Path) -> None:
    program = compiled(tmp_path, "-O1", "-static", compiler=CROSS)
    if EMULATOR is None:
        pytest.skip("compiled, but not run: qemu-aarch64 is not installed")
    results = run(program, 5, EMULATOR)
    assert_same(results, run(compiled(tmp_path, *PLAIN), 5))


def functions(path: Path) -> dict[str, list[list[str]]]:
    """The instructions of every function of the library; each level has a function of the same name."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, list[list[str]]] = {}
    for part in re.split(r"\n(?=[0-9a-f]+ <)", listing):
        if match := re.match(r"[0-9a-f]+ <(\w+)>:\n", part):
            found.setdefault(match[1], []).append(part.splitlines()[1:])
    return found


@pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")
@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not installed")
def test_products_of_every_level_are_fused_and_as_wide_as_its_registers() -> None:
    names = [library.get().goru_level_name(i).decode() for i in range(library.get().goru_levels())]
    if "avx512" not in names:
        pytest.skip("not an x86-64 library")
    products = {name: copies for name, copies in functions(library.LIBRARY).items() if "tile" in name}
    assert products
    by_width = {"zmm": 0, "ymm": 0, "xmm": 0}
    for name, copies in products.items():
        for body in copies:
            code = "\n".join(body)
            width = next(w for w in by_width if f"%{w}" in code)
            by_width[width] += 1
            fused = len(re.findall(rf"vfn?m(?:add|sub)\d+p[sd].*%{width}", code))
            apart = len(re.findall(rf"vaddp[sd].*%{width}", code))
            # The generic level of x86-64 has no fused instruction; elsewhere every sum of products is one.
            assert (fused > 0 and apart == 0) if width != "xmm" else fused == 0, (name, width, fused, apart)
    assert by_width["zmm"] >= by_width["ymm"] > 0
