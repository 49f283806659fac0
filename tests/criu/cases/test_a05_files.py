"""A5: a file being appended to, one being read, SQLite on disk and in memory, both with an open transaction.

What happens when files change after the snapshot (A6) is in ../files.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest
from live_kernel import LiveKernel
from perdure.domain.errors import PreflightRefused
from perdure.engine.limits import CaptureLimits

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_open_files(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    (kernel.home / "data").write_bytes(bytes(range(256)) * 100)
    kernel.run(
        "log = open('log', 'a'); print('written', file=log, flush=True); log.write('buffered\\n')\n"
        "data = open('data', 'rb'); data.seek(1000)"
    )
    written = ["written"]

    def check() -> None:
        if written == ["written"]:
            written.append("buffered")
        assert kernel.run("data.tell(), data.read(4), data.seek(1000)") == f"(1000, {bytes([232, 233, 234, 235])!r}, 1000)"
        kernel.run("print('again', file=log, flush=True)")
        written.append("again")
        assert (kernel.home / "log").read_text().split() == written

    survives(check)


def test_sqlite_with_an_open_transaction(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, sqlite3\n"
        "def fill(path):\n"
        "    base = sqlite3.connect(path); base.execute('create table t(a, b)')\n"
        "    base.executemany('insert into t values(?, ?)', [(n, str(n)) for n in range(20000)]); base.commit()\n"
        "    return base\n"
        "def begin(base):\n"
        "    base.execute('insert into t values(-1, ?)', (token,))\n"
        "token = os.urandom(8).hex(); disk, memory = fill('base.db'), fill(':memory:'); begin(disk); begin(memory)\n"
        "cursor = memory.execute('select a from t order by a desc'); cursor.fetchmany(3)\n"
        "def facts(base):\n"
        "    ask = lambda what: base.execute(what).fetchone()\n"
        "    mine = ask('select b from t where a = -1') == (token,)\n"
        "    return base.in_transaction, ask('select count(*) from t')[0], mine, ask('pragma integrity_check')"
    )
    following = 19996

    def check() -> None:
        nonlocal following
        for base in ("disk", "memory"):
            assert kernel.run(f"facts({base})") == "(True, 20001, True, ('ok',))"
        assert kernel.run("cursor.fetchone()[0]") == str(following)
        following -= 1

    survives(check)
    kernel.run("disk.commit(); memory.rollback()")
    assert kernel.run("facts(memory)[:2]") == "(False, 20000)"
    with closing(sqlite3.connect(kernel.home / "base.db")) as base:
        assert base.execute("select count(*) from t").fetchone() == (20001,)
        assert base.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_refusal_names_the_file_and_can_be_mended(kernel: LiveKernel) -> None:
    """A6, the one outcome that is no restore; the others are in ../files."""
    path = kernel.home / "large"
    content = b"0123456789" * 10_000
    path.write_bytes(content)
    kernel.run("large = open('large', 'r+b'); large.seek(10); x = 5")
    snapshot = kernel.snapshot(limits=CaptureLimits(file_bytes=1000))
    then = path.stat()
    kernel.kill()
    path.write_bytes(content[:50_000])
    with pytest.raises(PreflightRefused) as caught:
        kernel.restore(snapshot)
    assert str(path) in caught.value.sentence
    kernel.kill()
    path.write_bytes(content)
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    kernel.restore(snapshot)
    assert kernel.run("x, large.read(5)") == "(5, b'01234')"
