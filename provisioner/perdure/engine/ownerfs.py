"""File system calls with a kernel owner's rights, in a sandbox's (or the host's) root.

The agent is root, and the paths that it is told come from images and from folders that users control. So whatever it opens or
writes on a user's behalf is done by a thread that has that user's file system credentials: a path can lead nowhere that the user
could not go. Linux keeps credentials per thread; glibc spreads some of them over all threads, so setgroups goes past it. The
thread ends with the work, and its credentials with it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from perdure.domain.ids import Owner

Result = TypeVar("Result")

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
_OPENAT2, _FACCESSAT2 = 437, 439
_NO_MAGICLINKS, _NO_SYMLINKS, _IN_ROOT = 0x02, 0x04, 0x10
"""linux/openat2.h: RESOLVE_*"""
_AT_EACCESS, _AT_EMPTY_PATH = 0x200, 0x1000
_NOBODY = 2**32 - 1
"""An id that can't be set: the call only tells the present one."""
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def owner_of(pid: int) -> Owner:
    """The credentials that a process has for files. Raises ProcessLookupError."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    return Owner(int(fields["Uid"][3]), int(fields["Gid"][3]), tuple(int(group) for group in fields["Groups"]))


def as_owner(owner: Owner, work: Callable[[], Result]) -> Result:
    """Runs `work` with the owner's file system rights, in a thread of its own. What it raises is raised here.

    Raises PermissionError without CAP_SETUID and CAP_SETGID (unless the caller is that owner).
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            _become(owner)
            results.append(work())
        except BaseException as error:  # it belongs to the caller's thread
            errors.append(error)

    thread = threading.Thread(target=run, name="as-owner")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


class Root:
    """A folder that stands for `/`. Nothing that is looked up in it leads out of it. Close it, or use it in a `with`."""

    def __init__(self, path: str | Path = "/") -> None:
        self.fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.fd)

    def open(self, path: str, flags: int, mode: int = 0, *, symlinks: bool = False) -> int:
        """A descriptor. `symlinks`: follow those that stay inside; else one of them anywhere in the path is ELOOP."""
        name = os.fsencode(path)
        if b"\0" in name:
            raise ValueError("embedded null byte")
        resolve = _IN_ROOT | _NO_MAGICLINKS | (0 if symlinks else _NO_SYMLINKS)
        how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, resolve)
        fd = _libc.syscall(_OPENAT2, self.fd, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return int(fd)

    def stat(self, path: str, *, symlinks: bool = False) -> os.stat_result:
        fd = self.open(path, os.O_PATH if symlinks else os.O_PATH | os.O_NOFOLLOW, symlinks=symlinks)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)


def may(fd: int, mode: int) -> bool:
    """Whether this thread may read, write, execute (os.R_OK …) what the descriptor (O_PATH will do) stands for."""
    return int(_libc.syscall(_FACCESSAT2, fd, b"", mode, _AT_EACCESS | _AT_EMPTY_PATH)) == 0


def _become(owner: Owner) -> None:
    if (os.geteuid(), os.getegid()) == (owner.uid, owner.gid) and set(os.getgroups()) == set(owner.groups):
        return
    groups = (ctypes.c_uint32 * len(owner.groups))(*owner.groups)
    if _libc.syscall(_SETGROUPS[platform.machine()], len(owner.groups), groups) < 0:
        number = ctypes.get_errno()
        raise PermissionError(number, f"can't take on the groups of uid {owner.uid}: {os.strerror(number)}")
    _libc.setfsgid(ctypes.c_uint32(owner.gid))
    _libc.setfsuid(ctypes.c_uint32(owner.uid))
    now = (_libc.setfsuid(ctypes.c_uint32(_NOBODY)), _libc.setfsgid(ctypes.c_uint32(_NOBODY)))
    if tuple(number & _NOBODY for number in now) != (owner.uid, owner.gid):
        raise PermissionError(f"can't take on uid {owner.uid} and gid {owner.gid} for files: have {now}")
