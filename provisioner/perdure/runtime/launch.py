"""Starting perdure-shim and waiting until it says `ready`."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from perdure.domain.errors import BadRequest, SandboxFailed
from perdure.domain.ids import Owner

from .identity import ProcessIdentity, boot_id
from .programs import SHIM, program
from .status import ShimStatus

STATUS = "status"
LOG = "kernel.log"
READY_DEADLINE_S = 60.0
"""An interpreter on a slow network disk takes its time to be exec'ed; a shim that says nothing for longer hangs."""
_POLL_S = 0.002
GONE = 0
"""Start time of a process that ended before anybody asked: no process has it but those that were there at boot."""
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""What the shim itself runs with: nothing of the user's, nothing of the agent's."""


@dataclass(frozen=True)
class LaunchSpec:
    """What to run. `env` is complete; `cwd` is absolute and must exist for the owner."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str
    owner: Owner

    def __post_init__(self) -> None:
        """Raises BadRequest for what no exec could take."""
        if not self.argv or not self.argv[0]:
            raise BadRequest("There is no command to start the kernel with.", hint="The kernel spec's argv is empty.")
        if not self.cwd.startswith("/"):
            raise BadRequest(f"The working folder {self.cwd!r} is not absolute.")
        texts = [*self.argv, self.cwd, *self.env, *self.env.values()]
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in self.env):
            raise BadRequest("The kernel's command or environment holds a character that no program can be given.")


@dataclass
class Started:
    """A shim that said `ready`. `outer` is our child and must be reaped; `lifeline` is the end that keeps the sandbox alive."""

    shim: ProcessIdentity
    outer: subprocess.Popen[bytes]
    lifeline: int | None


def launch(folder: Path, owner: Owner | None, spec: LaunchSpec | None, *, die_with_agent: bool) -> Started:
    """Start a sandbox; without a spec an empty one. Raises SandboxFailed, and then nothing of it is left."""
    status = folder / STATUS
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status.unlink(missing_ok=True)  # an older sandbox's last lines are not ours
    command = [str(program(SHIM)), "--status", str(status), "--log", str(folder / LOG)]
    closing: list[int] = []
    lifeline = None
    try:
        passed: list[int] = []
        if die_with_agent:
            theirs, lifeline = os.pipe()
            closing.append(theirs)
            passed.append(theirs)
            command += ["--lifeline", str(theirs)]
        if owner is not None:
            command += ["--uid", str(owner.uid), "--gid", str(owner.gid), "--groups", ",".join(map(str, owner.groups))]
        if spec is None:
            command.append("--empty")
        else:
            environment = _environment_fd(spec.env)
            closing.append(environment)
            passed.append(environment)
            command += ["--env-fd", str(environment), "--cwd", spec.cwd, "--", *spec.argv]
        outer = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_ENVIRONMENT,
            cwd="/",
            pass_fds=passed,
            start_new_session=True,
        )
        try:
            return Started(_await_ready(outer, status), outer, lifeline)
        except BaseException:  # whatever it is, an interrupt too: a sandbox that nobody holds must not stay
            _abandon(outer, status)
            raise
    except BaseException as error:
        if lifeline is not None:
            os.close(lifeline)
        if isinstance(error, OSError):
            raise SandboxFailed("The sandbox could not be started.", detail=str(error)) from error
        raise
    finally:
        for fd in closing:
            os.close(fd)


def _environment_fd(env: dict[str, str]) -> int:
    fd = os.memfd_create("perdure-environment", os.MFD_CLOEXEC)
    data = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _await_ready(outer: subprocess.Popen[bytes], path: Path) -> ProcessIdentity:
    deadline = time.monotonic() + READY_DEADLINE_S
    while True:
        gone = outer.poll() is not None  # asked before reading: the last lines are written before it goes
        status = ShimStatus.read(path)
        if status.error is not None:
            outer.wait()
            what, _, why = status.error.partition(": ")
            raise SandboxFailed(f"The kernel could not be started: {what}: {why}.", hint=_hint(what), detail=status.error)
        if status.ready and status.shim_pid is not None:
            shim = ProcessIdentity.of(status.shim_pid)
            # A kernel may have ended by now, and its sandbox with it: that is no failure of the start, and `ended` tells it.
            # Asked again after the look: where the end is written down, the pid may have been somebody else's already.
            if shim is not None and ShimStatus.read(path).ended is None:
                return shim
            return ProcessIdentity(status.shim_pid, GONE, boot_id())
        if gone:
            raise SandboxFailed("The sandbox could not be started.", detail=f"perdure-shim ended with {outer.returncode}")
        if time.monotonic() > deadline:
            raise SandboxFailed(f"The sandbox was not ready after {READY_DEADLINE_S:.0f} seconds.", hint="Is a disk hanging?")
        time.sleep(_POLL_S)


def _hint(what: str) -> str:
    if what.startswith("working folder"):
        return "The folder must exist and its owner must be allowed to enter it."
    if what.startswith("command"):
        return "The kernel spec's argv names a program that is not there or can't be run by the kernel's owner."
    return "perdure doctor says what this host lacks."


def _abandon(outer: subprocess.Popen[bytes], path: Path) -> None:
    pid = ShimStatus.read(path).shim_pid
    shim = ProcessIdentity.of(pid) if pid is not None and outer.poll() is None else None
    if shim is not None and shim.alive():
        os.kill(shim.pid, 9)
        outer.wait()
    elif outer.poll() is None:
        outer.kill()  # no PID 1 yet, or one that waits for its go and ends when it finds nobody there
        outer.wait()
