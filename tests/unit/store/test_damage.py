"""Flipped bits, missing objects, cut-off objects: named, contained, and healed where that can be."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from perdure.domain.errors import Corrupt, NewerFormat, StoreFailed
from perdure.domain.ids import Generation
from perdure.store.repository import Repository

from tests.unit.store.bench import KERNEL, Bench, noise
from tests.unit.store.forge import forge

STABLE = noise(200_000, 1)
OLD = {"stable": STABLE, "a": b"old " * 20_000}
NEW = {"stable": STABLE, "a": b"new " * 20_000}


@pytest.fixture
def two(bench: Bench) -> Bench:
    bench.publish(OLD)
    bench.publish(NEW)
    return bench


def only(bench: Bench, part: str, generation: int) -> Path:
    """The one object of that kind that a generation has written."""
    [path] = (bench.root / "kernels" / KERNEL / part).glob(f"{generation}-*")
    return path


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip_last(path: Path) -> None:
    flip(path, path.stat().st_size * 8 - 5)


HARMS: list[Callable[[Path], None]] = [flip_last, cut_off, empty, lengthen, Path.unlink]


def assert_corrupt(bench: Bench, generation: int, name: str) -> None:
    """Fetching raises Corrupt that names the object, and leaves nothing."""
    into = bench.folder / "into"
    with pytest.raises(Corrupt) as caught:
        bench.repository.fetch(KERNEL, Generation(generation), into)
    assert name in caught.value.sentence
    assert not into.exists()


def problems(bench: Bench, *, data: bool = True) -> dict[int, bool]:
    return {one.generation: not one.ok for one in bench.repository.verify(data=data).generations}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_manifest_hides_no_other_generation(two: Bench, harm: Callable[[Path], None]) -> None:
    path = only(two, "manifests", 2)
    harm(path)
    assert two.repository.generations(KERNEL) == [1, 2]
    assert_corrupt(two, 2, path.name)
    assert problems(two) == problems(two, data=False) == {1: False, 2: True}
    assert two.fetch(1) == OLD
    assert two.fetch(two.publish({"a": b"next"}).generation) == {"a": b"next"}


@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_index(two: Bench, harm: Callable[[Path], None]) -> None:
    path = only(two, "index", 2)
    harm(path)
    assert_corrupt(two, 2, path.name)
    assert two.fetch(1) == OLD
    assert problems(two) == {1: False, 2: True}
    # The next publish stores again what only the damaged index knew, and so the damaged generation is whole again.
    third = two.publish(NEW).generation
    assert two.fetch(third) == NEW
    assert two.fetch(2) == NEW


@pytest.mark.parametrize("harm", [cut_in_half, empty, Path.unlink])
def test_a_pack_that_is_not_whole_is_noticed_by_the_next_publish(two: Bench, harm: Callable[[Path], None]) -> None:
    path = only(two, "packs", 1)
    harm(path)
    for generation in (1, 2):
        assert_corrupt(two, generation, path.name)
    assert problems(two, data=False) == {1: True, 2: True}
    assert two.fetch(two.publish(NEW).generation) == NEW
    assert two.fetch(2) == NEW


@pytest.mark.parametrize("found_by", ["fetch", "verify"])
def test_a_flipped_bit_in_a_pack_is_not_handed_on(two: Bench, found_by: str) -> None:
    path = only(two, "packs", 1)
    flip(path, (150 + 100_000) * 8)
    if found_by == "fetch":
        assert_corrupt(two, 2, path.name)
    else:
        assert problems(two, data=False) == {1: False, 2: False}
        assert problems(two) == {1: True, 2: True}
    third = two.publish(NEW).generation
    assert two.fetch(third) == NEW
    # What the damaged pack held of the other generations is there again too.
    assert two.fetch(2) == NEW
    assert problems(two)[third] is False


def test_no_bit_of_a_pack_goes_unnoticed(two: Bench) -> None:
    path = only(two, "packs", 2)
    good = path.read_bytes()
    for bit in random.Random(1).sample(range(len(good) * 8), 150):
        flip(path, bit)
        assert problems(two) == {1: False, 2: True}, bit
        path.write_bytes(good)


@pytest.mark.parametrize("part", ["manifests", "index"])
def test_no_bit_goes_unnoticed(two: Bench, part: str) -> None:
    path = only(two, part, 2)
    good = path.read_bytes()
    for bit in [*range(96 * 8), *random.Random(2).sample(range(96 * 8, len(good) * 8), 100)]:
        flip(path, bit)
        with pytest.raises(Corrupt):
            two.repository.fetch(KERNEL, Generation(2), two.folder / "into")
        path.write_bytes(good)
    assert not (two.folder / "into").exists()


@pytest.mark.parametrize("harm", [flip_last, cut_off, empty, lengthen])
def test_a_damaged_head_loses_nothing(two: Bench, harm: Callable[[Path], None]) -> None:
    path = two.root / "kernels" / KERNEL / "head"
    harm(path)
    assert two.repository.generations(KERNEL) == [1, 2]
    assert (two.fetch(1), two.fetch(2)) == (OLD, NEW)
    report = two.repository.verify()
    assert not report.ok
    assert set(report.damaged_kernels) == {KERNEL}
    assert [one.ok for one in report.generations] == [True, True]
    third = two.publish({"a": b"next"}).generation
    assert third > 2
    assert two.repository.generations(KERNEL) == [1, 2, third]
    assert two.repository.verify().ok
    assert two.litter() == set()


def test_no_bit_of_a_head_goes_unnoticed(two: Bench) -> None:
    path = two.root / "kernels" / KERNEL / "head"
    good = path.read_bytes()
    for bit in [*range(96 * 8), *random.Random(3).sample(range(96 * 8, len(good) * 8), 50)]:
        flip(path, bit)
        assert two.repository.verify(data=False).damaged_kernels, bit
        path.write_bytes(good)


@pytest.mark.parametrize("harm", [flip_last, cut_off, empty, lengthen])
def test_a_damaged_repository_object(two: Bench, harm: Callable[[Path], None]) -> None:
    harm(two.root / "repository")
    with pytest.raises(Corrupt):
        Repository.open(two.root.as_uri())


def test_without_its_first_object_it_is_no_repository(two: Bench) -> None:
    (two.root / "repository").unlink()
    with pytest.raises(StoreFailed):
        Repository.open(two.root.as_uri())


@pytest.mark.parametrize("change", [{"version": 2}, {"flags": 1}])
@pytest.mark.parametrize("part", ["manifests", "index"])
def test_what_a_newer_release_wrote(two: Bench, part: str, change: dict[str, object]) -> None:
    path = only(two, part, 2)
    path.write_bytes(forge(path.read_bytes(), **change))
    with pytest.raises(NewerFormat):
        two.repository.fetch(KERNEL, Generation(2), two.folder / "into")


def test_a_newer_head_is_not_replaced(two: Bench) -> None:
    path = two.root / "kernels" / KERNEL / "head"
    newer = forge(path.read_bytes(), version=2)
    path.write_bytes(newer)
    with pytest.raises(NewerFormat):
        two.publish({"a": b"next"})
    assert path.read_bytes() == newer
    assert not two.repository.verify().ok


def test_another_kernels_objects_are_not_taken(two: Bench) -> None:
    other = two.root / "kernels" / "other"
    shutil.copytree(two.root / "kernels" / KERNEL, other)
    assert set(two.repository.verify().damaged_kernels) == {"other"}
    only(two, "manifests", 2).write_bytes(only(two, "manifests", 1).read_bytes())
    assert_corrupt(two, 2, "manifests/2-")


def test_leftovers_are_counted_and_no_damage(two: Bench) -> None:
    (two.root / "kernels" / KERNEL / "packs" / "3-0123456789abcdef-0").write_bytes(b"12345")
    report = two.repository.verify()
    assert report.ok
    assert (report.unreferenced_packs, report.unreferenced_bytes) == (1, 5)
    assert report.to_json()["ok"] is True
