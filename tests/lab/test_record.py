"""The record: small, without names of machines, and the same report can be drawn from it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from goru.lab import paper, report
from goru.lab.errors import LabError
from goru.lab.report import claims, markdown, record, sections
from goru.lab.report.record import load
from goru.lab.training import run_directory as runs
from tests.lab.small import goru
from tests.lab.test_report import HALFWAY, SOLVED, STUCK, gate_figure, write_run
from tests.lab.test_report_on_data import write_run as write_run_on_data

pytestmark = pytest.mark.usefixtures("drawn_once")

ENVIRONMENT = {
    "versions": {"torch": "2.13.0"},
    "processor": "a processor",
    "cores": 2,
    "platform": "Linux-on-somewhere",
    "host": "secret-host",
    "attempts": [{"start_time": 1.0, "from_step": 0, "host": "secret-host"}],
}


SPECTRUM = {
    "spectrum_truth": [[1.0, 2.0]],
    "spectrum_prediction": [[2.0, 1.0]],
    "spectrum_seconds_a_frame": 0.016,
    "spectrum_highest_hertz": 4000.0,
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Runs as they are on a machine: checkpoints, locks, hosts, long curves."""
    folder = tmp_path / "runs"
    for model, curve in {"goru": SOLVED, "gru": STUCK, "lstm": HALFWAY}.items():
        directory = write_run(folder, "copying", model, curve, seed=0)
        (directory / "checkpoint.safetensors").write_bytes(b"0" * 1000)
        (directory / "lock").touch()
        (directory / "environment.json").write_text(json.dumps(ENVIRONMENT))
    write_run(folder, "parenthesis", "gru", SOLVED, figure=gate_figure(0.9, 1 / 3))
    write_run(folder, "copying", "goru", SOLVED, variant="quick")
    failed = write_run(folder, "denoise", "goru", STUCK, finished=False)
    (failed / "failure.json").write_text(json.dumps({"message": f"the loss became nan in {failed}"}))
    for model in ("goru", "gru"):
        write_run_on_data(folder, "speech", model, "paper", {"test_loss": 0.7}, figure=SPECTRUM)
    return folder


def verdicts(folder: Path) -> list[claims.Verdict]:
    return claims.judge_all([group for group in load(folder)[0] if not group.kind])


def test_the_same_report_from_the_record(source: Path, tmp_path: Path) -> None:
    recorded = record.write(source, tmp_path / "results")
    assert (recorded.written, recorded.kept, recorded.problems) == (7, 0, [])
    assert verdicts(tmp_path / "results") == verdicts(source)

    def tables(folder: Path) -> dict[str, object]:
        groups = [group for group in load(folder)[0] if not group.kind]
        return {table.name: table.rows for section in sections.make(groups, []) for table in section.tables}

    assert tables(tmp_path / "results") == tables(source)


def test_the_kernels_of_every_attempt(source: Path, tmp_path: Path) -> None:
    """Kept in the record, and named in the report: where they changed, so may the last bits."""
    directory = next(source.glob("copying/paper/gru/seed0"))
    kernels = [{"backend": "native", "isa": isa, "versions": {"torch": "2.13.0"}} for isa in ("avx512", "avx2")]
    attempts = [{"start_time": 1.0, "from_step": k, "host": "secret", **one} for k, one in enumerate(kernels)]
    (directory / "environment.json").write_text(json.dumps(ENVIRONMENT | {"attempts": attempts}))
    record.write(source, tmp_path / "results")
    found = runs.read_json(tmp_path / "results" / directory.relative_to(source) / "environment.json")
    assert found is not None
    assert found["attempts"] == [{"start_time": 1.0, "from_step": k, **one} for k, one in enumerate(kernels)]
    for other in ("denoise", "parenthesis", "speech"):  # less to draw
        shutil.rmtree(tmp_path / "results" / other)
    report.write(tmp_path / "results", tmp_path / "report")
    assert "kernels: native (avx512), then native (avx2)" in (tmp_path / "report" / "index.html").read_text()


def test_what_stays_behind(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    record.write(source, out)
    assert not [
        path for path in out.rglob("*") if path.name in ("lock", "checkpoint.safetensors") or "tmp" in path.name
    ]
    assert not (out / "copying" / "quick").exists()
    everything = "".join(path.read_text() for path in out.rglob("*") if path.is_file())
    assert "secret-host" not in everything
    assert "on-somewhere" not in everything
    assert str(tmp_path) not in everything
    assert "the loss became nan in denoise/paper/goru/seed0" in everything
    assert (out / "speech/paper/goru/seed0/figure.json").exists()  # the spectrum that is drawn
    assert not (out / "speech/paper/gru/seed0/figure.json").exists()
    assert json.loads((out / "parenthesis/paper/gru/seed0/figure.json").read_text())["gate_share"][1] == 0.333333


def test_one_spectrum_stays_whatever_the_order_of_recording(tmp_path: Path) -> None:
    out = tmp_path / "results"
    for model in ("gru", "goru", "lstm"):
        write_run_on_data(tmp_path / model, "speech", model, "paper", {"test_loss": 0.7}, figure=SPECTRUM)
        record.write(tmp_path / model, out)
    assert [path.parent.parent.name for path in out.rglob("figure.json")] == ["goru"]
    groups, problems = load(out)
    assert problems == []
    assert {one.config.model for one in groups[0].records if one.finished} == {"gru", "goru", "lstm"}


def test_thinning_keeps_every_evaluation() -> None:
    lines: list[dict[str, float]] = [{"step": 0, "last_step": 10_000, "baseline": 1.0, "test_loss": 2.0, "seconds": 0}]
    for step in range(20, 10_001, 20):
        lines.append({"step": step, "loss": 1 / 3 + step, "seconds": step / 7, "steps_per_s": 7.0})
        if step % 100 == 0:
            lines.append({"step": step, "test_loss": 1 / step, "seconds": step / 7})
    thinned = record.thin(lines)
    assert [line["step"] for line in thinned if "test_loss" in line] == [0, *range(100, 10_001, 100)]
    assert 20 <= sum("loss" in line for line in thinned) <= record.TRAINING_LINES
    assert thinned[0] == lines[0]
    assert thinned[-1]["step"] == 10_000
    assert thinned[2]["test_loss"] == pytest.approx(1 / 200, rel=1e-5)
    assert record.thin(thinned) == thinned
    unfinished = lines[:-1]
    assert record.thin(unfinished)[-1]["step"] == unfinished[-1]["step"]


def test_again_it_updates(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "results"
    record.write(source, out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    record.write(source, out)
    record.write(out, out)  # from itself: only what is made from it
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    write_run(source, "copying", "eurnn-real", SOLVED)
    record.write(source, out)
    assert (out / "copying/paper/eurnn-real/seed0/result.json").exists()
    assert "EURNN (real)" in (out / "README.md").read_text()
    gru = paper.experiment("copying").config("gru").directory(source)
    (gru / "result.json").unlink()  # begun anew: what is finished in the record stays
    (gru / "metrics.jsonl").write_text((gru / "metrics.jsonl").read_text().splitlines(keepends=True)[0])
    assert record.write(source, out).kept == 1
    assert (out / "copying/paper/gru/seed0/result.json").exists()


def test_threads_do_not_make_another_run(source: Path, tmp_path: Path) -> None:
    """A finished run of the record stays where the same one is half-way with more threads."""
    out = tmp_path / "results"
    record.write(source, out)
    gru = paper.experiment("copying").config("gru").directory(source)
    (gru / "result.json").unlink()
    (gru / "config.json").write_text((gru / "config.json").read_text().replace('"threads": 1', '"threads": 2'))
    assert record.write(source, out).kept == 1
    assert (out / "copying/paper/gru/seed0/result.json").exists()


def test_a_run_that_is_no_longer_finished_elsewhere(source: Path, tmp_path: Path) -> None:
    """A run of today's settings takes the place of a finished one of older settings even before it has ended."""
    out = tmp_path / "results"
    record.write(source, out)
    gru = paper.experiment("copying").config("gru")
    (gru.directory(source) / "result.json").unlink()
    old = gru.directory(out) / "config.json"
    old.write_text(old.read_text().replace('"steps": 10000', '"steps": 20000'))
    assert record.write(source, out).kept == 0
    assert not (out / "copying/paper/gru/seed0/result.json").exists()


def test_readme(source: Path, tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(f"before\n{markdown.BEGIN}\nformer\n{markdown.END}\nafter\n")
    record.write(source, tmp_path / "results", file)
    text = file.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{markdown.END}\nafter\n")
    assert "former" not in text
    assert 'srcset="results/overview-dark.svg"' in text
    assert 'src="results/overview.svg"' in text
    assert "| Copying: test loss, % of the baseline ↓ | **5.0** | 99.0 |" in text
    assert "| Denoise: test loss, % of the baseline ↓ | failed |" in text
    assert "failed marks a run without a result" in text
    finished = sum((path / "result.json").exists() for path in runs.find(tmp_path / "results"))
    assert "[0 of 11 claims](results/README.md#the-papers-claims) of the paper reproduced." in text
    assert "GORU is the only gated unit" not in text
    beside = (tmp_path / "results" / "README.md").read_text()
    assert "| Copying memory task | test loss, % of the baseline | 5.0 | 99.0 |" in beside
    assert "|  | the paper | solved | at the baseline |" in beside
    assert f"{finished} of the {len(paper.grid())} runs of the first seed are finished." in beside
    assert "\n## The paper's claims\n" in beside
    assert "| C1 | GORU is the only gated unit" in beside
    assert {"overview.svg", "overview-dark.svg"} <= {file.name for file in (tmp_path / "results").iterdir()}
    record.write(source, tmp_path / "results", file)
    assert file.read_text() == text
    file.write_text("no such lines\n")
    with pytest.raises(LabError, match="should have the lines"):
        record.write(source, tmp_path / "results", file)


def test_nothing_to_record(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "copying", "goru", SOLVED, variant="quick")
    with pytest.raises(LabError, match="no full-size runs"):
        record.write(tmp_path / "runs", tmp_path / "results")


def test_nowhere_to_write(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write the record"):
        record.write(source, tmp_path / "file")


def test_from_the_command_line(source: Path, tmp_path: Path) -> None:
    done = goru("record", "--runs", str(source), "--out", str(tmp_path / "results"))
    assert (done.returncode, done.stderr) == (0, "")
    assert f"recorded 7 runs in {tmp_path / 'results'}: 6 finished, 1 unfinished; left out 1 run that " in done.stdout
    assert len(runs.find(tmp_path / "results")) == 7
    failed = goru("record", "--runs", str(tmp_path / "nothing"))
    assert failed.returncode == 1
    assert failed.stderr.startswith("goru: there are no full-size runs")
    assert os.linesep not in failed.stderr.strip()


@pytest.mark.parametrize("link", ["results", "results/copying", "results/copying/paper/goru/seed0"])
def test_no_link_is_followed(link: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "copying", "goru", SOLVED)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match=r"cannot write the record .* is a link: name the folder that it points to"):
        record.write(tmp_path / "runs", tmp_path / "results")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_checksums_are_not_added_through_a_link(tmp_path: Path) -> None:
    """To a run of the record that has none, in a folder that someone planted."""
    write_run(tmp_path / "elsewhere", "copying", "gru", SOLVED)
    write_run(tmp_path / "runs", "denoise", "goru", SOLVED)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "copying").symlink_to(tmp_path / "elsewhere" / "copying")
    with pytest.raises(LabError, match="is a link"):
        record.write(tmp_path / "runs", tmp_path / "results")
    assert not list((tmp_path / "elsewhere").rglob("manifest.json"))
