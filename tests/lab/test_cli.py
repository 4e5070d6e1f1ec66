"""The commands, their help, and what they say about mistakes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goru.kernels import backends
from goru.lab import paper
from goru.lab.cli import VERBS, main
from goru.lab.errors import RunBusyError
from goru.lab.paper import definition
from goru.lab.training import run_directory as runs
from goru.lab.training import signals
from goru.lab.training.config import override
from goru.lab.training.loop import train
from goru.lab.training.run_directory import hold, read_config
from tests.lab.small import goru, outcome, save, small

TINY = [
    "--delay",
    "6",
    "--recall",
    "2",
    "--test-size",
    "8",
    "--steps",
    "6",
    "--batch",
    "2",
    "--hidden-size",
    "4",
]


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.delenv("GORU_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)


def test_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["--help"], ["help"]):
        assert main(argv) == 0
        text = capsys.readouterr().out
        for verb in VERBS:
            assert f"goru {verb}" in text


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_of_every_command(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: goru {verb}")
    assert "tests" not in text


def test_help_of_an_experiment_lists_its_own_options(capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "parenthesis", "--help"])
    text = capsys.readouterr().out
    for option in ("--kinds", "--lr", "--hidden-size", "--seed", "--runs", "--checkpoint-seconds"):
        assert option in text
    assert "--placement" not in text
    assert "(default: 5000)" in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["runn"], 'there is no command "runn"; did you mean "run"?'),
        (["show", "copyin"], 'there is no experiment "copyin"; did you mean "copying"?'),
        (["run", "denoize"], 'there is no experiment "denoize"; did you mean "denoise"?'),
        (["run", "copying", "--model", "goro"], 'there is no model of copying "goro"; did you mean "goru"?'),
        (["run", "nope"], 'there is no experiment "nope"; there are: copying, denoise, '),
        (["run"], "name an experiment: "),
        (["reproduce", "parentheses"], 'did you mean "parenthesis"?'),
        (["bench", "copyng"], 'did you mean "copying"?'),
        (["bench", "copying", "--steps", "0"], "--steps and --threads should be at least 1"),
        (["bench", "copying", "--out", "nowhere/b.json"], "its folder does not exist"),
        (["reproduce", "--seeds", "0"], "--seeds should be between 1 and 10000, got 0"),
        (["run", "--config", "c.json", "--model", "gru"], "--config names a complete configuration"),
    ],
)
def test_mistakes(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    output = capsys.readouterr()
    (line,) = (output.err + output.out).splitlines()
    assert line.startswith("goru: ")
    assert said in line


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("run copying --sed 3", "there is no option --sed; did you mean --seed?"),
        ("run copying --sed=3", "there is no option --sed; did you mean --seed?"),
        ("run copying --no-rest-gate", "there is no option --no-rest-gate; did you mean --no-reset-gate?"),
        ("run copying --qick", "there is no option --qick; did you mean --quick?"),
        ("run copying --foo 3", "there is no option --foo; see goru run copying --help."),
        ("run copying extra", 'unexpected argument "extra"; see goru run copying --help.'),
        ("run copying --seed 1 -5", 'unexpected argument "-5"; see goru run copying --help.'),
        ("run copying --placement nowhere", '--placement should be one of start, random; got "nowhere".'),
        ("run copying --mesh foo", '--mesh should be one of fft, tunable; got "foo".'),
        ("run copying --backend foo", '--backend should be one of auto, reference, manual, native, triton; got "foo".'),
        ("run copying --steps abc", '--steps should be a whole number; got "abc".'),
        ("run copying --steps=1.5", '--steps should be a whole number; got "1.5".'),
        ("run copying --lr abc", '--lr should be a number; got "abc".'),
        ("run copying --capacity abc", '--capacity should be a whole number or None; got "abc".'),
        ("run copying --log_every abc", '--log-every should be a whole number; got "abc".'),
        ("run copying --steps", "--steps needs a value; see goru run copying --help."),
        ("run copying --delay -5", "--delay should be at least 1; got -5."),
        ("run copying --delay 6 --test-size=0", "--test-size should be at least 1; got 0."),
        ("run parenthesis --noise -1", "--noise should be at least 0; got -1."),
        ("run adding --length 1", "--length should be at least 2; got 1."),
        ("run babi --number 21", "--number should be from 1 to 20; got 21."),
        ("run babi --questions 9", "--questions should be at least 10; got 9."),
        ("run babi --data generated --number 3", "the small world has tasks (1, 5, 6, 17), not 3."),
        ("run shortest_path --fold 0", "--fold should be from 1 to 10; got 0."),
        ("run penn_treebank --characters 10", "--characters should be at least 1000; got 10."),
        ("run speech --utterances 0", "--utterances should be at least 10; got 0."),
        ("reproduce --qick", "there is no option --qick; did you mean --quick?"),
        ("reproduce --engine foo", '--engine should be one of local, ray; got "foo".'),
        ("status --run x", "there is no option --run; did you mean --runs?"),
        ("report --out", "--out needs a value; see goru report --help."),
        ("bench --steps abc", '--steps should be a whole number; got "abc".'),
        ("ls copying", 'unexpected argument "copying"; see goru ls --help.'),
        ("show", "EXPERIMENT is missing; see goru show --help."),
        ("data", "ls|fetch|verify|path is missing; see goru data --help."),
    ],
)
def test_mistakes_in_options_are_one_sentence(argv: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv.split()) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"goru: {said}\n")


def test_another_tyro_prints_its_own_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may lack the hook, or describe a mistake in another way: the command is refused all the same."""
    from tyro import _errors

    with monkeypatch.context() as patch:
        patch.delattr(_errors, "on_parse_error")
        assert main(["run", "copying", "--foo", "3"]) == 2
    assert "Unrecognized options: --foo, 3" in capsys.readouterr().err
    monkeypatch.setattr(_errors, "UnrecognizedArgs", lambda **_: _errors.ParseErrorEvent(prog="goru"))
    assert main(["run", "copying", "--foo", "3"]) == 2
    assert "Unrecognized options: --foo, 3" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["run", "reproduce", "report", "record", "data"])
def test_optional_paths_in_the_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    options = {"run": "--from-run", "reproduce": "--out", "report": "--out", "record": "--readme", "data": "--data-dir"}
    assert f"{options[verb]} PATH " in text
    assert "{None}|PATH" not in text


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["status"], "there are no runs in runs"),
        (["report"], "there are no runs to report on in runs"),
        (["run", "--config", "nowhere.json"], "nowhere.json does not exist"),
        (["run", "copying", "--seed", "-1"], "seed should be at least 0"),
        (["run", "copying", "--variant", "../x"], "plain folder name"),
    ],
)
def test_what_is_missing(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) != 0
    assert said in capsys.readouterr().err


LARGEST = str(2**31 - 1)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["run", "copying", "--recall", "1000", "--test-size", "2", "--batch", LARGEST],
            "there is not enough memory for this run",
        ),
        (["run", "copying", "--hidden-size", "1000000000"], "there is not enough memory for this run"),
        (["run", "copying", "--model", "gru", "--hidden-size", LARGEST], "there is not enough memory for this run"),
        (["run", "copying", "--delay", LARGEST, "--test-size", LARGEST], "there is not enough memory for this run"),
        (["run", "parenthesis", "--kinds", LARGEST, "--length", LARGEST], "there is not enough memory for this run"),
        (["run", "copying", "--batch", str(2**31)], "--batch should be below 2^31, 2147483648."),
        (["run", "copying", "--batch", str(10**23)], "--batch should be below 2^31"),
        (["run", "copying", "--hidden-size", str(10**17)], "--hidden-size should be below 2^31"),
        (["run", "copying", "--delay", str(10**17)], "--delay should be below 2^31"),
        (["run", "parenthesis", "--length", str(10**17)], "--length should be below 2^31"),
        (["run", "copying", "--steps", str(10**400)], "--steps should be below 2^31"),
        (["reproduce", "copying", "--seeds", "1000000000"], "--seeds should be between 1 and 10000, got 1000000000"),
        (["run", "copying", "--device", "meta"], "--device meta cannot be used here"),
        (["run", "copying", "--variant", "v" * 300], "variant should have at most 200 bytes, got 300"),
        (["run", "copying", "--threads", "1000000"], "threads should be at most 1024, got 1000000"),
        (["run", "copying", "--runs", "/".join(["x" * 200] * 30)], "File name too long"),
        (["status", "--runs", "x" * 5000], "File name too long"),
        (["reproduce", "copying", "--threads", "1000000"], "threads should be at most 1024"),
        (["data", "ls", "--data-dir", "a:b"], "a folder whose name holds ':'"),
    ],
)
def test_extreme_options_are_one_sentence(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("goru: ")
    assert said in line
    assert len(line) < 600


def test_a_backend_that_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GORU_BACKEND", "evil")
    config = save(small("copying", "goru", steps=2), tmp_path / "config.json")
    assert main(["run", "--config", config, "--runs", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("goru: the environment variable GORU_BACKEND must be one of 'reference', ")
    assert line.endswith("got 'evil'.")


def test_a_clock_that_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("monotonic", "time", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1e9)
    config = small("copying", "goru", steps=20)
    file = save(config, tmp_path / "config.json")
    assert main(["run", "--config", file, "--runs", str(tmp_path)]) == 0
    for verb in ("status", "report"):
        assert main([verb, "--runs", str(tmp_path)]) == 0
    with hold(config, tmp_path):
        assert main(["run", "--config", file, "--runs", str(tmp_path)]) == RunBusyError.exit_code
    assert "another process is working on" in capsys.readouterr().err


def test_ls_and_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    text = capsys.readouterr().out
    for name, one in paper.EXPERIMENTS.items():
        assert name in text
        assert main(["show", name]) == 0
        shown = capsys.readouterr().out
        assert (one.paper.says if one.paper else one.summary) in shown
        for model in one.models:
            assert f"{model}:" in shown
        for decision in paper.decisions(name):  # one of them has brackets
            assert decision in shown


@pytest.fixture
def lengths_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no step of the experiment `lengths` had been measured."""
    known = {key: row for key, row in definition.step_times().items() if key[0] != "lengths"}
    monkeypatch.setattr(definition, "step_times", lambda: known)


@pytest.mark.usefixtures("lengths_not_measured")
def test_ls_says_which_costs_are_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:] if line}
    for name, one in paper.EXPERIMENTS.items():
        assert rows[name].rstrip().endswith("core hours" if one.seconds else "not measured")
    assert "not measured" in rows["lengths"]


def test_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "copying", "--model", "gru", "--seed", "5", "--runs", "he[re]", *TINY]) == 0
    (directory,) = runs.find(Path("he[re]"))
    assert str(directory) in capsys.readouterr().out
    config = read_config(directory)
    assert config is not None
    assert (config.model, config.seed, config.steps, config.layer.hidden_size) == ("gru", 5, 6, 4)
    assert config.variant == "steps6+batch2+hidden-size4+delay6+recall2+test-size8"
    # Again: finished. From its own file: the same run.
    assert main(["run", "--config", str(directory / "config.json"), "--runs", "he[re]"]) == 0
    assert "is already finished" in capsys.readouterr().out
    assert main(["run", "--config", str(directory / "config.json"), "--runs", "there"]) == 0
    assert outcome(directory) == outcome(config.directory(Path("there")))


def test_run_of_a_named_variant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "copying", "--model=gru", "--variant", "mine", "--runs", "here", *TINY]) == 0
    assert [str(path) for path in runs.find(Path("here"))] == ["here/copying/mine/gru/seed0"]


def test_a_failed_run_ends_with_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "copying", "--model", "gru", "--runs", "here", "--lr", "3e38", *TINY]
    assert main(arguments) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("goru: the loss became")


def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    train(small("copying", "gru"), Path("here"))
    failed = small("copying", "lstm", {"optimizer.lr": 3e38})
    with pytest.raises(Exception, match="the loss became"):
        train(failed, Path("here"))
    assert main(["status", "--runs", "here"]) == 0
    text = capsys.readouterr().out
    assert "copying/small/gru/seed0" in text
    assert "40/40" in text
    assert "1 of 2 runs finished" in text
    assert "copying/small/lstm/seed0: the loss became" in text


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", '{"step": 0}\nnot a line\n'),
        ("result.json", '{"step": 5}'),
        ("result.json", "{"),
        ("result.json", "[]"),
    ],
)
def test_status_of_damaged_runs(file: str, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = small("copying", "gru"), small("copying", "lstm")
    for config in (good, bad):
        train(config, Path("here"))
    directory = bad.directory(Path("here"))
    (directory / "result.json").unlink()
    (directory / file).write_text(content)
    assert main(["status", "--runs", "here"]) == 0
    text = capsys.readouterr().out
    assert "skipped: here/copying/small/lstm/seed0" in text
    assert "1 of 1 runs finished" in text


def test_environment_variable_for_the_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GORU_RUNS", "elsewhere")
    assert main(["run", "copying", "--model", "gru", *TINY]) == 0
    assert len(runs.find(Path("elsewhere"))) == 1


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "parenthesis", "--models", "lstm", "--steps", "1", "--out", "numbers.json"]
    assert main(arguments) == 0
    (row,) = json.loads(Path("numbers.json").read_text())["timings"]
    assert row["step_seconds"] == pytest.approx(row["data_seconds"] + row["model_seconds"])
    assert row["data_share"] < 0.15
    assert "lstm" in capsys.readouterr().out


def test_reproduce_runs_a_grid_and_writes_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user runs it, but for the size; the second time everything is skipped."""
    finished = small("copying", "gru", steps=20)
    train(finished, tmp_path / "runs")
    shrunk = [small("copying", model, steps=20) for model in ("gru", "lstm")]
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: shrunk)
    assert main(["reproduce", "copying", "--runs", "runs", "--jobs", "2"]) == 0
    assert [run.directory(Path("runs")) for run in shrunk] == runs.find(Path("runs"))
    page = Path("runs/report/index.html").read_text()
    assert "GRU" in page
    assert "LSTM" in page
    before = outcome(shrunk[1].directory(Path("runs")))
    monkeypatch.setattr("goru.lab.engines.local.Worker", None)  # nothing may be started
    assert main(["reproduce", "copying", "--runs", "runs"]) == 0
    assert outcome(shrunk[1].directory(Path("runs"))) == before


def test_reproduce_can_leave_out_what_a_record_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded, other = (small("copying", model, steps=20) for model in ("gru", "lstm"))
    train(recorded, tmp_path / "results")
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [recorded])
    command = ["reproduce", "copying", "--runs", "runs", "--without", "results"]
    assert main(command) == 0
    assert "nothing to run: 1 of 1 runs are finished in results." in capsys.readouterr().out
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [recorded, other])
    assert main(command) == 0
    assert runs.find(Path("runs")) == [other.directory(Path("runs"))]
    changed = override(recorded, {"optimizer.lr": 0.5})
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [changed])
    assert main(command) == 1
    assert "results/copying/small/gru/seed0 holds another configuration" in capsys.readouterr().err
    assert main([*command[:-1], "nowhere"]) == 2
    assert "--without should be a folder of runs, such as results; nowhere is none." in capsys.readouterr().err


def test_reproduce_says_once_that_fast_kernels_are_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The runs are processes whose logs nobody sees."""
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [small("copying", "gru", steps=5)])
    monkeypatch.setattr(type(backends.BACKENDS["native"]), "missing", lambda _: "they are stale")
    backends.mention_missing.cache_clear()
    assert main(["reproduce", "copying", "--runs", "runs"]) == 0
    (said,) = (record.getMessage() for record in caplog.records if record.name == "goru")
    assert said == "goru runs in pure torch, slower than its native kernels: they are stale"


def test_reproduce_names_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = small("copying", "gru", steps=20), small("copying", "lstm", {"optimizer.lr": 3e38})
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [bad, good])
    assert main(["reproduce", "copying", "--runs", "runs"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("goru: failed: copying/small/lstm/seed0: the loss became")
    assert outcome(good.directory(Path("runs")))["result"]["step"] == 20


def test_reproduce_names_what_failed_where_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [small("copying", "gru", {"layer.hidden_size": 0})])
    assert main(["reproduce", "copying", "--runs", "runs"]) == 1
    said = capsys.readouterr().err
    assert "goru: failed: copying/small/gru/seed0: --hidden-size should be at least 1; got 0.\n" in said


@pytest.mark.parametrize(
    ("backend", "options", "said"),
    [
        ("foo", [], "the environment variable GORU_BACKEND must be one of 'reference', "),
        ("triton", [], "the triton backend cannot run here (GORU_BACKEND=triton): "),
        ("auto", ["--device", "cuda:7"], "--device cuda:7 cannot be used here ("),
        ("auto", ["--device", "meta"], "--device meta cannot be used here (it holds no values); try --device cpu."),
    ],
)
def test_reproduce_refuses_a_grid_once(
    backend: str, options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GORU_BACKEND", backend)
    monkeypatch.setattr("goru.lab.engines.local.Worker", None)  # nothing may be started
    assert main(["reproduce", "copying", "--quick", *options]) == 1
    output = capfd.readouterr()
    (line,) = (output.out + output.err).splitlines()
    assert line.startswith(f"goru: {said}")
    assert not any(Path().iterdir())


def test_a_finished_grid_needs_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    config = small("copying", "gru", steps=20)
    train(config, Path("runs"))
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: [config])
    assert main(["reproduce", "copying", "--device", "cuda:7"]) == 0


def test_reproduce_shows_experiments_in_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = paper.grid(["shortest_path"], models=["gru"], variants=["fold01", "fold02"], generated=True)
    shrunk = [override(config, {"task.graphs": 38, "epochs": 1, "layer.hidden_size": 4}) for config in configs]
    for config in shrunk:
        train(config, Path("runs"))
    monkeypatch.setattr(paper, "grid", lambda *args, **kwargs: shrunk)
    monkeypatch.setattr(paper.Experiment, "other_settings", lambda *_: "")  # though they are smaller
    assert main(["reproduce", "shortest_path", "--runs", "runs", "--data", "generated"]) == 0
    text = capsys.readouterr().out
    assert "whole sequences %" in text
    assert "GRU" in text


def test_as_a_command(tmp_path: Path) -> None:
    """`python -m goru.lab`, in a process of its own."""
    done = goru("run", "--config", save(small("denoise", "gru"), tmp_path / "c.json"), "--runs", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "finished denoise/small/gru/seed0  step 40/40" in done.stdout


def test_the_library_does_not_know_the_laboratory() -> None:
    code = "import goru, sys; print(sorted(m for m in sys.modules if m.startswith('goru.lab')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imports(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The modules that a command has imported, from what `-X importtime` says on standard error."""
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        ((), 0),
        (("ls",), 0),
        (("show", "babi"), 0),
        (("status",), 1),
        (("reproduce", "--help"), 0),
        (("runn",), 2),
        (("run", "copying", "--sed", "3"), 2),
        (("run", "copyin"), 2),
    ],
)
def test_what_needs_no_torch_does_not_import_it(argv: tuple[str, ...], code: int, tmp_path: Path) -> None:
    done = goru(*argv, python=["-X", "importtime"], cwd=tmp_path)
    assert done.returncode == code
    assert "goru.lab.cli" in imports(done)
    assert not imports(done) & {"torch", "numpy", "matplotlib", "safetensors", "soundfile", "ray"}


def test_the_command_uses_the_library(tmp_path: Path) -> None:
    """Which it has not imported at the start. It needs no compiler, whose import takes as long as that of torch."""
    run = ["run", "copying", "--model", "eurnn-real", "--runs", str(tmp_path), *TINY]
    done = goru(*run, "--mesh", "tunable", python=["-X", "importtime"])
    assert done.returncode == 0
    assert "goru.lab.training.loop" in imports(done)
    assert not imports(done) & {"torch._dynamo", "sympy"}
    code = "import sys; sys.argv = ['/usr/bin/goru']; import goru; print('torch' in sys.modules, goru.GORU, goru.x)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("AttributeError: module 'goru' has no attribute 'x'\n")


def everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--steps", "7", "--variant", "mine"], "holds another configuration (steps 6 there, 7 here)"),
        (["--capacity", "4"], "--capacity needs --mesh tunable; the fft mesh always has ceil(log2 H) layers"),
        (["--backend", "triton"], "the triton backend cannot run here (backend='triton' was given to the layer): "),
        (["--device", "meta"], "--device meta cannot be used here"),
        (["--patience", "3"], "--patience has no effect"),
        (["--decay", "0.5", "--rule", "adam"], "--decay has no effect on adam"),
    ],
)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_refused_run_touches_nothing_and_prints_one_line(
    more: list[str], said: str, processes: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", "copying", "--model", "goru", *TINY]
    assert main([*arguments, "--variant", "mine"]) == 0
    assert_refused([*arguments, *more, "--processes", processes], said, capfd)


def assert_refused(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    before = everything_in(Path("runs"))
    assert main(arguments) != 0
    output = capfd.readouterr()
    (line,) = (output.out + output.err).splitlines()
    assert said in line
    assert everything_in(Path("runs")) == before


@pytest.mark.parametrize("processes", ["1", "2"])
def test_kernels_that_are_refused_touch_nothing(
    processes: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither a new run, nor one that was stopped, nor one that begins with another's steps."""
    arguments = ["run", "copying", "--model", "goru", *TINY]
    monkeypatch.setenv("GORU_BACKEND", "manual")
    with monkeypatch.context() as patch:
        patch.setattr(signals.StopOnSignal, "__call__", lambda self: True)
        assert main([*arguments, "--variant", "mine"]) == 130
    (stopped,) = runs.find(Path("runs"))
    (stopped / "failure.json").write_text('{"message": "the disk was full"}')
    changed = ["--variant", "mine"], ["--variant", "longer", "--steps", "8", "--from-run", str(stopped)]
    for backend, said, cases in (
        ("evil", "GORU_BACKEND must be one of", (["--variant", "new"], *changed)),
        ("reference", "would continue with reference", changed),
    ):
        monkeypatch.setenv("GORU_BACKEND", backend)
        for more in cases:
            assert_refused([*arguments, *more, "--processes", processes], said, capfd)


@pytest.mark.usefixtures("lengths_not_measured")
def test_run_says_what_it_will_cost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first step; a run that is stopped then has printed it."""
    monkeypatch.setattr(signals.StopOnSignal, "__call__", lambda self: True)
    assert main(["run", "copying"]) == 130
    first, *_ = capsys.readouterr().out.splitlines()
    minutes = round(paper.experiment("copying").run_seconds(paper.experiment("copying").config("goru")) / 60)
    assert first == f"10000 steps, about {minutes} minutes on one core; the small version: --quick."
    # Other sizes were not measured.
    assert main(["run", "copying", *TINY]) == 130
    assert capsys.readouterr().out.startswith("6 steps; the cost was not measured at these sizes.\n")
    assert main(["run", "lengths", "--steps", "2"]) == 130
    assert capsys.readouterr().out.startswith("2 steps; the cost was not measured at these sizes.\n")


@pytest.mark.parametrize("model", ["goru", "goru-memory", "gru"])
def test_the_cost_of_short_runs(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It scales with the length of the sequences; the memory, which follows it, does not change it."""
    monkeypatch.setattr(signals.StopOnSignal, "__call__", lambda self: True)
    one = paper.experiment("copying")
    base = one.config(model)
    for minutes, said in ((0.4, "less than a minute"), (1.2, "about 1 minute"), (2.1, "about 2 minutes")):
        for delay in (base.task.delay, 10):  # type: ignore[attr-defined]
            at_delay = override(base, {"task.delay": delay})
            steps = round(60 * minutes / one.step_seconds(at_delay))
            assert main(["run", "copying", "--model", model, "--delay", str(delay), "--steps", str(steps)]) == 130
            first, *_ = capsys.readouterr().out.splitlines()
            assert first == f"{steps} steps, {said} on one core; the small version: --quick."


def test_epochs_of_other_data_were_not_measured() -> None:
    one = paper.experiment("shortest_path")
    assert one.is_measured(one.config("gru", "fold03"))
    assert not one.is_measured(one.config("gru", "generated"))


def test_record_names_what_is_unfinished(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).resolve().parent.parent.parent
    shutil.copytree(root / "results" / "speech", "runs/speech")
    directory = runs.find(Path("runs"))[0]
    assert main(["record", "--out", "record"]) == 0
    count = len(runs.find(Path("runs")))
    assert capsys.readouterr().out == f"recorded {count} runs in record: {count} finished, 0 unfinished\n"
    for name in ("result.json", "manifest.json"):
        (directory / name).unlink()
    assert main(["record", "--out", "other"]) == 0
    text = capsys.readouterr().out
    assert f"unfinished: {directory.relative_to('runs')} (" in text
    assert text.endswith(f"recorded {count} runs in other: {count - 1} finished, 1 unfinished\n")
    assert main(["record", "--runs", "other", "--out", "other"]) == 0
    assert capsys.readouterr().out.endswith(f"updated other: {count - 1} finished, 1 unfinished\n")
    # The record that has it finished keeps it.
    assert main(["record", "--out", "record"]) == 0
    said = f"recorded {count - 1} runs in record: {count - 1} finished, 0 unfinished; "
    assert capsys.readouterr().out.endswith(f"{said}kept 1 run that only the record has finished\n")


def test_record_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "copying", "--model", "gru", *TINY]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(signals.StopOnSignal, "__call__", lambda self: True)
        assert main(["run", "speech", "--model", "gru", "--quick"]) == 130
        assert main(["run", "copying", "--model", "gru"]) == 130
    capsys.readouterr()
    assert main(["record", "--out", "record"]) == 0
    unfinished, summary = capsys.readouterr().out.splitlines()
    assert unfinished == "unfinished: copying/paper/gru/seed0 (stopped)"
    said = "recorded 1 run in record: 0 finished, 1 unfinished; left out 2 runs that are not at full size"
    assert summary == f"{said} (1 with other settings, 1 small)"


def test_an_unknown_command_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["foo"]) == 2
    assert f"there are: {', '.join(VERBS)}, doctor." in capsys.readouterr().err
    assert main(["docter"]) == 2
    assert 'did you mean "doctor"?' in capsys.readouterr().err


def test_piped_tables_are_not_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS")
    assert main(["run", "copying", "--model", "goru", *TINY]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    text = capsys.readouterr().out
    (directory,) = runs.find(Path("runs"))
    assert str(directory.relative_to("runs")) in text
    for heading in ("state", "step", "loss", "held out", "baseline", "accuracy", "step/s", "time"):
        assert heading in text.splitlines()[0]
    assert main(["ls"]) == 0
    text += capsys.readouterr().out
    for one in paper.EXPERIMENTS.values():
        assert ", ".join(one.models) in text
    assert "…" not in text
