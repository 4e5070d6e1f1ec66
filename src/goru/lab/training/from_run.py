"""`goru run --from-run`: continue a run that has the same settings but fewer steps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from torch import Tensor

from goru.lab.errors import LabError
from goru.lab.training.checks import check_metrics
from goru.lab.training.config import RunConfig, differences
from goru.lab.training.run_directory import RunDirectory, finished, has_begun, hold, read_config, read_metrics
from goru.lab.training.state import planned_steps
from goru.lab.untrusted import read_json


def begin_from(earlier: Path, config: RunConfig, runs: Path) -> None:
    """Prepare the directory of `config` to resume from the last checkpoint of the run in `earlier`.

    The run ends with the same bits as one that did all steps itself. So only the number of steps or epochs may differ,
    and no step may have depended on that number. A run that has already begun is not changed.
    """
    if has_begun(config.directory(runs)):
        return
    try:
        tensors, position, lines = _first_steps(earlier, config)
        environment = read_json(earlier / "environment.json") or {}
        if not isinstance(environment, dict):
            raise LabError("its environment.json is not an object.")
    except LabError as error:
        raise LabError(f"cannot continue from {earlier}: {error}") from None
    with hold(config, runs) as run:
        # The checkpoint is written last: without it, the same command repeats all of this.
        run.write_json("environment.json", environment)
        run.cut_metrics(0)
        for line in lines:
            run.append(line)
        run.save_checkpoint(tensors, position)


def _first_steps(earlier: Path, config: RunConfig) -> tuple[dict[str, Tensor], dict[str, Any], list[dict[str, Any]]]:
    """Tensors, position and metrics of a run whose steps are the first steps of `config`."""
    there = read_config(earlier)
    if there is None:
        raise LabError("it has no config.json; name the directory of a run, runs/EXPERIMENT/VARIANT/MODEL/seedN.")
    same = dataclasses.replace(there, variant=config.variant, steps=config.steps, epochs=config.epochs)
    if same != config:
        raise LabError(f"only the number of steps or epochs may differ ({differences(same, config)}).")
    if config.optimizer.schedule != "constant":
        raise LabError("its learning rates depended on the number of steps (--schedule linear).")
    finished(earlier)  # if so, its files are as it wrote them
    saved = RunDirectory(earlier, there).load_checkpoint(change=False)
    if saved is None:
        raise LabError("it has no checkpoint.")
    tensors, position = saved
    last_step, eval_every = planned_steps(config, config.task.problem(config.seed, config.batch))
    if position["step"] > last_step:
        raise LabError(f"it is at step {position['step']} already, of {last_step} wanted.")
    lines = read_metrics(earlier, position["metrics_bytes"])
    check_metrics(earlier / "metrics.jsonl", lines)
    lines[0]["last_step"] = last_step
    extra = [line["step"] for line in lines if "loss" not in line and line["step"] % eval_every]
    if extra:
        raise LabError(f"it was evaluated at its end, step {extra[0]}, where a longer run is not.")
    return tensors, position, lines
