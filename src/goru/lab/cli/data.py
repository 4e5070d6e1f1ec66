"""`goru data`: list, fetch and verify data sets."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

from goru.lab.cli.parse import OptionalPath, parse
from goru.lab.errors import LabError, UsageError, nearest
from goru.lab.training.config import RunConfig

if TYPE_CHECKING:
    from goru.lab.data import DataSet

Sets = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME ...")]


@dataclass(frozen=True)
class Options:
    """List, fetch and verify data sets (ls, fetch NAME, verify, path)."""

    action: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ls|fetch|verify|path")]
    """List data sets, download some, verify those that are found, or print the folders to search."""
    names: Sets = ()
    """Names of data sets (none: all; `fetch` needs names)."""
    data_dir: OptionalPath = None
    """Folder to search first, and to fetch into."""


def main(argv: list[str], console: Console) -> int:
    options = parse(Options, "data", argv)
    actions = {"ls": _list, "fetch": _fetch, "verify": _verify, "path": _path}
    if options.action not in actions:
        raise UsageError(nearest("action of goru data", options.action, actions))
    from goru.lab.data import dataset, store

    store.search_first(options.data_dir)
    return actions[options.action]([dataset(name) for name in options.names], console)


def _list(chosen: list[DataSet], console: Console) -> int:
    from goru.lab.data import DATASETS, store

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("data set", "experiment", "size", "license", "where, or how to get it"):
        table.add_column(heading, overflow="fold")
    for one in chosen or DATASETS.values():
        folder = store.find(one)
        table.add_row(one.name, one.experiment, one.size, one.license, str(folder or store.remedy(one)))
    console.print(table)
    return 0


def _fetch(chosen: list[DataSet], console: Console) -> int:
    from goru.lab.data import DATASETS, download
    from goru.lab.training.signals import handled

    if not chosen:
        raise UsageError(f"name a data set: {', '.join(DATASETS)}.")
    failed = []
    for one in chosen:
        try:
            with handled(signal.default_int_handler, signal.SIGTERM):  # like Ctrl-C, so everything is cleaned up
                download.fetch(one, lambda text: console.print(text, soft_wrap=True))
        except LabError as error:
            failed.append(str(error))
    if failed:
        raise LabError(" ".join(failed))
    return 0


def _verify(chosen: list[DataSet], console: Console) -> int:
    from goru.lab.data import DATASETS, store

    bad, found = [], False
    for one in chosen or DATASETS.values():
        verdict = store.verify(one)
        found |= verdict.state != "missing"
        where = verdict.folder or verdict.message
        remark = f" ({verdict.message})" if verdict.state == "good" and verdict.message else ""
        console.print(f"{verdict.state:8} {one.name}: {where}{remark}", soft_wrap=True)
        if verdict.state == "damaged":
            bad.append(verdict.message)
        elif verdict.state == "missing" and chosen:
            bad.append(f"the data set {one.name} is not on this machine: {verdict.message}.")
    if bad:
        raise LabError(" ".join(bad))
    if not found:
        raise LabError("none of the data sets is on this machine, so nothing was verified.")
    return 0


def _path(chosen: list[DataSet], console: Console) -> int:
    """The folders to search, or those of the named sets."""
    from goru.lab.data import store

    for folder in [store.require(one) for one in chosen] or store.roots():
        console.print(str(folder), soft_wrap=True)
    return 0


def missing(configs: list[RunConfig]) -> dict[str, str]:
    """For each experiment whose data are missing or damaged, a sentence that says how to fix it."""
    from goru.lab.data import dataset, store

    reasons: dict[str, str] = {}
    for name in {config.task.data_set: None for config in configs if config.task.data_set}:
        try:
            store.check_quickly(dataset(name))
        except LabError as error:
            for config in configs:
                if config.task.data_set == name:
                    reasons.setdefault(config.experiment, str(error))
    return reasons
