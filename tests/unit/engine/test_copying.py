"""Copies keep bytes and holes; fingerprints tell files apart."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perdure.engine import fingerprint
from perdure.engine.copying import copy_but_zeros, copy_data

KIB = 1024
Copy = Callable[[int, int, int], None]


def make(path: Path, pieces: list[tuple[bool, int]]) -> bytes:
    """A file of data and holes in turn, lengths in KiB; gives its content."""
    content = bytearray()
    with path.open("wb") as file:
        for number, (data, length) in enumerate(pieces):
            piece = bytes([number % 255 + 1]) * (length * KIB) if data else bytes(length * KIB)
            if data:
                file.write(piece)
            else:
                file.seek(len(piece), os.SEEK_CUR)
            content += piece
        file.truncate(len(content))
    return bytes(content)


@pytest.mark.parametrize("copy", [copy_data, copy_but_zeros])
@pytest.mark.parametrize("there", ["/dev/shm", None], ids=["other file system", "same file system"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(pieces=st.lists(st.tuples(st.booleans(), st.integers(1, 200)), max_size=6), cut=st.integers(0, 300))
def test_the_beginning_of_a_file(tmp_path: Path, there: str | None, copy: Copy, pieces: list[tuple[bool, int]], cut: int) -> None:
    content = make(tmp_path / "source", pieces)
    size = cut * KIB
    target = Path(there or tmp_path) / f"perdure-copy-{os.getpid()}"
    try:
        with (tmp_path / "source").open("rb") as source, target.open("wb") as out:
            copy(source.fileno(), out.fileno(), size)
        assert target.read_bytes() == content[:size].ljust(size, b"\0")
    finally:
        target.unlink()


@pytest.mark.parametrize("copy", [copy_data, copy_but_zeros])
def test_holes_stay_holes(tmp_path: Path, copy: Copy) -> None:
    with (tmp_path / "source").open("wb+") as source, (tmp_path / "out").open("wb") as out:
        source.truncate(1 << 40)
        os.pwrite(source.fileno(), b"x", 1 << 39)
        copy(source.fileno(), out.fileno(), 1 << 40)
        assert os.fstat(out.fileno()).st_blocks < 1000
    with (tmp_path / "out").open("rb") as out:
        assert os.pread(out.fileno(), 2, 1 << 39) == b"x\0"


def test_zeros_become_holes(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(10 << 20) + b"x")
    with (tmp_path / "source").open("rb") as source, (tmp_path / "out").open("wb") as out:
        copy_but_zeros(source.fileno(), out.fileno(), (10 << 20) + 1)
        assert os.fstat(out.fileno()).st_blocks * 512 <= 128 << 10
    assert (tmp_path / "out").read_bytes() == (tmp_path / "source").read_bytes()


def test_build_ids_of_real_programs(tmp_path: Path) -> None:
    program = Path(sys.executable).resolve()
    (tmp_path / "copy").write_bytes(program.read_bytes())
    (tmp_path / "text").write_text("no program")
    ids = []
    for path in (program, tmp_path / "copy", tmp_path / "text"):
        with path.open("rb") as file:
            ids.append(fingerprint.build_id(file.fileno(), os.fstat(file.fileno())))
    assert ids[0] == ids[1] != ids[2]
    assert all(ids)


@given(st.binary(max_size=300))
def test_damaged_programs_have_some_id(data: bytes) -> None:
    fd = os.memfd_create("program")
    try:
        os.write(fd, b"\x7fELF\x02\x01" + data)
        assert fingerprint.build_id(fd, os.fstat(fd)).startswith(fingerprint.SAMPLE)
    finally:
        os.close(fd)


@given(st.binary(max_size=20_000), st.binary(max_size=2_000), st.booleans())
def test_a_beginning_is_recognized(data: bytes, more: bytes, sampled: bool) -> None:
    fd = os.memfd_create("file")
    try:
        os.write(fd, data)
        expected = fingerprint.sample(fd, len(data)) if sampled else blake3(data).hexdigest()
        assert fingerprint.begins_with(fd, len(data), expected) is True
        os.write(fd, more)
        assert fingerprint.begins_with(fd, len(data), expected) is True
        if data:
            os.pwrite(fd, bytes([data[0] ^ 1]), 0)
            assert fingerprint.begins_with(fd, len(data), expected) is False
        os.ftruncate(fd, max(len(data) - 1, 0))
        if data:
            assert fingerprint.begins_with(fd, len(data), expected) is False
        assert fingerprint.begins_with(fd, len(data), "") is None
    finally:
        os.close(fd)


def test_both_digests_agree(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5_000_000))
    with path.open("rb") as file:
        assert fingerprint.digest(path) == fingerprint.digest_start(file.fileno(), 5_000_000)
