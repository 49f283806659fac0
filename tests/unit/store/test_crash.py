"""kill -9 at every change that a publish or a drop makes to the file system."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from perdure.store.repository import Repository

from tests.unit.store import zygote
from tests.unit.store.bench import KERNEL, Bench, noise

OLD = {"a": noise(150_000, 1), "same": noise(250_000, 2)}
NEW = {"a": noise(250_000, 3), "same": OLD["same"], "z": bytes(100_000)}

Run = Callable[[str, str, int], str]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    sources = tmp_path / "new"
    sources.mkdir()
    for name, data in NEW.items():
        (sources / name).write_bytes(data)
    command = [sys.executable, zygote.__file__, str(sources)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(url: str, verb: str, number: int) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{url} {verb} {number}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield ask
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.fixture
def before(tmp_path: Path) -> Bench:
    """A published generation, and what a publish that failed long ago has left."""
    folder = tmp_path / "before"
    folder.mkdir()
    bench = Bench(folder)
    bench.publish(OLD)
    for part in ("packs/2-0123456789abcdef-0", "index/2-0123456789abcdef", "manifests/2-0123456789abcdef"):
        (bench.root / "kernels" / KERNEL / part).write_bytes(b"leftover")
    return bench


def copies(before: Bench, tmp_path: Path) -> Iterator[Bench]:
    """The same state again and again."""
    number = 0
    while True:
        number += 1
        folder = tmp_path / f"copy-{number}"
        folder.mkdir()
        shutil.copytree(before.root, folder / "repository")
        yield Bench(folder)
        shutil.rmtree(folder)


def test_killed_while_publishing(before: Bench, run: Run, tmp_path: Path) -> None:
    deaths = published_deaths = 0
    for number, bench in enumerate(copies(before, tmp_path), 1):
        outcome = run(bench.root.as_uri(), "publish", number)
        assert outcome in ("killed", "done"), number
        generations = bench.repository.generations(KERNEL)
        assert generations in ([1], [1, 2]), number
        assert bench.fetch(1) == OLD
        if len(generations) == 2:
            assert bench.fetch(2) == NEW
        assert bench.repository.verify().ok, number

        claimed = bench.publish({"next": b"next"}).generation
        assert claimed > generations[-1]
        assert bench.repository.generations(KERNEL) == [*generations, claimed]
        assert bench.fetch(1) == OLD
        assert bench.fetch(claimed) == {"next": b"next"}
        assert bench.litter() == set(), number
        if outcome == "done":
            assert generations == [1, 2]
            break
        deaths += 1
        published_deaths += len(generations) - 1
    # Claim, three leftovers, packs, index, manifest and head, several system calls each.
    assert deaths > 40
    # The head is there, and its folder's fsync and what comes after it are not.
    assert 0 < published_deaths < 6


def test_killed_while_dropping(before: Bench, run: Run, tmp_path: Path) -> None:
    deaths = 0
    for number, bench in enumerate(copies(before, tmp_path), 1):
        outcome = run(bench.root.as_uri(), "drop", number)
        assert outcome in ("killed", "done"), number
        if bench.repository.kernels():
            assert bench.fetch(1) == OLD
            assert bench.repository.verify().ok
        else:
            assert bench.repository.generations(KERNEL) == []
        if number % 2:
            again = bench.publish({"next": b"next"}).generation
            assert bench.fetch(again) == {"next": b"next"}
            assert bench.litter() == set()
        bench.repository.drop(KERNEL)
        assert bench.objects() <= {"repository", ".lock"}, number
        if outcome == "done":
            break
        deaths += 1
    assert deaths > 15


def test_killed_while_collecting(before: Bench, run: Run, tmp_path: Path) -> None:
    """Retiring, moving blocks out of a pack that is mostly dead, condemning, deleting: all with the last published one whole."""
    last = {"same": OLD["same"][: 2 << 16], "new": noise(50_000, 9)}
    before.publish(last)
    outcomes = []
    for number, bench in enumerate(copies(before, tmp_path), 1):
        outcomes.append(run(bench.root.as_uri(), "collect", number))
        generations = bench.repository.generations(KERNEL)
        assert generations in ([1, 2], [2]), number
        assert bench.fetch(2) == last
        assert bench.repository.verify().ok, number
        if number % 2:
            bench.repository.collect(KERNEL, gone=generations[:-1], now=zygote.NOW + 1, grace_s=0, take_over=True)
        else:
            claimed = bench.publish(last).generation
            assert bench.fetch(claimed) == last
            gone = bench.repository.generations(KERNEL)[:-1]
            bench.repository.collect(KERNEL, gone=gone, now=zygote.NOW + 1, grace_s=0)
        assert bench.repository.verify().ok, number
        assert bench.fetch(bench.repository.generations(KERNEL)[-1]) == last
        assert bench.dead() == set(), number
        if outcomes[-1] == "done":
            break
    assert outcomes == ["killed"] * (len(outcomes) - 1) + ["done"]
    assert len(outcomes) > 40


def test_two_processes_publish_one_kernel(tmp_path: Path) -> None:
    """Whatever they do to each other: what is published is whole, and everybody was told the truth."""
    program = (
        "import sys, os\nfrom pathlib import Path\nfrom perdure.domain.errors import Conflict\n"
        "from perdure.store.repository import *\nfrom perdure.store import pack\npack.FULL = 50_000\n"
        "url, path = sys.argv[1:]\n"
        "r = Repository.open(url)\n"
        "for n in range(15):\n"
        "    Path(path).write_bytes(os.urandom(300_000))\n"
        "    try: print(r.publish('kernel-1', [SourceFile('a', Path(path), 0o600)], lambda s: {}).generation)\n"
        "    except Conflict: print('conflict')\n"
    )
    bench = Bench(tmp_path)
    commands = [[sys.executable, "-c", program, bench.root.as_uri(), str(tmp_path / f"source-{n}")] for n in range(2)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    said = [line for out, _ in outputs for line in out.split()]
    assert len(said) == 30
    numbers = sorted(int(line) for line in said if line != "conflict")
    assert numbers == Repository.open(bench.root.as_uri()).generations(KERNEL)
    report = bench.repository.verify()
    assert report.ok, report
    bench.publish({"a": b"last"})
    assert bench.litter() == set()
