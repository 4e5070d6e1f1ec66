"""The data sets on disk and from the network: found in order, checked always, never half there."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import io
import os
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tarfile
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from goru.lab import data as datasets
from goru.lab.data import archives, catalogue, download, speechocean, store
from goru.lab.data.archives import DataDamagedError, read_gzip, read_members
from goru.lab.data.catalogue import DataSet, Download, Part, Source
from goru.lab.data.readers import characters
from goru.lab.errors import LabError, UsageError
from tests.lab.attempts import attempt
from tests.lab.real_data import needs

CONTENT = {"en/one.txt": b"one\n" * 50, "en/two.txt": b"two\n" * 70}


class Letters(DataSet):
    """A data set of two small files."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(Part(name, len(c), hashlib.sha256(c).hexdigest()) for name, c in CONTENT.items())


def letters(*sources: Source) -> DataSet:
    return Letters("letters", "Letters", "none", "Free.", "1 kB", archives=("letters.tar.gz",), sources=sources)


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """GORU_DATA and a cache directory of the test's own."""
    monkeypatch.setenv("GORU_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def tar(members: dict[str, bytes], mode: str = "w:gz", **special: str) -> bytes:
    """An archive of these files, and of links named by `special`."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # pyright: ignore
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in special.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return buffer.getvalue()


def unreadable_zip(name: str, content: bytes, flags: int, method: int) -> bytes:
    """A file in a zip archive, said to be encrypted (flags 1) or packed by a method of another number."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    changed = bytearray(buffer.getvalue())
    for start in (6, changed.index(b"PK\x01\x02") + 8):  # the file's own header, and the directory
        changed[start : start + 4] = struct.pack("<HH", flags, method)
    return bytes(changed)


def peak_memory(use: Callable[[], object]) -> int:
    """Bytes that were allocated at most while something went on."""
    tracemalloc.start()
    try:
        use()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def put(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


class TestLookUp:
    def test_option_then_variable_then_cache(self, places: Path) -> None:
        set_ = letters()
        assert store.roots() == [places / "data", places / "cache" / "goru" / "data"]
        assert store.find(set_) is None
        cache = put(places / "cache" / "goru" / "data" / "letters", CONTENT)
        assert store.find(set_) == cache
        variable = put(places / "data" / "letters", CONTENT)
        assert store.find(set_) == variable
        option = put(places / "option" / "letters", CONTENT)
        store.search_first(places / "option")
        assert store.find(set_) == option
        (option / "en/one.txt").unlink()
        (option / "en/two.txt").unlink()
        assert store.find(set_) == variable

    @pytest.mark.parametrize("form", ["plain", "gzip", "archive", "folders", "mixed"])
    def test_every_form_gives_the_same_bytes(self, places: Path, form: str) -> None:
        folder = places / "data" / "letters"
        deep = {f"top/v1/{name}": content for name, content in CONTENT.items()}
        files = {
            "plain": CONTENT,
            "gzip": {f"{name}.gz": gzip.compress(content) for name, content in CONTENT.items()},
            "archive": {"letters.tar.gz": tar(CONTENT)},
            "folders": {"letters.tar.gz": tar({"en-10k/one.txt": b"no", **deep})},
            "mixed": {"letters.tar.gz": tar(CONTENT), "en/one.txt": CONTENT["en/one.txt"]},
        }[form]
        put(folder, files)
        assert store.read(letters(), list(CONTENT)) == CONTENT
        assert store.verify(letters()).state == "good"

    def test_tests_use_what_the_look_up_finds(self, places: Path) -> None:
        assert needs("ptb").args == (True,)
        put(places / "cache" / "goru" / "data" / "ptb", {"ptb.char.test.txt": b""})
        assert needs("ptb").args == (False,)
        mark = needs("ptb", "babi")
        assert (mark.args, mark.kwargs) == ((True,), {"reason": "not on this machine: babi"})

    def test_missing_says_how_to_get_it(self, places: Path) -> None:
        with pytest.raises(store.DataMissingError, match="goru data fetch babi"):
            datasets.read(datasets.dataset("babi"), ["en/qa1_single-supporting-fact_train.txt"])
        with pytest.raises(store.DataMissingError, match="bring your own copy"):
            datasets.require(datasets.dataset("timit"))
        assert store.verify(letters()).state == "missing"

    def test_a_missing_part_is_named(self, places: Path) -> None:
        put(places / "data" / "letters", {"en/one.txt": CONTENT["en/one.txt"]})
        with pytest.raises(LabError, match=r"lacks en/two\.txt"):
            store.read(letters(), list(CONTENT))

    @pytest.mark.parametrize("content", [b"", b"on3\n" * 50, CONTENT["en/one.txt"] + b"x", b"x" * 10**6])
    def test_a_changed_file_is_not_used(self, places: Path, content: bytes) -> None:
        put(places / "data" / "letters", CONTENT | {"en/one.txt": content})
        with pytest.raises(DataDamagedError, match=r"one\.txt has the wrong length or checksum"):
            store.read(letters(), ["en/one.txt"])
        assert store.read(letters(), ["en/two.txt"])
        assert store.verify(letters()).state == "damaged"

    @pytest.mark.parametrize(
        "form", ["gzip cut off", "gzip of another length", "tar cut off", "xz with a changed byte"]
    )
    def test_damage_names_the_command_that_mends_it(self, places: Path, form: str) -> None:
        one = CONTENT["en/one.txt"]
        packed = bytearray(tar(CONTENT, "w:xz"))
        packed[len(packed) // 2] ^= 1
        files = {
            "gzip cut off": {"en/one.txt.gz": gzip.compress(one)[:-9]},
            "gzip of another length": {"en/one.txt.gz": gzip.compress(one + b"x")},
            "tar cut off": {"letters.tar.gz": tar(CONTENT)[:60]},
            "xz with a changed byte": {"letters.tar.gz": bytes(packed)},
        }[form]
        put(places / "data" / "letters", files)
        set_ = letters(Source((Download("letters.tar.gz", ("http://127.0.0.1/",), 1),)))
        mend = "; run `goru data fetch letters` for a good copy."
        for look in (lambda: store.read(set_, ["en/one.txt"]), lambda: store.check_quickly(set_)):
            with pytest.raises(DataDamagedError) as error:
                look()
            assert str(error.value).endswith(mend)
            assert str(error.value).count("goru data fetch") == 1
        verdict = store.verify(set_)
        assert verdict.state == "damaged"
        assert verdict.message.endswith(mend)

    def test_unknown_name_suggests_the_nearest(self) -> None:
        with pytest.raises(UsageError, match='did you mean "babi"'):
            datasets.dataset("bab1")


class TestArchives:
    wanted: ClassVar = {name: len(content) for name, content in CONTENT.items()}

    def refused(self, tmp_path: Path, content: bytes, match: str) -> None:
        file = tmp_path / "archive"
        file.write_bytes(content)
        with pytest.raises(DataDamagedError, match=match):
            read_members(file, self.wanted)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["archive"]

    @pytest.mark.parametrize("name", ["../en/one.txt", "/en/one.txt", "a/../../en/one.txt", "C:/en/one.txt"])
    def test_paths_that_lead_out(self, tmp_path: Path, name: str) -> None:
        self.refused(tmp_path, tar({name: CONTENT["en/one.txt"]}), "leads out")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(name, CONTENT["en/one.txt"])
        self.refused(tmp_path, buffer.getvalue(), "leads out")

    def test_links(self, tmp_path: Path) -> None:
        self.refused(tmp_path, tar({}, **{"en/one.txt": "/etc/passwd"}), "not a regular file")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            link = zipfile.ZipInfo("en/one.txt")
            link.create_system, link.external_attr = 3, 0o120777 << 16
            archive.writestr(link, "/etc/passwd")
        self.refused(tmp_path, buffer.getvalue(), "is a link")

    def test_lengths(self, tmp_path: Path) -> None:
        self.refused(tmp_path, tar({"en/one.txt": b"x" * 10_000}), "should have 200 bytes, it has more")
        self.refused(tmp_path, tar({"en/one.txt": b"x"}), "should have 200 bytes, it has 1")

    def test_bombs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(archives, "TAR_LIMIT", 2**20)
        self.refused(tmp_path, tar({"zeros": bytes(2**21), **CONTENT}), "reading stopped")
        file = tmp_path / "zeros.gz"
        file.write_bytes(gzip.compress(bytes(10**7)))
        with pytest.raises(DataDamagedError, match="should hold 100 bytes, it holds more"):
            read_gzip(file, 100)

    @pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE])
    @pytest.mark.parametrize("size", [2**25, -512])
    def test_endless_headers(self, tmp_path: Path, kind: bytes, size: int) -> None:
        """A name of 32 MiB in a small archive is refused before it is read."""
        header = tarfile.TarInfo("././@LongLink")
        header.type, header.size = kind, size
        content = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(max(size, 0)) + tar(CONTENT, "w"))
        match = "too long" if size > 0 else "too long|damaged"
        assert peak_memory(lambda: self.refused(tmp_path, content, match)) < 2**23

    def test_endless_attributes_of_the_archive(self, tmp_path: Path) -> None:
        """Attributes for all members are not kept from member to member."""
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="w") as packed:
            for k in range(40):
                header = tarfile.TarInfo("global")
                attribute = f"key{k}={'x' * 500_000}\n"
                line = f"{len(attribute) + 7} {attribute}".encode()
                header.type, header.size = tarfile.XGLTYPE, len(line)
                packed.write(header.tobuf() + line.ljust(-(-len(line) // 512) * 512, b"\0"))
                packed.write(tarfile.TarInfo(f"member{k}").tobuf())
            packed.write(bytes(1024))
        file = tmp_path / "archive"
        file.write_bytes(buffer.getvalue())
        assert peak_memory(lambda: read_members(file, self.wanted)) < 2**23

    def test_members_that_go_back(self, tmp_path: Path) -> None:
        """A negative length would lead tarfile round in a circle."""
        member = tarfile.TarInfo("circle")
        member.size = -512
        content = tarfile.TarInfo("first").tobuf() + member.tobuf(tarfile.GNU_FORMAT) + tar(CONTENT, "w")
        self.refused(tmp_path, content, "overlap|damaged")

    @pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
    @pytest.mark.parametrize("style", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_long_names_are_read(self, tmp_path: Path, mode: str, style: int) -> None:
        file = tmp_path / "archive"
        with tarfile.open(file, mode, format=style) as archive:  # pyright: ignore
            for name, content in {"x" * 700: b"x" * 3000, **CONTENT}.items():
                member = tarfile.TarInfo(f"{'folder/' * 50}{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        assert read_members(file, self.wanted) == CONTENT

    def test_a_lying_zip(self, tmp_path: Path) -> None:
        """The directory of the archive says 200 bytes; more are packed."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("en/one.txt", bytes(10_000))
        lying = buffer.getvalue().replace((10_000).to_bytes(4, "little"), (200).to_bytes(4, "little"))
        self.refused(tmp_path, lying, "damaged|should have")

    @pytest.mark.parametrize(("flags", "method", "match"), [(1, 0, "encrypted"), (0, 99, "compression method")])
    def test_a_zip_that_cannot_be_read(self, tmp_path: Path, flags: int, method: int, match: str) -> None:
        self.refused(tmp_path, unreadable_zip("en/one.txt", CONTENT["en/one.txt"], flags, method), match)

    @pytest.mark.parametrize("kept", [0, 1, 20, 60, 100])
    @pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w"])
    def test_truncated(self, tmp_path: Path, mode: str, kept: int) -> None:
        file = tmp_path / "archive"
        file.write_bytes(tar(CONTENT, mode)[:kept])
        found = attempt(str(file), lambda: read_members(file, self.wanted))
        # tarfile takes a cut between members for the end: what is missing is for the caller to miss.
        assert found is None or found.items() < CONTENT.items()


@contextlib.contextmanager
def tls_server(folder: Path) -> Iterator[str]:
    """The address of a server whose certificate it has signed itself."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda request, client_address: None  # the client hangs up
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Server:
    """A web server of the test's own: what each path gives, and what was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.announced: dict[str, int] = {}
        self.asked: list[str] = []
        self.hold: threading.Event | None = None
        """After a content that is shorter than announced: what is waited for."""
        self.holding = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                content = outer.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.announced.get(self.path, len(content))))
                self.end_headers()
                self.wfile.write(content)
                if outer.hold is not None and self.path in outer.announced:
                    outer.holding.set()
                    outer.hold.wait(60)

            def log_message(self, *_: object) -> None:  # pyright: ignore
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.close()


class TestFetch:
    def source(self, *addresses: str, known_hash: str | None = None, limit: int = 10**6) -> DataSet:
        return letters(Source((Download("letters.tar.gz", addresses, limit, known_hash),)))

    def fails(self, places: Path, set_: DataSet, match: str) -> None:
        """The fetch ends with one sentence, and nothing half-written stays."""
        with pytest.raises(LabError, match=match) as error:
            download.fetch(set_, say=lambda _: None, progress=False)
        assert "\n" not in str(error.value)
        assert ".fetching" not in str(error.value)
        assert [p for p in places.rglob("*") if p.is_file()] == []
        assert not (places / "data" / "letters").exists()

    def test_good(self, places: Path, server: Server) -> None:
        server.files["/a"] = tar({f"top/{name}": c for name, c in CONTENT.items()})
        set_ = self.source(f"{server.address}/a", known_hash=hashlib.sha256(server.files["/a"]).hexdigest())
        said: list[str] = []
        folder = download.fetch(set_, say=said.append, progress=False)
        assert folder == places / "data" / "letters"
        assert "License: Free." in said[0]
        assert store.verify(set_).state == "good"
        assert sorted(p.relative_to(places).as_posix() for p in places.rglob("*") if p.is_file()) == [
            "data/letters/en/one.txt",
            "data/letters/en/two.txt",
        ]
        download.fetch(set_, say=said.append, progress=False)  # what is good is not fetched again
        assert server.asked == ["/a"]

    def test_progress_bar(self, places: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        server.files["/a"] = tar(CONTENT)
        download.fetch(self.source(f"{server.address}/a"))
        assert "letters.tar.gz" in capsys.readouterr().out

    def test_wrong_checksum(self, places: Path, server: Server) -> None:
        server.files["/a"] = tar(CONTENT)
        self.fails(places, self.source(f"{server.address}/a", known_hash="0" * 64), "wrong checksum")

    def test_wrong_member(self, places: Path, server: Server) -> None:
        server.files["/a"] = tar(CONTENT | {"en/two.txt": b"tw0\n" * 70})
        self.fails(places, self.source(f"{server.address}/a"), r"en/two\.txt has a wrong checksum")
        server.files["/a"] = tar({"en/two.txt": CONTENT["en/two.txt"]})
        self.fails(places, self.source(f"{server.address}/a"), r"lacks en/one\.txt")

    def test_truncated(self, places: Path, server: Server) -> None:
        whole = tar(CONTENT)
        server.files["/a"], server.announced["/a"] = whole[:90], len(whole)
        self.fails(places, self.source(f"{server.address}/a"), "broke off")
        server.announced.clear()
        self.fails(places, self.source(f"{server.address}/a"), "damaged|lacks")

    def test_not_found_and_the_next_address(self, places: Path, server: Server) -> None:
        self.fails(places, self.source(f"{server.address}/a"), "answered 404")
        server.files["/b"] = tar(CONTENT)
        download.fetch(self.source(f"{server.address}/a", f"{server.address}/b"), lambda _: None, progress=False)
        assert store.verify(letters()).state == "good"

    @pytest.mark.parametrize("parked", [b"<html>for sale</html>", tar({"en/one.txt": b"1\n" * 100}), b""])
    def test_an_address_that_gives_something_else_is_passed_over(
        self, places: Path, server: Server, parked: bytes
    ) -> None:
        server.files.update({"/a": parked, "/b": parked})
        mirrors = [f"{server.address}/{name}" for name in "abc"]
        self.fails(
            places, self.source(*mirrors), f"{mirrors[0]} returned unexpected content: .*{mirrors[1]} returned .*404"
        )
        server.files["/c"] = tar(CONTENT)
        download.fetch(self.source(*mirrors), say=lambda _: None, progress=False)
        assert store.verify(letters()).state == "good"
        assert server.asked == ["/a", "/b", "/c"] * 2

    def test_failures_name_addresses_not_temporary_folders(self, places: Path, server: Server) -> None:
        def check(folder: Path) -> None:
            raise DataDamagedError(f"{folder / 'en/one.txt'} is odd, as all of {folder}.")

        server.files["/a"] = tar(CONTENT)
        set_ = dataclasses.replace(self.source(f"{server.address}/a"), check=check)
        self.fails(
            places, set_, rf"{server.address}/a returned unexpected content: en/one\.txt is odd, as all of it\.$"
        )

    def test_offline(self, places: Path, server: Server) -> None:
        server.close()
        self.fails(places, self.source(f"{server.address}/a"), r"cannot be reached \(offline\?\)")

    def test_a_certificate_that_is_not_trusted(self, places: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Not "offline?": the address answers, as somebody else."""
        with tls_server(tmp_path_factory.mktemp("keys")) as address:
            self.fails(places, self.source(f"{address}/a"), r"has a certificate that is not trusted \(a proxy, or")

    def test_endless(self, places: Path, server: Server) -> None:
        server.files["/a"] = bytes(10**6)
        self.fails(places, self.source(f"{server.address}/a", limit=10**5), "at most 100000 expected")

    def test_hostile(self, places: Path, server: Server) -> None:
        server.files["/a"] = tar({"../../escaped.txt": b"!", **CONTENT})
        self.fails(places, self.source(f"{server.address}/a"), "leads out")

    def test_second_source(self, places: Path, server: Server) -> None:
        server.files["/b"] = tar(CONTENT)
        set_ = letters(*(Source((Download("letters.tar.gz", (f"{server.address}/{name}",), 10**6),)) for name in "ab"))
        download.fetch(set_, say=lambda _: None, progress=False)
        assert store.verify(set_).state == "good"

    def test_a_damaged_copy_is_mended(self, places: Path, server: Server) -> None:
        folder = put(places / "data" / "letters", {"letters.tar.gz": b"broken", "mine.txt": b"stays"})
        server.files["/a"] = tar(CONTENT)
        download.fetch(self.source(f"{server.address}/a"), say=lambda _: None, progress=False)
        assert store.verify(letters()).state == "good"
        assert (folder / "mine.txt").read_bytes() == b"stays"

    def test_unwritable(self, places: Path, server: Server) -> None:
        server.files["/a"] = tar(CONTENT)
        (places / "data").write_text("a file where a folder should be")
        with pytest.raises(LabError, match="cannot write letters to"):
            download.fetch(self.source(f"{server.address}/a"), say=lambda _: None, progress=False)

    def test_what_cannot_be_downloaded(self, places: Path) -> None:
        with pytest.raises(LabError, match=r"LDC93S1.*bring your own copy"):
            download.fetch(datasets.dataset("timit"), say=lambda _: None)

    def test_words_become_characters(self, places: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        """The Penn Treebank's way: word files are downloaded, character files made of them and checked."""
        made = {f"ptb.char.{split}.txt": b"a _ b \n " for split in ("train", "valid", "test")}
        monkeypatch.setitem(CONTENT, "en/one.txt", b"")
        for name in list(CONTENT):
            monkeypatch.delitem(CONTENT, name)
        for name, content in made.items():
            monkeypatch.setitem(CONTENT, name, content)
        names = [f"ptb.{split}.txt" for split in ("train", "valid", "test")]
        server.files.update({f"/{name}": b" a b \n" for name in names})
        downloads = tuple(Download(name, (f"{server.address}/{name}",), 10**6) for name in names)
        set_ = letters(Source(downloads, characters.make))
        download.fetch(set_, say=lambda _: None, progress=False)
        assert store.read(set_, list(made)) == made


class TestTemporaryFolders:
    """The temporary folders of fetches."""

    KILLED_FETCH = """
import sys
from goru.lab.cli import main
from goru.lab.data.catalogue import DATASETS, Download, Source
from tests.lab.test_datasets import letters
DATASETS["letters"] = letters(Source((Download("letters.tar.gz", (sys.argv[1],), 10**6),)))
sys.exit(main(["data", "fetch", "letters"]))
"""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    def test_ended_by_a_signal(self, places: Path, server: Server, number: signal.Signals) -> None:
        """Nothing stays of an ended fetch; of a killed one until the next fetch, unless it is still at work."""
        server.files["/a"], server.announced["/a"] = bytes(1000), 10**5  # the rest never comes
        server.hold = threading.Event()
        fetching = subprocess.Popen(
            [sys.executable, "-c", self.KILLED_FETCH, f"{server.address}/a"],
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            assert server.holding.wait(60)
            (working,) = (places / "data").glob(".fetching-*")
            download.remove_abandoned(places / "data")
            assert working.is_dir()
            fetching.send_signal(number)
            code = fetching.wait(60)
        finally:
            fetching.kill()
            fetching.wait()
            server.hold.set()
        if number == signal.SIGKILL:
            assert working.is_dir()
            server.files["/b"] = tar(CONTENT)
            set_ = letters(Source((Download("letters.tar.gz", (f"{server.address}/b",), 10**6),)))
            download.fetch(set_, say=lambda _: None, progress=False)
            assert sorted(p.name for p in (places / "data").iterdir()) == ["letters"]
        else:
            assert code == 130
            assert list((places / "data").iterdir()) == []

    def test_folders_without_a_lock_go_when_they_are_old(self, tmp_path: Path) -> None:
        new, old = tmp_path / ".fetching-new", put(tmp_path / ".fetching-old", {"downloads/half": b"a"})
        new.mkdir()
        os.utime(old, (1e9, 1e9))
        mine = put(tmp_path / "mine", {"file": b"a"})
        download.remove_abandoned(tmp_path)
        assert sorted(tmp_path.iterdir()) == [new, mine]
        download.remove_abandoned(tmp_path / "nowhere")


class TestCatalogue:
    def test_every_set_is_described(self) -> None:
        for one in catalogue.DATASETS.values():
            assert one.title
            assert one.license.endswith(".")
            assert one.size
            assert one.sources or one.bring
            for source in one.sources:
                assert source.make or one.parts
                for each in source.downloads:
                    assert all(address.startswith(("https://", "http://")) for address in each.addresses)
        assert [len(datasets.dataset(name).parts) for name in ("babi", "shortest_path", "ptb")] == [40, 30, 3]
        assert "LDC" in datasets.dataset("ptb").license
        assert "LDC" in datasets.dataset("timit").license

    @pytest.mark.parametrize(
        "name", [pytest.param(name, marks=needs(name)) for name in ("babi", "shortest_path", "ptb", "mnist10k")]
    )
    def test_the_real_sets_verify(self, name: str) -> None:
        verdict = datasets.verify(datasets.dataset(name))
        assert (verdict.state, verdict.message) == ("good", "")

    @needs("ptb")
    def test_penn_characters_are_made_exactly(self) -> None:
        folder = datasets.require(datasets.dataset("ptb"))
        if not (folder / "ptb.valid.txt.gz").is_file():
            pytest.skip("the word files are not there")
        words = gzip.decompress((folder / "ptb.valid.txt.gz").read_bytes()).decode()
        made = characters.characters(words).encode()
        (part,) = (one for one in datasets.dataset("ptb").parts if "valid" in one.name)
        assert hashlib.sha256(made).hexdigest() == part.sha256

    @needs("speech_so762_8k")
    def test_the_selection_of_speakers_follows_the_rule(self) -> None:
        manifest = speechocean.read_manifest(datasets.require(datasets.dataset("speech_so762_8k")))
        names = {Path(one.file).stem: one for one in manifest}
        chosen = speechocean.select(
            {name: 2 * one.samples - 1 for name, one in names.items()},
            {name: one.speaker for name, one in names.items()},
        )
        assert {split: len(chosen[split]) for split in chosen} == {"test": 1000, "valid": 600, "train": 2400}
        assert all(names[name].split == split for split in chosen for name in chosen[split])
        assert speechocean.selection_digest(manifest) == speechocean.SELECTION_SHA256
        changed = [*manifest[1:], manifest[0]._replace(samples=7)]
        assert speechocean.selection_digest(changed) != speechocean.SELECTION_SHA256
