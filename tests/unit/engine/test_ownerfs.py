"""With a user's rights for files, and never out of a root."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from perdure.domain.ids import Owner
from perdure.engine.ownerfs import Root, as_owner, may, owner_of

NOBODY = Owner(65534, 65534, (65533,))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    (tmp_path / "inside" / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "inside" / "file").write_text("content")
    with Root(tmp_path / "inside") as opened:
        yield opened


def read(root: Root, path: str, *, symlinks: bool = True) -> str:
    with os.fdopen(root.open(path, os.O_RDONLY, symlinks=symlinks)) as file:
        return file.read()


def test_a_root_is_where_paths_begin(root: Root) -> None:
    assert read(root, "/file") == read(root, "file") == read(root, "/folder/../file") == read(root, "/../../file") == "content"


@pytest.mark.parametrize(
    "target", ["../outside", "/outside", "../../../../etc/passwd", "/etc/passwd", "/proc/self/root/etc/passwd"]
)
def test_nothing_leads_out_of_it(root: Root, tmp_path: Path, target: str) -> None:
    (tmp_path / "inside" / "link").symlink_to(target)
    (tmp_path / "inside" / "folder" / "up").symlink_to("../..")
    for path in ("/link", f"/{target}", "/folder/up/outside"):
        with pytest.raises(OSError):
            read(root, path)


def test_links_inside_are_followed_when_asked(root: Root, tmp_path: Path) -> None:
    (tmp_path / "inside" / "link").symlink_to("/file")
    assert read(root, "/link") == "content"
    with pytest.raises(OSError):
        read(root, "/link", symlinks=False)


@pytest.mark.root
def test_rights_are_the_owners_and_end_with_the_thread(root: Root, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    (inside / "file").chmod(0o600)
    os.chown(inside / "folder", NOBODY.uid, NOBODY.gid)
    groups = os.getgroups()

    def work() -> tuple[bool, bool, int]:
        with pytest.raises(PermissionError):
            read(root, "/file")
        fd = root.open("/folder/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            mine, other = may(fd, os.W_OK), root.open("/file", os.O_PATH)
            try:
                return mine, may(other, os.R_OK), os.fstat(fd).st_uid
            finally:
                os.close(other)
        finally:
            os.close(fd)

    assert as_owner(NOBODY, work) == (True, False, NOBODY.uid)
    assert read(root, "/file") == "content"
    assert os.getgroups() == groups
    assert as_owner(Owner(0, 0), lambda: read(root, "/file")) == "content"


@pytest.mark.root
def test_groups_count_and_only_in_that_thread(root: Root, tmp_path: Path) -> None:
    file = tmp_path / "inside" / "file"
    file.chmod(0o040)
    os.chown(file, 0, NOBODY.groups[0])
    seen: list[str] = []
    begun, done = threading.Event(), threading.Event()

    def watch() -> None:
        begun.wait()
        seen.append(Path("/proc/thread-self/status").read_text())
        done.set()

    watcher = threading.Thread(target=watch)
    watcher.start()

    def work() -> tuple[str, str]:
        begun.set()
        done.wait()
        return read(root, "/file"), Path("/proc/thread-self/status").read_text()

    content, status = as_owner(NOBODY, work)
    watcher.join()
    assert content == "content"
    uid = next(line.split() for line in status.splitlines() if line.startswith("Uid:"))
    assert (uid[1], uid[4]) == (str(os.getuid()), str(NOBODY.uid))
    assert f"Uid:\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}\t{os.getuid()}" in seen[0]
    without = Owner(NOBODY.uid, NOBODY.gid)
    with pytest.raises(PermissionError):
        as_owner(without, lambda: read(root, "/file"))


def test_what_the_work_raises_comes_out() -> None:
    def work() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        as_owner(Owner(os.geteuid(), os.getegid(), tuple(os.getgroups())), work)


def test_whose_a_process_is() -> None:
    owner = owner_of(os.getpid())
    assert (owner.uid, owner.gid, set(owner.groups)) == (os.geteuid(), os.getegid(), set(os.getgroups()))
    with pytest.raises(ProcessLookupError):
        owner_of(2**22 + 1)
