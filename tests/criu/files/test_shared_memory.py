"""What has a name in the sandbox's /dev/shm, and what has lost it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from live_kernel import LiveKernel
from perdure.domain.errors import NoRoom
from perdure.domain.ids import Owner
from perdure.engine.limits import CaptureLimits

pytestmark = [pytest.mark.criu, pytest.mark.root]

LOOK = """
import os, stat
def look(path):
    status = os.lstat(path)
    kind = stat.S_IFMT(status.st_mode)
    content = open(path, 'rb').read() if kind == stat.S_IFREG else os.readlink(path) if kind == stat.S_IFLNK else ''
    return (path, oct(status.st_mode), status.st_uid, status.st_gid, status.st_size, status.st_nlink, content)
def shm():
    names = sorted(os.path.join(folder, name) for folder, folders, files in os.walk('/dev/shm') for name in folders + files)
    return [look(name) for name in names]
"""


@pytest.mark.parametrize("owner", [Owner(0, 0), Owner(65534, 65534)], ids=["root", "nobody"])
def test_named_things_come_back(start_kernel: Callable[..., LiveKernel], owner: Owner) -> None:
    kernel = start_kernel(owner=owner)
    kernel.run(LOOK)
    kernel.run(
        "os.makedirs('/dev/shm/folder/inner', mode=0o750)\n"
        "open('/dev/shm/folder/inner/a file\\n\\udcff', 'wb').write(b'content')\n"
        "os.chmod('/dev/shm/folder/inner/a file\\n\\udcff', 0o640)\n"
        "open('/dev/shm/empty', 'wb').close()\n"
        "os.link('/dev/shm/empty', '/dev/shm/empty too')\n"
        "os.symlink('folder', '/dev/shm/link')\n"
        "os.mkfifo('/dev/shm/fifo')\n"
    )
    before = kernel.run("repr(shm())")
    for _ in range(2):
        snapshot = kernel.snapshot()
        kernel.run("import shutil; shutil.rmtree('/dev/shm/folder'); open('/dev/shm/later', 'w').close()")
        kernel.kill()
        kernel.restore(snapshot)
        assert kernel.run("repr(shm())") == before


def test_sparse_files_stay_sparse(kernel: LiveKernel) -> None:
    kernel.run("import os; f = open('/dev/shm/sparse', 'wb+', buffering=0); f.truncate(1 << 30); f.seek(1 << 29); f.write(b'x')")
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("f.tell() == (1 << 29) + 1, os.pread(f.fileno(), 2, 1 << 29)") == "(True, b'x\\x00')"
    assert kernel.run("os.fstat(f.fileno()).st_size == 1 << 30, os.fstat(f.fileno()).st_blocks < 1000") == "(True, True)"


def test_arrays_and_semaphores(kernel: LiveKernel) -> None:
    """A4: np.memmap named and unlinked, shared memory, POSIX semaphores named and unlinked, an unlinked file, a memfd."""
    kernel.run(
        "import numpy as np, os, tempfile, hashlib, multiprocessing as mp\n"
        "from multiprocessing import shared_memory\n"
        "named = np.memmap('/dev/shm/named', dtype='u1', mode='w+', shape=50_000_000); named[:] = np.arange(50_000_000) % 251\n"
        "gone = np.memmap('/dev/shm/gone', dtype='u1', mode='w+', shape=5_000_000); gone[:] = 7; os.unlink('/dev/shm/gone')\n"
        "shared = shared_memory.SharedMemory(create=True, size=1000); shared.buf[:5] = b'hello'\n"
        "semaphore = mp.get_context('spawn').Semaphore(3); semaphore.acquire()\n"
        "import ctypes; c = ctypes.CDLL(None, use_errno=True); c.sem_open.restype = ctypes.c_void_p\n"
        "posix = c.sem_open(b'/posix', os.O_CREAT, 0o600, 5); c.sem_wait(ctypes.c_void_p(posix))\n"
        "unlinked = tempfile.TemporaryFile(); unlinked.write(b'0123456789' * 10_000_000); unlinked.flush()\n"
        "memfd = os.memfd_create('m'); os.write(memfd, b'in memory')\n"
    )
    for turn in range(2):
        snapshot = kernel.snapshot()
        kernel.run("named[:] = 0; gone[:] = 0; shared.buf[:5] = b'later'; unlinked.truncate(5); os.ftruncate(memfd, 0)")
        kernel.run("semaphore.acquire(); c.sem_wait(ctypes.c_void_p(posix))")
        kernel.kill()
        kernel.restore(snapshot)
        assert kernel.run(
            "bool((named == np.arange(50_000_000) % 251).all()), bool((gone == 7).all()), bytes(shared.buf[:5])"
        ) == ("(True, True, b'hello')"), turn
        assert (
            kernel.run("value = ctypes.c_int(); c.sem_getvalue(ctypes.c_void_p(posix), ctypes.byref(value)); value.value") == "4"
        )
        assert kernel.run("[semaphore.acquire(block=False) for _ in range(3)]") == "[True, True, False]"
        kernel.run("semaphore.release(); semaphore.release()")
        expected = hashlib.md5(b"0123456789" * 10_000_000).hexdigest()
        assert kernel.run("unlinked.seek(0); hashlib.md5(unlinked.read()).hexdigest()") == repr(expected)
        assert kernel.run("os.pread(memfd, 100, 0)") == "b'in memory'"
        # Another name for the same semaphore and the same memory: the mapping is of the new file, not of a copy.
        assert kernel.run("other = np.memmap('/dev/shm/named', dtype='u1', mode='r+'); other[3] = 200; int(named[3])") == "200"
        kernel.run("named[3] = 3; del other")


def test_too_much_of_it_is_refused_and_the_kernel_goes_on(kernel: LiveKernel) -> None:
    kernel.run("x = 1; f = open('/dev/shm/big', 'wb'); f.write(b'x' * 2_000_000); f.flush()")
    with pytest.raises(NoRoom):
        kernel.snapshot(limits=CaptureLimits(shm_bytes=1 << 20))
    assert kernel.run("x") == "1"
    snapshot = kernel.snapshot()
    kernel.kill()
    kernel.restore(snapshot)
    assert kernel.run("import os; x, os.path.getsize('/dev/shm/big')") == "(1, 2000000)"
