"""A4: shared memory with and without a name, a semaphore, a large file without a name, a memfd."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_memory_maps_in_shared_memory(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import os, numpy as np\n"
        "named = np.memmap('/dev/shm/named', dtype='f8', mode='w+', shape=(1 << 20,)); named[:] = np.arange(1 << 20)\n"
        "unlinked = np.memmap('/dev/shm/unlinked', dtype='f8', mode='w+', shape=(1 << 20,)); unlinked[:] = 2\n"
        "os.unlink('/dev/shm/unlinked'); rounds = 0"
    )
    rounds = 0

    def check() -> None:
        nonlocal rounds
        assert kernel.run("float(named[1:].sum()) == (1 << 20) * ((1 << 20) - 1) / 2, float(unlinked[1:].sum())") == (
            f"(True, {2.0 * ((1 << 20) - 1)})"
        )
        assert kernel.run("int(named[0]), int(unlinked[0])") == f"({rounds}, {2 + rounds})"
        rounds += 1
        kernel.run("named[0] += 1; unlinked[0] += 1; named.flush()")
        assert kernel.run("int(np.fromfile('/dev/shm/named', dtype='f8', count=1)[0])") == str(rounds)
        assert kernel.run("os.path.exists('/dev/shm/unlinked')") == "False"

    survives(check, lambda: kernel.run("named[:] = 0; unlinked[:] = 0"))


def test_shared_memory_between_processes(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import multiprocessing as mp\nfrom multiprocessing.shared_memory import SharedMemory\n"
        "context = mp.get_context('fork'); shared = SharedMemory(create=True, size=1 << 20)\n"
        "asked, done = context.Semaphore(0), context.Semaphore(0)\n"
        "def work():\n"
        "    while True:\n"
        "        asked.acquire(); shared.buf[0] += 1; done.release()\n"
        "worker = context.Process(target=work, daemon=True); worker.start(); shared.buf[1:6] = b'words'"
    )
    number = 0

    def check() -> None:
        nonlocal number
        number += 1
        assert kernel.run("asked.release(); done.acquire(timeout=20), shared.buf[0], bytes(shared.buf[1:6])") == (
            f"(True, {number}, b'words')"
        )
        assert kernel.run("again = SharedMemory(shared.name); print(bytes(again.buf[1:6])); again.close()") == "b'words'"

    survives(check, end=lambda: kernel.run("worker.kill(); worker.join(); shared.close(); shared.unlink()"))


def test_files_without_a_name(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import hashlib, os, tempfile\n"
        "big = tempfile.TemporaryFile(dir='.'); block = os.urandom(1 << 20)\n"
        "for n in range(100):\n"
        "    big.write(block)\n"
        "big.flush(); big.seek(12345)\n"
        "memory = open(os.memfd_create('mine'), 'w+b'); memory.write(block); memory.flush(); memory.seek(7)\n"
        "def digest(file):\n"
        "    at = file.tell(); file.seek(0); found = hashlib.file_digest(file, 'sha256').hexdigest()\n"
        "    file.seek(at); return found\n"
        "facts = lambda: (big.tell(), memory.tell(), digest(big), digest(memory), os.fstat(big.fileno()).st_size)"
    )
    facts = kernel.run("facts()")

    def check() -> None:
        assert kernel.run("facts()") == facts
        assert (
            kernel.run("at = memory.seek(0, 2); memory.write(b'x'), memory.truncate(at), memory.seek(7)") == f"(1, {1 << 20}, 7)"
        )

    survives(check, lambda: kernel.run("big.seek(0); big.write(b'later'); big.flush(); memory.truncate(0)"))
