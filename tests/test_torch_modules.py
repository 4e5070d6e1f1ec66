"""PyTorch's own module tests, pointed at this library: samples and errors of nn.GRU, nn.LSTM and their cells."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import goru

LIKE: dict[str, tuple[Any, Any]] = {
    "GORU": (goru.GORU, nn.GRU),
    "EURNN": (lambda *args, **kwargs: goru.EURNN(*args, complex=False, **kwargs), nn.GRU),
    "GORUCell": (goru.GORUCell, nn.GRUCell),
    "EURNNCell": (lambda *args, **kwargs: goru.EURNNCell(*args, complex=False, **kwargs), nn.GRUCell),
    "GRU": (goru.GRU, nn.GRU),
    "GRUCell": (goru.GRUCell, nn.GRUCell),
    "LSTM": (goru.LSTM, nn.LSTM),
    "LSTMCell": (goru.LSTMCell, nn.LSTMCell),
}
# Arguments of nn.RNNCell alone, which its cells' list of errors shares with nn.GRUCell.
NONLINEARITIES = {"relu", "tanh"}


def entry(theirs: Any) -> Any:
    return next(info for info in module_db if info.module_cls is theirs)


def samples(theirs: Any, dtype: torch.dtype = torch.float64) -> list[Any]:
    info = entry(theirs)
    torch.manual_seed(0)  # modReLU has a kink: numbers that change would be close to it once in a while
    made = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=False)
    return [sample for sample in made if not sample.constructor_input.kwargs.get("proj_size")]  # goru.LSTM has none


def errors(theirs: Any) -> list[Any]:
    info = entry(theirs)
    return list(
        info.module_error_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=False, training=False)
    )


def tensors(result: Any) -> list[Tensor]:
    """Of a result as torch's modules give it."""
    if isinstance(result, PackedSequence):
        return [result.data]
    return [result] if isinstance(result, Tensor) else [t for part in result for t in tensors(part)]


def cases(make: Any) -> list[Any]:
    return [
        pytest.param(ours, sample, id=f"{name}-{number}")
        for name, (ours, theirs) in LIKE.items()
        for number, sample in enumerate(make(theirs))
    ]


def build(ours: Any, sample: Any) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    constructor, forward = sample.constructor_input, sample.forward_input
    return ours(*constructor.args, **constructor.kwargs).double(), forward.args, forward.kwargs


@pytest.mark.parametrize(("ours", "sample"), cases(samples))
def test_samples(ours: Any, sample: Any) -> None:
    """Forward, the reference that torch gives for the sample, copies and the representation."""
    module, args, kwargs = build(ours, sample)
    found = module(*args, **kwargs)
    if sample.reference_fn is not None:
        expected = sample.reference_fn(module, *args, **kwargs)
        torch.testing.assert_close(tensors(found), tensors(expected))
    torch.testing.assert_close(tensors(copy.deepcopy(module)(*args, **kwargs)), tensors(found))
    assert str(module).startswith(type(module).__name__)


@pytest.mark.parametrize(("ours", "sample"), cases(samples))
def test_noncontiguous_tensors(ours: Any, sample: Any) -> None:
    module, args, kwargs = build(ours, sample)
    spread = tree_map(lambda a: torch.stack([a.detach(), a.detach()], -1)[..., 0].requires_grad_(), args)
    found, expected = tensors(module(*spread, **kwargs)), tensors(module(*args, **kwargs))
    torch.testing.assert_close(found, expected)
    wanted = list(module.parameters())
    sums = [torch.stack([t.pow(2).sum() for t in results]).sum() for results in (found, expected)]
    torch.testing.assert_close(
        torch.autograd.grad(sums[0], [*tensors(spread), *wanted]),
        torch.autograd.grad(sums[1], [*tensors(args), *wanted]),
    )


@pytest.mark.parametrize(("ours", "sample"), [case for case in cases(samples) if "-0" in case.id or "-1" in case.id])
@pytest.mark.parametrize("order", ["grad", pytest.param("gradgrad", marks=pytest.mark.soak)])
def test_gradients(ours: Any, sample: Any, order: str) -> None:
    """As torch checks them: batched gradients too, and second derivatives."""
    module, args, kwargs = build(ours, sample)
    flat, layout = tree_flatten(args)
    names = [name for name, _ in module.named_parameters()]
    # No positive b_h: modReLU without its jump at 0.
    start = [(-p.abs() if n.startswith("bias") else p).detach().requires_grad_() for n, p in module.named_parameters()]

    def run(*tensors_given: Tensor) -> tuple[Tensor, ...]:
        given = tree_unflatten(list(tensors_given[: len(flat)]), layout)
        parameters = tensors_given[len(flat) :]
        named = dict(zip(names, parameters, strict=True))
        return tuple(tensors(torch.func.functional_call(module, named, given, kwargs)))

    if order == "grad":
        assert torch.autograd.gradcheck(run, (*flat, *start), check_batched_grad=True)
    else:
        assert torch.autograd.gradgradcheck(run, (*flat, *start))


@pytest.mark.parametrize(("ours", "sample"), cases(errors))
def test_errors(ours: Any, sample: Any) -> None:
    constructor = sample.module_error_input.constructor_input
    if NONLINEARITIES & {a for a in constructor.args if isinstance(a, str)}:
        pytest.skip("the third argument of nn.RNNCell; here, as in nn.GRUCell, it is `bias`")
    if sample.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
        with pytest.raises(sample.error_type, match=sample.error_regex):
            ours(*constructor.args, **constructor.kwargs)
        return
    forward = sample.module_error_input.forward_input
    module = ours(*constructor.args, **constructor.kwargs)
    with pytest.raises(sample.error_type, match=sample.error_regex):
        module(*forward.args, **forward.kwargs)
