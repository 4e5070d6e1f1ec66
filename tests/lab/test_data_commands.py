"""`goru data`, and experiments whose data are missing or generated, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.cli import data as data_commands
from goru.lab.cli import main
from goru.lab.data import store
from goru.lab.data.catalogue import DATASETS
from goru.lab.training.config import override
from tests.lab.real_data import needs


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data."""
    monkeypatch.setenv("GORU_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(list(argv))
    output = capsys.readouterr()
    return code, output.out, output.err


def test_ls(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "data", "ls")
    assert code == 0
    for name in ("shortest_path", "babi", "ptb", "speech_so762_8k", "timit"):
        assert name in out
    assert "goru data fetch babi" in out
    assert "LDC93S1" in out


def test_path(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "data", "path")
    assert code == 0
    assert out.split() == [str(nothing / "data"), str(nothing / "cache" / "goru" / "data")]
    code, out, _ = said(capsys, "data", "path", "--data-dir", str(nothing / "mine"))
    assert out.split()[0] == str(nothing / "mine")
    code, _, err = said(capsys, "data", "path", "babi")
    assert code == 1
    assert "goru data fetch babi" in err


def test_verify(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "data", "verify")
    assert code == 1
    assert out.count("missing") == len(DATASETS)
    assert err == "goru: none of the data sets is on this machine, so nothing was verified.\n"
    code, _, err = said(capsys, "data", "verify", "ptb")
    assert code == 1
    assert err.count("\n") == 1
    (nothing / "data" / "ptb").mkdir(parents=True)
    (nothing / "data" / "ptb" / "ptb.char.test.txt").write_text("a b \n ")
    code, out, err = said(capsys, "data", "verify")
    assert code == 1
    assert "damaged  ptb" in out


@needs("ptb", "shortest_path", "babi")
def test_verify_real(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "data", "verify", "ptb", "shortest_path", "babi")
    assert code == 0
    assert out.count("good") == 3


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("data",), "ls|fetch|verify|path"),
        (("data", "lst"), 'did you mean "ls"?'),
        (("data", "fetch"), "name a data set: shortest_path"),
        (("data", "fetch", "pbt"), 'did you mean "ptb"?'),
        (("data", "fetch", "timit"), "timit cannot be downloaded (LDC93S1"),
        (("reproduce", "babi", "--tasks", "1,x"), "--tasks should be numbers"),
        (("reproduce", "babi", "--tasks", "99"), "babi has tasks 1 to 20, not 99"),
        (
            ("reproduce", "speech", "--tasks", "1"),
            "--tasks goes only with babi, babi_dropout and babi_sequence, without --variants",
        ),
        (("reproduce", "babi", "--tasks", "2", "--quick"), "the small world has tasks"),
    ],
)
def test_mistakes(nothing: Path, argv: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, *argv)
    assert code != 0
    assert sentence in out + err


@pytest.mark.parametrize("experiment", ["shortest_path", "babi", "penn_treebank", "speech"])
def test_missing_data_are_one_sentence(nothing: Path, experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For an experiment asked for by name: what is missing, the command that mends it; nothing is written."""
    for verb in ("reproduce", "run", "bench"):
        code, _, err = said(capsys, verb, experiment)
        assert code == 1
        assert err.count("\n") == 1
        assert "is not on this machine: run `goru data fetch" in err
        assert list(nothing.iterdir()) == []


def test_each_data_set_is_looked_at_once(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(store, "check_quickly", lambda one: looked.append(one.name))
    configs = paper.grid(seeds=2) + paper.grid(["speech"], variants=["timit"])
    assert data_commands.missing(configs) == {}
    assert sorted(looked) == ["babi", "ptb", "shortest_path", "speech_so762_8k", "timit"]


@pytest.mark.parametrize(
    "argv", [("run", "speech", "--data", "timit"), ("reproduce", "speech", "--variants", "timit")], ids=" ".join
)
def test_the_commands_for_timit(nothing: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the documentation."""
    page = Path(__file__).parents[2] / "docs" / "data.md"
    assert f"`goru {' '.join(argv)}`" in page.read_text()
    code, _, err = said(capsys, *argv)
    assert code == 1
    assert "the data set timit is not on this machine: bring your own copy" in err


def test_damaged_data_are_one_sentence(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = nothing / "data" / "babi"
    folder.mkdir(parents=True)
    (folder / "tasks_1-20_v1-2_en.tar.gz").write_bytes(b"not an archive")
    for command in (("reproduce", "babi"), ("run", "babi"), ("data", "verify", "babi")):
        code, _, err = said(capsys, *command)
        assert code == 1
        assert err.count("\n") == 1
        assert "is damaged" in err
        assert "run `goru data fetch babi` for a good copy." in err
    assert not (nothing / "runs").exists()


def test_the_remedy_mends_the_folder_that_was_named(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = nothing / "my data"
    (named / "babi").mkdir(parents=True)
    (named / "babi" / "tasks_1-20_v1-2_en.tar.gz").write_bytes(b"not an archive")
    for command in (("reproduce", "babi"), ("data", "verify", "babi")):
        code, _, err = said(capsys, *command, "--data-dir", str(named))
        assert code == 1
        assert f"run `goru data fetch babi --data-dir '{named}'` for a good copy." in err


def test_without_names_what_is_missing_is_left_out(
    nothing: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    babi, copying = paper.EXPERIMENTS["babi"], paper.EXPERIMENTS["copying"].config("goru", "quick")
    tiny = override(
        copying, {"variant": "tiny", "steps": 2, "task.delay": 3, "task.test_size": 4, "layer.hidden_size": 4}
    )
    monkeypatch.setattr(paper, "grid", lambda *_, **__: [babi.config("goru", "task01"), tiny])
    code, out, _ = said(capsys, "reproduce", "--jobs", "1")
    assert code == 0
    assert out.count("skipped: babi: the data set babi is not on this machine") == 2  # before and after
    assert (nothing / "runs" / "copying").is_dir()
    assert not (nothing / "runs" / "babi").exists()


def test_generated_data_need_no_files(nothing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--epochs", "1", "--hidden-size", "8", "--characters", "2000", "--length", "5", "--batch", "4")
    code, out, err = said(capsys, "run", "penn_treebank", "--data", "generated", *small)
    assert code == 0, err
    assert "test_bpc" in out


def test_the_grids() -> None:
    """Which runs there are: folds and tasks by their names, generated data under theirs."""
    names = [(c.experiment, c.variant) for c in paper.grid(["shortest_path", "babi"], models=["goru"])]
    assert names[:10] == [("shortest_path", f"fold{k:02}") for k in range(1, 11)]
    assert names[10:] == [("babi", f"task{k:02}") for k in range(1, 21)]
    quick = paper.grid(quick=True, models=["goru"])
    assert all(c.task.data_set is None for c in quick)
    generated = paper.grid(generated=True, models=["goru"])
    assert all(c.task.data_set is None for c in generated)
    assert "generated-task17" in {c.variant for c in generated}
    assert len({c.directory(Path()) for c in paper.grid() + quick + paper.grid(generated=True)}) == len(
        paper.grid() + quick + paper.grid(generated=True)
    ) - len([c for c in paper.grid(generated=True) if c.variant in ("paper", "lr0.001")])


def test_a_run_of_a_part_gets_its_name() -> None:
    babi = paper.experiment("babi")
    config = override(babi.config("gru"), {"task.number": 5})
    assert config.variant == "task01"
    assert babi.variant_of(config) == "task05"
    assert babi.variant_of(override(config, {"batch": 7})) is None
    # Changed in other ways too, it is still that part; what is not known stays under its own name.
    changed = override(config, {"optimizer.lr": 0.01})
    assert babi.name_for(changed, babi.config("gru")) == "task05+lr0.01"
    assert babi.name_for(config, babi.config("gru")) == "task05"
    mine = override(changed, {"variant": "mine"})
    assert babi.name_for(mine, mine) == "mine"
    assert babi.name_for(override(mine, {"task.number": 6}), mine) == "mine+number6"
    small = babi.config("gru", "quick")
    assert babi.name_for(override(small, {"task.number": 17, "epochs": 2}), small) == "quick-task17+epochs2"
    quick = override(babi.config("gru", "quick"), {"task.number": 17})
    assert babi.variant_of(quick) == "quick-task17"
    assert paper.experiment("speech").variant_of(paper.experiment("speech").config("lstm", "timit")) == "timit"
