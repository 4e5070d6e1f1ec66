"""Building the package: with a compiler, without one, with one that fails, and when told not to."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
assert _spec is not None
assert _spec.loader is not None
hatch_build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hatch_build)


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
    assert "goru/kernels/native/library.py" in names
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


def test_a_compiler_of_blanks_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    usual = hatch_build.find_compiler()
    for blank in ("", " ", "\t\n"):
        monkeypatch.setenv("CXX", blank)
        assert hatch_build.find_compiler() == usual


def recorder(folder: Path) -> Path:
    """A compiler that writes down how it is called, in a folder with a blank in its name."""
    script = folder / "my tools" / "g++"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\nfor word; do [ "$word" = -dumpmachine ] && echo x86_64-linux-gnu && exit; done\n'
        f'echo "$@" >> "{folder}/calls"\nwhile [ "$1" != -o ]; do shift; done\n: > "$2"\n'
    )
    script.chmod(0o755)
    return script


def test_flags_of_the_environment(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quoted path, CXXFLAGS and LDFLAGS reach the compiler; ours stay, those of the level come last."""
    monkeypatch.setenv("CXX", f"'{recorder(tmp_path)}' -DFROM_CXX")
    for name, value in {"CPPFLAGS": "-DCPP='a b'", "CXXFLAGS": "-g -O1", "LDFLAGS": "-Wl,--as-needed"}.items():
        monkeypatch.setenv(name, value)
    compiler = hatch_build.find_compiler()
    assert compiler == [str(tmp_path / "my tools" / "g++"), "-DFROM_CXX"]
    hatch_build.compile_library(tree, compiler, tmp_path / "library.so")
    *compiled, linked = (tmp_path / "calls").read_text().splitlines()
    assert len(compiled) > 5
    for call in compiled:
        assert "-DFROM_CXX" in call
        assert call.index("-O2") < call.index("-DCPP=a b") < call.index("-g -O1")
        assert "-mavx2" not in call or call.index("-O1") < call.index("-mavx2")
    assert "-g -O1" in linked
    assert "-Wl,--as-needed" in linked
    if sys.platform == "linux":
        assert "-Wl,-z,relro,-z,now" in linked


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("readelf") is None, reason="needs readelf")
@pytest.mark.skipif(hatch_build.find_compiler() is None, reason="no C++ compiler")
def test_full_relro(tmp_path: Path) -> None:
    """What is linked cannot be redirected later: no lazy binding, a read-only table, no executable stack."""
    (tmp_path / "one.cpp").write_text('#include <cmath>\nextern "C" double one(double x) { return std::tgamma(x); }\n')
    compiler, library = hatch_build.find_compiler(), tmp_path / "one.so"
    flags = [*hatch_build.FLAGS, "-shared", str(tmp_path / "one.cpp"), "-o", str(library), *hatch_build.LINK]
    subprocess.run([*compiler, *flags], check=True)
    listing = ["readelf", "-W", "-l", "-d", str(library)]
    text = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
    assert "GNU_RELRO" in text
    assert re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW", text)
    assert re.search(r"GNU_STACK.* RW ", text)


def test_source_distribution_has_the_sources(tree: Path, tmp_path: Path) -> None:
    path, _ = build(tree, "sdist", tmp_path)
    with tarfile.open(path) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert "hatch_build.py" in names
    assert "src/goru/kernels/csrc/goru/goru_forward.h" in names
    assert not [name for name in names if name.endswith(".so")]


CROSS = "aarch64-linux-gnu-g++"


@pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"{CROSS} is not installed")
def test_compiler_for_another_processor(tree: Path, tmp_path: Path) -> None:
    """Its library would not load here, and the wheel would be tagged for this processor."""
    wheel, said = build(tree, "wheel", tmp_path, CXX=CROSS)
    assert_pure(wheel)
    assert f"{CROSS} compiles for aarch64, this Python runs on {sysconfig.get_platform()}" in said


@pytest.mark.soak
@pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"{CROSS} is not installed")
def test_library_for_another_processor(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "library.so"
    hatch_build.compile_library(tree, [CROSS], target)
    header = target.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183  # aarch64
    assert b"generic" in target.read_bytes()


# ------------------------------------------------------------------------------------------------- the wheel, installed

needs_compiler = pytest.mark.skipif(hatch_build.find_compiler() is None, reason="no C++ compiler")

MULTIPLY = """
import ctypes, math, sys
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_void_p, byref, cast
library = ctypes.CDLL(sys.argv[1])
library.goru_level_name.restype = ctypes.c_char_p
class Mesh(Structure):
    _fields_ = [("size", c_int64), ("rotations", c_int64)] + [
        (n, c_void_p) for n in ("p", "q", "reach", "coefficients", "phases")]
class Arguments(Structure):
    _fields_ = [("mesh", Mesh)] + [(n, c_int64) for n in ("threads", "slices", "angles")] + [
        (n, c_void_p) for n in ("u", "grad", "scratch", "sums")]
def address(values):
    return cast(values, c_void_p)
c, s = math.cos(0.3), math.sin(0.3)
p, q, reach, k = (c_int32 * 1)(0), (c_int32 * 1)(1), (c_int32 * 1)(0), (c_float * 2)(c, s)
for level in range(library.goru_levels()):
    if not library.goru_level_runs(level):
        continue
    library.goru_choose(level)
    u, scratch = (c_float * 4)(), (c_float * 4096)()
    mesh = Mesh(2, 1, address(p), address(q), address(reach), address(k), None)
    library.goru_mesh_matrix(0, 0, byref(Arguments(mesh, 1, 1, 1, address(u), None, address(scratch), None)))
    assert all(abs(a - b) < 1e-6 for a, b in zip(u, (c, -s, s, c))), list(u)
    print(library.goru_level_name(level).decode())
"""


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tree, "wheel", tmp_path_factory.mktemp("wheel"))[0]


def other_python(version: str) -> str:
    """An interpreter of that version, on PATH or where pyenv keeps them."""
    found = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    name = shutil.which(f"python{version}") if not found else str(found[-1])
    if name is None or subprocess.run([name, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip(f"there is no Python {version} with pip")
    return name


def environment(folder: Path, wheel: Path) -> Path:
    """A fresh virtual environment with the wheel and this one's torch, and nothing of this one's goru."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin/python"
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True,
        env=os.environ | {"PYTHONPATH": ""},
    )  # fmt: skip
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "torch_from_outside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def without_a_compiler(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments], cwd=python.parent, capture_output=True, text=True,
        env={"PATH": str(python.parent), "HOME": str(python.parent)},
    )  # fmt: skip


TRAIN = """
import torch, goru
from goru.kernels import native
assert native.unavailable_reason() is None, native.unavailable_reason()
torch.manual_seed(0)
layer, x, target = goru.GORU(3, 8), torch.randn(20, 4, 3), torch.randn(20, 4, 8)
optimizer, losses = torch.optim.Adam(layer.parameters(), 0.01), []
for _ in range(30):
    losses.append(torch.nn.functional.mse_loss(layer(x)[0], target))
    optimizer.zero_grad()
    losses[-1].backward()
    optimizer.step()
assert losses[-1] < 0.95 * losses[0], losses
print(goru.__file__)
"""


@pytest.mark.soak
@needs_compiler
def test_what_make_wheel_gives_runs_without_a_compiler(wheel: Path, tree: Path, tmp_path: Path) -> None:
    """The way of `make wheel`: the source distribution, the wheel that is built from it alone, auditwheel."""
    source, _ = build(tree, "sdist", tmp_path / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    found, _ = build(unpacked, "wheel", tmp_path / "from sdist")
    assert found.name == wheel.name
    assert found.read_bytes() == wheel.read_bytes()
    names = zipfile.ZipFile(found).namelist()
    assert "goru/kernels/_native.so" in names
    assert not [name for name in names if name.endswith((".cpp", ".h"))]
    if sys.platform == "linux":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        repair = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(tmp_path / "repaired"), str(found)]
        subprocess.run(repair, check=True, env=os.environ | {"PATH": path})
        (found,) = (tmp_path / "repaired").iterdir()
        assert "-manylinux_2_" in found.name
    python = environment(tmp_path / "fresh", found)
    done = without_a_compiler(python, "-c", TRAIN)
    assert done.stdout.startswith(str(tmp_path / "fresh")), done.stdout + done.stderr
    done = without_a_compiler(python, "-m", "goru", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^  GORU\S* on cpu, float32: native", done.stdout, flags=re.MULTILINE), done.stdout


@pytest.mark.soak
def test_pure_wheel_says_once_that_it_is_slower(tree: Path, tmp_path: Path) -> None:
    pure, _ = build(tree, "wheel", tmp_path / "pure", GORU_NO_NATIVE="1")
    python = environment(tmp_path / "fresh", pure)
    code = "import goru, torch; [goru.GORU(2, 3)(torch.ones(4, 1, 2)) for _ in range(3)]"
    done = without_a_compiler(python, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("goru runs in pure torch") == 1


@pytest.mark.soak
@needs_compiler
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_wheel_is_accepted_and_computes_under_other_pythons(wheel: Path, tmp_path: Path, version: str) -> None:
    python = other_python(version)
    folder = tmp_path / "installed"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)],
        check=True, env=clean,
    )  # fmt: skip
    done = subprocess.run(
        [python, "-c", MULTIPLY, str(folder / "goru/kernels/_native.so")], capture_output=True, text=True, env=clean
    )
    assert done.returncode == 0, done.stderr
    assert "generic" in done.stdout.split()


@pytest.mark.soak
@needs_compiler
def test_wheel_is_tagged_for_the_glibc_that_it_needs_and_reproducible(wheel: Path, tree: Path, tmp_path: Path) -> None:
    library = zipfile.ZipFile(wheel).read("goru/kernels/_native.so")
    (tmp_path / "library.so").write_bytes(library)
    if sys.platform == "linux" and shutil.which("objdump"):
        listing = ["objdump", "-T", "-p", str(tmp_path / "library.so")]
        text = subprocess.run(listing, capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"NEEDED +(\S+)", text)) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}
        newest = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", text))
        assert f"-py3-none-manylinux_2_{newest}_" in wheel.name
    again, _ = build(tree, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
