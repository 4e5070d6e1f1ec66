"""Find the experiments: every file of this package with an `EXPERIMENT`, and files that the user names.

The environment variable GORU_EXPERIMENTS names further files, separated like the folders of PATH. They are Python
code and are run: name only files that you trust.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType

from goru.lab.errors import LabError
from goru.lab.paper.definition import Experiment

VARIABLE = "GORU_EXPERIMENTS"


class Registry(Mapping[str, Experiment]):
    """The experiments by name, in the paper's order, found on first use.

    So an error in a user's file is an error of the command, not of an import.
    """

    @cached_property
    def _found(self) -> dict[str, Experiment]:
        names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
        modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
        own = [module.EXPERIMENT for module in modules if hasattr(module, "EXPERIMENT")]
        found = {one.name: one for one in sorted(own, key=lambda one: one.place)}
        for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
            one = getattr(_run(Path(path).expanduser()), "EXPERIMENT", None)
            if not isinstance(one, Experiment):
                raise LabError(f"{path} (named by {VARIABLE}) should define EXPERIMENT, a goru.lab.paper.Experiment.")
            if one.name in found:
                raise LabError(f"{path} (named by {VARIABLE}): the experiment {one.name} exists; choose another name.")
            found[one.name] = one
        return found

    def __getitem__(self, name: str) -> Experiment:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _run(path: Path) -> ModuleType:
    """The module in a file."""
    name = f"goru_experiment_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LabError(f"{path} (named by {VARIABLE}) should be a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # types in annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except FileNotFoundError as error:
        if error.filename != str(path):
            raise LabError(f"cannot run {path} (named by {VARIABLE}): {error}.") from error
        raise LabError(f"{path} (named by {VARIABLE}) does not exist.") from None
    except Exception as error:
        raise LabError(f"cannot run {path} (named by {VARIABLE}): {type(error).__name__}: {error}") from error
    return module
