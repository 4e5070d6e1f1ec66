"""Benchmarks: what the README says of speed and cost is what was measured. No test takes the time of anything."""

from __future__ import annotations

import json

from benchmarks import readme, tables
from goru.lab import paper


def test_the_speed_in_the_readme_is_the_recorded_one() -> None:
    text = readme.README.read_text()
    renewed = readme.renew(text, json.loads(readme.MEASURED.read_text()))
    assert renewed == text, "run: python -m benchmarks --page"


def test_the_cost_in_the_readme() -> None:
    hours = sum(one.seconds for one in paper.EXPERIMENTS.values()) / 3600
    assert f"everything ({hours:.0f} core hours)" in readme.README.read_text()


def test_a_table() -> None:
    rows = [{"name": "a", "ms": 1234.5}, {"name": "longer", "ms": 0.12345, "ratio": 2.0}]
    assert tables.table(rows).splitlines() == [
        "|   name |    ms | ratio |",
        "| ------ | ----- | ----- |",
        "|      a |  1234 |       |",
        "| longer | 0.123 |     2 |",
    ]


def test_the_places_of_a_page() -> None:
    page = "a\n<!-- one -->\nold\n<!-- end -->\nb\n<!-- two -->\n<!-- end -->\n"
    assert tables.fill(page, {"one": "new", "two": "x"}) == (
        "a\n<!-- one -->\nnew\n<!-- end -->\nb\n<!-- two -->\nx\n<!-- end -->\n"
    )
