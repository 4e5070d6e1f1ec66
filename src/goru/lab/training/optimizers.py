"""The optimizers: RMSProp as in TensorFlow (torch's differs early in training), Adam, and learning rates."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from goru.lab.training.config import OptimizerConfig


class TensorFlowRMSProp(torch.optim.Optimizer):
    """mean_square <- decay mean_square + (1 - decay) g^2;  p <- p - lr g / sqrt(mean_square + eps).

    The mean square starts at one (torch: at zero) and epsilon is inside the root (torch: outside).
    """

    # Torch wraps these so that torch.compile does not look into them, and imports its compiler at the first call:
    # 1.3 seconds of every process that trains. Nothing here is compiled.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

    def __init__(self, params: Iterable[Tensor], lr: float = 0.001, decay: float = 0.9, eps: float = 1e-10) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("this optimizer takes no closure")
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean_square"] = torch.ones_like(parameter)
                mean_square = state["mean_square"]
                mean_square.mul_(group["decay"]).addcmul_(gradient, gradient, value=1 - group["decay"])
                parameter.addcdiv_(gradient, (mean_square + group["eps"]).sqrt_(), value=-group["lr"])
        return None


def make_optimizer(config: OptimizerConfig, network: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a configuration over all parameters of a network."""
    if config.rule == "adam":
        return torch.optim.Adam(network.parameters(), lr=config.lr, foreach=True)
    return TensorFlowRMSProp(network.parameters(), lr=config.lr, decay=config.decay)


MOST_COUNTED = 2**24
"""Adam counts its steps in single precision: here it stops."""


def state_after(config: OptimizerConfig, parameter: Tensor, step: int) -> dict[str, Tensor]:
    """Tensors of the shapes and types that the optimizer keeps for a parameter; Adam's count of steps as it is."""
    if config.rule == "adam":
        count = torch.tensor(float(min(step, MOST_COUNTED)))
        return {"step": count, "exp_avg": parameter, "exp_avg_sq": parameter}
    return {"mean_square": parameter}


def learning_rate(config: OptimizerConfig, step: int, last_step: int) -> float:
    """The learning rate of a step (the first is 0) in a run that plans `last_step` of them."""
    return config.lr if config.schedule == "constant" else config.lr * (1 - step / last_step)
