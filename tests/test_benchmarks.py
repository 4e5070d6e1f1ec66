"""Benchmarks: what the README says of speed and cost is what was measured. No test takes the time of anything."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from benchmarks import chart, readme, tables
from goru.lab import paper


def test_the_speed_in_readme_page_and_pictures_is_the_recorded_one() -> None:
    renewed = readme.renewed(json.loads(readme.MEASURED.read_text()))
    assert {file.suffix for file in renewed} == {".md", ".svg"}
    for file, text in renewed.items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run python -m benchmarks --page"


def test_the_bars_are_as_long_as_the_times() -> None:
    measured = json.loads(readme.MEASURED.read_text())
    times = list(chart.times(measured).values())
    for file in readme.PICTURES.values():
        tree = ElementTree.parse(file)
        widths = [float(bar.attrib["width"]) for bar in tree.iter("{http://www.w3.org/2000/svg}rect")]
        assert len(widths) == 3
        assert [width / max(widths) for width in widths] == pytest.approx([t / max(times) for t in times], abs=1e-3)
        said = [text.text for text in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert {tables.cell(time) for time in times} <= set(said)


@pytest.mark.parametrize(("gain", "share"), [(7.0, "Most"), (1.5, "Part")])
def test_how_much_of_the_speed_the_readme_credits_to_the_kernels(gain: float, share: str) -> None:
    measured = json.loads(readme.MEASURED.read_text())
    mean = measured["sections"][f"training, {measured['threads'][0]} threads"][-1]
    mean |= {"vs GRU": 8.0, "vs LSTM": 4.0, "GRU vs nn.GRU": gain, "LSTM vs nn.LSTM": 2.5}
    assert f"{share} of this comes from the implementation" in readme.renewed(measured)[readme.README]


def test_the_cost_in_the_readme() -> None:
    hours = sum(one.seconds for one in paper.EXPERIMENTS.values() if one.paper) / 3600
    assert f"all of the paper ({hours:.0f} core hours)" in readme.README.read_text()


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
