"""Command lines from dataclasses, and the options that several commands share."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from goru.lab.errors import UsageError, near

T = TypeVar("T")

Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT ...")]
Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="EXPERIMENT")]
Runs = Annotated[Path, tyro.conf.arg(help="Folder of the run directories.")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]


def parse(
    kind: type[T], verb: str, argv: list[str], default: T | None = None, *, shown: str = "", more: Sequence[str] = ()
) -> T:
    """The options of a command, an instance of `kind`.

    A mistake is a UsageError of one sentence. It names the command as `shown` (empty: as `verb`), and may suggest one
    of the options that the command reads itself, `more`.
    """

    def refuse(event: Any) -> None:
        options = dict.fromkeys(more) | _options(kind if default is None else default)
        with contextlib.suppress(AttributeError, KeyError):  # another version of tyro: it prints its own message
            sentence = _sentence(event, options, given(argv), f"goru {shown or verb}")
            if sentence:
                raise UsageError(sentence)

    # tyro describes a mistake to a hook before it prints it; constraints.txt fixes the version.
    register = getattr(getattr(tyro, "_errors", None), "on_parse_error", None)
    with contextlib.nullcontext() if register is None else register(refuse):
        return tyro.cli(
            kind,
            prog=f"goru {verb}",
            args=argv,
            default=tyro.MISSING_NONPROP if default is None else default,
            config=(tyro.conf.OmitArgPrefixes,),
        )


def given(argv: Sequence[str]) -> dict[str, str]:
    """The options of a command line, with the word after each if it is a value.

    >>> given(["copying", "--test_size", "8", "--no-reset-gate", "--lr=0.1"])
    {'--test-size': '8', '--no-reset-gate': '', '--lr': '0.1'}
    """
    found = {}
    for word, following in itertools.pairwise([*argv, "--"]):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            found[flag.replace("_", "-")] = value if equals else "" if following.startswith("--") else following
    return found


def _options(kind: Any) -> dict[str, Any]:
    """The type of each option of a dataclass, or of an instance, which may contain others."""
    options: dict[str, Any] = {}
    hints = get_type_hints(kind if isinstance(kind, type) else type(kind), include_extras=True)
    for field in dataclasses.fields(kind):
        value = getattr(kind, field.name, None)
        hint, marks = hints[field.name], ()
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
        name = field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            options |= _options(value)
        elif not any(mark in (tyro.conf.Positional, tyro.conf.Suppress) for mark in marks):
            options |= {f"--{name}": hint} | ({f"--no-{name}": hint} if hint is bool else {})
    return options


def _sentence(event: Any, options: dict[str, Any], given: dict[str, str], command: str) -> str:
    """What is wrong with a command line, from tyro's description; empty if that is not known."""
    see = f"see {command} --help."
    argument = getattr(event, "argument", None)
    flag = argument.lowered.name_or_flags[0] if argument else ""
    match type(event).__name__:
        case "UnrecognizedArgs":
            word = event.tokens[0].partition("=")[0]
            if not re.match("--?[a-zA-Z]", word):
                return f'unexpected argument "{word[:60]}"; {see}'
            close = near(word.lstrip("-"), [flag.removeprefix("--") for flag in options])
            return f"there is no option {word[:60]}; {f'did you mean --{close}?' if close else see}"
        case "MissingArgs":
            return f"{event.missing_arguments[0].arg.lowered.metavar} is missing; {see}"
        case "BadValue":
            return f"{flag} needs a value; {see}"
        case "InvalidChoice":
            return f'{flag} should be one of {", ".join(event.choices)}; got "{event.value[:60]}".'
        case "InstantiationFailure" if argument:
            return f'{flag} should be {_describe(options[flag])}; got "{given[flag][:60]}".'
        case "InstantiationFailure":
            return _out_of_range(event.message, given)
    return ""


def _describe(hint: Any) -> str:
    """A type in words.

    >>> _describe(int | None)
    'a whole number or None'
    """
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}"
    if get_args(hint):
        return " or ".join(map(_describe, get_args(hint)))
    return {int: "a whole number", float: "a number", NoneType: "None"}[hint]


def _out_of_range(message: str, given: dict[str, str]) -> str:
    """What a task says about its fields, reduced to the first given option that is out of range.

    >>> _out_of_range("delay and recall should be at least 1, noise at least 0", {"--delay": "6", "--recall": "0"})
    '--recall should be at least 1; got 0.'
    """
    clause = r"(\w+(?:(?:, | and )\w+)*) (?:should be )?((?:at least|from) (\d+)(?: to (\d+))?)"
    for fields, bounds, low, high in re.findall(clause, message):
        for name in re.split(", | and ", fields):
            flag = f"--{name.replace('_', '-')}"
            with contextlib.suppress(KeyError, ValueError):
                if not int(low) <= float(given[flag]) <= float(high or "inf"):
                    return f"{flag} should be {bounds}; got {given[flag]}."
    return f"{message.rstrip('.')}."


def default_runs() -> Path:
    """The folder of the runs: `GORU_RUNS`, or `runs` in the current folder."""
    return Path(os.environ.get("GORU_RUNS", "runs"))


def allow_other_kernels(allowed: bool) -> None:
    """Apply `--other-kernels` to this process and its children."""
    if allowed:
        os.environ["GORU_OTHER_KERNELS"] = "1"
