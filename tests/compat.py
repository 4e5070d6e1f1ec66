"""The library's tests on other versions of torch: python tests/compat.py 2.6.0 2.15.0

Each version gets an environment of its own in the user's cache folder, about 5 GB with torch's CUDA packages, for the
next time too. goru is built and installed anew each time, without its dependencies. Prints a line for each
version; the exit code is 0 if the tests passed on all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ["hypothesis", "numpy", "pytest", "pytest-xdist", "setuptools"]
# What needs more than the library: the laboratory, the documentation, the build, the benchmarks, ONNX.
LEFT_OUT = ["lab", "test_benchmarks.py", "test_build.py", "test_docs.py", "test_onnx.py", "test_readme.py"]


def environment(version: str) -> Path:
    """The Python of an environment with this torch."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "goru" / "compat" / f"torch-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        subprocess.run([*install, f"torch=={version}", *PACKAGES], check=True)
        (folder / "complete").touch()
    return python


def passes(version: str) -> bool:
    python = str(environment(version))
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(ROOT)]
    subprocess.run(install, check=True)
    left_out = [f"--ignore=tests/{name}" for name in LEFT_OUT]
    # Warnings of other versions of torch about themselves are no faults of ours.
    tests = [python, "-m", "pytest", "-n", "auto", "-m", "not soak", "-W", "default", *left_out, "tests"]
    return subprocess.run(tests, cwd=ROOT).returncode == 0


def main(versions: list[str]) -> int:
    if not versions:
        print("usage: python tests/compat.py VERSION ...", file=sys.stderr)
        return 2
    passed = {version: passes(version) for version in versions}
    for version, good in passed.items():
        print(f"torch {version}, Python {sys.version.split()[0]}: {'passed' if good else 'FAILED'}")
    return 0 if all(passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
