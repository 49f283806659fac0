"""A8: inotify, eventfd, signalfd, timerfd, epoll, pipes with data in them."""

from __future__ import annotations

import pytest
from live_kernel import LiveKernel

pytestmark = [pytest.mark.criu, pytest.mark.root]


def test_watched_folder(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    (kernel.home / "watched").mkdir()
    kernel.run(
        "import queue; from watchdog.observers import Observer; from watchdog.events import FileSystemEventHandler\n"
        "events = queue.Queue()\n"
        "class Handler(FileSystemEventHandler):\n"
        "    def on_created(self, event):\n"
        "        events.put(event.src_path)\n"
        "observer = Observer(); observer.schedule(Handler(), 'watched'); observer.start()"
    )
    number = 0

    def check() -> None:
        nonlocal number
        number += 1
        (kernel.home / "watched" / f"file-{number}").touch()
        assert kernel.run("events.get(timeout=20)").endswith(f"file-{number}'")

    check()
    survives(check)
    kernel.run("observer.stop(); observer.join()")


def test_descriptors_of_all_kinds(kernel: LiveKernel, survives) -> None:  # type: ignore[no-untyped-def]
    kernel.run(
        "import ctypes, os, select, signal, struct\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "event = os.eventfd(41, os.EFD_NONBLOCK)\n"
        "mask = ctypes.create_string_buffer(128); libc.sigemptyset(mask); libc.sigaddset(mask, signal.SIGRTMIN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN]); signals = libc.signalfd(-1, mask, os.O_NONBLOCK)\n"
        "timer = libc.timerfd_create(1, os.O_NONBLOCK)\n"
        "def arm():\n"
        "    spec = struct.pack('4q', 0, 0, 1, 0); assert libc.timerfd_settime(timer, 0, spec, None) == 0\n"
        "out, into = os.pipe(); os.write(into, b'in the pipe' * 1000)\n"
        "one, other = __import__('socket').socketpair(); one.send(b'in the socket')\n"
        "poll = select.epoll()\n"
        "[poll.register(fd, select.EPOLLIN) for fd in (event, signals, timer, out, other.fileno())]\n"
        "names = {event: 'event', signals: 'signals', timer: 'timer', out: 'out', other.fileno(): 'other'}\n"
        "ready = lambda: sorted(names[fd] for fd, _ in poll.poll(0))\n"
        "def rearm():\n"
        "    arm(); os.eventfd_write(event, 41); os.write(into, b'in the pipe' * 1000); one.send(b'in the socket')\n"
        "arm()"
    )
    assert kernel.run("'event' in ready(), signals >= 0, timer >= 0") == "(True, True, True)"

    def check() -> None:

        kernel.run(
            "import time; deadline = time.monotonic() + 20\n"
            "while 'timer' not in ready():\n"
            "    assert time.monotonic() < deadline; time.sleep(.01)"
        )
        assert kernel.run("ready()") == "['event', 'other', 'out', 'timer']"
        assert kernel.run("os.eventfd_read(event), len(os.read(out, 1 << 16)), other.recv(100), os.read(timer, 8)[0]") == (
            "(41, 11000, b'in the socket', 1)"
        )
        kernel.run("signal.pthread_kill(__import__('threading').main_thread().ident, signal.SIGRTMIN)")
        assert (
            kernel.run("ready(), struct.unpack_from('I', os.read(signals, 128))[0] == signal.SIGRTMIN") == "(['signals'], True)"
        )
        kernel.run("rearm()")

    survives(check)
