"""Retiring and collecting while others are at work, and broken off anywhere: what is published stays whole."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from perdure.domain.errors import Conflict, NotFound, PerdureError, StoreFailed
from perdure.domain.ids import Generation
from perdure.store.backend import Bytes
from perdure.store.local import LocalBackend
from perdure.store.names import KernelNames
from perdure.store.repository import Repository

from tests.unit.store.bench import KERNEL, Bench, noise
from tests.unit.store.collecting import FIRST, HOUR, NOW, SAME, SECOND, THIRD, gens, three
from tests.unit.store.test_failing import Failing

pytestmark = pytest.mark.usefixtures("small_packs")


class Between:
    """Calls `act` once, before the first put or delete whose name contains `where`."""

    def __init__(self, backend: LocalBackend, where: str, act: Callable[[], object]) -> None:
        self._backend, self._where, self._act = backend, where, act
        self.acted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def put(self, name: str, data: Bytes, **how: Any) -> str:
        self._look(name)
        return self._backend.put(name, data, **how)

    def delete(self, name: str) -> None:
        self._look(name)
        self._backend.delete(name)

    def _look(self, name: str) -> None:
        if self._where in name and not self.acted:
            self.acted = True
            self._act()


@pytest.mark.parametrize("where", ["head", "packs/", "index/", "manifests/"])
def test_a_collection_beside_a_publish(bench: Bench, where: str) -> None:
    """The publish relies on blocks that only a retired generation has; one of the two is locked out."""
    three(bench)
    again = {"same": SAME, "a": FIRST, "new": noise(150_000, 77)}

    def collect() -> None:
        bench.repository.collect(KERNEL, gone=gens(1, 2), now=NOW, grace_s=0, take_over=True)

    backend = Between(LocalBackend(bench.root), where, collect)
    sources = [bench.source(name, data) for name, data in again.items()]
    with pytest.raises(Conflict):
        Repository.on(backend).publish(KERNEL, sources, lambda _: {})  # type: ignore[arg-type]
    assert backend.acted
    assert bench.repository.verify().ok
    assert bench.fetch(3) == {"same": SAME, "a": THIRD}
    assert bench.fetch(bench.publish(again).generation) == again
    assert bench.dead() == set()


def test_a_publish_that_runs_is_spared_unless_told_otherwise(bench: Bench) -> None:
    three(bench)
    refused = []

    def collect() -> None:
        with pytest.raises(Conflict):
            bench.repository.collect(KERNEL, now=NOW)
        refused.append(bench.repository.collect(KERNEL, now=NOW, dry_run=True))

    backend = Between(LocalBackend(bench.root), "index/", collect)
    Repository.on(backend).publish(KERNEL, [bench.source("b", noise(150_000, 5))], lambda _: {})  # type: ignore[arg-type]
    assert refused
    assert bench.repository.verify().ok


@pytest.mark.parametrize("where", ["head", "packs/", "index/", "manifests/"])
def test_a_publish_beside_a_collection(bench: Bench, where: str) -> None:
    """A whole publish takes place while the collection stands still: between looking and the swap, or while it deletes."""
    three(bench)
    again = {"same": SAME, "a": FIRST, "b": SECOND}
    backend = Between(LocalBackend(bench.root), where, lambda: bench.publish(again))
    try:
        Repository.on(backend).collect(KERNEL, gone=gens(1, 2), now=NOW, grace_s=0)  # type: ignore[arg-type]
    except Conflict:
        pass
    assert backend.acted
    assert bench.repository.verify().ok
    assert bench.fetch(bench.repository.generations(KERNEL)[-1]) == again
    assert bench.fetch(3) == {"same": SAME, "a": THIRD}


def test_who_stood_still_while_others_published_deletes_nothing_of_theirs(bench: Bench) -> None:
    """A publish is stopped just after it has claimed; when it goes on, others have claimed and published."""
    three(bench)
    (bench.root / KernelNames(KERNEL).packs / "3-0123456789abcdef-0").write_bytes(b"leftover")
    backend = LocalBackend(bench.root)

    class Stopping(Between):
        def list(self, prefix: str) -> Iterator[Any]:
            self._look(prefix)
            return self._backend.list(prefix)

    stopping = Stopping(backend, "manifests/", lambda: bench.publish({"a": b"theirs"}))
    with pytest.raises(Conflict):
        Repository.on(stopping).publish(KERNEL, [bench.source("b", b"ours")], lambda _: {})  # type: ignore[arg-type]
    assert bench.repository.verify().ok
    assert bench.fetch(5) == {"a": b"theirs"}


def test_a_fetch_goes_on_while_its_generation_is_retired(bench: Bench) -> None:
    files = three(bench)
    done = []

    def progress(at: int, _: int) -> None:
        if not done:
            done.append(bench.repository.collect(KERNEL, gone=gens(1), now=NOW))

    into = bench.folder / "into"
    bench.repository.fetch(KERNEL, Generation(1), into, progress=progress)
    assert {path.name: path.read_bytes() for path in into.iterdir()} == files[0]
    assert done[0].retired == [1]


def test_a_fetch_whose_blocks_were_not_spared_says_what_happened(bench: Bench) -> None:
    """No grace was given: it isn't damage, and nothing is marked."""
    files = {str(number): noise(3 << 20, number) for number in range(16)}
    bench.publish(files)
    bench.publish({"a": b"newer"})
    done = []

    def progress(at: int, _: int) -> None:
        if not done:
            done.append(bench.repository.collect(KERNEL, gone=gens(1), now=NOW, grace_s=0))

    with pytest.raises(NotFound):
        bench.repository.fetch(KERNEL, Generation(1), bench.folder / "into", progress=progress)
    assert not (bench.root / KernelNames(KERNEL).damaged).exists()


def test_cancelled(bench: Bench) -> None:
    three(bench)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Conflict):
        bench.repository.collect(KERNEL, gone=gens(1), now=NOW, cancelled=cancelled)
    assert bench.repository.verify().ok


@pytest.mark.parametrize("done", [False, True])
def test_every_operation_fails_once(tmp_path: Path, done: bool) -> None:
    """Before it is done, or after: the answer never comes. Packs are rewritten, dead and small, generations retired."""
    at, failed = 0, True
    while failed:
        at += 1
        folder = tmp_path / f"{at}"
        folder.mkdir()
        bench = Bench(folder)
        bench.publish({"a": noise(95_000, 1), "same": noise(30_000, 2)})
        last = {"same": noise(30_000, 2), "b": noise(20_000, 3)}
        bench.publish(last)
        failing = Failing(LocalBackend(bench.root), at, done=done)
        try:
            Repository.on(failing).collect(KERNEL, gone=gens(1), now=NOW, grace_s=0)
            failed = False
        except StoreFailed:
            pass
        generations = bench.repository.generations(KERNEL)
        assert generations in ([1, 2], [2])
        assert bench.fetch(2) == last
        assert bench.repository.verify().ok
        report = bench.repository.collect(KERNEL, gone=generations[:-1], now=NOW + 1, grace_s=0, take_over=True)
        assert report.problem == ""
        assert bench.dead() == set(), at
        assert bench.repository.verify().ok
        assert bench.fetch(2) == last
        assert bench.fetch(bench.publish(last).generation) == last
    assert at > 25


class Life(RuleBasedStateMachine):
    """Publishes, retirements and collections in any order, some broken off: what is published is what was given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.folder.name))
        self.published: dict[Generation, dict[str, bytes]] = {}
        self.now = NOW

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(seeds=st.lists(st.integers(0, 5), min_size=1, max_size=4))
    def publish(self, seeds: list[int]) -> None:
        files = {f"{at}": noise(25_000, seed) for at, seed in enumerate(seeds)}
        self.published[self.bench.publish(files).generation] = files

    @rule(pick=st.sets(st.integers(0, 5)), grace=st.sampled_from([0, HOUR]), passed=st.sampled_from([1, HOUR, 2 * HOUR]))
    def collect(self, pick: set[int], grace: int, passed: int) -> None:
        self.now += passed
        gone = [one for at, one in enumerate(sorted(self.published)[:-1]) if at in pick]
        report = self.bench.repository.collect(KERNEL, gone=gone, now=self.now, grace_s=grace, take_over=True)
        assert report.problem == ""
        for one in gone:
            del self.published[one]

    @rule(at=st.integers(1, 40), done=st.booleans(), retire=st.booleans(), publish=st.booleans())
    def breaks_off(self, at: int, done: bool, retire: bool, publish: bool) -> None:
        failing = Repository(Failing(LocalBackend(self.bench.root), at, done=done), self.bench.repository.id)
        files = {"0": noise(25_000, at % 6)}
        gone = sorted(self.published)[:-1][:1] if retire else []
        try:
            if publish:
                failing.publish(KERNEL, [self.bench.source(name, data) for name, data in files.items()], lambda _: {})
            else:
                failing.collect(KERNEL, gone=gone, now=self.now, grace_s=0, take_over=True)
        except PerdureError:
            pass
        there = self.bench.repository.generations(KERNEL)
        new = set(there) - set(self.published)
        assert len(new) <= publish
        self.published |= dict.fromkeys(new, files)
        assert set(self.published) - set(there) <= set(gone)
        self.published = {one: self.published[one] for one in there}

    @invariant()
    def everything_is_there(self) -> None:
        assert self.bench.repository.generations(KERNEL) == sorted(self.published)
        if self.published:
            assert self.bench.repository.verify(KERNEL).ok
            newest = max(self.published)
            assert self.bench.fetch(newest) == self.published[newest]


TestLife = Life.TestCase


TestLife.settings = settings(max_examples=40, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_processes_publish_collect_and_fetch_at_once(bench: Bench) -> None:
    """One publishes, one retires and collects without any grace, one reads the newest: whatever is published is whole."""
    common = (
        "import sys, os\nfrom pathlib import Path\nfrom perdure.domain.errors import *\n"
        "from perdure.store.repository import *\nfrom perdure.store import pack, waste\n"
        "pack.FULL, waste.SAVED_FLOOR = 50_000, 0\n"
        "r, folder = Repository.open(sys.argv[1]), Path(sys.argv[2])\n"
    )
    publish = (
        "import random\npick = random.Random(1)\n"
        "done = 0\n"
        "while done < 60:\n"
        "    (folder / 'a').write_bytes(b''.join(random.Random(pick.randrange(6)).randbytes(65536) for _ in range(4)))\n"
        "    try: r.publish('kernel-1', [SourceFile('a', folder / 'a', 0o600)], lambda s: {})\n"
        "    except Conflict: continue\n"
        "    done += 1\n"
    )
    collect = (
        "import time\nremoved = 0\nwhile not (folder / 'end').exists() or not removed:\n"
        "    gone, now = r.generations('kernel-1')[:-2], time.time()\n"
        "    try: removed += len(r.collect('kernel-1', gone=gone, now=now, grace_s=0, take_over=now % 1 < .3).removed)\n"
        "    except (Conflict, NotFound): pass\n"
    )
    fetch = (
        "import shutil\nread = 0\nwhile not (folder / 'end').exists() or not read:\n"
        "    newest = r.generations('kernel-1')[-1:]\n"
        "    try: r.fetch('kernel-1', newest[0], folder / 'into') if newest else None\n"
        "    except NotFound: continue\n"
        "    read += 1\n"
        "    shutil.rmtree(folder / 'into', ignore_errors=True)\n"
    )
    bench.publish({"a": FIRST})
    begun = [
        subprocess.Popen([sys.executable, "-c", common + what, bench.root.as_uri(), str(bench.folder)], stderr=subprocess.PIPE)
        for what in (publish, collect, fetch)
    ]
    publisher, *others = begun
    said = [publisher.communicate(timeout=120)[1]]
    (bench.folder / "end").touch()
    said += [other.communicate(timeout=60)[1] for other in others]
    assert [one.returncode for one in begun] == [0, 0, 0], said
    assert bench.repository.verify().ok
    bench.publish({"a": b"last"})
    gone = bench.repository.generations(KERNEL)[:-1]
    bench.repository.collect(KERNEL, gone=gone, now=NOW * 2, grace_s=0)
    assert bench.dead() == set()
    assert bench.fetch(bench.repository.generations(KERNEL)[-1]) == {"a": b"last"}
