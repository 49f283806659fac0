"""Retiring and collecting: what is needed stays, what isn't goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.domain.errors import Conflict, Corrupt, NotFound
from perdure.store import head, pack, waste
from perdure.store.keys import Key
from perdure.store.local import LocalBackend
from perdure.store.names import KernelNames
from perdure.store.repository import Collected, Repository, SourceFile
from perdure.store.settings import StoreSettings

from tests.unit.store.bench import KERNEL, Bench, noise
from tests.unit.store.collecting import FIRST, HOUR, NOW, SAME, THIRD, gens, three

pytestmark = pytest.mark.usefixtures("small_packs")


def test_retired_then_condemned_then_gone(bench: Bench) -> None:
    files = three(bench)
    objects, size = bench.objects(), bench.repository.usage(KERNEL).stored
    bench.repository.retire(KERNEL, gens(1, 2), now=NOW)
    assert bench.repository.generations(KERNEL) == [3]
    with pytest.raises(NotFound):
        bench.fetch(1)
    assert objects == bench.objects()
    first = bench.repository.collect(KERNEL, now=NOW + 60)
    assert first.waiting
    assert not first.removed
    assert bench.objects() == objects, "somebody may be reading it"
    assert not bench.repository.collect(KERNEL, now=NOW + HOUR - 1).removed
    last = bench.repository.collect(KERNEL, now=NOW + 60 + HOUR)
    assert last.bytes_removed > len(FIRST)
    assert bench.fetch(3) == files[2]
    assert bench.repository.verify().ok
    assert bench.dead() == set()
    assert bench.repository.usage(KERNEL).stored < size - len(FIRST)
    assert head.load(LocalBackend(bench.root), KERNEL).condemned == ()


def test_nothing_to_do_writes_nothing(bench: Bench) -> None:
    three(bench)
    before = head.load(LocalBackend(bench.root), KERNEL).tag
    report = bench.repository.collect(KERNEL, now=NOW)
    assert (report.removed, report.waiting, report.problem) == ([], [], "")
    assert head.load(LocalBackend(bench.root), KERNEL).tag == before


def test_a_dry_run_says_the_same_and_changes_nothing(bench: Bench) -> None:
    three(bench)
    before = {path: path.read_bytes() for path in bench.root.rglob("*") if path.is_file()}

    def collect(dry_run: bool) -> Collected:
        return bench.repository.collect(KERNEL, gone=gens(1, 2), now=NOW, grace_s=0, dry_run=dry_run)

    said = collect(True)
    assert {path: path.read_bytes() for path in bench.root.rglob("*") if path.is_file()} == before
    done = collect(False)
    assert said.retired == done.retired == [1, 2]
    assert {one.name for one in said.removed} | {one.name for one in said.waiting} == {one.name for one in done.removed}
    assert {one.why for one in done.removed}


def test_the_newest_never_goes(bench: Bench) -> None:
    three(bench)
    with pytest.raises(Conflict):
        bench.repository.retire(KERNEL, gens(3), now=NOW)
    with pytest.raises(NotFound):
        bench.repository.collect(KERNEL, gone=gens(7), now=NOW)
    assert bench.repository.generations(KERNEL) == [1, 2, 3]


def test_mostly_dead_packs_are_rewritten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "FULL", 1 << 20)
    keep = noise(64 << 10, 9)
    bench.publish({"keep": keep, "a": noise(900_000, 10)})
    bench.publish({"keep": keep})
    assert bench.repository.usage(KERNEL).stored > 900_000
    report = bench.repository.collect(KERNEL, gone=gens(1), now=NOW, grace_s=0)
    assert report.bytes_rewritten >= len(keep)
    assert bench.repository.usage(KERNEL).stored < 100_000
    assert bench.fetch(2) == {"keep": keep}
    assert bench.repository.verify().ok
    assert bench.dead() == set()
    assert bench.publish({"keep": keep}).bytes_added < 1000, "moved blocks are known to the next publish"


def test_many_small_packs_become_few(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "FULL", 1 << 20)
    monkeypatch.setattr(waste, "SMALL", 500_000)
    monkeypatch.setattr(waste, "SMALL_MOST", 8)
    files: dict[str, bytes] = {}
    for number in range(8):
        files[f"{number}"] = noise(10_000, number)
        bench.publish(files)
    assert len(head.load(LocalBackend(bench.root), KERNEL).indexes) == 8
    bench.repository.collect(KERNEL, now=NOW, grace_s=0)
    assert len(head.load(LocalBackend(bench.root), KERNEL).indexes) == 1
    assert len(list((bench.root / KernelNames(KERNEL).packs).iterdir())) == 1
    for number in range(8):
        assert bench.fetch(number + 1) == {name: data for name, data in files.items() if int(name) <= number}
    assert not bench.repository.collect(KERNEL, now=NOW, grace_s=0).removed
    assert bench.publish(files).generation == 10, "the collection has had a number of its own"


@pytest.mark.parametrize("part", ["manifests", "index", "packs"])
def test_damage_leaves_everything_where_it_is(bench: Bench, part: str) -> None:
    """What a damaged object referred to is unknown, so nothing is thrown away on its account."""
    three(bench)
    bench.repository.retire(KERNEL, gens(1), now=NOW)
    [path] = (bench.root / f"kernels/{KERNEL}/{part}").glob("2-*" if part != "packs" else "2-*-0")
    path.write_bytes(path.read_bytes()[:-1])
    packs = set((bench.root / KernelNames(KERNEL).packs).iterdir())
    report = bench.repository.collect(KERNEL, now=NOW + 10 * HOUR, grace_s=0)
    assert report.problem
    assert packs == set((bench.root / KernelNames(KERNEL).packs).iterdir())
    assert bench.fetch(3) == {"same": SAME, "a": THIRD}
    bench.repository.collect(KERNEL, gone=gens(2), now=NOW + 10 * HOUR, grace_s=0)
    assert bench.repository.verify().ok


def test_a_key_that_was_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations from its time can't be judged, and stay until they are retired; then all that it has sealed goes."""

    def opened(*letters: bytes) -> Repository:
        monkeypatch.setenv("TEST_KEYS", "\n".join(Key(letter * 32).text for letter in letters))
        return Repository.open((tmp_path / "repository").as_uri(), settings=StoreSettings(key_variable="TEST_KEYS"))

    def publish(repository: Repository, data: bytes) -> None:
        (tmp_path / "a").write_bytes(data)
        repository.publish(KERNEL, [SourceFile("a", tmp_path / "a", 0o600)], lambda _: {})

    publish(opened(b"o"), FIRST)
    publish(opened(b"n", b"o"), FIRST)
    repository = opened(b"n")
    assert list(repository.usage(KERNEL).locked) == [1]
    report = repository.collect(KERNEL, now=NOW, grace_s=0)
    assert (bool(report.problem), report.removed) == (True, [])
    assert repository.collect(KERNEL, gone=gens(1), now=NOW, grace_s=0).problem == ""
    assert repository.verify().ok
    names = [path.name.partition("-")[0] for path in (tmp_path / "repository").rglob("*-*") if path.is_file()]
    assert "1" not in names


def test_a_damaged_head_is_left_to_the_next_publish(bench: Bench) -> None:
    three(bench)
    path = bench.root / KernelNames(KERNEL).head
    path.write_bytes(b"nonsense")
    with pytest.raises(Corrupt):
        bench.repository.collect(KERNEL, now=NOW, take_over=True)
    assert bench.fetch(1) == {"same": SAME, "a": FIRST}


def test_a_head_that_is_lost_after_retiring(bench: Bench) -> None:
    """It is made again from the manifests: a retired generation may come back, and is whole."""
    three(bench)
    bench.repository.collect(KERNEL, gone=gens(1, 2), now=NOW)
    (bench.root / KernelNames(KERNEL).head).write_bytes(b"nonsense")
    bench.publish({"a": b"next"})
    report = bench.repository.verify()
    assert report.ok
    assert len(report.generations) == 4
