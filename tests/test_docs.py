"""The documentation: its examples run, its commands exist, its site builds and needs nothing from elsewhere."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch

from goru.__main__ import main
from goru.lab import cli, paper
from goru.lab.cli.parse import parse
from goru.lab.data import dataset
from goru.lab.errors import LabError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
NOT_RUN = "# not run:"
"""First line of a Python block that cannot be run here, with the reason."""


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(page), flags=re.DOTALL | re.MULTILINE)


def name(page: Path) -> str:
    return page.stem


# ------------------------------------------------------------------------------------------------- examples


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in order, in one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["python"])
    if " " in torch.__file__:  # torch's own C++ compiler calls do not quote their paths
        monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    module = type(sys)(f"docs_{page.stem}")  # dataclasses look their module up
    monkeypatch.setitem(sys.modules, module.__name__, module)
    rng, threads = torch.get_rng_state(), torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # Dynamo and inductor warn about themselves.
            for theirs in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.filterwarnings("ignore", category=theirs, module=r"torch\..*")
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec")  # of torch.onnx
            for block in blocks(page, "python"):
                if not block.startswith(NOT_RUN):
                    line = text(page)[: text(page).index(block)].count("\n")
                    exec(compile("\n" * line + block, str(page), "exec"), module.__dict__)
    finally:
        torch.set_rng_state(rng)
        torch.set_num_threads(threads)


def test_examples_that_do_not_run_are_rare() -> None:
    every = [block for page in PAGES for block in blocks(page, "python")]
    assert len(every) > 20
    assert sum(block.startswith(NOT_RUN) for block in every) <= 2
    for block in every:
        ast.parse(block)


def test_no_other_way_of_writing_python_escapes_the_tests() -> None:
    for page in PAGES:
        languages = set(re.findall(r"^ *(?:```|~~~)([^\n`]+)$", text(page), flags=re.MULTILINE))
        known = {
            "python",
            "sh",
            "text",
            "json",
            "math",
            "{toctree}",
            "{decisions}",
            "{costs}",
            "{claims}",
            "{results}",
            "{image}",
            "{include}",
            "{eval-rst}",
        }
        assert {word.split()[0] for word in languages} <= known, page.name


# ------------------------------------------------------------------------------------------------- commands


def commands(page: Path) -> list[str]:
    """Every line of a shell block, and every `goru ...` or `make ...` in the text."""
    lines = "\n".join(blocks(page, "sh")).splitlines()
    prose = re.sub(r"^```.*?^```", "", text(page), flags=re.DOTALL | re.MULTILINE)
    lines += re.findall(r"`((?:goru|make|python -m goru) [^`]+)`", prose)
    return [command for line in lines if (command := line.split("#", 1)[0].strip())]


EXAMPLES = {"EXPERIMENT": "copying", "MODEL": "goru", "NAME": "babi", "FOLDER": "data"}
"""What stands for the words that a reader replaces."""


def accepted(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command line's own parser take a command, and look its names up, without carrying it out."""
    verb, *rest = argv
    if verb == "doctor" or not rest or "--help" in rest:
        assert verb == "doctor" or verb in cli.VERBS
        return
    command = cli.verb(verb)
    if verb == "run":
        if "--config" in rest:  # of a run that is not here: the options beside it are what can be checked
            assert not [word for word in rest if word.startswith("--") and word != "--config"]
            return
        base, rest = command.base_config(rest)
        options = parse(command.Options, "run", rest, command.Options(base, Path("runs")))
        assert options.config.experiment in paper.EXPERIMENTS
        return
    options = parse(command.Options, verb, rest)
    if verb == "reproduce":
        monkeypatch.setattr("goru.lab.cli.data.missing", lambda configs: {})
        configs, _ = command.chosen_runs(options)
        assert configs
    elif verb in ("show", "bench"):
        for one in [options.experiment] if verb == "show" else options.experiments:
            paper.experiment(one)
    elif verb == "data":
        assert options.action in ("ls", "fetch", "verify", "path")
        for one in options.names:
            dataset(one)


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=name)
def test_commands_exist(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in commands(page):
        words = [EXAMPLES.get(word, word) for word in shlex.split(command.replace(" goru.lab ", " goru "))]
        if "goru" in words:  # python -m goru, torchrun ... -m goru.lab, VARIABLE=value goru
            words = words[words.index("goru") :]
        try:
            if words[0] == "goru":
                accepted(words[1:], monkeypatch)
            elif words[0] == "make":
                made = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True)
                assert made.returncode == 0, made.stderr
            elif words[:2] == ["pip", "install"]:
                assert words[2:4] == ["-c", "constraints.txt"]  # what they install is checked in test_readme
            elif words[0] == "python":
                script = f"{words[2].replace('.', '/')}.py" if words[1] == "-m" else words[1]
                package = ROOT / words[2].replace(".", "/") / "__main__.py" if words[1] == "-m" else ROOT / script
                assert script == "pytest.py" or (ROOT / script).is_file() or package.is_file()
                assert all((ROOT / word).exists() for word in words[3:] if "/" in word)
        except (SystemExit, AssertionError, KeyError, LabError) as error:
            pytest.fail(f"{page.name}: {command}: {error}")


def test_quick_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """In the order of the page: small runs, then what looks at them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GORU_RUNS", raising=False)
    threads = torch.get_num_threads()
    done = []
    lines = [command for page in PAGES for command in commands(page)]
    order = ("ls", "show", "data ls", "data path", "run", "status", "report")
    for start in order:
        for command in dict.fromkeys(lines):
            argv = shlex.split(command)[1:]
            if not command.startswith(f"goru {start}") or set(argv) & {*EXAMPLES, "--help", "--runs"}:
                continue
            if start == "run" and not {"--config", "--steps"} & set(argv):
                continue
            assert main(argv) == 0, f"{command}: {capsys.readouterr().err}"
            done.append(start)
    torch.set_num_threads(threads)
    assert set(done) == set(order)


def test_files_of_the_project_that_are_named_exist() -> None:
    named = {(page, path) for page in PAGES for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|h|cpp))`", text(page))}
    assert len(named) > 20
    places = (ROOT, ROOT / "src", ROOT / "src/goru", ROOT / "src/goru/kernels")
    assert not [(page.name, path) for page, path in named if not any((place / path).is_file() for place in places)]


# ------------------------------------------------------------------------------------------------- what a run leaves


def test_every_file_and_field_of_a_run_is_described(tmp_path: Path) -> None:
    from goru.lab.training import run_directory as runs
    from goru.lab.training.loop import train

    from .lab.small import small

    page = text(DOCS / "reproduce.md")
    for experiment in ("parenthesis", "speech"):
        config = small(experiment, "goru", steps=5)
        train(config, tmp_path)
        folder = config.directory(tmp_path)
        words = {path.name for path in folder.iterdir()}
        for file in ("result.json", "environment.json", "config.json"):
            words |= set(runs.read_json(folder / file) or {})
        words |= {key for line in runs.read_metrics(folder) for key in line if not key.startswith(("test_", "valid_"))}
        words |= set((runs.read_json(folder / "environment.json") or {})["attempts"][0])
        assert len(words) > 40
        assert not [word for word in words if f"`{word}`" not in page]


# ------------------------------------------------------------------------------------------------- the site


@dataclass
class Page(HTMLParser):
    """What a page of the site loads, links to and names."""

    path: Path
    loads: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    scripts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._inside = ""
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        self._inside = tag if tag in ("script", "style") else ""
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a":
            self.links += [given["href"]] if "href" in given else []
            return
        if tag == "link" and given.get("rel") in ("next", "prev", "index", "search"):
            self.links.append(given["href"])
            return
        self.loads += [given[key] for key in ("src", "href", "data", "poster") if key in given and tag != "use"]
        self.loads += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]
        self.scripts += [value for key, value in given.items() if key.startswith("on") or key == "style"]

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts.append(data)


def elsewhere(address: str) -> bool:
    return bool(urlsplit(address).netloc) and urlsplit(address).scheme != "data"


def check_links(pages: dict[Path, Page], site: Path) -> None:
    for page in pages.values():
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "data"):
                continue
            target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            assert target.is_relative_to(site), f"{page.path.name} leaves the site: {link}"
            assert target.is_file(), f"{page.path.name} links to nothing: {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, f"{page.path.name}: no such place: {link}"


def check_nothing_from_elsewhere(pages: dict[Path, Page], site: Path) -> None:
    for page in pages.values():
        assert not [one for one in page.loads if elsewhere(one)], page.path.name
        assert not [one for one in page.scripts if re.search(r"(?:https?:)?//[\w-]+\.\w", one)], page.path.name
    for sheet in site.rglob("*.css"):
        loaded = re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", sheet.read_text(encoding="utf-8"))
        assert not [a or b for a, b in loaded if elsewhere(a or b)], sheet.name
    for script in site.rglob("*.js"):
        source = script.read_text(encoding="utf-8")
        asks = r"(?:fetch|import|importScripts|Worker|src\s*=|href\s*=)\s*\(?['\"](?:https?:)?//[^'\"]+"
        assert not re.findall(asks, source), script.name


def test_the_site_builds_needs_nothing_from_elsewhere_and_has_no_dead_links(tmp_path: Path) -> None:
    recipe = subprocess.run(["make", "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = next(line for line in recipe.splitlines() if " -m sphinx " in line)
    assert "--fail-on-warning" in line
    site = (tmp_path / "site").resolve()
    options = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(tmp_path / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(DOCS), str(site)], capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stderr
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert {page.stem for page in PAGES} <= {path.stem for path in pages}
    check_links(pages, site)
    check_nothing_from_elsewhere(pages, site)
    formulas = (site / "mathematics.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 60
    assert "\\frac" not in formulas
    decided = shown(site / "decisions.html")
    for experiment in paper.EXPERIMENTS:
        for sentence in paper.decisions(experiment):
            assert plain(sentence) in decided, sentence
    results = shown(site / "choosing.html")
    listed = shown(site / "reproduce.html")
    for claim in (claim for one in paper.EXPERIMENTS.values() for claim in one.claims):
        assert f"{claim.name} {plain(claim.text)}" in results
        assert plain(claim.text) in listed


def plain(sentence: str) -> str:
    """A sentence without the signs that Markdown takes away or typography turns into others."""
    return re.sub(r"[\W_]+", " ", sentence).strip()


def shown(path: Path) -> str:
    return plain(unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))))


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """The strictness that the test above leans on; without conf.py, which takes its time to import torch."""
    (tmp_path / "index.md").write_text("# Page\n\n[nowhere](missing.md)\n")
    options = ["-b", "dummy", "-C", "-D", "extensions=myst_parser", "--fail-on-warning", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *options, str(tmp_path), str(tmp_path / "site")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert built.returncode != 0
    assert "missing.md" in built.stderr
