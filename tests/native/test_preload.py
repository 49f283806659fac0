"""perdure-criu-preload.so: another user's limits without CAP_SYS_RESOURCE, and nothing else changed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import perdure
import pytest
from shim_driver import NOBODY

pytestmark = pytest.mark.root

LIBRARY = Path(os.environ.get("PERDURE_BIN") or Path(perdure.__file__).parent / "bin") / "perdure-criu-preload.so"
WITHOUT = ["setpriv", "--bounding-set", "-sys_resource", "--"]
"""Docker's default: root without CAP_SYS_RESOURCE."""

ASK = """
import json, resource, sys
pid = int(sys.argv[1])
answer = {}
for name in dir(resource):
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE":
        try:
            answer[name] = resource.prlimit(pid, getattr(resource, name))
        except PermissionError:
            answer[name] = "refused"
print(json.dumps(answer))
"""

BY_NUMBER = """
import ctypes, json, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
out = (ctypes.c_ulong * 2)()
result = libc.syscall({"x86_64": 302, "aarch64": 261}[os.uname().machine], int(sys.argv[1]), resource.RLIMIT_NOFILE, None, out)
print(json.dumps([result, list(out)]))
"""

SET = """
import resource, sys
try:
    resource.prlimit(int(sys.argv[1]), resource.RLIMIT_NOFILE, (10, 10))
except PermissionError:
    print("refused")
"""


@pytest.fixture
def other() -> Iterator[int]:
    """A process of another user with limits that nobody else has."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv(1)")

    def become() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (123, 456))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 41))

    process = subprocess.Popen(["/bin/sleep", "1000"], user=NOBODY, group=NOBODY, extra_groups=[], preexec_fn=become)
    yield process.pid
    process.kill()
    process.wait()


def ask(code: str, pid: int, *, preload: bool) -> str:
    env = {**os.environ, **({"LD_PRELOAD": str(LIBRARY)} if preload else {})}
    done = subprocess.run([*WITHOUT, sys.executable, "-c", code, str(pid)], env=env, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_every_limit_is_read(other: int) -> None:
    assert set(json.loads(ask(ASK, other, preload=False)).values()) == {"refused"}  # else this test shows nothing
    answer = json.loads(ask(ASK, other, preload=True))
    assert answer["RLIMIT_NOFILE"] == [123, 456]
    assert answer["RLIMIT_CORE"] == [0, resource.RLIM_INFINITY]
    assert answer["RLIMIT_FSIZE"] == [1 << 40, 1 << 41]
    own = {name: list(resource.getrlimit(getattr(resource, name))) for name in answer}
    changed = {"RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_FSIZE"}
    assert {name: value for name, value in answer.items() if name not in changed} == {
        name: value for name, value in own.items() if name not in changed
    }


def test_limit_is_read_by_number_as_criu_does(other: int) -> None:
    assert json.loads(ask(BY_NUMBER, other, preload=False))[0] == -1
    assert json.loads(ask(BY_NUMBER, other, preload=True)) == [0, [123, 456]]


def test_setting_stays_refused(other: int) -> None:
    assert ask(SET, other, preload=True) == "refused\n"
    assert json.loads(ask(BY_NUMBER, other, preload=True)) == [0, [123, 456]]


def test_own_limits_and_missing_processes_are_as_ever(other: int) -> None:
    code = "import resource\nprint(resource.prlimit(0, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE))"
    assert ask(code, other, preload=True) == "True\n"
    gone = "import os, resource\ntry: resource.prlimit(2**22, resource.RLIMIT_NOFILE)\nexcept ProcessLookupError: print('gone')"
    assert ask(gone, other, preload=True) == "gone\n"
