"""What this process may do on this host, and what each thing that is missing costs. `perdure doctor` shows these facts.

A capability that is there may still be worth nothing (a container's seccomp profile, a security module), so the last fact is
a trial: a sandbox is made and ended.
"""

from __future__ import annotations

import os
import platform
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.domain.errors import PerdureError

from .cgroup import Cgroup
from .sandbox import Sandbox

_NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_DAC_READ_SEARCH": 2,
    "CAP_FOWNER": 3,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_ADMIN": 12,
    "CAP_SYS_CHROOT": 18,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_NICE": 23,
    "CAP_SYS_RESOURCE": 24,
    "CAP_CHECKPOINT_RESTORE": 40,
}

_NEEDED = {
    "CAP_SYS_ADMIN": "no sandbox can be made (namespaces, mounts) and CRIU can't work",
    "CAP_SYS_PTRACE": "a kernel can't be stopped and read",
    "CAP_SETUID": "kernels can't be given to their owners",
    "CAP_SETGID": "kernels can't be given to their owners",
    "CAP_KILL": "other users' kernels can't be ended or interrupted",
    "CAP_DAC_OVERRIDE": "files of other users' kernels can't be read or put back",
}

_WANTED = {
    "CAP_NET_ADMIN": "open TCP connections inside a kernel are closed by a restore",
    "CAP_SYS_RESOURCE": (
        "other users' limits are read from /proc instead (perdure-criu-preload.so), "
        "and a snapshot can't be restored where the limits are lower"
    ),
    "CAP_CHOWN": "captured files of other users can't be given back to them",
    "CAP_FOWNER": "modes and times of captured files of other users can't be put back",
    "CAP_SYS_NICE": "raised priorities are lost in a restore",
    "CAP_SYS_CHROOT": "CRIU can't look into a kernel's mounts",
}

_GRANT = (
    "Container: docker run --privileged, or --cap-add={short} with --security-opt seccomp=unconfined. "
    "Service: see perdure.service."
)


@dataclass(frozen=True)
class Fact:
    """One thing looked at. `needed`: without it nothing can be protected here; else it only costs what `means` says."""

    name: str
    ok: bool
    found: str
    means: str
    fix: str = ""
    needed: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ok": self.ok,
            "found": self.found,
            "means": self.means,
            "fix": self.fix,
            "needed": self.needed,
        }


@dataclass(frozen=True)
class Privilege:
    """What this process is and has. `capabilities` are the effective ones, of those that matter to us."""

    uid: int
    capabilities: frozenset[str]
    kernel_release: str
    pid_max: int
    cgroup: Cgroup

    @classmethod
    def own(cls) -> Privilege:
        effective = _effective()
        return cls(
            uid=os.geteuid(),
            capabilities=frozenset(name for name, number in _NUMBERS.items() if effective >> number & 1),
            kernel_release=platform.release(),
            pid_max=int(Path("/proc/sys/kernel/pid_max").read_text()),
            cgroup=Cgroup.own(),
        )

    @property
    def needs_criu_preload(self) -> bool:
        """CRIU has to run with perdure-criu-preload.so here."""
        return "CAP_SYS_RESOURCE" not in self.capabilities

    def facts(self) -> tuple[Fact, ...]:
        """Everything but the trial; starts nothing."""
        return (self._root(), *self._capabilities(), *_kernel(), *self._surroundings())

    def _root(self) -> Fact:
        return Fact(
            "root",
            self.uid == 0,
            f"uid {self.uid}",
            "Only root can checkpoint other processes and make sandboxes.",
            ""
            if self.uid == 0
            else "Run the agent as a service (perdure.service), or the Jupyter server as root in a container.",
        )

    def _capabilities(self) -> list[Fact]:
        facts = []
        for name, cost in (*_NEEDED.items(), *_WANTED.items()):
            have = name in self.capabilities
            fix = "" if have else _GRANT.format(short=name.removeprefix("CAP_"))
            found = "there" if have else "missing"
            facts.append(Fact(name.lower(), have, found, f"Without it {cost}.", fix, needed=name in _NEEDED))
        return facts

    def _surroundings(self) -> list[Fact]:
        limit = self.cgroup.memory_limit
        room = "no memory limit" if limit is None else f"memory limit {limit / (1 << 30):.1f} GiB"
        where = f"version {self.cgroup.version}, {self.cgroup.folder}, {room}" if self.cgroup.version else "none"
        return [
            Fact("kernel", True, self.kernel_release, "The Linux kernel of this host."),
            Fact("pid-max", True, str(self.pid_max), "Pids of this host; a sandbox has its own.", needed=False),
            Fact("cgroup", True, where, "A snapshot must fit into what is left of the memory limit.", needed=False),
        ]


def _effective() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _kernel() -> list[Fact]:
    """What Linux was built and set up with: asked for by feature, not by version."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid").exists()
    children = Path("/proc/self/task/self/children").exists() or Path(f"/proc/self/task/{os.getpid()}/children").exists()
    uid_map = Path("/proc/self/uid_map").read_text().split()
    real_root = uid_map == ["0", "0", "4294967295"]
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except OSError:
        scope = 0
    rebuild = "A kernel with CONFIG_CHECKPOINT_RESTORE and CONFIG_PROC_CHILDREN; all big distributions have them."
    return [
        Fact(
            "checkpoint-restore",
            last_pid and children,
            "there" if last_pid and children else "missing",
            "Linux itself must have been built with checkpoint and restore.",
            "" if last_pid and children else rebuild,
        ),
        Fact(
            "user-namespace",
            real_root,
            "the host's" if real_root else f"mapped: {' '.join(uid_map)}",
            "Root of a user namespace (a rootless container) has no say over the host's kernel settings.",
            "" if real_root else "Run the agent outside of the rootless container.",
        ),
        Fact(
            "ptrace-scope",
            scope < 3,
            str(scope),
            "With 3 nobody, not even root, may stop and read a process.",
            "" if scope < 3 else "sysctl kernel.yama.ptrace_scope=1 and a reboot: 3 can't be lowered on a running system",
        ),
    ]


def trial() -> Fact:
    """Makes a sandbox and ends it (some milliseconds). Never raises."""
    means = "Kernels live in a sandbox: their own pids, /proc, /dev/shm and terminals."
    try:
        with tempfile.TemporaryDirectory(prefix="perdure-trial-") as folder:
            Sandbox.empty(Path(folder)).kill()
    except PerdureError as error:
        return Fact(
            "sandbox", False, error.detail or error.sentence, means, error.hint or "The other checks say what is missing."
        )
    except OSError as error:
        return Fact("sandbox", False, str(error), means, "The folder for temporary files must be writable.")
    return Fact("sandbox", True, "one was made and ended", means)


def checks() -> tuple[Fact, ...]:
    """All facts, the trial last."""
    return (*Privilege.own().facts(), trial())


def can_protect(facts: tuple[Fact, ...]) -> bool:
    """Whether kernels can be put into sandboxes and checkpointed here, as far as privilege goes."""
    return all(fact.ok for fact in facts if fact.needed)
