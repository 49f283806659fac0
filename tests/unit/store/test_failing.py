"""A backend that fails once, at every operation, before or after having done it (a request's answer that never arrives)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perdure.domain.errors import StoreFailed
from perdure.domain.ids import Generation
from perdure.store import pack
from perdure.store.backend import Backend, Bytes, Entry, Stat
from perdure.store.local import LocalBackend
from perdure.store.repository import Repository, SourceFile

from tests.unit.store.bench import KERNEL, Bench, noise

OLD = {"a": noise(250_000, 1)}
NEW = {"a": noise(350_000, 2), "b": OLD["a"]}


class Failing:
    """Wraps a backend; operation number `at` raises StoreFailed. Counts from 1."""

    def __init__(self, backend: Backend, at: int, *, done: bool) -> None:
        self._backend = backend
        self._at = at
        self._done = done
        self.count = 0

    @property
    def url(self) -> str:
        return self._backend.url

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        return self._do(self._backend.get, name, start, length)

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        return self._do(self._backend.put, name, data, if_absent=if_absent, if_match=if_match)

    def stat(self, name: str) -> Stat:
        return self._do(self._backend.stat, name)

    def list(self, prefix: str) -> Iterator[Entry]:
        return iter(self._do(lambda: [*self._backend.list(prefix)]))

    def delete(self, name: str) -> None:
        self._do(self._backend.delete, name)

    def _do(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        failing = self.count == self._at
        if failing and not self._done:
            raise StoreFailed("The line is dead.")
        result = call(*args, **kwargs)
        if failing:
            raise StoreFailed("The answer never came.")
        return result


@pytest.mark.parametrize("done", [False, True])
def test_publishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    monkeypatch.setattr(pack, "FULL", 100_000)
    at = published_and_failed = 0
    failed = True
    while failed:
        at += 1
        folder = tmp_path / f"{at}"
        folder.mkdir()
        bench = Bench(folder)
        bench.publish(OLD)
        failing = Failing(LocalBackend(bench.root), at, done=done)
        sources = [bench.source(name, data) for name, data in NEW.items()]
        try:
            Repository.on(failing).publish(KERNEL, sources, lambda _: {})
            failed = False
        except StoreFailed:
            pass
        generations = bench.repository.generations(KERNEL)
        assert bench.fetch(1) == OLD
        if generations != [1]:
            assert generations == [1, 2]
            assert bench.fetch(2) == NEW
            published_and_failed += failed
        assert bench.repository.verify().ok
        following = bench.publish({"a": b"next"}).generation
        assert bench.fetch(following) == {"a": b"next"}
        assert bench.litter() == set()
    assert at > 20
    # Only the head's own answer, when it gets lost, leaves open what became of it.
    assert published_and_failed == (1 if done else 0)


@pytest.mark.parametrize("done", [False, True])
def test_dropping(tmp_path: Path, done: bool) -> None:
    at = 0
    failed = True
    while failed:
        at += 1
        folder = tmp_path / f"{at}"
        folder.mkdir()
        bench = Bench(folder)
        bench.publish(OLD)
        repository = Repository(Failing(LocalBackend(bench.root), at, done=done), bench.repository.id)
        try:
            repository.drop(KERNEL)
            failed = False
        except StoreFailed:
            pass
        assert bench.repository.generations(KERNEL) == [1] * len(bench.repository.kernels())
        assert bench.repository.verify().ok
        bench.repository.drop(KERNEL)
        assert bench.objects() <= {"repository", ".lock"}
    assert at > 5


def test_fetching(bench: Bench) -> None:
    bench.publish(NEW)
    at = 0
    failed = True
    while failed:
        at += 1
        into = bench.folder / f"into-{at}"
        repository = Repository(Failing(LocalBackend(bench.root), at, done=False), bench.repository.id)
        try:
            repository.fetch(KERNEL, Generation(1), into)
            failed = False
        except StoreFailed:
            assert not into.exists()
    assert at > 5
    assert {path.name: path.read_bytes() for path in into.iterdir()} == NEW


def test_nothing_is_withdrawn_when_the_heads_answer_is_lost(bench: Bench) -> None:
    """The last put of a publish is the head's. Cleaning up then would tear down what is published."""
    counting = Failing(LocalBackend(bench.root), -1, done=True)
    source = SourceFile("a", bench.source("a", NEW["a"]).source, 0o600)
    Repository.on(counting).publish(KERNEL, [source], lambda _: {})
    bench.repository.drop(KERNEL)
    losing = Failing(LocalBackend(bench.root), counting.count, done=True)
    with pytest.raises(StoreFailed):
        Repository.on(losing).publish(KERNEL, [source], lambda _: {})
    assert losing.count == counting.count
    assert bench.fetch(1) == {"a": NEW["a"]}
