"""CRIU's log -> one sentence that names the object in the way."""

from __future__ import annotations

import os
import re
from pathlib import Path

from perdure.domain.target import Target

from . import tree

_TAIL_LINES = 80
_ERROR = re.compile(r"(?:^|\s)Error \([^)]*\): (.*)")
_NOISE = re.compile(
    r"rlimit: Can't setup RLIMIT_NOFILE for self"  # it goes on with the limit that it has
    r"|Unable to detach from \d+: No such process"  # says only that it undid what it had not begun
    r"|failed with -1$|FAILED\.$|Can't retrieve FDs|Message reply from daemon is trimmed"
)
_DUMPED_PROCESS = re.compile(r"Dump (?:files|mappings) \(pid: (\d+)\)")

_RULES = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"Can't dump file (?P<fd>\d+) of that type \[\w+\] \((?P<what>.*)\)",
            "{who} has {what} open (descriptor {fd}), which can't be saved.",
        ),
        (
            r"Can't lookup mount=\d+ for fd=(?P<fd>\d+) path=(?P<what>.*)",
            "{who} has {what} open (descriptor {fd}), which no file system in its sandbox has.",
        ),
        (
            r"Can't dump ghost file (?P<what>.*) of (?P<size>\d+) size",
            "{who} has the deleted file {what} open; its {size} bytes are too many for the image.",
        ),
        (r"External socket is used", "{who} is connected to a Unix socket outside the kernel."),
        (
            r"Unknown socket collected \(family (?P<family>\d+)\)",
            "{who} has a socket of family {family} open, which can't be saved.",
        ),
        (
            r"ctty inheritance detected .*\(ctty pid_real (?P<pid>\d+)",
            "Process {pid} has its terminal open as /dev/tty while another one holds its other end "
            "(a shell with job control, say), which CRIU can't save.",
        ),
        (r"tun: ", "{who} has /dev/net/tun open, which can't be saved."),
        (r"Can't dump nested (?P<what>\w+) namespace for (?P<pid>\d+)", "Process {pid} lives in a {what} namespace of its own."),
        (r"with SysVIPC shmem map", "{who} uses System V shared memory, which can't be saved."),
        (r"Unseizable non-zombie (?P<pid>\d+) found", "Process {pid} can't be stopped: something else traces it."),
        (r"No space left on device", "The disk is full."),
        (
            r"File /?(?P<path>.*) has bad (?P<what>size|mode|build-ID|checksum)",
            "The file /{path} has changed since the snapshot ({what}).",
        ),
        (r"Can't (?:open file|link) /?(?P<path>\S+?)(?: on restore)?:? .*No such file", "The file /{path} is missing here."),
        (r"Can't open file /?(?P<path>\S+?)(?: on restore)?: (?P<why>.*)", "The file /{path} can't be opened here: {why}."),
        (r"Can't bind (?:inet|unix) socket.*: (?P<why>.*)", "An address that the kernel listened on can't be used here: {why}."),
    )
)


def sentence(log: Path, fallback: str, target: Target) -> str:
    """What the log says is in the way, in one sentence; `fallback` when it says nothing that we understand."""
    lines = _lines(log)
    errors = [match[1] for line in lines if (match := _ERROR.search(line))]
    meaningful = [error for error in errors if not _NOISE.search(error)]
    who = _who(errors, target)
    for error in meaningful:
        for pattern, words in _RULES:
            if match := pattern.search(error):
                found = match.groupdict()
                if found.get("what", "").startswith("chr "):
                    found["what"] = _path(found["fd"], errors, target) or found["what"]
                return words.format(who=who, **found)
    return meaningful[0].rstrip(".") + "." if meaningful else fallback


def tail(log: Path, stderr: str = "") -> str:
    """The end of the log, for an engineer."""
    return "\n".join([*_lines(log)[-_TAIL_LINES:], stderr]).strip()


def _who(errors: list[str], target: Target) -> str:
    process = _process(errors, target)
    return f"Process {process.inner_pid} ({process.name})" if process else "A process of the kernel"


def _process(errors: list[str], target: Target) -> tree.Process | None:
    for error in errors:
        if match := _DUMPED_PROCESS.search(error):
            return next((one for one in tree.descendants(target.kernel_pid) if one.inner_pid == int(match[1])), None)
    return None


def _path(descriptor: str, errors: list[str], target: Target) -> str:
    """CRIU names a device by its numbers; the process, which goes on, still has it open under its path."""
    process = _process(errors, target)
    try:
        return os.readlink(f"/proc/{process.pid}/fd/{descriptor}") if process else ""
    except OSError:
        return ""


def _lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
