"""The one training loop. It knows no experiment by name: configuration in, run directory out."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goru.lab.errors import LabError, RunInterruptedError
from goru.lab.networks import count_parameters, make_layer
from goru.lab.tasks.task import Problem
from goru.lab.training import environment
from goru.lab.training.config import RunConfig
from goru.lab.training.distributed import ALONE, Group, Onlooker
from goru.lab.training.memory import keep_memory
from goru.lab.training.optimizers import learning_rate, make_optimizer
from goru.lab.training.run_directory import RunDirectory, hold

CHECKPOINT_SECONDS = 30.0

Saved = tuple[dict[str, Tensor], dict[str, Any]]
"""A checkpoint: tensors and position."""


@dataclass
class Position:
    """Where a run stands; stored in the checkpoint's header."""

    step: int = 0
    seconds: float = 0.0
    """Working time of all attempts, as far as it was kept."""
    metrics_bytes: int = 0
    """Length of metrics.jsonl at the checkpoint."""
    loss_sum: float = 0.0
    """Training losses since the last logged line."""
    loss_count: int = 0
    best_score: float | None = None
    best_step: int = 0
    waited: int = 0
    """Evaluations since the best one."""


class Training:
    """Everything that changes while a run trains, and nothing else."""

    def __init__(self, config: RunConfig, group: Group = ALONE) -> None:
        keep_memory()
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        self.config, self.group = config, group
        self.problem = config.task.problem(config.seed, config.batch)
        if config.patience and "valid" not in self.problem.watched:
            raise LabError("--patience has no effect where there is no validation set: leave it away.")
        device = _device(config)
        try:
            self.network = self.problem.network(lambda size: make_layer(config.layer, size)).to(device)
            self.optimizer = make_optimizer(config.optimizer, self.network)
        except ValueError as error:  # a layer that cannot be, such as a capacity without a tunable mesh
            raise LabError(f"these settings do not fit together: {str(error).rstrip('.')}.") from None
        self.parallel = group.parallel(self.network)
        self.carry: list[Tensor] = []
        self.best: dict[str, Tensor] = {}
        self.position = Position()
        self.last_step, self.eval_every = planned_steps(config, self.problem)

    def learn(self, batch: Any) -> float:
        """One optimisation step on a batch; returns its loss."""
        part, share = self.group.part(batch, self.problem.weight)
        loss, carry = self.problem.loss(self.parallel, part, self.carry)
        self.optimizer.zero_grad(set_to_none=True)
        with self.group.linked():
            # The processes' gradients are averaged, their losses should be added.
            (loss if self.group.size == 1 else loss * (share * self.group.size)).backward()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config.optimizer, self.position.step, self.last_step)
        self.optimizer.step()
        self.carry = [state.detach() for state in carry]
        self.position.step += 1
        return self.group.sums(share * loss.item())[0]

    @torch.no_grad()
    def evaluate(self, splits: tuple[str, ...]) -> dict[str, float]:
        """Scores of the current parameters: `test_loss`, `test_accuracy`, ..."""
        self.network.eval()
        scores = {}
        for split in splits:
            for name, value in self.problem.evaluate(self.network, split).items():
                scores[f"{split}_{name}"] = value
        self.network.train()
        return scores

    def remember_best(self, scores: dict[str, float]) -> None:
        """Keep the parameters if the task prefers these scores to all before."""
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
        for name, parameter in self.network.named_parameters():
            if name in self.best:
                parameter.copy_(self.best[name])

    @property
    def finished(self) -> bool:
        tired = bool(self.config.patience) and self.position.waited >= self.config.patience
        return tired or self.position.step >= self.last_step

    def tensors(self) -> dict[str, Tensor]:
        """All state as named tensors, the same for any number of processes."""
        named = {f"parameter/{name}": p.detach() for name, p in self.network.named_parameters()}
        named |= {f"buffer/{name}": b for name, b in self.network.named_buffers()}
        named |= {f"best/{name}": p for name, p in self.best.items()}
        named |= {f"carry/{k}": state for k, state in enumerate(self.group.gather(self.carry))}
        for number, state in self.optimizer.state_dict()["state"].items():
            named |= {f"optimizer/{number}/{key}": torch.as_tensor(value) for key, value in state.items()}
        named["random/torch"] = torch.get_rng_state()
        return {name: tensor.cpu().contiguous() for name, tensor in named.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        """The inverse of `tensors`; raises KeyError or ValueError when they do not fit."""
        for kind, targets in (
            ("parameter", self.network.named_parameters()),
            ("buffer", self.network.named_buffers()),
        ):
            for name, target in targets:
                source = tensors[f"{kind}/{name}"]
                if source.shape != target.shape or source.dtype != target.dtype:
                    raise ValueError(f"{name} has another shape or type")
                target.copy_(source)
        groups: dict[str, dict[str, Tensor]] = {"best": {}, "carry": {}, "optimizer": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind in groups:
                groups[kind][rest] = tensor
        self.best = {name: tensor.to(self.config.device) for name, tensor in groups["best"].items()}
        carry = [groups["carry"][str(k)].to(self.config.device) for k in range(len(groups["carry"]))]
        self.carry = self.group.scatter(carry)
        state: dict[int, dict[str, Tensor]] = {}
        for path, tensor in groups["optimizer"].items():
            number, _, key = path.partition("/")
            state.setdefault(int(number), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        torch.set_rng_state(tensors["random/torch"])
        self.position = Position(**position)


def planned_steps(config: RunConfig, problem: Problem) -> tuple[int, int]:
    """The last step of a run, and the steps between evaluations."""
    per_epoch = problem.steps_per_epoch or 0
    last_step, eval_every = config.steps or config.epochs * per_epoch, config.eval_every or per_epoch
    if last_step < 1 or eval_every < 1 or config.log_every < 1:
        raise LabError("steps, log-every and eval-every should be at least 1 (0 only where there are epochs).")
    return last_step, eval_every


def train(
    config: RunConfig,
    runs: Path,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    engine: str = "local",
    stop: Callable[[], bool] = lambda: False,
    group: Group = ALONE,
) -> dict[str, Any]:
    """Run a configuration to its end, from its last checkpoint where there is one; returns the result.

    `stop` is asked after every step; when it says yes, a checkpoint is written and the run ends with
    RunInterruptedError.
    """
    with contextlib.ExitStack() as stack:
        run: RunDirectory = Onlooker(config.directory(runs), config)

        def begin() -> tuple[dict[str, Any] | None, Saved | None]:
            nonlocal run
            run = stack.enter_context(hold(config, runs))
            result = run.result()
            return result, run.load_checkpoint() if result is None else None

        result, saved = group.from_first(begin)
        return result if result is not None else _run(config, run, saved, checkpoint_seconds, engine, stop, group)


def _run(
    config: RunConfig,
    run: RunDirectory,
    saved: Saved | None,
    checkpoint_seconds: float,
    engine: str,
    stop: Callable[[], bool],
    group: Group,
) -> dict[str, Any]:
    training = Training(config, group)
    if saved is not None:
        try:
            training.restore(*saved)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise group.same_everywhere(run._unusable(f"does not fit this network ({error})")) from None
    position = training.position
    run.cut_metrics(position.metrics_bytes)
    run.write_json("environment.json", environment.describe(run.path, config, engine, position.step, group.size))

    started = time.monotonic() - position.seconds
    last_saved = last_logged = time.monotonic()

    def save() -> None:
        position.seconds = time.monotonic() - started
        position.metrics_bytes = run.metrics_bytes
        # A loss can be the last finite one: parameters that no longer are must not replace good ones.
        if all(bool(p.isfinite().all()) for p in training.network.parameters()):
            run.save_checkpoint(training.tensors(), dataclasses.asdict(position))

    def evaluate(**more: float) -> None:
        scores = group.from_first(lambda: training.evaluate(training.problem.watched))
        training.remember_best(scores)
        run.append({"step": position.step, **more, **scores, "seconds": time.monotonic() - started})

    if position.step == 0:
        evaluate(last_step=training.last_step, baseline=training.problem.baseline())
    while not training.finished:
        loss = training.learn(training.problem.batch(position.step))
        if not math.isfinite(loss):
            raise group.same_everywhere(_diverged(run, position.step, loss))
        position.loss_sum += loss
        position.loss_count += 1
        now = time.monotonic()
        if position.step % config.log_every == 0:
            run.append(
                {
                    "step": position.step,
                    "loss": position.loss_sum / position.loss_count,
                    "seconds": now - started,
                    "steps_per_s": position.loss_count / max(now - last_logged, 1e-9),
                }
            )
            position.loss_sum, position.loss_count = 0.0, 0
            last_logged = now
        if position.step % training.eval_every == 0 or position.step == training.last_step:
            evaluate()
            last_logged += time.monotonic() - now
        asked, due = group.sums(stop(), time.monotonic() - last_saved >= checkpoint_seconds)
        if asked:
            save()
            stopped = f"stopped at step {position.step} of {training.last_step}."
            raise group.same_everywhere(RunInterruptedError(stopped))
        if due:
            save()
            last_saved = time.monotonic()
    save()
    return group.from_first(lambda: _finish(config, run, training, time.monotonic() - started))


def _device(config: RunConfig) -> torch.device:
    try:
        device = torch.device(config.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise LabError(f"--device {config.device} cannot be used here ({said}); try --device cpu.") from None
    return device


def _diverged(run: RunDirectory, step: int, loss: float) -> LabError:
    kept = "no checkpoint yet" if run.checkpoint_step is None else f"step {run.checkpoint_step} is kept"
    return LabError(f"the loss became {loss} at step {step} of {run.path} ({kept}); try a smaller --lr.")


def _finish(config: RunConfig, run: RunDirectory, training: Training, seconds: float) -> dict[str, Any]:
    training.take_best()
    final = training.evaluate(training.problem.final)
    with torch.no_grad():
        training.network.eval()
        figure = training.problem.figure(training.network)
    if figure is not None:
        run.write_json("figure.json", figure)
    digest = hashlib.sha256()
    for _, parameter in sorted(training.network.named_parameters()):
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    position = training.position
    result = {
        "experiment": config.experiment,
        "variant": config.variant,
        "model": config.model,
        "seed": config.seed,
        "step": position.step,
        "best_step": position.best_step if training.best else position.step,
        "final": final,
        "baseline": training.problem.baseline(),
        "about": training.problem.about(),
        **count_parameters(training.network),
        "parameters_sha256": digest.hexdigest(),
        "total_seconds": seconds,
        "steps_per_s": position.step / seconds,
        "finished_time": time.time(),
    }
    if not all(math.isfinite(value) for value in final.values()):
        raise LabError(f"the final scores of {run.path} are not finite: {final}; try a smaller --lr.")
    run.write_json("result.json", result)
    return result
