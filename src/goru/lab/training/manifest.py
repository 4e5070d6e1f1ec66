"""Checksums of the files of a finished run: manifest.json, written just before result.json.

A run whose files do not match is damaged or was changed. Older versions wrote no manifest: such a run is unverified,
and remains so when a record adds checksums later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from goru.lab.errors import LabError
from goru.lab.untrusted import parse_json, read_bytes

NAME = "manifest.json"
FILES = ("config.json", "environment.json", "metrics.jsonl", "figure.json", "result.json")
"""The files that the report reads; the checkpoint has its own checksum."""
ALWAYS = ("config.json", "metrics.jsonl", "result.json")
"""Those that every finished run has."""

Since = Literal["run", "record", "never"]
"""Since when the files of a finished run have had checksums: since it ended, since it was recorded, or never."""


def encode(contents: Mapping[str, bytes], since: Since = "run") -> bytes:
    """The content of a manifest over files, given their names and contents."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
    return (json.dumps({"since": since, "sha256": digests}, indent=1) + "\n").encode()


def contents(path: Path) -> dict[str, bytes]:
    """The files of a run that a manifest lists, as they are now."""
    found = {name: read_bytes(path / name) for name in FILES}
    return {name: content for name, content in found.items() if content is not None}


def verify(path: Path) -> Since:
    """Since when the files of a finished run are verified; raises LabError if a file has changed."""
    content = read_bytes(path / NAME)
    if content is None:
        return "never"
    manifest = parse_json(content, str(path / NAME))
    expected, since = (manifest.get(key) for key in ("sha256", "since")) if isinstance(manifest, dict) else (None, None)
    if since not in ("run", "record"):
        raise LabError(f"{path / NAME} should say since when there are checksums: run or record.")
    if not isinstance(expected, dict) or not {*ALWAYS} <= expected.keys() <= {*FILES}:
        raise LabError(f"{path / NAME} should list the checksums of the run's files.")
    found = contents(path)
    for name in FILES:
        digest = hashlib.sha256(found[name]).hexdigest() if name in found else None
        if digest != expected.get(name):
            raise LabError(
                f"{path / name} is not the file that the run wrote (see {NAME}): restore it, or delete the "
                "run's folder and run it again."
            )
    return since
