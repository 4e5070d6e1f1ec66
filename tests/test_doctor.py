"""`goru doctor` tells the truth, and other verbs say how to get the laboratory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import goru.__main__ as command
from goru import doctor
from goru.kernels import native
from goru.kernels.backends import MANUAL, Kernel


def test_report_and_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 600.0)  # on a busy machine too
    assert command.main(["doctor"]) == 0
    text = capsys.readouterr().out
    for words in (
        "goru ",
        "torch ",
        " on ",
        "native kernels",
        *(f"{layer} on cpu, float32: " for layer in doctor.LAYERS),
    ):
        assert words in text
    if native.unavailable_reason() is None:
        assert f"instruction set {native.isa()}" in text
    count = sum(line.startswith("  ok ") for line in text.splitlines())
    assert count > len(doctor.TESTED)
    assert text.splitlines()[-1] == f"{count} of {count} checks passed, none failed."


def test_a_wrong_kernel_is_noticed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    right = MANUAL.kernels["goru"]
    assert isinstance(right, Kernel)

    def wrong(*arguments):
        output, h_n, saved = right.forward(*arguments)
        return output * 1.01, h_n, saved

    monkeypatch.setitem(MANUAL.kernels, "goru", replace(right, forward=wrong))
    monkeypatch.setattr(doctor, "SECONDS", 600.0)  # on a busy machine too
    assert doctor.main([]) == 1
    text = capsys.readouterr().out
    assert "FAILED manual float64 GORU: " in text
    lines = text.splitlines()
    passed, failed = (sum(line.startswith(f"  {word} ") for line in lines) for word in ("ok    ", "FAILED"))
    assert passed > failed > 0
    assert lines[-1] == f"{passed} of {passed + failed} checks passed, {failed} failed."


def test_an_exception_is_one_failed_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The others run nevertheless."""

    def raises(*arguments):
        raise RuntimeError("out of luck")

    right = MANUAL.kernels["lstm"]
    assert isinstance(right, Kernel)
    monkeypatch.setitem(MANUAL.kernels, "lstm", replace(right, forward=raises))
    monkeypatch.setattr(doctor, "BACKENDS", {"manual": MANUAL})
    monkeypatch.setattr(doctor, "TESTED", {name: doctor.TESTED[name] for name in ("LSTM", "GRU")})
    monkeypatch.setattr(doctor, "SECONDS", 600.0)
    assert doctor.main([]) == 1
    text = capsys.readouterr().out
    for dtype in ("float64", "float32"):
        assert f"  FAILED manual {dtype} LSTM: RuntimeError: out of luck\n  ok     manual {dtype} GRU: " in text
    assert text.endswith("\n4 of 6 checks passed, 2 failed.\n")


def test_a_self_test_cut_short_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SECONDS", 0.0)
    assert doctor.main([]) == 0
    text = capsys.readouterr().out
    planned = sum(len(tests) for _, tests in doctor._planned(torch.device("cpu")))
    assert text.endswith(f"\n1 of {planned} checks passed, {planned - 1} skipped after 0 seconds, none failed.\n")


def test_a_backend_that_does_not_exist_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GORU_BACKEND", "foo")
    assert doctor.main([]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("goru: the environment variable GORU_BACKEND must be one of 'reference', ")
    assert line.endswith("got 'foo'.")


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--all"]) == 2
    assert "takes no arguments" in capsys.readouterr().err
    assert doctor.main(["--help"]) == 0


def test_without_the_laboratory_other_verbs_say_how_to_get_it() -> None:
    # An entry None in sys.modules is how Python spells "not installed".
    code = "import sys; sys.modules.update(rich=None, tyro=None); from goru.__main__ import main; sys.exit(main({}))"
    run = [sys.executable, "-c"]
    done = subprocess.run([*run, code.format(["run", "copying"])], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == 'goru run needs the laboratory: pip install -c constraints.txt ".[lab]" in a checkout\n'
    done = subprocess.run([*run, code.format([])], capture_output=True, text=True)
    assert done.returncode == 0
    assert "goru doctor" in done.stdout


def test_an_instruction_set_is_reported() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "goru", "doctor"], env=os.environ | {"GORU_ISA": "pdp11"}, capture_output=True, text=True
    )
    assert "cannot run: GORU_ISA=pdp11" in done.stdout or "were not built" in done.stdout
    assert done.returncode == 0


def test_a_reader_that_has_seen_enough() -> None:
    """`goru doctor | head -1`: no traceback, and the exit code of a closed pipe."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "goru", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.readline()
        run.stdout.close()
        told = run.stderr.read()
    assert told == b""
    assert run.returncode == 141
