"""Exported and traced programs: they choose their backend where they run, and train or infer as they are asked to."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goru
from goru.kernels import native

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore")  # torch's exporters and tracers warn about themselves
LAYERS: dict[str, Any] = {
    "GORU": lambda **options: goru.GORU(3, 8, num_layers=2, bidirectional=True, **options),
    "GORU by rotations": lambda **options: goru.GORU(3, 64, mesh="tunable", capacity=2, **options),
    "EURNN": lambda **options: goru.EURNN(3, 8, complex=False, **options),
    "EURNN complex": lambda **options: goru.EURNN(3, 8, **options),
    "GRU": lambda **options: goru.GRU(3, 8, num_layers=2, bidirectional=True, **options),
    "LSTM": lambda **options: goru.LSTM(3, 8, **options),
}
OPERATORS = {f"goru.{name}.default" for name in ("goru", "eurnn", "gru", "lstm", "mesh_matrix")}
RUN = """
import sys
import torch
import goru
from goru.kernels import backends
program = torch.export.load(sys.argv[1]).module()
with torch.no_grad():
    output = program(torch.load(sys.argv[2], weights_only=True))[0]
torch.save(output, sys.argv[3])
print(backends.choose(None, output.device, output.dtype).backend)
"""


def export(layer: Any, x: Tensor) -> torch.export.ExportedProgram:
    free = torch.export.Dim.DYNAMIC
    return torch.export.export(layer, (x,), dynamic_shapes={"input": {0: free, 1: free}})


def arguments_of(program: torch.export.ExportedProgram) -> list[tuple[str, Any]]:
    """Name and last argument, the backend, of each operator of this library."""
    return [(str(n.target), n.args[-1]) for n in program.graph.nodes if str(n.target).startswith("goru.")]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("grad", [True, False])
def test_a_program_carries_no_choice(kind: str, grad: bool) -> None:
    x = torch.randn(5, 2, 3)
    with torch.set_grad_enabled(grad):
        found = arguments_of(export(LAYERS[kind](), x))
        named = arguments_of(export(LAYERS[kind](backend="manual"), x))
    assert found
    assert {name for name, _ in found} <= OPERATORS
    assert {backend for _, backend in found} == {"auto"}
    assert {backend for _, backend in named} == {"manual"}


@pytest.mark.parametrize("kind", LAYERS)
def test_it_runs_on_every_backend(kind: str) -> None:
    layer = LAYERS[kind]().double()
    program = export(layer, torch.randn(5, 2, 3).double()).module()
    x = torch.randn(9, 4, 3).double().requires_grad_()
    for backend in ("reference", "manual", "native"):
        with goru.use_backend(backend):
            found, expected = program(x)[0], layer(x)[0]
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(
                torch.autograd.grad(found.pow(2).sum(), x), torch.autograd.grad(expected.pow(2).sum(), x)
            )


@pytest.mark.parametrize("setting", [{"GORU_BACKEND": "manual"}, {"GORU_BACKEND": "reference"}, {}])
def test_in_another_process(setting: dict[str, str], tmp_path: Path) -> None:
    layer, x = goru.GORU(3, 8), torch.randn(7, 3, 3)
    torch.export.save(export(layer, torch.randn(5, 2, 3)), tmp_path / "layer.pt2")
    torch.save(x, tmp_path / "x.pt")
    environment = {k: v for k, v in os.environ.items() if k != "GORU_BACKEND"} | setting
    files = [str(tmp_path / name) for name in ("layer.pt2", "x.pt", "output.pt")]
    command = [sys.executable, "-W", "ignore", "-c", RUN, *files]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == setting.get("GORU_BACKEND", "native")
    torch.testing.assert_close(torch.load(tmp_path / "output.pt", weights_only=True), layer(x)[0].detach())


def test_a_named_backend_that_cannot_run_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    from goru.kernels.native import NATIVE

    program = export(goru.GORU(3, 8, backend="native"), torch.randn(5, 2, 3)).module()
    monkeypatch.setattr(NATIVE, "obstacle", lambda device, dtype: "the library is missing")
    with pytest.raises(RuntimeError, match=r"the native backend cannot run here .* the library is missing"):
        program(torch.randn(5, 2, 3))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_jit_trace_without_options(kind: str, training: bool) -> None:
    layer = LAYERS[kind]().train(training)
    traced: Any = torch.jit.trace(layer, torch.randn(5, 2, 3))
    x = torch.randn(9, 4, 3, requires_grad=True)
    found, expected = traced(x), layer(x)
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad(output.pow(2).sum(), [x, *layer.parameters()]) for output in (found[0], expected[0])]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("kind", [goru.GORUCell, goru.GRUCell])
def test_jit_trace_of_a_cell(kind: Any) -> None:
    cell = kind(3, 8)
    traced: Any = torch.jit.trace(cell, (torch.randn(2, 3), torch.randn(2, 8)))
    x, h = torch.randn(5, 3), torch.randn(5, 8)
    torch.testing.assert_close(traced(x, h), cell(x, h))


@pytest.mark.parametrize("module", [goru.GORU(3, 4), goru.LSTM(3, 4), nn.Sequential(goru.GORUCell(3, 4))])
def test_jit_script_is_refused_in_a_sentence(module: nn.Module) -> None:
    with pytest.raises(RuntimeError, match=r"torch.jit.script cannot compile (GORU|LSTM)\w*: use torch.jit.trace"):
        torch.jit.script(module)


# ------------------------------------------------------------------------------------------------- without Python

CPP = ROOT / "cpp"


def test_the_schemas_of_the_cpp_operators_are_those_of_python() -> None:
    text = re.sub(r'"\s*"', "", (CPP / "goru_operators.cpp").read_text())
    schemas = re.findall(r'm\.def\("(.*?)"\)', text)
    assert len(schemas) == 2
    for schema in schemas:
        name = schema.partition("(")[0]
        assert f"goru::{schema}" == str(getattr(torch.ops.goru, name).default._schema)


class Several(nn.Module):
    """Layers of each kind that the C++ operators know, without and with lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                goru.GORU(3, 8, num_layers=2, bidirectional=True),
                goru.GORU(3, 9, mesh="tunable", capacity=9),
                goru.GORU(3, 7, mesh="fft", update_gate=False),
                goru.GORU(3, 40, mesh="tunable", capacity=3, reset_gate=False, bias=False),
            ]
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        lengths = torch.arange(x.shape[1]) % x.shape[0] + 1
        return tuple(found for layer in self.layers for given in (None, lengths) for found in layer(x, lengths=given))


@pytest.mark.soak
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.skipif(native.unavailable_reason() is not None, reason="no native kernels")
def test_aotinductor_without_python(tmp_path: Path) -> None:
    """A package of AOTInductor in a C++ program, by the commands of docs/export.md."""
    torch.manual_seed(0)
    model, free = Several().eval(), torch.export.Dim.DYNAMIC
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(5, 2, 3),), dynamic_shapes={"x": {0: free, 1: free}})
        torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "layer.pt2"))
    page = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    (commands,) = [block for block in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) if "g++" in block]
    build = commands.replace("python ", f"{sys.executable} ").replace("-o run_package", f"-o {tmp_path}/run_package")
    done = subprocess.run(["sh", "-ec", build], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    listed = subprocess.run(["ldd", str(tmp_path / "run_package")], capture_output=True, text=True, check=True)
    assert "libpython" not in listed.stdout
    assert "torch_python" not in listed.stdout
    for steps, batch in ((7, 5), (1, 1), (3, 2), (40, 33)):
        call = [str(tmp_path / "run_package"), str(tmp_path / "layer.pt2"), str(steps), str(batch), "3"]
        done = subprocess.run(call, capture_output=True, text=True, env={"TMPDIR": str(tmp_path)})
        assert done.returncode == 0, done.stderr
        found = [torch.tensor([float(word) for word in line.split()]) for line in done.stdout.splitlines()]
        with torch.no_grad():
            expected = model(torch.arange(steps * batch * 3.0).sin().view(steps, batch, 3))
        torch.testing.assert_close(found, [result.flatten() for result in expected], rtol=1e-5, atol=1e-6)
