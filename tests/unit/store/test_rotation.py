"""A new key: what it writes needs no older one, and what is older stays readable as long as its key is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.domain.errors import WrongKey
from perdure.domain.ids import Generation, KernelId

from tests.unit.store.bench import KERNEL, noise
from tests.unit.store.sealed import NEW, OLD, SealedBench

OTHER = KernelId("kernel-2")
FILES = {"pages-1.img": noise(400_000, 1)}


@pytest.fixture
def bench(tmp_path: Path) -> SealedBench:
    made = SealedBench(tmp_path, OLD)
    made.publish(FILES)
    made.publish(FILES, kernel=OTHER)
    made.reopen(NEW, OLD)
    return made


def sealed_with(bench: SealedBench, key: bytes) -> set[str]:
    return {name for name, data in bench.files().items() if data[16:32] == key}


def test_old_generations_stay_readable(bench: SealedBench) -> None:
    assert bench.fetch(1) == FILES
    assert bench.repository.verify().ok


def test_what_is_written_is_written_with_the_first_key(bench: SealedBench) -> None:
    assert sealed_with(bench, NEW.id) == {"repository"}
    before = sealed_with(bench, OLD.id)
    bench.publish(FILES)
    assert before - sealed_with(bench, OLD.id) == {f"kernels/{KERNEL}/head"}
    assert {name.split("/")[2] for name in sealed_with(bench, NEW.id) if "/" in name} == {"head", "manifests", "index", "packs"}


def test_a_new_generation_needs_no_old_key(bench: SealedBench) -> None:
    added = bench.publish(FILES)
    assert added.bytes_added > 400_000, "blocks of the old key's time were relied on"
    assert bench.publish(FILES).bytes_added < 2_000, "blocks of the new key's time were not"
    bench.reopen(NEW)
    assert bench.fetch(2) == FILES
    assert bench.fetch(3) == FILES
    with pytest.raises(WrongKey):
        bench.fetch(1)
    report = bench.repository.verify(KERNEL)
    assert [one.ok for one in report.generations] == [False, True, True]
    assert bench.publish(FILES).bytes_added < 2_000
    assert bench.fetch(4) == FILES


def test_a_kernel_from_the_old_keys_time_waits_for_it(bench: SealedBench) -> None:
    bench.reopen(NEW)
    before = bench.files()
    with pytest.raises(WrongKey):
        bench.publish(FILES, kernel=OTHER)
    assert bench.files() == before
    bench.reopen(NEW, OLD)
    assert bench.fetch(1, OTHER) == FILES
    bench.publish(FILES, kernel=OTHER)
    bench.reopen(NEW)
    assert bench.fetch(2, OTHER) == FILES


def test_who_only_reads_changes_nothing(tmp_path: Path) -> None:
    bench = SealedBench(tmp_path, OLD)
    bench.publish(FILES)
    before = bench.files()
    bench.reopen(NEW, OLD, create=False)
    assert bench.fetch(1) == FILES
    assert bench.files() == before


def test_the_order_of_keys_can_be_turned_back(bench: SealedBench) -> None:
    bench.publish(FILES)
    bench.reopen(OLD, NEW)
    bench.publish(FILES)
    bench.reopen(OLD)
    assert bench.fetch(3) == FILES
    assert bench.repository.generations(KERNEL) == [Generation(1), Generation(2), Generation(3)]
