"""Building the package: with a compiler, without one, with one that fails, and when told not to."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build needs, so that the library in use is left alone."""
    copy = tmp_path_factory.mktemp("a tree with spaces") / "goru"
    copy.mkdir()
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.new"))
    return copy


def build(tree: Path, target: str, folder: Path, **environment: str) -> tuple[Path, str]:
    code = (
        f"import sys; from hatchling.build import build_wheel, build_sdist; print('BUILT', build_{target}(sys.argv[1]))"
    )
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=tree, env=os.environ | environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    name = next(line for line in done.stdout.splitlines() if line.startswith("BUILT ")).split()[1]
    return folder / name, done.stdout + done.stderr


def assert_pure(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "goru/kernels/native.py" in names
    assert not [name for name in names if name.endswith((".so", ".cpp", ".h"))]


def test_told_not_to(tree: Path, tmp_path: Path) -> None:
    wheel, said = build(tree, "wheel", tmp_path, GORU_NO_NATIVE="1")
    assert_pure(wheel)
    assert said.count("built without native kernels (GORU_NO_NATIVE is set)") == 1


def test_no_compiler(tree: Path, tmp_path: Path) -> None:
    wheel, said = build(tree, "wheel", tmp_path / "wheel", PATH=str(tmp_path), CXX="")
    assert_pure(wheel)
    assert "no C++ compiler found" in said


@pytest.mark.parametrize("compiler", ["/nonexistent/g++", "failing"])
def test_compiler_that_fails(tree: Path, tmp_path: Path, compiler: str) -> None:
    if compiler == "failing":
        script = tmp_path / "failing"
        script.write_text("#!/bin/sh\necho 'x.cpp:1: error: out of electricity' >&2\nexit 1\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        compiler = str(script)
    wheel, said = build(tree, "wheel", tmp_path / "wheel", CXX=compiler)
    assert_pure(wheel)
    assert "built without native kernels" in said
    if compiler.startswith(str(tmp_path)):
        assert "out of electricity" in said


def test_source_distribution_has_the_sources(tree: Path, tmp_path: Path) -> None:
    path, _ = build(tree, "sdist", tmp_path)
    with tarfile.open(path) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert "hatch_build.py" in names
    assert "src/goru/kernels/csrc/goru_forward.h" in names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_wheel_with_the_library_runs_without_a_compiler(tree: Path, tmp_path: Path) -> None:
    wheel, _ = build(tree, "wheel", tmp_path / "wheel")
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "goru/kernels/_native.so" in names
    assert not [name for name in names if name.endswith((".cpp", ".h"))]
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    code = "import goru; from goru.kernels import native; print(goru.__file__, native.unavailable_reason())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == [str(tmp_path / "installed" / "goru" / "__init__.py"), "None"], done.stderr
