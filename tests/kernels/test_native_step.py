"""Single steps of a cell the short way: the same bits as the long way, and never from stale weights."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import goru
from goru.kernels import native
from goru.kernels.native.call import UNPACKED_ROWS
from tests.specimens import draw, lively

pytestmark = pytest.mark.skipif(
    native.unavailable_reason() is not None, reason=f"no native kernels: {native.unavailable_reason()}"
)

I, H = 3, 10
SETTINGS: dict[str, dict[str, Any]] = {
    "fft": {},
    "tunable": {"mesh": "tunable", "capacity": 3},
    "matrix": {"mesh": "tunable", "capacity": H},
    "no_reset": {"reset_gate": False},
    "no_update": {"update_gate": False},
    "no_gates": {"reset_gate": False, "update_gate": False},
    "no_bias": {"bias": False},
    "memory": {"memory": 30},
}
GATED = {
    "gru": goru.GRUCell,
    "lstm": goru.LSTMCell,
    "gru_no_bias": lambda *sizes, **options: goru.GRUCell(*sizes, bias=False, **options),
    "lstm_no_bias": lambda *sizes, **options: goru.LSTMCell(*sizes, bias=False, **options),
}


def cell_of(name: str = "fft", dtype: torch.dtype = torch.float32) -> Any:
    if name in GATED:
        torch.manual_seed(2)
        return GATED[name](I, H, dtype=dtype)
    return lively(goru.GORUCell(I, H, dtype=dtype, **SETTINGS[name]))


def state_of(cell: Any, *shape: int, dtype: torch.dtype = torch.float32) -> Any:
    h = draw(*shape, H, seed=3).to(dtype)
    return (h, draw(*shape, H, seed=4).to(dtype)) if isinstance(cell, goru.LSTMCell) else h


def long_way(cell: Any, x: Tensor, h: Any) -> Any:
    """The step as it is taken where a gradient is wanted."""
    new = cell(x, h)
    return new.detach() if isinstance(new, Tensor) else tuple(part.detach() for part in new)


def prepared(cell: Any) -> bool:
    """Whether the native backend has prepared something for single steps of this cell."""
    return bool(cell._stepper.runners)


@torch.no_grad()
def short_way(cell: Any, x: Tensor, h: Any) -> Any:
    cell._stepper.runners.clear()
    result = cell(x, h)
    assert prepared(cell), "this call should have been taken the short way"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell, "_run_unit", None)  # the long way would fail
        assert equal(cell(x, h), result), "the second step, from what the first prepared"
    return result


def equal(a: Any, b: Any) -> bool:
    """Bitwise, for a state of one or two tensors."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return all(map(torch.equal, a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", [*SETTINGS, *GATED])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (UNPACKED_ROWS,)], ids=str)
def test_same_bits_as_the_long_way(name: str, dtype: torch.dtype, shape: tuple[int, ...]):
    cell = cell_of(name, dtype)
    x, h = draw(*shape, I).to(dtype), state_of(cell, *shape, dtype=dtype)
    before = copy.deepcopy(h)
    assert equal(short_way(cell, x, h), long_way(cell, x, h))
    assert equal(h, before)


@pytest.mark.parametrize("hidden", [1, 3, 7, 8, 9, 17, 33])
@pytest.mark.parametrize("inputs", [1, 5, 8, 10, 19])
@pytest.mark.parametrize("kind", [goru.GORUCell, goru.GRUCell, goru.LSTMCell])
def test_odd_sizes_against_the_reference(kind: Any, inputs: int, hidden: int):
    torch.manual_seed(3)
    cell = kind(inputs, hidden, dtype=torch.float64)
    x, h = draw(2, inputs), draw(2, hidden, seed=3)
    state = (h, h + 1) if kind is goru.LSTMCell else h
    with torch.no_grad():
        new = cell(x, state)
        assert prepared(cell)
        with goru.use_backend("reference"):
            expected = cell(x, state)
    torch.testing.assert_close(new, expected, rtol=0, atol=1e-13)


def test_a_stream_against_the_reference():
    cell, xs = cell_of(dtype=torch.float64), draw(200, 2, I)
    h = expected = torch.zeros(2, H, dtype=torch.float64)
    with torch.no_grad():
        for x in xs:
            h = cell(x, h)
        with goru.use_backend("reference"):
            for x in xs:
                expected = cell(x, expected)
    torch.testing.assert_close(h, expected, rtol=0, atol=1e-12)


def changes() -> dict[str, Callable[[Any], object]]:
    """Ways in which people change a cell's parameters between two steps."""

    def through_data(cell: Any) -> None:
        for p in cell.parameters():
            p.data.mul_(1.5)

    def new_data(cell: Any) -> None:
        for p in cell.parameters():
            p.data = p.data * 1.5

    def new_parameters(cell: Any) -> None:
        for name, p in list(cell.named_parameters()):
            setattr(cell, name, nn.Parameter(p.detach() * 1.5))

    def load(cell: Any) -> None:
        cell.load_state_dict({name: value * 1.5 for name, value in cell.state_dict().items()})

    def turned(cell: Any) -> None:
        cell.weight_hh.data = cell.weight_hh.data.t().contiguous().t()

    def narrowed(cell: Any) -> None:
        wide = torch.randn(len(cell.weight_hh), 2 * H)
        cell.weight_hh.data = wide
        cell.weight_hh.data = wide[:, :H]

    def half_of_them(cell: Any) -> None:
        name = "bias" if hasattr(cell, "bias_ih") is False else "bias_ih"
        getattr(cell, name).data[:H] = 0.3

    return {f.__name__: f for f in (through_data, new_data, new_parameters, load, turned, narrowed, half_of_them)}


@pytest.mark.parametrize("name", ["fft", "matrix", "memory", "gru", "lstm"])
@pytest.mark.parametrize("change", changes().values(), ids=changes())
def test_changed_parameters_count_at_once(name: str, change: Callable[[Any], object]):
    cell = cell_of(name)
    x, h = draw(2, I).float(), state_of(cell, 2)
    first = short_way(cell, x, h)
    change(cell)
    with torch.no_grad():
        result = cell(x, h)
    assert equal(result, long_way(cell, x, h))
    assert change.__name__ == "turned" or not equal(result, first)


@pytest.mark.parametrize("change", ["in place", "another tensor"])
def test_a_changed_memory_counts_at_once(change: str):
    cell = cell_of("memory")
    x, h = draw(2, I).float(), state_of(cell, 2)
    first = short_way(cell, x, h)
    if change == "in place":
        cell.memory.data.fill_(2.0)
    else:
        cell.memory = torch.tensor(2.0)
    with torch.no_grad():
        result = cell(x, h)
    assert torch.equal(result, long_way(cell, x, h))
    assert not torch.equal(result, first)


@pytest.mark.parametrize("name", ["fft", "gru", "lstm"])
def test_one_call_at_a_time_prepares_once(name: str, monkeypatch: pytest.MonkeyPatch):
    """A stream reuses what its first step prepared, also after values change in place."""
    cell = cell_of(name)
    x, h = draw(1, I).float(), state_of(cell, 1)
    short_way(cell, x, h)
    made: list[str] = []
    prepare = type(cell._stepper)._prepare
    monkeypatch.setattr(
        type(cell._stepper), "_prepare", lambda self, *arguments: made.append("") or prepare(self, *arguments)
    )
    with torch.no_grad():
        for _ in range(3):
            h = cell(x, h)
        cell.weight_ih.mul_(1.5)
        result = cell(x, h)
    assert made == []
    assert equal(result, long_way(cell, x, h))


@pytest.mark.parametrize("name", ["fft", "gru", "lstm"])
def test_hooks_gradients_and_subclasses(name: str):
    class Named(Tensor):
        pass

    cell = cell_of(name)
    x, h = draw(1, I).float(), state_of(cell, 1)
    expected = short_way(cell, x, h)
    calls: list[Any] = []
    handle = cell.register_forward_hook(lambda module, inputs, output: calls.append(output))
    with torch.no_grad():
        cell(x, h)
        special = cell(x.as_subclass(Named), h)
    handle.remove()
    assert len(calls) == 2
    assert equal(calls[0], expected)
    assert type(special if isinstance(special, Tensor) else special[0]) is Named
    wanted = x.clone().requires_grad_()
    new = cell(wanted, h)
    (new if isinstance(new, Tensor) else new[0]).sum().backward()
    assert wanted.grad is not None
    assert cell.weight_hh.grad is not None


def test_another_dtype():
    cell = cell_of()
    short_way(cell, draw(2, I).float(), draw(2, H, seed=3).float())
    cell.double()
    x, h = draw(2, I), draw(2, H, seed=3)
    with torch.no_grad():
        assert torch.equal(cell(x, h), long_way(cell, x, h))
    with torch.no_grad(), pytest.raises(RuntimeError, match="dtype"):
        cell(x.float(), h)


def test_what_is_not_plain_goes_the_long_way_and_is_right():
    cell = cell_of()
    x, h = draw(2, I).float(), draw(2, H, seed=3).float()
    apart = torch.empty(2, 2 * H)[:, ::2].copy_(h)
    negative = torch.complex(torch.zeros(1, 1), -torch.ones(1, 1)).conj().imag  # 1, lazily: dense, but -1 in memory
    assert negative.is_neg()
    assert negative.is_contiguous()
    one = lively(goru.GORUCell(1, H))
    many = draw(UNPACKED_ROWS + 1, I).float(), draw(UNPACKED_ROWS + 1, H).float()
    none = torch.zeros(0, I), torch.zeros(0, H)
    for module, a, b in [(cell, x, apart), (one, negative, h[:1]), (cell, *many), (cell, *none)]:
        with torch.no_grad():
            result = module(a, b)
        assert torch.equal(result, long_way(module, a.resolve_neg(), b.contiguous()))


@pytest.mark.parametrize(
    ("x", "h"),
    [
        (torch.zeros(2, I + 1), torch.zeros(2, H)),
        (torch.zeros(2, I), torch.zeros(2, H + 1)),
        (torch.zeros(2, I), torch.zeros(3, H)),
        (torch.zeros(2, I), torch.zeros(H)),
        (torch.zeros(I), torch.zeros(1, H)),
        (torch.zeros(1, 2, I), torch.zeros(1, 2, H)),
        (torch.zeros(2, I).double(), torch.zeros(2, H)),
        (torch.zeros(2, I), torch.zeros(2, H).double()),
        (torch.zeros(2, I, dtype=torch.int64), torch.zeros(2, H)),
        (torch.tensor(0.0), torch.tensor(0.0)),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}".removeprefix("torch."),
)
def test_wrong_input_says_the_same_with_and_without_gradients(x: Tensor, h: Tensor):
    cell = cell_of()
    with pytest.raises((RuntimeError, ValueError)) as wanted:
        cell(x, h)
    with torch.no_grad(), pytest.raises(type(wanted.value)) as got:
        cell(x, h)
    assert str(got.value) == str(wanted.value)


def test_other_backends_autocast_and_computed_parameters():
    cell = cell_of()
    x, h = draw(2, I).float(), draw(2, H, seed=3).float()
    with torch.no_grad(), goru.use_backend("manual"):
        cell(x, h)
        assert not prepared(cell)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert cell(x, h).dtype == torch.float32
        assert not prepared(cell)

    class Doubled(nn.Module):
        def forward(self, value: Tensor) -> Tensor:
            return 2 * value

    for name in ("bias", "angles", "weight_hh"):
        parametrize.register_parametrization(cell, name, Doubled())
        with torch.no_grad():
            assert torch.equal(cell(x, h), long_way(cell, x, h)), name


def test_functional_call():
    cell = cell_of()
    x, h = draw(2, I).float(), draw(2, H, seed=3).float()
    short_way(cell, x, h)
    other = {name: p.detach() * 1.5 for name, p in cell.named_parameters()}
    with torch.no_grad():
        result = torch.func.functional_call(cell, other, (x, h))
        again = cell(x, h)
    assert torch.equal(result, torch.func.functional_call(cell, other, (x, h)))
    assert torch.equal(again, long_way(cell, x, h))


def test_inference_mode_then_training():
    cell = cell_of()
    x, h = draw(2, I).float(), draw(2, H, seed=3).float()
    with torch.inference_mode():
        result = cell(x, h)
    assert result.is_inference()
    cell(x, h).sum().backward()
    assert cell.angles.grad is not None


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))], ids=["copy", "pickle"])
def test_copies_have_weights_of_their_own(twin: Callable[[Any], Any]):
    cell = cell_of()
    x, h = draw(2, I).float(), draw(2, H, seed=3).float()
    first = short_way(cell, x, h)
    other = twin(cell)
    assert not prepared(other)
    with torch.no_grad():
        other.bias.fill_(0.5)
        assert torch.equal(cell(x, h), first)
        assert torch.equal(other(x, h), long_way(other, x, h))


@pytest.mark.parametrize("kind", [goru.GORUCell, goru.GRUCell, goru.LSTMCell])
def test_threads_that_share_a_cell(kind: Any):
    cell = kind(I, 64)
    xs = [draw(4, I, seed=k).float() for k in range(4)]
    h: Any = draw(4, 64).float()
    h = (h, h) if kind is goru.LSTMCell else h
    expected = [long_way(cell, x, h) for x in xs]
    wrong: list[int] = []

    def steps(k: int) -> None:
        with torch.no_grad():
            wrong.extend(k for _ in range(500) if not equal(cell(xs[k], h), expected[k]))

    threads = [threading.Thread(target=steps, args=(k,)) for k in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
