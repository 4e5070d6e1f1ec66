"""Everything that changes while a run trains: parameters, optimizer, carried states, position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from goru.lab.cells import make_layer
from goru.lab.errors import LabError, printable
from goru.lab.tasks.task import Problem
from goru.lab.training.allocator import reuse_memory
from goru.lab.training.checkpoints import Position
from goru.lab.training.config import RunConfig
from goru.lab.training.optimizers import learning_rate, make_optimizer, state_after


class Training:
    """A network in training.

    A run over several processes (`distributed.py`) overrides `learn`, `evaluate`, `agree` and the two methods for
    carried states.
    """

    def __init__(self, config: RunConfig) -> None:
        reuse_memory()
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        self.config = config
        self.problem = config.task.problem(config.seed, config.batch)
        if config.patience and "valid" not in self.problem.tracked:
            raise LabError("--patience has no effect without a validation set: remove it.")
        if config.stop_below and "test" not in self.problem.tracked:
            raise LabError("--stop-below has no effect if the test set is not scored during training: remove it.")
        device = device_of(config)
        try:
            self.network = self.problem.network(lambda size: make_layer(config.layer, size)).to(device)
            self.optimizer = make_optimizer(config.optimizer, self.network)
        except ValueError as error:  # an invalid layer, such as a capacity without a tunable mesh
            raise LabError(f"these settings do not fit together: {str(error).rstrip('.')}.") from None
        self.carry: list[Tensor] = []
        self.best: dict[str, Tensor] = {}
        self.position = Position()
        self.last_step, self.eval_every = planned_steps(config, self.problem)

    def learn(self, batch: Any) -> float:
        """One optimization step on a batch; returns its loss."""
        loss, carry = self.problem.loss(self.network, batch, self.carry)
        self.update(loss)
        self.carry = [state.detach() for state in carry]
        return loss.item()

    def update(self, loss: Tensor) -> None:
        """One optimizer step on the gradient of a loss."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config.optimizer, self.position.step, self.last_step)
        self.optimizer.step()
        self.position.step += 1

    def evaluate(self) -> dict[str, float]:
        """Scores of the current parameters on the sets that are scored during training."""
        return self.scores(self.problem.tracked)

    @torch.no_grad()
    def scores(self, splits: tuple[str, ...]) -> dict[str, float]:
        """Scores of the current parameters: `test_loss`, `test_accuracy`, ..."""
        self.network.eval()
        scores = {}
        for split in splits:
            for name, value in self.problem.evaluate(self.network, split).items():
                scores[f"{split}_{name}"] = value
        self.network.train()
        return scores

    @torch.no_grad()
    def figure(self) -> dict[str, Any] | None:
        """Data for figures beyond the scores."""
        self.network.eval()
        return self.problem.figure(self.network)

    def remember_best(self, scores: dict[str, float]) -> None:
        """Store the parameters if these scores are the best so far."""
        score = self.problem.score(scores)
        if score is None:
            return
        if self.position.best_score is None or score < self.position.best_score:
            self.position.best_score, self.position.best_step = score, self.position.step
            self.position.waited = 0
            self.best = {name: p.detach().clone() for name, p in self.network.named_parameters()}
        else:
            self.position.waited += 1

    @torch.no_grad()
    def take_best(self) -> None:
        """Restore the best parameters, if the task selects them."""
        for name, parameter in self.network.named_parameters():
            if name in self.best:
                parameter.copy_(self.best[name])

    @property
    def finished(self) -> bool:
        out_of_patience = bool(self.config.patience) and self.position.waited >= self.config.patience
        return out_of_patience or self.position.reached or self.position.step >= self.last_step

    @property
    def finite(self) -> bool:
        """Whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self.network.parameters())

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Which of these are true in this or any other process of the run."""
        return wishes

    def all_carried(self) -> list[Tensor]:
        """The carried states of all rows of a batch."""
        return self.carry

    def own_carried(self, states: list[Tensor]) -> list[Tensor]:
        """This process's part of the carried states."""
        return states

    def tensors(self) -> dict[str, Tensor]:
        """The whole state as named tensors, independent of the number of processes."""
        named = self._named(self.best, self.all_carried(), self.optimizer.state_dict()["state"])
        return {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}

    def _named(
        self, best: dict[str, Tensor], carry: list[Tensor], optimizer: dict[int, dict[str, Any]]
    ) -> dict[str, Tensor]:
        """The tensors of a checkpoint by name."""
        named: dict[str, Tensor] = {f"parameter/{name}": p for name, p in self.network.named_parameters()}
        named |= {f"buffer/{name}": b for name, b in self.network.named_buffers()}
        named |= {f"best/{name}": p for name, p in best.items()}
        named |= {f"carry/{k}": state for k, state in enumerate(carry)}
        for number, state in optimizer.items():
            named |= {f"optimizer/{number}/{key}": torch.as_tensor(value) for key, value in state.items()}
        return named | {"random/torch": torch.get_rng_state()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        """The inverse of `tensors`; raises ValueError, and changes nothing, if they are not exactly those expected."""
        if not 1 <= position["step"] <= self.last_step:
            raise ValueError(f"it is at step {position['step']}, the last one is {self.last_step}")
        self._check(tensors, self._expected(position))
        groups: dict[str, dict[str, Tensor]] = {"parameter": {}, "buffer": {}, "best": {}, "carry": {}}
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "optimizer":
                number, _, key = rest.partition("/")
                state.setdefault(int(number), {})[key] = tensor
            elif kind in groups:
                groups[kind][rest] = tensor
        torch.set_rng_state(tensors["random/torch"])
        for name, parameter in self.network.named_parameters():
            parameter.copy_(groups["parameter"][name])
        for name, buffer in self.network.named_buffers():
            buffer.copy_(groups["buffer"][name])
        self.best = {name: tensor.to(self.config.device) for name, tensor in groups["best"].items()}
        carry = [groups["carry"][str(k)].to(self.config.device) for k in range(len(groups["carry"]))]
        self.carry = self.own_carried(carry)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.position = Position(**position)

    def _expected(self, position: dict[str, Any]) -> dict[str, Tensor]:
        """Tensors with the names, shapes and types of a checkpoint at a position."""
        parameters = dict[str, Tensor](self.network.named_parameters())
        _, carry = self.problem.loss(self.network, self.problem.batch(0), [])
        states = [state_after(self.config.optimizer, one, position["step"]) for one in parameters.values()]
        return self._named({} if position["best_score"] is None else parameters, carry, dict(enumerate(states)))

    @staticmethod
    def _check(tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
        for name in sorted(tensors.keys() ^ expected.keys()):
            raise ValueError(f"{printable(name):.60} is {'missing' if name in expected else 'one tensor too many'}")
        for name, like in expected.items():
            found = tensors[name]
            if found.shape != like.shape or found.dtype != like.dtype:
                raise ValueError(f"{name} has another shape or type")
            if name.endswith("/step") and name.startswith("optimizer/") and found != like:
                raise ValueError(f"{name} is {found.item()}")


def planned_steps(config: RunConfig, problem: Problem) -> tuple[int, int]:
    """The last step of a run, and the steps between evaluations."""
    per_epoch = problem.steps_per_epoch or 0
    last_step, eval_every = config.steps or config.epochs * per_epoch, config.eval_every or per_epoch
    if last_step < 1 or eval_every < 1 or config.log_every < 1:
        raise LabError("steps, log-every and eval-every should be at least 1 (or 0 if there are epochs).")
    return last_step, eval_every


def device_of(config: RunConfig) -> torch.device:
    try:
        device = torch.device(config.device)
        if device.type == "meta":
            raise RuntimeError("it holds no values")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise LabError(f"--device {config.device} cannot be used here ({reason}); try --device cpu.") from None
    return device
