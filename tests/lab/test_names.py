"""Under which name a run is kept: one name, one setting; and what has no effect is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from goru.lab import paper
from goru.lab.cli import main
from goru.lab.cli import run as run_command
from goru.lab.errors import LabError, UsageError
from goru.lab.training import run_directory as runs
from goru.lab.training.config import RunConfig, as_on, check_used, override
from goru.lab.training.loop import train
from goru.lab.training.run_directory import read_config
from tests.lab.small import small

FEW = ("--steps=2", "--batch=2", "--hidden-size=4", "--delay=12", "--test-size=8", "--eval-every=2")
NAME = "steps2+batch2+eval-every2+hidden-size4+delay12+test-size8"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GORU_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, model: str = "gru") -> int:
    return main(["run", "denoise", "--model", model, *FEW, *arguments])


def found() -> dict[str, RunConfig]:
    configs = map(read_config, runs.find(Path("runs")))
    return {str(config.directory(Path())): config for config in configs if config is not None}


def test_a_listed_setting_comes_with_its_name() -> None:
    for variant in ("lr0.001", "paper", "recall-loss-on"):
        assert run("--variant", variant) == 0
    configs = {config.variant: config for config in found().values()}
    assert set(configs) == {f"lr0.001+{NAME}", NAME, f"recall-loss-on+{NAME}"}
    assert configs[f"lr0.001+{NAME}"].optimizer.lr == 0.001
    assert configs[NAME].optimizer.lr == 0.01
    assert configs[f"recall-loss-on+{NAME}"].task.loss_on == "recall"  # type: ignore[attr-defined]


def test_other_settings_cannot_take_a_listed_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    file = f"runs/denoise/{NAME}/gru/seed0/config.json"
    assert main(["run", "--config", file, "--variant", "lr0.001"]) == 2
    said = capsys.readouterr().err
    assert "lr0.001 names other settings of denoise (steps 2 there, 10000 here" in said
    assert said.endswith("choose another --variant.\n")
    # Nor can a file that calls itself so.
    Path("mine.json").write_text(Path(file).read_text().replace(NAME, "paper"))
    assert main(["run", "--config", "mine.json"]) == 2
    assert "paper names other settings of denoise" in capsys.readouterr().err
    assert main(["run", "--config", "mine.json", "--variant", "mine"]) == 0
    assert run("--variant", "quick-mine") == 2
    assert "names that begin with quick- are reserved for that kind of run" in capsys.readouterr().err
    assert run("--variant", "mine", "--variant", "yours") == 2
    assert "--variant is given twice" in capsys.readouterr().err
    assert {config.variant for config in found().values()} == {NAME, "mine"}


def test_a_run_from_its_own_file_is_the_same_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a name of one's own stands for the paper's settings."""
    trained: list[RunConfig] = []

    def remember(config: RunConfig, *_: object, **__: object) -> dict[str, object]:
        trained.append(config)
        return {"final": {}, "baseline": 1.0}

    monkeypatch.setattr("goru.lab.training.loop.train", remember)
    assert main(["run", "denoise", "--model", "gru", "--variant", "mine"]) == 0
    (first,) = trained
    assert first.variant == "mine"
    Path("mine.json").write_text(first.to_json())
    assert main(["run", "--config", "mine.json"]) == 0
    assert main(["run", "--config", "mine.json", "--seed", "1"]) == 0
    assert main(["run", "--config", "mine.json", "--lr", "0.1"]) == 0
    assert [config.variant for config in trained] == ["mine", "mine", "mine", "mine+lr0.1"]
    assert trained[1] == first
    # Threads do not make another setting: a file of `goru reproduce --threads 2` is the paper's.
    Path("two.json").write_text(override(paper.experiment("denoise").config("gru"), {"threads": 2}).to_json())
    assert main(["run", "--config", "two.json"]) == 0
    assert (trained[-1].variant, trained[-1].threads) == ("paper", 2)
    assert main(["run", "denoise", "--quick", "--variant", "quick"]) == 0
    assert trained[-1].variant == "quick"


def test_one_name_one_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--variant", "mine") == 0
    assert run("--variant", "mine", "--seed", "1", "--lr", "0.5") == 2
    assert (
        "runs/denoise/mine/gru/seed0 has other settings (optimizer.lr 0.01 there, 0.5 here)" in capsys.readouterr().err
    )
    assert run("--variant", "mine", "--delay", "20", model="lstm") == 2
    assert "(task.delay 12 there, 20 here): choose another --variant." in capsys.readouterr().err
    assert run("--variant", "mine", "--seed", "1", "--threads", "2") == 0
    assert run("--variant", "mine", "--hidden-size", "6", model="lstm") == 0  # models have sizes of their own
    assert run("--variant", "mine", "--hidden-size", "6", "--seed", "2") == 2
    assert len(found()) == 3


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("goru", ["--complex"], "--complex has no effect on GORU"),
        ("gru", ["--no-reset-gate"], "--reset-gate has no effect on GRU"),
        ("gru", ["--mesh", "tunable"], "--mesh has no effect on GRU"),
        ("gru", ["--mesh", "fft"], "--mesh has no effect on GRU"),
        ("gru", ["--reset_gate"], "--reset-gate has no effect on GRU"),
        ("lstm", ["--backend=auto"], "--backend has no effect on LSTM"),
        ("lstm", ["--backend", "native"], "--backend has no effect on LSTM"),
        ("eurnn-real", ["--init", "june2017"], "--init june2017 is an initialization of GORU, not of EURNN"),
        ("eurnn-real", ["--no-orthogonal"], "--orthogonal has no effect on EURNN"),
        ("gru", ["--init", "epsilon"], "--init epsilon is an initialization of EURNN, not of GRU"),
        ("goru", ["--no-modrelu", "--no-reset-gate"], "goru: these settings do not fit together: no-orthogonal and"),
        ("gru", ["--init", "june2017"], "--init june2017 is an initialization of GORU, not of GRU"),
        ("goru", ["--init", "torch"], "torch"),
        ("gru", ["--rule", "adam", "--decay", "0.5"], "--decay has no effect on adam"),
        ("gru", ["--epochs", "3"], "--epochs has no effect with 2 steps: add --steps 0."),
        ("gru", ["--patience", "2"], "--patience has no effect without a validation set"),
        (
            "goru-june2017",
            ["--mesh", "fft"],
            "goru: --capacity needs --mesh tunable; the fft mesh always has ceil(log2 H) ",
        ),
        (
            "goru",
            ["--mesh", "tunable", "--capacity", "9"],
            "goru: --capacity should be from 1 to 4, the number of units",
        ),
        ("eurnn-real", ["--capacity", "0"], "goru: --capacity should be from 1 to 4, the number of units; got 0."),
        ("gru", ["--hidden-size", "0"], "goru: --hidden-size should be at least 1; got 0."),
        ("goru", ["--memory", "0"], "goru: --memory should be at least 1; got 0."),
        ("gru", ["--memory", "5"], "goru: these settings do not fit together: a GRU or LSTM needs init chrono"),
        ("gru", ["--rule", "adam", "--lr", "-1"], "lr should be a number of at least 0"),
        ("gru", ["--lr", "nan"], "lr should be a number of at least 0"),
        ("gru", ["--decay", "2"], "decay from 0 to below 1"),
        ("gru", ["--patience", "-1"], "patience should be at least 0, got -1"),
        ("gru", ["--seed", "99999999999999999999"], "seed should be below 2^63"),
        ("gru", ["--device", "cuda:7"], "--device cuda:7 cannot be used here"),
    ],
)
def test_settings_without_effect_or_sense(
    model: str, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options, model=model) in (1, 2)
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_same_options_give_the_same_name() -> None:
    """A memory that follows the task is no change of settings; one that was given is."""
    few = [word.replace("=12", "=10") for word in FEW]

    def chosen(*more: str, model: str = "goru-memory") -> RunConfig:
        return run_command.chosen(["denoise", "--quick", "--model", model, *few, *more])[1]

    memory = paper.experiment("denoise").memory
    assert memory is not None
    following = chosen()
    assert following.layer.memory == memory(following.task, following.layer)
    names = {chosen(model=model).variant for model in ("gru", "goru", "goru-memory", "gru-chrono")}
    assert names == {following.variant}
    assert "memory" not in following.variant
    other, at_base = chosen("--memory", "7"), paper.experiment("denoise").config("goru-memory", "quick").layer.memory
    assert other.layer.memory == 7
    assert "+memory7+" in other.variant
    # That of the small version too, though this is where the options begin.
    kept = chosen("--memory", str(at_base))
    assert kept.layer.memory == at_base != following.layer.memory
    assert f"+memory{at_base}+" in kept.variant


def test_a_file_with_its_own_memory_keeps_it() -> None:
    config = override(small("denoise", "goru-memory"), {"layer.memory": 7, "variant": "mine"})
    Path("mine.json").write_text(config.to_json())
    _, longer = run_command.chosen(["--config", "mine.json", "--delay", "20"])
    assert (longer.variant, longer.layer.memory) == ("mine+delay20", 7)
    one = paper.experiment("denoise")
    Path("theirs.json").write_text(override(one.with_memory(config), {"variant": "theirs"}).to_json())
    _, longer = run_command.chosen(["--config", "theirs.json", "--delay", "20"])
    assert longer == one.with_memory(longer)
    assert longer.variant == "theirs+delay20"


def test_names_of_the_record() -> None:
    """Every recorded run has the name that its settings would get today."""
    results = Path(__file__).resolve().parent.parent.parent / "results"
    for directory in runs.find(results):
        config = read_config(directory)
        assert config is not None
        assert directory == config.directory(results)
        one = paper.experiment(config.experiment)
        if config.model in one.models and one.has(config.variant):
            assert one.name_for(as_on(config, one.base), one.config(config.model, seed=config.seed)) == config.variant


def test_numbers_of_generated_data_have_no_effect_on_files() -> None:
    for name, field in (("babi", "questions"), ("shortest_path", "graphs"), ("penn_treebank", "characters")):
        base = paper.experiment(name).config("gru")
        changed = override(base, {f"task.{field}": 1000 if field == "characters" else 500})
        with pytest.raises(LabError, match=f"--{field} has no effect on data from files"):
            check_used(changed, base)
        check_used(override(changed, {"task.data": "generated"}), base)


def test_a_refused_command_leaves_the_run_alone(tmp_path: Path) -> None:
    config = small("copying", "gru", steps=20)
    with pytest.raises(LabError, match="stopped"):
        train(config, tmp_path, stop=lambda: True)
    directory = config.directory(tmp_path)
    (directory / "failure.json").write_text(json.dumps({"message": "the loss became nan"}))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(LabError, match="holds another configuration"):
        train(override(config, {"threads": 2}), tmp_path)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before


def test_a_start_that_failed_does_not_keep_its_place(tmp_path: Path) -> None:
    config = small("copying", "gru", steps=5)
    with pytest.raises(LabError, match="cuda:7 cannot be used here"):
        train(override(config, {"device": "cuda:7"}), tmp_path)
    assert train(config, tmp_path)["step"] == 5
    assert read_config(config.directory(tmp_path)) == config
    assert not (config.directory(tmp_path) / "failure.json").exists()


def test_names_of_whole_experiments_in_a_grid() -> None:
    whole = paper.grid(["shortest_path"], models=["goru"])
    assert [config.variant for config in whole] == [f"fold{k:02}" for k in range(1, 11)]
    assert paper.grid(["shortest_path"], models=["goru"], variants=["paper"]) == whole
    assert (
        paper.grid(["shortest_path", "shortest_path"], models=["goru", "goru"], variants=["paper", "fold03"]) == whole
    )
    small_ones = paper.grid(["babi", "copying"], quick=True)
    assert paper.grid(["babi", "copying"], quick=True, variants=["quick"]) == small_ones
    with pytest.raises(UsageError, match="timit has its own data"):
        paper.grid(["speech"], variants=["timit"], generated=True)
