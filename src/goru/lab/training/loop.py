"""The one training loop. It names no experiment: configuration in, run directory out."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from goru.lab.errors import LabError, RunEndedError, RunInterruptedError
from goru.lab.networks import count_parameters
from goru.lab.training import environment
from goru.lab.training.checkpoints import Checkpoint
from goru.lab.training.config import RunConfig
from goru.lab.training.from_run import begin_from
from goru.lab.training.run_directory import CHECKPOINT_SECONDS, RunDirectory, check_free, finished, has_begun, hold
from goru.lab.training.state import Training

T = TypeVar("T", bound=Training)


def train(
    config: RunConfig,
    runs: Path,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    engine: str = "local",
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[int], None] = lambda step: None,
    from_run: Path | None = None,
) -> dict[str, Any]:
    """Run a configuration to its end, from its last checkpoint if there is one; returns the result.

    `stop` is called after every step; when it returns True, a checkpoint is written and the run ends with
    RunInterruptedError. `started` is called once, with the step that the run continues from, but not for a run that
    is refused or finished. `from_run` is a shorter run to continue. (`distributed.train` does the same with several
    processes.)
    """
    prepared = prepare(config, runs, Training, from_run)
    with hold(config, runs) as run:
        if (result := finished(run.path)) is not None:
            return result
        saved = run.load_checkpoint()
        with enough_memory():
            training = prepared or Training(config)
            begin(training, run, saved, engine)
            started(training.position.step)
            loop(training, run, checkpoint_seconds, stop)
            return finish(training, run)


def prepare(config: RunConfig, runs: Path, make: Callable[[RunConfig], T], from_run: Path | None) -> T | None:
    """The training of a configuration; None for a finished run.

    Everything that can be refused is refused here, before anything is written; the steps of `from_run` come last.
    """
    directory = config.directory(runs)
    check_free(config, runs)
    if (directory / "result.json").exists():
        return None
    begun = directory if has_begun(directory) else from_run
    with enough_memory():
        training = make(config)
        environment.check_kernels(training.network, begun)
        if from_run is not None:
            begin_from(from_run, config, runs)
    return training


@contextlib.contextmanager
def enough_memory() -> Iterator[None]:
    """Turn a failed allocation into a LabError."""
    try:
        yield
    except (MemoryError, RuntimeError, ValueError) as error:
        if not isinstance(error, MemoryError) and not _TOO_LARGE.search(str(error)):
            raise
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "out of memory"
        reason = reason if len(reason) <= 200 else f"{reason[:200]}..."
        message = f"there is not enough memory for this run ({reason}); try a smaller --batch or smaller sizes."
        raise LabError(message) from None


_TOO_LARGE = re.compile(
    "(not enough|out of|can't allocate) memory|size calculation overflowed|array is too big|"
    "Maximum allowed (dimension|size) exceeded"
)
"""What torch and NumPy say of an array that is too large; a failed allocation is not always a MemoryError."""


def begin(training: Training, run: RunDirectory, saved: Checkpoint | None, engine: str, processes: int = 1) -> None:
    """Restore the last checkpoint, and write environment.json."""
    if saved is not None:
        try:
            training.restore(*saved)
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise run.unusable_checkpoint(f"does not fit this network ({error})") from None
    described = environment.describe(run, training.network, engine, training.position, processes)
    run.cut_metrics(training.position.metrics_bytes)
    run.write_json("environment.json", described)


def loop(training: Training, run: RunDirectory, checkpoint_seconds: float, stop: Callable[[], bool]) -> None:
    """Train to the last step, or until out of patience or below `stop_below`: learn, log, evaluate, save."""
    config, problem, position = training.config, training.problem, training.position
    started = time.monotonic() - position.seconds
    last_saved = last_logged = time.monotonic()

    def save() -> None:
        position.seconds = time.monotonic() - started
        # The last loss can be finite and the parameters not: they must not replace good ones.
        if training.finite:
            run.save_checkpoint(training.tensors(), dataclasses.asdict(position))

    def evaluate(**more: float) -> None:
        scores = training.evaluate()
        training.remember_best(scores)
        position.reached = scores.get("test_loss", math.inf) < config.stop_below * problem.baseline()
        run.append({"step": position.step, **more, **scores, "seconds": time.monotonic() - started})

    if position.step == 0:
        evaluate(last_step=training.last_step, baseline=problem.baseline())
    while not training.finished:
        loss = training.learn(problem.batch(position.step))
        if not math.isfinite(loss):
            saved = "no checkpoint yet" if run.checkpoint_step is None else f"step {run.checkpoint_step} is saved"
            where = f"step {position.step} of {run.path} ({saved})"
            raise RunEndedError(f"the loss became {loss} at {where}; try a smaller --lr.")
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
        stopping, due = training.agree(stop(), time.monotonic() - last_saved >= checkpoint_seconds)
        if stopping:
            save()
            raise RunInterruptedError(f"stopped at step {position.step} of {training.last_step}.")
        if due:
            save()
            last_saved = time.monotonic()
    save()


def finish(training: Training, run: RunDirectory) -> dict[str, Any]:
    """Score the best parameters, write the figure's data and the result."""
    config, problem, position = training.config, training.problem, training.position
    training.take_best()
    final = training.scores(problem.final)
    if (figure := training.figure()) is not None:
        run.write_json("figure.json", figure)
    digest = hashlib.sha256()
    for _, parameter in sorted(training.network.named_parameters()):
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    result = {
        "experiment": config.experiment,
        "variant": config.variant,
        "model": config.model,
        "seed": config.seed,
        "step": position.step,
        "best_step": position.best_step if training.best else position.step,
        "final": final,
        "baseline": problem.baseline(),
        "about": problem.about(),
        **count_parameters(training.network),
        "parameters_sha256": digest.hexdigest(),
        "total_seconds": position.seconds,
        "steps_per_s": position.step / max(position.seconds, 1e-9),
        "finished_time": time.time(),
    }
    if not all(math.isfinite(value) for value in final.values()):
        raise LabError(f"the final scores of {run.path} are not finite: {final}; try a smaller --lr.")
    run.write_result(result)
    return result
