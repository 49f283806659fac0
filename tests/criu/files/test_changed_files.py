"""A5 and A6: open files, unchanged, grown, shrunk, replaced, deleted after the snapshot."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from live_kernel import CLOCK, LiveKernel, Snapshot
from perdure.domain.compat import Severity, refusal
from perdure.domain.errors import NoRoom, PreflightRefused
from perdure.domain.ids import Owner
from perdure.engine.classic import capture
from perdure.engine.hostfacts import host_facts
from perdure.engine.limits import CaptureLimits
from perdure.engine.preflight import preflight
from perdure.engine.restore import revive
from perdure.runtime.sandbox import Sandbox

pytestmark = [pytest.mark.criu, pytest.mark.root]

NOBODY = Owner(65534, 65534)
CONTENT = b"".join(b"line %d\n" % number for number in range(1000))


@pytest.fixture(params=[Owner(0, 0), NOBODY], ids=["root", "nobody"])
def anyone(request: pytest.FixtureRequest, start_kernel: Callable[..., LiveKernel]) -> LiveKernel:
    kernel = start_kernel(owner=request.param)
    kernel.run("import os")
    return kernel


def kept(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.perdure-*"))


def die_and_come_back(kernel: LiveKernel, snapshot: Snapshot, change: Callable[[], object]) -> tuple[str, ...]:
    kernel.kill()
    change()
    return kernel.restore(snapshot).warnings


def test_a_log_that_grew_stays_as_it_is(anyone: LiveKernel) -> None:
    log = anyone.home / "log"
    anyone.run("log = open('log', 'a'); print('one', file=log, flush=True)")
    snapshot = anyone.snapshot()
    anyone.run("print('two', file=log, flush=True)")
    warnings = die_and_come_back(anyone, snapshot, lambda: None)
    assert any(str(log) in line for line in warnings)
    anyone.run("print('three', file=log, flush=True)")
    assert log.read_text().split() == ["one", "two", "three"]
    assert not kept(log)


def test_a_read_file_that_was_appended_to_is_read_on(anyone: LiveKernel) -> None:
    data = anyone.home / "data"
    data.write_bytes(CONTENT)
    anyone.run("f = open('data', 'rb', buffering=0); f.seek(1234)")
    snapshot = anyone.snapshot()
    anyone.kill()
    with data.open("ab") as more:
        more.write(b"more")
    anyone.restore(snapshot)
    assert anyone.run("print((f.tell(), f.read()))") == repr((1234, CONTENT[1234:] + b"more"))


def unchanged_but_touched(path: Path) -> None:
    os.utime(path, (1, 1))


def copied(path: Path) -> None:
    content = path.read_bytes()
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(content)
    os.chown(path, *owner_of(path.with_name("elsewhere")))


def owner_of(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


@pytest.mark.parametrize("mode", ["rb", "rb+", "ab"])
@pytest.mark.parametrize("change", [unchanged_but_touched, copied])
def test_the_same_content_is_the_same_file(kernel: LiveKernel, mode: str, change: Callable[[Path], None]) -> None:
    path = kernel.home / "data"
    path.write_bytes(CONTENT)
    kernel.run(f"f = open('data', '{mode}')")
    assert die_and_come_back(kernel, kernel.snapshot(), lambda: change(path)) == ()
    assert path.read_bytes() == CONTENT
    assert not kept(path)


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrunk(path: Path) -> None:
    os.truncate(path, 10)


def rewritten(path: Path) -> None:
    path.write_bytes(b"x" * len(CONTENT))


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(b"another one")
    os.chown(new, *owner_of(path))
    new.rename(path)


def deleted(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [grown, shrunk, rewritten, replaced, deleted])
def test_a_changed_file_is_put_back_and_the_newer_one_kept(anyone: LiveKernel, change: Callable[[Path], None]) -> None:
    path = anyone.home / "data"
    anyone.run(f"open('data', 'wb').write({CONTENT!r}); os.chmod('data', 0o640); f = open('data', 'rb+'); f.seek(1234)")
    snapshot = anyone.snapshot()
    newer = None

    def act() -> None:
        nonlocal newer
        change(path)
        newer = path.read_bytes() if path.exists() else None

    warnings = die_and_come_back(anyone, snapshot, act)
    assert any(str(path) in line for line in warnings)
    assert anyone.run("print((f.tell(), f.read()))") == repr((1234, CONTENT[1234:]))
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (anyone.owner.uid, 0o640)
    assert [one.read_bytes() for one in kept(path)] == ([newer] if newer is not None else [])
    anyone.run("f.seek(0); f.write(b'LINE'); f.flush()")
    assert path.read_bytes() == b"LINE" + CONTENT[4:]


def test_a_temporary_folder_that_is_gone_comes_back_with_its_file(anyone: LiveKernel) -> None:
    anyone.run(
        "import tempfile; d = tempfile.TemporaryDirectory(dir='.'); f = open(d.name + '/x', 'w+'); f.write('abc'); f.flush()"
    )
    snapshot = anyone.snapshot()
    anyone.run("f.close(); d.cleanup()")
    warnings = die_and_come_back(anyone, snapshot, lambda: None)
    assert len(warnings) == 1
    assert anyone.run("f.seek(0); f.read(), os.stat(d.name).st_uid") == repr(("abc", anyone.owner.uid))
    anyone.run("d.cleanup()")


@pytest.mark.parametrize("change", [grown, shrunk, rewritten, replaced])
def test_a_large_file_that_changed_is_refused_by_name(kernel: LiveKernel, change: Callable[[Path], None]) -> None:
    path = kernel.home / "data"
    kernel.run(f"open('data', 'wb').write({CONTENT!r}); f = open('data', 'rb+')")
    snapshot = kernel.snapshot(limits=CaptureLimits(file_bytes=100))
    kernel.kill()
    change(path)
    newer = path.read_bytes()
    with pytest.raises(PreflightRefused, match=str(path)):
        kernel.restore(snapshot)
    assert path.read_bytes() == newer


def test_a_large_log_that_grew_is_no_obstacle(kernel: LiveKernel) -> None:
    kernel.run(f"f = open('log', 'ab', buffering=0); f.write({CONTENT!r})")
    snapshot = kernel.snapshot(limits=CaptureLimits(file_bytes=100))
    kernel.run("f.write(b'more')")
    die_and_come_back(kernel, snapshot, lambda: None)
    kernel.run("f.write(b'and more')")
    assert (kernel.home / "log").read_bytes() == CONTENT + b"moreand more"


def test_changed_permissions_are_no_obstacle(kernel: LiveKernel) -> None:
    path = kernel.home / "data"
    kernel.run("f = open('data', 'w+'); f.write('x'); f.flush()")
    snapshot = kernel.snapshot()
    die_and_come_back(kernel, snapshot, lambda: path.chmod(0o600))
    assert kernel.run("f.seek(0); f.read()") == "'x'"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_hostile_place_is_not_written_to(start_kernel: Callable[..., LiveKernel], tmp_path: Path) -> None:
    """The file's folder became a link to a folder of root's: nothing is written there, whatever the image says."""
    kernel = start_kernel(owner=NOBODY)
    kernel.run("import os; os.mkdir('folder'); f = open('folder/data', 'w+'); f.write('x'); f.flush()")
    snapshot = kernel.snapshot()
    kernel.kill()
    folder = kernel.home / "folder"
    folder.rename(kernel.home / "moved")
    folder.symlink_to(tmp_path)
    (tmp_path / "data").write_text("of root")
    with pytest.raises(PreflightRefused):
        kernel.restore(snapshot)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("data", "of root")]


def test_a_file_that_became_another_users_is_refused(start_kernel: Callable[..., LiveKernel]) -> None:
    kernel = start_kernel(owner=NOBODY)
    kernel.run("f = open('data', 'w+'); f.write('x'); f.flush()")
    snapshot = kernel.snapshot()
    kernel.kill()
    path = kernel.home / "data"
    path.write_text("changed")
    os.chown(path, 0, 0)
    with pytest.raises(PreflightRefused, match=str(path)):
        kernel.restore(snapshot)
    assert path.read_text() == "changed"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_with_an_open_transaction(anyone: LiveKernel, journal: str) -> None:
    """A5, A6: after the snapshot the transaction ends otherwise and more is written; the restored one ends its own way."""
    path = anyone.home / "data.db"
    anyone.run(
        "import sqlite3; db = sqlite3.connect('data.db', isolation_level=None)\n"
        f"db.execute('pragma journal_mode={journal}'); db.execute('pragma cache_size=-2'); db.execute('pragma cache_spill=1')\n"
        "db.execute('create table t (n integer, filler text)')\n"
        "db.executemany('insert into t values (?, ?)', [(n, 'x' * 100) for n in range(200)])\n"
        "db.execute('begin immediate'); db.execute('update t set n = n + 1000')\n"
        "memory = sqlite3.connect(':memory:'); memory.execute('create table m as select 42 as n')\n"
    )
    snapshot = anyone.snapshot()
    anyone.run("db.execute('rollback'); db.execute('delete from t where n < 150'); db.execute('vacuum')")
    for _ in range(2):
        anyone.kill()
        with closing(sqlite3.connect(path)) as other:
            other.execute("insert into t values (-1, 'from outside')")
            other.commit()
        os.chown(path, anyone.owner.uid, anyone.owner.gid)
        anyone.restore(snapshot)
        assert anyone.run("db.execute('select min(n), max(n), count(*) from t').fetchone()") == "(1000, 1199, 200)"
        anyone.run("db.execute('commit')")
        assert anyone.run("db.execute('pragma integrity_check').fetchone()") == "('ok',)"
        assert anyone.run("memory.execute('select n from m').fetchone()") == "(42,)"
    anyone.run("db.close()")
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("select min(n), max(n), count(*) from t").fetchone() == (1000, 1199, 200)
        assert other.execute("pragma integrity_check").fetchone() == ("ok",)


def test_a_journal_from_later_does_not_reach_the_old_database(kernel: LiveKernel) -> None:
    """At the snapshot there was no journal. Later a transaction was cut off by the kernel's death: its journal is hot."""
    path = kernel.home / "data.db"
    kernel.run(
        "import sqlite3; db = sqlite3.connect('data.db', isolation_level=None); db.execute('pragma cache_size=-2')\n"
        "db.execute('create table t (n integer, filler text)')\n"
        "db.executemany('insert into t values (?, ?)', [(n, 'x' * 100) for n in range(200)])"
    )
    snapshot = kernel.snapshot()
    kernel.run("db.execute('delete from t where n >= 100'); db.execute('vacuum')")
    kernel.run("db.execute('begin'); db.execute('update t set n = -n, filler = filler || filler')")
    assert path.with_name("data.db-journal").exists()
    warnings = die_and_come_back(kernel, snapshot, lambda: None)
    assert any(str(kept(path.with_name("data.db-journal"))[0]) in line for line in warnings)
    assert kernel.run("db.execute('select count(*), min(n) from t').fetchone()") == "(200, 0)"
    assert kernel.run("db.execute('pragma integrity_check').fetchone()") == "('ok',)"
    assert len(kept(path)) == len(kept(path.with_name("data.db-journal"))) == 1


def test_a_replaced_library_is_refused_and_left_alone(kernel: LiveKernel) -> None:
    """B8, with a copy of a real library."""
    path = kernel.home / "library.so"
    source = kernel.run("import ctypes, shutil; import numpy._core._multiarray_umath as m; m.__file__").strip("'")
    kernel.run(f"shutil.copy({source!r}, 'library.so'); lib = ctypes.CDLL('./library.so')")
    snapshot = kernel.snapshot()
    (entry,) = (one for one in snapshot.record.files if one.path == str(path))
    assert entry.executable
    assert not entry.captured
    kernel.kill()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    content[:4096] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(PreflightRefused, match=str(path)):
        kernel.restore(snapshot)
    assert path.read_bytes() == bytes(content)
    kernel.kill()
    path.unlink()
    with pytest.raises(PreflightRefused, match=str(path)):
        kernel.restore(snapshot)


def test_a_refusal_can_be_overruled(kernel: LiveKernel) -> None:
    """The preflight says that it can; then the kernel has the file as it is now."""
    path = kernel.home / "data"
    kernel.run(f"open('data', 'wb').write({CONTENT!r}); f = open('data', 'rb+', buffering=0); f.seek(1234)")
    snapshot = kernel.snapshot(limits=CaptureLimits(file_bytes=100))
    host = host_facts(snapshot.capture.criu_version)
    record = replace(snapshot.record, host=host)
    kernel.kill()
    assert preflight(snapshot.images, record, kernel.owner, host) == []
    path.write_bytes(b"x" * 2000)
    (finding,) = preflight(snapshot.images, record, kernel.owner, host)
    assert (finding.severity, finding.subject, finding.acceptable) == (Severity.BLOCKER, str(path), True)
    assert refusal([finding], accept_changed_files=True) is None
    kernel.sandbox = Sandbox.empty(kernel.folder / "accepting", owner=kernel.owner, die_with_agent=True)
    revive(kernel.target, snapshot.images, record, kernel.criu, clock=CLOCK, accept_changed_files=True)
    kernel.settle()
    assert kernel.run("print((f.tell(), len(f.read())))") == "(1234, 766)"
    assert path.read_bytes() == b"x" * 2000


def test_preflight_names_what_is_missing(kernel: LiveKernel) -> None:
    kernel.run("import os; os.mkdir('open'); folder = os.open('open', os.O_RDONLY); os.mkdir('work'); os.chdir('work')")
    kernel.run("f = open('../data', 'w'); f.write('x' * 1000); f.flush(); a = open('../log', 'a'); a.write('x'); a.flush()")
    snapshot = kernel.snapshot(limits=CaptureLimits(file_bytes=500))
    host = host_facts(snapshot.capture.criu_version)
    kernel.kill()
    for path in (kernel.home / "open", kernel.home / "work"):
        path.rmdir()
    for path in (kernel.home / "data", kernel.home / "log"):
        path.unlink()
    found = preflight(snapshot.images, replace(snapshot.record, host=host), kernel.owner, host)
    blocked = {finding.subject for finding in found if finding.severity is Severity.BLOCKER}
    assert blocked == {str(kernel.home / name) for name in ("open", "work", "data")}
    assert [finding.subject for finding in found if finding.severity is Severity.WARNING] == [str(kernel.home / "log")]


def test_a_full_disk_harms_nothing(kernel: LiveKernel, tmp_path: Path) -> None:
    """B2: the copies beside the image don't fit; the kernel goes on and the next snapshot is good."""
    kernel.run("import os; x = 1; f = open('data', 'wb'); f.write(os.urandom(90_000_000)); f.flush()")
    limits = CaptureLimits(file_bytes=1 << 30, disk_margin_bytes=0, memory_margin_bytes=0)
    images = tmp_path / "small"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "perdure-test", str(images)], check=True)
    try:
        with pytest.raises(NoRoom):
            capture(kernel.job(images / "images", limits=limits))
        assert not (images / "images").exists()
    finally:
        subprocess.run(["umount", str(images)], check=True)
    assert kernel.run("x") == "1"
    die_and_come_back(kernel, kernel.snapshot(), lambda: None)
    assert kernel.run("x, f.tell()") == "(1, 90000000)"
