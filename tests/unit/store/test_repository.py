"""Snapshots go in and come out again, and cost what they should."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from perdure.domain.errors import BadRequest, Conflict, NewerFormat, NotFound, SnapshotFailed, StoreFailed
from perdure.domain.ids import Generation, KernelId
from perdure.store import pack
from perdure.store.repository import PublishStats, Repository, SourceFile

from tests.unit.store.bench import KERNEL, Bench, noise

G1, G2 = Generation(1), Generation(2)


def test_a_snapshot_comes_back_as_it_was(bench: Bench) -> None:
    files = {
        "pages-1.img": noise(200_000, 1) + bytes(300_000) + noise(10, 2),
        "core-1000.img": b"x" * 700,
        "empty": b"",
        "zeros": bytes(70_000),
        "files/3": noise(65_536, 3),
        "shm/deep/er/torch_1 \udcff\n": b"a name that is not text",
    }
    manifest = bench.publish(files)
    assert manifest.generation == 1
    assert manifest.bytes_logical == sum(map(len, files.values()))
    assert manifest.record == {"added": manifest.bytes_added}
    assert bench.fetch(1) == files
    assert bench.repository.manifest(KERNEL, G1) == manifest
    assert bench.repository.generations(KERNEL) == [1]
    assert bench.repository.kernels() == [KERNEL]
    assert bench.litter() == set()


_piece = st.one_of(
    st.tuples(st.just("zeros"), st.integers(1, 300_000)),
    st.tuples(st.just("noise"), st.integers(1, 200_000)),
    st.tuples(st.just("same"), st.integers(1, 150_000)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(_piece, max_size=6), cut_share=st.lists(st.floats(0, 1), max_size=12), seed=st.integers(0, 3))
def test_any_content_any_cuts(bench: Bench, pieces: list[tuple[str, int]], cut_share: list[float], seed: int) -> None:
    made = {"zeros": bytes, "noise": lambda size: noise(size, seed + size), "same": lambda size: b"s" * size}
    data = b"".join(made[kind](size) for kind, size in pieces)
    cuts = sorted(int(share * len(data)) for share in cut_share)
    generation = bench.publish({"file": data, "uncut": data}, {"file": cuts}).generation
    assert bench.fetch(generation) == {"file": data, "uncut": data}


def test_zeros_cost_nothing_and_come_back_as_holes(bench: Bench) -> None:
    path = bench.folder / "sparse"
    with path.open("wb") as file:
        file.truncate(3 << 30)
        file.seek(1 << 30)
        file.write(b"something")
    manifest = bench.repository.publish(KERNEL, [SourceFile("sparse", path, 0o600)], lambda _: {})
    assert manifest.bytes_logical == 3 << 30
    assert manifest.bytes_added < 2_000
    into = bench.folder / "into"
    bench.repository.fetch(KERNEL, G1, into)
    found = (into / "sparse").stat()
    assert found.st_size == 3 << 30
    assert found.st_blocks * 512 < 1 << 20
    with (into / "sparse").open("rb") as file:
        file.seek(1 << 30)
        assert file.read(10) == b"something\0"


def test_an_unchanged_gigabyte_adds_little_wherever_it_lies(bench: Bench) -> None:
    """The engine's case: pages come in front of a big array, so that the pages file shifts by something that isn't a block."""
    path = bench.folder / "pages-1.img"
    blocks, block = 16 << 10, 65_536
    filling = b"compresses well " * (block // 16)

    def publish(before: bytes, changed: int = -1) -> int:
        with path.open("wb") as file:
            file.write(before)
            for number in range(blocks):
                file.write(number.to_bytes(8, "little") + (filling[8:] if number != changed else b"changed!" + filling[16:]))
        cuts = [0, *range(len(before), len(before) + blocks * block, block)]
        return bench.repository.publish(KERNEL, [SourceFile("pages-1.img", path, 0o600, cuts)], lambda _: {}).bytes_added

    first, more = noise(12_288, 1), noise(200_704, 2)
    publish(first)
    assert publish(first) < 1_000
    assert publish(more) - len(more) < 100_000
    assert publish(more, changed=5_000) < 100_000


def test_a_recipe_of_distinct_blocks_is_not_written_again(bench: Bench) -> None:
    """16 Ki distinct blocks, as many as 1 GiB has, but small ones: what is added next time is the recipe's share only."""
    count, length = 16 << 10, 64
    array = noise(count * length, 9)
    before, more = noise(100, 1), noise(1_000, 2)

    def publish(front: bytes) -> int:
        data = front + array
        return bench.publish({"pages": data}, {"pages": [0, *range(len(front), len(data), length)]}).bytes_added

    assert publish(before) > len(array)
    added = publish(more)
    assert added < 150_000
    assert bench.fetch(2) == {"pages": more + array}


def test_equal_blocks_of_two_files_are_stored_once(bench: Bench) -> None:
    data = noise(500_000, 4)
    alone = bench.publish({"a": data}, kernel=KernelId("alone")).bytes_added
    twice = bench.publish({"a": data, "b": data}, kernel=KernelId("twice")).bytes_added
    assert twice - alone < 2_000


def test_kernels_share_nothing(bench: Bench) -> None:
    data = noise(100_000, 5)
    for name in ("one", "two"):
        assert bench.publish({"a": data}, kernel=KernelId(name)).bytes_added > len(data)
    bench.repository.drop(KernelId("one"))
    assert bench.repository.kernels() == ["two"]
    assert bench.fetch(1, KernelId("two")) == {"a": data}


def test_dropping_leaves_nothing_and_can_be_repeated(bench: Bench) -> None:
    bench.publish({"a": noise(100_000, 1), "b": b"b"})
    bench.publish({"a": noise(100_000, 2)})
    for _ in range(2):
        bench.repository.drop(KERNEL)
        assert bench.objects() <= {"repository", ".lock"}
    assert bench.repository.kernels() == []
    assert bench.repository.generations(KERNEL) == []
    with pytest.raises(NotFound):
        bench.repository.manifest(KERNEL, G1)
    bench.publish({"a": b"again"})
    assert bench.fetch(1) == {"a": b"again"}


def test_what_is_not_there(bench: Bench) -> None:
    with pytest.raises(NotFound):
        bench.repository.fetch(KERNEL, G1, bench.folder / "into")
    bench.publish({"a": b"a"})
    for generation in (Generation(2), Generation(0), Generation(-1)):
        with pytest.raises(NotFound):
            bench.repository.manifest(KERNEL, generation)
    with pytest.raises(NotFound):
        bench.repository.verify(KernelId("nobody"))
    assert not (bench.folder / "into").exists()


@pytest.mark.parametrize("kernel", ["", "..", "a/b", "../x", ".lock", "a" * 200])
def test_kernel_ids_that_are_none(bench: Bench, kernel: str) -> None:
    with pytest.raises(BadRequest):
        bench.publish({"a": b"a"}, kernel=KernelId(kernel))
    with pytest.raises(BadRequest):
        bench.repository.drop(KernelId(kernel))
    assert bench.objects() == {"repository"}


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", "./a", "a\0b", "x" * 300, "a/" * 2500 + "a"])
def test_file_names_that_are_none(bench: Bench, name: str) -> None:
    source = bench.source("good", b"x")
    with pytest.raises(BadRequest):
        bench.repository.publish(KERNEL, [SourceFile(name, source.source, 0o600)], lambda _: {})


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b/c", "a/b")])
def test_file_names_that_clash(bench: Bench, names: tuple[str, str]) -> None:
    source = bench.source("good", b"x")
    with pytest.raises(BadRequest):
        bench.repository.publish(KERNEL, [SourceFile(name, source.source, 0o600) for name in names], lambda _: {})


@pytest.mark.parametrize("cuts", [[5, 3], [-1], [0, 11], [1, 2, 1]])
def test_cuts_that_are_none(bench: Bench, cuts: list[int]) -> None:
    with pytest.raises(BadRequest):
        bench.publish({"a": b"0123456789"}, {"a": cuts})
    assert bench.repository.generations(KERNEL) == []
    assert not any(name.startswith(f"kernels/{KERNEL}/packs") for name in bench.objects())


def test_sources_that_cannot_be_stored(bench: Bench) -> None:
    os.mkfifo(bench.folder / "fifo")
    (bench.folder / "link").symlink_to("/etc/hostname")
    for path, error in (("fifo", BadRequest), ("link", BadRequest), (".", BadRequest), ("missing", StoreFailed)):
        with pytest.raises(error):
            bench.repository.publish(KERNEL, [SourceFile("a", bench.folder / path, 0o600)], lambda _: {})


@pytest.mark.parametrize("record", [{"a": {1, 2}}, {"a": float("nan")}, {"a": object()}])
def test_records_that_are_no_json(bench: Bench, record: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        bench.repository.publish(KERNEL, [bench.source("a", b"a")], lambda _: record)
    assert bench.repository.generations(KERNEL) == []


def test_numbers_are_never_used_again(bench: Bench) -> None:
    bench.publish({"a": b"1"})

    def refuse(_: PublishStats) -> dict[str, object]:
        raise RuntimeError("the caller's own")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            bench.repository.publish(KERNEL, [bench.source("a", noise(100_000, 2))], refuse)
        assert bench.litter() == set()
    assert bench.publish({"a": b"4"}).generation == 4
    assert bench.repository.generations(KERNEL) == [1, 4]
    assert bench.fetch(1) == {"a": b"1"}


def test_a_file_that_changes_meanwhile_is_noticed(bench: Bench) -> None:
    big = bench.source("big", noise(40 << 20, 1))

    def shrink(done: int, _: int) -> None:
        if done < 20 << 20:
            os.truncate(big.source, 30 << 20)

    with pytest.raises(StoreFailed):
        bench.repository.publish(KERNEL, [big], lambda _: {}, progress=shrink)
    assert bench.repository.generations(KERNEL) == []
    assert bench.litter() == set()


def test_progress_adds_up(bench: Bench) -> None:
    files = {"a": noise(9 << 20, 1), "b": bytes(5 << 20), "c": b"c", "d": b""}
    total = sum(map(len, files.values()))
    seen: list[tuple[int, int]] = []
    sources = [bench.source(name, data) for name, data in files.items()]
    bench.repository.publish(KERNEL, sources, lambda _: {}, progress=lambda done, of: seen.append((done, of)))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)
    seen.clear()
    bench.repository.fetch(KERNEL, G1, bench.folder / "into", progress=lambda done, of: seen.append((done, of)))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


@pytest.mark.parametrize("when", ["before", "while reading", "in the record"])
def test_cancelling(bench: Bench, when: str) -> None:
    bench.publish({"a": b"1"})
    cancelled = Event()
    source = bench.source("a", noise(40 << 20, 3))

    def progress(done: int, _: int) -> None:
        if when == "while reading" and done > 20 << 20:
            cancelled.set()

    def record(_: PublishStats) -> dict[str, object]:
        assert when == "in the record"
        cancelled.set()
        return {}

    if when == "before":
        cancelled.set()
    with pytest.raises(SnapshotFailed):
        bench.repository.publish(KERNEL, [source], record, progress=progress, cancelled=cancelled)
    assert bench.repository.generations(KERNEL) == [1]
    assert bench.litter() == set()


def test_the_later_of_two_publishes_wins(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "FULL", 100_000)
    bench.publish({"a": noise(300_000, 1)})
    other = Repository.open(bench.root.as_uri())
    mine, theirs = bench.source("mine", noise(300_000, 2)), bench.source("theirs", noise(300_000, 3))

    def overtake(_: PublishStats) -> dict[str, object]:
        assert other.publish(KERNEL, [theirs], lambda _: {}).generation == 3
        return {}

    with pytest.raises(Conflict):
        bench.repository.publish(KERNEL, [mine], overtake)
    assert bench.repository.generations(KERNEL) == [1, 3]
    assert bench.repository.verify().ok
    assert bench.litter() == set()
    assert set(bench.fetch(3)) == {"theirs"}


def test_a_kernel_dropped_meanwhile_stays_dropped(bench: Bench) -> None:
    bench.publish({"a": b"1"})
    other = Repository.open(bench.root.as_uri())

    def drop(_: PublishStats) -> dict[str, object]:
        other.drop(KERNEL)
        return {}

    with pytest.raises(Conflict):
        bench.repository.publish(KERNEL, [bench.source("a", noise(100_000, 1))], drop)
    assert bench.repository.kernels() == []
    assert bench.objects() <= {"repository", ".lock"}


def test_permissions(bench: Bench) -> None:
    old = os.umask(0)
    try:
        bench.publish({"a": b"1", "b/c": b"2"})
    finally:
        os.umask(old)
    for path in [bench.root, *bench.root.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_permission_bits_come_back_and_no_others(bench: Bench) -> None:
    modes = {"a": 0o640, "b": 0o755, "c": stat.S_IFREG | 0o4711}
    bench.repository.publish(KERNEL, [bench.source(name, b"1", mode=mode) for name, mode in modes.items()], lambda _: {})
    into = bench.folder / "into"
    bench.repository.fetch(KERNEL, G1, into)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in into.iterdir()} == {"a": 0o640, "b": 0o755, "c": 0o711}


def test_nothing_is_overwritten_and_nothing_stays_after_a_failure(bench: Bench) -> None:
    bench.publish({"a": b"new", "b/c": b"new", "z": b"new"})
    into = bench.folder / "into"
    into.mkdir()
    (into / "z").write_bytes(b"old")
    with pytest.raises(StoreFailed):
        bench.repository.fetch(KERNEL, G1, into)
    assert [path.name for path in into.iterdir()] == ["z"]
    assert (into / "z").read_bytes() == b"old"


def test_no_symbolic_link_is_followed(bench: Bench) -> None:
    bench.publish({"a": b"new", "b/c": b"new"})
    outside = bench.folder / "outside"
    outside.mkdir()
    into = bench.folder / "into"
    into.mkdir()
    (into / "b").symlink_to(outside)
    with pytest.raises(StoreFailed):
        bench.repository.fetch(KERNEL, G1, into)
    assert list(outside.iterdir()) == []
    assert [path.name for path in into.iterdir()] == ["b"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relative",
        "/plain/path",
        "s3:///x",
        "s3://bucket/../x",
        "s3://Bucket/x",
        "s3://bucket/x?a=b",
        "gs://bucket/x",
        "file://host/x",
        "file:relative",
        "file:///x?a=b",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(BadRequest):
        Repository.open(url)


def test_opening(tmp_path: Path) -> None:
    address = (tmp_path / "made with" / "a space").as_uri()
    with pytest.raises(StoreFailed):
        Repository.open(address, create=False)
    assert list(tmp_path.iterdir()) == []
    first = Repository.open(address)
    second = Repository.open(address, create=False)
    assert first.id == second.id
    assert second.url == address
    other = tmp_path / "other"
    other.mkdir()
    (other / "lost+found").mkdir()
    assert Repository.open(other.as_uri()).kernels() == []
    (other / "repository").unlink()
    (other / "thesis.tex").write_text("")
    with pytest.raises(StoreFailed):
        Repository.open(other.as_uri())
    assert {path.name for path in other.iterdir()} == {"lost+found", "thesis.tex"}


def test_a_newer_repository_is_left_alone(bench: Bench) -> None:
    from tests.unit.store.forge import forge

    path = bench.root / "repository"
    path.write_bytes(forge(path.read_bytes(), version=2))
    with pytest.raises(NewerFormat):
        Repository.open(bench.root.as_uri())


@pytest.mark.slow
def test_memory_stays_bounded(bench: Bench) -> None:
    """400 MiB of new content, and its way back, in a process that may not grow with it."""
    path = bench.folder / "big"
    with path.open("wb") as file:
        for number in range(100):
            file.write(noise(4 << 20, number))
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom perdure.store.repository import *\n"
        "grown = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "r = Repository.open(sys.argv[1]); before = grown()\n"
        "m = r.publish('k', [SourceFile('big', Path(sys.argv[2]), 0o600)], lambda s: {})\n"
        "r.fetch('k', m.generation, Path(sys.argv[3]))\n"
        "assert r.verify().ok\nprint(grown() - before)"
    )
    command = [sys.executable, "-c", program, bench.root.as_uri(), str(path), str(bench.folder / "into")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) < 160
