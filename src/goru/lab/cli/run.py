"""`goru run`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from goru.lab import paper
from goru.lab.cli.parse import OptionalPath, Runs, allow_other_kernels, default_runs, given, parse
from goru.lab.errors import LabError, RunBusyError, RunInterruptedError, UsageError
from goru.lab.training.config import RunConfig, check_used, from_json, plain_name
from goru.lab.training.run_directory import CHECKPOINT_SECONDS, check_siblings
from goru.lab.untrusted import read_bytes


@dataclass(frozen=True)
class Options:
    """Train one model on one experiment, or resume from its last checkpoint.

    Every field of the configuration is an option; changed settings get their own variant (folder).
    `--variant` starts from one of the listed settings (`goru show EXPERIMENT`), or names yours; `--quick` starts from
    the small version; `--config FILE` instead of EXPERIMENT reads a run's config.json.
    """

    config: RunConfig
    runs: Runs
    from_run: OptionalPath = None
    """Continue this run, which has the same settings but fewer steps or epochs (constant learning rate)."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    """Seconds between checkpoints; the results do not depend on it."""
    data_dir: OptionalPath = None
    """Folder to search first for data sets."""
    other_kernels: bool = False
    """Continue a run that started with another backend or instruction set; environment.json says so."""
    processes: int = 1
    """Number of processes on this machine that share the batches; for several machines use torchrun."""


def main(argv: list[str], console: Console) -> int:
    options, config = chosen(argv)
    directory = config.directory(options.runs)
    allow_other_kernels(options.other_kernels)
    if options.processes != 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
        return _launch(options, config, argv)
    console.quiet = os.environ.get("RANK", "0") != "0"  # with several processes (torchrun), only the first one prints
    finished = (directory / "result.json").exists()
    from goru.lab.engines.display import Display
    from goru.lab.engines.local import Job
    from goru.lab.training import distributed, loop
    from goru.lab.training.signals import StopOnSignal

    job = Job(config, directory, state="running")
    with (
        distributed.joined(config.device, config.batch) as group,
        StopOnSignal(signal.SIGINT, signal.SIGTERM) as stop,
        contextlib.ExitStack() as shown,
    ):
        display = Display([job] if group is None or group.first else [], console)

        def started(step: int) -> None:
            """Nothing is printed before this: a refused run prints only the reason."""
            console.print(_cost(config, step), soft_wrap=True)
            shown.enter_context(display)

        def refresh_and_stop() -> bool:
            display.refresh()
            return stop()

        train = loop.train if group is None else functools.partial(distributed.train, group=group)
        times = {"checkpoint_seconds": options.checkpoint_seconds, "from_run": options.from_run}
        try:
            result = train(config, options.runs, stop=refresh_and_stop, started=started, **times)
            job.state = "finished"
        except RunInterruptedError as error:
            job.state = "stopped"
            again = ["goru", "run", "--config", str(directory / "config.json"), "--runs", str(options.runs)]
            again += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
            raise RunInterruptedError(f"{error} To continue: {shlex.join(again)}") from None
        except LabError as error:
            job.state = "busy" if isinstance(error, RunBusyError) else "failed"
            raise
    if finished:
        console.print(f"{directory} is already finished.")
    scores = ", ".join(f"{name} {value:.4f}" for name, value in result["final"].items())
    console.print(f"{scores} (baseline {result['baseline']:.4f}); {directory}")
    return 0


def _cost(config: RunConfig, step: int) -> str:
    """The remaining work, in steps and, if steps of this size were measured, in time."""
    one = paper.experiment(config.experiment)
    steps = one.steps_of(config)
    text = f"{config.epochs} epochs" if not config.steps else f"{steps} steps"
    text += f", {step} of them done" if step and config.steps else ""
    minutes = (steps - step) * one.step_seconds(config) / 60 if one.is_measured(config) else 0.0
    if not minutes:
        return f"{text}; the cost was not measured at these sizes."
    many = round(minutes)
    about = "less than a minute" if minutes < 1 else f"about {many} minute{'s' if many > 1 else ''}"
    small = "" if paper.split_variant(config.variant)[0] else "; the small version: --quick"
    return f"{text}, {about} on one core{small}."


def _launch(options: Options, config: RunConfig, argv: list[str]) -> int:
    n = options.processes
    if n < 1:
        raise UsageError(f"--processes should be at least 1; got {n}.")
    if n > config.batch:
        raise UsageError(f"--processes {n} needs at least {n} rows in a batch; --batch is {config.batch}.")
    from goru.lab.training import loop
    from goru.lab.training.distributed import DistributedTraining
    from goru.lab.training.launch import launch

    loop.prepare(config, options.runs, DistributedTraining, options.from_run)  # a refused run starts no processes
    return launch(options.processes, ["run", *argv])


def chosen(argv: list[str]) -> tuple[Options, RunConfig]:
    """The options of a command line, and the run that they describe."""
    base, rest = base_config(argv)
    defaults = Options(base, default_runs())
    more = ("--quick", "--config")
    options = parse(Options, "run EXPERIMENT", rest, defaults, shown=f"run {base.experiment}", more=more)
    config = options.config
    if (config.experiment, config.model) != (base.experiment, base.model):
        raise UsageError("give the experiment first and --model once: goru run EXPERIMENT --model MODEL ...")
    from goru.lab.cli import data
    from goru.lab.data import store

    store.search_first(options.data_dir)
    for reason in data.missing([config]).values():
        raise LabError(reason)
    check_used(config, base, given(rest))
    if "--memory" not in given(rest):
        config = paper.experiment(config.experiment).following(config, base)
    return options, _named(config, base, options.runs)


def _named(config: RunConfig, base: RunConfig, runs: Path) -> RunConfig:
    """The configuration named after its settings, or with the given name if no other settings have it."""
    one = paper.experiment(config.experiment)
    kind, _ = paper.split_variant(config.variant)
    if config.variant == base.variant and config != base:
        config = dataclasses.replace(config, variant=plain_name("variant", one.name_for(config, base)))
    elif config.variant != base.variant and kind and not one.has(config.variant):
        raise UsageError(
            f"--variant {config.variant}: names that begin with {kind}- are reserved for that kind of run."
        )
    if different := one.other_settings(config):
        message = f"{config.variant} names other settings of {one.name} ({different}): choose another --variant."
        raise UsageError(message)
    if not one.has(config.variant):
        check_siblings(config, runs)
    return config


def base_config(argv: list[str]) -> tuple[RunConfig, list[str]]:
    """The configuration that the options of `goru run` modify, and those options."""
    rest: list[str] = []
    chosen: dict[str, str] = {}
    quick = False
    words = iter(argv)
    for word in words:
        option, equals, value = word.partition("=")
        if option in ("--model", "--config", "--variant"):
            if option in chosen:
                raise UsageError(f"{option} is given twice.")
            chosen[option] = value if equals else next(words, "")
        elif word == "--quick":
            quick = True
        elif not word.startswith("-") and not rest and "experiment" not in chosen:
            chosen["experiment"] = word
        else:
            rest.append(word)
    variant = chosen.pop("--variant", None)
    own_name = [] if variant is None else ["--variant", variant]
    if "--config" in chosen:
        if len(chosen) > 1 or quick:
            raise UsageError("--config names a complete configuration: it excludes EXPERIMENT, --model and --quick.")
        content = read_bytes(Path(chosen["--config"]))
        if content is None:
            raise LabError(f"{chosen['--config']} does not exist.")
        return from_json(content, chosen["--config"]), rest + own_name
    if "experiment" not in chosen:
        if "--help" in rest or "-h" in rest:
            first = next(iter(paper.EXPERIMENTS.values()))
            return first.config(next(iter(first.models))), rest
        raise UsageError(f"name an experiment: {', '.join(paper.EXPERIMENTS)}.")
    one = paper.experiment(chosen["experiment"])
    model = chosen.get("--model") or next(iter(one.models))
    if variant is not None and one.has(variant):  # one of the listed settings, not a new name
        kind, _ = paper.split_variant(variant)
        return one.config(model, f"quick-{variant}" if quick and kind != "quick" else variant), rest
    return one.config(model, "quick" if quick else "paper"), rest + own_name
