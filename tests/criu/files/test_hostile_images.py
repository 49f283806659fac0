"""B10: an image that a real kernel left, edited by somebody with bad intentions. Nothing of it is run."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from live_kernel import LiveKernel, Snapshot
from perdure.domain.compat import Finding, Severity, blockers, refusal
from perdure.domain.errors import Corrupt, PreflightRefused
from perdure.domain.ids import Owner
from perdure.domain.record import HostFacts, Record
from perdure.domain.target import Target
from perdure.engine import credentials, imagefile, remaps, shm
from perdure.engine.hostfacts import host_facts
from perdure.engine.preflight import preflight
from perdure.engine.protobuf import Message
from perdure.runtime.sandbox import Sandbox

pytestmark = [pytest.mark.criu, pytest.mark.root]

NOBODY = Owner(65534, 65534)
REG, UNIX, INET, GHOST_REMAP = 3, 16, 4, 1


@dataclass
class Victim:
    """A private copy of the image, its record, and the host that it came from."""

    images: Path
    record: Record
    host: HostFacts

    def findings(self) -> list[Finding]:
        return blockers(preflight(self.images, self.record, self.record.owner, self.host))

    def edit(self, name: str, change: Callable[[list[Message]], None]) -> None:
        header, entries = imagefile.read_entries(self.images / name)
        change(entries)
        imagefile.write_entries(self.images / name, header, entries)

    def edit_file(self, path: str, change: Callable[[Message], object]) -> None:
        """Edits the table's entry of a regular file."""

        def edit(entries: list[Message]) -> None:
            for entry in entries:
                regular = entry.message(REG)
                if regular is not None and regular.text(6) == path:
                    change(regular)
                    entry.set(REG, regular)
                    return
            raise LookupError(path)

        self.edit("files.img", edit)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Snapshot, HostFacts, str]]:
    folder = Path("/tmp") / f"perdure-hostile-{os.getpid()}"
    (folder / "0").mkdir(parents=True)
    kernel = LiveKernel(folder / "0", owner=NOBODY)
    try:
        kernel.run(
            "import os, socket, subprocess, tempfile, threading\n"
            "data = open('data', 'w+'); data.write('x'); data.flush(); gone = open('gone', 'w'); os.unlink('gone')\n"
            "unlinked = tempfile.TemporaryFile(); unlinked.write(b'x'); unlinked.flush()\n"
            "listener = socket.socket(socket.AF_UNIX); listener.bind('socket'); listener.listen()\n"
            "child = subprocess.Popen(['sleep', '1000']); open('/dev/shm/named', 'w').write('x')\n"
            "maps, memory, terminal = open('/proc/self/maps'), open('/proc/self/mem', 'rb+'), os.openpty()\n"
            "os.mkfifo('fifo'); fifo = os.open('fifo', os.O_RDWR); here = os.open('.', os.O_RDONLY)"
        )
        snapshot = kernel.snapshot()
        kernel.kill()
        yield snapshot, host_facts(snapshot.capture.criu_version), str(kernel.home)
    finally:
        kernel.close()
        shutil.rmtree(folder)


@pytest.fixture
def victim(original: tuple[Snapshot, HostFacts, str], tmp_path: Path) -> Victim:
    snapshot, host, _ = original
    images = tmp_path / "images"
    shutil.copytree(snapshot.images, images, symlinks=True)
    return Victim(images, replace(snapshot.record, host=host), host)


@pytest.fixture
def home(original: tuple[Snapshot, HostFacts, str]) -> str:
    return original[2]


def test_the_image_as_it_is_has_nothing_in_its_way(victim: Victim) -> None:
    assert victim.findings() == []
    credentials.check(victim.images, NOBODY)


def thread_of(victim: Victim, which: int) -> str:
    return sorted(path.name for path in victim.images.glob("core-*.img"))[which]


def change_creds(victim: Victim, name: str, change: Callable[[Message], object]) -> None:
    def edit(entries: list[Message]) -> None:
        core = entries[0].message(5)
        assert core is not None
        creds = core.message(10)
        assert creds is not None
        change(creds)
        entries[0].set(5, core.set(10, creds))

    victim.edit(name, edit)


@pytest.mark.parametrize("thread", [0, 1, -1], ids=["leader", "thread", "child"])
@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(lambda creds, number=number: creds.set(number, 0), id=f"id {number}") for number in range(1, 9)),
        *(
            pytest.param(lambda creds, number=number: creds.add(number, 1 << 21), id=f"caps {number}")
            for number in (9, 10, 11, 19)
        ),
        pytest.param(lambda creds: creds.add(14, 0), id="group"),
        pytest.param(lambda creds: creds.add(14, 65534).add(14, 27), id="second group"),
        pytest.param(lambda creds: creds.add(1, 0), id="uid twice"),
        pytest.param(lambda creds: creds.remove(1), id="no uid"),
        pytest.param(lambda creds: creds.set(1, 1 << 32), id="uid beyond 32 bits"),
    ],
)
def test_other_credentials_are_refused(victim: Victim, thread: int, change: Callable[[Message], object]) -> None:
    change_creds(victim, thread_of(victim, thread), change)
    with pytest.raises(PreflightRefused):
        credentials.check(victim.images, NOBODY)
    assert victim.findings()


def test_no_credentials_at_all_would_be_roots(victim: Victim) -> None:
    def edit(entries: list[Message]) -> None:
        core = entries[0].message(5)
        assert core is not None
        entries[0].set(5, core.remove(10))

    victim.edit(thread_of(victim, 1), edit)
    with pytest.raises(PreflightRefused):
        credentials.check(victim.images, NOBODY)


def test_hidden_second_credentials_are_seen(victim: Victim) -> None:
    """CRIU's protobuf merges repeated messages: the first one's groups would be added to the last one's."""

    def edit(entries: list[Message]) -> None:
        core = entries[0].message(5)
        assert core is not None
        creds = core.message(10)
        assert creds is not None
        core.fields.insert(0, (10, 2, Message().add(14, 0).encode()))
        entries[0].set(5, core)

    victim.edit(thread_of(victim, 0), edit)
    with pytest.raises(Corrupt):
        credentials.check(victim.images, NOBODY)


def test_roots_image_is_not_anybody_elses(victim: Victim) -> None:
    (finding,) = preflight(victim.images, victim.record, Owner(1234, 1234), victim.host)
    assert finding.severity is Severity.BLOCKER
    credentials.check(victim.images, Owner(0, 0))


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("/etc/shadow", os.O_RDONLY),
        ("/etc/passwd", os.O_RDWR),
        ("/root", os.O_RDONLY),
        ("/proc/1/mem", os.O_RDWR),
        ("/proc/self/mem", os.O_RDWR),
        ("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        ("/home/../etc/shadow", os.O_RDONLY),
        ("/dev/kmsg", os.O_WRONLY),
        ("/etc/new", os.O_RDWR | os.O_CREAT),
    ],
)
def test_a_file_that_the_owner_may_not_have_open(victim: Victim, home: str, path: str, flags: int) -> None:
    victim.edit_file(f"{home}/data", lambda entry: entry.set(6, path).set(2, flags).remove(8).remove(10))
    assert any(finding.subject == path for finding in victim.findings())


def test_a_file_emptied_by_the_restore(victim: Victim, home: str) -> None:
    victim.edit_file(f"{home}/data", lambda entry: entry.set(2, os.O_RDWR | os.O_TRUNC))
    assert [finding.subject for finding in victim.findings()] == [f"{home}/data"]


def test_a_deleted_file_made_again_elsewhere(victim: Victim, home: str) -> None:
    victim.edit_file(f"{home}/gone", lambda entry: entry.set(6, "/etc/cron.d/evil"))
    assert [finding.subject for finding in victim.findings()] == ["/etc/cron.d/evil"]


def test_a_deleted_file_of_root(victim: Victim) -> None:
    """In the owner's own folder for a moment: a program with root's setuid bit that anybody could link to."""
    path = min(victim.images.glob("ghost-file-*.img"))
    data = path.read_bytes()
    length = int.from_bytes(data[8:12], "little")
    head = Message.parse(data[12 : 12 + length]).set(1, 0).set(3, 0o104755).encode()
    path.write_bytes(data[:8] + len(head).to_bytes(4, "little") + head + data[12 + length :])
    assert [finding.subject for finding in victim.findings()] == [path.name]


@pytest.mark.parametrize("name", ["/etc/passwd", "/run/perdure-test.sock"])
def test_a_socket_in_another_place(victim: Victim, name: str) -> None:
    def edit(entries: list[Message]) -> None:
        for entry in entries:
            unix = entry.message(UNIX)
            if unix is not None and unix.blob(11).startswith(b"socket"):
                entry.set(UNIX, unix.set(11, name.encode() + b"\0").remove(14))

    victim.edit("files.img", edit)
    assert any(finding.subject == name for finding in victim.findings())


def test_objects_that_only_root_makes(victim: Victim) -> None:
    def edit(entries: list[Message]) -> None:
        raw = next(message for entry in entries if (message := entry.message(INET)) is not None)
        entries += [Message().set(1, 4).set(2, 9001).set(INET, raw.set(4, 3)), Message().set(1, 10).set(2, 9002)]

    victim.edit("files.img", edit)
    assert len(victim.findings()) == 2


def test_a_changed_root_folder(victim: Victim, home: str) -> None:
    fs = min(victim.images.glob("fs-*.img")).name
    victim.edit(fs, lambda entries: entries.__setitem__(0, entries[0].set(2, entries[0].number(1))))
    assert [finding.subject for finding in victim.findings()] == [home]


def test_namespaces(victim: Victim) -> None:
    (victim.images / "mountpoints-13.img").write_bytes(b"")
    assert [finding.subject for finding in victim.findings()] == ["mountpoints-13.img"]


@pytest.mark.parametrize("name", ["files.img", "pstree.img", "core-1000.img", "mm-1000.img", "fs-1000.img", "remap-fpath.img"])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_truncated_image_is_damaged_and_nothing_worse(victim: Victim, name: str, part: float) -> None:
    data = (victim.images / name).read_bytes()
    (victim.images / name).write_bytes(data[: int(len(data) * part)])
    assert victim.findings()


def test_missing_images(victim: Victim) -> None:
    for name in ("core-1001.img", "pstree.img", "files.img"):
        (victim.images / name).unlink()
        assert victim.findings(), name


def test_more_memory_than_there_is(victim: Victim) -> None:
    with (victim.images / "pages-9.img").open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert [finding.subject for finding in victim.findings()] == ["memory"]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../etc/evil"},
        {"name": "/etc/evil"},
        {"name": "folder/../../evil"},
        {"name": ""},
        {"name": "a\0b"},
        {"data": "../files.img"},
        {"data": 99},
        {"kind": "device"},
        {"kind": "link", "to": "../../etc/shadow"},
        {"uid": 0},
        {"gid": 0},
        {"mode": "rw"},
        {"name": "no/such/folder"},
        {"name": 5},
        {"kind": "link", "to": "nowhere"},
    ],
    ids=str,
)
def test_names_in_shared_memory(victim: Victim, change: dict[str, object]) -> None:
    path = victim.images / "shm" / "index.json"
    index = json.loads(path.read_text())
    index[0].update(change)
    path.write_text(json.dumps(index))
    assert victim.findings()


def test_a_link_in_shared_memory_leads_nowhere(victim: Victim, tmp_path: Path) -> None:
    """A symbolic link as a folder: root would write whatever the image says wherever it says."""
    outside = tmp_path / "outside"
    outside.mkdir()
    path = victim.images / "shm" / "index.json"
    (file,) = json.loads(path.read_text())
    link = {**file, "kind": "symlink", "name": "way", "to": str(outside)}
    path.write_text(json.dumps([link, {**file, "name": "way/evil"}]))
    assert victim.findings()
    sandbox = Sandbox.empty(tmp_path / "sandbox", owner=NOBODY)
    try:
        fd, key = sandbox.stdio_pipe()
        with pytest.raises(Corrupt):
            shm.put_back(Target(sandbox.shim.pid, 0, fd, key), victim.images, NOBODY)
    finally:
        sandbox.kill()
    assert not list(outside.iterdir())


def test_a_name_for_a_nameless_file_is_made_where_its_owner_can(victim: Victim, tmp_path: Path) -> None:
    """Between the checks and the restore the owner has put a symbolic link in the folder's place."""
    outside, images = tmp_path / "outside", tmp_path / "forged"
    outside.mkdir()
    images.mkdir()
    (images / "links").mkdir()
    place = Path(victim.record.cwd) / "way"
    place.symlink_to(outside)
    header, entries = imagefile.read_entries(victim.images / "files.img")
    (entry,) = (one for one in entries if (found := one.message(REG)) and found.text(6).endswith("/data"))
    regular = entry.message(REG)
    assert regular is not None
    entry.set(REG, regular.set(6, f"{place}/link_remap.1"))
    imagefile.write_entries(images / "files.img", header, [entry])
    (images / "links" / str(regular.number(1))).write_bytes(b"evil")
    header, _ = imagefile.read_entries(victim.images / "remap-fpath.img")
    imagefile.write_entries(images / "remap-fpath.img", header, [Message().set(1, 99).set(2, regular.number(1)).set(3, 0)])
    sandbox = Sandbox.empty(tmp_path / "sandbox", owner=NOBODY)
    try:
        fd, key = sandbox.stdio_pipe()
        with pytest.raises(PreflightRefused):
            remaps.put_back(Target(sandbox.shim.pid, 0, fd, key), images, NOBODY)
    finally:
        sandbox.kill()
        place.unlink()
    assert not list(outside.iterdir())


def test_refusals_become_one_error_that_names_all(victim: Victim, home: str) -> None:
    victim.edit_file(f"{home}/data", lambda entry: entry.set(6, "/etc/shadow").remove(8).remove(10))
    (victim.images / "userns-1.img").write_bytes(b"")
    error = refusal(preflight(victim.images, victim.record, NOBODY, victim.host))
    assert isinstance(error, PreflightRefused)
    assert "/etc/shadow" in error.detail
    assert "userns-1.img" in error.detail


@pytest.mark.parametrize(
    "change",
    [
        {"captured": "../../../etc/shadow"},
        {"captured": "files/../../x"},
        {"captured": "/etc/shadow"},
        {"digest": "0" * 64},
        {"path": "/etc/cron.d/evil"},
        {"path": "/tmp/../etc/cron.d/evil"},
        {"path": "relative"},
    ],
    ids=str,
)
def test_captured_files_of_a_forged_record(
    original: tuple[Snapshot, HostFacts, str], start_kernel: Callable[..., LiveKernel], change: dict[str, str]
) -> None:
    """The record says: put this copy there. The copy's name, its content and the place are all forged in turn."""
    snapshot, _, home = original
    (then,) = (one for one in snapshot.record.files if one.path == f"{home}/data")
    Path(home, "data").unlink(missing_ok=True)
    forged = replace(then, **change)
    record = replace(snapshot.record, files=(*(one for one in snapshot.record.files if one is not then), forged))
    before = sorted(os.listdir("/etc/cron.d")) if Path("/etc/cron.d").is_dir() else None
    kernel = start_kernel(owner=NOBODY)
    kernel.kill()
    with pytest.raises((PreflightRefused, Corrupt)):
        kernel.restore(replace(snapshot, record=record))
    assert (sorted(os.listdir("/etc/cron.d")) if before is not None else None) == before
    assert not Path(home, "data").exists()
