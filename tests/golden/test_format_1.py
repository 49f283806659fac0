"""Every later release reads what the first one wrote."""

from __future__ import annotations

import json
import shutil
import stat
import struct
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3
from perdure.domain.ids import Generation
from perdure.store.repository import Repository, SourceFile

from tests.golden.format_1 import FILES, FOLDER, KERNEL, MODES, RECORD, cuts


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy, since reading may leave marks."""
    return Path(shutil.copytree(FOLDER, tmp_path / "format-1"))


def test_it_is_read(golden: Path, tmp_path: Path) -> None:
    repository = Repository.open(golden.as_uri(), create=False)
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


def test_it_goes_on(golden: Path, tmp_path: Path) -> None:
    """A new generation on top finds the old blocks again."""
    data = FILES[1]["pages-1.img"]
    path = tmp_path / "pages"
    path.write_bytes(data)
    repository = Repository.open(golden.as_uri())
    manifest = repository.publish(KERNEL, [SourceFile("pages-1.img", path, 0o600, cuts("pages-1.img", data))], lambda _: {})
    assert manifest.generation == 3
    assert manifest.bytes_added < 500
    assert repository.verify().ok


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
