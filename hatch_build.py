"""Compiles the C++ kernels into one shared library while the package is built; needs a C++ compiler, and no torch.

Without a compiler, with one that fails, or with GORU_NO_NATIVE=1 the package is built without the library and runs on
its pure-torch kernels: that is said once and is never an error. The library is plain C called through ctypes, so one
file serves every version of Python and torch, and the wheel is tagged py3-none-<platform>, where the platform of a
library that needs nothing but glibc is manylinux with the oldest glibc that it runs on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("src/goru/kernels/csrc")
LIBRARY = Path("src/goru/kernels/_native.so")

FLAGS = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-exceptions", "-fno-rtti"]
# x86-64-v3 and -v4, spelled out for compilers that do not know these names.
AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mavx512cd"]
# What every processor of a kind can run, then what some of them can; base/levels.cpp checks at run time. On 64-bit ARM
# the plain level already has NEON and fused multiply-add.
LINK = ["-pthread", "-ldl"]
if sys.platform == "linux":  # the table of foreign addresses is filled at once and then read-only (full RELRO)
    LINK += ["-Wl,-z,relro,-z,now", "-Wl,-z,noexecstack"]
LEVELS: dict[str, dict[str, list[str]]] = {"x86_64": {"generic": [], "avx2": AVX2, "avx512": AVX512}}


def source_hash(sources: Path) -> str:
    """Names the state of the sources; the library carries it, so that a stale one is noticed."""
    digest = hashlib.sha256()
    for path in sorted(sources.rglob("*")):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.relative_to(sources).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_compiler() -> list[str] | None:
    """$CXX (which may carry arguments), else the first of the usual names on PATH."""
    if named := words("CXX"):
        return named
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    return [found] if found else None


def words(variable: str) -> list[str]:
    """The words of an environment variable, quoted as in a shell."""
    value = os.environ.get(variable, "")
    try:
        return shlex.split(value)
    except ValueError:  # an open quote: as it is
        return value.split()


def target_machine(compiler: list[str]) -> str:
    """The processor that the compiler compiles for, which need not be this one: x86_64, aarch64, ..."""
    done = subprocess.run([*compiler, "-dumpmachine"], check=True, capture_output=True, text=True)
    machine = done.stdout.strip().partition("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def compile_library(root: Path, compiler: list[str], target: Path, levels: dict[str, list[str]] | None = None) -> None:
    """Compile every unit for every level, as many at a time as there are processors, and link.

    Raises CalledProcessError.
    """
    sources = root / SOURCES
    if levels is None:
        levels = LEVELS.get(target_machine(compiler), {"generic": []})
    listed = " ".join(f"one({name}, Type, cell)" for name in levels)
    plain = [f'-DGORU_SOURCE_HASH="{source_hash(sources)}"', f"-DGORU_LEVELS(one, Type, cell)={listed}"]
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for path in sorted(sources.glob("*/*.cpp")):
            if path.parent.name != "base":  # a cell: see base/levels.h
                jobs += [
                    (path, f"level_{path.stem}_{name}.o", [*flags, f"-DGORU_LEVEL={name}"])
                    for name, flags in levels.items()
                ]
            jobs.append((path, f"{path.stem}.o", plain))

        def compile_one(job: tuple[Path, str, list[str]]) -> str:
            path, name, flags = job
            output = str(Path(scratch) / name)
            own = [*words("CPPFLAGS"), *words("CXXFLAGS")]  # after ours, before those that make the level
            run([*compiler, *FLAGS, *own, f"-I{sources}", *flags, "-c", str(path), "-o", output])
            return output

        # The long ones first.
        jobs.sort(key=lambda job: "level" not in job[1])
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, jobs))
        link = [*compiler, "-shared", *words("CXXFLAGS"), *objects, "-o", str(Path(scratch) / "library.so")]
        link += [*LINK, *words("LDFLAGS")]
        try:
            run([*link, "-static-libstdc++", "-static-libgcc"])
        except subprocess.CalledProcessError:  # a compiler without static runtime libraries
            run(link)
        # Replaced, not overwritten: a running process may have the old file mapped.
        shutil.copyfile(Path(scratch) / "library.so", f"{target}.new")
        os.replace(f"{target}.new", target)


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def wheel_platform(library: bytes) -> str:
    """The platform tag of a wheel with this library."""
    name = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if name.startswith("macosx") and name.endswith("universal2"):  # Python serves both processors, the library one
        return name.replace("universal2", os.uname().machine)
    # The versions of glibc's symbols stand in the library as text. One that was linked to the C++ runtime's shared
    # library needs more than glibc, and one without any such version was made for another C library.
    versions = [int(minor) for minor in re.findall(rb"\0GLIBC_2\.(\d+)", library)]
    if name.startswith("linux_") and versions and b"libstdc++.so" not in library:
        return name.replace("linux_", f"manylinux_2_{max(versions)}_")
    return name


class NativeKernels(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        target = root / LIBRARY
        reason = self._build(root, target)
        if reason is None:
            build_data["artifacts"].append(f"/{LIBRARY.as_posix()}")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{wheel_platform(target.read_bytes())}"
            return
        target.unlink(missing_ok=True)
        self.app.display_warning(f"goru: built without native kernels ({reason}); the pure-torch kernels will be used")

    def _build(self, root: Path, target: Path) -> str | None:
        """Build the library; the reason in a few words if there is none."""
        if os.environ.get("GORU_NO_NATIVE", "") not in ("", "0"):
            return "GORU_NO_NATIVE is set"
        if sys.platform == "win32":
            return "not supported on Windows yet"
        compiler = find_compiler()
        if compiler is None:
            return "no C++ compiler found"
        try:
            machine, here = target_machine(compiler), sysconfig.get_platform().replace("arm64", "aarch64")
            if machine not in here and "universal2" not in here:
                return f"{compiler[0]} compiles for {machine}, this Python runs on {here}"
            compile_library(root, compiler, target)
        except subprocess.CalledProcessError as error:
            lines = (error.stderr or "").strip().splitlines()
            message = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
            return f"{compiler[0]} failed: {message}"
        except OSError as error:
            return f"{compiler[0]} could not be run: {error}"
        return None


if __name__ == "__main__":  # python hatch_build.py: rebuild the library in a development tree
    here = Path(__file__).parent
    found = find_compiler()
    if found is None:
        sys.exit("no C++ compiler found")
    try:
        compile_library(here, found, here / LIBRARY)
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
