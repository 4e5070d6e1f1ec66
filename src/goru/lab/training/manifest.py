"""Checksums of the files of a finished run: manifest.json, written just before result.json.

A run whose files do not match is damaged or was changed; a run without a manifest is of an older version: unverified.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from goru.lab import untrusted
from goru.lab.errors import LabError

NAME = "manifest.json"
FILES = ("config.json", "environment.json", "metrics.jsonl", "figure.json", "result.json")
"""What the report reads; the checkpoint has a checksum of its own."""
ALWAYS = ("config.json", "metrics.jsonl", "result.json")
"""Those that every finished run has."""


def encode(contents: Mapping[str, bytes]) -> bytes:
    """The content of a manifest over files, given their names and contents."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}
    return (json.dumps({"sha256": digests}, indent=1) + "\n").encode()


def verify(path: Path) -> bool:
    """Whether the files of a finished run are verified; False: it has no manifest. LabError names a changed file."""
    try:
        manifest = untrusted.read_json(path / NAME)
    except FileNotFoundError:
        return False
    expected = manifest.get("sha256") if isinstance(manifest, dict) else None
    if not isinstance(expected, dict) or not {*ALWAYS} <= expected.keys() <= {*FILES}:
        raise LabError(f"{path / NAME} should list the checksums of the run's files.")
    for name in FILES:
        try:
            found = hashlib.sha256(untrusted.read_bytes(path / name)).hexdigest()
        except FileNotFoundError:
            found = None
        if found != expected.get(name):
            raise LabError(
                f"{path / name} is not the file that the run wrote (see {NAME}): restore it, or run it again."
            )
    return True
