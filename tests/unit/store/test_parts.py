"""Single parts: recipes, blocks, names, durable files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from perdure.store import blocks, durable, names, recipe
from perdure.store.blocks import NO_NAME, Codec

from tests.unit.store.bench import noise

_entry = st.one_of(
    st.tuples(st.integers(1, 3 << 30), st.just(NO_NAME)),
    st.tuples(st.integers(1, 65_536), st.integers(0, 5_000).map(lambda n: blake3(n.to_bytes(4, "little")).digest())),
)


def segments_of(entries: list[tuple[int, bytes]]) -> list[bytes]:
    writer = recipe.SegmentWriter()
    return [segment for length, name in entries for segment in writer.add(length, name)] + list(writer.finish())


def flat(entries: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Runs of zeros joined."""
    joined: list[tuple[int, bytes]] = []
    for length, name in entries:
        if name == NO_NAME and joined and joined[-1][1] == NO_NAME:
            joined[-1] = (joined[-1][0] + length, NO_NAME)
        else:
            joined.append((length, name))
    return joined


@given(st.lists(_entry, max_size=300))
def test_a_recipe_says_what_was_added(entries: list[tuple[int, bytes]]) -> None:
    segments = segments_of(entries)
    found = [(entry.length, entry.name) for segment in segments for entry in recipe.parse(segment)]
    assert flat(found) == flat(entries)
    assert all(len(segment) <= blocks.BLOCK for segment in segments)


def test_segments_meet_again_after_a_change() -> None:
    entries = [(65_536, blake3(n.to_bytes(4, "little")).digest()) for n in range(20_000)]
    before = segments_of(entries)
    assert 15 < len(before) < 120
    for changed in ([(4_096, b"n" * 32), *entries], entries[:5_000] + entries[5_001:], entries[37:]):
        assert len(set(segments_of(changed)) - set(before)) <= 4


def test_a_long_row_of_one_block_is_cut_too() -> None:
    segments = segments_of([(65_536, b"n" * 31 + b"\1")] * 10_000)
    assert max(map(len, segments)) <= blocks.BLOCK


@given(st.binary(min_size=1, max_size=65_536))
def test_blocks_come_back(plain: bytes) -> None:
    block = blocks.encode(blocks.name_of(plain), plain)
    assert blocks.decode(block.name, block.plain, block.codec, block.stored) == plain
    assert len(block.stored) <= len(plain)


def test_what_does_not_shrink_is_stored_as_it_is() -> None:
    data = noise(65_536, 1)
    assert blocks.encode(blocks.name_of(data), data).codec is Codec.RAW
    text = b"text " * 13_000
    packed = blocks.encode(blocks.name_of(text), text)
    assert packed.codec is Codec.ZSTD
    assert len(packed.stored) < 1_000


def test_claims() -> None:
    claim = names.new_claim(12)
    assert names.is_claim(claim)
    assert names.generation_of(claim) == 12
    assert names.new_claim(12) != claim
    kernel = names.KernelNames("k")  # type: ignore[arg-type]
    assert kernel.claim_in(kernel.pack(claim, 3)) == claim
    assert kernel.claim_in(kernel.index(claim)) == claim
    for text in ("", "0-0123456789abcdef", "12", "12-xyz", f"{claim}-3", "../x", 7, None):
        assert not names.is_claim(text)


def test_a_durable_file_is_never_replaced_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    durable.write(path, b"1", replace=False, root=tmp_path)
    with pytest.raises(FileExistsError):
        durable.write(path, b"2", replace=False, root=tmp_path)
    assert path.read_bytes() == b"1"
    durable.write(path, b"3", replace=True, root=tmp_path)
    assert path.read_bytes() == b"3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("replace", [True, False])
def test_what_is_visible_is_on_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool) -> None:
    """A power cut can't be had in a test; the order of the system calls can."""
    calls: list[tuple[str, str]] = []

    def watch(name: str) -> None:
        call = getattr(os, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            what = os.readlink(f"/proc/self/fd/{args[0]}") if isinstance(args[0], int) else str(args[-1])
            calls.append((name, os.path.relpath(what, tmp_path)))
            return call(*args, **kwargs)

        monkeypatch.setattr(os, name, wrapper)

    for name in ("write", "fsync", "link", "rename"):
        watch(name)
    durable.write(tmp_path / "folder" / "file", b"data", replace=replace, root=tmp_path)
    (_, made), (wrote, temporary), (synced, same), (published, path), (_, folder) = calls
    assert made == "."
    assert (wrote, synced, same) == ("write", "fsync", temporary)
    assert temporary.startswith(durable.PREFIX)
    assert (published, path) == ("rename" if replace else "link", "folder/file")
    assert folder == "folder"


def test_a_missing_root_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.write(tmp_path / "gone" / "a", b"1", replace=False, root=tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


def test_only_a_dead_writers_file_is_swept(tmp_path: Path) -> None:
    program = (
        "import fcntl, os, sys, signal\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\nprint('writing', flush=True)\nsignal.pause()"
    )
    path = tmp_path / f"{durable.PREFIX}x"
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            durable.sweep(tmp_path)
            assert path.exists()
        finally:
            os.kill(writer.pid, signal.SIGKILL)
    durable.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
