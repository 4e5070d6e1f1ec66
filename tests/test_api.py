"""The reference: every public name is in it, with an example that runs and its arguments."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import torch

import goru

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
MODULES = {
    "gates": ("GateRecord", "record"),
    "rotations": ("Mesh", "orthogonality_error"),
    "decomposition": ("angles_of_rotation", "fit_angles", "nearest_rotation"),
    "onnx": ("translations",),
}
"""Public submodules, and their public names."""
NAMES = [f"goru.{name}" for name in goru.__all__ if name != "gates"]
NAMES += [f"goru.{module}.{name}" for module, names in MODULES.items() for name in names]


def find(name: str) -> object:
    module, _, last = name.rpartition(".")
    if module == "goru.onnx" and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("needs the extra goru[onnx]")
    return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"^\.\. auto(class|function):: {re.escape(name)}$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs_and_its_arguments(name: str) -> None:
    value = find(name)
    text = inspect.getdoc(value) or ""
    module = inspect.getmodule(inspect.unwrap(value))  # type: ignore[arg-type]
    assert module is not None
    examples = doctest.DocTestParser().get_examples(text)
    assert examples, f"{name} has no example"
    test = doctest.DocTest(examples, {**vars(module), "torch": torch}, name, None, 0, text)
    results = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert results.failed == 0
    if name == "goru.gates.GateRecord":  # made by `record`, not by users
        return
    described = text.partition("Args:")[2]
    for parameter in inspect.signature(value).parameters.values():  # type: ignore[arg-type]
        assert re.search(rf"\b{parameter.name}\b", described), f"{name}: {parameter.name}"


def test_methods_of_the_layers_have_examples_or_words() -> None:
    for layer in (goru.GORU, goru.EURNN, goru.GRU, goru.LSTM):
        for name in re.findall(r"^   :members: (.+)$", PAGE, flags=re.MULTILINE)[0].split(", "):
            if hasattr(layer, name):
                assert inspect.getdoc(getattr(layer, name)), name
