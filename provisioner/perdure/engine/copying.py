"""Copies a file's bytes: holes stay holes, and where the file system can it shares blocks instead of copying."""

from __future__ import annotations

import errno
import os

_PIECE = 1 << 30
_NO_SHARING = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM)
"""What copy_file_range says where it can't: other file systems, pseudo files, old kernels, seccomp filters."""


_PAGE = 64 << 10
_ZEROS = bytes(_PAGE)


def copy_data(source: int, out: int, size: int) -> None:
    """The first `size` bytes of `source` into the empty file `out`; where the source is shorter, zeros follow."""
    os.ftruncate(out, size)
    at, sharing = 0, True
    while at < size:
        try:
            begin = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        if begin >= size:
            return
        end = min(os.lseek(source, begin, os.SEEK_HOLE), size)
        at = begin
        while at < end:
            copied, sharing = _piece(source, out, at, min(end - at, _PIECE), sharing)
            if not copied:
                return
            at += copied


def copy_but_zeros(source: int, out: int, size: int) -> None:
    """As `copy_data`, and long runs of zeros become holes, whether they were holes in the source or not."""
    os.ftruncate(out, size)
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA) // _PAGE * _PAGE
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        piece = os.pread(source, min(_PAGE, size - at), at) if at < size else b""
        if not piece:
            return
        if piece != _ZEROS[: len(piece)]:
            os.pwrite(out, piece, at)
        at += len(piece)


def _piece(source: int, out: int, at: int, count: int, sharing: bool) -> tuple[int, bool]:
    """(bytes copied, whether the quick way is worth another try)."""
    if sharing:
        try:
            return os.copy_file_range(source, out, count, at, at), True
        except OSError as error:
            if error.errno not in _NO_SHARING:
                raise
    os.lseek(out, at, os.SEEK_SET)
    return os.sendfile(out, source, at, count), False
