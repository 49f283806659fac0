"""Every later release reads what the first one wrote."""

from __future__ import annotations

import json
import shutil
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard
from blake3 import blake3
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from perdure.cli import main
from perdure.domain.errors import WrongKey
from perdure.domain.ids import Generation
from perdure.store.keys import Key, Keys
from perdure.store.local import LocalBackend
from perdure.store.repository import Repository, SourceFile

from tests.golden.format_1 import FILES, FOLDER, KERNEL, MODES, NEW, OLD, RECORD, SEALED, cuts


@dataclass(frozen=True)
class Golden:
    """A copy of one of the two, since reading may leave marks, and what opens it."""

    folder: Path
    keys: Keys | None

    def open(self, *, create: bool = False) -> Repository:
        return Repository.on(LocalBackend(self.folder), create=create, keys=self.keys)

    def bytes(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}


@pytest.fixture(params=[(FOLDER, None), (SEALED, Keys((NEW, OLD)))], ids=["plain", "sealed"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    folder, keys = request.param
    return Golden(Path(shutil.copytree(folder, tmp_path / "golden")), keys)


def test_it_is_read(golden: Golden, tmp_path: Path) -> None:
    repository = golden.open()
    assert repository.kernels() == [KERNEL]
    assert repository.generations(KERNEL) == [1, 2]
    for number, files in enumerate(FILES, 1):
        into = tmp_path / str(number)
        manifest = repository.fetch(KERNEL, Generation(number), into)
        assert {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()} == files
        assert {file.name: file.mode for file in manifest.files} == {name: MODES.get(name, 0o600) for name in files}
        assert stat.S_IMODE((into / "core-1000.img").stat().st_mode) == 0o640
        assert manifest.record == RECORD
    report = repository.verify()
    assert report.ok
    assert report.unreferenced_packs == 0


def test_it_goes_on(golden: Golden, tmp_path: Path) -> None:
    """A new generation on top finds the old blocks again."""
    data = FILES[1]["pages-1.img"]
    path = tmp_path / "pages"
    path.write_bytes(data)
    repository = golden.open(create=True)
    manifest = repository.publish(KERNEL, [SourceFile("pages-1.img", path, 0o600, cuts("pages-1.img", data))], lambda _: {})
    assert manifest.generation == 3
    assert manifest.bytes_added < 500
    assert repository.verify().ok
    repository.collect(KERNEL, gone=[Generation(1), Generation(2)], now=2e9, grace_s=0)
    repository.collect(KERNEL, now=2e9, grace_s=0)
    repository.fetch(KERNEL, Generation(3), tmp_path / "into")
    assert (tmp_path / "into" / "pages-1.img").read_bytes() == data


def test_the_verbs_that_need_no_agent(
    golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say what is there, and change no byte of it."""
    if golden.keys is not None:
        file = tmp_path / "keys"
        file.touch(0o600)
        file.write_text("".join(f"{key.text}\n" for key in golden.keys.all))
        monkeypatch.setenv("PERDURE_KEY_FILE", str(file))
    before = golden.bytes()

    def ask(verb: str, *argv: str) -> dict[str, Any]:
        assert main([verb, *argv, "--repository", str(golden.folder)]) == 0
        assert capsys.readouterr().out
        assert main([verb, "--json", *argv, "--repository", str(golden.folder)]) == 0
        return dict(json.loads(capsys.readouterr().out))

    assert [len(one["generations"]) for one in ask("list")["kernels"]] == [2]
    assert [one["created"] for one in ask("show", KERNEL)["generations"]] == [RECORD["created"]] * 2
    assert [one["generation"] for one in ask("du")["kernels"][0]["generations"]] == [1, 2]
    assert [one["ok"] for one in ask("verify", "--data")["generations"]] == [True, True]
    [would] = ask("collect", "--dry-run", "--keep-last", "1", "--now")["kernels"]
    assert (would["retired"], would["problem"]) == ([1], "")
    assert golden.bytes() == before


@pytest.mark.parametrize("given", [(NEW,), (OLD,), ()], ids=["new", "old", "none"])
def test_a_key_is_missing(given: tuple[Key, ...], tmp_path: Path) -> None:
    """The new key reads the second generation, the old one nothing: `repository` and head are the new one's."""
    backend = LocalBackend(Path(shutil.copytree(SEALED, tmp_path / "golden")))
    if given != (NEW,):
        with pytest.raises(WrongKey):
            Repository.on(backend, create=False, keys=Keys(given) if given else None)
        return
    repository = Repository.on(backend, create=False, keys=Keys(given))
    repository.fetch(KERNEL, Generation(2), tmp_path / "into")
    assert (tmp_path / "into" / "files" / "3").read_bytes() == FILES[1]["files/3"]
    with pytest.raises(WrongKey):
        repository.fetch(KERNEL, Generation(1), tmp_path / "first")
    assert not (tmp_path / "first").exists()


def test_the_bytes_are_what_format_md_says() -> None:
    """Read by hand, from the page alone: a reader that the code can't lead astray."""
    kinds = {"repository": b"REPO", "head": b"HEAD", "manifests": b"MANI", "index": b"INDX", "packs": b"PACK"}
    blocks: dict[bytes, tuple[int, bytes]] = {}
    objects = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert len(objects) == 8
    for path in objects:
        whole = path.read_bytes()
        kind = kinds[path.name if path.name in kinds else path.parent.name]
        assert whole[:16] == b"PERDURE\n" + kind + b"\1\0\0\0"
        assert whole[16:40] == bytes(24)
        body = whole[96:]
        assert int.from_bytes(whole[40:48], "little") == len(body)
        assert whole[48:80] == blake3(body).digest()
        assert whole[80:96] == blake3(whole[:80]).digest()[:16]
        if kind in (b"REPO", b"HEAD", b"MANI"):
            assert json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode() == body
        if kind == b"INDX":
            packs, number, size, count = struct.unpack_from("<IIII", body)
            pack = (FOLDER / "kernels" / KERNEL / "packs" / f"{path.name}-{number}").read_bytes()
            assert (packs, size, len(body)) == (1, len(pack), 16 + 45 * count)
            for name, offset, stored, plain, codec in struct.iter_unpack("<32sIIIB", body[16:]):
                assert pack[offset - 44 : offset] == struct.pack("<32sIIB3x", name, stored, plain, codec)
                blocks[name] = (codec, pack[offset : offset + stored])
    assert {codec for codec, _ in blocks.values()} == {0, 1}

    def opened(name: bytes) -> bytes:
        codec, stored = blocks[name]
        plain = zstandard.decompress(stored) if codec else stored
        assert blake3(plain).digest() == name
        return plain

    [first] = (FOLDER / "kernels" / KERNEL / "manifests").glob("1-*")
    [pages] = [file for file in json.loads(first.read_bytes()[96:])["files"] if file["name"] == "pages-1.img"]
    segments = [opened(name) for name in map(bytes.fromhex, pages["recipe"])]
    assert len(segments) > 1
    content = b""
    for segment in segments:
        for length, name in struct.iter_unpack("<I32s", segment):
            piece = bytes(length) if name == bytes(32) else opened(name)
            assert len(piece) == length
            content += piece
    assert content == FILES[0]["pages-1.img"]


def test_the_sealed_bytes_are_what_format_md_says() -> None:
    """Opened by hand, from the page alone, and then no different from an object in plain."""

    def derived(context: str, material: bytes, size: int = 32) -> bytes:
        return blake3(material, derive_key_context=context).digest(size)

    secrets = {derived("perdure 2026-12 key id", secret, 16): secret for secret in (bytes(range(32)), bytes(range(32, 64)))}

    def opened(name: str, repository: str) -> bytes:
        whole = (SEALED / name).read_bytes()
        assert whole[:16] == b"PERDURE\nSEAL\1\0\0\0"
        assert whole[32:40] == bytes(8)
        assert (int.from_bytes(whole[40:48], "little"), whole[48:80]) == (len(whole) - 96, blake3(whole[96:]).digest())
        salt, sealed = whole[96:128], whole[128:]
        cipher = AESGCM(derived("perdure 2026-12 object key", secrets[whole[16:32]] + salt))
        bound = whole[:48] + salt + repository.encode() + b"\0" + name.encode()
        chunks = [sealed[at : at + 65536 + 16] for at in range(0, len(sealed), 65536 + 16)]
        return b"".join(
            cipher.decrypt(number.to_bytes(11, "big") + bytes([number == len(chunks) - 1]), chunk, bound)
            for number, chunk in enumerate(chunks)
        )

    id = json.loads(opened("repository", "")[96:])["id"]
    names = sorted(str(path.relative_to(SEALED)) for path in SEALED.rglob("*") if path.is_file())
    assert len(names) == 8
    kinds = [b"HEAD", b"INDX", b"INDX", b"MANI", b"MANI", b"PACK", b"PACK", b"REPO"]
    for name, kind in zip(names, kinds, strict=True):
        content = opened(name, "" if name == "repository" else id)
        assert content[:12] == b"PERDURE\n" + kind
        assert content[16:32] == bytes(16)
        assert content[48:80] == blake3(content[96:]).digest()
    head = json.loads(opened(names[0], id)[96:])
    assert [claim.partition("-")[0] for claim in head["generations"]] == ["1", "2"]
