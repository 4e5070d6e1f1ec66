"""The readers of sound: SPHERE, TIMIT's folders, archives with a manifest; hand-made, real and broken."""

from __future__ import annotations

import io
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from goru.lab.data import speechocean
from goru.lab.data.generated import voices
from goru.lab.data.readers import sphere, timit, utterances
from goru.lab.data.readers.lines import FormatError
from goru.lab.data.readers.utterances import halve_rate
from goru.lab.errors import LabError
from tests.lab.attempts import attempt
from tests.lab.real_data import folder, needs
from tests.lab.test_datasets import peak_memory, tar, unreadable_zip


def sphere_file(samples: np.ndarray, rate: int = 16_000, **changed: str) -> bytes:
    order = changed.pop("sample_byte_format", "-s2 01")
    fields = {
        "database_id": "-s5 TIMIT",
        "channel_count": "-i 1",
        "sample_count": f"-i {len(samples)}",
        "sample_rate": f"-i {rate}",
        "sample_n_bytes": "-i 2",
        "sample_byte_format": order,
        "sample_sig_bits": "-i 16",
    } | changed
    header = "NIST_1A\n   1024\n" + "".join(f"{k} {v}\n" for k, v in fields.items()) + "end_head\n"
    return header.encode().ljust(1024) + samples.astype(">i2" if "10" in order else "<i2").tobytes()


SAMPLES = np.array([0, 1, -2, 300, -32768, 32767], dtype=np.int16)


class TestSphere:
    @pytest.mark.parametrize("order", ["-s2 01", "-s2 10"])
    def test_by_hand(self, order: str) -> None:
        samples, rate = sphere.parse(sphere_file(SAMPLES, sample_byte_format=order), "file")
        assert rate == 16_000
        assert samples.dtype == np.int16
        assert samples.tolist() == SAMPLES.tolist()

    @pytest.mark.parametrize(
        ("content", "match"),
        [
            (b"", "line 1: not a NIST SPHERE"),
            (b"RIFF" + bytes(2000), "line 1: not a NIST SPHERE"),
            (sphere_file(SAMPLES)[:500], "line 2: a header of 1024 bytes in a file of 500"),
            (sphere_file(SAMPLES)[:-2], "6 samples announced, 5 are there"),
            (sphere_file(SAMPLES, sample_rate="-i x"), "sample_rate should be a number"),
            (sphere_file(SAMPLES, sample_coding="-s26 pcm,embedded-shorten-v2.00"), "not plain 16-bit PCM"),
            (sphere_file(SAMPLES, channel_count="-i 2"), "channel_count should be a number from 1 to 1"),
            (sphere_file(SAMPLES).replace(b"end_head", b"xnd_head"), "should be: name -type value"),
            (sphere_file(SAMPLES).replace(b"end_head", b"        "), "no end_head"),
            (sphere_file(SAMPLES).replace(b"sample_count -i 6", b"                 "), "lacks sample_count"),
        ],
    )
    def test_errors(self, content: bytes, match: str) -> None:
        with pytest.raises(FormatError, match=f"^file.*{match}"):
            sphere.parse(content, "file")

    @given(st.binary(max_size=200), st.integers(0, 1036), st.integers(0, 1036))
    def test_fuzz(self, piece: bytes, first: int, end: int) -> None:
        good = sphere_file(SAMPLES)
        for content in (piece, (good[:first] + piece + good[first + len(piece) :])[:end]):
            parsed = attempt("file", partial(sphere.parse, content, "file"))
            assert parsed is None or parsed[0].dtype == np.int16


class TestTimit:
    @pytest.fixture
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timit, "SIZES", {"train": 12, "valid": 4, "test": 6})

    def make(self, top: Path, upper: bool, per_speaker: int = 4) -> Path:
        """Eight training and four test speakers; two sentences of each are those that everybody reads."""
        rng = np.random.default_rng(0)
        for half, speakers in (("train", 8), ("test", 4)):
            for k in range(speakers):
                for name in ["sa1", "sa2", *(f"sx{10 * k + j}" for j in range(per_speaker))]:
                    parts = (half, f"dr{k % 3 + 1}", f"fabc{k}", f"{name}.wav")
                    file = top.joinpath(*(part.upper() if upper else part for part in parts))
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(sphere_file(rng.integers(-99, 99, 1000)))
                    file.with_suffix(".TXT").write_text("0 1000 words")
        return top

    @pytest.mark.usefixtures("small")
    def test_layout_and_split(self, tmp_path: Path) -> None:
        upper = timit.find_utterances(self.make(tmp_path / "a", upper=True))
        lower = timit.find_utterances(self.make(tmp_path / "b" / "timit", upper=False).parent)
        assert {split: len(files) for split, files in upper.items()} == {"train": 12, "valid": 4, "test": 6}
        assert {s: [f.stem.upper() for f in files] for s, files in upper.items()} == {
            s: [f.stem.upper() for f in files] for s, files in lower.items()
        }
        speakers = {split: {file.parent.name for file in files} for split, files in upper.items()}
        assert not speakers["train"] & speakers["valid"]
        assert all("TEST" in file.parts for file in upper["test"])
        assert not any(file.stem.startswith("SA") for files in upper.values() for file in files)
        timit.check(tmp_path / "a")
        assert timit.read_utterance(upper["test"][0]).shape == (500,)

    @pytest.mark.usefixtures("small")
    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError, match="no folder TRAIN"):
            timit.find_utterances(tmp_path)
        with pytest.raises(FormatError, match="too few sentences"):
            timit.find_utterances(self.make(tmp_path / "few", upper=True, per_speaker=1))
        top = self.make(tmp_path / "bad", upper=True)
        chosen = timit.find_utterances(top)["train"][3]
        chosen.write_bytes(sphere_file(SAMPLES, rate=8000))
        with pytest.raises(FormatError, match=rf"{chosen.name}: has 8000 samples a second"):
            timit.check(top)
        chosen.write_bytes(sphere_file(np.zeros(766)))
        with pytest.raises(FormatError, match=rf"{chosen.name}: has 766 samples, at least 767 are needed"):
            timit.check(top)
        chosen.write_bytes(sphere_file(np.zeros(767)))
        timit.check(top)


class TestResampling:
    def test_against_hand_made_signals(self) -> None:
        t = np.arange(4000) / 16_000
        low, high = np.sin(2 * np.pi * 500 * t), np.sin(2 * np.pi * 6000 * t)
        inner = slice(50, -50)
        assert np.abs(halve_rate(low) - low[::2])[inner].max() < 2e-3
        assert np.abs(halve_rate(high))[inner].max() < 1e-2  # would come out at 2 kHz without the filter
        assert halve_rate(np.ones(1001))[inner] == pytest.approx(1.0, abs=1e-3)
        assert [len(halve_rate(np.ones(n))) for n in (1, 2, 5, 100)] == [1, 1, 3, 50]


def archive(files: dict[str, bytes]) -> io.BytesIO:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as content:
        for name, data in files.items():
            content.writestr(name, data)
    return buffer


class TestUtterances:
    made = voices.write("train", 3, np.random.default_rng(0))

    def test_by_hand(self) -> None:
        entries = utterances.parse_manifest(self.made.manifest, "manifest")
        sounds = utterances.read_archive(io.BytesIO(self.made.archive), entries, "zip")
        assert [len(sound) for sound in sounds] == [entry.samples for entry in entries]
        assert [utterances.pcm_digest(sound) for sound in sounds] == [entry.pcm_sha256_16 for entry in entries]
        again = voices.write("train", 3, np.random.default_rng(0))
        assert (again.manifest, again.archive) == (self.made.manifest, self.made.archive)

    def test_a_plain_wav_with_the_standard_library(self) -> None:
        import wave

        samples = np.arange(-500, 500, dtype=np.int16)
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(samples.astype("<i2").tobytes())
        entry = utterances.Entry("test", "a.wav", "1", 1000, utterances.pcm_digest(samples))
        (read,) = utterances.read_archive(archive({"a.wav": buffer.getvalue()}), [entry], "zip")
        assert (read == samples).all()

    @pytest.mark.parametrize(
        ("change", "match"),
        [
            ((b"split\t", b"part\t"), "line 1: the columns should be"),
            ((b"train\ttrain/voice0001", b"train/voice0001"), "line 3: should have 11 columns, has 10"),
            ((b"train\ttrain/voice0002", b"extra\ttrain/voice0002"), "line 4: split 'extra'"),
        ],
    )
    def test_manifest_errors(self, change: tuple[bytes, bytes], match: str) -> None:
        with pytest.raises(FormatError, match=f"^manifest, {match}"):
            utterances.parse_manifest(self.made.manifest.replace(*change), "manifest")

    @pytest.mark.parametrize("samples", ["0", "-5", "x", "383", "99999999999", "999999", "²"])
    def test_manifest_sample_counts(self, samples: str) -> None:
        row = ["test", "a.flac", "", "", "", "", "", samples, "0", "0" * 16, ""]
        content = ("\t".join(utterances.COLUMNS) + "\n" + "\t".join(row) + "\n").encode()
        with pytest.raises(FormatError, match=r"^manifest, line 2: 'a\.flac': .* is not a number of samples"):
            utterances.parse_manifest(content, "manifest")

    def test_archive_errors(self) -> None:
        entries = utterances.parse_manifest(self.made.manifest, "manifest")
        with zipfile.ZipFile(io.BytesIO(self.made.archive)) as content:
            files = {name: content.read(name) for name in content.namelist()}
        first, second, _ = files

        def refused(changed: dict[str, bytes], match: str) -> None:
            with pytest.raises(FormatError, match=f"^zip.*{match}"):
                utterances.read_archive(archive(changed), entries, "zip")

        refused({name: files[name] for name in (first, second)}, r"lacks train/voice0002\.flac")
        refused(files | {second: b"no sound"}, f"{second}: cannot be decoded")
        refused(files | {second: files[first]}, f"{second}: shape")
        refused(files | {second: bytes(10**6)}, f"{second}: 1000000 bytes are too many")
        endless = io.BytesIO()
        soundfile.write(endless, np.zeros(5_000_000, dtype=np.int16), 8000, format="FLAC", subtype="PCM_16")
        peak = peak_memory(lambda: refused(files | {first: endless.getvalue()}, f"{first}: shape .* or more"))
        assert peak < 5_000_000  # decoded it would take 10 MB
        swapped = [entries[0]._replace(pcm_sha256_16="0" * 16)]
        with pytest.raises(FormatError, match="do not have the checksum"):
            utterances.read_archive(io.BytesIO(self.made.archive), swapped, "zip")

    @pytest.mark.parametrize(("flags", "method", "match"), [(1, 0, "encrypted"), (0, 99, "compression method")])
    def test_an_archive_that_cannot_be_read(self, flags: int, method: int, match: str) -> None:
        entries = utterances.parse_manifest(self.made.manifest, "manifest")[:1]
        packed = unreadable_zip(entries[0].file, b"sound", flags, method)
        with pytest.raises(FormatError, match=f"^zip: damaged, or not a zip archive .*{match}"):
            utterances.read_archive(io.BytesIO(packed), entries, "zip")

    @settings(max_examples=60)
    @given(st.data())
    def test_fuzz_archive(self, data: st.DataObject) -> None:
        good = self.made.archive
        place, end = data.draw(st.integers(0, len(good) - 1)), data.draw(st.integers(0, len(good)))
        piece = data.draw(st.binary(min_size=1, max_size=4))
        entries = utterances.parse_manifest(self.made.manifest, "manifest")
        for content in (good[:end], good[:place] + piece + good[place + len(piece) :]):
            sounds = attempt("zip", partial(utterances.read_archive, io.BytesIO(content), entries, "zip"))
            assert sounds is None or len(sounds) == 3  # the change hit something that does not matter

    @given(st.binary(max_size=200), st.integers(0, 400), st.integers(0, 400))
    def test_fuzz_manifest(self, piece: bytes, first: int, end: int) -> None:
        good = self.made.manifest
        for content in (piece, (good[:first] + piece + good[first:])[:end]):
            entries = attempt("manifest", partial(utterances.parse_manifest, content, "manifest"))
            assert entries is None or entries


class TestSpeechocean:
    @needs("speech_so762_8k")
    def test_real(self) -> None:
        where = folder("speech_so762_8k")
        manifest = speechocean.read_manifest(where)
        assert {s: sum(one.split == s for one in manifest) for s in speechocean.SIZES} == {
            "test": 1000,
            "valid": 600,
            "train": 2400,
        }
        seconds = sum(one.samples for one in manifest) / 8000
        assert seconds / 60 == pytest.approx(227.1, abs=0.1)
        valid = speechocean.read_split(where, manifest, "valid")
        assert len(valid) == 600

    def test_low_bits(self) -> None:
        rng = np.random.default_rng(0)
        loud, dropped = speechocean.drop_low_bits(rng.normal(0, 400, 5000))
        assert dropped == 5
        assert (loud % 32 == 0).all()
        quiet, dropped = speechocean.drop_low_bits(rng.normal(0, 2, 5000))
        assert dropped == 0
        assert quiet.dtype == np.int16
        clipped, _ = speechocean.drop_low_bits(np.array([40_000.0, -40_000.0] * 100))
        assert clipped.max() <= 32767

    def corpus(self, speakers: int = 8, sentences: int = 3) -> bytes:
        """The published corpus in small: 16 kHz, tables in two halves; a first sentence too long, a last too short."""
        rng = np.random.default_rng(0)
        files: dict[str, bytes] = {}
        tables: dict[str, list[str]] = {}
        for k in range(speakers):
            half = "train" if k % 2 else "test"
            tables.setdefault(f"{half}/spk2gender", []).append(f"{k:04}\tf")
            tables.setdefault(f"{half}/spk2age", []).append(f"{k:04}\t{k + 6}")
            for j in range(sentences + 1):
                name = f"{k:04}{j:05}"
                sound = io.BytesIO()
                length = {0: 81_000, sentences: 200}.get(j, 2000 + 100 * j)
                soundfile.write(sound, rng.integers(-900, 900, length).astype(np.int16), 16_000, format="WAV")
                files[f"WAVE/SPEAKER{k:04}/{name}.WAV"] = sound.getvalue()
                tables.setdefault(f"{half}/utt2spk", []).append(f"{name}\t{k:04}")
                tables.setdefault(f"{half}/text", []).append(f"{name}\tWORDS OF {j}")
        files |= {name: ("\n".join(lines) + "\n").encode() for name, lines in tables.items()}
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(f"speechocean762/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    def test_derivation_from_the_corpus(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(speechocean, "SIZES", {"test": 5, "valid": 3, "train": 4})
        file = tmp_path / "speechocean762.tar.gz"
        file.write_bytes(self.corpus())
        made = tmp_path / "made"
        made.mkdir()
        speechocean.make({"speechocean762.tar.gz": file}, made)
        manifest = utterances.parse_manifest((made / "manifest.tsv").read_bytes(), "manifest")
        assert {s: sum(one.split == s for one in manifest) for s in speechocean.SIZES} == speechocean.SIZES
        monkeypatch.setattr(speechocean, "SELECTION_SHA256", speechocean.selection_digest(manifest))
        monkeypatch.setattr(speechocean, "SAMPLES_SHA256", speechocean.samples_digest(manifest))
        assert speechocean.check(made) == "every sample as in the reference"
        # Samples that are not the reference's: the mean squares decide.
        monkeypatch.setattr(speechocean, "SAMPLES_SHA256", "another derivation")
        powers = {
            split: np.square(np.concatenate(speechocean.read_split(made, manifest, split)), dtype=float).mean()
            for split in speechocean.SIZES
        }
        sounds = {
            Path(entry.file).stem: samples
            for split in speechocean.SIZES
            for entry, samples in zip(
                (one for one in manifest if one.split == split),
                speechocean.read_split(made, manifest, split),
                strict=True,
            )
        }
        known = [speechocean.signature(sounds[name]) for name in sorted(sounds)]
        monkeypatch.setattr(speechocean, "signatures", lambda: known)
        monkeypatch.setattr(speechocean, "MEAN_SQUARES", {split: 1.0009 * power for split, power in powers.items()})
        assert "not the same to the bit" in speechocean.check(made)
        monkeypatch.setattr(speechocean, "MEAN_SQUARES", powers | {"valid": 1.002 * powers["valid"]})
        with pytest.raises(LabError, match=r"the valid set of .* has a mean square of"):
            speechocean.check(made)
        # Any other sound with the right name, length and energy is refused: here the same samples, backwards.
        name = sorted(sounds)[7]
        known[7] = speechocean.signature(sounds[name][::-1])
        monkeypatch.setattr(speechocean, "MEAN_SQUARES", powers)
        with pytest.raises(LabError, match=rf"{name}.flac of .* does not match the corpus: it is another sound"):
            speechocean.check(made)
        speakers = {s: {one.speaker for one in manifest if one.split == s} for s in speechocean.SIZES}
        assert not speakers["train"] & speakers["test"]
        assert max(one.samples for one in manifest) == 1100  # 2200 at 16 kHz; those of more than 5 s are left out
        assert min(one.samples for one in manifest) == 1050
        lines = (made / "manifest.tsv").read_text().splitlines()
        assert lines[1].split("\t")[4] == "f"
        assert lines[1].split("\t")[6] in ("train", "test")

    def test_signatures_survive_another_rounding(self) -> None:
        rng = np.random.default_rng(0)
        for length in (1000, 20_000, 40_000):
            sound = np.round(rng.normal(0, 500, length)).astype(np.int16)
            mine = speechocean.signature(sound)
            rounded = sound + 8 * rng.integers(-1, 2, length)
            other = np.round(rng.normal(0, 500, length)).astype(np.int16)
            assert (mine ^ speechocean.signature(rounded)).bit_count() <= 4
            assert (mine ^ speechocean.signature(sound // 2)).bit_count() <= 4
            assert (mine ^ speechocean.signature(other)).bit_count() > speechocean.FARTHEST
            assert (mine ^ speechocean.signature(sound[::-1])).bit_count() > speechocean.FARTHEST

    @needs("speech_so762_8k")
    def test_the_reference_has_its_signatures(self) -> None:
        where = folder("speech_so762_8k")
        manifest = speechocean.read_manifest(where)
        sounds = speechocean.read_split(where, manifest, "valid")
        speechocean._check_signatures(where, manifest, "valid", sounds)
        swapped = [sounds[1][: len(sounds[0])], *sounds[1:]]
        with pytest.raises(LabError, match="is another sound"):
            speechocean._check_signatures(where, manifest, "valid", swapped)

    def test_a_damaged_corpus(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "speechocean762.tar.gz"
        whole = self.corpus()
        for content in (whole[: len(whole) // 2], b"nothing"):
            file.write_bytes(content)
            with pytest.raises(LabError, match=r"is damaged|too few sentences|cannot be decoded"):
                speechocean.make({"speechocean762.tar.gz": file}, tmp_path)
        file.write_bytes(whole)
        with pytest.raises(LabError, match="too few sentences for 1000 of test"):
            speechocean.make({"speechocean762.tar.gz": file}, tmp_path)

    def test_endless_sounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A sound that is too long is left out, without being decoded to its end."""
        monkeypatch.setattr(speechocean, "SIZES", {"test": 1})
        sound = io.BytesIO()
        soundfile.write(sound, np.zeros(5_000_000, dtype=np.int16), 16_000, format="FLAC", subtype="PCM_16")
        file = tmp_path / "speechocean762.tar.gz"
        file.write_bytes(tar({"WAVE/1.WAV": sound.getvalue(), "train/utt2spk": b"1\t1\n"}))
        del sound

        def make() -> None:
            with pytest.raises(LabError, match="too few sentences for 1 of test"):
                speechocean.make({"speechocean762.tar.gz": file}, tmp_path)

        assert peak_memory(make) < 5_000_000

    def test_a_folder_that_is_not_the_set(self, tmp_path: Path) -> None:
        with pytest.raises(LabError, match=r"manifest\.tsv cannot be read"):
            speechocean.check(tmp_path)
        (tmp_path / "manifest.tsv").write_bytes(TestUtterances.made.manifest)
        with pytest.raises(LabError, match="does not name the 2400 / 600 / 1000"):
            speechocean.check(tmp_path)
