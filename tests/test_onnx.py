"""Exported ONNX files give in onnxruntime what the layers give here, at other lengths and batch sizes than traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import goru

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import goru.onnx  # noqa: E402

pytestmark = [
    pytest.mark.skipif(torch.__version__ < goru.onnx.OLDEST, reason=f"needs torch {goru.onnx.OLDEST} or newer"),
    # torch's exporter warns about itself and about modules that are not installed.
    pytest.mark.filterwarnings("ignore"),
]

I, H = 3, 8
LAYERS: dict[str, dict[str, Any]] = {
    "default": {},
    "two directions, two layers": {"bidirectional": True, "num_layers": 2},
    "matrix": {"mesh": "tunable", "capacity": H},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
}
GATES: dict[str, dict[str, Any]] = {
    "no reset gate": {"reset_gate": False},
    "no update gate": {"update_gate": False},
    "no gates": {"reset_gate": False, "update_gate": False, "bidirectional": True},
}


class Whole(nn.Module):
    """Lengths and states in, states out, and something behind the layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(layer.hidden_size * layer.num_directions, 2)  # type: ignore[operator]

    def forward(self, x: Tensor, hx: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        output, h_n = self.layer(x, hx, lengths=lengths)
        return self.head(output), h_n


class WholeLSTM(Whole):
    """The same with two states."""

    def forward(self, x: Tensor, hx: Tensor, cx: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        output, states = self.layer(x, (hx, cx), lengths=lengths)
        return self.head(output), *states


def lively(layer: Any) -> Any:
    """With larger weights than a layer starts with, and no positive b_h: modReLU without its jump at 0."""
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data.uniform_(-0.5, 0.5, generator=generator)
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            parameter.data[-H:].abs_().neg_()
    return layer.eval()


def export(module: nn.Module, arguments: tuple[Tensor, ...], dynamic: Any, path: Path, expected: str = "Scan") -> Any:
    """A session on the exported file, which has ONNX's own operators alone, `expected` among them."""
    torch.onnx.export(
        module, arguments, path, dynamo=True, dynamic_shapes=dynamic, verbose=False,
        custom_translation_table=goru.onnx.translations(),
    )  # fmt: skip
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [imported.domain for imported in model.opset_import] == [""]
    assert not model.functions
    assert {"Scan", "GRU", "LSTM"} & {node.op_type for node in model.graph.node} == {expected}
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def same(module: nn.Module, session: Any, arguments: tuple[Tensor, ...]) -> None:
    names = [given.name for given in session.get_inputs()]
    found = session.run(None, dict(zip(names, (a.numpy() for a in arguments), strict=True)))
    with torch.no_grad():
        expected = module(*arguments)
    flat = [tensor for part in expected for tensor in (part if isinstance(part, tuple) else (part,))]
    for ours, theirs in zip(flat, found, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - torch.from_numpy(theirs)).abs().max() <= 1e-5 * max(1, ours.abs().max())


def layers() -> list[Any]:
    plain = [pytest.param(goru.GORU, options, id=f"GORU {name}") for name, options in (LAYERS | GATES).items()]
    real = [pytest.param(goru.EURNN, o | {"complex": False}, id=f"EURNN {name}") for name, o in LAYERS.items()]
    gated = [
        pytest.param(kind, options, id=f"{kind.__name__} {name}")
        for kind in (goru.GRU, goru.LSTM)
        for name, options in LAYERS.items()
        if "mesh" not in options
    ]
    return plain + real + gated


def operator_of(kind: Any) -> str:
    return kind.__name__ if kind in (goru.GRU, goru.LSTM) else "Scan"


@pytest.mark.parametrize(("kind", "options"), layers())
def test_other_lengths_and_batches(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    layer = lively(kind(I, H, **options))
    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    shape = {0: batch, 1: steps} if layer.batch_first else {0: steps, 1: batch}
    session = export(layer, (torch.randn(5, 2, I),), (shape,), tmp_path / "layer.onnx", operator_of(kind))
    for size in ((5, 2), (40, 3), (1, 1)):
        same(layer, session, (torch.randn(*size, I),))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}], ids=["one", "two directions"])
@pytest.mark.parametrize("kind", [goru.GORU, goru.EURNN, goru.GRU, goru.LSTM])
def test_lengths_and_states(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    layer = kind(I, H, **options, **({"complex": False} if kind is goru.EURNN else {}))
    module = (WholeLSTM if kind is goru.LSTM else Whole)(lively(layer)).eval()
    states = (2 if kind is goru.LSTM else 1) * [layer.num_layers * layer.num_directions]

    def arguments(steps: int, batch: int) -> tuple[Tensor, ...]:
        lengths = torch.randint(1, steps + 1, (batch,))
        return torch.randn(steps, batch, I), *(torch.randn(size, batch, H) for size in states), lengths

    steps, batch = torch.export.Dim("steps"), torch.export.Dim("batch")
    dynamic = ({0: steps, 1: batch}, *({1: batch} for _ in states), {0: batch})
    session = export(module, arguments(5, 2), dynamic, tmp_path / "module.onnx", operator_of(kind))
    for size in ((5, 2), (23, 4), (1, 1)):
        same(module, session, arguments(*size))


def test_double_precision(tmp_path: Path) -> None:
    layer = lively(goru.GORU(I, H, dtype=torch.float64))
    x = torch.randn(5, 2, I, dtype=torch.float64)
    session = export(layer, (x,), ({0: torch.export.Dim("steps")},), tmp_path / "layer.onnx")
    same(layer, session, (torch.randn(30, 2, I, dtype=torch.float64),))


def test_a_complex_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="complex"):
        export(goru.EURNN(I, H).eval(), (torch.randn(5, 2, I),), None, tmp_path / "layer.onnx")


@pytest.mark.parametrize("kind", [goru.GORUCell, goru.GRUCell])
def test_a_cell_exports_one_step(kind: Any, tmp_path: Path) -> None:
    cell, path = lively(kind(I, H)), tmp_path / "cell.onnx"
    torch.onnx.export(
        cell, (torch.randn(2, I), torch.randn(2, H)), path, dynamo=True, verbose=False,
        custom_translation_table=goru.onnx.translations(),
    )  # fmt: skip
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x, h = torch.randn(2, I), torch.randn(2, H)
    names = [given.name for given in session.get_inputs()]
    found = session.run(None, dict(zip(names, (x.numpy(), h.numpy()), strict=True)))[0]
    assert (cell(x, h) - torch.from_numpy(found)).abs().max() < 1e-5


def test_an_older_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.6.0+cu124"))
    with pytest.raises(RuntimeError, match=r"^goru\.onnx needs torch 2\.9 or newer, this is torch 2\.6\.0\+cu124$"):
        goru.onnx.translations()
