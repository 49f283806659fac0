"""Python, privilege, Linux, our native programs."""

from __future__ import annotations

import os
import platform
import sys

from perdure.domain.errors import AgentUnreachable, NotProtected, PerdureError

from .check import Check

_SERVICE = "sudo systemctl enable --now perdure (a container: run the Jupyter server as root, --privileged)"
_OF_ANYBODY = frozenset({"kernel", "checkpoint-restore", "user-namespace", "ptrace-scope"})
"""What can be said of a host without being root there."""


def python() -> Check:
    found = f"{platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"
    ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    fix = "" if ok else "Install Perdure on Linux, in an environment with Python 3.11 or newer."
    return Check("python", ok, found, "Perdure itself needs Python 3.11 on Linux; kernels may use another one.", fix)


def privilege(uid: int, agent: str, trouble: PerdureError | None) -> Check:
    """`agent`: its address when it answered, else what stood in the way."""
    means = "Only root can checkpoint processes: the agent does it for you, or a Jupyter server that is root starts one."
    if trouble is None:
        return Check("root-or-agent", True, f"an agent at {agent}", means)
    if uid == 0:
        return Check("root-or-agent", True, "uid 0, no agent yet: the first kernel starts one", means)
    fix = _SERVICE if isinstance(trouble, AgentUnreachable) else trouble.hint or _SERVICE
    return Check("root-or-agent", False, f"uid {uid}. {trouble.sentence}", means, fix)


def own_facts(uid: int) -> list[Check]:
    """Linux, and where it makes sense what this process may do in it."""
    from perdure.runtime.privilege import Privilege, checks

    if uid == 0:
        return [Check.from_json(fact.to_json()) for fact in checks()]
    return [Check.from_json(fact.to_json()) for fact in Privilege.own().facts() if fact.name in _OF_ANYBODY]


def native_programs() -> Check:
    from perdure.runtime.programs import CRIU_PRELOAD, SHIM, program

    means = "Kernels live in a sandbox that perdure-shim makes."
    try:
        paths = [program(SHIM), program(CRIU_PRELOAD)]
    except NotProtected as error:
        return Check("native-programs", False, error.sentence, means, error.hint)
    stuck = [path.name for path in paths[:1] if not os.access(path, os.X_OK)]
    if stuck:
        return Check("native-programs", False, f"{paths[0]} can't be run", means, f"chmod +x {paths[0]}")
    return Check("native-programs", True, f"{', '.join(path.name for path in paths)} in {paths[0].parent}", means)
