"""The library's tests on other versions of torch: python tests/compat.py 2.6.0 2.15.0

Each version gets an environment of its own in the user's cache folder, about 5 GB with torch's CUDA packages, for the
next time too. One wheel of goru is built for all of them and installed without its dependencies. Prints a line for
each version, with the numbers of tests; the exit code is 0 if none failed on any of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
# The interpreter of Triton 3.5 makes numbers of arrays in a way that newer versions of NumPy refuse.
PACKAGES = ["expecttest", "hypothesis", "numpy<2.4", "pytest", "pytest-xdist", "setuptools"]
PACKAGES += ["onnx", "onnx-ir", "onnxruntime", "onnxscript"]
# What needs more than the library (the laboratory, the documentation, the build, the benchmarks), and what
# compiles its C++ alone and says nothing of torch.
LEFT_OUT = ["lab", "test_benchmarks.py", "test_build.py", "test_docs.py", "test_readme.py"]
LEFT_OUT += ["kernels/test_portable.py", "kernels/test_sanitizers.py"]


def environment(version: str) -> Path:
    """The Python of an environment with this torch."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "goru" / "compat" / f"torch-{version}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    complete = folder / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    wanted = " ".join([f"torch=={version}", *PACKAGES])
    if not complete.exists() or complete.read_text() != wanted:
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *wanted.split()], check=True)
        complete.write_text(wanted)
    return python


def build(folder: str) -> str:
    """A wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(ROOT)]
    subprocess.run(command, check=True)
    return str(next(Path(folder).glob("goru-*.whl")))


def outcome(version: str, wheel: str, folder: str) -> Counter[str]:
    """How many tests passed, failed and were skipped on this torch; an error is a failure."""
    python = str(environment(version))
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel]
    subprocess.run(install, check=True)
    left_out = [f"--ignore=tests/{name}" for name in LEFT_OUT]
    report = Path(folder) / f"{version}.xml"
    # Warnings of other versions of torch about themselves are no faults of ours.
    options = ["-n", "auto", "-m", "not soak", "-W", "default", f"--junit-xml={report}", *left_out]
    done = subprocess.run([python, "-m", "pytest", *options, "tests"], cwd=ROOT)
    counts: Counter[str] = Counter(failed=0)
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            counts["failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"] += 1
    counts["failed"] += done.returncode != 0 and not counts["failed"]  # stopped, or no test was found
    return counts


def main(versions: list[str]) -> int:
    if not versions:
        print("usage: python tests/compat.py VERSION ...", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(folder)
        outcomes = {version: outcome(version, wheel, folder) for version in versions}
    for version, counts in outcomes.items():
        numbers = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
        print(f"torch {version}, Python {sys.version.split()[0]}: {numbers}")
    return 1 if any(counts["failed"] for counts in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
