"""docs/adding_an_experiment.md is one file that adds an experiment: from `goru ls` through runs to the page."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pytest

import goru.lab
from goru.lab import paper
from goru.lab.paper.registry import Registry
from goru.lab.training import run_directory as runs
from goru.lab.training.config import from_json
from tests.lab.small import goru as command

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding_an_experiment.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_from_ls_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "parity.py").write_text("\n".join(blocks("python")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GORU_RUNS", raising=False)
    (commands,) = blocks("text")
    first, *lines = commands.splitlines()
    variable, _, value = first.removeprefix("export ").partition("=")
    monkeypatch.setenv(variable, value)
    shown = {}
    for line in lines:
        name, *words = shlex.split(line)
        assert name == "goru"
        done = command(*words)
        assert (done.returncode, done.stderr) == (0, ""), line
        shown[words[0]] = done.stdout
    assert set(shown) == {"ls", "show", "reproduce", "run", "report"}
    assert re.search(r"^parity +goru, gru +paper +2000 steps", shown["ls"], flags=re.MULTILINE)
    assert shown["ls"].splitlines()[-3].startswith("parity")  # after the paper's
    assert "After every bit, output whether" in shown["show"]
    assert "task.length = 100" in shown["show"]
    assert {str(path.relative_to("runs")) for path in runs.find(Path("runs"))} == {
        "parity/quick/goru/seed0",
        "parity/quick/gru/seed0",
        "parity/steps40+length20/gru/seed0",
    }
    page = Path("runs/report/index.html").read_text()
    for text in ("Parity", "length 10 (quick)", 'id="figure-parity-quick"', 'id="figure-parity-quick-accuracy"'):
        assert text in page
    assert "skipped" not in shown["report"].lower()
    assert "The paper</span>" not in page  # beyond the paper
    assert (tmp_path / "runs/report/parity-quick-accuracy.png").stat().st_size > 3000
    table = (tmp_path / "runs/report/parity-quick.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in table] == ["model", "GORU", "GRU"]
    # Without the file, its runs are left out with a sentence.
    monkeypatch.delenv(variable)
    done = command("report")
    assert done.returncode == 1
    assert 'there is no experiment "parity"' in done.stderr


def test_full_size_runs_have_a_cost_and_a_line_in_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an experiment that nobody measured: by the time that its runs took."""
    source = (
        "\n".join(blocks("python")).replace("length: int = 100", "length: int = 5").replace("steps=2000", "steps=20")
    )
    (tmp_path / "parity.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GORU_EXPERIMENTS", str(tmp_path / "parity.py"))
    assert command("reproduce", "parity", "--jobs", "1").returncode == 0
    cost = (tmp_path / "runs/report/cost.csv").read_text()
    assert "\nParity,2 of 2," in cost
    recorded = command("record", "--runs", "runs", "--out", "results")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    assert re.search(r"^\| Parity \| test loss, % of the baseline \| [\d.]+ \| [\d.]+ \|$", _readme(), re.MULTILINE)
    assert "C1" in _readme()  # the claims of the paper are not decided by it


def _readme() -> str:
    return Path("results/README.md").read_text()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (None, "does not exist"),
        ("", "should define EXPERIMENT"),
        ("EXPERIMENT = 3", "should define EXPERIMENT"),
        ("import nothing_of_this_name", "cannot run"),
        ("open('gone')", "cannot run"),
        ("from goru.lab.paper.copying import EXPERIMENT", "the experiment copying exists; choose another name"),
    ],
)
def test_files_that_add_nothing(source: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    if source is not None:
        file.write_text(source)
    monkeypatch.setenv("GORU_EXPERIMENTS", str(file))
    done = command("ls")
    assert done.returncode == 1
    assert done.stderr.startswith("goru: ")
    assert said in done.stderr
    assert str(file) in done.stderr
    assert len(done.stderr.splitlines()) == 1


SHARED = """
from dataclasses import replace
from goru.lab.paper.copying import EXPERIMENT as copying

EXPERIMENT = replace(
    copying,
    name="short_copying",
    paper=None,
    claims=(),
    base=replace(copying.base, experiment="short_copying", task=replace(copying.base.task, delay=20)),
)
"""


def test_two_experiments_can_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short.py").write_text(SHARED)
    monkeypatch.setenv("GORU_EXPERIMENTS", str(tmp_path / "short.py"))
    monkeypatch.setattr(paper, "EXPERIMENTS", Registry())
    assert list(paper.EXPERIMENTS)[-1] == "short_copying"
    config = paper.experiment("short_copying").config("gru")
    again = from_json(config.to_json(), "here")
    assert again == config
    assert type(again.task) is type(paper.experiment("copying").base.task)
    assert config.directory(Path()) == Path("short_copying/paper/gru/seed0")


def test_experiments_are_found_in_the_papers_order() -> None:
    assert list(paper.EXPERIMENTS) == [
        "copying",
        "denoise",
        "parenthesis",
        "shortest_path",
        "babi",
        "penn_treebank",
        "speech",
        "lengths",
        "adding",
        "psmnist",
        "starts",
        "meshes",
        "memories",
        "shortest_path_fed",
        "shortest_path_padded",
        "babi_dropout",
        "babi_sequence",
    ]
    of_the_paper = [one for one in paper.EXPERIMENTS.values() if one.paper]
    assert [claim.name for one in of_the_paper for claim in one.claims] == [f"C{k}" for k in range(1, 12)]
    for one in paper.EXPERIMENTS.values():
        assert one.base.experiment == one.name
        assert json.loads(one.config(next(iter(one.models))).to_json())["experiment"] == one.name


def test_nothing_else_names_an_experiment() -> None:
    """Report, command line, training and engines speak of experiments in general."""
    of_the_paper = [name for name, one in paper.EXPERIMENTS.items() if one.paper]  # others are called by common words
    names = re.compile(rf"\b({'|'.join(of_the_paper)})\b", flags=re.IGNORECASE)
    lab = Path(next(iter(goru.lab.__path__)))
    for folder in ("report", "cli", "training", "engines"):
        for file in (lab / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                    assert not names.search(node.value), f"{file.name}: {node.value!r}"
                elif isinstance(node, ast.Name):
                    assert not names.search(node.id), f"{file.name}: {node.id}"
                elif isinstance(node, ast.alias):
                    assert not names.search(node.name), f"{file.name}: {node.name}"
    assert not names.search((lab / "report" / "page.html.j2").read_text())
