"""A full, read-only or failing disk: said plainly, nothing published, nothing left, and it goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from perdure.domain.errors import NoRoom, StoreFailed
from perdure.domain.ids import Generation
from perdure.store import pack
from perdure.store.repository import Repository

from tests.unit.store.bench import KERNEL, Bench, noise

pytestmark = pytest.mark.root

Tmpfs = Callable[[int], Path]


def used(path: Path) -> int:
    found = os.statvfs(path)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def fill(path: Path, leave: int = 0) -> None:
    """Write until only `leave` bytes are free."""
    found = os.statvfs(path)
    (path / "filling").write_bytes(bytes(max(0, found.f_bavail * found.f_frsize - leave)))


@pytest.fixture
def small(tmpfs: Tmpfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A repository of its own on 4 MiB; the sources are elsewhere."""
    monkeypatch.setattr(pack, "FULL", 1 << 20)
    bench = Bench(tmp_path)
    bench.root = tmpfs(4 << 20) / "repository"
    bench.repository = Repository.open(bench.root.as_uri())
    bench.publish({"a": b"first"})
    return bench


def test_disk_full_in_the_packs(small: Bench) -> None:
    before = used(small.root)
    with pytest.raises(NoRoom):
        small.publish({"a": noise(6 << 20, 1)})
    assert small.repository.generations(KERNEL) == [1]
    assert small.fetch(1) == {"a": b"first"}
    assert small.litter() == set()
    assert used(small.root) == before
    assert small.publish({"a": noise(2 << 20, 1)}).generation == 3
    assert small.repository.verify().ok


def test_disk_full_at_any_step(small: Bench) -> None:
    """From nothing free, page by page up to enough: every step of a publish runs out of room once."""
    outcomes: list[bool] = []
    for pages in range(60):
        fill(small.root.parent, leave=pages * 4096)
        before = used(small.root)
        published = small.repository.generations(KERNEL)
        try:
            small.publish({"a": noise(60_000, pages)})
        except NoRoom:
            outcomes.append(False)
            assert small.repository.generations(KERNEL) == published
            assert used(small.root) == before
        else:
            outcomes.append(True)
        (small.root.parent / "filling").unlink()
        assert small.fetch(1) == {"a": b"first"}
        assert small.repository.verify().ok
        assert small.litter() == set()
        if outcomes[-3:] == [True] * 3:
            break
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes.count(False) > 10


def test_target_full(small: Bench, tmpfs: Tmpfs) -> None:
    generation = small.publish({"a": b"a", "z": noise(1 << 20, 1)}).generation
    target = tmpfs(512 << 10)
    started: list[int] = []
    with pytest.raises(NoRoom):
        small.repository.fetch(KERNEL, generation, target / "into", progress=lambda done, _: started.append(done))
    assert started == []
    assert list(target.iterdir()) == []


def test_target_fills_up_on_the_way(small: Bench, tmpfs: Tmpfs) -> None:
    """The room that was there at the beginning goes to somebody else."""
    generation = small.publish({"a": b"a", "z": noise(2 << 20, 1)}).generation
    target = tmpfs(4 << 20)

    def fill_up(_: int, __: int) -> None:
        if not (target / "filling").exists():
            fill(target)

    with pytest.raises(NoRoom):
        small.repository.fetch(KERNEL, generation, target / "into", progress=fill_up)
    assert [path.name for path in target.iterdir()] == ["filling"]


def test_read_only(small: Bench) -> None:
    mount = small.root.parent
    subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
    again = Repository.open(small.root.as_uri())
    with pytest.raises(StoreFailed) as caught:
        again.publish(KERNEL, [small.source("a", b"second")], lambda _: {})
    assert type(caught.value) is StoreFailed
    with pytest.raises(StoreFailed):
        again.drop(KERNEL)
    with pytest.raises(StoreFailed):
        Repository.open((mount / "another").as_uri())
    assert again.generations(KERNEL) == [1]
    assert again.verify().ok
    assert small.fetch(1) == {"a": b"first"}


def test_damage_in_a_read_only_repository_is_reported(small: Bench) -> None:
    [path] = (small.root / "kernels" / KERNEL / "packs").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    subprocess.run(["mount", "-o", "remount,ro", small.root.parent], check=True)
    assert not small.repository.verify().ok
    with pytest.raises(StoreFailed):
        small.repository.fetch(KERNEL, Generation(1), small.folder / "into")


def test_no_permission(tmp_path: Path) -> None:
    """As another user, in a process of its own."""
    bench = Bench(tmp_path)
    bench.publish({"a": b"first"})
    source = bench.source("b", b"second")
    child = os.fork()
    if child == 0:
        failed = 0
        try:
            os.setgid(65534)
            os.setuid(65534)
            for attempt in (
                lambda: Repository.open(bench.root.as_uri()),
                lambda: bench.repository.publish(KERNEL, [source], lambda _: {}),
                lambda: bench.repository.fetch(KERNEL, Generation(1), tmp_path / "into"),
                lambda: bench.repository.drop(KERNEL),
            ):
                try:
                    attempt()
                except StoreFailed:
                    failed += 1
        finally:
            os._exit(failed)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert bench.fetch(1) == {"a": b"first"}


def test_a_repository_that_went_away(tmpfs: Tmpfs, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.publish({"a": b"first"})
    bench.root.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed):
        bench.publish({"a": b"second"})
    assert not bench.root.exists()
