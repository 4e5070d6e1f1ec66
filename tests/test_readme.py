"""The README promises nothing that is not there: its example runs, and so does every command in it."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import goru
from tests.shared import REPORT_ON_THE_RECORD, ROOT, report_on_the_record, run

README = (ROOT / "README.md").read_text(encoding="utf-8")

# `make test` is what runs this file; the rest of these take minutes and are run whole by the soak tests below.
LONG = {"make demo", "make bench", "goru reproduce", "goru reproduce --engine ray"}
SELF = {"make test"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    lines = "\n".join(blocks("sh")).splitlines()
    return [command for line in lines if (command := line.split("#", 1)[0].strip())]


def test_the_two_commands_come_first() -> None:
    assert [command for command in commands() if command.startswith("make")][:2] == ["make demo", "make test"]


def test_code_fits_the_width_of_github() -> None:
    code = re.findall(r"^```\w+\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    assert len(code) > 5
    assert [line for block in code for line in block.splitlines() if len(line) > 88] == []


def test_links_and_pictures_are_there() -> None:
    named = re.findall(r"\]\(([^)#]+)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    local = {path for path in named if not path.startswith("https://")}
    assert len(local) > 10
    assert [path for path in sorted(local) if not (ROOT / path).is_file()] == []
    for path in {p for p in named if p.startswith("https://")}:
        assert path.startswith(("https://arxiv.org/abs/1706.02761", "https://docs.pytorch.org/")), path


@pytest.mark.parametrize("name", ["cell", "speed"])
def test_pictures_for_light_and_dark_differ_in_colors_alone(name: str) -> None:
    light, dark = ((ROOT / f"docs/images/{name}-{scheme}.svg").read_text() for scheme in ("light", "dark"))
    assert light != dark
    assert re.sub("#[0-9a-f]{6}", "#", light) == re.sub("#[0-9a-f]{6}", "#", dark)


def test_every_argument_of_goru_is_listed() -> None:
    section = README.partition("## Arguments of `GORU`")[2].partition("\n## ")[0]
    for parameter in inspect.signature(goru.GORU).parameters.values():
        given = "" if parameter.default is parameter.empty else f"={parameter.default!r}".replace("'", '"')
        assert f"`{parameter.name}{given}`" in section


def test_python_examples_run() -> None:
    assert blocks("python")
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("command", [c for c in commands() if c not in LONG | SELF])
def test_command_runs(command: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands that need run directories find a small one where the README says they look."""
    if command == REPORT_ON_THE_RECORD:  # in test_page.py a browser looks at what it wrote
        assert (report_on_the_record(tmp_path_factory) / "said").read_text()
        return
    if command.startswith("pip install"):
        # The environment stays as it is, and so does this checkout's library: pip builds a wheel for its metadata.
        if not (ROOT / ".git").exists():
            pytest.skip("this is no git checkout")
        clone = tmp_path / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        if "dist/" in command:
            made = run("GORU_NO_NATIVE=1 pip wheel --no-deps --no-build-isolation --wheel-dir dist .", clone)
            assert made.returncode == 0, made.stderr
        result = run(f"GORU_NO_NATIVE=1 {command} --dry-run --no-deps --no-build-isolation", clone)
        assert result.returncode == 0, result.stderr
        assert "Would install goru" in result.stdout
        return
    if command.startswith("goru record"):
        shutil.copytree(ROOT / "results" / "speech", tmp_path / "runs" / "speech")
    elif command.startswith(("goru status", "goru report")):
        small = "goru run copying --model goru --steps 2 --delay 3 --test-size 8 --batch 4"
        made = run(small, tmp_path)
        assert made.returncode == 0, made.stderr
    result = run(command, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def test_results_are_those_of_the_record() -> None:
    """Table, verdicts and picture are what `make results` makes of results/, to the byte."""
    from goru.lab.report import markdown, record

    groups = record.full_size(ROOT / "results")
    now = (ROOT / "README.md").read_text(encoding="utf-8")
    assert markdown.in_readme(ROOT / "README.md", groups, ROOT / "results") == now, "run: make results RUNS=results"
    for name, content in markdown.beside_runs(groups).items():
        assert (ROOT / "results" / name).read_bytes() == content, f"{name}: run make results RUNS=results"


def test_the_record_is_small_and_names_no_machine() -> None:
    files = [file for file in (ROOT / "results").rglob("*") if file.is_file()]
    runs = sum(file.name == "result.json" for file in files)
    assert sum(file.stat().st_size for file in files) < 12_500 * runs  # it grows with its seeds; a clone stays quick
    names = {"config.json", "environment.json", "metrics.jsonl", "figure.json", "result.json", "failure.json"} | {
        "manifest.json"
    }
    assert {file.name for file in files} <= names | {"README.md", "overview.svg", "overview-dark.svg"}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert '"host"' not in text
        assert not re.search(r"/(home|root|tmp|Users|work)/", text), file


@pytest.mark.parametrize("command", sorted(LONG))
def test_long_commands_are_spelt_right(command: str) -> None:
    """Cheap half of the soak test: make knows the target, the verb is there."""
    if command.startswith("make"):
        assert run(f"{command} --dry-run", ROOT).returncode == 0
    else:
        assert run(f"{command} --help", ROOT).returncode == 0


@pytest.mark.soak
def test_fresh_clone_with_a_space_in_its_path(tmp_path: Path) -> None:
    """make demo on a new checkout, twice; the second time there is nothing left to do."""
    clone = tmp_path / "a folder with spaces"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    for _ in range(2):
        result = run("make demo", clone, timeout=3600)
        assert result.returncode == 0, result.stdout + result.stderr
    shutil.rmtree(clone)
