"""What a process may do here: root, root with less, nobody."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from perdure.runtime.cgroup import Cgroup
from perdure.runtime.privilege import Privilege, can_protect, checks

REPORT = """
import json, os, sys, tempfile
from perdure.runtime import privilege, sandbox, launch
tempfile.gettempdir()
if sys.argv[1:]:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
found = privilege.checks()
print(json.dumps({"facts": [fact.to_json() for fact in found], "can": privilege.can_protect(found),
                  "preload": privilege.Privilege.own().needs_criu_preload}))
"""


def report(*prefix: str, nobody: bool = False) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-c", REPORT, *(["nobody"] if nobody else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["facts"] = {fact["name"]: fact for fact in answer["facts"]}
    return answer


@pytest.mark.root
def test_root_can_protect() -> None:
    found = checks()
    assert can_protect(found), [fact for fact in found if fact.needed and not fact.ok]
    assert [fact.name for fact in found if not fact.ok and not fact.fix] == []


@pytest.mark.root
@pytest.mark.parametrize("missing", ["sys_admin", "sys_ptrace", "setuid"])
def test_missing_capability_is_named(missing: str) -> None:
    answer = report("setpriv", "--bounding-set", f"-{missing}", "--")
    assert not answer["can"]
    assert not answer["facts"][f"cap_{missing}"]["ok"]
    assert answer["facts"][f"cap_{missing}"]["fix"]
    assert answer["facts"]["sandbox"]["ok"] == (missing != "sys_admin")


@pytest.mark.root
def test_capability_that_is_only_wanted() -> None:
    answer = report("setpriv", "--bounding-set", "-sys_resource", "--")
    assert answer["can"]
    assert answer["preload"]
    assert not answer["facts"]["cap_sys_resource"]["ok"]
    assert not answer["facts"]["cap_sys_resource"]["needed"]


@pytest.mark.root
def test_nobody_can_protect_nothing() -> None:
    answer = report(nobody=True)
    assert not answer["can"]
    assert not answer["facts"]["root"]["ok"]
    assert not answer["facts"]["sandbox"]["ok"]
    assert all(fact["fix"] for fact in answer["facts"].values() if not fact["ok"])


def test_figures_are_there() -> None:
    own = Privilege.own()
    assert own.pid_max >= 300
    assert own.kernel_release
    assert Cgroup.own() == own.cgroup
    assert own.cgroup.version in (0, 1, 2)
