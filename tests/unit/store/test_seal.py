"""Sealed repositories, attacked: by who reads the store, and by who writes it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.domain.errors import Corrupt, PerdureError, StoreFailed, WrongKey
from perdure.domain.ids import Generation, KernelId
from perdure.store import envelope, seal
from perdure.store.keys import Key, Keys
from perdure.store.local import LocalBackend
from perdure.store.repository import Repository
from perdure.store.seal import CHUNK, Sealed

from tests.unit.store.bench import KERNEL, Bench, noise
from tests.unit.store.forge import forge
from tests.unit.store.sealed import NEW, OLD, STRANGE, SealedBench

SECRET = b"a password that somebody typed into a cell "
FIRST = {"pages-1.img": SECRET * 3000 + noise(300_000, 1), "core.img": b"core"}
SECOND = {"pages-1.img": b"shifted" + SECRET * 3000 + noise(300_000, 1), "core.img": b"core 2"}
SIZES = sorted({0, 1, 95, 96, *(n * CHUNK + off for n in (1, 2, 3) for off in (-17, -16, -1, 0, 1, 15, 16, 17))})


@pytest.fixture
def bench(tmp_path: Path) -> SealedBench:
    made = SealedBench(tmp_path, NEW)
    made.publish(FIRST)
    made.publish(SECOND)
    return made


def part(bench: Bench, folder: str, generation: int) -> Path:
    [path] = (bench.root / "kernels" / KERNEL / folder).glob(f"{generation}-*")
    return path


def objects(bench: SealedBench) -> dict[str, Path]:
    return {name: bench.root / name for name in bench.files()}


def test_it_gives_back_what_it_got(bench: SealedBench) -> None:
    assert bench.fetch(1) == dict(sorted(FIRST.items()))
    assert bench.fetch(2) == dict(sorted(SECOND.items()))
    assert bench.repository.verify().ok
    assert bench.litter() == set()
    bench.repository.drop(KERNEL)
    assert set(bench.files()) == {"repository"}


def test_blocks_are_still_shared(bench: SealedBench) -> None:
    assert bench.publish(SECOND).bytes_added < 2_000


def test_nothing_is_seen_from_outside(bench: SealedBench) -> None:
    manifest = bench.repository.manifest(KERNEL, Generation(1))
    names = [name for file in manifest.files for name in file.recipe]
    for name, data in bench.files().items():
        assert data[:16] == b"PERDURE\nSEAL\1\0\0\0", name
        assert data[16:32] == NEW.id
        for word in (SECRET, b"core", b"pages", b"recipe", b"claim", noise(300_000, 1)[:64], NEW.secret, *names):
            assert word not in data, name
            assert word.hex().encode() not in data, name


def test_the_same_content_never_looks_the_same(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path)
    sealed = Sealed(backend, Keys((NEW,)), "")
    sealed.put("a", b"content")
    first = backend.get("a")
    sealed.put("a", b"content")
    assert backend.get("a")[48:] != first[48:]


@given(st.sampled_from(SIZES), st.integers(0, 4 * CHUNK), st.one_of(st.none(), st.integers(0, 4 * CHUNK)))
def test_ranges(ranges: Sealed, size: int, start: int, length: int | None) -> None:
    content = noise(4 * CHUNK, 3)[:size]
    expected = content[start:] if length is None else content[start : start + length]
    assert ranges.get(f"{size}", start, length) == expected


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    made = Sealed(LocalBackend(tmp_path_factory.mktemp("ranges")), Keys((NEW,)), "id")
    for size in SIZES:
        made.put(f"{size}", noise(4 * CHUNK, 3)[:size])
        assert made.stat(f"{size}").size == size
    return made


def test_sizes_that_no_object_has() -> None:
    smallest = seal.BEFORE + 16
    for size in (0, 1, smallest - 1, smallest, smallest + CHUNK + 1, smallest + CHUNK + 16):
        assert seal.content_size(size) == 0
    assert seal.content_size(smallest + 1) == 1
    assert seal.content_size(smallest + CHUNK + 17) == CHUNK + 1


def assert_refused(bench: SealedBench, generation: int) -> None:
    with pytest.raises(Corrupt):
        bench.fetch(generation)
    assert not [path for path in bench.folder.iterdir() if path.name.startswith("fetched-")]


def flips(size: int) -> list[int]:
    """Positions of bits: all of the first 150 bytes, some of each chunk, all of the last tag."""
    chosen = random.Random(size).sample(range(150 * 8, size * 8), 40)
    return [*range(0, 150 * 8, 5), *chosen, *range((size - 17) * 8, size * 8, 7)]


@pytest.mark.parametrize("folder", ["manifests", "index", "packs"])
def test_every_flipped_bit_is_seen(bench: SealedBench, folder: str) -> None:
    """In the first generation's objects; the packs' by verify, since a fetch reads what it needs and no more."""
    path = part(bench, folder, 1)
    good = path.read_bytes()
    backend = Sealed(LocalBackend(bench.root), Keys((NEW,)), bench.repository.id)
    name = str(path.relative_to(bench.root))
    for bit in flips(len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        with pytest.raises(StoreFailed):
            backend.get(name)
    assert_refused(bench, 1) if folder != "packs" else None
    assert not bench.repository.verify().ok
    path.write_bytes(good)
    assert bench.fetch(1) == dict(sorted(FIRST.items()))


@pytest.mark.parametrize("where", ["repository", f"kernels/{KERNEL}/head"])
def test_a_flipped_bit_in_the_first_objects(bench: SealedBench, where: str) -> None:
    path = bench.root / where
    good = path.read_bytes()
    for bit in flips(len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bad)
        if where == "repository":
            with pytest.raises(StoreFailed):
                bench.open()
        else:
            assert bench.open().verify(data=False).damaged_kernels
    path.write_bytes(good)
    assert bench.open().verify().ok


def other_key(whole: bytes) -> bytes:
    return forge(whole, key=STRANGE.id)


def other_digest(whole: bytes) -> bytes:
    """An envelope that is right for other bytes: digests need no key, so an attacker can make them."""
    return forge(whole, body=whole[envelope.SIZE : -1] + bytes([whole[-1] ^ 1]))


def chunk_left_out(whole: bytes) -> bytes:
    return forge(whole, body=whole[envelope.SIZE : seal.BEFORE] + whole[seal.BEFORE + CHUNK + 16 :])


def last_chunk_left_out(whole: bytes) -> bytes:
    chunks = (len(whole) - seal.BEFORE - 1) // (CHUNK + 16)
    return forge(whole, body=whole[envelope.SIZE : seal.BEFORE + chunks * (CHUNK + 16)])


def chunks_swapped(whole: bytes) -> bytes:
    size = CHUNK + 16
    body = whole[seal.BEFORE :]
    return forge(whole, body=whole[envelope.SIZE : seal.BEFORE] + body[size : 2 * size] + body[:size] + body[2 * size :])


def kind_changed(whole: bytes) -> bytes:
    return forge(whole, kind=b"PACK")


def lengthened(whole: bytes) -> bytes:
    return forge(whole, body=whole[envelope.SIZE :] + b"x" * (CHUNK + 16))


def fence_raised(whole: bytes) -> bytes:
    return forge(whole, fence=7)


@pytest.mark.parametrize(
    "attack",
    [
        other_digest,
        chunk_left_out,
        last_chunk_left_out,
        chunks_swapped,
        kind_changed,
        lengthened,
        fence_raised,
        lambda whole: whole[:-1],
        lambda whole: whole[: -(CHUNK + 16)],
        lambda whole: whole[: seal.BEFORE],
        lambda whole: whole[: envelope.SIZE],
        lambda whole: whole[:50],
        lambda whole: b"",
    ],
)
def test_a_pack_put_together_anew(bench: SealedBench, attack: Callable[[bytes], bytes]) -> None:
    path = part(bench, "packs", 1)
    whole = path.read_bytes()
    assert len(whole) > 3 * CHUNK
    path.write_bytes(attack(whole))
    report = bench.repository.verify()
    assert not report.ok
    name = str(path.relative_to(bench.root))
    backend = Sealed(LocalBackend(bench.root), Keys((NEW,)), bench.repository.id)
    for start, length in ((0, None), (0, 1 << 30), (96, None)):
        with pytest.raises(Corrupt):
            backend.get(name, start, length)


def test_an_unknown_key_is_no_damage(bench: SealedBench) -> None:
    """It is said what it is, the head isn't made anew, and nothing is written."""
    path = bench.root / "kernels" / KERNEL / "head"
    path.write_bytes(other_key(path.read_bytes()))
    before = bench.files()
    for attempt in (lambda: bench.repository.generations(KERNEL), lambda: bench.publish(FIRST), lambda: bench.fetch(1)):
        with pytest.raises(WrongKey):
            attempt()
    assert set(bench.repository.verify().damaged_kernels) == {KERNEL}
    assert bench.files() == before


@pytest.mark.parametrize("folder", ["manifests", "index", "packs"])
def test_two_objects_swapped(bench: SealedBench, folder: str) -> None:
    one, two = part(bench, folder, 1), part(bench, folder, 2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    assert_refused(bench, 1)
    assert_refused(bench, 2)


def test_an_old_manifest_under_another_claim(bench: SealedBench) -> None:
    part(bench, "manifests", 2).write_bytes(part(bench, "manifests", 1).read_bytes())
    assert_refused(bench, 2)
    assert bench.fetch(1) == dict(sorted(FIRST.items()))


def test_another_kernels_objects(bench: SealedBench) -> None:
    other = KernelId("kernel-2")
    shutil.copytree(bench.root / "kernels" / KERNEL, bench.root / "kernels" / other)
    assert set(bench.repository.verify().damaged_kernels) == {other}
    with pytest.raises(PerdureError):
        bench.fetch(1, other)


def test_another_repositorys_objects(bench: SealedBench, tmp_path: Path) -> None:
    """Of the same kernel, sealed with the same key."""
    (tmp_path / "other").mkdir()
    other = SealedBench(tmp_path / "other", NEW)
    other.publish(FIRST)
    shutil.rmtree(other.root / "kernels")
    shutil.copytree(bench.root / "kernels", other.root / "kernels")
    assert set(other.repository.verify().damaged_kernels) == {KERNEL}
    assert other.repository.generations(KERNEL) == []


def test_plain_objects_in_a_sealed_repository(bench: SealedBench, tmp_path: Path) -> None:
    """The attacker writes a perfectly good snapshot and knows everything but the key."""
    (tmp_path / "plain").mkdir()
    plain = Bench(tmp_path / "plain")
    shutil.rmtree(plain.root)
    shutil.copytree(bench.root, plain.root)
    sealed = Sealed(LocalBackend(bench.root), Keys((NEW,)), bench.repository.id)
    for name in bench.files():
        if name != "repository":
            (plain.root / name).write_bytes(sealed.get(name))
    door = Sealed(LocalBackend(bench.root), Keys((NEW,)), "")
    (plain.root / "repository").write_bytes(door.get("repository"))
    opened = Repository.open(plain.root.as_uri(), create=False)
    assert opened.verify().ok, "otherwise this test tests nothing"

    for name in bench.files():
        path = bench.root / name
        good = path.read_bytes()
        path.write_bytes((plain.root / name).read_bytes())
        if name == "repository":
            with pytest.raises(WrongKey):
                bench.open()
        else:
            with pytest.raises(Corrupt):
                sealed.get(name)
            assert not bench.repository.verify().ok
        path.write_bytes(good)
    assert bench.repository.verify().ok


def test_sealed_objects_in_a_plain_repository(bench: SealedBench, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = Bench(tmp_path / "plain")
    plain.publish(FIRST)
    head = plain.root / "kernels" / KERNEL / "head"
    head.write_bytes((bench.root / "kernels" / KERNEL / "head").read_bytes())
    with pytest.raises(WrongKey):
        plain.publish(SECOND)
    with pytest.raises(WrongKey):
        plain.repository.generations(KERNEL)


@pytest.mark.parametrize("keys", [(), (STRANGE,), (OLD, STRANGE)])
@pytest.mark.parametrize("create", [True, False])
def test_without_the_key(bench: SealedBench, keys: tuple[Key, ...], create: bool) -> None:
    before = bench.files()
    with pytest.raises(WrongKey):
        bench.reopen(*keys, create=create)
    assert bench.files() == before


def test_a_key_for_a_plain_repository(tmp_path: Path) -> None:
    bench = SealedBench(tmp_path)
    bench.publish(FIRST)
    before = bench.files()
    for create in (True, False):
        with pytest.raises(WrongKey):
            bench.reopen(NEW, create=create)
    assert bench.files() == before
    bench.reopen()
    assert bench.fetch(1) == dict(sorted(FIRST.items()))
