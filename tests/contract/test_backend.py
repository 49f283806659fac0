"""What every backend promises (store/backend.py)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from perdure.store.backend import Absent, Backend, Changed, Entry

OPEN = Callable[[], Backend]


def test_what_was_put_is_there_for_everybody(backend: Backend, open_backend: OPEN) -> None:
    backend.put("a/b/c", b"content")
    assert open_backend().get("a/b/c") == b"content"


@pytest.mark.parametrize("data", [b"", b"x", bytes(3 << 20), bytearray(b"array"), memoryview(b"view")])
def test_any_bytes(backend: Backend, data: bytes | bytearray | memoryview) -> None:
    backend.put("a", data)
    assert backend.get("a") == bytes(data)
    assert backend.stat("a").size == len(bytes(data))


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 3, b"012"),
        (4, 3, b"456"),
        (8, 100, b"89"),
        (10, 5, b""),
        (99, 5, b""),
        (3, None, b"3456789"),
        (99, None, b""),
        (2, 0, b""),
    ],
)
def test_ranges(backend: Backend, start: int, length: int | None, expected: bytes) -> None:
    backend.put("a", b"0123456789")
    assert backend.get("a", start, length) == expected


def test_absent(backend: Backend) -> None:
    backend.put("a/b", b"")
    for name in ("x", "a/x", "a/b/c"):
        with pytest.raises(Absent) as caught:
            backend.get(name)
        assert caught.value.name == name
        with pytest.raises(Absent):
            backend.stat(name)


def test_put_replaces(backend: Backend) -> None:
    backend.put("a", b"a long first content")
    backend.put("a", b"short")
    assert backend.get("a") == b"short"


def test_tags_tell_states_apart(backend: Backend) -> None:
    first = backend.put("a", b"1")
    assert backend.stat("a").tag == first
    second = backend.put("a", b"2")
    assert backend.stat("a").tag == second != first


def test_put_if_absent(backend: Backend) -> None:
    backend.put("a", b"first", if_absent=True)
    with pytest.raises(Changed):
        backend.put("a", b"second", if_absent=True)
    assert backend.get("a") == b"first"


def test_put_if_match(backend: Backend) -> None:
    first = backend.put("a", b"1")
    second = backend.put("a", b"2", if_match=first)
    with pytest.raises(Changed):
        backend.put("a", b"3", if_match=first)
    assert backend.get("a") == b"2"
    backend.delete("a")
    with pytest.raises(Changed):
        backend.put("a", b"4", if_match=second)
    assert list(backend.list("")) == []


def test_list_is_one_level_and_sorted(backend: Backend) -> None:
    for name in ("k/b/1", "k/a/2", "k/head", "k/a/1", "other"):
        backend.put(name, b"123")
    assert list(backend.list("")) == [Entry("k/", 0), Entry("other", 3)]
    assert list(backend.list("k/")) == [Entry("k/a/", 0), Entry("k/b/", 0), Entry("k/head", 3)]
    assert list(backend.list("k/a/")) == [Entry("k/a/1", 3), Entry("k/a/2", 3)]
    assert list(backend.list("nothing/")) == []


def test_delete_is_idempotent_and_leaves_no_prefix(backend: Backend) -> None:
    backend.put("k/a/1", b"")
    backend.delete("k/a/1")
    backend.delete("k/a/1")
    backend.delete("never/was")
    assert list(backend.list("")) == []


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", ".hidden", "a/.hidden", "a\0b"])
def test_names_that_are_none(backend: Backend, name: str) -> None:
    with pytest.raises(ValueError):
        backend.put(name, b"")
    with pytest.raises(ValueError):
        backend.get(name)


def test_one_of_many_wins_put_if_absent(open_backend: OPEN) -> None:
    def attempt(number: int) -> bool:
        try:
            open_backend().put("a", b"%d" % number, if_absent=True)
        except Changed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(16)))
    assert won.count(True) == 1
    assert open_backend().get("a") == b"%d" % won.index(True)


def test_compare_and_swap_loses_no_update(open_backend: OPEN) -> None:
    open_backend().put("counter", b"0")

    def count(_: int) -> None:
        backend = open_backend()
        for _ in range(10):
            while True:
                tag = backend.stat("counter").tag
                try:
                    backend.put("counter", b"%d" % (int(backend.get("counter")) + 1), if_match=tag)
                except Changed:
                    continue
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    assert open_backend().get("counter") == b"40"


def test_putting_and_deleting_side_by_side(open_backend: OPEN) -> None:
    """Folders come and go under a writer's feet; it doesn't notice."""

    def churn(number: int) -> None:
        backend = open_backend()
        for _ in range(25):
            backend.put(f"k/folder/{number}", b"x", if_absent=True)
            backend.delete(f"k/folder/{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert list(open_backend().list("")) == []


def test_a_reader_sees_whole_objects_only(open_backend: OPEN) -> None:
    size = 1 << 20
    open_backend().put("a", bytes(size))
    contents = [bytes([n]) * size for n in range(8)]
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [open_backend().put("a", content) for content in contents])
        while not writing.done():
            seen = open_backend().get("a")
            assert seen == seen[:1] * size
        writing.result()
