"""The shim as it is shipped, and the same program under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import perdure
import pytest
from shim_driver import Shim

NATIVE = Path(__file__).parents[2] / "native"


@pytest.fixture(scope="session")
def sanitized() -> Path:
    made = subprocess.run(["make", "-s", "-C", str(NATIVE), "sanitize"], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return NATIVE / "build" / "sanitize" / "perdure-shim"


@pytest.fixture(params=["shipped", "sanitized"])
def program(request: pytest.FixtureRequest) -> Path:
    if request.param == "sanitized":
        path: Path = request.getfixturevalue("sanitized")
        return path
    return Path(os.environ.get("PERDURE_BIN") or Path(perdure.__file__).parent / "bin") / "perdure-shim"


def _mounts() -> list[str]:
    """Mounts of the host at the places where a sandbox has its own."""
    places = ("/proc", "/dev/shm", "/dev/pts", "/dev/ptmx")
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] in places]


@pytest.fixture
def shim(program: Path, tmp_path: Path) -> Iterator[Shim]:
    """A sandbox to start; whatever a test leaves of it fails that test, and so does any report of a sanitizer."""
    reports = tmp_path / "reports"
    reports.mkdir()
    options = f"log_path={reports}/report:abort_on_error=1:detect_leaks=0:print_stacktrace=1"
    env = {"PATH": os.environ["PATH"], "ASAN_OPTIONS": options, "UBSAN_OPTIONS": options}
    mounts = _mounts()
    driver = Shim(program, tmp_path, env)
    yield driver
    assert driver.clean() == []
    assert _mounts() == mounts
    assert [path.read_text() for path in reports.iterdir()] == []
