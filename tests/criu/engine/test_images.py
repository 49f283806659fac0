"""What is read from and written to image files, on small ones made here."""

from __future__ import annotations

import ipaddress
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.domain.errors import Corrupt, SandboxFailed
from perdure.engine import connections, imagefile, images, pids
from perdure.engine.protobuf import Message

HEADER = bytes(8)
PAGE, WINDOW = images.PAGE, images.BLOCK


def run(address: int, pages: int, flags: int | None = 4) -> Message:
    message = Message().set(1, address).set(2, pages)
    return message if flags is None else message.set(4, flags)


def pagemap(folder: Path, runs: list[Message], *, size: int | None = None, name: str = "1000", pages_id: int = 1) -> None:
    imagefile.write_entries(folder / f"pagemap-{name}.img", HEADER, [Message().set(1, pages_id), *runs])
    total = sum(one.number(2) * PAGE for one in runs if one.number(4, 4) & 4)
    (folder / f"pages-{pages_id}.img").write_bytes(bytes(total if size is None else size))


def test_blocks_are_cut_by_address(tmp_path: Path) -> None:
    at = 0x7F0000000000
    pagemap(tmp_path, [run(at + 3 * PAGE, 2), run(at + 10 * PAGE, 3), run(at + WINDOW - PAGE, 2), run(at + 5 * WINDOW, 33)])
    assert images.cuts(tmp_path) == {"pages-1.img": [0, 6 * PAGE, 7 * PAGE, 23 * PAGE, 39 * PAGE]}


def test_pages_that_are_not_in_the_file_take_no_place(tmp_path: Path) -> None:
    pagemap(tmp_path, [run(0, 4, 2), run(WINDOW, 1), run(2 * WINDOW, 9, 1), run(3 * WINDOW, 1, 4 | 2)])
    assert images.cuts(tmp_path) == {"pages-1.img": [0, PAGE]}


def test_an_entry_without_flags_is_present(tmp_path: Path) -> None:
    pagemap(tmp_path, [run(0, 1, None)])
    assert images.cuts(tmp_path) == {"pages-1.img": [0]}


def test_each_pages_file_has_its_own_cuts(tmp_path: Path) -> None:
    pagemap(tmp_path, [run(0, 1)])
    pagemap(tmp_path, [run(0, 32)], name="shmem-7", pages_id=2)
    assert images.cuts(tmp_path) == {"pages-1.img": [0], "pages-2.img": [0, WINDOW]}


def test_a_pages_file_of_another_length_is_damage(tmp_path: Path) -> None:
    pagemap(tmp_path, [run(0, 2)], size=PAGE)
    with pytest.raises(Corrupt):
        images.check(tmp_path)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(1, 80)), max_size=12))
@settings(deadline=None)
def test_a_window_is_one_block_wherever_the_file_has_it(
    tmp_path_factory: pytest.TempPathFactory, raw: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("images")
    runs, at = [], 0
    for gap, length in raw:
        at += gap
        runs.append((at * PAGE, length))
        at += length
    pagemap(folder, [run(address, length) for address, length in runs])
    windows: dict[int, int] = {}
    offset = 0
    for address, length in runs:
        for page in range(length):
            windows.setdefault((address + page * PAGE) // WINDOW, offset)
            offset += PAGE
    assert images.cuts(folder)["pages-1.img"] == list(windows.values())


@pytest.mark.parametrize("size", [0, 7, 11, 20])
def test_a_file_that_is_cut_off_is_damage(tmp_path: Path, size: int) -> None:
    imagefile.write_entries(tmp_path / "files.img", HEADER, [Message().set(1, 1).set(2, b"x" * 30)])
    whole = (tmp_path / "files.img").read_bytes()
    (tmp_path / "files.img").write_bytes(whole[:size])
    with pytest.raises(Corrupt):
        images.open_files(tmp_path)


def regular(number: int, path: str, *, flags: int = 0, size: int | None = None) -> Message:
    entry = Message().set(1, number).set(2, flags).set(3, 0).set(6, path).set(10, 0o100644)
    return Message().set(1, 1).set(2, number).set(3, entry if size is None else entry.set(8, size))


def test_open_files_and_their_sizes(tmp_path: Path) -> None:
    entries = [regular(1, "home/a", flags=0o2001, size=10), regular(2, "usr/lib/b.so", size=20), regular(3, "tmp/gone")]
    imagefile.write_entries(tmp_path / "files.img", HEADER, [*entries, Message().set(1, 2).set(2, 9)])
    imagefile.write_entries(tmp_path / "fdinfo-2.img", HEADER, [Message().set(1, 1).set(3, 1).set(4, 5)])
    area = Message().set(4, 2).set(5, 5).set(7, 1 << 6)
    lib = Message()
    for field, value in ((1, 4096), (2, 8192), (3, 0), (4, 1), (5, 1), (6, 2), (7, 1 << 7 | 1), (8, 0)):
        lib.set(field, value)
    imagefile.write_entries(tmp_path / "mm-1000.img", HEADER, [Message().set(1, 5).add(14, area).add(14, lib).set(12, 2)])
    imagefile.write_entries(tmp_path / "remap-fpath.img", HEADER, [Message().set(1, 3).set(2, 8).set(3, 1)])
    a, b, gone = images.open_files(tmp_path)
    assert (a.path, a.writable, a.append, a.opened, a.mapped, a.size) == ("/home/a", True, True, True, True, 10)
    assert (b.path, b.writable, b.opened, b.mapped, b.executable, b.size) == ("/usr/lib/b.so", False, False, True, True, 20)
    assert (gone.ghost, gone.size) == (True, None)
    images.patch_file_sizes(tmp_path, {1: 77, 2: None})
    assert [entry.size for entry in images.open_files(tmp_path)] == [77, None, None]


def tcp(inode: int, local: tuple[str, int], remote: tuple[str, int], state: int = 1) -> Message:
    def words(text: str) -> list[int]:
        raw = ipaddress.ip_address(text).packed
        return [struct.unpack_from("=I", raw, at)[0] for at in range(0, len(raw), 4)]

    socket = Message().set(1, inode).set(2, inode).set(3, 2).set(4, 1).set(5, 6).set(6, state).set(7, local[1]).set(8, remote[1])
    for field, (text, _) in ((11, local), (12, remote)):
        for word in words(text):
            socket.add(field, word)
    return Message().set(1, 4).set(2, inode).set(4, socket)


def test_connections_to_the_outside_are_closed_and_only_those(tmp_path: Path) -> None:
    pair = [tcp(1, ("127.0.0.1", 5000), ("127.0.0.1", 5001)), tcp(2, ("::ffff:127.0.0.1", 5001), ("::ffff:127.0.0.1", 5000))]
    out, listener = tcp(3, ("10.0.0.7", 40000), ("192.0.2.1", 443)), tcp(4, ("0.0.0.0", 5000), ("0.0.0.0", 0), 10)
    imagefile.write_entries(tmp_path / "files.img", HEADER, [*pair, out, listener])
    for inode in (1, 2, 3):
        (tmp_path / f"tcp-stream-{inode:x}.img").write_bytes(b"queue")
    closed = connections.close_outside(tmp_path)
    assert [end.inode for end in closed] == [3]
    assert connections.made_by_us(tmp_path, closed) == ["192.0.2.1 port 443"]
    assert sorted(path.name for path in tmp_path.glob("tcp-*")) == ["tcp-stream-1.img", "tcp-stream-2.img"]
    _, entries = imagefile.read_entries(tmp_path / "files.img")
    assert [entry.encode() for entry in entries[:2]] == [entry.encode() for entry in pair]
    assert entries[3].encode() == listener.encode()
    assert connections.listeners(tmp_path) == {(ipaddress.ip_address("0.0.0.0"), 5000)}
    assert connections.close_outside(tmp_path) == []


def test_a_stretch_of_free_numbers() -> None:
    assert pids.free_run(set(), 32768) == 24576
    first = pids.free_run({24600}, 32768)
    assert {24600}.isdisjoint(range(first, first + 512))
    crowded = set(range(20000, 32768))
    assert pids.free_run(crowded, 32768) + 512 <= 20000
    with pytest.raises(SandboxFailed):
        pids.free_run(set(range(0, 32768, 100)), 32768)
