"""A repository that somebody else has written: refused by name before memory or disk is spent, nothing outside the target."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from blake3 import blake3
from perdure.domain.errors import Corrupt, NoRoom
from perdure.domain.ids import Generation
from perdure.store import blocks, envelope, recipe
from perdure.store.blocks import BadBlock
from perdure.store.envelope import Kind

from tests.unit.store.bench import KERNEL, Bench
from tests.unit.store.forge import edit, forge


@pytest.fixture
def one(bench: Bench) -> Bench:
    bench.publish({"a": b"content of a file, long enough " * 10})
    return bench


def path_of(bench: Bench, part: str) -> Path:
    [path] = (bench.root / "kernels" / KERNEL / part).iterdir()
    return path


def body_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes()[envelope.SIZE :])
    return found


def assert_refused(bench: Bench) -> None:
    before = {path for path in bench.folder.rglob("*") if "damaged" not in str(path)}
    with pytest.raises(Corrupt):
        bench.repository.fetch(KERNEL, Generation(1), bench.folder / "into")
    assert {path for path in bench.folder.rglob("*") if "damaged" not in str(path)} == before


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../outside"},
        {"name": "/etc/outside"},
        {"name": "a/../../outside"},
        {"name": ""},
        {"name": "."},
        {"name": "a\0b"},
        {"name": "\ud800"},
        {"name": 7},
        {"mode": 0o4755},
        {"mode": -1},
        {"size": -1},
        {"size": 1 << 60},
        {"size": 10},
        {"size": 1.5},
        {"size": True},
        {"size": "310"},
        {"recipe": []},
        {"recipe": ["00"]},
        {"recipe": ["zz" * 32]},
        {"recipe": [7]},
        {"recipe": ["ab" * 32]},
        {"recipe": None},
    ],
)
def test_files(one: Bench, change: dict[str, Any]) -> None:
    path = path_of(one, "manifests")
    [file] = body_of(path)["files"]
    changed = {**file, **change}
    size = changed["size"] if isinstance(changed["size"], int) else 310
    edit(path, {"files": [changed], "bytes_logical": max(0, size)})
    assert_refused(one)


@pytest.mark.parametrize(
    "change",
    [
        {"files": None},
        {"files": [None]},
        {"files": [{}]},
        {"record": None},
        {"record": []},
        {"generation": 2},
        {"generation": "1"},
        {"generation": True},
        {"kernel_id": "other"},
        {"claim": "1-0000000000000000"},
        {"bytes_logical": 7},
        {"bytes_added": -1},
    ],
)
def test_manifests(one: Bench, change: dict[str, Any]) -> None:
    edit(path_of(one, "manifests"), change)
    assert_refused(one)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{", b"[" * 100_000, b'{"a":' + b"9" * 5_000 + b"}", b'{"size": NaN}', b"\xff\xfe", b'{"a": 1e999}'],
)
def test_json_that_is_none(one: Bench, body: bytes) -> None:
    for part in ("manifests", "head"):
        path = one.root / "kernels" / KERNEL / "head" if part == "head" else path_of(one, part)
        good = path.read_bytes()
        path.write_bytes(forge(good, body=body))
        if part == "manifests":
            assert_refused(one)
        else:
            assert set(one.repository.verify().damaged_kernels) == {KERNEL}
        path.write_bytes(good)


def test_names_that_clash(one: Bench) -> None:
    path = path_of(one, "manifests")
    [file] = body_of(path)["files"]
    for second in ("a", "a/b"):
        edit(path, {"files": [file, {**file, "name": second}], "bytes_logical": 2 * file["size"]})
        assert_refused(one)


@pytest.mark.parametrize(
    "change",
    [
        {"generations": ["../../x"]},
        {"generations": [7]},
        {"generations": ["2-0123456789abcdef"]},
        {"generations": ["1-0123456789abcdef", "1-0123456789abcdef"]},
        {"indexes": ["1-../x"]},
        {"indexes": "x"},
        {"claimed": 0},
        {"claimed": 1 << 70},
        {"claim": "x"},
        {"kernel_id": "other"},
    ],
)
def test_heads(one: Bench, change: dict[str, Any]) -> None:
    edit(one.root / "kernels" / KERNEL / "head", change)
    assert set(one.repository.verify().damaged_kernels) == {KERNEL}
    assert one.repository.generations(KERNEL) == [1]


def _index(
    entries: list[tuple[bytes, int, int, int, int]], *, packs: int = 1, size: int = 1000, count: int | None = None
) -> bytes:
    body = struct.pack("<IIII", packs, 0, size, len(entries) if count is None else count)
    return body + b"".join(struct.pack("<32sIIIB", *entry) for entry in entries)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\1\0\0\0",
        _index([]) + b"x",
        _index([], packs=2),
        _index([], packs=2**32 - 1),
        _index([], count=2**32 - 1),
        _index([], size=2**32 - 1),
        _index([(b"n" * 32, 0, 10, 10, 0)]),
        _index([(b"n" * 32, 96, 0, 10, 0)]),
        _index([(b"n" * 32, 96, 10, 0, 0)]),
        _index([(b"n" * 32, 96, 905, 905, 0)]),
        _index([(b"n" * 32, 96, 10, 65_537, 1)]),
        _index([(b"n" * 32, 2**32 - 1, 10, 10, 1)]),
    ],
)
def test_indexes(one: Bench, body: bytes) -> None:
    path = path_of(one, "index")
    path.write_bytes(forge(path.read_bytes(), body=body))
    assert_refused(one)


def _only_block(bench: Bench, stored: bytes, plain: int, codec: int, name: bytes) -> None:
    """The pack's first block is replaced by `stored`, wherever that is."""
    index, pack = path_of(bench, "index"), path_of(bench, "packs")
    whole = bytearray(pack.read_bytes()[: envelope.SIZE])
    segment = struct.pack("<I32s", plain, name)
    segment_name = blake3(segment).digest()
    body, entries = b"", []
    for block_name, data, size, kind in ((name, stored, plain, codec), (segment_name, segment, len(segment), 0)):
        body += struct.pack("<32sIIB3x", block_name, len(data), size, kind)
        entries.append((block_name, envelope.SIZE + len(body), len(data), size, kind))
        body += data
    pack.write_bytes(forge(bytes(whole), body=body))
    index.write_bytes(forge(index.read_bytes(), body=_index(entries, size=envelope.SIZE + len(body))))
    manifest = path_of(bench, "manifests")
    [file] = body_of(manifest)["files"]
    edit(manifest, {"files": [{**file, "size": plain, "recipe": [segment_name.hex()]}], "bytes_logical": plain})


def test_the_forger_can_also_be_honest(one: Bench) -> None:
    """Otherwise the tests below would pass for the wrong reason."""
    plain = bytes(1000) + b"x"
    _only_block(one, zstandard.compress(plain), len(plain), 1, blake3(plain).digest())
    assert one.fetch(1) == {"a": plain}
    assert one.repository.verify().ok


@pytest.mark.parametrize(
    ("stored", "plain", "codec"),
    [
        (zstandard.compress(bytes(1 << 30)), 65_536, 1),
        (zstandard.ZstdCompressor(write_content_size=False).compress(b"x" * 65_536), 65_536, 1),
        (zstandard.compress(b"x" * 100), 99, 1),
        (zstandard.compress(b"x" * 100)[:-3], 100, 1),
        (b"not zstd at all", 100, 1),
        (b"x" * 100, 100, 0),
        (b"x" * 99, 100, 0),
        (b"x" * 100, 100, 2),
        (b"x" * 100, 100, 255),
    ],
)
def test_blocks(one: Bench, stored: bytes, plain: int, codec: int) -> None:
    _only_block(one, stored, plain, codec, b"n" * 32)
    assert_refused(one)
    assert not one.repository.verify().ok


def test_a_bomb_is_never_unpacked() -> None:
    """The library would allocate what the frame declares, whatever limit it is given."""
    bomb = zstandard.compress(bytes(1 << 30))
    tracemalloc.start()
    try:
        for declared in (65_536, 1 << 30):
            with pytest.raises(BadBlock):
                blocks.decode(blake3(b"").digest(), declared, 1, bomb)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.root
def test_what_repeats_one_block_for_ever_needs_room_first(one: Bench, tmpfs: Callable[[int], Path]) -> None:
    """One small block, named often enough, is more than any disk holds."""
    plain = b"x" * 65_536
    name = blake3(plain).digest()
    segment = struct.pack("<I32s", len(plain), name) * 1536
    body, entries = b"", []
    for data in (plain, segment):
        packed = zstandard.compress(data)
        body += struct.pack("<32sIIB3x", blake3(data).digest(), len(packed), len(data), 1)
        entries.append((blake3(data).digest(), envelope.SIZE + len(body), len(packed), len(data), 1))
        body += packed
    pack, index = path_of(one, "packs"), path_of(one, "index")
    pack.write_bytes(forge(pack.read_bytes(), body=body))
    index.write_bytes(forge(index.read_bytes(), body=_index(entries, size=envelope.SIZE + len(body))))
    size = len(plain) * 1536 * 5
    manifest = path_of(one, "manifests")
    [file] = body_of(manifest)["files"]
    edit(manifest, {"files": [{**file, "size": size, "recipe": [blake3(segment).hexdigest()] * 5}], "bytes_logical": size})
    into = tmpfs(8 << 20) / "into"
    with pytest.raises(NoRoom):
        one.repository.fetch(KERNEL, Generation(1), into)
    assert not into.exists()


@pytest.mark.parametrize("segment", [b"", b"short", struct.pack("<I32s", 0, b"n" * 32), struct.pack("<I32s", 65_537, b"n" * 32)])
def test_segments(segment: bytes) -> None:
    with pytest.raises(ValueError):
        recipe.parse(segment)


@pytest.mark.parametrize("kind", list(Kind))
def test_lengths_are_compared_before_anything_is_read(kind: Kind) -> None:
    whole = bytes(envelope.wrap(kind, b""))
    for length in (kind.limit + 1, 2**64 - 1):
        header = forge(whole)[: envelope.SIZE]
        fields = bytearray(header[:80])
        struct.pack_into("<Q", fields, 40, length)
        with pytest.raises(Corrupt):
            envelope.parse("x", bytes(fields) + blake3(fields).digest(16), kind)


def test_kinds_are_not_mixed_up(one: Bench) -> None:
    index, manifest = path_of(one, "index"), path_of(one, "manifests")
    manifest.write_bytes(index.read_bytes())
    assert_refused(one)
