"""The kernel's output on disk: rotation, and a disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from shim_driver import Shim, python, until

pytestmark = pytest.mark.root


def test_log_is_rotated_once_at_the_limit(shim: Shim) -> None:
    count = 3000
    shim.start("seq", "10001", str(10000 + count), options=["--log-limit", "10000"])
    assert shim.wait() == 0
    older = shim.log_file.with_name("kernel.log.1")
    assert older.stat().st_size <= 10000
    assert shim.log_file.stat().st_size <= 10000
    kept = (older.read_text() + shim.log()).split()[1:]  # the first line may be cut
    assert kept == [str(10001 + n) for n in range(count - len(kept), count)]
    assert len(kept) > 1500
    assert sorted(path.name for path in shim.folder.iterdir() if path.is_file()) == ["kernel.log", "kernel.log.1", "status"]


def test_log_goes_on_where_an_older_sandbox_stopped(shim: Shim) -> None:
    shim.log_file.write_text("x" * 9000)
    shim.start("sh", "-c", "head -c 5000 /dev/zero | tr '\\0' y", options=["--log-limit", "10000"])
    assert shim.wait() == 0
    assert shim.log() == "y" * 5000
    assert shim.log_file.with_name("kernel.log.1").read_text() == "x" * 9000


def test_log_may_lie_where_the_sandbox_has_mounts_of_its_own(shim: Shim) -> None:
    log = Path(f"/dev/shm/perdure-test-{os.getpid()}.log")
    try:
        shim.start("sh", "-c", "seq 2000; ls -A /dev/shm", log=log, options=["--log-limit", "5000"])
        assert shim.wait() == 0
        assert log.read_text().split()[-1] == "2000"
        assert log.with_name(log.name + ".1").exists()
    finally:
        log.unlink(missing_ok=True)
        log.with_name(log.name + ".1").unlink(missing_ok=True)


def test_log_is_for_root_only(shim: Shim) -> None:
    shim.start("true", options=["--uid", "65534", "--gid", "65534"])
    shim.wait()
    assert shim.log_file.stat().st_mode & 0o777 == 0o600
    assert shim.log_file.stat().st_uid == 0


def test_flood_does_not_keep_signals_from_the_kernel(shim: Shim) -> None:
    shim.start("yes")
    until(lambda: shim.log_file.stat().st_size > 1 << 20, "flood")
    os.kill(shim.pid, 15)
    assert shim.wait() == 128 + 15


FLOOD = """
import os, sys, time
for n in range(40):
    os.write(1, b"x" * 9999 + b"\\n")
open("/dev/shm/flooded", "w").close()
while not os.path.exists("/dev/shm/room"):
    time.sleep(0.01)
print("there is room again", flush=True)
time.sleep(1000)
"""


def test_full_disk_costs_output_but_never_the_kernels_time(shim: Shim, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    # The disk is a small tmpfs in a mount namespace that only this sandbox sees.
    small = f'mount -t tmpfs -o size=128k small {disk} && head -c 40000 /dev/zero > {disk}/filler && exec "$@"'
    shim.start(*python(FLOOD), prefix=["unshare", "-m", "sh", "-c", small, "sh"], log=disk / "kernel.log")
    root = Path(f"/proc/{shim.pid}/root")
    inside = root / disk.relative_to("/")
    until(lambda: (root / "dev/shm/flooded").exists(), "end of the flood: the kernel was never held")
    log = inside / "kernel.log"
    full = log.read_text()
    assert 0 < full.count("x") < 399_960
    (inside / "filler").unlink()
    (root / "dev/shm/room").touch()
    until(lambda: "there is room again\n" in log.read_text(), "output after the disk had room")
    text = log.read_text()
    assert text.count("[perdure:") == 1
    dropped = int(text.split("[perdure: ")[1].split()[0])
    assert dropped + full.count("x") + full.count("\n") == 400_000
    assert not shim.ended()


def test_how_a_kernel_ended_is_kept_on_a_full_disk(shim: Shim, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    small = f'mount -t tmpfs -o size=64k small {disk}; "$@"; code=$?; cp {disk}/status {shim.status_file}; exit $code'
    fill = f"cat /dev/zero > {disk}/filler; exit 3"
    shim.start("sh", "-c", fill, prefix=["unshare", "-m", "sh", "-c", small, "sh"], options=["--status", str(disk / "status")])
    assert shim.wait() == 3
    assert shim.lines()[-1] == "exit 3"
