"""The names that users may lean on, and what importing them costs."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys

import pytest
from torch import nn

import goru

PUBLIC = [
    "EURNN", "EURNNCell", "GORU", "GORUCell", "GRU", "GRUCell", "LSTM", "LSTMCell",
    "accelerate", "gates", "modrelu", "parameter_groups", "use_backend",
]  # fmt: skip
LABORATORY = ["tyro", "rich", "matplotlib", "safetensors", "pooch", "soundfile", "jinja2", "ray", "goru.lab"]


def test_the_list_of_public_names():
    assert sorted(goru.__all__) == sorted(PUBLIC)
    for name in PUBLIC:
        assert hasattr(goru, name)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", goru.__version__)


def test_nothing_else_looks_public():
    """Beside the names only submodules are there, and no import of theirs leaks out."""
    visible = {name for name, value in vars(goru).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert visible - set(PUBLIC) == set()
    modules = [value.__name__ for name, value in vars(goru).items() if inspect.ismodule(value) and name[0] != "_"]
    assert [name for name in modules if not name.startswith("goru.")] == []


def test_every_public_name_says_what_it_is():
    for name in PUBLIC:
        value = getattr(goru, name)
        assert (inspect.getdoc(value) or "").strip(), name
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


@pytest.mark.parametrize("name", ["GORU", "EURNN"])
def test_signature_of_the_layers(name: str):
    """nn.GRU's positions, then keywords only."""
    parameters = list(inspect.signature(getattr(goru, name)).parameters.values())
    positional = [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [
        ("input_size", inspect.Parameter.empty),
        ("hidden_size", inspect.Parameter.empty),
        ("num_layers", 1),
        ("bias", True),
        ("batch_first", False),
        ("dropout", 0.0),
        ("bidirectional", False),
    ]
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert {"mesh", "capacity", "backend", "device", "dtype"} <= keywords
    assert ({"reset_gate", "update_gate"} if name == "GORU" else {"complex"}) <= keywords
    assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


@pytest.mark.parametrize("name", ["GORU", "EURNN"])
def test_signature_of_forward(name: str):
    parameters = inspect.signature(getattr(goru, name).forward).parameters
    assert list(parameters) == ["self", "input", "hx", "lengths"]
    assert parameters["hx"].default is None
    assert parameters["lengths"].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["lengths"].default is None


@pytest.mark.parametrize("name", ["GORUCell", "EURNNCell"])
def test_signature_of_the_cells(name: str):
    parameters = list(inspect.signature(getattr(goru, name)).parameters.values())
    assert [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        "input_size",
        "hidden_size",
        "bias",
    ]
    assert {"mesh", "capacity", "device", "dtype"} <= {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


@pytest.mark.parametrize("name", ["GORU", "EURNN", "GORUCell", "EURNNCell"])
def test_layers_are_modules_of_their_own_name(name: str):
    cls = getattr(goru, name)
    assert issubclass(cls, nn.Module)
    assert cls.__name__ == name
    assert not issubclass(cls, nn.RNNBase)  # its flat weights would make parametrized weights stop training
    methods = ["reset_parameters", "orthogonal_matrix", "orthogonality_error"]
    for method in methods if name.endswith("Cell") else [*methods, "flatten_parameters"]:
        assert callable(getattr(cls, method))
    if not name.endswith("Cell"):
        assert isinstance(inspect.getattr_static(cls, "all_weights"), property)


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_importing_the_library_imports_no_laboratory_prints_nothing_and_changes_no_setting():
    code = f"""
import sys, torch
state, threads, dtype = torch.get_rng_state(), torch.get_num_threads(), torch.get_default_dtype()
import goru, goru.gates, goru.rotations
assert torch.equal(torch.get_rng_state(), state)
assert torch.get_num_threads() == threads and torch.get_default_dtype() is dtype
layer = goru.GORU(3, 4)
layer(torch.zeros(2, 1, 3))
found = [name for name in {LABORATORY} if name in sys.modules]
assert not found, found
"""
    assert run_python(code) == ""


def test_importing_and_running_the_library_imports_no_compiler():
    """torch._dynamo alone, with sympy, takes longer than torch itself. It is for torch.compile to import."""
    code = """
import sys, torch
before = set(sys.modules)
import goru
layer = goru.GORU(3, 4, 2, bidirectional=True)
layer(torch.zeros(2, 1, 3))[0].sum().backward()
goru.EURNN(3, 4, capacity=4)(torch.zeros(2, 1, 3))[0].sum().backward()
with torch.no_grad():
    goru.GORUCell(3, 4)(torch.zeros(1, 3), torch.zeros(1, 4))
new = {name.partition(".")[0] if not name.startswith("torch") else name for name in set(sys.modules) - before}
heavy = {"torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "torch.onnx", "sympy", "mpmath"}
print(sorted(new & heavy))
"""
    assert run_python(code) == "[]\n"


def test_the_library_works_where_the_laboratory_cannot_be_imported():
    """Also without NumPy, which torch itself only asks for when it is there."""
    code = f"""
import sys, warnings
for name in {[*LABORATORY, "numpy", "scipy"]}:
    sys.modules[name] = None
warnings.filterwarnings("ignore", message=".*[Nn]um[Pp]y.*")
import torch, goru
layer = goru.GORU(3, 4, 2, bidirectional=True)
output, h_n = layer(torch.ones(5, 2, 3), lengths=torch.tensor([5, 2]))
(output.sum() + h_n.sum()).backward()
with goru.gates.record(layer) as records, goru.use_backend("reference"):
    layer(torch.ones(5, 2, 3))
goru.EURNNCell(3, 4)(torch.ones(2, 3)).abs().sum().backward()
print(goru.GORU.from_gru(torch.nn.GRU(3, 4)).orthogonality_error() < 1e-5, len(records))
"""
    assert run_python(code).split() == ["True", "4"]


def test_submodules_can_be_imported_one_by_one():
    for name in ("gates", "rotations", "activation", "layers.goru", "layers.eurnn", "kernels.backends"):
        importlib.import_module(f"goru.{name}")


def test_parameter_groups_leave_the_angles_without_decay():
    model = nn.Sequential(nn.Linear(3, 4), goru.GORU(4, 8, 2, bidirectional=True), goru.EURNNCell(8, 5))
    decayed, kept = goru.parameter_groups(model, 0.1)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)
    names = {id(p): name for name, p in model.named_parameters()}
    assert {names[id(p)] for p in kept["params"]} == {name for name in names.values() if "angles" in name}
    assert len(decayed["params"]) + len(kept["params"]) == len(names)
