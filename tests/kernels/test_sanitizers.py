"""The kernels under AddressSanitizer and UndefinedBehaviorSanitizer, as a stand-alone program over random shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from goru.kernels import native
from goru.kernels.native import library
from tests.kernels.standalone import AVX2, PLAIN, SANITIZERS, TERSE_SANITIZERS, assert_same, compiled, run

# The code of the AVX-512 level (64 bytes a vector, 32 registers) with AVX2's instructions: the compiler does every
# operation in two halves. It shows that nothing in the kernels' indices, tiles, packing and buffer sizes rests on the
# narrower vectors: the part of the level that we wrote. It does not show that the compiler's AVX-512 instructions are
# right, nor anything of their speed; which of them it chooses is looked at in test_portable.py.
WIDE = [*AVX2, "-DGORU_VECTOR_BYTES=64", "-DGORU_REGISTERS=32"]


def need_avx2() -> None:
    if native.unavailable_reason() is not None or "avx2" not in library.levels(library.get()):
        pytest.skip("the processor has no AVX2, or there are no native kernels to ask")


def test_generic(tmp_path: Path) -> None:
    run(compiled(tmp_path, *TERSE_SANITIZERS), 20)


@pytest.mark.soak
@pytest.mark.parametrize("flags", [[], AVX2, WIDE], ids=["generic", "avx2", "vectors of avx512"])
def test_many_rounds(tmp_path: Path, flags: list[str]) -> None:
    if flags:
        need_avx2()
    results = run(compiled(tmp_path, *SANITIZERS, *flags), 1000)
    assert_same(results, run(compiled(tmp_path, *PLAIN), 1000))


@pytest.mark.soak
def test_no_data_races(tmp_path: Path) -> None:
    """Threads that share rows wait for each other's results (csrc/base/team.h)."""
    run(compiled(tmp_path, "-fsanitize=thread", "-O1"), 300)
