"""A run's configuration: typed, complete, one JSON file. The same configuration is the same run."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from goru.lab.cells import CELLS, LayerConfig
from goru.lab.errors import LabError, nearest
from goru.lab.tasks.task import Task
from goru.lab.training.checks import has_type
from goru.lab.untrusted import parse_json

LATER_FIELDS = {
    "optimizer.schedule": "constant",
    "layer.memory": None,
    "layer.orthogonal": True,
    "layer.modrelu": True,
    "stop_below": 0.0,
    "task.normalize": True,
    "task.feed": "ans",
    "task.padded": False,
    "task.joined": "last",
    "task.dropout": 0.0,
    "task.word_scale": 0.05,
}
"""Fields that the files of older runs lack, with the value that describes those runs."""


@dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer."""

    rule: Literal["rmsprop", "adam"] = "rmsprop"
    """RMSProp as in TensorFlow, or Adam."""
    lr: float = 0.001
    """Learning rate."""
    decay: float = 0.9
    """RMSProp's decay of the mean square."""
    schedule: Literal["constant", "linear"] = "constant"
    """Constant learning rate, or linear decay to zero at the last planned step."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One training run, completely described."""

    experiment: Annotated[str, tyro.conf.Suppress]
    """Which experiment (`goru ls`)."""
    variant: str = "paper"
    """Name of this setting of the experiment; part of the run directory."""
    model: str = "goru"
    """Which of the experiment's models."""
    seed: int = 0
    """Seed of the parameters and the training data."""
    threads: int = 1
    """Number of threads, fixed for the whole run: the last bits of the results depend on it."""
    device: str = "cpu"
    """Device of the tensors."""
    steps: int = 10_000
    """Optimization steps (0: use epochs instead)."""
    epochs: int = 0
    """Passes over a finite training set, if steps is 0."""
    batch: int = 128
    """Sequences in a batch."""
    log_every: int = 20
    """Steps between logged training losses."""
    eval_every: int = 100
    """Steps between evaluations on the held-out set (0: once per epoch)."""
    patience: int = 0
    """Evaluations without a better validation score before stopping (0: never stop early)."""
    stop_below: float = 0.0
    """Stop at the first evaluation with a test loss below this fraction of the baseline (0: never)."""
    layer: LayerConfig = field(default_factory=LayerConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    task: Task

    def __post_init__(self) -> None:
        plain_name("variant", self.variant)
        plain_name("model", self.model)
        for path, value in flat(self).items():  # those of the layer and the task too
            if isinstance(value, int) and path != "seed" and abs(value) >= INTEGER_LIMIT:
                raise LabError(f"{_option(path.rpartition('.')[2])} should be below 2^31, {INTEGER_LIMIT}.")
        if self.seed < 0 or self.threads < 1 or self.batch < 1:
            raise LabError("seed should be at least 0, threads and batch at least 1.")
        if self.threads > MOST_THREADS:
            raise LabError(f"threads should be at most {MOST_THREADS}, got {self.threads}.")
        if self.seed >= 2**63:
            raise LabError(f"seed should be below 2^63, got {self.seed}.")
        for name in ("steps", "epochs", "eval_every", "patience"):
            if getattr(self, name) < 0:
                raise LabError(f"{name.replace('_', '-')} should be at least 0, got {getattr(self, name)}.")
        if not 0 <= self.stop_below < math.inf:
            raise LabError(f"stop-below should be a number of at least 0, got {self.stop_below}.")
        if not 0 <= self.optimizer.lr < math.inf or not 0 <= self.optimizer.decay < 1:
            rates = f"lr {self.optimizer.lr} and decay {self.optimizer.decay}"
            raise LabError(f"lr should be a number of at least 0, decay from 0 to below 1; got {rates}.")

    def directory(self, runs: Path) -> Path:
        """runs/<experiment>/<variant>/<model>/seed<k>"""
        return runs / self.experiment / self.variant / self.model / f"seed{self.seed}"

    def to_json(self) -> str:
        return as_json(dataclasses.asdict(self))

    def digest(self) -> str:
        """A fingerprint of the whole configuration; fields added later do not change that of an older run."""
        data = dataclasses.asdict(self)
        for path, before in LATER_FIELDS.items():
            group, _, name = path.rpartition(".")
            fields = data[group] if group else data
            if name in fields and fields[name] == before:  # a task has fields of its own
                del fields[name]
        return hashlib.sha256(as_json(data).encode()).hexdigest()


def from_json(text: str | bytes, source: str) -> RunConfig:
    """The configuration written by `to_json`; a wrong field is an error that names `source`.

    >>> from goru.lab.paper import experiment
    >>> config = experiment("copying").config("goru", seed=3)
    >>> from_json(config.to_json(), "here") == config
    True
    """
    data = parse_json(text, source)
    if not isinstance(data, dict):
        raise LabError(f"{source} should hold one JSON object, got {type(data).__name__}")
    from goru.lab.paper import EXPERIMENTS  # which are made of configurations

    experiment = str(data.get("experiment"))
    if experiment not in EXPERIMENTS:
        raise LabError(f"{source}: {nearest('experiment', experiment, EXPERIMENTS)}")
    # If the experiment has several tasks, it is the one with the fields of the file.
    one, given = EXPERIMENTS[experiment], data.get("task")
    names = {*given} if isinstance(given, dict) else set()
    alike = [kind for kind in one.tasks() if {f.name for f in dataclasses.fields(kind)} == names]
    nested = {"layer": LayerConfig, "optimizer": OptimizerConfig, "task": (*alike, type(one.base.task))[0]}
    for name, kind in nested.items():
        data[name] = _build(kind, data.get(name, {}), f"{source}: {name}")
    return _build(RunConfig, data, source)


NAME_BYTES = 200
"""Bytes of a name; file systems allow 255 for a folder."""
MOST_THREADS = 1024
INTEGER_LIMIT = 2**31
"""Bound of the integers of a configuration but the seed: products of two of them fit 64 bits."""


def plain_name(what: str, name: str) -> str:
    """`name`, if it is a valid folder name."""
    length = len(name.encode())
    if length > NAME_BYTES:
        raise LabError(f"{what} should have at most {NAME_BYTES} bytes, got {length}: choose a shorter --variant.")
    if not name or name.startswith(".") or not all(c.isalnum() or c in "._-+" for c in name):
        raise LabError(f"{what} should be a plain folder name of letters, digits and ._-+, got {name!r}")
    return name


def as_json(data: dict[str, Any]) -> str:
    """As the files of a run have it."""
    return json.dumps(data, indent=2) + "\n"


_hints = functools.cache(get_type_hints)
"""The types of a class's fields. They are texts, which Python compiles each time that it is asked."""


def _build(kind: type, data: Any, source: str) -> Any:
    if not isinstance(data, dict):
        raise LabError(f"{source} should be a JSON object, got {data!r}")
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    for name, value in data.items():
        if name not in names:
            raise LabError(f"{source}: {nearest('field', name, names)}")
        if not has_type(value, hints[name]):
            raise LabError(f"{source}: {name} should be {_describe(hints[name])}, got {value!r}")
        if hints[name] is float:
            data[name] = float(value)
    try:
        return kind(**data)
    except ValueError as error:
        raise LabError(f"{source}: {error}") from None


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    return str(getattr(hint, "__name__", hint))


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every field by its dotted path.

    >>> flat(LayerConfig(hidden_size=100))["hidden_size"]
    100
    """
    fields: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            fields.update(flat(value, f"{prefix}{f.name}."))
        else:
            fields[prefix + f.name] = value
    return fields


def differences(there: Any, here: Any) -> str:
    """A description of how two configurations differ; empty if they are equal."""
    before, now = flat(there), flat(here)
    return "; ".join(f"{k} {before.get(k)} there, {v} here" for k, v in now.items() if before.get(k) != v)


def as_on(config: RunConfig, other: RunConfig) -> RunConfig:
    """The configuration with the threads and device of another, which change only the last bits of a result."""
    return dataclasses.replace(config, threads=other.threads, device=other.device)


_OF_GENERATED_DATA = ("questions", "graphs", "characters", "utterances", "digits")
"""Sizes of generated data."""


def check_used(config: RunConfig, base: RunConfig, given: Collection[str] = ()) -> None:
    """Raise LabError for a field of `config` that has no effect but differs from `base`, or whose option was given."""
    before, after = flat(base), flat(config)
    changed = {path for path, value in after.items() if value != before.get(path)}
    for path in after:
        option = _option(path.rpartition(".")[2])
        if option in given or option.replace("--", "--no-", 1) in given:
            changed.add(path)
    name, cell = config.layer.cell.upper(), CELLS[config.layer.cell]
    for field_ in dataclasses.fields(LayerConfig):
        if f"layer.{field_.name}" in changed and field_.name not in ("cell", "hidden_size", *cell.reads):
            raise LabError(f"{_option(field_.name)} has no effect on {name}: remove it.")
    for name in _OF_GENERATED_DATA:
        if f"task.{name}" in changed and config.task.data_set is not None:
            raise LabError(f"{_option(name)} has no effect on data from files: add --data generated.")
    if "optimizer.decay" in changed and config.optimizer.rule != "rmsprop":
        raise LabError(f"--decay has no effect on {config.optimizer.rule}: remove it.")
    if "epochs" in changed and config.steps:
        raise LabError(f"--epochs has no effect with {config.steps} steps: add --steps 0.")


def _option(field_name: str) -> str:
    return f"--{field_name.replace('_', '-')}"


def override(config: Any, changes: dict[str, Any]) -> Any:
    """A copy with the fields at dotted paths replaced: `override(config, {"optimizer.lr": 0.01})`."""
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        inner = override(getattr(config, head), {rest: value}) if rest else value
        config = dataclasses.replace(config, **{head: inner})
    return config


def variant_name(config: RunConfig, base: RunConfig) -> str:
    """A name for the changes from `base` to `config`, so different settings get different directories.

    >>> from goru.lab.paper import experiment
    >>> base = experiment("copying").config("goru")
    >>> variant_name(override(base, {"optimizer.lr": 0.01, "task.placement": "random"}), base)
    'lr0.01+random-placement'
    """
    before, after = flat(base), flat(config)
    parts = [] if base.variant == "paper" else [base.variant]
    for path, value in after.items():
        if path in ("experiment", "variant", "model", "seed") or value == before.get(path):
            continue
        label = path.rpartition(".")[2].replace("_", "-")
        if isinstance(value, bool):
            parts.append(label if value else f"no-{label}")
        elif isinstance(value, str):
            parts.append(f"{value.replace(':', '')}-{label}")
        else:
            parts.append(f"{label}{value}")
    return "+".join(parts) or base.variant
