"""The command `goru`: ls, show, run, reproduce, status, report, record, data, bench."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from goru.lab import paper
from goru.lab.cli import data as data_commands
from goru.lab.cli.data import DataOptions
from goru.lab.cli.options import (
    OPTIONS,
    BenchOptions,
    LsOptions,
    RecordOptions,
    ReportOptions,
    ReproduceOptions,
    RunOptions,
    ShowOptions,
    StatusOptions,
    default_runs,
)
from goru.lab.data import look_first_in
from goru.lab.durations import duration
from goru.lab.engines.display import Display, number, runs_table
from goru.lab.engines.local import Job, plan, run_locally
from goru.lab.errors import LabError, RunBusyError, RunInterruptedError, UsageError, nearest
from goru.lab.training.config import RunConfig, check_used, flat, from_json, plain_name
from goru.lab.training.loop import train
from goru.lab.training.run_directory import check_siblings

T = TypeVar("T")


def main(argv: list[str]) -> int:
    """Carry out a command line; returns the exit code."""
    # Where nobody watches (a pipe, a file) there is no width to keep to.
    # Brackets are brackets: names of folders and texts are shown as they are.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140
    console = Console(width=width, markup=False)
    if not argv or argv[0] in ("-h", "--help", "help"):
        console.print(_overview(), highlight=False)
        return 0
    try:
        if argv[0] not in VERBS:
            raise UsageError(nearest("command", argv[0], VERBS))
        return VERBS[argv[0]](argv[1:], console)
    except LabError as error:
        print(f"goru: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as ended:  # tyro has already said why
        return ended.code if isinstance(ended.code, int) else 2
    except KeyboardInterrupt:
        return RunInterruptedError.exit_code


def _overview() -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row(Text.assemble(("goru COMMAND", "bold"), " ..."), "the experiments of the GORU paper")
    table.add_row()
    for verb, kind in OPTIONS.items():
        table.add_row(f"goru {verb}", (kind.__doc__ or "").splitlines()[0])
    table.add_row("goru doctor", "Which kernels work on this machine, and why others do not.")
    table.add_row()
    table.add_row("goru COMMAND --help", "all options of a command")
    return table


def _parse(kind: type[T], verb: str, argv: list[str], default: T | None = None) -> T:
    return tyro.cli(
        kind,
        prog=f"goru {verb}",
        args=argv,
        default=tyro.MISSING_NONPROP if default is None else default,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def ls(argv: list[str], console: Console) -> int:
    _parse(LsOptions, "ls", argv)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("experiment", "shown in", "models", "settings", "length", "cost of one seed"):
        table.add_column(heading)
    for one in paper.EXPERIMENTS.values():
        steps = one.base.steps
        length = f"{steps} steps" if steps else f"{one.base.epochs} epochs"
        table.add_row(
            one.name,
            one.paper.shown_in if one.paper else "",
            ", ".join(one.models),
            ", ".join(one.variants) if not one.parts else f"{one.first_variant}, ... ({len(one.variants)})",
            length,
            f"{one.seconds / 3600:.1f} core hours" if one.seconds else "",
        )
    console.print(table)
    console.print("\nThe small version of each takes minutes: goru reproduce --quick", highlight=False)
    return 0


def show(argv: list[str], console: Console) -> int:
    one = paper.experiment(_parse(ShowOptions, "show", argv).experiment)
    where = f"  ({one.paper.shown_in})" if one.paper else ""
    console.print(Text.assemble((one.title, "bold"), f"{where}\n{one.summary}"))
    if one.paper:
        console.print("\nThe paper", style="bold")
        console.print(one.paper.says, highlight=False)
    for claim in one.claims:
        console.print(f"  {claim.name}: {claim.text}", highlight=False)
    console.print("\nSettings", style="bold")
    for path, value in flat(one.base).items():
        if not path.startswith("layer.") and path not in ("experiment", "variant", "model", "seed"):
            console.print(f"  {path} = {value}", highlight=False)
    console.print("\nModels", style="bold")
    for name, layer in one.models.items():
        cost = one.step_seconds(one.config(name))
        text = f"  {name}: {layer.hidden_size} units"
        console.print(text + (f", about {1000 * cost:.0f} ms a step" if cost else ""), highlight=False)
    console.print("\nVariants", style="bold")
    for name, changes in one.all_variants.items():
        how = ", ".join(f"{path} = {value}" for path, value in changes.items()) or "as above"
        note = "" if name in one.variants else " (on request: --variants)"
        console.print(f"  {name}: {how}{note}", highlight=False)
    generated = one.generated.changes if one.generated else {}
    for name, changes in {"generated": generated, "quick": one.quick_changes}.items():
        if changes:
            console.print(f"  {name}: {', '.join(f'{k} = {v}' for k, v in changes.items())}", highlight=False)
    console.print("\nDecisions", style="bold")
    for text in paper.decisions(one.name):
        console.print(f"  - {text}", highlight=False)
    return 0


def run(argv: list[str], console: Console) -> int:
    base, rest = _base_config(argv)
    options = _parse(RunOptions, "run EXPERIMENT", rest, RunOptions(base, default_runs()))
    config = options.config
    if (config.experiment, config.model) != (base.experiment, base.model):
        raise UsageError("give the experiment first and --model once: goru run EXPERIMENT --model MODEL ...")
    if options.data_dir is not None:
        look_first_in(options.data_dir)
    for reason in data_commands.missing([config]).values():
        raise LabError(reason)
    check_used(config, base)
    config = _named(config, base, options.runs)
    directory = config.directory(options.runs)
    console.quiet = os.environ.get("RANK", "0") != "0"  # of several processes (torchrun), the first one speaks
    if (directory / "result.json").exists():
        console.print(f"{directory} is finished already.", highlight=False)
    from goru.lab.training.distributed import joined
    from goru.lab.training.extend import begin_from
    from goru.lab.training.signals import StopOnSignal

    job = Job(config, directory, state="running")
    with (
        joined(config.device, config.batch) as group,
        StopOnSignal(signal.SIGINT, signal.SIGTERM) as stop,
        Display([job] if group.first else [], console) as display,
    ):

        def asked_to_stop() -> bool:
            display.refresh()
            return stop()

        try:
            if options.from_run is not None:
                group.from_first(functools.partial(begin_from, options.from_run, config, options.runs))
            result = train(
                config,
                options.runs,
                checkpoint_seconds=options.checkpoint_seconds,
                engine="torchrun" if group.size > 1 else "local",
                stop=asked_to_stop,
                group=group,
            )
            job.state = "finished"
        except RunInterruptedError as error:
            job.state = "stopped"
            again = ["goru", "run", "--config", str(directory / "config.json"), "--runs", str(options.runs)]
            again += [] if options.data_dir is None else ["--data-dir", str(options.data_dir)]
            raise RunInterruptedError(f"{error} To go on: {shlex.join(again)}") from None
        except LabError as error:
            job.state = "busy" if isinstance(error, RunBusyError) else "failed"
            raise
    scores = ", ".join(f"{name} {value:.4f}" for name, value in result["final"].items())
    console.print(f"{scores} (baseline {result['baseline']:.4f}); {directory}", highlight=False)
    return 0


def _named(config: RunConfig, base: RunConfig, runs: Path) -> RunConfig:
    """The configuration under the name of its settings, or the one given to it if no other settings are called so."""
    one = paper.experiment(config.experiment)
    kind, _ = paper.split_variant(config.variant)
    if config.variant == base.variant and config != base:
        config = dataclasses.replace(config, variant=plain_name("variant", one.name_for(config, base)))
    elif config.variant != base.variant and kind and not one.has(config.variant):
        raise UsageError(f"--variant {config.variant}: names that begin with {kind}- are kept for that kind of run.")
    if told := one.other_settings(config):
        raise UsageError(f"{config.variant} names other settings of {one.name} ({told}): choose another --variant.")
    if not one.has(config.variant):
        check_siblings(config, runs)
    return config


def _base_config(argv: list[str]) -> tuple[RunConfig, list[str]]:
    """The configuration that the options of `goru run` start from, and those options."""
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
            raise UsageError("--config names a complete configuration: no experiment, --model or --quick beside it.")
        try:
            return from_json(Path(chosen["--config"]).read_text(), chosen["--config"]), rest + own_name
        except (OSError, UnicodeDecodeError) as error:
            raise LabError(f"cannot read {chosen['--config']}: {error}.") from None
    if "experiment" not in chosen:
        if "--help" in rest or "-h" in rest:
            first = next(iter(paper.EXPERIMENTS.values()))
            return first.config(next(iter(first.models))), rest
        raise UsageError(f"which experiment? There are: {', '.join(paper.EXPERIMENTS)}.")
    one = paper.experiment(chosen["experiment"])
    model = chosen.get("--model") or next(iter(one.models))
    if variant is not None and one.has(variant):  # one of the listed settings, not a name for other ones
        kind, _ = paper.split_variant(variant)
        return one.config(model, f"quick-{variant}" if quick and kind != "quick" else variant), rest
    return one.config(model, "quick" if quick else "paper"), rest + own_name


def reproduce(argv: list[str], console: Console) -> int:
    from goru.lab.training.signals import StopOnSignal

    options = _parse(ReproduceOptions, "reproduce", argv, ReproduceOptions(runs=default_runs()))
    carry_out = _engine(options)
    if options.data_dir is not None:
        look_first_in(options.data_dir)
    configs, left_out = _chosen_runs(options)
    for reason in left_out:
        console.print(f"left out: {reason}", highlight=False, soft_wrap=True)
    jobs = plan(configs, options.runs)
    with StopOnSignal(signal.SIGINT, signal.SIGTERM) as stop:
        with Display(jobs, console) as display:
            carry_out(
                jobs,
                options.runs,
                retries=options.retries,
                checkpoint_seconds=options.checkpoint_seconds,
                stop=stop,
                refresh=display.refresh,
            )
        if stop():
            again = shlex.join(["goru", "reproduce", *argv])
            raise RunInterruptedError(f"stopped; every run is kept. To go on: {again}")
    failed = [job for job in jobs if job.state in ("failed", "busy", "stopped")]
    try:
        out = options.out or options.runs / "report"
        shown = {paper.experiment(config.experiment).group_of(config.variant) for config in configs}
        _write_report(options.runs, out, console, shown)
    finally:
        for reason in left_out:
            console.print(f"left out: {reason}", highlight=False, soft_wrap=True)
        for job in failed:
            print(f"goru: {job.state}: {job.name}: {job.message}", file=sys.stderr)
    return 1 if failed else 0


def _engine(options: ReproduceOptions) -> Callable[..., None]:
    """What carries out the runs."""
    processes = options.jobs or os.cpu_count() or 1
    if options.retries < 0 or options.jobs < 0 or min(options.cpus_per_run, options.gpus_per_run) < 0:
        raise UsageError("--jobs, --retries, --cpus-per-run and --gpus-per-run should be at least 0.")
    if options.engine == "local":
        if options.address or options.cpus_per_run or options.gpus_per_run:
            raise UsageError("--address, --cpus-per-run and --gpus-per-run go with --engine ray.")
        return functools.partial(run_locally, processes=processes)
    if options.address and options.jobs:
        raise UsageError("--jobs is for this machine; a cluster takes as many runs as fit (--cpus-per-run).")
    if options.gpus_per_run and options.device == "cpu":
        raise UsageError("--gpus-per-run reserves GPUs that no run would use; add --device cuda.")
    from goru.lab.engines.ray import Cluster, run_on_ray

    cluster = Cluster(options.address, processes, options.cpus_per_run, options.gpus_per_run)
    return functools.partial(run_on_ray, cluster=cluster)


def _chosen_runs(options: ReproduceOptions) -> tuple[list[RunConfig], list[str]]:
    """The runs that are asked for and have their data, and why others are left out.

    Data that are missing for an experiment asked for by name are an error.
    """
    variants, names = options.variants, options.experiments
    if options.tasks:
        with_tasks = tuple(one.name for one in paper.EXPERIMENTS.values() if one.parts == "tasks")
        names = names or with_tasks
        if variants or not set(names) <= set(with_tasks):
            raise UsageError(f"--tasks goes with {', '.join(with_tasks)} alone, without --variants.")
        variants = tuple(_task_variant(paper.experiment(names[0]), number) for number in options.tasks.split(","))
    if options.seeds < 1:
        raise UsageError(f"--seeds should be at least 1, got {options.seeds}.")
    configs = paper.grid(
        names,
        models=options.models,
        variants=variants,
        seeds=options.seeds,
        quick=options.quick,
        generated=options.data == "generated",
    )
    configs = [dataclasses.replace(one, threads=options.threads, device=options.device) for one in configs]
    missing = data_commands.missing(configs)
    named = [reason for experiment, reason in missing.items() if experiment in names]
    if named:
        raise LabError(" ".join(named))
    left_out = [f"{experiment}: {reason}" for experiment, reason in missing.items()]
    return [config for config in configs if config.experiment not in missing], left_out


def _task_variant(one: paper.Experiment, number: str) -> str:
    if not number.strip().isdigit():
        raise UsageError(f"--tasks wants numbers joined by commas, such as 1,5,17; got {number!r}.")
    return one.part(int(number))


def data(argv: list[str], console: Console) -> int:
    return data_commands.data(_parse(DataOptions, "data", argv), console)


def status(argv: list[str], console: Console) -> int:
    from goru.lab.engines import progress
    from goru.lab.training import run_directory as runs

    options = _parse(StatusOptions, "status", argv, StatusOptions(default_runs()))
    found = runs.find(options.runs)
    if not found:
        raise LabError(f"there are no runs in {options.runs}; start some: goru reproduce --quick")
    rows, problems = [], []
    for path in found:
        try:
            rows.append((str(path.relative_to(options.runs)), progress.read(path)))
        except LabError as error:
            problems.append(str(error))
    console.print(runs_table([(name, p.state, p) for name, p in rows], console.width))
    for name, p in rows:
        if p.state == "failed":
            console.print(f"{name}: {p.message}", highlight=False, soft_wrap=True)
    for problem in problems:
        console.print(f"left out: {problem}", highlight=False, soft_wrap=True)
    done = sum(p.state == "finished" for _, p in rows)
    spent = sum(p.seconds or 0 for _, p in rows)
    console.print(f"{done} of {len(rows)} runs finished, {duration(spent)} of work", highlight=False)
    return 0


def report(argv: list[str], console: Console) -> int:
    options = _parse(ReportOptions, "report", argv, ReportOptions(default_runs()))
    _write_report(options.runs, options.out or options.runs / "report", console, None)
    return 0


def record(argv: list[str], console: Console) -> int:
    from goru.lab import report as reporting

    options = _parse(RecordOptions, "record", argv, RecordOptions(default_runs()))
    recorded = reporting.record.write(options.runs, options.out, options.readme)
    for problem in recorded.problems:
        console.print(f"left out: {problem}", highlight=False, soft_wrap=True)
    kept = f", {recorded.kept} kept that are finished there alone" if recorded.kept else ""
    console.print(f"{recorded.written} runs recorded in {options.out}{kept}", highlight=False, soft_wrap=True)
    return 0


def _write_report(runs: Path, out: Path, console: Console, variants: set[str] | None) -> None:
    from goru.lab import report as reporting

    written = reporting.write(runs, out)
    for table in written.tables:
        if variants is None or table.variant in variants:
            shown = Table(title=table.title, title_justify="left", box=None, pad_edge=False)
            columns = [k for k, heading in enumerate(table.headings) if heading in (table.brief or table.headings)]
            for k in columns:
                shown.add_column(table.headings[k], justify="left" if k == 0 else "right")
            for row in table.rows:
                shown.add_row(*(row[k].text for k in columns))
            console.print(shown)
            console.print()
    told = [v for v in written.verdicts if v.variant and (variants is None or v.variant in variants)]
    small = told and all(paper.split_variant(verdict.variant)[0] == "quick" for verdict in told)
    note = " (the small version says little about the paper's sizes)" if small else ""
    judged = Table(title=f"The paper's claims on these runs{note}", title_justify="left", box=None, pad_edge=False)
    for verdict in told:
        judged.add_row(verdict.claim.name, verdict.runs, verdict.status, verdict.claim.text)
    if judged.rows:
        judged.show_header = False
        console.print(judged)
        console.print()
    for problem in written.problems:
        console.print(f"left out: {problem}", highlight=False, soft_wrap=True)
    console.print(f"The page with the figures: {written.page.resolve()}", highlight=False, soft_wrap=True)


def bench(argv: list[str], console: Console) -> int:
    from goru.lab.training import bench as benching

    options = _parse(BenchOptions, "bench", argv)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("experiment", "model", "ms a step", "data", "model", "steps/s"):
        table.add_column(heading, justify="left" if heading in ("experiment",) else "right")
    if options.steps < 1 or options.threads < 1:
        raise UsageError("--steps and --threads should be at least 1.")
    if not options.out.resolve().parent.is_dir():
        raise UsageError(f"--out {options.out}: there is no such folder.")
    rows = []
    for name in options.experiments or paper.EXPERIMENTS:
        one = paper.experiment(name)
        reason = data_commands.missing([one.config(next(iter(one.models)))]).get(name)
        if reason is not None:
            if options.experiments:
                raise LabError(reason)
            console.print(f"left out: {name}: {reason}", highlight=False, soft_wrap=True)
            continue
        for model in options.models or one.models:
            timing = benching.time_step(one.config(model), options.steps, options.threads)
            rows.append(timing)
            table.add_row(
                name,
                model,
                number(1000 * timing["step_seconds"], ".1f"),
                number(timing["data_share"], ".1%"),
                number(timing["model_share"], ".1%"),
                number(1 / timing["step_seconds"], ".1f"),
            )
    console.print(table)
    benching.write(options.out, rows)
    console.print(f"The numbers: {options.out}", highlight=False)
    return 0


VERBS: dict[str, Callable[[list[str], Console], int]] = {
    "ls": ls,
    "show": show,
    "run": run,
    "reproduce": reproduce,
    "status": status,
    "report": report,
    "record": record,
    "data": data,
    "bench": bench,
}
