"""Numbers in sentences of the README and of docs/choosing.md are those of the record."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from goru.lab.paper.outcomes import Group
from goru.lab.report.record import load

ROOT = Path(__file__).parents[2]

SENTENCES = {
    "README.md": (
        "copying over 2000 steps: solved after {steps[lengths-T2000][goru-memory]} iterations (EURNN: not within 3000)",
        "adding over 1000: after {steps[adding-T1000][goru-memory]} (GRU: not within 5000, with chrono after "
        "{steps[adding-T1000][gru-chrono]})",
        "permuted MNIST, 10,000 digits: {accuracy[psmnist][goru-memory]:.0f} %, EURNN "
        "{accuracy[psmnist][eurnn-real]:.0f} %, GRU {accuracy[psmnist][gru]:.0f} %",
        "Penn Treebank: GRU {bits[penn_treebank][gru]:.3f} bits per character, GORU {bits[penn_treebank][goru]:.3f}",
    ),
    "docs/choosing.md": (
        "solves copying over 200 steps after {steps[copying][goru-memory]} iterations and over 2000 steps after "
        "{steps[lengths-T2000][goru-memory]}, adding over 1000 steps after {steps[adding-T1000][goru-memory]}",
        "on Penn Treebank characters a GRU reaches {bits[penn_treebank][gru]:.3f} bits, a GORU "
        "{bits[penn_treebank][goru]:.3f}",
        "the June 2017 start needs {steps[copying][goru-june2017]}",
        "needs {steps[copying][goru-free]} iterations to fall below 10 % and then diverges; with tanh instead of "
        "modReLU it needs {steps[copying][goru-tanh]}",
        "GORU needs {steps[lengths-T50][goru-memory]}, {steps[lengths-T100][goru-memory]}, "
        "{steps[lengths-T200][goru-memory]}, {steps[lengths-T500][goru-memory]}, {steps[lengths-T1000][goru-memory]} "
        "and {steps[lengths-T2000][goru-memory]} iterations, EURNN {steps[lengths-T50][eurnn-real]}, "
        "{steps[lengths-T100][eurnn-real]}, {steps[lengths-T200][eurnn-real]}, {steps[lengths-T500][eurnn-real]} and "
        "{steps[lengths-T1000][eurnn-real]}",
        "GORU as published has {accuracy[shortest_path_padded][goru]:.1f} % and GRU "
        "{accuracy[shortest_path_padded][gru]:.1f}, where the paper has 75.0 and 74.1",
        "GRU has {accuracy[shortest_path_fed][gru]:.1f} %, GORU as published {accuracy[shortest_path_fed][goru]:.1f} "
        "and GORU with `memory` {accuracy[shortest_path_fed][goru-memory]:.1f}",
        "without one of them it loses {cost[penn_treebank][goru-no-update]:.2f} to "
        "{cost[penn_treebank][goru-no-reset]:.2f} bits",
        "is the first below a tenth of the baseline, after {steps[adding][goru-memory]} iterations",
        "GRU follows after {steps[adding][gru]} and GORU as published after {steps[adding][goru]}",
        "GORU with `memory=1000` gets there after {steps[adding-T1000][goru-memory]} iterations",
        "GORU with `memory=784` gets {accuracy[psmnist][goru-memory]:.1f} % of the test digits right, the EURNNs "
        "{accuracy[psmnist][eurnn-real]:.1f} and {accuracy[psmnist][eurnn-complex]:.1f} %, GRU "
        "{accuracy[psmnist][gru]:.1f} %, GORU as published {accuracy[psmnist][goru]:.1f} %, LSTM "
        "{accuracy[psmnist][lstm]:.1f} %",
    ),
}

Numbers = dict[str, dict[str, dict[str, float]]]


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    """By kind (cost: bits more than GORU), by experiment and setting (without a setting: the paper's), by model."""
    found: Numbers = {"steps": {}, "accuracy": {}, "bits": {}, "cost": {}}
    for group in load(ROOT / "results")[0]:
        steps: dict[str, dict[str, list[int]]] = {}
        for record in (run for run in group.records if run.finished):
            if record.test.losses and (step := record.first_step_below(0.1 * record.baseline)) is not None:
                steps.setdefault(_place(record.config.variant, group), {}).setdefault(record.config.model, []).append(
                    step
                )
        for place, by_model in steps.items():
            found["steps"][place] = {name: round(fmean(values)) for name, values in by_model.items()}
        place = _place(group.variant, group)
        for kind, score, scale in (("accuracy", "test_accuracy", 100.0), ("bits", "test_bpc", 1.0)):
            means = {name: group.seed_means(name, score) for name in group.models}
            found[kind][place] = {name: scale * fmean(values) for name, values in means.items() if values}
    for place, bits in found["bits"].items():
        found["cost"][place] = {name: value - bits["goru"] for name, value in bits.items() if "goru" in bits}
    return found


def _place(variant: str, group: Group) -> str:
    return group.experiment.name + ("" if variant == "paper" else f"-{variant}")


@pytest.mark.parametrize("file", SENTENCES)
def test_numbers_in_sentences_are_those_of_the_record(file: str, numbers: Numbers) -> None:
    text = " ".join((ROOT / file).read_text().split())
    said = [sentence.format(**numbers) for sentence in SENTENCES[file]]
    assert [sentence for sentence in said if sentence not in text] == []
